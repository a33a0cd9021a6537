//! `vmio explain` as a document and as JSON: where the time of one request goes, layer by layer.

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::failure::Failure;
use vmio_model::result::Accel;
use vmio_model::run::Run;
use vmio_model::waterfall::cells::{self, Answer, Bound, CellLayers, DeviceView, Times, Untimed, Why};
use vmio_model::waterfall::cost::TracingCost;
use vmio_model::waterfall::host::LiveCalls;
use vmio_model::waterfall::hypervisor::LiveHypervisor;
use vmio_model::waterfall::live::{LiveDisk, Thread};
use vmio_model::waterfall::paths::{self as network, PathLayers};
use vmio_model::waterfall::{Layer, Part, Waterfall};
use vmio_model::words::count;

use super::document::{
    self, Cell, Column, In, Kind, Layout, Long, Row, Span, Table, Text, heading, list, paragraph, say,
};
use super::format::{bytes, percent, three, time};
use columns::{COLUMNS, columns_of, times_of};

mod columns;
mod guest;
mod paths;
mod waterfalls;

pub use guest::guest;

/// Version of the JSON.
pub const SCHEMA_VERSION: &str = "1.2";
/// Most cells in a table of a terminal, so that all has 40 lines.
const SHOWN: usize = 9;
/// So few cells are told in full.
const IN_FULL: usize = 2;
/// Columns of a cell's name.
const KEY: usize = 31;
/// Shown for a column that is told together with one to its right.
const JOINED: &str = ">";
/// Shown for what is not there or not known.
const DASH: &str = "-";

/// Where the time of one request goes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Document<'a> {
    /// Version of this document.
    pub schema_version: &'static str,
    /// A stored run; `None` for a guest.
    pub run: Option<RunLayers>,
    /// A running guest; `None` for a run.
    pub guest: Option<&'a GuestLayers>,
}

/// A stored run, explained.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RunLayers {
    /// Its number.
    pub run: i64,
    /// Its disk cells with one actor on this host.
    pub cells: Vec<CellLayers>,
    /// Its network cells with one actor on this host.
    pub paths: Vec<PathLayers>,
    /// Cells that are not told: of the processor, of several actors, of another machine, and those of which no sample
    /// counts.
    pub cells_left_out: usize,
    /// Whether its guests ran under software emulation: then sizes say nothing about hardware virtualisation.
    pub emulated: bool,
    /// What to change; `None` where no guest's request could be split.
    pub answer: Option<Answer>,
}

impl RunLayers {
    /// Of a run; with `only` the cells whose key has this text.
    ///
    /// # Errors
    /// When no cell has it.
    pub fn of(run: &Run, submissions: &[Option<f64>], only: Option<&str>) -> Result<Self, Failure> {
        let mut cells = cells::of_run(run, submissions);
        let all: std::collections::BTreeSet<String> = run.samples.iter().map(|s| s.cell.key()).collect();
        let mut paths = network::of_run(run);
        let cells_left_out = all.len().saturating_sub(cells.len() + paths.len());
        if let Some(text) = only {
            cells.retain(|cell| cell.key.contains(text));
            paths.retain(|path| path.key.contains(text));
            if cells.is_empty() && paths.is_empty() {
                let what = format!("no disk cell of run {}, and none of a network, has {text:?} in its name", run.id);
                let help = "`vmio explain RUN --verbose` lists them";
                return Err(Failure::new(vmio_model::failure::Exit::Usage, what).help(help));
            }
        }
        let emulated = run.environment.accel == Some(Accel::Tcg);
        let answer = cells::answer(&cells);
        Ok(Self { run: run.id, cells, paths, cells_left_out, emulated, answer })
    }
}

/// A running guest, explained from outside.
#[derive(Debug, Serialize, JsonSchema)]
pub struct GuestLayers {
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: Option<u32>,
    /// Seconds that it was watched.
    pub seconds: f64,
    /// Its hypervisor's part of the requests; `None` if there were none, or that was not asked for.
    pub hypervisor: Option<LiveHypervisor>,
    /// What its hypervisor asked of the host for its disks; `None` if nothing, or where that is not seen.
    pub calls: Option<LiveCalls>,
    /// The disks of the host that it used, that with most requests at once first. Empty if it used none, or without
    /// tracing.
    pub disks: Vec<LiveDisk>,
    /// The busiest thread of its hypervisor that moves its I/O alone; `None` where its threads are not told apart, or that
    /// is one of vhost.
    pub hypervisor_thread: Option<Thread>,
    /// Layers that nothing times from outside.
    pub unseen: Vec<Layer>,
    /// What watching it costs; `None` if that was not asked for, or is not known.
    pub tracing_cost: Option<TracingCost>,
    /// What could not be seen, in words.
    pub notes: Vec<String>,
}

