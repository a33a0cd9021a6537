//! A paper's tables with this run's figures beside the published ones, and what control cells say.

use vmio_model::figure::Unit;
use vmio_model::paper::{self, Ours, Reading, TableRow};
use vmio_model::stats::{Estimate, Ratio};
use vmio_model::summary::explain::{ChainCell, Differs};
use vmio_model::summary::{Explanation, Summary};

use super::document::{
    Block, Cell, Column, Document, Heading, In, Kind, Layout, Row, Table, aside, heading, paragraph, remarks, say,
};
use super::format::{self, spread, three};
use super::{Report, view};

/// Columns of a paper's table.
const COLUMNS: [&str; 4] = ["MB/s", "avgrq-sz", "avgqu-sz", "%util"];

/// The introduction of the tables.
const INTRODUCTION: &str = "Published figures, and those of this run as the mean with the half width of its 95 % \
    interval. MB/s: as the application saw it. avgrq-sz (sectors of 512 bytes), avgqu-sz (requests) and %util: at the \
    host's disk. *: Eucalyptus' default setup.";

/// The same for control cells.
const CONTROLS: &str = "Guests whose requests reached the disk smaller than native ones. Each row of a chain changes one \
    thing, and its ratio is of its bandwidth to that of the row above: the workload natively; the requests that reached the \
    disk of it, by fio, natively (another program); the same at the guest's size; at its queue depth; the very same job in \
    the guest (virtualisation, or emulation where the guest's processor was emulated); the workload in the guest (another \
    program again). The losses above the guest's first row would occur without any guest. All ratios of a chain are of the \
    same rounds, so they multiply up to the guest's share in those.";

fn published(row: &TableRow) -> [String; 4] {
    let or_dash = |x: Option<f64>| x.map_or("–".to_owned(), plain_number);
    let p = &row.published;
    [plain_number(p.bandwidth_mb_s), or_dash(p.avgrq_sz_sectors), or_dash(p.avgqu_sz_requests), or_dash(p.util_percent)]
}

/// A published figure with the digits that were printed.
fn plain_number(x: f64) -> String {
    format!("{x}")
}

fn ours(row: &Ours) -> [String; 4] {
    let of = |e: Option<Estimate>, factor: f64| {
        e.map_or("not visible".to_owned(), |e| {
            let spread = if e.interval.is_some() { spread(&e) } else { "±?".into() };
            format!("{} {spread}", three(e.value * factor))
        })
    };
    [
        of(Some(row.bandwidth_bytes_per_second), 1e-6),
        of(row.avgrq_sz_sectors, 1.0),
        of(row.avgqu_sz_requests, 1.0),
        of(row.util_ratio, 100.0),
    ]
}

/// Our reading of a word of the paper.
pub fn reading(reading: &Reading) -> String {
    format!("Our reading of \"{}\": {}.", reading.word, reading.taken_for)
}

/// The measured figures of a row: several lines where the paper does not say which cache mode it had.
fn here(row: &TableRow) -> impl Iterator<Item = &Ours> {
    row.ours.iter().chain(&row.other_modes)
}

/// A word, with the cache mode where there are several.
fn mode(word: &str, row: &TableRow, found: &Ours) -> String {
    match found.cache {
        Some(cache) if !row.other_modes.is_empty() => format!("{word}, {cache}"),
        _ => word.to_owned(),
    }
}

fn why_not(row: &TableRow) -> String {
    format!("not run: {}", row.not_run.as_deref().unwrap_or("reason unknown"))
}

/// The paper's words for a row, default and footnotes marked.
fn names(row: &TableRow) -> [String; 3] {
    let p = &row.published;
    let star = if p.eucalyptus_default { "*" } else { "" };
    let notes: String = p.notes.iter().map(|n| format!("[{n}]")).collect();
    let gap = if notes.is_empty() { "" } else { " " };
    [p.vmm.clone(), format!("{}{star}", p.target), format!("{}{gap}{notes}", p.driver)]
}

/// The chain from native to a guest: each cell with its bandwidth and interval, request size and queue depth at the
/// disk, the difference from the row above, and the effect of that; the first row has no difference.
fn chain(summary: &Summary, e: &Explanation) -> Table {
    let row = |key: &str, label: String, step: &str, ratio: Option<&Option<Ratio>>| {
        let cell = summary.cell(key);
        let device = cell.and_then(view::device).map_or(["–".into(), "–".into()], |[kib, depth, _]| [kib, depth]);
        let ratio = ratio.map(|r| r.as_ref().map_or("not measured".into(), format::factor)).unwrap_or_default();
        let bandwidth = cell.and_then(|cell| cell.disk.as_ref()).map_or("–".into(), |disk| {
            let bandwidth = &disk.bandwidth_bytes_per_second;
            format!("{} {}", format::figure(Unit::BytesPerSecond, bandwidth.value), spread(bandwidth))
        });
        let [kib, depth] = device;
        Row::new(label, [bandwidth, kib, depth, step.to_owned(), ratio])
    };
    let job =
        |side: &str, asked: &ChainCell| format!("{side}, {} × {}", format::bytes(asked.request_bytes), asked.depth);
    let workload = e.cell.workload();
    let mut rows = Vec::new();
    if let Some(first) = e.links.first() {
        rows.push(row(&first.from, format!("native, {workload}"), "", None));
    }
    let asked: Vec<&ChainCell> = [Some(&e.reference), Some(&e.size), e.depth.as_ref()].into_iter().flatten().collect();
    for link in &e.links {
        let label = match asked.iter().find(|asked| asked.key == link.to) {
            Some(asked) => job("native", asked),
            None if link.to == e.key => format!("guest, {workload}"),
            None => job("guest", e.nearest()),
        };
        let step = match link.differs {
            Differs::Program => "program",
            Differs::Size => "small requests",
            Differs::Depth => "shallow queue",
            Differs::Virtualisation if summary.emulated => "emulated (TCG)",
            Differs::Virtualisation => "virtualisation",
            Differs::Rest => "guest, program",
        };
        rows.push(row(&link.to, label, step, Some(&link.ratio)));
    }
    let columns = [
        Column::new("Bandwidth", 16).small("mean, 95 %").narrow("bandwidth").tight(),
        Column::new("Request", 6).small("KiB at the disk").narrow("KiB"),
        Column::new("Depth", 5).small("avgqu-sz").narrow("qd"),
        Column::new("What differs", 15).left().gap(1).narrow(""),
        Column::new("Of the row above", 0).small("95 %").narrow("of row above"),
    ];
    let label = format!("Chain to {}", e.key);
    Table { label, ..Table::new("Cell", Layout::new(21), columns).with(rows) }
}

