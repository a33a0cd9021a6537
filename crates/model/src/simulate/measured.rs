//! A published experiment measured on real machines: its scenario scaled to the link and duration of a run, and each
//! cell's result as an [`Outcome`], to compare with the simulation.

use serde_json::Value;

use super::{Enforcement, MILLISECOND, Outcome, SECOND, Sample, Scenario, Settings, Source, Totals, Vif};
use crate::cell::{Cell, Side};
use crate::control::Allocator;
use crate::figure::{Reading, scalar};
use crate::rate::BitRate;
use crate::result::{CpuUse, Sample as Taken, Watched, WorkloadResult};
use crate::run::Run;
use crate::study::Study;

/// Most points of a measured series.
const POINTS: u64 = 120;
/// Shortest time of a point.
const SHORTEST: u64 = 100 * MILLISECOND;
/// The settings that select a cell's system.
const RATE: &str = "rate";
const GUARD: &str = "guard";
/// Queue of the link, in milliseconds of its rate.
const WAIT_MS: u64 = 50;

/// A cell of the experiment.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The leading actor's side.
    pub side: Side,
    /// The guard's policy; `None` without a guard.
    pub guard: Option<String>,
    /// Number of rounds, whose mean the outcome is.
    pub rounds: usize,
    /// Its scaled scenario.
    pub scenario: Scenario,
    /// Settings of its simulation.
    pub settings: Settings,
    /// Its measured outcome.
    pub measured: Outcome,
    /// Largest share of late packets of any actor's generator.
    pub late_ratio: f64,
    /// Packets that came to the host and did not leave by the uplink, as a share of those that came; `None` without
    /// counters.
    pub host_drop_ratio: Option<f64>,
    /// Processor time of all hypervisors, in processors; `None` without one.
    pub hypervisor_cpus: Option<f64>,
}

impl Scenario {
    /// The same on another link for another time: rates scaled to the one, times to the other.
    #[must_use]
    pub fn scaled(&self, capacity: BitRate, duration: u64) -> Scenario {
        let part = |value: u64, of: u64, to: u64| {
            u64::try_from(u128::from(value) * u128::from(to) / u128::from(of.max(1))).unwrap_or(u64::MAX)
        };
        let rate = |rate: BitRate| BitRate::new(part(rate.bits(), self.capacity.bits(), capacity.bits()));
        let time = |at: u64| part(at, self.duration, duration);
        let vif = |vif: &Vif| {
            let mut vif = vif.clone();
            (vif.contract.min, vif.contract.max) = (rate(vif.contract.min), rate(vif.contract.max));
            if let Source::OpenLoop(steps) = &mut vif.source {
                steps.iter_mut().for_each(|(at, offer)| (*at, *offer) = (time(*at), rate(*offer)));
            }
            vif
        };
        Scenario { capacity, duration, vifs: self.vifs.iter().map(vif).collect(), ..self.clone() }
    }
}

/// The cells of a run that are this experiment, in the order of the study.
pub fn trials(run: &Run, study: &Study, scenario: &Scenario) -> Vec<Trial> {
    let of = |cell: &Cell| {
        let taken: Vec<&Taken> = run.samples.iter().filter(|sample| sample.cell == *cell).collect();
        trial(&taken, study, scenario)
    };
    study.cells().iter().filter_map(of).collect()
}

fn trial(taken: &[&Taken], study: &Study, scenario: &Scenario) -> Option<Trial> {
    let cell = &taken.first()?.cell;
    let mbit: u64 = cell.settings.get(RATE)?.strip_suffix("mbit")?.parse().ok()?;
    if cell.actors().count() != scenario.vifs.len() {
        return None;
    }
    let duration = (study.repeat.seconds * SECOND as f64) as u64;
    let rounds: Vec<Vec<Member>> = taken.iter().map(|sample| members(sample, duration)).collect::<Option<_>>()?;
    let mut scenario = scenario.scaled(BitRate::new(mbit * 1_000_000), duration);
    scenario.packet_bytes = rounds.first()?.first()?.packet_bytes;
    let guard = cell.settings.get(GUARD).cloned();
    let (allocator, period) = match &guard {
        None => (Allocator::None, scenario.period),
        Some(name) => study.guards.get(name)?.kept()?,
    };
    let enforcement = match (allocator, cell.is_native()) {
        (Allocator::Exact, _) => Enforcement::Hierarchy,
        (_, true) => Enforcement::Queued,
        (_, false) => Enforcement::Held,
    };
    let waits = scenario.capacity.bytes().bytes() * WAIT_MS / 1000 / u64::from(scenario.packet_bytes);
    let mut settings = Settings { enforcement, ..Settings::new(allocator, period) };
    if allocator == Allocator::None {
        settings.queue = u32::try_from(waits).unwrap_or(u32::MAX);
    }
    let drops: Option<Vec<f64>> = taken.iter().map(|sample| dropped_on_host(sample)).collect();
    let cpus = |sample: &&Taken| CpuUse::of(&sample.seen).by_role.values().sum::<f64>() / study.repeat.seconds;
    Some(Trial {
        side: cell.lead.side.clone(),
        guard,
        rounds: rounds.len(),
        late_ratio: rounds.iter().flatten().map(|member| member.late_ratio).fold(0.0, f64::max),
        measured: outcome(&rounds, &scenario),
        host_drop_ratio: drops.map(|all| mean(&all)),
        hypervisor_cpus: (!cell.is_native()).then(|| mean(&taken.iter().map(cpus).collect::<Vec<_>>())),
        scenario,
        settings,
    })
}