/// The layers that nothing times from outside of a guest; without the calls of its hypervisor, the host's file system,
/// too.
pub const UNSEEN: [Layer; 4] = [Layer::Application, Layer::GuestBlock, Layer::Virtual, Layer::Hypervisor];

/// Makes a table of cells, without this text in their names.
type TableOf = fn(&[&CellLayers], Option<&str>) -> Table;

/// A run as a document. With `verbose` a terminal shows all cells.
pub fn run(of: &RunLayers, verbose: bool) -> document::Document {
    let mut doc = document::Document::new(format!("Run {}: where the time of one request goes", of.run));
    doc.only(In::TERMINAL, heading(2, &doc.title));
    if of.cells.is_empty() && of.paths.is_empty() {
        doc.put(say((0, 0), "It has no cell of a disk or a network with one actor on this host that counts."));
        return doc;
    }
    if of.cells.len() <= IN_FULL {
        waterfalls::put(&mut doc, &of.cells);
        of.cells.iter().for_each(|cell| in_full(&mut doc, cell));
    } else {
        in_tables(&mut doc, &of.cells, verbose);
    }
    paths::put(&mut doc, &of.paths, of.cells.is_empty(), verbose);
    if of.cells_left_out > 0 {
        let what = count(of.cells_left_out, "cell");
        doc.put(paragraph(
            Kind::Dim,
            (0, 0),
            format!("Not explained: {what} of the processor, of several actors, not here, or not proved warm."),
        ));
    }
    if of.emulated {
        let emulated = "Guests ran under software emulation (TCG): rely on directions, not on sizes.";
        doc.put(paragraph(Kind::Warning, (0, 2), emulated));
    }
    let answer = if of.cells.is_empty() { paths::in_words(&of.paths) } else { in_words(of) };
    doc.put(say((0, 0), Text::from(Span::Bold(answer))));
    doc
}

/// Many disk cells.
fn in_tables(doc: &mut document::Document, cells: &[CellLayers], verbose: bool) {
    let timed: Vec<&CellLayers> = cells.iter().filter(|cell| cell.waterfall.is_some()).collect();
    let same = same_attachment(cells);
    if let Some(same) = &same {
        let what = format!("All disks of guests: {}", same.trim_start_matches(','));
        doc.only(In::TERMINAL, paragraph(Kind::Dim, (0, 0), what));
    }
    let same = same.as_deref();
    tables(doc, &timed, times_table, same, verbose);
    let mut parts = timed.iter().filter_map(|cell| cell.waterfall.as_ref()).flat_map(|w| &w.parts);
    if parts.any(|part| columns_of(part).len() > 1) {
        let what = format!("{JOINED} is told together with the next figure to its right.");
        doc.put(paragraph(Kind::Dim, (0, 0), what));
    }
    not_told(doc, cells);
    let seen: Vec<&CellLayers> = cells.iter().filter(|cell| cell.device.is_some()).collect();
    if !seen.is_empty() {
        doc.gap();
        tables(doc, &seen, device_table, same, verbose);
    }
}

/// A table, on a terminal with at most [`SHOWN`] cells, those of guests first, and without what all have in their names.
fn tables(doc: &mut document::Document, cells: &[&CellLayers], table: TableOf, same: Option<&str>, verbose: bool) {
    if cells.is_empty() {
        return;
    }
    doc.only(In::ROOM, table(cells, None).into());
    let mut shown = cells.to_vec();
    if !verbose && cells.len() > SHOWN {
        shown.sort_by_key(|cell| !cell.in_guest);
        shown.truncate(SHOWN);
    }
    doc.only(In::TERMINAL, table(&shown, same).into());
    if shown.len() < cells.len() {
        let more = format!("{} more: --verbose", cells.len() - shown.len());
        doc.only(In::TERMINAL, paragraph(Kind::Dim, (0, 0), more));
    }
}

/// What stands behind the driver in the names of all guests' cells, `,none,native`: it need not be told in each line.
fn same_attachment(cells: &[CellLayers]) -> Option<String> {
    let of = |cell: &CellLayers| {
        let place = &cell.key[..cell.key.rfind('/')?];
        Some(place[place.find(',')?..].to_owned()).filter(|rest| !rest.contains(['/', ' ']))
    };
    let mut all = cells.iter().filter(|cell| cell.in_guest).map(of);
    let first = all.next()??;
    all.all(|other| other.as_ref() == Some(&first)).then_some(first)
}

