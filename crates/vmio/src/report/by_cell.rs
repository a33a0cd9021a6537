//! Further tables by cell: what the wire carried, what the host's page cache held, figures of other probes, and figures
//! of repeated runs.

use vmio_model::figure::{RUN, Unit};
use vmio_model::result::Watched;
use vmio_model::stats::Estimate;
use vmio_model::summary::seen::{SeenFigure, SeenRow};
use vmio_model::summary::wires::{Carried, Wire};
use vmio_model::summary::{CellRow, FigureRow, PageCache};

use super::document::Document;
use super::section::{COLUMN, Section};
use super::{Report, energy, format, over_link, series};
use crate::fit;

/// Bytes in the page cache below which there is no table; what a host writes by itself is less.
const LEAST_BYTES: f64 = 1e6;

/// The tables that have rows.
pub(super) fn put(doc: &mut Document, report: &Report<'_>) {
    let published = report.series.iter().map(|table| series::section(table, true));
    let networks = [wires(report), over_link::section(report)];
    let own = [page_cache(report), energy::section(report), other_probes(report), on_end(report)];
    let all = networks.into_iter().chain(own).chain(published);
    all.filter(|section| !section.rows.is_empty()).for_each(|section| doc.blocks.extend(section.blocks()));
}

/// What the wire carried beside what the program says.
fn wires(report: &Report<'_>) -> Section {
    let rate = |carried: &Carried| format::figure(Unit::BitsPerSecond, 8.0 * carried.bytes_per_second.value);
    let row_of = |row: &CellRow, wire: &Wire| {
        let judged = row.figures.iter().find(|figure| figure.name == row.figure && figure.labels.is_empty());
        let program = judged.map_or(String::new(), |figure| format::figure(figure.unit, figure.typical.value));
        let both = |of: fn(&Carried) -> &Estimate| of(&wire.received).value + of(&wire.sent).value;
        let packets = format::figure(Unit::PacketsPerSecond, both(|carried| &carried.packets_per_second));
        let packets = packets.trim_end_matches(" packets/s").to_owned();
        let dropped = both(|carried| &carried.dropped_packets);
        let dropped = if dropped == 0.0 { "0".to_owned() } else { format::three(dropped) };
        let cells = vec![program, rate(&wire.received), rate(&wire.sent), packets, dropped];
        (format!("{}, {}", row.key, wire.link), cells)
    };
    let cells = report.summary.cells.iter();
    Section {
        title: "What the wire carried".to_owned(),
        meaning: "By the kernel's counters of the interface named with the cell, including headers, next to the \
                  result the program reported. What a tap receives, its guest sent; native cells show the peer's \
                  interface, and cells on a disk that another host serves the uplink to it. \
                  Packets are of both directions (a large one that is split later counts once), drops are per sample. \
                  The time is that of the whole cell, including the start and end of programs, so rates can be lower \
                  than the program's."
            .to_owned(),
        columns: ["program", "received", "sent", "packets/s", "dropped"].map(str::to_owned).into(),
        rows: cells.flat_map(|row| row.wires.iter().map(|wire| row_of(row, wire))).collect(),
        notes: Vec::new(),
    }
}

fn page_cache(report: &Report<'_>) -> Section {
    let all = || report.summary.cells.iter().filter_map(|row| Some((row, row.page_cache?)));
    let any = all().any(|(_, held)| held.before_bytes.value.max(held.after_bytes.value) >= LEAST_BYTES);
    let bytes = |of: Estimate| format::bytes(of.value as u64);
    let cells = |PageCache { before_bytes, after_bytes }| vec![bytes(before_bytes), bytes(after_bytes)];
    Section {
        title: "The host's page cache".to_owned(),
        meaning: "How much of the raw storage of the cell's guests the host's page cache held before and after the \
                  work (cachestat), the mean over the samples. Memory used here is missing for the rest of the host."
            .to_owned(),
        columns: ["before", "after"].map(str::to_owned).into(),
        rows: all().filter(|_| any).map(|(row, held)| (row.key.clone(), cells(held))).collect(),
        notes: Vec::new(),
    }
}

/// Figures of all other probes.
fn other_probes(report: &Report<'_>) -> Section {
    let row_of = |row: &CellRow, seen: &SeenRow, figure: &SeenFigure| {
        let name = std::iter::once(&figure.name).chain(figure.labels.values());
        let name = name.map(String::as_str).collect::<Vec<_>>().join(" ");
        let mean = format::figure(figure.unit, figure.mean.value);
        // A figure that is too long for its column has its unit in the name.
        let (mean, unit) = match mean.split_once(' ').filter(|_| fit::columns(&mean) > COLUMN) {
            Some((number, unit)) => (number.to_owned(), format!(", {unit}")),
            None => (mean, String::new()),
        };
        (format!("{}, {}: {name}{unit}", row.key, thing(seen)), vec![mean, format::spread(&figure.mean)])
    };
    let things = report.summary.cells.iter().flat_map(|row| row.seen.iter().map(move |seen| (row, seen)));
    Section {
        title: "What else was seen".to_owned(),
        meaning: "By probes without a table (docs/probes.md): the mean over the samples and its 95 % interval, over \
                  the time of the whole cell, including the start and end of programs and all other work there."
            .to_owned(),
        columns: ["mean", "interval"].map(str::to_owned).into(),
        rows: things.flat_map(|(row, seen)| seen.figures.iter().map(move |f| row_of(row, seen, f))).collect(),
        notes: Vec::new(),
    }
}

/// What was watched, with its machine where that is not the host.
fn thing(seen: &SeenRow) -> String {
    let name: &str = match &seen.watched {
        Watched::Disk(name) | Watched::Link(name) | Watched::Other(name) => name,
        Watched::PageCache(target) | Watched::Drive(target) => target,
        Watched::Hypervisor(side) | Watched::Container(side) => side,
        Watched::Processors => "processors",
        Watched::Others => "other processes",
        Watched::Components => "components",
    };
    if seen.node.is_empty() { name.to_owned() } else { format!("{name} of {}", seen.node) }
}

fn on_end(report: &Report<'_>) -> Section {
    let mut section = Section {
        title: "Runs on end".to_owned(),
        meaning: "Each run of the series, the mean over the samples. Where they rise, a cache has filled.".to_owned(),
        columns: Vec::new(),
        rows: Vec::new(),
        notes: Vec::new(),
    };
    for row in &report.summary.cells {
        let runs: Vec<&FigureRow> = row.figures.iter().filter(|f| f.labels.contains_key(RUN)).collect();
        // One row a name, in the order of the run.
        for (i, first) in runs.iter().enumerate() {
            if runs[..i].iter().any(|before| before.name == first.name) {
                continue;
            }
            let of_name: Vec<&&FigureRow> = runs.iter().filter(|f| f.name == first.name).collect();
            if of_name.len() > section.columns.len() {
                section.columns = of_name.iter().map(|f| f.labels[RUN].clone()).collect();
            }
            let texts = of_name.iter().map(|f| format::figure(f.unit, f.typical.value)).collect();
            section.rows.push((format!("{}, {}", row.key, first.name), texts));
        }
    }
    section
}
