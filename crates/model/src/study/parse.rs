//! Reading a study. Every problem in the file is found in one pass and says
//! `file:line: key: what is wrong; what was probably meant`.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Controlled, Matrix, Names, Repeat, Resources, Size, Study};
use crate::problem::{Problem, Source};
use crate::setup::{Aio, Cache, DetectZeroes, Options};
use crate::toml_reader::{Reader, Section, hint, value_span};

/// Least memory of a guest: with less, Debian's fio and its libraries do not start in it.
const MIN_MEMORY_MIB: u32 = 192;

/// Everything that is wrong in a study, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
pub struct StudyError {
    /// The problems; never empty.
    pub problems: Vec<Problem>,
}

pub(super) fn parse(file: &str, text: &str, names: &Names) -> Result<Study, StudyError> {
    let source = Source::new(file, text);
    let mut reader = Reader { source: &source, problems: Vec::new() };
    let study = match DeTable::parse(text) {
        Ok(root) => reader.study(&root, names),
        Err(error) => {
            reader.problem(&error.span().unwrap_or(0..0), "", format!("this is no TOML: {}", error.message()));
            None
        }
    };
    reader.problems.sort_by_key(|p| p.line);
    match study {
        Some(study) if reader.problems.is_empty() => Ok(study),
        _ => Err(StudyError { problems: reader.problems }),
    }
}

impl<'a> Reader<'a> {
    fn study(&mut self, root: &Spanned<DeTable<'_>>, names: &Names) -> Option<Study> {
        let top = Section { path: "".into(), span: 0..0, table: root.get_ref() };
        self.known_keys(&top, &["name", "title", "cites", "guest", "size", "repeat", "control", "matrix"]);
        let name = self.string(&top, "name", None);
        let title = self.string(&top, "title", None);
        let cites = self.string(&top, "cites", Some(""));
        let guest = self.section(&top, "guest").and_then(|s| {
            self.known_keys(&s, &["vcpus", "memory_mib"]);
            let vcpus = self.whole(&s, "vcpus", 1, 1024);
            let memory_mib = self.whole(&s, "memory_mib", MIN_MEMORY_MIB, 1 << 20);
            Some(Resources { vcpus: vcpus?, memory_mib: memory_mib? })
        });
        let size = self.section(&top, "size").and_then(|s| {
            self.known_keys(&s, &["target_mib"]);
            let target_mib = self.whole(&s, "target_mib", 64, 1 << 30)?;
            if let Some(guest) = guest.filter(|g| u64::from(target_mib) < 2 * u64::from(g.memory_mib)) {
                let what = format!(
                    "{target_mib} is too small: a target holds at least twice guest.memory_mib ({}), so that \
                     buffered work cannot stay in memory",
                    2 * u64::from(guest.memory_mib)
                );
                self.problem(&value_span(&s, "target_mib"), "size.target_mib", what);
            }
            Some(Size { target_mib })
        });
        let repeat = self.section(&top, "repeat").and_then(|s| self.repeat(&s));
        let matrix = self.matrices(&top, names);
        let control = self.control(&top, matrix.as_deref());
        Some(Study {
            name: name?,
            title: title?,
            cites: cites?,
            guest: guest?,
            size: size?,
            repeat: repeat?,
            control: control?,
            matrix: matrix?,
        })
    }

    fn repeat(&mut self, s: &Section<'_, '_>) -> Option<Repeat> {
        let keys = [
            "min_pairs",
            "max_pairs",
            "min_boots",
            "half_width",
            "seconds",
            "max_minutes",
            "max_gib_written",
            "steady_state",
        ];
        self.known_keys(s, &keys);
        // One pair or one boot has no interval, so a share could never count as known.
        let min_pairs = self.whole(s, "min_pairs", 2, 1000);
        let max_pairs = self.whole(s, "max_pairs", 2, 1000);
        let min_boots = self.whole(s, "min_boots", 1, 100);
        let half_width = self.real(s, "half_width", 0.001, 0.5);
        let seconds = self.real(s, "seconds", 0.1, 3600.0);
        let max_minutes = self.real(s, "max_minutes", 0.1, 7.0 * 24.0 * 60.0);
        let max_gib_written = self.real(s, "max_gib_written", 0.1, 1e6);
        let steady_state = self.switch(s, "steady_state", false);
        let (min_pairs, max_pairs, min_boots) = (min_pairs?, max_pairs?, min_boots?);
        if max_pairs < min_pairs {
            let what = format!("{max_pairs} is less than min_pairs ({min_pairs})");
            self.problem(&value_span(s, "max_pairs"), "repeat.max_pairs", what);
        }
        if min_boots > min_pairs {
            let what = format!("{min_boots} boots need at least as many pairs; min_pairs is {min_pairs}");
            self.problem(&value_span(s, "min_boots"), "repeat.min_boots", what);
        }
        Some(Repeat {
            min_pairs,
            max_pairs,
            min_boots,
            half_width: half_width?,
            seconds: seconds?,
            max_minutes: max_minutes?,
            max_gib_written: max_gib_written?,
            steady_state: steady_state?,
        })
    }

