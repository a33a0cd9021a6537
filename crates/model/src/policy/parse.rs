//! Parses one file into the draft of the policy: keys, types and single values. [`super::check`] checks them together.

mod flows;
mod groups;
mod values;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::matcher::{Matcher, interface_name};
use super::outline::Outline;
use super::program::Framing;
use super::{DEFAULT, HOST, OnConflict, Spoofing};
use crate::problem::{Problem, Source};
use crate::rate::BitRate;
use crate::toml_reader::{Reader, Section, hint};

use values::{addresses, excess, limit, matcher, rate, text, time};

pub use flows::FlowDraft;
pub use groups::GroupDraft;

/// A value and its position.
#[derive(Debug, Clone)]
pub struct At<T> {
    pub value: T,
    /// Index of the file.
    pub file: usize,
    pub span: Range<usize>,
}

/// IP addresses, each with its position.
pub type Addresses = Vec<(IpAddr, Range<usize>)>;

#[derive(Debug, Default)]
pub struct ClassDraft {
    pub priority: Option<At<u8>>,
    pub min: Option<At<BitRate>>,
    pub max: Option<At<BitRate>>,
    pub weight: Option<At<u32>>,
    pub reserve: Option<At<bool>>,
    pub over_max: Option<At<bool>>,
    pub queue: Option<At<Duration>>,
    pub delay: Option<At<Duration>>,
    pub jitter: Option<At<Duration>>,
    pub local: Option<At<bool>>,
    /// Whether what is above the maximum is dropped.
    pub excess: Option<At<bool>>,
    pub burst: Option<At<Duration>>,
    pub group: GroupDraft,
    pub flows: Option<At<Vec<FlowDraft>>>,
}

#[derive(Debug)]
pub struct UplinkDraft {
    /// Where it is first named.
    pub first: At<()>,
    pub capacity: Option<At<BitRate>>,
    pub framing: Option<At<Framing>>,
    pub gateways: Option<At<Addresses>>,
    /// A capacity is written, but invalid.
    pub damaged: bool,
}

#[derive(Debug, Default)]
pub struct GuardDraft {
    pub period: Option<At<Duration>>,
    pub allow_unenforced: Option<At<bool>>,
    pub on_conflict: Option<At<OnConflict>>,
    pub spoofing: Option<At<Spoofing>>,
    pub measure_delay: Option<At<bool>>,
}

#[derive(Debug)]
pub struct EntryDraft {
    pub here: At<()>,
    pub matcher: Option<At<Matcher>>,
    pub class: Option<At<String>>,
    pub rx_class: Option<At<String>>,
    pub uplink: Option<At<String>>,
    pub addresses: Option<At<Addresses>>,
    pub router: Option<At<bool>>,
    /// One of its values is invalid, so a missing one may have been written.
    pub damaged: bool,
}

/// The same key in two files.
#[derive(Debug)]
pub struct Clash {
    pub key: String,
    pub first: At<()>,
    pub second: At<()>,
}

/// The content of all files.
#[derive(Debug, Default)]
pub struct Draft {
    pub uplinks: BTreeMap<String, UplinkDraft>,
    pub classes: BTreeMap<String, ClassDraft>,
    pub guard: GuardDraft,
    pub entries: Vec<EntryDraft>,
    pub clashes: Vec<Clash>,
    /// A file is no TOML: what is missing may be in it.
    pub broken: bool,
}

impl<T> At<T> {
    pub fn place(&self) -> At<()> {
        At { value: (), file: self.file, span: self.span.clone() }
    }
}

/// Adds a file to the draft.
pub fn read(draft: &mut Draft, index: usize, source: &Source<'_>, problems: &mut Vec<Problem>) {
    let (root, errors) = DeTable::parse_recoverable(source.text);
    if !errors.is_empty() {
        draft.broken = true;
        let outline = Outline::new(source);
        for error in &errors {
            let span = error.span().unwrap_or(0..0);
            let mut what = format!("invalid TOML: {}", error.message());
            if let Some(first) = outline.before(&span).filter(|_| what.ends_with("duplicate key")) {
                what += &format!("; it stood first in {first}");
            }
            problems.push(source.problem(&span, outline.key(&span), what));
        }
        return;
    }
    let mut file = File { index, reader: Reader { source, problems: Vec::new() }, draft };
    file.read(root.get_ref());
    problems.append(&mut file.reader.problems);
}

