//! Checks of the whole study, whose parts are valid.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use crate::cell::{Actor, Arch, Baseline, Cell, Subject};
use crate::study::{Controlled, Matrix, NamedCell, Names, Study, SubjectKind};
use crate::toml_reader::{Reader, Section, value_span};

impl Reader<'_> {
    /// The optional `[control]`.
    pub(super) fn control(
        &mut self,
        top: &Section<'_, '_>,
        read: Option<(&Vec<Matrix>, &Vec<NamedCell>)>,
        names: &Names,
    ) -> Option<Option<Controlled>> {
        if !top.table.contains_key("control") {
            return Some(None);
        }
        let s = self.section(top, "control")?;
        self.known_keys(&s, &["workloads"]);
        let (matrix, named) = read?;
        let mut measured: Vec<String> = Vec::new();
        for cell in matrix.iter().flat_map(Matrix::cells).chain(named.iter().filter_map(NamedCell::cell)) {
            let workload = cell.disk().map(|on| on.workload.to_owned());
            measured.extend(workload.filter(|workload| !measured.contains(workload)));
        }
        let words: Vec<&str> = measured.iter().map(String::as_str).collect();
        let workloads = self.list(&s, "workloads", None, |reader, item, path| {
            match item.get_ref() {
                // A known workload without cells in this study.
                DeValue::String(name) if !words.contains(&&**name) && names.works_on(name).is_some() => {
                    let there = if words.is_empty() {
                        "no cell is one actor on a disk".to_owned()
                    } else {
                        format!("those that do are {}", words.join(", "))
                    };
                    let what = format!("`{name}` works alone on a disk in no cell of this study: {there}");
                    reader.problem(&item.span(), path, what);
                    None
                }
                _ => reader.word(item, path, &words).map(|i| words[i].to_owned()),
            }
        })?;
        Some(Some(Controlled { workloads }))
    }

    /// Notes contradictions between valid parts.
    pub(super) fn sense(&mut self, top: &Section<'_, '_>, study: &Study, names: &Names) {
        let at = |section: &str, key: &str| {
            let table = top.table.get(section).map(Spanned::get_ref).and_then(|value| value.as_table());
            table.and_then(|t| t.get(key)).map_or(top.span.clone(), Spanned::span)
        };
        self.guards_fit(top, study);
        if let Baseline::Like(_) = &study.baseline {
            self.likeness(top, study, names);
        }
        if study.baseline != Baseline::None && study.repeat.min_pairs < 2 {
            let what = "one pair has no interval, so no share could converge: 2, or baseline = \"none\"";
            self.problem(&at("repeat", "min_pairs"), "repeat.min_pairs", what.to_owned());
        }
        let afar = |cell: &Cell| cell.actors().any(|actor| actor.side.is_afar());
        if study.baseline != Baseline::None && study.named_cells().any(|cell| afar(&cell)) {
            let what = "there is no native side of a machine that ssh reaches: write baseline = \"none\"";
            self.problem(&value_span(top, "baseline"), "baseline", what.to_owned());
        }
        self.one_processor(top, study);
        if study.control.is_some() && !study.baseline.is_native() {
            let what = "control cells explain what a guest loses against native cells: the baseline must be `native`";
            self.problem(&value_span(top, "control"), "control", what.to_owned());
        }
        if study.repeat.steady_state && !study.can_become_steady() {
            let what = "what becomes steady is the disk of a native cell, and there is none";
            self.problem(&at("repeat", "steady_state"), "repeat.steady_state", what.to_owned());
        }
        // Too small for the memory of [guest] is reported already.
        let most = study.most_memory_mib();
        let small = |target_mib: &u32| u64::from(*target_mib) < 2 * u64::from(most) && most > study.guest.memory_mib;
        if let Some(target_mib) = study.size.map(|size| size.target_mib).filter(small) {
            let what = format!(
                "{target_mib} is too small: a target holds at least twice the memory of the largest guest ({}), so \
                 that buffered work cannot stay in memory",
                2 * u64::from(most)
            );
            self.problem(&at("size", "target_mib"), "size.target_mib", what);
        }
    }

    /// Guests of another architecture are emulated: they cannot be compared with the host, and a run has one image,
    /// hence one architecture.
    fn one_processor(&mut self, top: &Section<'_, '_>, study: &Study) {
        let arches = |cell: &Cell| cell.actors().map(|actor| actor.side.shape.arch).collect::<Vec<_>>();
        let apart = |cell: Cell| Some((arches(&cell), arches(&study.baseline.of(&cell)?), cell));
        let differs = study.named_cells().filter_map(apart).find(|(own, other, _)| own[..other.len()] != other[..]);
        if let Some((_, _, cell)) = differs {
            let what = format!(
                "{} has another processor than what it is compared with, so a share would say nothing: write \
                 baseline = \"none\"",
                cell.key()
            );
            self.problem(&value_span(top, "baseline"), "baseline", what);
        }
        let arches = study.arches();
        if arches.len() > 1 {
            let all: Vec<&str> = arches.into_iter().map(Arch::name).collect();
            let what = format!("guests of {} are in one study: write a study for each", all.join(" and "));
            self.problem(&top.span, "matrix", what);
        }
    }

    /// `[baseline.like]` must give valid cells.
    fn likeness(&mut self, top: &Section<'_, '_>, study: &Study, names: &Names) {
        let below = |table: Option<&Spanned<DeValue<'_>>>, key: &str| -> Option<Range<usize>> {
            Some(table?.get_ref().as_table()?.get("like")?.get_ref().as_table()?.get(key)?.span())
        };
        let span = value_span(top, "baseline");
        let at = |key: &str| below(top.table.get("baseline"), key).unwrap_or_else(|| span.clone());
        let named: Vec<Cell> = study.named_cells().collect();
        let pairs = || named.iter().filter_map(|cell| Some((cell, study.baseline.of(cell)?)));
        if pairs().all(|(cell, baseline)| baseline == *cell) {
            let what = "no cell differs from its baseline, so nothing is compared: write baseline = \"none\"";
            self.problem(&span, "baseline.like", what.to_owned());
        }
        if let Some((cell, _)) = pairs().find(|(_, baseline)| baseline.actors().any(|a| sees_nothing(a, names))) {
            let what =
                format!("gives {} a guest that sees its subject by no device: leave native sides out", cell.key());
            self.problem(&at("side"), "baseline.like.side", what);
        }
        let misplaced = |(_, baseline): &(&Cell, Cell)| {
            let on = SubjectKind::of(&baseline.lead.subject);
            names.works_on(baseline.workload()).is_some_and(|works_on| works_on != on)
        };
        if let Some((cell, baseline)) = pairs().find(misplaced) {
            let what = format!("`{}` does not work on what {} works on", baseline.workload(), cell.key());
            self.problem(&at("workload"), "baseline.like.workload", what);
        } else if let Some((cell, baseline, figure)) = pairs().find_map(|(cell, baseline)| {
            let figure = names.lacks(baseline.workload(), cell.workload())?;
            Some((cell, baseline, figure))
        }) {
            let what = format!(
                "`{}` does not measure the {figure} that `{}` is judged by, so {} would have no share",
                baseline.workload(),
                cell.workload(),
                cell.key()
            );
            self.problem(&at("workload"), "baseline.like.workload", what);
        }
    }
}

/// Whether it is a guest with a machine, but without an attachment or card where it needs one.
fn sees_nothing(actor: &Actor, names: &Names) -> bool {
    let device = match &actor.subject {
        Subject::Disk { target, attachment, .. } => attachment.is_some() || names.reached.contains(target),
        Subject::Path { network, nic, .. } => nic.is_some() || names.inside.contains(network),
        Subject::Machine => true,
    };
    !actor.side.shares_kernel() && !device
}
