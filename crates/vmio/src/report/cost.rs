//! Tables of the cells' CPU time, and the words for what it is divided by.

use std::collections::BTreeSet;

use vmio_model::figure::Unit;
use vmio_model::result::{Environment, Watched, amounts_of};
use vmio_model::summary::{CellRow, CpuClock};

use super::document::{Align, Block, Cell, Column, Document, In, Layout, Long, Row, Table, aside, heading, say};
use super::groups::{self, Group};
use super::{Report, energy, format, view};

/// What depth, busy and size of requests at the device mean.
pub const LOAD: &str = "depth: average requests in flight (avgqu-sz). busy: share of time with any in flight (%util); \
                        it is inexact for short requests (kernels since Linux 5.0 sample it at clock ticks), and a \
                        device that serves many at once is not full at 100 %. As in iostat, requests without data \
                        (flushes) count, so their mean size can be below the block size.";

/// The cost of cells: on a terminal in a table a subject, with the device's figures; in other forms, which have those
/// with the results, in one table.
pub(super) fn put(doc: &mut Document, report: &Report<'_>) {
    let groups = groups::groups(report);
    let groups: Vec<&Group<'_>> = groups.iter().filter(|g| g.rows.iter().any(|row| any(row.cell))).collect();
    for of_thing in groups.chunk_by(|a, b| a.same_thing(b)) {
        let what = if of_thing[0].on_disk() { "At the device and CPU time" } else { "CPU time" };
        doc.only(In::TERMINAL, heading(2, format!("{what}, {}", groups::named(of_thing[0]))));
        doc.only(In::TERMINAL, at_the_device(of_thing).into());
        doc.gap();
    }
    let meaning = meaning(report);
    if !groups.is_empty() {
        let device = format!("KiB: mean request at the device (avgrq-sz, which counts sectors of 512 bytes). {LOAD} ");
        let device = if groups.iter().any(|group| group.on_disk()) { device } else { String::new() };
        let timed = groups.iter().flat_map(|g| &g.rows).any(|row| view::latencies(row.cell)[0].is_some());
        let times = if timed { format!("{} ", view::TIMES) } else { String::new() };
        let unmetered = unmetered(&groups, &report.summary.environment);
        doc.only(In::TERMINAL, say((0, 0), format!("{times}{device}{meaning}{unmetered}")));
        doc.gap();
    }
    let rows = rows(report);
    if rows.is_empty() && !report.summary.cells.is_empty() {
        return;
    }
    let mut folded = vec![(In::ROOM, by_part(&rows).into())];
    folded.extend((!meaning.is_empty()).then(|| (In::ROOM, aside((0, 0), meaning))));
    let hypervisor = hypervisor(report.summary.cells.iter());
    let line = format!("CPU seconds of the host, of {hypervisor} by thread role and of the kernel's threads");
    doc.only(In::ROOM, heading(2, "CPU time"));
    doc.only(In::ROOM, Block::Folded(line, folded));
}

/// That requests have no energy, where they are counted and no meter reported any.
fn unmetered(groups: &[&Group<'_>], environment: &Environment) -> String {
    let cells = || groups.iter().flat_map(|group| &group.rows).map(|row| row.cell);
    let [_, requests, _] = counted(cells());
    if !requests || cells().any(|cell| !cell.energy.is_empty()) {
        return String::new();
    }
    match energy::meters(environment) {
        Some(meters) => format!(" Energy: not known; power by {meters}."),
        None => " Energy: no meter (vmio doctor).".to_owned(),
    }
}

/// The cells that work on one subject.
fn at_the_device(of_thing: &[&Group<'_>]) -> Table {
    let (on_disk, rows) = (of_thing[0].on_disk(), || of_thing.iter().flat_map(|group| &group.rows));
    let cells = || rows().map(|row| row.cell);
    let ([gigabytes, requests, _], idle_there) = (counted(cells()), any_idle(cells()));
    let titled = |there: bool, title: &str| Column::new(if there { title } else { "" }, 10);
    let mut columns = vec![titled(gigabytes, "CPU s/GB"), titled(requests, "CPU/req")];
    columns.extend((idle_there && !on_disk).then(|| Column::new("idle", 10)));
    let device = [("KiB", 7), ("depth", 6), ("busy", 5)].into_iter().filter(|_| on_disk);
    columns.extend(device.map(|(head, width)| Column::new(head, width).tight()));
    let row = |row: &groups::Row<'_>| {
        let [gigabyte, request, ..] = cpu(row.cell);
        let mut cells = vec![Cell::from(gigabyte), request.into()];
        match view::device(row.cell) {
            _ if !on_disk => cells.push(idle(row.cell).into()),
            // Buffered writes reach the device in megabytes: no decimals then, and always a gap.
            Some([kib, depth, busy]) => {
                let whole = kib.split('.').next().filter(|_| kib.len() > 5).unwrap_or(&kib);
                cells.extend([Cell::from(whole), depth.into(), busy.into()]);
            }
            None => cells.extend(Cell::over(3, "not visible here")),
        }
        let notes = Some(parts(row.cell)).filter(|parts| !parts.is_empty()).into_iter().collect();
        Row { notes, ..Row::new(format!("{} {}", row.cell.cell.workload(), row.label), cells) }
    };
    let layout = Layout { long: Long::Outside, note: ("      ", 6), ..Layout::new(42) };
    Table::new("", layout, columns).with(rows().map(row))
}

/// What the hypervisor of rows is called.
fn hypervisor<'a>(rows: impl IntoIterator<Item = &'a CellRow>) -> &'a str {
    vmio_model::cell::Cell::hypervisor(rows.into_iter().map(|row| &row.cell))
}

