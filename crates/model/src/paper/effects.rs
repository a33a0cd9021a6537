//! Whether a paper's effects show in a run. Each is a ratio of two cells of the same rounds, with its interval,
//! compared with a bound. It is decided only where the whole interval lies on one side of the bound, the effect is
//! significant among all effects judged together (Holm, [`crate::stats::multiple`]), and it is further from the bound
//! than the noise of the run's native rounds.
//!
//! Under software emulation the guest's processor is many times slower, the host's is not. Therefore:
//!
//! - Guest against native: emulation alone lowers the ratio. A ratio certainly above the bound is decided, one below is
//!   not. Where less is better (times) it raises the ratio, and the other way round.
//! - Guest against guest: emulation slows both and moves their ratio towards 1. It can hide a difference but not create
//!   one, so a ratio is decided when it lies beyond the bound and beyond 1.
//! - How a ratio of guests changes with the size of requests is not decided: emulation slows what is done for a byte and
//!   for a request by different factors.
//! - Native against native: nothing is emulated.
//! - The size of requests depends on drivers and controllers only, not on the processor's speed.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sure::{EffectCells, Sides, Undecided, Verdict, beyond, decide, figure, metered, noise, sure};
use super::tables::missing;
use super::transfers::{Transferred, transferred};
use super::{
    Effect, EventTable, Here, Measure, Paper, Pattern, Reading, ScoreJudged, SeriesTable, Unmeasured, events, scores,
    series,
};
use crate::cell::{Cache, Cell};
use crate::kind::RunKind;
use crate::result::{Accel, Mark, Sample};
use crate::run::Run;
use crate::stats::multiple::{holm, p_value};
use crate::stats::{Pair, Ratio, paired_ratio};
use crate::summary::components::{CellComponents, by_cell};
use crate::summary::energy::CellEnergy;
use crate::summary::{SCHEMA_VERSION, Summary, pairs};

/// An effect with its verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judged {
    /// The effect with the published figures.
    pub effect: Effect,
    /// Published numerator over published denominator, where they are printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_ratio: Option<f64>,
    /// Keys of the numerator's and the denominator's cell.
    pub cells: Option<(String, String)>,
    /// Our ratio, paired by round.
    pub ratio: Option<Ratio>,
    /// p-value against the bound; for guests under emulation against the bound or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_value: Option<f64>,
    /// The same corrected for all effects judged together (Holm): significant below 0.05.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected_p_value: Option<f64>,
    /// The run's noise: two equal native cells may have this ratio, or its inverse, by chance. An effect that is no
    /// further from its bound is not decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_ratio: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, in a sentence.
    pub reason: String,
}

/// A difference between the paper's circumstances and ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Differs {
    /// Name of the circumstance.
    pub what: String,
    /// In the paper.
    pub paper: String,
    /// Here.
    pub here: String,
}

/// A run compared with a paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// Version of this document.
    pub schema_version: String,
    /// Short name of the paper.
    pub paper: String,
    /// The paper's citation.
    pub citation: String,
    /// Kind of the run.
    pub study: RunKind,
    /// The run.
    pub run: i64,
    /// Whether the guests ran under software emulation.
    pub emulated: bool,
    /// What may and may not be concluded from the run.
    pub statement: Option<String>,
    /// The paper's circumstances beside ours.
    pub circumstances: Vec<Differs>,
    /// Our readings of ambiguous words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Reading>,
    /// Number of effects judged together and corrected for.
    #[serde(default)]
    pub judged_together: u32,
    /// The effects in the paper's order.
    pub effects: Vec<Judged>,
    /// Its scores of groups of workloads, beside ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<ScoreJudged>,
    /// Its transfers of host and guest, beside ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfers: Vec<Transferred>,
    /// Its figures of repeated runs, beside ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<SeriesTable>,
    /// Its events by component, beside our CPU time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventTable>,
    /// Its figures that are compared with nothing here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmeasured: Vec<Unmeasured>,
    /// Energy of a request in the cells whose energy is judged; empty where the paper has no such effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub energy: Vec<CellEnergy>,
    /// CPU time by component, of the cells whose processors were sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<CellComponents>,
}

