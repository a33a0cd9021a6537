//! Simulated runs of the guard as JSON.

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::rate::BitRate;
use vmio_model::simulate::paper::{Footnote, Published};
use vmio_model::simulate::{SECOND, Sample};

use super::{Report, SCHEMA_VERSION, Simulated, Study, beside};

/// Simulated runs of the guard, in virtual time.
#[derive(Serialize, JsonSchema)]
pub struct Document<'a> {
    /// Version of this document.
    schema_version: &'static str,
    /// The runs: one for each pool of a policy, one of a scenario, several of a published experiment.
    runs: Vec<Run<'a>>,
    /// The published experiment; only with `--study`.
    #[serde(skip_serializing_if = "Option::is_none")]
    study: Option<Compared<'a>>,
}

/// A simulated run.
#[derive(Serialize, JsonSchema)]
struct Run<'a> {
    /// What was simulated: an uplink and direction, a scenario's file, or the experiment's name.
    subject: &'a str,
    /// Who set the limits, where they acted, and how often.
    how: String,
    /// What the uplink carries, in bit/s.
    capacity_bps: BitRate,
    /// Period of the loop that sets the limits.
    period_seconds: f64,
    /// Virtual time that was simulated.
    duration_seconds: f64,
    /// Whether it was simulated packet by packet; else as a fluid.
    packets: bool,
    /// The members, in the order that the lists of `series` have.
    members: Vec<Member<'a>>,
    /// What happened over time.
    series: Vec<Point<'a>>,
}

/// A member over the whole run.
#[derive(Serialize, JsonSchema)]
struct Member<'a> {
    /// Its name.
    name: &'a str,
    /// Its priority: 1 is served first, 8 last.
    priority: u8,
    /// What it is guaranteed, in bit/s.
    min_bps: BitRate,
    /// What it may have, in bit/s.
    max_bps: BitRate,
    /// What it wanted to send.
    scheduled_bytes: u64,
    /// What arrived.
    received_bytes: u64,
    /// What its guest held back.
    never_sent_bytes: u64,
    /// What was dropped on the way.
    dropped_bytes: u64,
    /// 1 - received / scheduled.
    loss_ratio: f64,
    /// Share of the time in which it got its minimum, or all that it wanted.
    min_met_ratio: f64,
}

/// A moment of the run; lists are by member.
#[derive(Serialize, JsonSchema)]
struct Point<'a> {
    /// End of what it covers, from the start.
    at_seconds: f64,
    /// Wanted, in bit/s.
    scheduled_bps: &'a [BitRate],
    /// Received, in bit/s.
    received_bps: &'a [BitRate],
    /// Limits at its end, in bit/s; `None` without one.
    cap_bps: Vec<Option<BitRate>>,
}

/// A published experiment beside its simulation.
#[derive(Serialize, JsonSchema)]
struct Compared<'a> {
    /// Its short name.
    key: &'a str,
    /// What to cite.
    citation: &'a str,
    /// Its printed figures with ours.
    figures: Vec<Figure<'a>>,
    /// Loss by period of the loop.
    periods: Vec<Period<'a>>,
    /// Where the publication contradicts itself.
    notes: &'a [Footnote],
}

/// A printed figure.
#[derive(Serialize, JsonSchema)]
struct Figure<'a> {
    /// As it is printed.
    published: &'a Published,
    /// The same figure in the runs that it is set beside.
    simulated: Vec<SimulatedFigure>,
}

/// A figure of a simulated run.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Found")]
struct SimulatedFigure {
    /// How that was run.
    how: String,
    /// The figure, in the unit of the published one; `None` where the run has no such moment.
    value: Option<f64>,
}

/// Loss with one period of the loop.
#[derive(Serialize, JsonSchema)]
struct Period<'a> {
    /// Who set the limits.
    algorithm: &'static str,
    /// The period.
    period_seconds: f64,
    /// Loss by member.
    loss_ratio: &'a [f64],
}

/// The simulated runs for programs.
pub fn json(report: &Report) -> Document<'_> {
    Document {
        schema_version: SCHEMA_VERSION,
        runs: report.runs.iter().map(run).collect(),
        study: report.study.as_ref().map(|study| compared(study, &report.runs)),
    }
}

fn run(run: &Simulated) -> Run<'_> {
    let members = run.scenario.vifs.iter().zip(&run.outcome.totals).map(|(vif, t)| Member {
        name: &vif.name,
        priority: vif.contract.priority,
        min_bps: vif.contract.min,
        max_bps: vif.contract.max,
        scheduled_bytes: t.scheduled_bits / 8,
        received_bytes: t.received_bits / 8,
        never_sent_bytes: t.never_sent_bits / 8,
        dropped_bytes: t.dropped_bits / 8,
        loss_ratio: t.loss_ratio(),
        min_met_ratio: t.met_ratio(),
    });
    Run {
        subject: &run.subject,
        how: run.how(),
        capacity_bps: run.scenario.capacity,
        period_seconds: run.settings.period as f64 / SECOND as f64,
        duration_seconds: run.seconds(),
        packets: run.outcome.packets,
        members: members.collect(),
        series: run.outcome.series.iter().map(point).collect(),
    }
}

fn point(s: &Sample) -> Point<'_> {
    Point {
        at_seconds: s.at as f64 / SECOND as f64,
        scheduled_bps: &s.scheduled,
        received_bps: &s.received,
        cap_bps: s.caps.iter().map(|cap| Some(*cap).filter(|cap| *cap != BitRate::MAX)).collect(),
    }
}

fn compared<'a>(study: &'a Study, runs: &[Simulated]) -> Compared<'a> {
    let figure = |published: &'a Published| {
        let found =
            |r: &Simulated| SimulatedFigure { how: r.how(), value: published.simulated(&r.scenario, &r.outcome) };
        Figure { published, simulated: runs.iter().filter(|r| beside(r, published)).map(found).collect() }
    };
    let period = |(allocator, period, loss): &'a (vmio_model::simulate::Allocator, u64, Vec<f64>)| Period {
        algorithm: allocator.label(),
        period_seconds: *period as f64 / SECOND as f64,
        loss_ratio: loss,
    };
    Compared {
        key: &study.paper.key,
        citation: &study.paper.citation,
        figures: study.paper.published.iter().map(figure).collect(),
        periods: study.periods.iter().map(period).collect(),
        notes: &study.paper.footnote,
    }
}