/// All cells, with the parts of the whole in columns.
fn by_part(rows: &[&CellRow]) -> Table {
    let [gigabytes, requests, kernels] = counted(rows.iter().copied());
    let there = |there: bool| if there { In::ALL } else { In::NONE };
    let columns = [
        Column::new("Host, s/GB", 0).only(there(gigabytes)),
        Column::new("Host, each request", 0).only(there(requests)),
        Column { align: Align::Left, ..Column::new("Energy above rest, each request", 0).only(there(requests)) },
        Column::new("Host idle", 0).only(there(any_idle(rows.iter().copied()))),
        Column {
            align: Align::Left,
            ..Column::new(format!("{} or container, s/GB", hypervisor(rows.iter().copied())), 0)
        },
        Column::new("Kernel threads, s/GB", 0).only(there(kernels)),
    ];
    let row = |cell: &&CellRow| {
        let [gigabyte, request, roles, threads] = cpu(cell);
        let energy = if request.is_empty() { String::new() } else { energy::of_request(cell) };
        Row::new(&cell.key, [gigabyte, request, energy, idle(cell), roles, threads])
    };
    Table::new("Cell", Layout::new(0), columns).with(rows.iter().map(row))
}

/// Whether a cell is in the tables of cost: one on a disk always is, one of another machine never.
fn any(row: &CellRow) -> bool {
    let here = row.cell.actors().any(|actor| !actor.side.is_afar());
    here && (row.cell.target().is_some() || !cpu(row).concat().is_empty() || !idle(row).is_empty())
}

/// How idle the host's processors were in a cell that is on no disk; for one on a disk its device shows what was waited
/// for.
fn idle(row: &CellRow) -> String {
    row.cpu.host_idle_ratio.filter(|_| row.cell.target().is_none()).map_or(String::new(), format::percent)
}

/// Whether any of these has such a figure.
fn any_idle<'a>(mut rows: impl Iterator<Item = &'a CellRow>) -> bool {
    rows.any(|row| !idle(row).is_empty())
}

/// The cells with a cost, in the order of the tables, then those that no table shows.
fn rows<'a>(report: &'a Report<'_>) -> Vec<&'a CellRow> {
    let groups = groups::groups(report);
    let shown = groups.iter().flat_map(|group| &group.rows).map(|row| row.cell);
    let controls = report.summary.cells.iter().filter(|row| row.control);
    shown.chain(controls).filter(|row| any(row)).collect()
}

/// The CPU time of a cell: that of the whole host in seconds for each GB and as a time for each request, and its parts
/// for each GB: the hypervisor's by thread role, and that of the kernel's threads. Empty texts where nothing was counted.
fn cpu(cell: &CellRow) -> [String; 4] {
    let cpu = &cell.cpu;
    let counted = cpu.host_seconds_per_gigabyte > 0.0;
    let busy = cpu.vcpu_busy_ratio.map_or(String::new(), |busy| format!(" ({:.0} % busy)", busy * 100.0));
    let roles = cpu.role_seconds_per_gigabyte.iter();
    let roles =
        roles.map(|(role, s)| format!("{role} {}{}", format::three(*s), if role == "vcpu" { &*busy } else { "" }));
    [
        if counted { format::three(cpu.host_seconds_per_gigabyte) } else { String::new() },
        cpu.host_seconds_per_request.map_or(String::new(), format::time),
        roles.collect::<Vec<_>>().join(", "),
        cpu.kernel_seconds_per_gigabyte.map_or(String::new(), format::three),
    ]
}

