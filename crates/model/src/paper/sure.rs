//! When a ratio decides: its whole interval lies on one side of the bound, it is significant among all ratios judged
//! together, and it exceeds the noise.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, Measure, Relation};
use crate::cell::Cell;
use crate::figure::Unit;
use crate::result::{self, BANDWIDTH, Sample, of_machine};
use crate::run::Run;
use crate::stats::Ratio;
use crate::stats::multiple::LEVEL;
use crate::summary::energy::above_rest;
use crate::summary::{amount, cell_noise};

/// A run's verdict on an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "PaperVerdict")]
pub enum Verdict {
    /// The effect shows.
    Holds,
    /// The opposite shows.
    Fails,
    /// The run is not conclusive.
    NotDecidable,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Holds => "holds",
            Verdict::Fails => "fails",
            Verdict::NotDecidable => "not decidable",
        })
    }
}

/// Sides that an effect compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sides {
    GuestToNative,
    GuestToGuest,
    NativeToNative,
}

/// Why an effect is not decided.
#[derive(Debug, thiserror::Error)]
pub(super) enum Undecided {
    /// A cell was not measured, in the run's words.
    #[error("{0}")]
    NotRun(String),
    #[error("{0} was not measured")]
    NotMeasured(String),
    #[error("the requests of {0} reached the disk no smaller than native ones, so no control cell ran")]
    NoControl(String),
    #[error("the test of this effect is upside down: native over guest")]
    UpsideDown,
    #[error("no round has a figure of both cells, or the disk's counters are not visible here")]
    NoPair,
    #[error("{pairs} pairs from {boots} boots, at least {} from {} are wanted", least.0, least.1)]
    TooFew { pairs: u32, boots: u32, least: (u32, u32) },
    #[error("{0} never reached the disk: a cache was measured")]
    Cached(String),
    #[error("{0} did not reach the rate that it was to keep, so other loads would be compared")]
    Saturated(String),
    #[error("no meter was there, so the energy is not known; the CPU time of a request has a row of its own")]
    NoMeter,
    #[error("only parts of the machine were metered ({0}), not the machine as a whole")]
    OnlyParts(String),
    #[error("the samples are of several meters ({0}), which do not compare")]
    SeveralMeters(String),
    #[error("the machine was not measured at rest before these cells, or others were at work then")]
    NoRest,
    #[error("in {within} of {samples} samples the machine took no more power than at rest, so there is no ratio")]
    WithinRest { within: usize, samples: usize },
    #[error("bandwidth was capped on both sides (--gentle), so the caps would be compared")]
    Capped,
    #[error("the interval has {bound} in it")]
    BoundWithin { bound: f64 },
    #[error(
        "the interval excludes {far}, but among {together} effects judged together that may be chance (Holm{})",
        p.map_or_else(String::new, |p| format!(", p = {p:.2}"))
    )]
    Chance { far: f64, together: usize, p: Option<f64> },
    #[error("the run's own noise is not known: no native cell has two rounds with this figure")]
    NoNoise,
    #[error(
        "a factor of {factor:.2} from {far} is below this run's own noise: two equal native cells may be a factor of \
         {noise:.2} apart"
    )]
    Noise { factor: f64, far: f64, noise: f64 },
}

/// The cells of an effect.
pub(super) struct EffectCells {
    pub numerator: Cell,
    pub denominator: Cell,
    pub sides: Sides,
}

/// Whether the energy of these cells can be judged: by one meter of the whole machine, and above rest in each sample. To
/// leave out those that are not would raise the mean of the others.
pub(super) fn metered(run: &Run, cells: &[&Cell]) -> Result<(), Undecided> {
    let samples: Vec<&Sample> = run.samples.iter().filter(|s| s.is_comparable() && cells.contains(&&s.cell)).collect();
    let told: BTreeSet<&str> = samples.iter().flat_map(|s| result::metered(&s.seen)).map(|told| told.domain).collect();
    if told.is_empty() {
        return Err(Undecided::NoMeter);
    }
    let whole = samples.iter().filter_map(|s| of_machine(&s.seen));
    let whole: BTreeSet<String> = whole.map(|told| format!("{} {}", told.meter, told.domain)).collect();
    match whole.len() {
        0 => return Err(Undecided::OnlyParts(told.into_iter().collect::<Vec<_>>().join(", "))),
        1 => {}
        _ => return Err(Undecided::SeveralMeters(whole.into_iter().collect::<Vec<_>>().join(", "))),
    }
    let above: Vec<f64> = samples.iter().filter_map(|s| energy(run, s)).collect();
    let within = above.iter().filter(|joules| **joules <= 0.0).count();
    match above.len() {
        0 => Err(Undecided::NoRest),
        samples if within > 0 => Err(Undecided::WithinRest { within, samples }),
        _ => Ok(()),
    }
}

/// Energy of a request of a sample above rest.
fn energy(run: &Run, s: &Sample) -> Option<f64> {
    above_rest(s, amount(s, &run.workloads, Unit::Requests), &run.environment)
}

