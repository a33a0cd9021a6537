//! Checks across the files of a policy: references, overlaps, and whether the minima fit.

mod addresses;
mod delay;
mod excess;
mod flows;
mod groups;

use std::collections::BTreeMap;

use self::addresses::listed;
use super::delay::{PRIORITY, has_targets};
use super::parse::{self, At, ClassDraft, Draft, EntryDraft};
use super::program::Framing;
use super::{
    Class, DEFAULT, Direction, Entry, Guard, HOST, HOST_PART, Links, Loaded, Matcher, Policy, PolicyError, Uplink,
};
use crate::problem::{Problem, Source};
use crate::rate::BitRate;
use crate::toml_reader::hint;

/// Most minima that a message lists one by one.
const LISTED: usize = 20;

/// Most steps in comparing patterns: well below a second.
const MOST_STEPS: u64 = 50_000_000;

pub fn read(files: &[(&str, &str)], over: Option<(&str, &str)>, links: &Links) -> Result<Loaded, PolicyError> {
    let all: Vec<(&str, &str)> = files.iter().chain(&over).copied().collect();
    let written = files.iter().map(|(file, text)| Source::new(file, text));
    let sources: Vec<Source<'_>> = written.chain(over.iter().map(|(name, text)| Source::made(name, text))).collect();
    let (mut draft, mut problems) = (Draft::default(), Vec::new());
    for (index, source) in sources.iter().enumerate().take(files.len()) {
        parse::read(&mut draft, index, source, &mut problems);
    }
    if over.is_some() {
        parse::read_over(&mut draft, files.len(), &sources[files.len()], &mut problems);
    }
    let mut check = Check { sources: &sources, draft: &draft, problems, warnings: Vec::new() };
    let mut policy = check.policy(links);
    if !draft.broken {
        check.fits(&policy);
        check.wide(&policy);
        check.delays(&mut policy);
    }
    let (mut problems, mut warnings) = (check.problems, check.warnings);
    let number: BTreeMap<&str, usize> = all.iter().enumerate().rev().map(|(i, (file, _))| (*file, i)).collect();
    for list in [&mut problems, &mut warnings] {
        list.sort_by_key(|p| (number.get(p.file.as_str()).copied(), p.line, p.column));
    }
    if problems.is_empty() { Ok(Loaded { policy, warnings }) } else { Err(PolicyError { problems, warnings }) }
}