/// An actor's reports, in bits as the link counts them.
struct Member {
    totals: Totals,
    late_ratio: f64,
    packet_bytes: u32,
    /// Received, in bit/s, from the start.
    series: Vec<f64>,
}

fn members(sample: &Taken, duration: u64) -> Option<Vec<Member>> {
    std::iter::once(&sample.result).chain(&sample.beside).map(|result| member(result, duration)).collect()
}

fn member(result: &WorkloadResult, duration: u64) -> Option<Member> {
    let (sent, receiver) = (&result.raw["sender"], &result.raw["receiver"]);
    let mine = receiver["senders"].as_array()?.iter().find(|one| one["sender"] == sent["sender"])?;
    let whole = |of: &Value, key: &str| of[key].as_u64();
    let bytes = whole(sent, "bytes")?;
    let figure = |name: &str| scalar(&result.figures, name);
    // Counted bits for each bit of payload: includes headers where the workload counts frames.
    let counted = figure("bandwidth")? * result.seconds / (figure("moved")? * 8.0);
    let packet_bytes = (bytes as f64 * counted).round();
    let bits = |packets: u64| (packets as f64 * packet_bytes * 8.0) as u64;
    let (scheduled, went, came) = (whole(sent, "scheduled")?, whole(sent, "sent")?, whole(mine, "received")?);
    let window = receiver["window_seconds"].as_f64().filter(|s| *s > 0.0)?;
    let windows: Vec<u64> = mine["bytes_by_window"].as_array()?.iter().filter_map(Value::as_u64).collect();
    let step = step(duration) as f64 / SECOND as f64;
    let mut series = vec![0.0; duration.div_ceil(self::step(duration)) as usize];
    for (i, bytes) in windows.iter().enumerate() {
        // A window may overlap two points.
        let (from, to) = (i as f64 * window / step, (i + 1) as f64 * window / step);
        for point in from as usize..=to as usize {
            let part = (to.min(point as f64 + 1.0) - from.max(point as f64)) / (to - from);
            if let Some(rate) = series.get_mut(point) {
                *rate += part.max(0.0) * *bytes as f64 * counted * 8.0 / step;
            }
        }
    }
    Some(Member {
        totals: Totals {
            scheduled_bits: bits(scheduled),
            never_sent_bits: bits(scheduled.saturating_sub(went)),
            dropped_bits: bits(went.saturating_sub(came)),
            received_bits: bits(came),
            ..Totals::default()
        },
        late_ratio: figure("late")?,
        packet_bytes: packet_bytes as u32,
        series,
    })
}

/// Duration of a point, in picoseconds.
fn step(duration: u64) -> u64 {
    (duration / POINTS).max(SHORTEST)
}

/// The mean of several rounds.
fn outcome(rounds: &[Vec<Member>], scenario: &Scenario) -> Outcome {
    let count = rounds.len().max(1) as u64;
    let of =
        |i: usize, part: fn(&Totals) -> u64| rounds.iter().map(|members| part(&members[i].totals)).sum::<u64>() / count;
    let totals = |i: usize| Totals {
        scheduled_bits: of(i, |t| t.scheduled_bits),
        never_sent_bits: of(i, |t| t.never_sent_bits),
        dropped_bits: of(i, |t| t.dropped_bits),
        received_bits: of(i, |t| t.received_bits),
        ..Totals::default()
    };
    let places = 0..scenario.vifs.len();
    let points = rounds.iter().flatten().map(|member| member.series.len()).min().unwrap_or(0);
    let rate = |i: usize, point: usize| {
        BitRate::new((rounds.iter().map(|members| members[i].series[point]).sum::<f64>() / count as f64) as u64)
    };
    let step = step(scenario.duration);
    let sample = |point: usize| Sample {
        at: (point as u64 + 1) * step,
        received: places.clone().map(|i| rate(i, point)).collect(),
        scheduled: scenario.vifs.iter().map(|vif| vif.source.offers(point as u64 * step + step / 2)).collect(),
        caps: Vec::new(),
    };
    Outcome {
        totals: places.clone().map(totals).collect(),
        series: (0..points).map(sample).collect(),
        duration: scenario.duration,
        packets: true,
    }
}

