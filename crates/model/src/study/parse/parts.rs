//! Shared by `[[matrix]]` and `[[cell]]`.

use toml::Spanned;
use toml::de::DeValue;

use super::MIN_MEMORY_MIB;
use crate::cell::{Arch, DetectZeroes, Kind, Options, Shape};
use crate::study::{Names, SubjectKind};
use crate::toml_reader::{Reader, Section, hint};

/// Sides without a machine, and the message for keys about one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bare(&'static str);

impl Bare {
    /// For paths within the actor's own machine.
    pub(super) const INSIDE: Self = Self("says something of a card, and this path goes over none");

    /// For targets that a guest reaches by itself.
    pub(super) const REACHED: Self = Self(
        "says something of a disk that the hypervisor gives, and without a driver the guest reaches this target by itself",
    );

    /// For sides of these kinds; `None` where one of them has a machine.
    pub(super) fn of<'a>(kinds: impl IntoIterator<Item = &'a String> + Clone) -> Option<Self> {
        let all = |is: fn(Kind) -> bool| kinds.clone().into_iter().all(|kind| is(Kind::of(kind)));
        if all(|kind| kind.is_host) {
            Some(Self("says something of a guest, and this is native"))
        } else if all(|kind| kind.shares_kernel) {
            Some(Self(
                "says something of a guest's machine, and a container has none: it works under the host's kernel",
            ))
        } else {
            None
        }
    }
}