struct Check<'a> {
    sources: &'a [Source<'a>],
    draft: &'a Draft,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Check<'_> {
    fn at<T>(&self, at: &At<T>, key: &str, what: impl AsRef<str>) -> Problem {
        self.sources[at.file].problem(&at.span, key, what)
    }

    fn problem<T>(&mut self, at: &At<T>, key: &str, what: impl AsRef<str>) {
        let problem = self.at(at, key, what);
        self.problems.push(problem);
    }

    fn warn<T>(&mut self, at: &At<T>, key: &str, what: impl AsRef<str>) {
        let warning = self.at(at, key, what);
        self.warnings.push(warning);
    }

    fn place<T>(&self, at: &At<T>) -> String {
        self.sources[at.file].place(&at.span)
    }

    /// The policy as far as it can be made; what is wrong in it is noted.
    fn policy(&mut self, links: &Links) -> Policy {
        let draft = self.draft;
        for clash in &draft.clashes {
            let what = format!("is set here and in {}; set it in one file", self.place(&clash.first));
            self.problem(&clash.second, &clash.key, what);
        }
        let mut classes: BTreeMap<String, Class> =
            [HOST, DEFAULT].map(|name| (name.to_owned(), Class::named(name))).into();
        for (name, written) in &draft.classes {
            classes.insert(name.clone(), self.class(name, written));
        }
        let uplinks = draft.uplinks.iter().filter_map(|(name, written)| {
            let capacity = written.capacity.as_ref().map(|c| c.value).or(links.speeds.get(name).copied())?;
            let seen = if links.physical.contains(name) { Framing::ETHERNET } else { Framing::NONE };
            let framing = written.framing.as_ref().map_or(seen, |f| f.value);
            Some((name.clone(), Uplink { capacity, framing, gateways: listed(written.gateways.as_ref()) }))
        });
        let uplinks: BTreeMap<String, Uplink> = uplinks.collect();
        self.capacities(&uplinks);
        let entries = draft.entries.iter().filter_map(|e| self.entry(e, &classes)).collect();
        self.overlaps();
        self.addresses();
        let guard = Guard { measure_delay: has_targets(&classes), ..Guard::default() };
        let guard = Guard {
            period: draft.guard.period.as_ref().map_or(guard.period, |p| p.value),
            allow_unenforced: draft.guard.allow_unenforced.as_ref().map_or(guard.allow_unenforced, |a| a.value),
            on_conflict: draft.guard.on_conflict.as_ref().map_or(guard.on_conflict, |o| o.value),
            spoofing: draft.guard.spoofing.as_ref().map_or(guard.spoofing, |s| s.value),
            measure_delay: draft.guard.measure_delay.as_ref().map_or(guard.measure_delay, |m| m.value),
        };
        Policy { uplinks, classes, entries, guard }
    }

    fn class(&mut self, name: &str, written: &ClassDraft) -> Class {
        if let (Some(min), Some(max)) = (&written.min, &written.max)
            && min.value > max.value
        {
            let what = format!("{} is above the maximum of {} ({})", min.value, max.value, self.place(max));
            self.problem(min, &format!("class.{name}.min"), what);
        }
        self.has_a_group(name, &written.group);
        self.has_memory(name, &written.group);
        if let Some(local) = written.local.as_ref().filter(|local| local.value && [HOST, DEFAULT].contains(&name)) {
            let what = "\"limit\" would limit nothing: only guests' interfaces have local traffic of their own";
            self.problem(local, &format!("class.{name}.local"), what);
        }
        let (class, delay, excess) = (Class::named(name), self.delay(name, written), self.excess(name, written));
        let priority = if delay.is_some() { PRIORITY } else { class.priority };
        Class {
            priority: written.priority.as_ref().map_or(priority, |p| p.value),
            min: written.min.as_ref().map_or(class.min, |m| Some(m.value)),
            max: written.max.as_ref().map(|m| m.value),
            weight: written.weight.as_ref().map_or(class.weight, |w| w.value),
            hard: written.reserve.as_ref().map_or(class.hard, |r| r.value),
            over_max: written.over_max.as_ref().map_or(class.over_max, |o| o.value),
            queue: written.queue.as_ref().map(|q| q.value),
            delay,
            excess,
            limit_local: written.local.as_ref().map_or(class.limit_local, |l| l.value),
            group: written.group.limits(),
            memory: written.group.memory(),
            flows: self.flows(name, written),
        }
    }

    /// An uplink of unknown capacity can guarantee nothing.
    fn capacities(&mut self, uplinks: &BTreeMap<String, Uplink>) {
        if self.draft.broken {
            return;
        }
        for (name, written) in &self.draft.uplinks {
            if uplinks.contains_key(name) || written.damaged {
                continue;
            }
            let what = "is not written, and no link speed is known here";
            let problem = self
                .at(&written.first, &format!("uplink.{name}.capacity"), what)
                .note("help: write it, for example capacity = \"1Gbit\"")
                .note(format!("help: or check it on the host, with the link up: its kernel knows the speed (/sys/class/net/{name}/speed); plan and simulate look at no host"));
            self.problems.push(problem);
        }
    }

    fn entry(&mut self, e: &EntryDraft, classes: &BTreeMap<String, Class>) -> Option<Entry> {
        if self.draft.broken {
            return None;
        }
        for (key, class) in [("class", &e.class), ("rx_class", &e.rx_class)] {
            if let Some(class) = class.as_ref().filter(|c| !classes.contains_key(&c.value)) {
                let known: Vec<&str> = classes.keys().map(String::as_str).collect();
                let what = format!("unknown class `{}`{}", class.value, hint(&class.value, &known));
                self.problem(class, &format!("interface.{key}"), what);
            }
        }
        if e.class.is_none() && e.rx_class.is_none() && !e.damaged {
            let what = "has neither class (what the guest transmits) nor rx_class (what it receives): what it matches \
                        is not limited";
            self.warn(&e.here, "interface", what);
        }
        self.agree(e, classes);
        let known: Vec<&str> = self.draft.uplinks.keys().map(String::as_str).collect();
        let uplink = match (&e.uplink, known.as_slice()) {
            (Some(uplink), _) if !self.draft.uplinks.contains_key(&uplink.value) => {
                let more =
                    if known.is_empty() { "; no [uplink.NAME] is defined".into() } else { hint(&uplink.value, &known) };
                let what = format!("unknown uplink `{}`{more}", uplink.value);
                self.problem(uplink, "interface.uplink", what);
                None
            }
            (Some(uplink), _) => Some(uplink.value.clone()),
            (None, [only]) => Some((*only).to_owned()),
            (None, _) if e.damaged => None,
            (None, []) => {
                self.problem(&e.here, "interface.uplink", "missing; no [uplink.NAME] is defined");
                None
            }
            (None, several) => {
                self.problem(&e.here, "interface.uplink", format!("missing; there is {}", several.join(", ")));
                None
            }
        };
        let matcher = e.matcher.as_ref()?;
        let known = |class: &Option<At<String>>| {
            class.as_ref().map(|c| c.value.clone()).filter(|name| classes.contains_key(name))
        };
        Some(Entry {
            class: known(&e.class),
            rx_class: known(&e.rx_class),
            uplink: uplink?,
            addresses: listed(e.addresses.as_ref()),
            router: e.router.as_ref().is_some_and(|r| r.value),
            place: self.place(matcher),
            matcher: matcher.value.clone(),
        })
    }

    /// No two entries of a kind may match the same name. Sorted by prefix, so that those that can overlap with an
    /// entry follow it directly.
    fn overlaps(&mut self) {
        let mut all: Vec<(String, &At<Matcher>)> =
            self.draft.entries.iter().filter_map(|e| e.matcher.as_ref()).map(|m| (begin(&m.value), m)).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let mut reported = vec![false; all.len()];
        let mut steps = MOST_STEPS;
        for (i, (prefix, first)) in all.iter().enumerate() {
            let after = all.iter().enumerate().skip(i + 1).take_while(|(_, (p, _))| p.starts_with(prefix.as_str()));
            for (j, (_, second)) in after {
                if reported[j] {
                    continue;
                }
                let overlap = first.value.overlap_within(&second.value, &mut steps);
                if steps == 0 {
                    return self.too_much_alike(all.len(), second);
                }
                let Some(name) = overlap else { continue };
                reported[j] = true;
                let (mut early, mut late) = (first, second);
                if (early.file, early.span.start) > (late.file, late.span.start) {
                    std::mem::swap(&mut early, &mut late);
                }
                let first = self.place(early);
                // The example is shown only if such a name is possible.
                let both = if early.value.can_be(&name) && late.value.can_be(&name) {
                    format!("`{}` matches here and in {first}", super::label(late.value.kind, &name))
                } else {
                    format!("the same can match here and in {first}")
                };
                self.problem(
                    late,
                    "interface.match",
                    format!("{both} (`{}`); an interface has one entry", early.value),
                );
            }
        }
    }

    /// Patterns written by hand are cheaper; a check must not take minutes.
    fn too_much_alike(&mut self, entries: usize, at: &At<Matcher>) {
        let what = format!(
            "the patterns of the {entries} entries are too many and too similar to be distinguished; begin each \
             pattern with a distinct text, for example `web*`, or name the interfaces"
        );
        self.problem(at, "interface.match", what);
    }

    /// The minima of the certain members must fit every pool.
    fn fits(&mut self, policy: &Policy) {
        for (uplink, written) in &self.draft.uplinks {
            let Some(&Uplink { capacity, .. }) = policy.uplinks.get(uplink) else { continue };
            for direction in Direction::ALL {
                let minima = policy.minima(uplink, direction, capacity);
                let sum: u128 = minima.iter().map(|(_, min)| u128::from(*min)).sum();
                if sum > u128::from(capacity) {
                    let at = written.capacity.as_ref().map_or(written.first.clone(), |c| At {
                        value: (),
                        file: c.file,
                        span: c.span.clone(),
                    });
                    let problem =
                        self.at(&at, &format!("uplink.{uplink}.capacity"), overcommitted(direction, capacity, sum));
                    self.problems.push(arithmetic(problem, &minima, sum));
                }
            }
        }
    }

    /// Warns of maxima, and minima behind patterns, that none of their uplinks can reach.
    fn wide(&mut self, policy: &Policy) {
        for (name, written) in &self.draft.classes {
            for (uplink, &Uplink { capacity, .. }) in &policy.uplinks {
                let mine: Vec<&Entry> = policy.entries.iter().filter(|e| &e.uplink == uplink).collect();
                let uses = |e: &&Entry| [&e.class, &e.rx_class].into_iter().flatten().any(|c| c == name);
                let implicit = name == HOST || name == DEFAULT;
                if !implicit && !mine.iter().any(uses) {
                    continue;
                }
                let of = format!("the capacity of {uplink} ({capacity})");
                if let Some(max) = written.max.as_ref().filter(|m| m.value > capacity) {
                    let what = format!("{} is above {of}, so it limits nothing there", max.value);
                    self.warn(max, &format!("class.{name}.max"), what);
                }
                if name == HOST {
                    self.host(written, uplink, capacity);
                }
                let by_pattern = mine.iter().filter(|e| uses(e)).find(|e| !e.matcher.is_exact());
                if let (Some(min), Some(entry)) = (written.min.as_ref().filter(|m| m.value > capacity), by_pattern) {
                    let what = format!(
                        "{} is above {of}: what comes through `{}` is guaranteed less",
                        min.value, entry.matcher
                    );
                    self.warn(min, &format!("class.{name}.min"), what);
                }
            }
        }
        for (name, written) in &self.draft.classes {
            self.beside_the_host(policy, name, written);
        }
        if self.draft.uplinks.is_empty()
            && let (true, Some(source)) = (self.problems.is_empty(), self.sources.first())
        {
            self.warnings.push(source.problem(&(0..0), "uplink", "no [uplink.NAME] is defined: nothing is guaranteed"));
        }
    }

    /// Warns of a maximum that lowers the host's default minimum.
    fn host(&mut self, written: &ClassDraft, uplink: &str, capacity: BitRate) {
        let own = capacity / HOST_PART;
        if let (Some(max), None) = (written.max.as_ref().filter(|m| m.value < own), &written.min) {
            let what = format!(
                "{} is below 2 % of the capacity of {uplink} ({own}): the host is guaranteed no more than that",
                max.value
            );
            self.warn(max, "class.host.max", what);
        }
    }

    /// Warns of minima behind patterns, unlimited in number, that are granted with the host's or before it.
    fn beside_the_host(&mut self, policy: &Policy, name: &str, written: &ClassDraft) {
        let (class, host) = (policy.class(name), policy.class(HOST));
        let uses = |e: &&Entry| [&e.class, &e.rx_class].into_iter().flatten().any(|c| c == name);
        let Some(min) = written.min.as_ref().filter(|m| m.value > BitRate::ZERO) else { return };
        if class.priority > host.priority || host.min == Some(BitRate::ZERO) {
            return;
        }
        if let Some(entry) = policy.entries.iter().filter(uses).find(|e| !e.matcher.is_exact()) {
            let what = format!(
                "each that comes through `{}` is guaranteed this at priority {}, and the host at {}: when they no \
                 longer fit, the host's minimum shrinks, too",
                entry.matcher, class.priority, host.priority
            );
            let mut warning = self.at(min, &format!("class.{name}.min"), what);
            if host.priority < 8 {
                let after = host.priority + 1;
                warning = warning.note(format!("help: write priority = {after} or more for class {name}"));
            }
            self.warnings.push(warning);
        }
    }
}

