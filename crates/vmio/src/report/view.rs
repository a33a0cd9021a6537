//! What all forms of the report show, in their common order: rows grouped by what is worked on and
//! by workload, what the others are compared with first.

use std::collections::BTreeSet;

use vmio_model::cell::{Cell, Subject};
use vmio_model::figure::{Better, Compared, Form, Unit};
use vmio_model::result::{Environment, Mark, Run, Skipped, WorkloadTraits};
use vmio_model::stats::Estimate;
use vmio_model::study::Sort;
use vmio_model::summary::steady::Steady;
use vmio_model::summary::{CellRow, Share, Summary};

use super::figures::{self, Beside};
use super::{Report, format};

/// One workload on one thing: the row of the baseline and those that are compared with it.
pub struct Group<'a> {
    /// What is worked on: a target, a path, the machine.
    pub place: String,
    /// What sort of thing that is.
    pub sort: Sort,
    /// Entry of `workloads/`.
    pub workload: &'a str,
    /// What the workload does, in words.
    pub about: String,
    /// The rows, the baseline first.
    pub rows: Vec<Row<'a>>,
}

/// A row: a cell, and what it gets of its baseline.
pub struct Row<'a> {
    /// `native`, or the attachment; with the guest's name where a run has several kinds.
    pub label: String,
    /// The cell.
    pub cell: &'a CellRow,
    /// Its share; `None` of a baseline, and where no pair with the baseline was measured.
    pub share: Option<&'a Share>,
    /// Why there is none, where there should be one.
    pub lacks: Option<&'static str>,
    /// Whether the share is that of its first actor, since the baseline has not as many.
    pub of_first: bool,
    /// Its other figures, and those of each of several actors.
    pub beside: Beside,
    /// Whether its disk became steady, where that was asked for.
    pub steady: Option<&'a Steady>,
}

impl Group<'_> {
    /// Whether it is about a disk, whose latencies and device have columns of their own.
    pub fn on_disk(&self) -> bool {
        self.sort == Sort::Disk
    }

    /// Whether both are about the same thing.
    pub fn same_thing(&self, other: &Group<'_>) -> bool {
        self.sort == other.sort && self.place == other.place
    }

    /// Names of the other figures of its rows and their actors, each once.
    pub fn others(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for row in &self.rows {
            let of_actors = row.beside.actors.iter().flat_map(|part| &part.beside);
            for shown in row.beside.figures.iter().chain(of_actors) {
                if !names.contains(&shown.name.as_str()) {
                    names.push(&shown.name);
                }
            }
        }
        names
    }
}

/// The groups in the run's order of things and workloads.
pub fn groups<'a>(report: &'a Report<'_>) -> Vec<Group<'a>> {
    let (run, summary) = (report.run, &report.summary);
    let guests = summary.asked_for().flat_map(|c| c.cell.actors()).filter(|a| !a.side.is_native());
    let several = guests.map(|a| &a.side).collect::<BTreeSet<_>>().len() > 1;
    let mut things: Vec<(Sort, String)> = Vec::new();
    for row in summary.asked_for() {
        let thing = thing(&row.cell);
        if !things.contains(&thing) {
            things.push(thing);
        }
    }
    let mut workloads: Vec<&str> = run.workloads.iter().map(|w| w.name.as_str()).collect();
    for row in summary.asked_for() {
        if !workloads.contains(&row.cell.workload()) {
            workloads.push(row.cell.workload());
        }
    }
    let mut groups = Vec::new();
    for of in things {
        for workload in &workloads {
            let mut rows: Vec<Row<'_>> = summary
                .asked_for()
                .filter(|c| thing(&c.cell) == of && c.cell.workload() == *workload)
                .map(|cell| row(report, cell, several))
                .collect();
            // What others are compared with comes first: natively, unless the study says otherwise.
            rows.sort_by_key(|row| (row.share.is_some() || row.lacks.is_some(), !row.cell.cell.is_native()));
            if !rows.is_empty() {
                let about = run.workloads.iter().find(|w| w.name == *workload).map(about).unwrap_or_default();
                groups.push(Group { place: of.1.clone(), sort: of.0, workload, about, rows });
            }
        }
    }
    groups
}

fn row<'a>(report: &'a Report<'_>, cell: &'a CellRow, several: bool) -> Row<'a> {
    let share = report.summary.share(&cell.key);
    Row {
        label: label(&cell.cell, several),
        cell,
        share,
        lacks: report.versus.lacks(cell, share),
        of_first: !report.versus.has_as_many(&cell.cell),
        beside: Beside::of(cell, share, &report.run.workloads),
        steady: report.summary.steady.iter().find(|s| s.key == cell.key),
    }
}

/// What a cell works on.
fn thing(cell: &Cell) -> (Sort, String) {
    (Sort::of(&cell.lead.subject), cell.lead.subject.place())
}

