//! What cells cost in CPU time, as short texts, and what that is divided by, in words.

use std::collections::BTreeSet;

use vmio_model::figure::Unit;
use vmio_model::result::{Watched, amounts_of};
use vmio_model::summary::CellRow;

use super::{Report, format, groups};

/// Whether there is anything to say of what a cell cost: of a disk always, if only that it cannot be seen.
pub fn any(row: &CellRow) -> bool {
    row.cell.target().is_some() || !cpu(row).concat().is_empty()
}

/// The cells of which there is something to say, in the order of the tables, then those that no table shows.
pub fn rows<'a>(report: &'a Report<'_>) -> Vec<&'a CellRow> {
    let groups = groups::groups(report);
    let shown = groups.iter().flat_map(|group| &group.rows).map(|row| row.cell);
    let controls = report.summary.cells.iter().filter(|row| row.control);
    shown.chain(controls).filter(|row| any(row)).collect()
}

/// What a cell cost in CPU time: of the whole host in seconds for each GB and as a time for each request, and of QEMU by
/// thread role for each GB. Empty texts where nothing was counted.
pub fn cpu(cell: &CellRow) -> [String; 3] {
    let cpu = &cell.cpu;
    let counted = cpu.host_seconds_per_gigabyte > 0.0;
    let roles = cpu.role_seconds_per_gigabyte.iter().map(|(role, s)| format!("{role} {}", format::three(*s)));
    [
        if counted { format::three(cpu.host_seconds_per_gigabyte) } else { String::new() },
        cpu.host_seconds_per_request.map_or(String::new(), format::time),
        roles.collect::<Vec<_>>().join(", "),
    ]
}

/// Whether any of these has a figure for each GB, and for each request: what none has needs no column.
pub fn counted<'a>(rows: impl Iterator<Item = &'a CellRow>) -> [bool; 2] {
    rows.map(cpu).fold([false; 2], |[gigabytes, requests], [gigabyte, request, _]| {
        [gigabytes || !gigabyte.is_empty(), requests || !request.is_empty()]
    })
}

/// What the columns of the CPU time mean. What is done with bytes is said as the workloads call it: disks move them.
pub fn meaning(report: &Report<'_>) -> String {
    let bytes = done(report, Unit::Bytes, "moved");
    let requests = done(report, Unit::Requests, "requests");
    let others: Vec<&str> = requests.iter().map(String::as_str).filter(|name| *name != "requests").collect();
    let called = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
    let columns = [
        (!bytes.is_empty()).then(|| ("CPU s/GB", format!("for each GB {}", bytes.join(" or ")))),
        (!requests.is_empty()).then(|| ("CPU/req", format!("for each request{called}"))),
    ];
    let (names, over): (Vec<&str>, Vec<String>) = columns.into_iter().flatten().unzip();
    let threads =
        "vcpu runs the guest, main is its event loop, iothread the event loop of a disk, worker does blocking I/O.";
    let by_thread = if bytes.is_empty() { String::new() } else { format!(" QEMU s/GB, by thread: {threads}") };
    let seen = report.run.samples.iter().flat_map(|sample| &sample.seen);
    let less = match seen.map(|seen| &seen.watched).any(|watched| *watched == Watched::Others) {
        true => ", less that of other processes,",
        false => "",
    };
    format!("{}: CPU time of the whole host{less} {}.{by_thread}", names.join(" and "), over.join(" and "))
}

/// The amounts of this unit that the workloads of the cells with a cost declare, each once; of disks in one word.
fn done(report: &Report<'_>, unit: Unit, of_disks: &str) -> Vec<String> {
    let actors = report.summary.cells.iter().filter(|row| any(row)).flat_map(|row| row.cell.actors());
    let names = actors.flat_map(|actor| match actor.subject.is_disk() {
        true => BTreeSet::from([of_disks.to_owned()]),
        false => amounts_of(&report.run.workloads, &actor.workload, unit),
    });
    groups::distinct(names)
}
