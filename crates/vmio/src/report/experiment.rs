//! `vmio study compare amamou2012 paper`: the rates over time of three guests and three containers on one uplink,
//! beside those simulated and those of the paper.

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::cell::Kind;
use vmio_model::control::Allocator;
use vmio_model::rate::BitRate;
use vmio_model::simulate::measured::Trial;
use vmio_model::simulate::paper::{Footnote, Paper, Published, System, What};
use vmio_model::simulate::{Outcome, SECOND, Sample, Totals, Vif};

use super::document::{
    self, Block, Cell, Column, Drawing, Heading, In, Layout, Long, Plots, Row, Table, aside, heading, list, say,
};
use super::plot::{Line, Mark, Plot, Stroke};
use super::simulation::{mbit, mean_bps, notes, ratio, shown, time, what};
use crate::fit::WIDTH;
use crate::term::Style;

/// Version of the JSON.
const SCHEMA_VERSION: &str = "1.0";

/// A cell with its simulation.
pub struct SimulatedCell {
    /// What was measured.
    pub trial: Trial,
    /// The same in virtual time.
    pub simulated: Outcome,
}

/// The whole experiment.
pub struct Report {
    /// Number of the run.
    pub run: i64,
    /// The cells.
    pub cells: Vec<SimulatedCell>,
    /// The published figures, as printed.
    pub paper: Paper,
    /// The scenario's capacity, which printed rates are shares of.
    pub printed: BitRate,
    /// Cells that did not run, with the reason.
    pub missing: Vec<(String, String)>,
    /// The command line, to repeat it.
    pub command: String,
}

/// An experiment that was measured, beside its simulation and what is printed.
#[derive(Serialize, JsonSchema)]
pub struct Document {
    /// Version of this document.
    schema_version: &'static str,
    /// Number of the run.
    run: i64,
    /// The paper.
    citation: String,
    /// Each system on each kind of side.
    systems: Vec<SystemDocument>,
    /// Cells that did not run, with the reason.
    missing: Vec<MissingDocument>,
    /// Remarks on the printed figures.
    notes: Vec<Footnote>,
}

/// A cell that did not run.
#[derive(Serialize, JsonSchema)]
struct MissingDocument {
    /// Its name.
    cell: String,
    /// Why.
    reason: String,
}

/// A system.
#[derive(Serialize, JsonSchema)]
struct SystemDocument {
    /// Who sends: `qemu`, or `native` for containers.
    side: String,
    /// The guard's policy; null where one queue is for all.
    guard: Option<String>,
    /// What the uplink carries.
    uplink_bps: BitRate,
    /// Rounds that were measured; all figures are means of them.
    rounds: usize,
    /// What a generator was late with at worst, as a share of its packets.
    late_ratio: f64,
    /// Packets that came to the host and did not leave it, as a share of those that came; null where not counted.
    host_drop_ratio: Option<f64>,
    /// Processors that the hypervisors kept busy; null without one.
    hypervisor_cpus: Option<f64>,
    /// Those who send.
    members: Vec<MemberDocument>,
    /// Printed figures, scaled to this uplink.
    published: Vec<PublishedDocument>,
    /// Rates over time, as they were measured.
    series: Vec<MomentDocument>,
}

/// One who sends.
#[derive(Serialize, JsonSchema)]
struct MemberDocument {
    /// Its name in the paper.
    name: String,
    /// As it was measured.
    measured: FiguresDocument,
    /// As it was simulated.
    simulated: FiguresDocument,
}

/// What came of its packets, as they count on the wire.
#[derive(Serialize, JsonSchema)]
struct FiguresDocument {
    /// What its generator scheduled, over the whole time.
    offered_bps: f64,
    /// What arrived.
    received_bps: f64,
    /// 1 - received / scheduled.
    loss_ratio: f64,
    /// What its own machine did not take, of what was scheduled.
    never_sent_ratio: f64,
}

/// A printed figure.
#[derive(Serialize, JsonSchema)]
struct PublishedDocument {
    /// The figure, a rate in proportion to this uplink.
    published: Published,
    /// The same as it was measured, in its unit; null where there is none.
    measured: Option<f64>,
    /// And simulated.
    simulated: Option<f64>,
}

/// A moment.
#[derive(Serialize, JsonSchema)]
struct MomentDocument {
    /// Its end, in seconds from the start.
    seconds: f64,
    /// What arrived of each, in their order.
    received_bps: Vec<BitRate>,
}

impl SimulatedCell {
    fn seconds(&self) -> f64 {
        self.trial.scenario.duration as f64 / SECOND as f64
    }

    /// Who sends and who shapes.
    pub fn title(&self) -> String {
        let who = if self.trial.side.is_native() { "containers" } else { "guests" };
        let system = match (self.trial.settings.allocator, &self.trial.guard) {
            (Allocator::None, _) | (_, None) => "unshaped, one queue for all".to_owned(),
            (Allocator::Dba(_), _) => format!("the published allocator, every {}", time(self.trial.settings.period)),
            (Allocator::Exact, _) => "vmio's own".to_owned(),
        };
        format!("{} {who} at {}: {system}", self.trial.scenario.vifs.len(), self.trial.scenario.capacity)
    }