/// Judges all effects of a paper that a run's study measures.
pub fn judge(paper: &Paper, run: &Run, summary: &Summary) -> Compared {
    let differs =
        |c: &super::Circumstance| Differs { what: c.what.clone(), paper: c.paper.clone(), here: here(c.here, run) };
    let study = run.kind.study();
    let effects = paper.effects.iter().filter(|effect| paper.covers(&effect.studies, study));
    let mut trials: Vec<Trial<'_>> = effects.map(|effect| try_one(effect, run, summary)).collect();
    let together: Vec<usize> = (0..trials.len()).filter(|&i| trials[i].outcome.is_ok()).collect();
    let p: Vec<f64> = together.iter().map(|&i| trials[i].p_value.unwrap_or(1.0)).collect();
    for (&i, corrected) in together.iter().zip(holm(&p)) {
        trials[i].corrected = Some(corrected);
    }
    Compared {
        schema_version: SCHEMA_VERSION.to_owned(),
        paper: paper.key.clone(),
        citation: paper.citation.clone(),
        study: run.kind.clone(),
        run: run.id,
        emulated: summary.emulated,
        statement: summary.statement.clone(),
        circumstances: paper.circumstances.iter().map(differs).collect(),
        readings: paper.readings_for(study),
        judged_together: together.len() as u32,
        scores: scores(paper, summary),
        transfers: transferred(paper, summary),
        series: series(paper, summary),
        events: events(paper, run, summary),
        unmeasured: paper.unmeasured.clone(),
        energy: energy(&trials, summary),
        components: by_cell(summary),
        effects: trials.into_iter().map(|trial| trial.judged(summary.emulated, together.len())).collect(),
    }
}

/// The energy of the cells in effects of energy, each once.
fn energy(trials: &[Trial<'_>], summary: &Summary) -> Vec<CellEnergy> {
    let of_energy = trials.iter().filter(|trial| trial.effect.measure == Measure::EnergyPerRequest);
    let cells = of_energy.filter_map(|trial| trial.found.as_ref()).flat_map(|of| [&of.numerator, &of.denominator]);
    let mut keys: Vec<String> = Vec::new();
    for key in cells.map(Cell::key) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.iter().filter_map(|key| summary.cell(key)).map(CellEnergy::of).collect()
}

/// An effect before the correction for multiple tests.
struct Trial<'a> {
    effect: &'a Effect,
    found: Option<EffectCells>,
    ratio: Option<Ratio>,
    p_value: Option<f64>,
    corrected: Option<f64>,
    /// Logarithm of [`Judged::noise_ratio`].
    noise: Option<f64>,
    /// Why it cannot be judged, if so.
    outcome: Result<(), Undecided>,
}

impl Trial<'_> {
    fn judged(self, emulated: bool, together: usize) -> Judged {
        let (verdict, reason) = match (&self.outcome, &self.ratio, &self.found) {
            (Err(why), ..) => (Verdict::NotDecidable, why.to_string()),
            (Ok(()), Some(ratio), Some(found)) => {
                let sure = sure(self.effect, ratio, found.sides, emulated, self.corrected, self.noise, together);
                sure.map_or_else(
                    |why| (Verdict::NotDecidable, why.to_string()),
                    |()| decide(self.effect, ratio, found.sides, emulated),
                )
            }
            _ => (Verdict::NotDecidable, "there is no ratio".to_owned()),
        };
        Judged {
            effect: self.effect.clone(),
            published_ratio: self.effect.published().map(|(above, below)| above / below),
            cells: self.found.map(|f| (f.numerator.key(), f.denominator.key())),
            ratio: self.ratio,
            p_value: self.p_value,
            corrected_p_value: self.corrected,
            noise_ratio: self.noise.map(f64::exp),
            verdict,
            reason,
        }
    }
}

fn try_one<'a>(effect: &'a Effect, run: &Run, summary: &Summary) -> Trial<'a> {
    let mut trial =
        Trial { effect, found: None, ratio: None, p_value: None, corrected: None, noise: None, outcome: Ok(()) };
    trial.outcome = fill(&mut trial, run, summary);
    trial
}