/// The figure of an effect in a sample of a run.
pub(super) fn figure(measure: Measure, run: &Run, s: &Sample) -> Option<f64> {
    match measure {
        Measure::Bandwidth | Measure::SmallRequests => s.result.figure(BANDWIDTH),
        Measure::Latency => s.result.latency().map(|latency| latency.mean),
        Measure::CpuPerRequest => {
            let (cpu, ios) = (s.cpu().host_seconds, s.work().ios);
            (cpu > 0.0 && ios > 0).then(|| cpu / ios as f64)
        }
        Measure::EnergyPerRequest => energy(run, s).filter(|joules| *joules > 0.0),
        Measure::QueueDepth => s.device().map(|d| d.queue_depth),
        Measure::RequestSize => s.device().map(|d| d.request_bytes),
    }
}

/// The limit that the ratio must exceed: the bound, or 1 where that is further and emulation hides differences.
pub(super) fn beyond(effect: &Effect, ratio: &Ratio, sides: Sides, emulated: bool) -> f64 {
    if !hides(effect, sides, emulated) {
        return effect.bound;
    }
    if ratio.value > effect.bound { effect.bound.max(1.0) } else { effect.bound.min(1.0) }
}

/// Whether the whole interval is beyond it.
fn shows(effect: &Effect, ratio: &Ratio, sides: Sides, emulated: bool) -> bool {
    let far = beyond(effect, ratio, sides, emulated);
    if ratio.value > effect.bound { ratio.surely_above(far) } else { ratio.surely_below(far) }
}

/// Whether emulation can hide a difference between two guests.
fn hides(effect: &Effect, sides: Sides, emulated: bool) -> bool {
    emulated && sides == Sides::GuestToGuest && effect.measure != Measure::RequestSize
}

/// The largest noise of the native cells of the two that are compared; where they have none, of all native cells of
/// their workloads.
pub(super) fn noise(effect: &Effect, found: &EffectCells, run: &Run, pairs: u32) -> Option<f64> {
    // By the samples above rest alone the noise of energy would be too small.
    let is_known = |cell: &Cell| effect.measure != Measure::EnergyPerRequest || metered(run, &[cell]).is_ok();
    let of = |cell: &Cell| {
        let noise = || cell_noise(run, cell, pairs, |s| figure(effect.measure, run, s));
        is_known(cell).then(noise).flatten()
    };
    let largest = |cells: &mut dyn Iterator<Item = &Cell>| cells.filter_map(of).reduce(f64::max);
    let beside = [found.numerator.natively(), found.denominator.natively()];
    largest(&mut beside.iter()).or_else(|| {
        let workloads = [found.numerator.workload(), found.denominator.workload()];
        let native = |c: &&Cell| c.is_native() && workloads.contains(&c.workload());
        let all: BTreeSet<&Cell> = run.samples.iter().map(|s| &s.cell).filter(native).collect();
        largest(&mut all.into_iter())
    })
}

/// Whether the interval is on one side of the bound, significant among all that are judged together, and beyond the
/// noise; else why not.
pub(super) fn sure(
    effect: &Effect,
    ratio: &Ratio,
    sides: Sides,
    emulated: bool,
    corrected: Option<f64>,
    noise: Option<f64>,
    together: usize,
) -> Result<(), Undecided> {
    let bound = effect.bound;
    if !ratio.surely_above(bound) && !ratio.surely_below(bound) {
        return Err(Undecided::BoundWithin { bound });
    }
    // Where emulation may hide a difference, that is reported first.
    if !shows(effect, ratio, sides, emulated) {
        return Ok(());
    }
    let far = beyond(effect, ratio, sides, emulated);
    if corrected.is_none_or(|p| p >= LEVEL) {
        return Err(Undecided::Chance { far, together, p: corrected });
    }
    let noise = noise.ok_or(Undecided::NoNoise)?;
    match (ratio.value / far).ln().abs() {
        distance if distance <= noise => Err(Undecided::Noise { factor: distance.exp(), far, noise: noise.exp() }),
        _ => Ok(()),
    }
}

/// The verdict for an interval on one side of the bound.
pub(super) fn decide(effect: &Effect, ratio: &Ratio, sides: Sides, emulated: bool) -> (Verdict, String) {
    let bound = effect.bound;
    let above = ratio.surely_above(bound);
    let verdict = if above == (effect.relation == Relation::AtLeast) { Verdict::Holds } else { Verdict::Fails };
    let side = format!("the interval lies wholly {} {bound}", if above { "above" } else { "below" });
    if !emulated {
        return (verdict, side);
    }
    if effect.measure == Measure::RequestSize {
        return (verdict, format!("{side}; request sizes do not depend on the processor's speed"));
    }
    // Emulation makes times longer, energies larger, and rates lower.
    let is_cost = matches!(effect.measure, Measure::Latency | Measure::CpuPerRequest | Measure::EnergyPerRequest);
    let against = above != is_cost;
    let doubt = |why: &str| (Verdict::NotDecidable, format!("not decidable here: emulation; {side}, but {why}"));
    match sides {
        Sides::NativeToNative => (verdict, format!("{side}; both cells are native, so nothing was emulated")),
        Sides::GuestToNative if against => (verdict, format!("{side}, although emulation slows only the guest")),
        Sides::GuestToNative => doubt("emulation slows only the guest and would itself cause that"),
        Sides::GuestToGuest if effect.than.is_some() => {
            doubt("emulation slows what is done for each byte and for each request by different factors")
        }
        Sides::GuestToGuest if shows(effect, ratio, sides, emulated) => {
            (verdict, format!("{side}; both guests were emulated, so the direction counts and not the size"))
        }
        Sides::GuestToGuest => doubt("emulation slows both guests and can hide a difference between them"),
    }
}
