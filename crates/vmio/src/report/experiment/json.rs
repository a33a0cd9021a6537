//! An experiment over time as JSON.

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::rate::BitRate;
use vmio_model::simulate::judged::Judged;
use vmio_model::simulate::measured::{Sender, Trial};
use vmio_model::simulate::paper::{Footnote, Published};
use vmio_model::simulate::{SECOND, Totals};

use super::{Report, SimulatedCell};
use crate::report::simulation::{mean_bps, ratio};

/// Version of the JSON.
const SCHEMA_VERSION: &str = "1.1";

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
    /// How they send.
    sender: &'static str,
    /// What the uplink carries.
    uplink_bps: BitRate,
    /// The same as a part of what loads and contracts were made for; null where the loads are not the paper's.
    capacity_ratio: Option<f64>,
    /// Whether the host and an interface that no policy names flood the uplink, too.
    flooded: bool,
    /// Period of the loop that sets limits; null without one.
    period_seconds: Option<f64>,
    /// Rounds that were measured; all figures are means of them.
    rounds: usize,
    /// What a generator was late with at worst, as a share of its packets.
    late_ratio: f64,
    /// Packets that came to the host and did not leave it, as a share of those that came; null where not counted.
    host_drop_ratio: Option<f64>,
    /// What came from senders to the host at their ports; null where not counted.
    copied_bps: Option<f64>,
    /// Processors of the host that were kept busy, by hypervisors and generators too; null where not counted.
    host_cpus: Option<f64>,
    /// Processors that the hypervisors kept busy; null without one.
    hypervisor_cpus: Option<f64>,
    /// What the paper claims, judged by this cell.
    claims: Vec<Judged>,
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
    /// As it was simulated; null where the simulation has no such sender.
    simulated: Option<FiguresDocument>,
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
        let simulated = |i: usize| cell.simulated.as_ref()?.totals.get(i).map(figures);
        let published = |figure: Published| {
            let [measured, simulated] = cell.both(&figure);
            PublishedDocument { published: figure, measured, simulated }
        };
        SystemDocument {
            side: cell.trial.side.kind.clone(),
            guard: cell.trial.guard.clone(),
            sender: sender(cell.trial.sender),
            uplink_bps: scenario.capacity,
            capacity_ratio: cell.trial.capacity_ratio,
            flooded: cell.trial.is_flooded,
            period_seconds: cell.period().map(|period| period as f64 / SECOND as f64),
            rounds: cell.trial.rounds,
            late_ratio: cell.trial.late_ratio,
            host_drop_ratio: cell.trial.host_drop_ratio,
            copied_bps: cell.trial.copied_bps,
            host_cpus: cell.trial.host_cpus,
            hypervisor_cpus: cell.trial.hypervisor_cpus,
            claims: cell.judged.clone(),
            members: scenario
                .vifs
                .iter()
                .zip(&measured.totals)
                .enumerate()
                .map(|(i, (vif, totals))| MemberDocument {
                    name: vif.name.clone(),
                    measured: figures(totals),
                    simulated: simulated(i),
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

fn sender(sender: Sender) -> &'static str {
    match sender {
        Sender::OpenLoop => "open-loop",
        Sender::Blocking => "blocking",
        Sender::Tcp => "tcp",
    }
}