fn fill(trial: &mut Trial<'_>, run: &Run, summary: &Summary) -> Result<(), Undecided> {
    let effect = trial.effect;
    let found = trial.found.insert(find(effect, summary)?);
    if effect.measure == Measure::EnergyPerRequest {
        metered(run, &[&found.numerator, &found.denominator])?;
    }
    let of = |s: &Sample| figure(effect.measure, run, s);
    let (cells, rule) = ((&found.denominator, &found.numerator), &summary.convergence);
    let mut rounds = pairs(&run.samples, cells, rule, of);
    let second = effect.second().map(|second| find(&second, summary)).transpose()?;
    let mut cells = vec![&found.numerator, &found.denominator];
    if let Some(second) = &second {
        let by_round: BTreeMap<u32, Pair> =
            pairs(&run.samples, (&second.denominator, &second.numerator), rule, of).into_iter().collect();
        rounds =
            rounds.into_iter().filter_map(|(round, pair)| Some((round, over(pair, *by_round.get(&round)?)))).collect();
        cells.extend([&second.numerator, &second.denominator]);
    }
    let all: Vec<_> = rounds.into_iter().map(|(_, p)| p).collect();
    let ratio = paired_ratio(&all).ok_or(Undecided::NoPair)?;
    trial.ratio = Some(ratio);
    let least = (rule.min_pairs, rule.min_boots);
    if ratio.pairs < least.0 || ratio.boots < least.1 {
        return Err(Undecided::TooFew { pairs: ratio.pairs, boots: ratio.boots, least });
    }
    for cell in cells {
        let row = summary.cell(&cell.key());
        let marked = |mark: Mark| row.and_then(|row| Some((*row.marks.get(&mark)?, row.samples)));
        if marked(Mark::Cached).is_some_and(|(marked, all)| marked == all) {
            return Err(Undecided::Cached(cell.key()));
        }
        if marked(Mark::Saturated).is_some_and(|(marked, all)| 2 * marked > all) {
            return Err(Undecided::Saturated(cell.key()));
        }
    }
    if run.environment.cap_ratio.is_some() {
        return Err(Undecided::Capped);
    }
    // Only the direction is tested: on the wrong side the effect is absent.
    let bound = beyond(effect, &ratio, found.sides, summary.emulated);
    let there = (ratio.value > effect.bound) == (ratio.value > bound);
    trial.p_value = p_value(&all, bound).map(|p| if there { p } else { 1.0 });
    trial.noise = noise(effect, found, run, ratio.pairs);
    Ok(())
}

/// A ratio divided by another.
fn over(first: Pair, second: Pair) -> Pair {
    Pair { boot: first.boot, base: first.base * second.test, test: first.test * second.base }
}

fn find(effect: &Effect, summary: &Summary) -> Result<EffectCells, Undecided> {
    let cell = |wanted: &Pattern, workload: &str| {
        let cells = summary.cells.iter().map(|c| &c.cell);
        wanted.find(workload, cells).cloned().ok_or_else(|| Undecided::NotRun(missing(summary, wanted, workload)))
    };
    let numerator = cell(&effect.numerator, &effect.workload)?;
    let Some(wanted) = &effect.denominator else {
        let Some(explained) = summary.explained.iter().find(|e| e.cell == numerator) else {
            return Err(Undecided::NoControl(numerator.key()));
        };
        let control = |asked: &crate::summary::explain::ChainCell| {
            let measured = summary.cell(&asked.key).map(|c| c.cell.clone());
            measured.ok_or_else(|| {
                let skipped = summary.skipped.iter().find(|s| s.cell.key() == asked.key);
                let not_measured = || Undecided::NotMeasured(asked.key.clone());
                skipped.map_or_else(not_measured, |s| Undecided::NotRun(s.reason.clone()))
            })
        };
        let (numerator, denominator) = (control(&explained.size)?, control(&explained.reference)?);
        return Ok(EffectCells { numerator, denominator, sides: Sides::NativeToNative });
    };
    let denominator = cell(wanted, effect.below())?;
    let sides = match (numerator.is_native(), denominator.is_native()) {
        (true, true) => Sides::NativeToNative,
        (false, false) => Sides::GuestToGuest,
        (false, true) => Sides::GuestToNative,
        (true, false) => return Err(Undecided::UpsideDown),
    };
    Ok(EffectCells { numerator, denominator, sides })
}

fn here(what: Here, run: &Run) -> String {
    let e = &run.environment;
    match what {
        Here::Hypervisor => {
            let qemu = e.qemu.as_deref().unwrap_or("no QEMU");
            match e.accel {
                Some(Accel::Tcg) => format!("{qemu}, software emulation (TCG): the guest's processor is emulated"),
                Some(Accel::Kvm) => format!("{qemu}, KVM"),
                None => format!("{qemu}, no guest ran"),
            }
        }
        Here::Cpu => format!("{}, {} CPUs, {} GiB of memory", e.cpu, e.cpus, e.memory_bytes >> 30),
        Here::Sides => format!("{} CPU and {} MiB on both sides ({})", e.vcpus, e.memory_mib, e.native_limits),
        Here::Storage => e.backing.clone(),
        Here::CacheModes => {
            let modes: BTreeSet<Cache> =
                run.samples.iter().filter_map(|s| s.cell.attachment()).map(|a| a.cache).collect();
            match modes.len() {
                0 => "no guest had a disk".to_owned(),
                _ => modes.iter().map(Cache::to_string).collect::<Vec<_>>().join(", "),
            }
        }
        Here::Moved => {
            let dd = run.samples.iter().filter(|s| s.cell.workload().starts_with("dd-"));
            match dd.map(|s| s.work()).map(|w| w.bytes()).max() {
                Some(bytes) => format!("dd with 64 KiB blocks, {} MiB a sample", bytes >> 20),
                None => "no dd ran".to_owned(),
            }
        }
    }
}