/// The product of all steps.
fn product(e: &Explanation) -> Option<String> {
    let share = e.share_ratio.filter(|_| e.is_whole())?;
    let rounds = e.rounds();
    let s = if rounds == 1 { "" } else { "s" };
    Some(format!(
        "Together: {} of native, the share in the {rounds} round{s} that have them all.",
        format::factor(&share)
    ))
}

/// Cautions on a chain.
fn doubt(e: &Explanation) -> Option<&'static str> {
    (!e.links_enough).then_some("fewer pairs than the study requires: these ratios are not final")
}

/// The tables of control cells, then those of the paper.
pub(super) fn put(doc: &mut Document, report: &Report<'_>) {
    let explained = &report.summary.explained;
    if !explained.is_empty() {
        doc.put(heading(2, "Small requests or virtualisation"));
        doc.put(say((2, 2), CONTROLS));
    }
    for e in explained {
        doc.only(In::TERMINAL, say((2, 4), &e.key));
        doc.only(In::ROOM, heading(3, &e.key));
        doc.only(In::ROOM, aside((0, 0), &e.why));
        doc.put(chain(&report.summary, e).into());
        product(e).into_iter().for_each(|product| doc.put(aside((4, 4), product)));
        doubt(e).into_iter().for_each(|doubt| doc.put(paragraph(Kind::Doubt, (4, 6), doubt)));
    }
    if !explained.is_empty() {
        doc.gap();
    }
    if let Some(first) = report.tables.first() {
        doc.put(heading(2, "Compared with the paper"));
        doc.put(say((2, 2), &first.citation));
        doc.put(aside((2, 2), INTRODUCTION));
    }
    for table in &report.tables {
        let head = Heading { level: 3, text: table.caption.title.clone(), indent: 2, ..Heading::default() };
        doc.put(Block::Heading(head));
        table.statement.iter().for_each(|statement| doc.put(paragraph(Kind::Warning, (2, 4), statement)));
        doc.only(In::TERMINAL, one_below_the_other(table).into());
        doc.only(In::ROOM, beside_each_other(table).into());
        doc.put(remarks((2, 6), table.readings.iter().map(|of| (String::new(), reading(of)))));
        doc.put(remarks((2, 6), table.footnotes.iter().map(|(n, text)| (format!("[{n}] "), text))));
        doc.gap();
    }
}

/// The rows of a paper's table for a terminal: the published figures, and the measured ones below.
fn one_below_the_other(table: &paper::Table) -> Table {
    let layout = Layout { indents: [2, 6], note: ("      here    ", 14), ..Layout::new(24) };
    let row = |row: &TableRow| {
        let here = here(row).map(|found| Row::new(mode("here", row, found), ours(found)));
        let parts = std::iter::once(Row::new("published", published(row))).chain(here).collect();
        let notes = if row.ours.is_none() { vec![why_not(row)] } else { Vec::new() };
        Row { parts, notes, ..Row::new(names(row).join(", "), [] as [Cell; 0]) }
    };
    let columns = COLUMNS.map(|head| Column::new(head, 12).tight());
    let narrow = "VMM, target, driver".to_owned();
    Table { narrow, ..Table::new("", layout, columns).with(table.rows.iter().map(row)) }
}

/// The same with both in one row, for other forms.
fn beside_each_other(table: &paper::Table) -> Table {
    let columns = ["Target", "Driver"].map(|head| Column::new(head, 0).left()).into_iter();
    let figures = ["published", "here"].into_iter();
    let columns = columns.chain(figures.flat_map(|who| COLUMNS.map(|head| Column::new(head, 0).small(who))));
    let rows = table.rows.iter().flat_map(|row| {
        let line = |driver: String, here: Vec<Cell>| {
            let [vmm, target, _] = names(row);
            let before = [target, driver].into_iter().chain(published(row)).map(Cell::from);
            Row::new(vmm, before.chain(here))
        };
        let [.., driver] = names(row);
        let mut all: Vec<Row> =
            here(row).map(|found| line(mode(&driver, row, found), ours(found).map(Cell::from).into())).collect();
        if row.ours.is_none() {
            all.insert(0, line(driver, Cell::over(COLUMNS.len(), why_not(row))));
        }
        all
    });
    let label = table.caption.title.clone();
    Table { label, ..Table::new("VMM", Layout::new(0), columns).with(rows) }
}
