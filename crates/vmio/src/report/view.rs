//! What all forms of the report show, in their common order: rows grouped by target and
//! workload, native first.

use std::collections::BTreeSet;

use vmio_model::result::{Mark, Run, WorkloadTraits};
use vmio_model::cell::Cell;
use vmio_model::summary::steady::Steady;
use vmio_model::summary::{CellRow, Share, Summary};

use super::format;

/// One workload on one target: the native row and those of the guests.
pub struct Group<'a> {
    /// Entry of `targets/`.
    pub target: &'a str,
    /// Entry of `workloads/`.
    pub workload: &'a str,
    /// What the workload does, in words.
    pub about: String,
    /// The rows, native first.
    pub rows: Vec<Row<'a>>,
}

/// A row: a cell, and what it gets of its baseline.
pub struct Row<'a> {
    /// `native`, or the attachment; with the guest's name where a run has several kinds.
    pub label: String,
    /// The cell.
    pub cell: &'a CellRow,
    /// Its share; `None` for native, and where no pair with native was measured.
    pub share: Option<&'a Share>,
    /// Whether its disk became steady, where that was asked for.
    pub steady: Option<&'a Steady>,
}

/// The groups in the run's order of targets and workloads.
pub fn groups<'a>(run: &'a Run, summary: &'a Summary) -> Vec<Group<'a>> {
    let mut kinds: Vec<&str> =
        summary.asked_for().filter(|c| !c.cell.is_native()).map(|c| c.cell.guest.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut targets: Vec<&str> = Vec::new();
    for cell in summary.asked_for() {
        if !targets.contains(&cell.cell.target.as_str()) {
            targets.push(&cell.cell.target);
        }
    }
    let mut workloads: Vec<&str> = run.workloads.iter().map(|w| w.name.as_str()).collect();
    for cell in summary.asked_for() {
        if !workloads.contains(&cell.cell.workload.as_str()) {
            workloads.push(&cell.cell.workload);
        }
    }
    let mut groups = Vec::new();
    for target in targets {
        for workload in &workloads {
            let mut rows: Vec<Row<'_>> = summary
                .asked_for()
                .filter(|c| c.cell.target == target && c.cell.workload == **workload)
                .map(|cell| Row {
                    label: label(&cell.cell, kinds.len() > 1),
                    cell,
                    share: summary.share(&cell.key),
                    steady: summary.steady.iter().find(|s| s.key == cell.key),
                })
                .collect();
            rows.sort_by_key(|row| !row.cell.cell.is_native());
            if !rows.is_empty() {
                let about = run.workloads.iter().find(|w| w.name == **workload).map(about).unwrap_or_default();
                groups.push(Group { target, workload, about, rows });
            }
        }
    }
    groups
}

fn label(setup: &Cell, with_guest: bool) -> String {
    match &setup.attachment {
        None => setup.guest.clone(),
        Some(a) => {
            let guest = if with_guest { format!("{} ", setup.guest) } else { String::new() };
            let not_durable = if a.cache.no_flush() { " (flushes dropped)" } else { "" };
            format!("{guest}{}{not_durable}", a.label())
        }
    }
}

/// `4 KiB random reads, 32 in flight, O_DIRECT`.
fn about(w: &WorkloadTraits) -> String {
    let what = match (w.reads, w.writes) {
        (true, true) => "reads and writes",
        (true, false) => "reads",
        _ => "writes",
    };
    format!(
        "{} {} {what}, {} in flight, {}",
        format::bytes(w.block_bytes),
        if w.sequential { "sequential" } else { "random" },
        w.depth,
        match (w.direct, w.engine.as_str()) {
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
    match row.share {
        None if !cell.cell.is_native() => {
            notes.push("no share: no round has both this cell and the native one".into())
        }
        Some(share) if !share.converged => {
            notes.push(format!("{}; so far {}", share.verdict, format::share(&share.share_ratio)));
        }
        _ => {}
    }
    notes.extend(cell.durability.iter().map(|d| d.text.clone()));
    notes.extend(row.steady.map(Steady::text));
    if !cell.outlier_rounds.is_empty() {
        notes.push(format!("outliers, kept, in rounds {}", list(&cell.outlier_rounds)));
    }
    notes
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

/// Who says how storage is set up: `target/native` is as the host shows it, all else as QEMU does.
pub fn told_by(attachment: &str) -> &'static str {
    if attachment.ends_with("/native") { "as the host shows it" } else { "as QEMU reports it" }
}

/// The environment, line by line.
pub fn environment(summary: &Summary) -> Vec<(&'static str, String)> {
    let e = &summary.environment;
    let native_only = summary.is_native_only();
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
        ("fio", e.fio.clone().unwrap_or_else(|| "not found".into())),
        ("storage", e.backing.clone()),
        (
            if native_only { "cells limited to" } else { "both sides have" },
            format!("{} CPU, {} MiB of memory", e.vcpus, e.memory_mib),
        ),
        ("native limited by", e.native_limits.clone()),
        ("other guests running", e.other_guests.to_string()),
        ("vmio", e.vmio.clone()),
    ])
    .collect()
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

/// The estimate of what a cell is judged by.
pub fn figure(cell: &CellRow) -> Option<vmio_model::stats::Estimate> {
    match cell.figure {
        vmio_model::result::Figure::Bandwidth => Some(cell.bandwidth_bytes_per_second).filter(|e| e.n > 0),
        vmio_model::result::Figure::Iops => cell.requests_per_second,
    }
}

/// The words of caution that the rows of a run carry, each with its meaning.
pub fn legend(summary: &Summary) -> Vec<(&'static str, &'static str)> {
    let used: BTreeSet<Mark> = summary.cells.iter().flat_map(|c| c.marks.keys().copied()).collect();
    used.into_iter().map(|m| (format::mark(m), format::mark_meaning(m))).collect()
}

/// What stands where a headline would be.
pub fn no_headline(summary: &Summary) -> &'static str {
    match summary.is_native_only() {
        true => {
            "Only native cells: no guest was requested, so no share can be stated. The figures are those of this \
                 host itself."
        }
        false => "No share can be stated: no virtio-blk guest was measured together with native.",
    }
}

/// What a cell cost in CPU time: of the whole host in seconds for each GB and as a time for each request, and of QEMU by
/// thread role for each GB. Empty texts where nothing was moved or counted.
pub fn cpu(cell: &CellRow) -> [String; 3] {
    let cpu = &cell.cpu;
    let moved = cell.bandwidth_bytes_per_second.value > 0.0;
    let roles = cpu.role_seconds_per_gigabyte.iter().map(|(role, s)| format!("{role} {}", format::three(*s)));
    [
        if moved { format::three(cpu.host_seconds_per_gigabyte) } else { String::new() },
        cpu.host_seconds_per_request.map_or(String::new(), format::time),
        roles.collect::<Vec<_>>().join(", "),
    ]
}
