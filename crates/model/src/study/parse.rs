//! Reading a study. Every problem in the file is found in one pass and says
//! `file:line: key: what is wrong; what was probably meant`.

use std::ops::Range;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Matrix, Names, Repeat, Resources, Size, Study};
use crate::setup::{Aio, Cache};

/// Least memory of a guest: with less, Debian's fio and its libraries do not start in it.
const MIN_MEMORY_MIB: u32 = 192;

/// One thing that is wrong in a study.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// File as it was named by the caller.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Dotted key, for example `matrix.drivers`; empty where the text is no TOML.
    pub key: String,
    /// What is wrong and what would be right.
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "{}:{}: {}", self.file, self.line, self.what),
            key => write!(f, "{}:{}: {key}: {}", self.file, self.line, self.what),
        }
    }
}

/// Everything that is wrong in a study, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
pub struct StudyError {
    /// The problems; never empty.
    pub problems: Vec<Problem>,
}

pub(super) fn parse(file: &str, text: &str, names: &Names) -> Result<Study, StudyError> {
    let mut reader = Reader { file, text, problems: Vec::new() };
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

/// The nearest of the candidates, if any is near enough to have been meant.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|c| (strsim::jaro_winkler(&word.to_lowercase(), c), c))
        .filter(|(score, _)| *score > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, c)| c)
}

