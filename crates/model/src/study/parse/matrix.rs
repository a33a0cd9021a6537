//! `[[matrix]]`: products of sides, subjects, workloads and settings.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::DeValue;

use crate::cell::{Aio, Cache, DetectZeroes, NATIVE, Options, Shape};
use crate::study::old;
use crate::study::{Disks, Matrix, Names, Paths, Sort};
use crate::toml_reader::{Reader, Section, hint};

const KEYS: [&str; 8] = ["sides", "shapes", "disks", "paths", "machine", "clusters", "workloads", "settings"];

impl Reader<'_> {
    pub(super) fn matrices(&mut self, top: &Section<'_, '_>, names: &Names) -> Option<Vec<Matrix>> {
        self.tables(top, "matrix", |reader, s| reader.matrix(s, names))
    }

    /// A list of tables of this name; none where it is not there.
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

    fn matrix(&mut self, s: &Section<'_, '_>, names: &Names) -> Option<Matrix> {
        let before = self.problems.len();
        self.known_keys_but_old(s);
        let sides = self.entries(s, "sides", &names.guests, None);
        let native = sides.as_ref().is_some_and(|sides| sides.iter().all(|side| side == NATIVE));
        let shapes = self.list(s, "shapes", Some(Vec::new()), Self::shape);
        let disks = self.disks(s, names, native);
        let paths = self.paths(s, names, native);
        let machine = self.switch(s, "machine", false);
        let each = |reader: &mut Self, item: &Spanned<DeValue<'_>>, path: &str| reader.whole_value(item, path, 2, 1000);
        let clusters = self.list(s, "clusters", Some(Vec::new()), each);
        let sorts = [
            s.table.contains_key("disks").then_some(Sort::Disk),
            s.table.contains_key("paths").then_some(Sort::Path),
            machine.unwrap_or(false).then_some(Sort::Machine),
            s.table.contains_key("clusters").then_some(Sort::Cluster),
        ];
        let sorts: Vec<Sort> = sorts.into_iter().flatten().collect();
        // Keys of the old form say themselves where they belong.
        if sorts.len() != 1 && self.problems.len() == before {
            let what = "name what is worked on, and one sort of it: disks, paths, machine = true or clusters";
            self.problem(&s.span, "matrix", what.to_owned());
        }
        let workloads = self.list(s, "workloads", None, |reader, item, path| {
            reader.workload(item, path, names, sorts.first().copied())
        });
        let settings = self.each_setting(s, names);
        let matrix = Matrix {
            sides: sides?,
            shapes: shapes?,
            disks,
            paths,
            machine: machine?,
            clusters: clusters?,
            workloads: workloads?,
            settings: settings?,
        };
        (self.problems.len() == before).then_some(matrix)
    }

    /// Refuses unknown keys; those of the old form with their new spelling.
    fn known_keys_but_old(&mut self, s: &Section<'_, '_>) {
        for (key, value) in s.table.iter() {
            let word: &str = key.get_ref();
            match old::now(word) {
                Some(now) => {
                    let what = format!("is written `{now} = {}` now", self.written(value));
                    self.problem(&key.span(), &s.key(word), what);
                }
                None if KEYS.contains(&word) => {}
                None => self.problem(&key.span(), &s.key(word), format!("unknown key{}", hint(word, &KEYS))),
            }
        }
    }

    fn disks(&mut self, s: &Section<'_, '_>, names: &Names, native: bool) -> Option<Disks> {
        let s = self.below(s, "disks")?;
        self.known_keys(&s, &["targets", "drivers", "caches", "aios", "iothreads", "options"]);
        let targets = self.entries(&s, "targets", &names.targets, None);
        let drivers = self.entries(&s, "drivers", &names.drivers, native.then_some(Vec::new()));
        let caches = self.choices(&s, "caches", &Cache::ALL, vec![Cache::None]);
        let aios = self.choices(&s, "aios", &Aio::ALL, vec![Aio::Native]);
        let iothreads = self.switches(&s, "iothreads", vec![false]);
        let options = self.list(&s, "options", Some(vec![Options::default()]), Self::options);
        Some(Disks {
            targets: targets?,
            drivers: drivers?,
            caches: caches?,
            aios: aios?,
            iothreads: iothreads?,
            options: options?,
        })
    }

    fn paths(&mut self, s: &Section<'_, '_>, names: &Names, native: bool) -> Option<Paths> {
        let s = self.below(s, "paths")?;
        self.known_keys(&s, &["networks", "peers", "nics", "vhost", "queues"]);
        let networks = self.entries(&s, "networks", &names.networks, None);
        let peers = self.entries(&s, "peers", &names.peers, None);
        let nics = self.entries(&s, "nics", &names.nics, native.then_some(Vec::new()));
        let vhost = self.switches(&s, "vhost", vec![false]);
        let each = |reader: &mut Self, item: &Spanned<DeValue<'_>>, path: &str| reader.whole_value(item, path, 1, 1024);
        let queues = self.list(&s, "queues", Some(Vec::new()), each);
        Some(Paths { networks: networks?, peers: peers?, nics: nics?, vhost: vhost?, queues: queues? })
    }

    /// A table below a section, where it is there.
    pub(super) fn below<'t, 'i>(&mut self, s: &Section<'t, 'i>, key: &str) -> Option<Section<'t, 'i>> {
        let value = s.table.get(key)?;
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong_type(&value.span(), &s.key(key), "a table", value.get_ref());
            return None;
        };
        Some(Section { path: s.key(key).into(), span: value.span(), table })
    }

    fn each_setting(&mut self, s: &Section<'_, '_>, names: &Names) -> Option<BTreeMap<String, Vec<String>>> {
        let Some(settings) = self.below(s, "settings") else {
            return (!s.table.contains_key("settings")).then(BTreeMap::new);
        };
        let mut all = BTreeMap::new();
        for name in settings.table.keys() {
            let word: &str = name.get_ref();
            let path = settings.path.clone();
            let values = self.list(&settings, word, None, |reader, item, _| reader.setting(name, item, &path, names));
            all.extend(values.map(|values| (word.to_owned(), values)));
        }
        (all.len() == settings.table.len()).then_some(all)
    }

    /// `{ vcpus = 2, pins = [0, 1] }`.
    pub(super) fn shape(&mut self, item: &Spanned<DeValue<'_>>, path: &str) -> Option<Shape> {
        let DeValue::Table(table) = item.get_ref() else {
            self.wrong_type(&item.span(), path, "a table like { vcpus = 2 }", item.get_ref());
            return None;
        };
        let s = Section { path: path.to_owned().into(), span: item.span(), table };
        let before = self.problems.len();
        self.known_keys(&s, &["machine", "vcpus", "memory_mib", "kernel", "pins"]);
        let has = |key: &str| table.contains_key(key);
        let shape = Shape {
            machine: if has("machine") { self.string(&s, "machine", None) } else { None },
            vcpus: if has("vcpus") { self.whole(&s, "vcpus", 1, 1024) } else { None },
            memory_mib: if has("memory_mib") {
                self.whole(&s, "memory_mib", super::MIN_MEMORY_MIB, 1 << 20)
            } else {
                None
            },
            kernel: if has("kernel") { self.string(&s, "kernel", None) } else { None },
            pins: self
                .list(&s, "pins", Some(Vec::new()), |reader, item, path| reader.whole_value(item, path, 0, 65_535))?,
        };
        // They are part of the cell's name.
        for text in [&shape.machine, &shape.kernel].into_iter().flatten() {
            if !text.chars().all(|c| c.is_ascii_alphanumeric() || "._-+".contains(c)) {
                let what = format!("`{text}` has characters other than letters, digits, `.`, `_`, `-` and `+`");
                self.problem(&item.span(), path, what);
            }
        }
        (self.problems.len() == before).then_some(shape)
    }

    /// `{ queues = 4, discard = true }`.
    pub(super) fn options(&mut self, item: &Spanned<DeValue<'_>>, path: &str) -> Option<Options> {
        let DeValue::Table(table) = item.get_ref() else {
            self.wrong_type(&item.span(), path, "a table like { queues = 4 }", item.get_ref());
            return None;
        };
        let s = Section { path: path.to_owned().into(), span: item.span(), table };
        let before = self.problems.len();
        self.known_keys(&s, &["queues", "mapped_iothreads", "discard", "detect_zeroes"]);
        let count = |reader: &mut Self, key| table.contains_key(key).then(|| reader.whole(&s, key, 1, 1024)).flatten();
        let queues = count(self, "queues");
        let mapped_iothreads = count(self, "mapped_iothreads");
        let discard = self.switch(&s, "discard", false);
        let detect_zeroes = self.choice(&s, "detect_zeroes", &DetectZeroes::ALL, DetectZeroes::Off);
        let options = Options { queues, mapped_iothreads, discard: discard?, detect_zeroes: detect_zeroes? };
        (self.problems.len() == before).then_some(options)
    }

    /// A workload: one of the list, or of the family. It works on a subject of this sort.
    pub(super) fn workload(
        &mut self,
        item: &Spanned<DeValue<'_>>,
        path: &str,
        names: &Names,
        on: Option<Sort>,
    ) -> Option<String> {
        let words: Vec<&str> = names.workloads.iter().map(|w| w.name.as_str()).collect();
        let fits = |reader: &mut Self, name: &str, works_on: Sort| match on.filter(|on| *on != works_on) {
            None => Some(name.to_owned()),
            Some(on) => {
                let what = format!("`{name}` works on {}, not on {}", works_on.word(), on.word());
                reader.problem(&item.span(), path, what);
                None
            }
        };
        if let (DeValue::String(text), Some(family)) = (item.get_ref(), names.workload_family)
            && !words.contains(&text.as_ref())
        {
            let what = match (family.recognise)(text) {
                Some(Ok(())) => return fits(self, text, family.works_on),
                Some(Err(why)) => format!("`{text}`: {why} ({})", family.grammar),
                None => {
                    let hint = hint(text, &words);
                    format!("unknown entry `{text}`{hint}, and {} like {}", family.grammar, family.example)
                }
            };
            self.problem(&item.span(), path, what);
            return None;
        }
        let found = &names.workloads[self.word(item, path, &words)?];
        fits(self, &found.name, found.works_on)
    }
}
