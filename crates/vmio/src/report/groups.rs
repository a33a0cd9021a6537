//! The rows of a report in groups: the cells of a workload on one subject, with their baselines. All forms of the
//! report show the same groups in the same order.

use std::collections::{BTreeMap, BTreeSet};

use vmio_model::cell::{Cell, Subject};
use vmio_model::result::WorkloadTraits;
use vmio_model::study::SubjectKind;
use vmio_model::summary::steady::Steady;
use vmio_model::summary::{CellRow, Share};

use super::figures::{self, RowDetails};
use super::{Report, format};

/// The cells of a workload on one subject that are compared, each baseline before the cells that are compared with it.
/// A baseline on another subject is here too.
pub struct Group<'a> {
    /// The kind of the subject.
    pub sort: SubjectKind,
    /// The subjects of the compared cells, mostly one: a target, a path, the machine, a cluster. Where nothing is
    /// compared, those of all cells.
    pub on: Vec<String>,
    /// Name of the workload; several where that of the baseline is another one.
    pub workload: String,
    /// Each workload of its rows with a description, those that are compared first, then those of their baselines. The
    /// description is empty where the run has none.
    pub about: Vec<(String, String)>,
    /// The rows.
    pub rows: Vec<Row<'a>>,
}

/// A row: a cell, and its share of its baseline.
pub struct Row<'a> {
    /// The side, its attachment or card, and what else distinguishes it within its group.
    pub label: String,
    /// The cell.
    pub cell: &'a CellRow,
    /// Its share; `None` of a baseline, and where no pair with the baseline was measured.
    pub share: Option<&'a Share>,
    /// Why the share is missing, where there should be one.
    pub lacks: Option<&'static str>,
    /// Whether the share is that of its first actor, since the baseline has fewer actors.
    pub of_first: bool,
    /// Its other figures, and those of each of several actors.
    pub details: RowDetails,
    /// Whether its disk became steady, where that was asked for.
    pub steady: Option<&'a Steady>,
}

impl Group<'_> {
    /// Whether it is about a disk, which has columns for latencies and the device.
    pub fn on_disk(&self) -> bool {
        self.sort == SubjectKind::Disk
    }

    /// Whether both have the same subjects.
    pub fn same_thing(&self, other: &Group<'_>) -> bool {
        self.sort == other.sort && self.on == other.on
    }

    /// The description of its workload, where all of its rows have the same one.
    pub fn about_all(&self) -> Option<&str> {
        match self.about.as_slice() {
            [(_, about)] if !about.is_empty() => Some(about),
            _ => None,
        }
    }

    /// The description of each workload, where there are several: `seq-write: 64 KiB sequential writes, …`.
    pub fn about_each(&self) -> impl Iterator<Item = String> {
        let several = if self.about.len() > 1 { self.about.as_slice() } else { &[] };
        several.iter().filter(|(_, about)| !about.is_empty()).map(|(name, about)| format!("{name}: {about}"))
    }

    /// Names of the other figures of its rows and their actors, each once.
    pub fn others(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for row in &self.rows {
            let of_actors = row.details.actors.iter().flat_map(|part| &part.figures);
            for shown in row.details.figures.iter().chain(of_actors) {
                if !names.contains(&shown.name.as_str()) {
                    names.push(&shown.name);
                }
            }
        }
        names
    }
}

/// A cell of the run, with what it is compared with.
struct GroupedCell<'a> {
    row: &'a CellRow,
    /// Index of its baseline among the cells that are shown; `None` where there is none.
    base: Option<usize>,
    /// Whether it is compared with anything.
    compared: bool,
}