    /// The printed figures of this system, scaled.
    fn published<'a>(&'a self, report: &'a Report) -> impl Iterator<Item = Published> + 'a {
        let native = self.trial.guard.is_none();
        let scale = self.trial.scenario.capacity.bits() as f64 / report.printed.bits() as f64;
        let mine = move |figure: &&Published| (figure.system == System::Native) == native;
        report.paper.published.iter().filter(mine).map(move |figure| figure.scaled(scale))
    }

    /// A figure as it was measured, and as it was simulated.
    fn both(&self, figure: &Published) -> [Option<f64>; 2] {
        [&self.trial.measured, &self.simulated].map(|outcome| figure.simulated(&self.trial.scenario, outcome))
    }

    /// Notes on it.
    fn remarks(&self) -> String {
        let trial = &self.trial;
        let mut all = vec![format!("mean of {} rounds of {} s", trial.rounds, self.seconds())];
        all.extend(
            trial.host_drop_ratio.map(|r| format!("{:.1} % of what reached the host was dropped there", r * 100.0)),
        );
        let hypervisor = trial.side.hypervisor().unwrap_or(Kind::QEMU.hypervisor);
        all.extend(trial.hypervisor_cpus.map(|cpus| format!("{hypervisor} kept {cpus:.2} processors busy")));
        all.push(format!("generators late with at most {:.2} %", trial.late_ratio * 100.0));
        all.join("; ")
    }
}

/// As data.
pub fn json(report: &Report) -> Document {
    let system = |cell: &SimulatedCell| {
        let figures = |t: &Totals| FiguresDocument {
            offered_bps: mean_bps(t.scheduled_bits, cell.seconds()),
            received_bps: mean_bps(t.received_bits, cell.seconds()),
            loss_ratio: t.loss_ratio(),
            never_sent_ratio: ratio(t.never_sent_bits, t.scheduled_bits),
        };
        let Trial { scenario, measured, .. } = &cell.trial;
        let totals = measured.totals.iter().zip(&cell.simulated.totals);
        let published = |figure: Published| {
            let [measured, simulated] = cell.both(&figure);
            PublishedDocument { published: figure, measured, simulated }
        };
        SystemDocument {
            side: cell.trial.side.kind.clone(),
            guard: cell.trial.guard.clone(),
            uplink_bps: scenario.capacity,
            rounds: cell.trial.rounds,
            late_ratio: cell.trial.late_ratio,
            host_drop_ratio: cell.trial.host_drop_ratio,
            hypervisor_cpus: cell.trial.hypervisor_cpus,
            members: scenario
                .vifs
                .iter()
                .zip(totals)
                .map(|(vif, (m, s))| MemberDocument {
                    name: vif.name.clone(),
                    measured: figures(m),
                    simulated: figures(s),
                })
                .collect(),
            published: cell.published(report).map(published).collect(),
            series: measured
                .series
                .iter()
                .map(|s| MomentDocument { seconds: s.at as f64 / SECOND as f64, received_bps: s.received.clone() })
                .collect(),
        }
    };
    let missing = |(cell, reason): &(String, String)| MissingDocument { cell: cell.clone(), reason: reason.clone() };
    Document {
        schema_version: SCHEMA_VERSION,
        run: report.run,
        citation: report.paper.citation.clone(),
        systems: report.cells.iter().map(system).collect(),
        missing: report.missing.iter().map(missing).collect(),
        notes: report.paper.footnote.clone(),
    }
}

/// As text for a terminal.
pub fn text(report: &Report, style: Style) -> String {
    document(report).text(style, WIDTH)
}

/// As a page: rates over time, measured and simulated next to each other, printed figures marked.
pub fn html(report: &Report) -> String {
    document(report).html()
}

fn document(report: &Report) -> document::Document {
    let (run, paper) = (report.run, &report.paper);
    let mut doc = document::Document::new(format!("{}, measured and simulated", paper.key));
    doc.only(In::TERMINAL, say((0, 0), format!("Run {run} against {}", paper.citation)));
    doc.only(In::TERMINAL, say((0, 0), "Mbit/s of frames, means over the whole time; sim: the same, simulated"));
    let drawn = format!(
        "Left: measured (run {run}). Right: the same, simulated. Mbit/s of frames that arrived. Rates and times of the \
         paper are scaled to each uplink; dashed levels are figures that the paper prints ({}, {}) and that hold while \
         so much is offered as the table says.",
        paper.citation, paper.section
    );
    doc.only(In::HTML, aside((0, 0), drawn));
    let mut figure = "";
    for cell in &report.cells {
        let native = cell.trial.guard.is_none();
        let title = if native { "Figure 3: nobody shapes" } else { "Figure 4: guaranteed bandwidth" };
        if title != figure {
            doc.only(In::HTML, heading(2, title));
            figure = title;
        }
        let printed: Vec<Published> = cell.published(report).collect();
        doc.gap();
        doc.put(Block::Heading(Heading { level: 3, text: cell.title(), ..Heading::default() }));
        doc.put(aside((2, 2), cell.remarks()));
        doc.only(In::HTML, Block::Plots(plots(cell, &printed)));
        doc.put(members(cell).into());
        doc.put(compared(cell, &printed).into());
    }
    if !report.missing.is_empty() {
        doc.gap();
        doc.put(heading(2, "Not measured"));
        doc.put(list((2, 4), report.missing.iter().map(|(cell, why)| format!("{cell}: {why}"))));
    }
    doc.gap();
    notes(&mut doc, paper);
    doc.only(In::HTML, heading(2, "Again"));
    doc.only(In::HTML, Block::Code(report.command.clone()));
    doc
}