/// Overrides classes of the draft with those of a text.
pub fn read_over(draft: &mut Draft, index: usize, source: &Source<'_>, problems: &mut Vec<Problem>) {
    let mut over = Draft::default();
    read(&mut over, index, source, problems);
    let Draft { uplinks, classes, guard, entries, clashes, broken } = over;
    draft.broken |= broken;
    draft.clashes.extend(clashes);
    let others = uplinks.values().map(|u| u.first.place()).chain(entries.iter().map(|e| e.here.place()));
    let of_guard = guard.period.iter().map(At::place).chain(guard.allow_unenforced.iter().map(At::place));
    let conduct = guard.on_conflict.iter().map(At::place).chain(guard.spoofing.iter().map(At::place));
    let measures = guard.measure_delay.iter().map(At::place);
    for at in others.chain(of_guard).chain(conduct).chain(measures) {
        problems.push(source.problem(&at.span, "", "only classes can be changed over the files"));
    }
    for (name, written) in classes {
        if !draft.classes.contains_key(&name) && ![HOST, DEFAULT].contains(&name.as_str()) {
            let first = written.first().map_or(0..0, |at| at.span);
            let there: Vec<&str> = draft.classes.keys().map(String::as_str).collect();
            let hint = hint(&name, &there);
            problems.push(source.problem(&first, &format!("class.{name}"), format!("no file has such a class{hint}")));
            continue;
        }
        draft.classes.entry(name).or_default().overlay(written);
    }
}

impl ClassDraft {
    /// Takes over the keys of another one.
    fn overlay(&mut self, over: ClassDraft) {
        // All keys, so that a new one is not forgotten here.
        let ClassDraft {
            priority,
            min,
            max,
            weight,
            reserve,
            over_max,
            queue,
            delay,
            jitter,
            local,
            excess,
            burst,
            group,
            flows,
        } = over;
        self.priority = priority.or(self.priority.take());
        self.min = min.or(self.min.take());
        self.max = max.or(self.max.take());
        self.weight = weight.or(self.weight.take());
        self.reserve = reserve.or(self.reserve.take());
        self.over_max = over_max.or(self.over_max.take());
        self.queue = queue.or(self.queue.take());
        self.delay = delay.or(self.delay.take());
        self.jitter = jitter.or(self.jitter.take());
        self.local = local.or(self.local.take());
        self.excess = excess.or(self.excess.take());
        self.burst = burst.or(self.burst.take());
        self.group.overlay(group);
        self.flows = flows.or(self.flows.take());
    }

    /// Position of its first key.
    fn first(&self) -> Option<At<()>> {
        let rates = self.min.iter().chain(&self.max).map(At::place);
        let switches = self.reserve.iter().chain(&self.over_max).chain(&self.local).chain(&self.excess).map(At::place);
        let numbers = self.priority.iter().map(At::place).chain(self.weight.iter().map(At::place));
        let times = self.queue.iter().chain(&self.delay).chain(&self.jitter).chain(&self.burst).map(At::place);
        let others = self.group.places().map(|(_, at)| at).chain(self.flows.iter().map(At::place));
        rates.chain(switches).chain(times).chain(numbers).chain(others).min_by_key(|at| at.span.start)
    }
}

struct File<'a, 'd> {
    index: usize,
    reader: Reader<'a>,
    draft: &'d mut Draft,
}