/// The groups in the run's order of subjects and workloads.
pub fn groups<'a>(report: &'a Report<'_>) -> Vec<Group<'a>> {
    let rows: Vec<&CellRow> = report.summary.asked_for().collect();
    let places: BTreeMap<&Cell, usize> = rows.iter().enumerate().map(|(i, row)| (&row.cell, i)).collect();
    let placed: Vec<GroupedCell<'_>> = rows
        .iter()
        .map(|row| {
            let base = report.versus.base(&row.cell);
            let at = base.as_ref().and_then(|base| places.get(base).copied());
            let base_there = at.filter(|at| rows[*at].figure == row.figure);
            GroupedCell { row, base: base_there, compared: base.is_some() }
        })
        .collect();
    let guests = rows.iter().flat_map(|row| row.cell.actors()).filter(|actor| !actor.side.is_native());
    let several = guests.map(|actor| &actor.side).collect::<BTreeSet<_>>().len() > 1;
    let mut groups: Vec<Group<'a>> =
        together(&placed).iter().map(|members| group(report, &placed, members, several)).collect();
    let mut things: Vec<(SubjectKind, Vec<String>)> = Vec::new();
    for group in &groups {
        let thing = (group.sort, group.on.clone());
        if !things.contains(&thing) {
            things.push(thing);
        }
    }
    let known = |name: &str| report.run.workloads.iter().position(|w| w.name == name).unwrap_or(usize::MAX);
    groups.sort_by_key(|group| {
        let thing = things.iter().position(|(sort, on)| *sort == group.sort && *on == group.on);
        (thing, group.rows.iter().map(|row| known(row.cell.cell.workload())).min())
    });
    groups
}

/// The indices of the cells of each group: those of one workload on one subject, and those of their baselines.
fn together(placed: &[GroupedCell<'_>]) -> Vec<Vec<usize>> {
    let mut named: BTreeMap<(SubjectKind, String, &str), usize> = BTreeMap::new();
    let mut of: Vec<usize> = Vec::new();
    for GroupedCell { row, .. } in placed {
        let subject = &row.cell.lead.subject;
        let next = named.len();
        of.push(*named.entry((SubjectKind::of(subject), subject.place(), row.cell.workload())).or_insert(next));
    }
    // A disjoint-set forest: for each thing the first one that it is grouped with.
    let mut first: Vec<usize> = (0..named.len()).collect();
    let find = |first: &[usize], mut at: usize| {
        while first[at] != at {
            at = first[at];
        }
        at
    };
    for (i, base) in placed.iter().enumerate().filter_map(|(i, p)| Some((i, p.base?))) {
        let (a, b) = (find(&first, of[i]), find(&first, of[base]));
        first[a.max(b)] = a.min(b);
    }
    let mut all: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, thing) in of.iter().enumerate() {
        all.entry(find(&first, *thing)).or_default().push(i);
    }
    all.into_values().collect()
}

fn group<'a>(report: &'a Report<'_>, placed: &[GroupedCell<'a>], members: &[usize], several: bool) -> Group<'a> {
    let compared = || members.iter().filter(|i| placed[**i].compared);
    let shown: Vec<&CellRow> = match compared().next() {
        Some(_) => compared().map(|i| placed[*i].row).collect(),
        None => members.iter().map(|i| placed[*i].row).collect(),
    };
    let on = distinct(shown.iter().map(|row| name(&row.cell.lead.subject)));
    let workloads = distinct(shown.iter().map(|row| row.cell.workload().to_owned()));
    // Natives first, each baseline before its own; what lacks its baseline comes last.
    let mut order = members.to_vec();
    order.sort_by_key(|i| {
        let of = placed[*i].base.unwrap_or(*i);
        let native = |i: usize| placed[i].row.cell.is_native();
        (placed[of].compared, !native(of), of, placed[*i].base.is_some(), !native(*i), *i)
    });
    let rows = order.iter().map(|i| {
        let row = placed[*i].row;
        let share = report.summary.share(&row.key);
        let names = Names {
            guest: several,
            place: on.len() > 1 || on.first() != Some(&name(&row.cell.lead.subject)),
            workload: workloads.len() > 1 || workloads.first().map(String::as_str) != Some(row.cell.workload()),
        };
        Row {
            label: label(&row.cell, &names),
            cell: row,
            share,
            lacks: report.versus.lacks(row, share),
            of_first: !report.versus.has_as_many(&row.cell),
            details: RowDetails::of(row, share, &report.run.workloads),
            steady: report.summary.steady.iter().find(|s| s.key == row.key),
        }
    });
    let rows: Vec<Row<'a>> = rows.collect();
    let all = distinct(workloads.iter().cloned().chain(rows.iter().map(|row| row.cell.cell.workload().to_owned())));
    let about = all.into_iter().map(|name| {
        let traits = report.run.workloads.iter().find(|w| w.name == name);
        (name, traits.map(about).unwrap_or_default())
    });
    Group {
        sort: shown.first().map_or(SubjectKind::Machine, |row| SubjectKind::of(&row.cell.lead.subject)),
        about: about.collect(),
        rows,
        workload: workloads.join(", "),
        on,
    }
}