    /// `[control]`; may be left out.
    fn control(&mut self, top: &Section<'_, '_>, matrix: Option<&[Matrix]>) -> Option<Option<Controlled>> {
        if !top.table.contains_key("control") {
            return Some(None);
        }
        let s = self.section(top, "control")?;
        self.known_keys(&s, &["workloads"]);
        let mut measured: Vec<String> = Vec::new();
        for workload in matrix?.iter().flat_map(|m| &m.workloads) {
            if !measured.contains(workload) {
                measured.push(workload.clone());
            }
        }
        let workloads = self.entries(&s, "workloads", &measured, None)?;
        Some(Some(Controlled { workloads }))
    }

    fn matrices(&mut self, top: &Section<'_, '_>, names: &Names) -> Option<Vec<Matrix>> {
        let Some(value) = top.table.get("matrix") else {
            self.problem(&top.span, "matrix", "missing; add at least one [[matrix]]".to_owned());
            return None;
        };
        let DeValue::Array(items) = value.get_ref() else {
            self.problem(&value.span(), "matrix", "must be a list of tables: write [[matrix]]".to_owned());
            return None;
        };
        if items.is_empty() {
            self.problem(&value.span(), "matrix", "is empty; add at least one [[matrix]]".to_owned());
        }
        let before = self.problems.len();
        let all: Vec<Matrix> = items
            .iter()
            .filter_map(|item| match item.get_ref() {
                DeValue::Table(table) => {
                    self.matrix(&Section { path: "matrix".into(), span: item.span(), table }, names)
                }
                _ => {
                    self.problem(&item.span(), "matrix", "must be a table: write [[matrix]]".to_owned());
                    None
                }
            })
            .collect();
        (self.problems.len() == before).then_some(all)
    }

    fn matrix(&mut self, s: &Section<'_, '_>, names: &Names) -> Option<Matrix> {
        self.known_keys(s, &["targets", "guests", "drivers", "caches", "aios", "iothreads", "options", "workloads"]);
        let targets = self.entries(s, "targets", &names.targets, None);
        let guests = self.entries(s, "guests", &names.guests, None);
        let only_native = guests.as_ref().is_some_and(|g| g.iter().all(|g| g == "native"));
        let drivers = self.entries(s, "drivers", &names.drivers, only_native.then_some(Vec::new()));
        let caches = self.choices(s, "caches", &Cache::ALL, vec![Cache::None]);
        let aios = self.choices(s, "aios", &[Aio::Threads, Aio::Native, Aio::IoUring], vec![Aio::Native]);
        let iothreads = self.switches(s, "iothreads", vec![false]);
        let options = self.list(s, "options", Some(vec![Options::default()]), Self::options);
        let workloads = self.workloads(s, names);
        Some(Matrix {
            targets: targets?,
            guests: guests?,
            drivers: drivers?,
            caches: caches?,
            aios: aios?,
            iothreads: iothreads?,
            options: options?,
            workloads: workloads?,
        })
    }

    /// `{ queues = 4, discard = true }`.
    fn options(&mut self, item: &Spanned<DeValue<'_>>, path: &str) -> Option<Options> {
        let DeValue::Table(table) = item.get_ref() else {
            self.wrong_type(&item.span(), path, "a table like { queues = 4 }", item.get_ref());
            return None;
        };
        let s = Section { path: "matrix.options".into(), span: item.span(), table };
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

    /// Workloads: those of the list, and those of the family.
    fn workloads(&mut self, s: &Section<'_, '_>, names: &Names) -> Option<Vec<String>> {
        let words: Vec<&str> = names.workloads.iter().map(String::as_str).collect();
        self.list(s, "workloads", None, |reader, item, path| {
            let known = |text: &str| words.contains(&text);
            if let (DeValue::String(text), Some(family)) = (item.get_ref(), names.workload_family)
                && !known(text)
            {
                let what = match (family.recognise)(text) {
                    Some(Ok(())) => return Some(text.to_string()),
                    Some(Err(why)) => format!("`{text}`: {why} ({})", family.grammar),
                    None => {
                        let hint = hint(text, &words);
                        format!("unknown entry `{text}`{hint}, and {} like {}", family.grammar, family.example)
                    }
                };
                reader.problem(&item.span(), path, what);
                return None;
            }
            reader.word(item, path, &words).map(|i| words[i].to_owned())
        })
    }
}