/// The name of a cell in a table.
fn named(cell: &CellLayers, same: Option<&str>) -> String {
    same.map_or(cell.key.clone(), |same| cell.key.replacen(same, "", 1))
}

fn times_table(cells: &[&CellLayers], same: Option<&str>) -> Table {
    let mut columns = vec![Column::new("request", 8).gap(1)];
    columns.extend(COLUMNS.map(|(head, _)| Column::new(head.replace('\n', " "), 8).narrow(head).gap(1)));
    let rows = cells.iter().map(|cell| {
        let mut texts = vec![Cell::from(DASH); COLUMNS.len() + 1];
        if let Some(waterfall) = &cell.waterfall {
            texts[0] = short(waterfall.total_seconds).into();
        }
        for (places, seconds) in cell.waterfall.iter().flat_map(|waterfall| times_of(&waterfall.parts)) {
            let Some((last, others)) = places.split_last() else { continue };
            // What was not told apart stands in its last column.
            others.iter().for_each(|at| texts[at + 1] = Cell::from(JOINED));
            texts[last + 1] = short(seconds).into();
        }
        Row { cells: texts, ..Row::new::<Cell>(named(cell, same), []) }
    });
    let layout = Layout { indents: [0, 2], long: Long::Shortened, ..Layout::new(KEY) };
    Table::new("Cell", layout, columns).with(rows)
}

fn device_table(cells: &[&CellLayers], same: Option<&str>) -> Table {
    let columns = [
        Column::new("requests of", 11).gap(1),
        Column::new("at once", 8).gap(1),
        Column::new("idle", 6).gap(1),
        Column::new("limit", 18).left().gap(2),
    ];
    let row = |cell: &&CellLayers| {
        let device = cell.device.as_ref().map(device_cells).unwrap_or_default();
        Row { cells: device, ..Row::new::<Cell>(named(cell, same), []) }
    };
    let layout = Layout { indents: [0, 2], long: Long::Shortened, ..Layout::new(KEY) };
    Table::new("The host's device in", layout, columns).with(cells.iter().map(row))
}

fn device_cells(device: &DeviceView) -> Vec<Cell> {
    let DeviceView { request_bytes, queue_depth, idle_ratio, bound } = device;
    let idle = idle_ratio.map_or(DASH.to_owned(), percent);
    [bytes(request_bytes.round() as u64), three(*queue_depth), idle, limit(*bound).to_owned()].map(Cell::from).into()
}

/// What limits the bandwidth, in a few words.
fn limit(bound: Bound) -> &'static str {
    match bound {
        Bound::Device => "device",
        Bound::Processors => "guest's processors",
        Bound::HypervisorThread => "hypervisor thread",
        Bound::Requests => "requests at once",
    }
}

/// A time, or that it is not known.
fn known(seconds: Option<f64>) -> String {
    seconds.map_or(DASH.to_owned(), time)
}

fn short(seconds: f64) -> String {
    if seconds < 0.0 { format!("-{}", time(-seconds)) } else { time(seconds) }
}

/// What these seconds are of what the application saw.
fn share_of(whole: &Waterfall, seconds: f64) -> String {
    percent(if whole.total_seconds > 0.0 { seconds / whole.total_seconds } else { 0.0 })
}

/// What was not told apart, a line for each layer and reason.
fn not_told(doc: &mut document::Document, cells: &[CellLayers]) {
    let mut lines: Vec<(Layer, Why, Option<String>, usize)> = Vec::new();
    for Untimed { layer, why, probe } in cells.iter().flat_map(|cell| &cell.untimed) {
        if matches!(why, Why::NoProbe | Why::NotAsked) {
            continue;
        }
        match lines.iter_mut().find(|(l, w, ..)| l == layer && w == why) {
            Some((.., cells)) => *cells += 1,
            None => lines.push((*layer, *why, probe.clone(), 1)),
        }
    }
    lines.sort();
    let line = |(layer, why, probe, cells): &(Layer, Why, Option<String>, usize)| {
        format!("{} not told apart in {}: {}", layer.words(), count(*cells, "cell"), reason(*why, probe.as_deref()))
    };
    doc.put(list((0, 2), lines.iter().map(line)));
}