/// The texts without repetitions, in order.
pub(super) fn distinct(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    all.filter(|text| seen.insert(text.clone())).collect()
}

/// The name of a subject: `sparse`, `veth.host`, `the machine itself`.
fn name(subject: &Subject) -> String {
    match subject {
        Subject::Machine => "the machine itself".to_owned(),
        Subject::Disk { .. } | Subject::Path { .. } => subject.place(),
    }
}

/// What a label must name, since the heading of the group does not.
struct Names {
    /// The guest.
    guest: bool,
    /// The subject.
    place: bool,
    /// The workload.
    workload: bool,
}

/// The label of a cell: its side and attachment or card, the actors beside it, and its settings.
fn label(cell: &Cell, names: &Names) -> String {
    let lead = &cell.lead;
    let mut own = match lead.subject.seen_by() {
        None => lead.side.to_string(),
        Some(seen) => {
            let guest = if names.guest { format!("{} ", lead.side) } else { String::new() };
            let dropped = lead.attachment().is_some_and(|a| a.cache.no_flush());
            format!("{guest}{seen}{}", if dropped { " (flushes dropped)" } else { "" })
        }
    };
    own.extend(names.workload.then(|| format!(" {}", lead.workload)));
    own.extend(names.place.then(|| format!(" on {}", name(&lead.subject))));
    own.extend(figures::when(lead).map(|when| format!(" {when}")));
    own.extend(cell.beside.iter().map(|actor| format!(" & {}", figures::who(cell, actor))));
    own.extend(cell.settings.iter().map(|(name, value)| format!(" {name}={value}")));
    own
}

/// `4 KiB random reads, 32 in flight, O_DIRECT`; for a workload on no disk its figures, the one that it is judged by
/// first.
fn about(w: &WorkloadTraits) -> String {
    let Some(d) = &w.disk else {
        let others = w.figures.iter().filter(|f| f.compared.is_shown(f.better) && f.name != w.judged_by);
        let others: Vec<&str> = others.map(|f| f.name.as_str()).collect();
        let with = if others.is_empty() { "" } else { ", with " };
        return format!("{}{with}{}", w.judged_by, others.join(", "));
    };
    let what = match (d.reads, d.writes) {
        (true, true) => "reads and writes",
        (true, false) => "reads",
        _ => "writes",
    };
    format!(
        "{} {} {what}, {} in flight, {}",
        format::bytes(d.block_bytes),
        if d.sequential { "sequential" } else { "random" },
        d.depth,
        match (d.direct, d.engine.as_str()) {
            (true, "io_uring") => "O_DIRECT, io_uring",
            (true, _) => "O_DIRECT",
            (false, "io_uring") => "page cache, io_uring",
            (false, "libaio") => "page cache, libaio: synchronous",
            (false, _) => "through its page cache",
        }
    )
}

/// The heading of a group: `Target sparse`, `Path veth.host`, `The machine itself`.
pub fn heading(group: &Group<'_>) -> String {
    format::capital(&named(group))
}

/// The subjects of a group, to follow the word `on`.
pub fn on(group: &Group<'_>) -> String {
    if group.on_disk() { group.on.join(", ") } else { named(group) }
}

/// The same within a sentence: `target sparse`, `path veth.host`.
pub fn named(group: &Group<'_>) -> String {
    let names = group.on.join(", ");
    kind(group).map_or_else(|| names.clone(), |kind| format!("{kind} {names}"))
}

/// The word for the kind of subject; the machine has none.
fn kind(group: &Group<'_>) -> Option<&'static str> {
    match (group.sort, group.on.len()) {
        (SubjectKind::Disk, 0..=1) => Some("target"),
        (SubjectKind::Disk, _) => Some("targets"),
        (SubjectKind::Path, 0..=1) => Some("path"),
        (SubjectKind::Path, _) => Some("paths"),
        (SubjectKind::Machine, _) => None,
    }
}