/// `; did you mean X?`, or the whole choice.
fn hint(word: &str, candidates: &[&str]) -> String {
    match nearest(word, candidates.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`? (there is {})", candidates.join(", ")),
        None => format!("; there is {}", candidates.join(", ")),
    }
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    problems: Vec<Problem>,
}

/// A table with the dotted path that leads to it.
struct Section<'t, 'i> {
    path: &'static str,
    span: Range<usize>,
    table: &'t DeTable<'i>,
}

impl Section<'_, '_> {
    fn key(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

impl<'a> Reader<'a> {
    fn problem(&mut self, span: &Range<usize>, key: &str, what: String) {
        let line = self.text[..span.start.min(self.text.len())].matches('\n').count() + 1;
        self.problems.push(Problem { file: self.file.to_owned(), line, key: key.to_owned(), what });
    }

    fn study(&mut self, root: &Spanned<DeTable<'_>>, names: &Names) -> Option<Study> {
        let top = Section { path: "", span: 0..0, table: root.get_ref() };
        self.known_keys(&top, &["name", "title", "cites", "guest", "size", "repeat", "matrix"]);
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
        Some(Study {
            name: name?,
            title: title?,
            cites: cites?,
            guest: guest?,
            size: size?,
            repeat: repeat?,
            matrix: matrix?,
        })
    }

    fn repeat(&mut self, s: &Section<'_, '_>) -> Option<Repeat> {
        let keys = ["min_pairs", "max_pairs", "min_boots", "half_width", "seconds", "max_minutes", "max_gib_written"];
        self.known_keys(s, &keys);
        // One pair or one boot has no interval, so a share could never count as known.
        let min_pairs = self.whole(s, "min_pairs", 2, 1000);
        let max_pairs = self.whole(s, "max_pairs", 2, 1000);
        let min_boots = self.whole(s, "min_boots", 1, 100);
        let half_width = self.real(s, "half_width", 0.001, 0.5);
        let seconds = self.real(s, "seconds", 0.1, 3600.0);
        let max_minutes = self.real(s, "max_minutes", 0.1, 7.0 * 24.0 * 60.0);
        let max_gib_written = self.real(s, "max_gib_written", 0.1, 1e6);
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
        })
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
                DeValue::Table(table) => self.matrix(&Section { path: "matrix", span: item.span(), table }, names),
                _ => {
                    self.problem(&item.span(), "matrix", "must be a table: write [[matrix]]".to_owned());
                    None
                }
            })
            .collect();
        (self.problems.len() == before).then_some(all)
    }

    fn matrix(&mut self, s: &Section<'_, '_>, names: &Names) -> Option<Matrix> {
        self.known_keys(s, &["targets", "guests", "drivers", "caches", "aios", "iothreads", "workloads"]);
        let targets = self.entries(s, "targets", &names.targets, None);
        let guests = self.entries(s, "guests", &names.guests, None);
        let only_native = guests.as_ref().is_some_and(|g| g.iter().all(|g| g == "native"));
        let drivers = self.entries(s, "drivers", &names.drivers, only_native.then_some(Vec::new()));
        let caches = self.choices(s, "caches", &[Cache::None, Cache::Writeback], vec![Cache::None]);
        let aios = self.choices(s, "aios", &[Aio::Threads, Aio::Native, Aio::IoUring], vec![Aio::Native]);
        let iothreads = self.switches(s, "iothreads", vec![false]);
        let workloads = self.entries(s, "workloads", &names.workloads, None);
        Some(Matrix {
            targets: targets?,
            guests: guests?,
            drivers: drivers?,
            caches: caches?,
            aios: aios?,
            iothreads: iothreads?,
            workloads: workloads?,
        })
    }

    fn known_keys(&mut self, s: &Section<'_, '_>, keys: &[&str]) {
        for key in s.table.keys() {
            let word: &str = key.get_ref();
            if !keys.contains(&word) {
                self.problem(&key.span(), &s.key(word), format!("unknown key{}", hint(word, keys)));
            }
        }
    }

    fn missing(&mut self, s: &Section<'_, '_>, key: &str) {
        self.problem(&s.span, &s.key(key), "missing".to_owned());
    }

    fn section<'t, 'i>(&mut self, top: &Section<'t, 'i>, key: &'static str) -> Option<Section<'t, 'i>> {
        let Some(value) = top.table.get(key) else {
            self.problem(&top.span, key, format!("missing; add a section [{key}]"));
            return None;
        };
        match value.get_ref() {
            DeValue::Table(table) => Some(Section { path: key, span: value.span(), table }),
            other => {
                self.wrong_type(&value.span(), key, "a section", other);
                None
            }
        }
    }

    fn wrong_type(&mut self, span: &Range<usize>, key: &str, wanted: &str, found: &DeValue<'_>) {
        self.problem(span, key, format!("must be {wanted}, not {}", kind(found)));
    }

    fn string(&mut self, s: &Section<'_, '_>, key: &str, default: Option<&str>) -> Option<String> {
        let Some(value) = s.table.get(key) else {
            if default.is_none() {
                self.missing(s, key);
            }
            return default.map(str::to_owned);
        };
        match value.get_ref() {
            DeValue::String(text) if !text.is_empty() || default.is_some() => Some(text.to_string()),
            DeValue::String(_) => {
                self.problem(&value.span(), &s.key(key), "must not be empty".to_owned());
                None
            }
            other => {
                self.wrong_type(&value.span(), &s.key(key), "a string", other);
                None
            }
        }
    }

    /// A whole number in a range, both ends included.
    fn whole(&mut self, s: &Section<'_, '_>, key: &str, least: u32, most: u32) -> Option<u32> {
        let value = s.table.get(key).or_else(|| {
            self.missing(s, key);
            None
        })?;
        let DeValue::Integer(number) = value.get_ref() else {
            self.wrong_type(&value.span(), &s.key(key), "a whole number", value.get_ref());
            return None;
        };
        let parsed = i64::from_str_radix(number.as_str(), number.radix()).ok().and_then(|n| u32::try_from(n).ok());
        if let Some(n) = parsed.filter(|n| (least..=most).contains(n)) {
            return Some(n);
        }
        self.problem(&value.span(), &s.key(key), format!("{} is out of range: {least} to {most}", number.as_str()));
        None
    }

    /// A number in a range, both ends included; `5` is as good as `5.0`.
    fn real(&mut self, s: &Section<'_, '_>, key: &str, least: f64, most: f64) -> Option<f64> {
        let value = s.table.get(key).or_else(|| {
            self.missing(s, key);
            None
        })?;
        let text = match value.get_ref() {
            DeValue::Float(number) => number.as_str(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            other => {
                self.wrong_type(&value.span(), &s.key(key), "a number", other);
                return None;
            }
        };
        if let Some(n) = f64::from_str(text).ok().filter(|n| (least..=most).contains(n)) {
            return Some(n);
        }
        self.problem(&value.span(), &s.key(key), format!("{text} is out of range: {least} to {most}"));
        None
    }

    /// A list without repetitions; `each` reads an item.
    fn list<T: PartialEq>(
        &mut self,
        s: &Section<'_, '_>,
        key: &str,
        default: Option<Vec<T>>,
        mut each: impl FnMut(&mut Self, &Spanned<DeValue<'_>>, &str) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Some(value) = s.table.get(key) else {
            if default.is_none() {
                self.missing(s, key);
            }
            return default;
        };
        let path = s.key(key);
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong_type(&value.span(), &path, "a list", value.get_ref());
            return None;
        };
        if items.is_empty() && default.as_ref().is_none_or(|d| !d.is_empty()) {
            self.problem(&value.span(), &path, "is empty; name at least one".to_owned());
            return None;
        }
        let mut all = Vec::new();
        let mut good = true;
        for item in items.iter() {
            match each(self, item, &path) {
                Some(one) if !all.contains(&one) => all.push(one),
                Some(_) => {
                    self.problem(&item.span(), &path, "is named twice".to_owned());
                    good = false;
                }
                None => good = false,
            }
        }
        good.then_some(all)
    }

    fn entries(
        &mut self,
        s: &Section<'_, '_>,
        key: &str,
        names: &[String],
        default: Option<Vec<String>>,
    ) -> Option<Vec<String>> {
        let words: Vec<&str> = names.iter().map(String::as_str).collect();
        self.list(s, key, default, |reader, item, path| reader.word(item, path, &words).map(|i| words[i].to_owned()))
    }

    fn choices<T: Copy + PartialEq + ToString>(
        &mut self,
        s: &Section<'_, '_>,
        key: &str,
        values: &[T],
        default: Vec<T>,
    ) -> Option<Vec<T>> {
        let texts: Vec<String> = values.iter().map(T::to_string).collect();
        let words: Vec<&str> = texts.iter().map(String::as_str).collect();
        self.list(s, key, Some(default), |reader, item, path| reader.word(item, path, &words).map(|i| values[i]))
    }

    fn switches(&mut self, s: &Section<'_, '_>, key: &str, default: Vec<bool>) -> Option<Vec<bool>> {
        self.list(s, key, Some(default), |reader, item, path| match item.get_ref() {
            DeValue::Boolean(on) => Some(*on),
            other => {
                reader.wrong_type(&item.span(), path, "true or false", other);
                None
            }
        })
    }

    /// Index of the word in the choice.
    fn word(&mut self, item: &Spanned<DeValue<'_>>, path: &str, words: &[&str]) -> Option<usize> {
        let DeValue::String(text) = item.get_ref() else {
            self.wrong_type(&item.span(), path, "a string", item.get_ref());
            return None;
        };
        let found = words.iter().position(|w| w == text);
        if found.is_none() {
            self.problem(&item.span(), path, format!("unknown entry `{text}`{}", hint(text, words)));
        }
        found
    }
}

fn value_span(s: &Section<'_, '_>, key: &str) -> Range<usize> {
    s.table.get(key).map_or(s.span.clone(), Spanned::span)
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