/// Who works, and how it sees what it works on; who works beside it, and what is set.
fn label(cell: &Cell, with_guest: bool) -> String {
    let lead = &cell.lead;
    let mut own = match lead.subject.seen_by() {
        None => lead.side.to_string(),
        Some(seen) => {
            let guest = if with_guest { format!("{} ", lead.side) } else { String::new() };
            let dropped = lead.attachment().is_some_and(|a| a.cache.no_flush());
            format!("{guest}{seen}{}", if dropped { " (flushes dropped)" } else { "" })
        }
    };
    own.extend(figures::when(lead).map(|when| format!(" {when}")));
    own.extend(cell.beside.iter().map(|actor| format!(" & {}", figures::who(cell, actor))));
    own.extend(cell.settings.iter().map(|(name, value)| format!(" {name}={value}")));
    own
}

/// `4 KiB random reads, 32 in flight, O_DIRECT`; of what works on no disk, the figure that it is
/// judged by and its others.
fn about(w: &WorkloadTraits) -> String {
    let Some(d) = &w.disk else {
        let others = w.figures.iter().filter(|f| f.compared != Compared::No && f.name != w.judged_by);
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

/// The notes under a row: what must be known before its figures are believed.
pub fn notes(row: &Row<'_>) -> Vec<String> {
    let cell = row.cell;
    let mut notes: Vec<String> = cell
        .marks
        .iter()
        .map(|(mark, n)| {
            let which =
                if *n == cell.samples { "every sample".into() } else { format!("{n} of {} samples", cell.samples) };
            format!("{} in {which}", format::mark(*mark))
        })
        .collect();
    notes.extend(row.lacks.map(str::to_owned));
    if let Some(share) = row.share {
        if !share.converged {
            notes.push(format!("{}; so far {}", share.verdict, format::share(&share.share_ratio)));
        }
        if row.of_first {
            notes.push("the share is that of the first actor: not as many work in the baseline".into());
        }
    }
    notes.extend(cell.durability.iter().map(|d| d.text.clone()));
    notes.extend(row.steady.map(Steady::text));
    if !cell.outlier_rounds.is_empty() {
        notes.push(format!("outliers, kept, in rounds {}", list(&cell.outlier_rounds)));
    }
    notes
}

/// What a group's part of the report is called: `Target: sparse`, `Path: veth.host`.
pub fn heading(group: &Group<'_>, gap: &str) -> String {
    match group.sort {
        Sort::Disk => format!("Target{gap}{}", group.place),
        Sort::Path => format!("Path{gap}{}", group.place),
        Sort::Machine | Sort::Cluster => format::capital(&named(group)),
    }
}

/// What a group works on, after `on`.
pub fn on(group: &Group<'_>) -> String {
    if group.on_disk() { group.place.clone() } else { named(group) }
}

/// The same within a sentence.
pub fn named(group: &Group<'_>) -> String {
    match (group.sort, group.rows.first().map(|row| &row.cell.cell.lead.subject)) {
        (_, Some(Subject::Cluster { nodes })) => format!("a cluster of {nodes}"),
        (Sort::Machine, _) => "the machine itself".to_owned(),
        (Sort::Path, _) => format!("path {}", group.place),
        _ => format!("target {}", group.place),
    }
}

/// What the shares of a run are, in sentences.
pub fn shares_are(report: &Report<'_>) -> String {
    let all = match report.versus.any() {
        true => format!("Shares are geometric means of {} with 95 % intervals. ", report.versus.pairs()),
        false => String::new(),
    };
    (all + &not_taken_for_granted(report)).trim_end().to_owned()
}

/// What a reader does not take for granted of the shares of a run: another baseline than the host itself, and
/// figures of which less is better; mostly empty.
pub fn not_taken_for_granted(report: &Report<'_>) -> String {
    let less = report.summary.asked_for().filter_map(CellRow::judged).any(|f| f.better == Better::Less);
    let less = less && report.versus.any();
    let less =
        less.then(|| "Of what is better when there is less of it, a share is the baseline's over the cell's.".into());
    report.versus.told().into_iter().chain(less).collect::<Vec<String>>().join(" ")
}

fn list(rounds: &[u32]) -> String {
    rounds.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// What the device saw, as three short texts: KiB a request, depth, busy; `None`: not visible.
pub fn device(cell: &CellRow) -> Option<[String; 3]> {
    let d = cell.device?;
    // A device that completed nothing has no request size.
    let idle = d.request_bytes.value == 0.0;
    let kib = if idle { "–".into() } else { format!("{:.1}", d.request_bytes.value / 1024.0) };
    let busy = d.busy_ratio.map_or("–".into(), |busy| format!("{:.0} %", busy.value * 100.0));
    Some([kib, depth(d.queue_depth.value), busy])
}

fn depth(requests: f64) -> String {
    if requests < 9.995 { format!("{requests:.2}") } else { format!("{requests:.1}") }
}

/// Who says what is in force: `target/native` is as the host shows it, what a cell sets (`target/native [name=value]`)
/// as it was read back, all else as QEMU says.
pub fn told_by(attachment: &str) -> &'static str {
    match () {
        () if attachment.contains(" [") => "as read back",
        () if attachment.ends_with("/native") => "as the host shows it",
        () => "as QEMU reports it",
    }
}

/// Cells that were not measured, or no longer, each with the reason.
pub fn not_measured(summary: &Summary) -> Vec<(String, String)> {
    let told = |skipped: &Skipped| {
        let (key, reason) = (skipped.cell.key(), &skipped.reason);
        let told = match summary.cell(&key).map(|row| row.samples) {
            None => reason.clone(),
            Some(1) => format!("left out after a sample: {reason}"),
            Some(samples) => format!("left out after {samples} samples: {reason}"),
        };
        (key, told)
    };
    summary.skipped.iter().map(told).collect()
}

/// The environment, line by line.
pub fn environment(summary: &Summary) -> Vec<(&'static str, String)> {
    let e = &summary.environment;
    let native_only = summary.is_native_only();
    let natively =
        summary.cells.is_empty() || summary.cells.iter().any(|c| c.cell.actors().any(|a| a.side.is_native()));
    let not_run = || if native_only { "none: native cells alone" } else { "not known: no guest ran" }.to_owned();
    let accel = match e.accel {
        Some(a) if e.accel_reason.is_empty() => accel(a).to_owned(),
        Some(_) => e.accel_reason.clone(),
        None => not_run(),
    };
    let node = e.node.iter().map(|n| ("machine", n.clone()));
    node.chain([
        ("host", format!("{}, {} CPUs, {}", e.cpu, e.cpus, format::bytes(e.memory_bytes))),
        ("host kernel", e.kernel.clone()),
        ("guest kernel", e.guest_kernel.clone().unwrap_or_else(not_run)),
        ("accelerator", accel),
        ("QEMU", e.qemu.clone().unwrap_or_else(|| "not found".into())),
        programs(e),
        ("storage", if e.backing.is_empty() { "none: no cell is on a disk".into() } else { e.backing.clone() }),
        (
            match (native_only, natively) {
                (true, _) => "cells limited to",
                (_, true) => "both sides have",
                _ => "guests have",
            },
            format!("{} CPU, {} MiB of memory", e.vcpus, e.memory_mib),
        ),
        ("native limited by", e.native_limits.clone()),
        ("other guests running", e.other_guests.to_string()),
        ("vmio", e.vmio.clone()),
    ])
    .filter(|(name, _)| natively || *name != "native limited by")
    .collect()
}

/// The programs of the workloads: fio, which disks are measured with, and what else there was.
fn programs(e: &Environment) -> (&'static str, String) {
    let fio = || e.fio.clone().unwrap_or_else(|| "not found".into());
    let others: Vec<String> = e
        .programs
        .iter()
        .filter(|(name, _)| *name != "fio")
        .map(|(name, version)| format!("{name}: {version}"))
        .collect();
    match (others.is_empty(), e.programs.contains_key("fio")) {
        (true, _) => ("fio", fio()),
        (false, true) => ("programs", format!("{}; {}", fio(), others.join("; "))),
        (false, false) => ("programs", others.join("; ")),
    }
}

fn accel(accel: vmio_model::result::Accel) -> &'static str {
    match accel {
        vmio_model::result::Accel::Kvm => "KVM",
        vmio_model::result::Accel::Tcg => "TCG, software emulation",
    }
}

/// How the run is made again.
pub fn repeat(run: &Run) -> String {
    format::shell(&run.command)
}

/// What a cell is judged by.
pub fn judged(row: &CellRow) -> Option<(Unit, Estimate)> {
    row.judged().map(|figure| (figure.unit, figure.typical)).filter(|(_, e)| e.n > 0)
}

/// Median and 99th percentile of latency.
pub fn latencies(row: &CellRow) -> [Option<Estimate>; 2] {
    let latency = row.figures.iter().find(|f| f.unit == Unit::Seconds && f.form == Form::Distribution);
    [latency.map(|f| f.typical), latency.and_then(|f| f.at(99.0))]
}

/// The words of caution that the rows of a run carry, each with its meaning.
pub fn legend(summary: &Summary) -> Vec<(&'static str, &'static str)> {
    let used: BTreeSet<Mark> = summary.cells.iter().flat_map(|c| c.marks.keys().copied()).collect();
    used.into_iter().map(|m| (format::mark(m), format::mark_meaning(m))).collect()
}
