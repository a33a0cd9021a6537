//! `vmio study compare amamou2012 paper`: what three guests and three containers got of one uplink, over time, beside what was
//! simulated of the same and what is printed in the paper.

mod html;

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::control::Allocator;
use vmio_model::rate::BitRate;
use vmio_model::simulate::measured::Trial;
use vmio_model::simulate::paper::{Footnote, Paper, Published, System};
use vmio_model::simulate::{Outcome, SECOND, Totals};

use super::simulation::{mbit, mean_bps, ratio, shown, time, what};
use crate::fit;
use crate::term::Style;

pub use html::html;

/// Version of the JSON.
const SCHEMA_VERSION: &str = "1.0";

/// A cell with its simulation.
pub struct Beside {
    /// What was measured.
    pub trial: Trial,
    /// What comes of the same in virtual time.
    pub simulated: Outcome,
}

/// The whole experiment.
pub struct Report {
    /// Number of the run.
    pub run: i64,
    /// The cells.
    pub cells: Vec<Beside>,
    /// What is published, as printed.
    pub paper: Paper,
    /// The scenario's capacity: what printed rates are of.
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

impl Beside {
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

    /// What else is to be said of it.
    fn remarks(&self) -> String {
        let trial = &self.trial;
        let mut all = vec![format!("mean of {} rounds of {} s", trial.rounds, self.seconds())];
        all.extend(
            trial.host_drop_ratio.map(|r| format!("{:.1} % of what came to the host was dropped there", r * 100.0)),
        );
        all.extend(trial.hypervisor_cpus.map(|cpus| format!("QEMU kept {cpus:.2} processors busy")));
        all.push(format!("generators late with at most {:.2} %", trial.late_ratio * 100.0));
        all.join("; ")
    }
}

/// As data.
pub fn json(report: &Report) -> Document {
    let system = |cell: &Beside| {
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

/// What is measured of a member: the columns of text and page.
fn columns(cell: &Beside, i: usize) -> Option<[String; 7]> {
    let (m, s) = (cell.trial.measured.totals.get(i)?, cell.simulated.totals.get(i)?);
    let rate = |bits: u64| mbit(mean_bps(bits, cell.seconds()));
    let percent = |ratio: f64| format!("{:.2} %", ratio * 100.0);
    let never = |t: &Totals| percent(ratio(t.never_sent_bits, t.scheduled_bits));
    Some([
        rate(m.scheduled_bits),
        rate(m.received_bits),
        rate(s.received_bits),
        percent(m.loss_ratio()),
        percent(s.loss_ratio()),
        never(m),
        never(s),
    ])
}

/// As text for a terminal.
pub fn text(report: &Report, style: Style) -> String {
    let mut out = fit::paragraph("", 0, &format!("Run {} against {}", report.run, report.paper.citation));
    out += "Mbit/s of frames, means over the whole time; sim: the same, simulated\n";
    for cell in &report.cells {
        out.push('\n');
        let _ = writeln!(out, "{}", style.bold(fit::paragraph("", 0, &cell.title()).trim_end()));
        out += &fit::paragraph("  ", 2, &cell.remarks());
        let _ = writeln!(
            out,
            "  {:<5} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9}",
            "", "offered", "received", "sim", "loss", "sim", "not sent", "sim"
        );
        for (i, vif) in cell.trial.scenario.vifs.iter().enumerate() {
            let Some([offered, received, s, loss, l, never, n]) = columns(cell, i) else { continue };
            let name = fit::left(&fit::name(&vif.name, 5), 5);
            let _ = writeln!(out, "  {name} {offered:>8} {received:>8} {s:>8} {loss:>9} {l:>9} {never:>9} {n:>9}");
        }
        let _ = writeln!(out, "  {:<40} {:>11} {:>11} {:>11}", "", "printed", "measured", "simulated");
        for figure in cell.published(report) {
            let [measured, simulated] = cell.both(&figure).map(|v| v.map_or("none".into(), |v| value(&figure, v)));
            // The system is that of the table.
            let said =
                what(&figure).split_once(": ").map_or_else(|| what(&figure), |(_, said)| said.replace(" Mbit/s", ""));
            let _ = writeln!(
                out,
                "  {} {:>11} {measured:>11} {simulated:>11}",
                fit::left(&fit::name(&said, 40), 40),
                value(&figure, figure.value)
            );
        }
    }
    if !report.missing.is_empty() {
        let _ = writeln!(out, "\n{}", style.bold("Not measured"));
        for (cell, why) in &report.missing {
            out += &fit::paragraph("  ", 4, &format!("{cell}: {why}"));
        }
    }
    let _ = writeln!(out, "\n{}", style.bold("Notes"));
    for note in &report.paper.footnote {
        out += &fit::paragraph("  ", 4, &format!("{}: {}", note.about, note.text));
    }
    out
}

/// A figure without its unit, where that is Mbit/s.
fn value(figure: &Published, value: f64) -> String {
    shown(figure, value).replace(" Mbit/s", "")
}