impl<'a> File<'a, '_> {
    fn read(&mut self, root: &DeTable<'_>) {
        let top = Section { path: "".into(), span: 0..0, table: root };
        self.reader.known_keys(&top, &["uplink", "class", "interface", "guard"]);
        for (name, s) in self.named_sections(&top, "uplink") {
            self.uplink(name, &s);
        }
        for (name, s) in self.named_sections(&top, "class") {
            self.class(name, &s);
        }
        if let Some(s) = self.section(&top, "guard", "a section: write [guard]") {
            self.guard(&s);
        }
        let Some(value) = root.get("interface") else { return };
        let DeValue::Array(items) = value.get_ref() else {
            self.reader.wrong_type(
                &value.span(),
                "interface",
                "a list of tables: write [[interface]]",
                value.get_ref(),
            );
            return;
        };
        for item in items.iter() {
            match item.get_ref() {
                DeValue::Table(table) => {
                    self.interface(&Section { path: "interface".into(), span: item.span(), table });
                }
                other => self.reader.wrong_type(&item.span(), "interface", "a table: write [[interface]]", other),
            }
        }
    }

    /// `[uplink.NAME]` and `[class.NAME]`.
    fn named_sections<'t, 'i>(&mut self, top: &Section<'t, 'i>, key: &'static str) -> Vec<(&'t str, Section<'t, 'i>)> {
        let wanted = format!("a section: write [{key}.NAME]");
        let Some(all) = self.section(top, key, &wanted) else { return Vec::new() };
        let mut sections = Vec::new();
        for (name, value) in all.table.iter() {
            let path = format!("{key}.{}", name.get_ref());
            match value.get_ref() {
                DeValue::Table(table) => {
                    sections.push((name.get_ref().as_ref(), Section { path: path.into(), span: name.span(), table }));
                }
                other => self.reader.wrong_type(&value.span(), &path, &wanted, other),
            }
        }
        sections
    }

    fn section<'t, 'i>(&mut self, top: &Section<'t, 'i>, key: &'static str, wanted: &str) -> Option<Section<'t, 'i>> {
        let value = top.table.get(key)?;
        match value.get_ref() {
            DeValue::Table(table) => Some(Section { path: key.into(), span: value.span(), table }),
            other => {
                self.reader.wrong_type(&value.span(), key, wanted, other);
                None
            }
        }
    }

    fn uplink(&mut self, name: &str, s: &Section<'_, '_>) {
        if let Err(why) = interface_name(name) {
            self.reader.problem(&s.span, &s.path, why.to_string());
        }
        self.reader.known_keys(s, &["capacity", "framing", "gateways"]);
        let capacity = self.optional(s, "capacity", |reader, value, path| {
            let rate = rate(reader, value, path)?;
            if rate == BitRate::ZERO {
                reader.problem(&value.span(), path, "must be at least 1 bit/s".to_owned());
            }
            (rate > BitRate::ZERO).then_some(rate)
        });
        let framing = self.optional(s, "framing", |reader, value, path| {
            Some([Framing::ETHERNET, Framing::NONE][reader.word(value, path, &["ethernet", "none"])?])
        });
        let gateways = self.optional(s, "gateways", addresses);
        let first = At { value: (), file: self.index, span: s.span.clone() };
        let unwritten = UplinkDraft { first, capacity: None, framing: None, gateways: None, damaged: false };
        let uplink = self.draft.uplinks.entry(name.to_owned()).or_insert(unwritten);
        uplink.damaged |= s.table.contains_key("capacity") && capacity.is_none();
        add(&mut uplink.capacity, capacity, s, "capacity", &mut self.draft.clashes);
        add(&mut uplink.framing, framing, s, "framing", &mut self.draft.clashes);
        add(&mut uplink.gateways, gateways, s, "gateways", &mut self.draft.clashes);
    }

    fn class(&mut self, name: &str, s: &Section<'_, '_>) {
        let good = |c: char| c.is_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.chars().count() > 64 || !name.chars().all(good) {
            let what = "a class's name has 1 to 64 letters, digits, `-`, `_` or `.`".to_owned();
            self.reader.problem(&s.span, &s.path, what);
        }
        let of_wire = ["priority", "min", "max", "weight", "reserve", "over_max", "queue", "delay", "jitter"];
        let of_guest = ["cpu_weight", "cpu_max", "memory_max", "memory_min", "memory_move"];
        let known = [&of_wire[..], &["local", "excess", "burst"], &of_guest, &["flow"]].concat();
        self.reader.known_keys(s, &known);
        let part = ClassDraft {
            priority: self.optional(s, "priority", |r, v, path| Some(r.whole_value(v, path, 1, 8)? as u8)),
            min: self.optional(s, "min", rate),
            max: self.optional(s, "max", limit),
            weight: self.optional(s, "weight", |r, v, path| r.whole_value(v, path, 1, u32::MAX)),
            reserve: self.optional(s, "reserve", |r, v, path| Some(r.word(v, path, &["soft", "hard"])? == 1)),
            over_max: self.optional(s, "over_max", |r, v, path| r.switch_value(v, path)),
            queue: self.optional(s, "queue", time),
            delay: self.optional(s, "delay", time),
            jitter: self.optional(s, "jitter", time),
            local: self.optional(s, "local", |r, v, path| Some(r.word(v, path, &["count", "limit"])? == 1)),
            excess: self.optional(s, "excess", excess),
            burst: self.optional(s, "burst", time),
            group: self.group(s),
            flows: self.flows(s),
        };
        let class = self.draft.classes.entry(name.to_owned()).or_default();
        let clashes = &mut self.draft.clashes;
        add(&mut class.priority, part.priority, s, "priority", clashes);
        add(&mut class.min, part.min, s, "min", clashes);
        add(&mut class.max, part.max, s, "max", clashes);
        add(&mut class.weight, part.weight, s, "weight", clashes);
        add(&mut class.reserve, part.reserve, s, "reserve", clashes);
        add(&mut class.over_max, part.over_max, s, "over_max", clashes);
        add(&mut class.queue, part.queue, s, "queue", clashes);
        add(&mut class.delay, part.delay, s, "delay", clashes);
        add(&mut class.jitter, part.jitter, s, "jitter", clashes);
        add(&mut class.local, part.local, s, "local", clashes);
        add(&mut class.excess, part.excess, s, "excess", clashes);
        add(&mut class.burst, part.burst, s, "burst", clashes);
        class.group.add(part.group, s, clashes);
        add(&mut class.flows, part.flows, s, "flow", clashes);
    }

    fn guard(&mut self, s: &Section<'_, '_>) {
        self.reader.known_keys(s, &["period", "allow_unenforced", "on_conflict", "spoofing", "measure_delay"]);
        let period = self.optional(s, "period", time);
        let allow = self.optional(s, "allow_unenforced", |r, v, path| r.switch_value(v, path));
        let on_conflict =
            self.optional(s, "on_conflict", |r, v, path| Some(OnConflict::ALL[r.word(v, path, &OnConflict::WORDS)?]));
        let spoofing =
            self.optional(s, "spoofing", |r, v, path| Some(Spoofing::ALL[r.word(v, path, &Spoofing::WORDS)?]));
        let measures = self.optional(s, "measure_delay", |r, v, path| r.switch_value(v, path));
        let (guard, clashes) = (&mut self.draft.guard, &mut self.draft.clashes);
        add(&mut guard.period, period, s, "period", clashes);
        add(&mut guard.allow_unenforced, allow, s, "allow_unenforced", clashes);
        add(&mut guard.on_conflict, on_conflict, s, "on_conflict", clashes);
        add(&mut guard.spoofing, spoofing, s, "spoofing", clashes);
        add(&mut guard.measure_delay, measures, s, "measure_delay", clashes);
    }

    fn interface(&mut self, s: &Section<'_, '_>) {
        let before = self.reader.problems.len();
        self.reader.known_keys(s, &["match", "class", "rx_class", "uplink", "addresses", "router"]);
        if s.table.get("match").is_none() {
            let what = "missing; write for example match = { name = \"vnet0\" }".to_owned();
            self.reader.problem(&s.span, "interface.match", what);
        }
        let matcher = self.optional(s, "match", matcher);
        let [class, rx_class, uplink] = ["class", "rx_class", "uplink"].map(|key| self.optional(s, key, text));
        let addresses = self.optional(s, "addresses", addresses);
        let router = self.optional(s, "router", |r, v, path| r.switch_value(v, path));
        let here = At { value: (), file: self.index, span: s.span.clone() };
        let damaged = self.reader.problems.len() > before;
        self.draft.entries.push(EntryDraft { here, matcher, class, rx_class, uplink, addresses, router, damaged });
    }

    /// An optional value.
    fn optional<T>(
        &mut self,
        s: &Section<'_, '_>,
        key: &str,
        each: impl FnOnce(&mut Reader<'a>, &Spanned<DeValue<'_>>, &str) -> Option<T>,
    ) -> Option<At<T>> {
        let value = s.table.get(key)?;
        let read = each(&mut self.reader, value, &s.key(key))?;
        Some(At { value: read, file: self.index, span: value.span() })
    }
}

/// Sets a value; a second file with the same key is a clash.
fn add<T>(slot: &mut Option<At<T>>, new: Option<At<T>>, s: &Section<'_, '_>, key: &str, clashes: &mut Vec<Clash>) {
    match (&slot, new) {
        (_, None) => {}
        (None, new) => *slot = new,
        (Some(first), Some(new)) => {
            clashes.push(Clash { key: s.key(key), first: first.place(), second: new.place() });
        }
    }
}
