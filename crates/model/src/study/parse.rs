//! Reading a study. Every problem in the file is found in one pass and says
//! `file:line: key: what is wrong; what was probably meant`.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Controlled, Names, Repeat, Resources, Size, Study};
use crate::cell::{Baseline, Like, Settings};
use crate::problem::{Problem, Source};
use crate::toml_reader::{Reader, Section, value_span};

mod matrix;
mod named;

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
        let keys = ["name", "title", "cites", "baseline", "guest", "size", "repeat", "control", "matrix", "cell"];
        self.known_keys(&top, &keys);
        let name = self.string(&top, "name", None);
        let title = self.string(&top, "title", None);
        let cites = self.string(&top, "cites", Some(""));
        let guest = self.section(&top, "guest").and_then(|s| {
            self.known_keys(&s, &["vcpus", "memory_mib"]);
            let vcpus = self.whole(&s, "vcpus", 1, 1024);
            let memory_mib = self.whole(&s, "memory_mib", MIN_MEMORY_MIB, 1 << 20);
            Some(Resources { vcpus: vcpus?, memory_mib: memory_mib? })
        });
        let matrix = self.matrices(&top, names);
        let named = self.named_cells(&top, names);
        if !top.table.contains_key("matrix") && !top.table.contains_key("cell") {
            self.problem(&top.span, "matrix", "missing; add at least one [[matrix]] or [[cell]]".to_owned());
        }
        // What only disks need is asked for only where there is one.
        let read = matrix.as_ref().zip(named.as_ref());
        let disks = read.is_none_or(|(matrix, named)| {
            matrix.iter().any(|m| m.disks.is_some()) || named.iter().any(|c| c.targets().next().is_some())
        });
        let size = self.size(&top, guest, disks);
        let repeat = self.section(&top, "repeat").and_then(|s| self.repeat(&s, disks));
        let baseline = self.baseline(&top, names);
        let control = self.control(&top, read);
        Some(Study {
            name: name?,
            title: title?,
            cites: cites?,
            baseline: baseline?,
            guest: guest?,
            size: size?,
            repeat: repeat?,
            control: control?,
            matrix: matrix?,
            named: named?,
        })
    }

    /// `[size]`: where a cell is on a disk.
    fn size(&mut self, top: &Section<'_, '_>, guest: Option<Resources>, disks: bool) -> Option<Option<Size>> {
        if !disks && !top.table.contains_key("size") {
            return Some(None);
        }
        let s = self.section(top, "size")?;
        if !disks {
            self.problem(&s.span, "size", "no cell is on a disk: drop it".to_owned());
        }
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
        Some(Some(Size { target_mib }))
    }

    /// `baseline`: `"native"`, `"none"`, or what is put in the place of what.
    fn baseline(&mut self, top: &Section<'_, '_>, names: &Names) -> Option<Baseline> {
        let Some(value) = top.table.get("baseline") else { return Some(Baseline::Native) };
        let DeValue::Table(table) = value.get_ref() else {
            let words = ["native", "none"];
            let found = self.word(value, "baseline", &words)?;
            return Some(if found == 0 { Baseline::Native } else { Baseline::None });
        };
        let whole = Section { path: "baseline".into(), span: value.span(), table };
        self.known_keys(&whole, &["like"]);
        let Some(DeValue::Table(table)) = table.get("like").map(Spanned::get_ref) else {
            self.missing(&whole, "like");
            return None;
        };
        let s = Section { path: "baseline.like".into(), span: value.span(), table };
        self.known_keys(&s, &["side", "target", "network", "peer", "workload", "alone", "settings"]);
        let before = self.problems.len();
        let mut one = |key: &str, known: &[String]| {
            let words: Vec<&str> = known.iter().map(String::as_str).collect();
            let value = table.get(key)?;
            self.word(value, &s.key(key), &words).map(|i| words[i].to_owned())
        };
        let like = Like {
            side: one("side", &names.guests),
            target: one("target", &names.targets),
            network: one("network", &names.networks),
            peer: one("peer", &names.peers),
            workload: table
                .get("workload")
                .and_then(|value| self.workload(value, "baseline.like.workload", names, None)),
            alone: self.switch(&s, "alone", false)?,
            settings: match table.get("settings") {
                None => None,
                Some(value) => Some(self.settings(value, "baseline.like.settings", names)?),
            },
        };
        (self.problems.len() == before).then_some(Baseline::Like(like))
    }

    /// `{ read-ahead = "128k" }`.
    fn settings(&mut self, value: &Spanned<DeValue<'_>>, path: &str, names: &Names) -> Option<Settings> {
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong_type(&value.span(), path, "a table like { read-ahead = \"128k\" }", value.get_ref());
            return None;
        };
        let mut all = Settings::new();
        for (name, value) in table.iter() {
            let value = self.setting(name, value, path, names);
            all.extend(value.map(|value| (name.get_ref().to_string(), value)));
        }
        (all.len() == table.len()).then_some(all)
    }

    /// One value of a setting, in its one spelling.
    fn setting(
        &mut self,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        path: &str,
        names: &Names,
    ) -> Option<String> {
        let word: &str = name.get_ref();
        let Some(entry) = names.settings.iter().find(|s| s.name == word) else {
            let known: Vec<&str> = names.settings.iter().map(|s| s.name).collect();
            let what = format!("unknown setting `{word}`{}", crate::toml_reader::hint(word, &known));
            self.problem(&name.span(), path, what);
            return None;
        };
        let DeValue::String(text) = value.get_ref() else {
            self.wrong_type(&value.span(), &format!("{path}.{word}"), "a string", value.get_ref());
            return None;
        };
        match (entry.value)(text) {
            Ok(value) => Some(value),
            Err(why) => {
                self.problem(&value.span(), &format!("{path}.{word}"), why);
                None
            }
        }
    }

    fn repeat(&mut self, s: &Section<'_, '_>, disks: bool) -> Option<Repeat> {
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
        let max_gib_written = match disks || s.table.contains_key("max_gib_written") {
            true => self.real(s, "max_gib_written", 0.1, 1e6).map(Some),
            false => Some(None),
        };
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
    fn control(
        &mut self,
        top: &Section<'_, '_>,
        read: Option<(&Vec<super::Matrix>, &Vec<super::NamedCell>)>,
    ) -> Option<Option<Controlled>> {
        if !top.table.contains_key("control") {
            return Some(None);
        }
        let s = self.section(top, "control")?;
        self.known_keys(&s, &["workloads"]);
        let mut measured: Vec<String> = Vec::new();
        let (matrix, named) = read?;
        let on_disks = matrix.iter().filter(|m| m.disks.is_some()).flat_map(|m| &m.workloads);
        for workload in on_disks.chain(named.iter().flat_map(|c| c.actors.iter().map(|a| &a.workload))) {
            if !measured.contains(workload) {
                measured.push(workload.clone());
            }
        }
        let workloads = self.entries(&s, "workloads", &measured, None)?;
        Some(Some(Controlled { workloads }))
    }
}