fn reason(why: Why, probe: Option<&str>) -> String {
    let probe = probe.unwrap_or("a probe");
    match why {
        Why::NoProbe => "nothing in a run times it".to_owned(),
        Why::NotAsked => format!("the probe {probe} times it in a run with --layers"),
        Why::NotSeen => format!("the probe {probe} would time it, and saw nothing; a new run may have it"),
        Why::OtherSize => "requests have another size there".to_owned(),
        Why::Flushes => format!("flushes are among the requests, and the probe {probe} does not time them"),
        Why::MoreRequests => "requests of others are among them".to_owned(),
        Why::NotWaitedFor => "requests take longer there than the layer above waits for them".to_owned(),
        Why::EndNotSeen => "requests are handed over by io_submit, and their end is no system call".to_owned(),
    }
}

/// One cell with all that is known of it.
fn in_full(doc: &mut document::Document, cell: &CellLayers) {
    doc.gap();
    doc.put(heading(3, format!("{} ({})", cell.key, count(cell.samples, "sample"))));
    let Some(waterfall) = &cell.waterfall else {
        doc.put(say((0, 0), "Its workload times no requests."));
        return device_line(doc, cell);
    };
    let columns = [Column::new("mean", 10).gap(1), Column::new("share", 7).gap(1)];
    let share = |seconds: f64| share_of(waterfall, seconds);
    let row = |part: &Part| Row::new(part.words(), [short(part.seconds), share(part.seconds)]);
    let whole = Row::new("what the application saw", [time(waterfall.total_seconds), percent(1.0)]);
    let rows = waterfall.parts.iter().map(row).chain([whole]);
    // A page has them as waterfalls.
    doc.only(In::SOURCE, Table::new("Layer", Layout::new(60), columns).with(rows).into());
    if let Some(Times { p50_seconds, p99_seconds, .. }) = cell.latency {
        let mut text = format!("Latency by the workload: p50 {}, p99 {}", known(p50_seconds), known(p99_seconds));
        text += &cell.submission_seconds.map_or(String::new(), |s| format!("; {} before it to submit", time(s)));
        doc.put(say((0, 0), text + "."));
    }
    let parts: Vec<String> = waterfall.remainder().map(Part::words).collect();
    let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join("; ")) };
    doc.put(say((0, 0), format!("Not told apart: {} of a request{parts}.", share(waterfall.remainder_seconds()))));
    let line = |u: &Untimed| format!("{}: {}", u.layer.words(), reason(u.why, u.probe.as_deref()));
    doc.put(list((0, 2), cell.untimed.iter().map(line)));
    device_line(doc, cell);
}

fn device_line(doc: &mut document::Document, cell: &CellLayers) {
    let Some(DeviceView { request_bytes, queue_depth, idle_ratio, bound }) = &cell.device else { return };
    let idle = idle_ratio.map_or(String::new(), |idle| format!(", idle {}", percent(idle)));
    let (size, depth) = (bytes(request_bytes.round() as u64), three(*queue_depth));
    let what =
        format!("The device had requests of {size}, {depth} at once{idle}. Limit of bandwidth: {}.", limit(*bound));
    doc.put(say((0, 0), what));
}

/// What to change, in words.
fn in_words(of: &RunLayers) -> String {
    let Some(Answer { layers, cells, of_cells, least_ratio, most_ratio }) = &of.answer else {
        return most_common_limit(&of.cells);
    };
    let name = Part { layers: layers.clone(), seconds: 0.0 }.words();
    let (least, most) = (percent(*least_ratio), percent(*most_ratio));
    let range = if least == most { most } else { format!("{least} to {most}") };
    let of = if *of_cells == 1 { String::new() } else { format!(" in {cells} of {of_cells} cells") };
    format!("Change first: {name}, longest{of}. It is {range} of a request, the most that a change there saves.")
}

/// What limits most of the guests' cells, where no request could be split.
fn most_common_limit(cells: &[CellLayers]) -> String {
    let bounds: Vec<Bound> =
        cells.iter().filter(|cell| cell.in_guest).filter_map(|cell| cell.device.as_ref().map(|d| d.bound)).collect();
    let times = |bound: &Bound| bounds.iter().filter(|other| *other == bound).count();
    let Some(most) = bounds.iter().max_by_key(|bound| times(bound)) else {
        return "No layer can be named: no guest's request was seen.".to_owned();
    };
    let cells = count(bounds.len(), "cell");
    let limit = limit(*most);
    format!("No request could be split. Limit of bandwidth in {} of {cells} of guests: {limit}.", times(most))
}