/// Share of packets received on all other links that did not leave by the uplink.
fn dropped_on_host(sample: &Taken) -> Option<f64> {
    let links = || sample.seen.iter().filter_map(|seen| Some((link(&seen.watched)?, &seen.figures)));
    let packets = |figures: &[Reading], way: &str| {
        let is = |r: &&Reading| r.figure == "packets" && r.labels.get("way").is_some_and(|w| w == way);
        figures.iter().find(is).map(|r| r.value.typical())
    };
    let left = links().find(|(name, _)| *name == UPLINK).and_then(|(_, figures)| packets(figures, "sent"))?;
    let ports = links().filter(|(name, _)| *name != UPLINK);
    let came: f64 = ports.filter_map(|(_, figures)| packets(figures, "received")).sum();
    (came > 0.0).then(|| (1.0 - left / came).max(0.0))
}

/// The uplink of the network `shared`.
const UPLINK: &str = "wire";

fn link(watched: &Watched) -> Option<&str> {
    if let Watched::Link(name) = watched { Some(name) } else { None }
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::rate::MBIT as M;

    fn paper() -> Scenario {
        Scenario::from_toml("amamou2012.toml", include_str!("../../../../papers/amamou2012.toml")).unwrap()
    }

    #[test]
    fn a_scenario_is_scaled_in_rate_and_time() {
        let scaled = paper().scaled(100 * M, 60 * SECOND);
        let first = &scaled.vifs[0];
        assert_eq!((first.contract.min, first.contract.max), (30 * M, 60 * M));
        let at = [0, 20, 28, 34, 38, 50].map(|s| s * SECOND);
        let rates = [80, 20, 60, 20, 50, 80].map(|m| m * M);
        assert_eq!(first.source, Source::OpenLoop(at.into_iter().zip(rates).collect()));
        assert_eq!(paper().scaled(1000 * M, 300 * SECOND), paper(), "as it is");
    }

    /// 2 s of 1,000 packets of 1,250 bytes, which count 250 bytes more for headers; half of them arrived.
    fn result() -> WorkloadResult {
        let windows: Vec<u64> = vec![6_250; 200];
        let raw = json!({
            "sender": { "sender": "a", "bytes": 1250, "scheduled": 2000, "sent": 1800 },
            "receiver": { "window_seconds": 0.01, "senders": [
                { "sender": "b", "bytes": 7, "received": 1, "bytes_by_window": [7] },
                { "sender": "a", "bytes": 1_250_000, "received": 1000, "bytes_by_window": windows } ] },
        });
        let figures = vec![
            Reading::scalar("bandwidth", 1_250_000.0 * 8.0 * 1.2 / 2.0),
            Reading::scalar("moved", 1_250_000.0),
            Reading::scalar("late", 0.004),
        ];
        WorkloadResult { seconds: 2.0, figures, raw, command: String::new() }
    }

    #[test]
    fn reports_become_totals_and_a_series() {
        let member = member(&result(), 2 * SECOND).unwrap();
        assert_eq!((member.packet_bytes, member.late_ratio), (1500, 0.004));
        let bits = 1500 * 8;
        let Totals { scheduled_bits, never_sent_bits, dropped_bits, received_bits, .. } = member.totals;
        assert_eq!((scheduled_bits, never_sent_bits), (2000 * bits, 200 * bits));
        assert_eq!((dropped_bits, received_bits), (800 * bits, 1000 * bits));
        assert_eq!(member.series.len(), 20);
        assert!(member.series.iter().all(|rate| (rate - 6e6).abs() < 1.0), "{:?}", member.series);
        let scenario = paper().scaled(10 * M, 2 * SECOND);
        let mut both: Vec<Vec<Member>> = Vec::new();
        for _ in 0..2 {
            both.push((0..3).map(|_| self::member(&result(), 2 * SECOND).unwrap()).collect());
        }
        let outcome = outcome(&both, &scenario);
        assert_eq!((outcome.totals.len(), outcome.series.len()), (3, 20));
        assert!((outcome.totals[1].loss_ratio() - 0.5).abs() < 1e-9);
        assert_eq!(outcome.series[0].scheduled, [8 * M; 3]);
        assert_eq!(outcome.series[19].at, 2 * SECOND);
        let nothing = WorkloadResult { raw: json!({}), ..result() };
        assert!(self::member(&nothing, SECOND).is_none());
    }
}