impl Reader<'_> {
    /// A list of tables of this name; empty without it.
    pub(super) fn tables<T>(
        &mut self,
        top: &Section<'_, '_>,
        key: &'static str,
        mut each: impl FnMut(&mut Self, &Section<'_, '_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Some(value) = top.table.get(key) else { return Some(Vec::new()) };
        let DeValue::Array(items) = value.get_ref() else {
            self.problem(&value.span(), key, format!("must be a list of tables: write [[{key}]]"));
            return None;
        };
        if items.is_empty() {
            self.problem(&value.span(), key, format!("is empty; add at least one [[{key}]]"));
        }
        let before = self.problems.len();
        let mut all = Vec::new();
        for item in items.iter() {
            match item.get_ref() {
                DeValue::Table(table) => {
                    all.extend(each(self, &Section { path: key.into(), span: item.span(), table }));
                }
                _ => self.problem(&item.span(), key, format!("must be a table: write [[{key}]]")),
            }
        }
        (self.problems.len() == before).then_some(all)
    }

    /// A table in a section, if present.
    pub(super) fn below<'t, 'i>(&mut self, s: &Section<'t, 'i>, key: &str) -> Option<Section<'t, 'i>> {
        self.table(s.table.get(key)?, &s.key(key), "a table")
    }

    /// A value that must be a table.
    pub(super) fn table<'t, 'i>(
        &mut self,
        value: &'t Spanned<DeValue<'i>>,
        path: &str,
        wanted: &str,
    ) -> Option<Section<'t, 'i>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Section { path: path.to_owned().into(), span: value.span(), table }),
            other => {
                self.wrong_type(&value.span(), path, wanted, other);
                None
            }
        }
    }

    /// Refuses keys about a guest's machine where there is none.
    pub(super) fn of_machines_alone(&mut self, s: &Section<'_, '_>, keys: &[&str], bare: Bare) {
        for key in keys {
            if let Some(value) = s.table.get(*key) {
                self.problem(&value.span(), &s.key(key), bare.0.to_owned());
            }
        }
    }

    /// `{ vcpus = 2, pins = [0, 1] }`; with `bare` only what a side under the host's kernel can be limited to.
    pub(super) fn shape(&mut self, item: &Spanned<DeValue<'_>>, path: &str, bare: Option<Bare>) -> Option<Shape> {
        let s = self.table(item, path, "a table like { vcpus = 2 }")?;
        let before = self.problems.len();
        if let Some(bare) = bare {
            self.of_machines_alone(&s, &["arch", "machine", "kernel"], bare);
        }
        self.known_keys(&s, &["arch", "machine", "vcpus", "memory_mib", "kernel", "pins"]);
        let words = Arch::ALL.map(Arch::name);
        let arch = s.table.get("arch").and_then(|item| self.word(item, &s.key("arch"), &words));
        let arch = arch.map_or(Arch::default(), |i| Arch::ALL[i]);
        let machine = self.part_of_a_name(&s, "machine");
        let vcpus = self.whole_if(&s, "vcpus", 1, 1024);
        let memory_mib = self.whole_if(&s, "memory_mib", MIN_MEMORY_MIB, 1 << 20);
        let kernel = self.part_of_a_name(&s, "kernel");
        let cpu =
            |reader: &mut Self, item: &Spanned<DeValue<'_>>, path: &str| reader.whole_value(item, path, 0, 65_535);
        let pins = self.list(&s, "pins", Some(Vec::new()), cpu);
        let shape = Shape { arch, machine, vcpus, memory_mib, kernel, pins: pins? };
        (self.problems.len() == before).then_some(shape)
    }

    /// An optional word that is shown in names of cells.
    fn part_of_a_name(&mut self, s: &Section<'_, '_>, key: &str) -> Option<String> {
        let value = s.table.get(key)?;
        let text = self.string(s, key, None)?;
        if text.chars().all(|c| c.is_ascii_alphanumeric() || "._-+".contains(c)) {
            return Some(text);
        }
        let what = format!("`{text}` has characters other than letters, digits, `.`, `_`, `-` and `+`");
        self.problem(&value.span(), &s.key(key), what);
        None
    }

    /// `{ queues = 4, discard = true }`.
    pub(super) fn options(&mut self, item: &Spanned<DeValue<'_>>, path: &str) -> Option<Options> {
        let s = self.table(item, path, "a table like { queues = 4 }")?;
        let before = self.problems.len();
        self.known_keys(&s, &["queues", "mapped_iothreads", "discard", "detect_zeroes"]);
        let queues = self.whole_if(&s, "queues", 1, 1024);
        let mapped_iothreads = self.whole_if(&s, "mapped_iothreads", 1, 1024);
        let discard = self.switch(&s, "discard", false);
        let detect_zeroes = self.choice(&s, "detect_zeroes", &DetectZeroes::ALL, DetectZeroes::Off);
        let options = Options { queues, mapped_iothreads, discard: discard?, detect_zeroes: detect_zeroes? };
        (self.problems.len() == before).then_some(options)
    }

    /// A workload of the list or of a family, for this kind of subject.
    pub(super) fn workload(
        &mut self,
        item: &Spanned<DeValue<'_>>,
        path: &str,
        names: &Names,
        on: Option<SubjectKind>,
    ) -> Option<String> {
        let words: Vec<&str> = names.workloads.iter().map(|w| w.name.as_str()).collect();
        let DeValue::String(name) = item.get_ref() else {
            self.wrong_type(&item.span(), path, "a string", item.get_ref());
            return None;
        };
        let what = match names.works_on(name) {
            Some(works_on) => match on.filter(|on| *on != works_on) {
                None => return Some(name.to_string()),
                Some(on) => format!("`{name}` works on {}, not on {}", works_on.word(), on.word()),
            },
            None => {
                let families = || names.workload_families.iter();
                let meant = families().find_map(|family| match (family.recognise)(name)? {
                    Err(why) => Some(format!("`{name}`: {why} ({})", family.grammar)),
                    Ok(()) => None,
                });
                let others: String = families().map(|f| format!(", and {} like {}", f.grammar, f.example)).collect();
                meant.unwrap_or_else(|| format!("unknown entry `{name}`{}{others}", hint(name, &words)))
            }
        };
        self.problem(&item.span(), path, what);
        None
    }
}