/// Whether any cell has a figure for each GB, for each request, and of the kernel's threads; other columns are left
/// out.
fn counted<'a>(rows: impl Iterator<Item = &'a CellRow>) -> [bool; 3] {
    rows.map(cpu).fold([false; 3], |[gigabytes, requests, kernels], [gigabyte, request, _, kernel]| {
        [gigabytes || !gigabyte.is_empty(), requests || !request.is_empty(), kernels || !kernel.is_empty()]
    })
}

/// The parts of the whole for each GB, in a line; empty where none was counted.
fn parts(cell: &CellRow) -> String {
    let [.., roles, kernel] = cpu(cell);
    let whose = cell.cell.actors().find_map(|actor| actor.side.hypervisor()).unwrap_or("container");
    let parts = [(whose, roles), ("kernel threads", kernel)].into_iter().filter(|(_, text)| !text.is_empty());
    let parts: Vec<String> = parts.map(|(name, text)| format!("{name}: {text}")).collect();
    if parts.is_empty() { String::new() } else { format!("of it, s/GB: {}", parts.join("; ")) }
}

/// The meaning of the columns of CPU time, with the workloads' own word for what is done with bytes.
fn meaning(report: &Report<'_>) -> String {
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
    let vcpus = report.summary.cells.iter().any(|row| row.cpu.vcpu_busy_ratio.is_some());
    let limit = if vcpus {
        " busy: share of the time in which its guests' processors ran; near 100 % they are the limit."
    } else {
        ""
    };
    let contained = report.summary.cells.iter().any(|row| row.cpu.role_seconds_per_gigabyte.contains_key("program"));
    let contained = if contained { " In a container, agent is vmio's own, program what it ran there." } else { "" };
    let hypervisor = hypervisor(report.summary.cells.iter());
    let by_thread = if bytes.is_empty() {
        String::new()
    } else {
        format!(" {hypervisor} s/GB, by thread: {threads}{limit}{contained}")
    };
    let whole = if names.is_empty() {
        String::new()
    } else {
        format!("{}: CPU time of the whole host{} {}.", names.join(" and "), less(report), over.join(" and "))
            + &by_thread
            + &clocks(report)
    };
    let idle = if any_idle(report.summary.cells.iter()) {
        "idle: share of the time in which the host's processors had nothing to do, all together and including other \
         work, in ticks. Where it is large, the cell waited for something else."
    } else {
        ""
    };
    [whole.as_str(), idle].into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join(" ")
}

/// What the total leaves out.
fn less(report: &Report<'_>) -> &'static str {
    let seen = report.run.samples.iter().flat_map(|sample| &sample.seen);
    if seen.map(|seen| &seen.watched).any(|watched| *watched == Watched::Others) {
        ", less that of other processes,"
    } else {
        ""
    }
}

/// Which clocks the total and its parts are counted by.
fn clocks(report: &Report<'_>) -> String {
    let rows = || report.summary.cells.iter().filter(|row| any(row) && row.samples > 0);
    let [processes, ticks] =
        [CpuClock::Processes, CpuClock::Ticks].map(|clock| rows().any(|row| row.cpu.clock == clock));
    let one = if processes {
        " Total = CPU time of vmio's processes, its guests and kernel threads (which also work for others); \
         interrupts of idle processors are excluded."
    } else {
        ""
    };
    let other = match (ticks, processes) {
        (true, true) => " Cells without kernel threads were counted in ticks: exact parts can add up to more.",
        (true, false) => {
            " The total was counted in ticks, as older versions did: its parts, which are exact, can add up to more."
        }
        (false, _) => "",
    };
    format!("{one}{other}")
}

/// Names of the amounts in this unit that the workloads of these cells declare, each once; one word for all on disks.
fn done(report: &Report<'_>, unit: Unit, of_disks: &str) -> Vec<String> {
    let actors = report.summary.cells.iter().filter(|row| any(row)).flat_map(|row| row.cell.actors());
    let names = actors.flat_map(|actor| {
        if actor.subject.is_disk() {
            BTreeSet::from([of_disks.to_owned()])
        } else {
            amounts_of(&report.run.workloads, &actor.workload, unit)
        }
    });
    groups::distinct(names)
}