/// Kind and prefix: matchers can overlap only where one's begins with the other's.
fn begin(matcher: &Matcher) -> String {
    format!("{}:{}", matcher.kind.word(), matcher.prefix())
}

fn overcommitted(direction: Direction, capacity: BitRate, sum: u128) -> String {
    let over = show_sum(sum - u128::from(capacity));
    format!("the minima of {} add up to {}, {over} above the capacity of {capacity}", direction.word(), show_sum(sum))
}

/// A sum of rates; more than 64 bits is shown as such.
fn show_sum(sum: u128) -> String {
    u64::try_from(sum).map_or_else(|_| format!("{sum} bit/s"), |bits| BitRate::new(bits).to_string())
}

/// Adds the minima (if too many, the largest ones) and their sum to a problem.
fn arithmetic(mut problem: Problem, minima: &[(String, BitRate)], sum: u128) -> Problem {
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut sorted: Vec<&(String, BitRate)> = minima.iter().collect();
    if sorted.len() > LISTED {
        sorted.sort_by_key(|(_, min)| std::cmp::Reverse(*min));
    }
    rows.extend(sorted.iter().take(LISTED).map(|(who, min)| (min.to_string(), who.clone())));
    if sorted.len() > LISTED {
        let rest: u128 = sorted[LISTED..].iter().map(|(_, min)| u128::from(*min)).sum();
        rows.push((show_sum(rest), format!("{} more", sorted.len() - LISTED)));
    }
    rows.push((show_sum(sum), "in all".to_owned()));
    let width = rows.iter().map(|(rate, _)| rate.chars().count()).max().unwrap_or(0);
    for (rate, who) in rows {
        problem = problem.note(format!("{rate:>width$}  {who}"));
    }
    problem.note("help: lower a min, move an interface to another uplink, or correct the capacity")
}