/// Rates over time, as measured and as simulated.
fn plots(cell: &SimulatedCell, printed: &[Published]) -> Plots {
    let scenario = &cell.trial.scenario;
    let mark = |figure: &Published| {
        let series = scenario.vifs.iter().position(|vif| vif.name == figure.vm)?;
        let label = format!("{:.0}", figure.value);
        (figure.what == What::ThroughputMbit).then_some(Mark { value: figure.value, label, series })
    };
    let drawn = |(word, outcome): (&str, &Outcome)| {
        let line = |(i, vif): (usize, &Vif)| {
            let mega = |s: &Sample| s.received[i].bits() as f64 / 1e6;
            let points = outcome.series.iter().map(|s| (s.at as f64 / SECOND as f64, mega(s))).collect();
            Line { stroke: Stroke::Series(i), label: vif.name.clone(), points }
        };
        let lines = scenario.vifs.iter().enumerate().map(line).collect();
        let plot = Plot::over_seconds(word, (360.0, 230.0), lines, printed.iter().filter_map(mark).collect());
        let y_range = Some((0.0, scenario.capacity.bits() as f64 / 1e6 * 1.02));
        (word.to_owned(), Drawing::Lines(Plot { y_range, ..plot }))
    };
    let both = [("measured", &cell.trial.measured), ("simulated", &cell.simulated)];
    let legend = scenario.vifs.iter().map(|vif| vif.name.clone()).enumerate().collect();
    Plots { legend, drawings: both.map(drawn).into() }
}

/// What was measured and simulated of each member.
fn members(cell: &SimulatedCell) -> Table {
    let rate = |bits: u64| mbit(mean_bps(bits, cell.seconds()));
    let percent = |ratio: f64| format!("{:.2} %", ratio * 100.0);
    let never = |t: &Totals| percent(ratio(t.never_sent_bits, t.scheduled_bits));
    let totals = cell.trial.measured.totals.iter().zip(&cell.simulated.totals);
    let rows = cell.trial.scenario.vifs.iter().zip(totals).map(|(vif, (m, s))| {
        let [loss, simulated] = [m, s].map(|t| percent(t.loss_ratio()));
        let rates = [rate(m.scheduled_bits), rate(m.received_bits), rate(s.received_bits)];
        Row::new(&vif.name, rates.into_iter().chain([loss, simulated, never(m), never(s)]))
    });
    let measured = |head: &str, width, narrow: &str| Column::new(head, width).small("measured").narrow(narrow).gap(1);
    let simulated = |width| Column::new("", width).small("simulated").narrow("sim").gap(1);
    let columns = [
        measured("offered", 8, "offered"),
        measured("received", 8, "received"),
        simulated(8),
        measured("loss", 9, "loss"),
        simulated(9),
        measured("never sent", 9, "not sent"),
        simulated(9),
    ];
    Table::new("Mbit/s", Layout { long: Long::Shortened, ..Layout::new(7) }, columns).with(rows)
}

/// The printed figures beside what was measured and simulated.
fn compared(cell: &SimulatedCell, printed: &[Published]) -> Table {
    let rows = printed.iter().map(|figure| {
        // A terminal leaves out the unit Mbit/s.
        let value = |value: f64| {
            let said = shown(figure, value);
            Cell::from(&said).narrow(said.replace(" Mbit/s", ""))
        };
        let both = cell.both(figure).map(|found| found.map_or_else(|| Cell::from("").narrow("none"), value));
        // The table's heading names the system.
        let said = what(figure);
        let said = said.split_once(": ").map_or(said.clone(), |(_, said)| said.replace(" Mbit/s", ""));
        Row::new(said, std::iter::once(value(figure.value)).chain(both))
    });
    let heads = [("printed", "scaled"), ("measured", ""), ("simulated", "")];
    let columns = heads.map(|(head, small)| Column::new(head, 11).small(small).gap(1));
    Table::new("printed figure", Layout { long: Long::Shortened, ..Layout::new(42) }, columns).with(rows)
}
