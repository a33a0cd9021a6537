//! Whether the effects that a paper states show in a run. Each is a ratio of two cells of the same
//! rounds, with its interval, set against a bound. Only an interval that lies wholly on one side of
//! the bound decides.
//!
//! Under software emulation the guest's processor is many times slower than any, the host's is
//! not. What follows from that:
//!
//! - Guest against native: emulation alone lowers the ratio. A ratio surely above the bound
//!   decides, one below it does not.
//! - Guest against guest: emulation costs both and so pulls their ratio towards 1. It can hide a
//!   difference and not make one, so a ratio decides when it lies beyond the bound and beyond 1.
//! - Native against native: nothing is emulated.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tables::missing;
use super::{Effect, Here, Measure, Paper, Pattern, Relation};
use crate::cell::Cell;
use crate::kind::RunKind;
use crate::result::{Accel, BANDWIDTH, Mark, Run, Sample};
use crate::stats::{Ratio, paired_ratio};
use crate::summary::{SCHEMA_VERSION, Summary, pairs};

/// What a run says of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It shows here.
    Holds,
    /// The contrary shows here.
    Fails,
    /// This run cannot tell.
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

/// An effect, judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judged {
    /// The effect with the published figures.
    pub effect: Effect,
    /// The published numerator over the published denominator.
    pub published_ratio: f64,
    /// Keys of the cells above and below the line.
    pub cells: Option<(String, String)>,
    /// Ours, paired by round.
    pub ratio: Option<Ratio>,
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in a sentence.
    pub reason: String,
}

/// Something that is not the same here as in the paper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Differs {
    /// What.
    pub what: String,
    /// In the paper.
    pub paper: String,
    /// Here.
    pub here: String,
}

/// A run against a paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// Version of this document.
    pub schema_version: String,
    /// Short name of the paper.
    pub paper: String,
    /// The paper.
    pub citation: String,
    /// What the run is of.
    pub study: RunKind,
    /// The run.
    pub run: i64,
    /// Whether the guests ran under software emulation.
    pub emulated: bool,
    /// What may and may not be concluded from the run.
    pub statement: Option<String>,
    /// The two circumstances side by side.
    pub circumstances: Vec<Differs>,
    /// The effects in the paper's order.
    pub effects: Vec<Judged>,
}

/// Judges every effect of a paper by a run.
pub fn judge(paper: &Paper, run: &Run, summary: &Summary) -> Compared {
    let differs =
        |c: &super::Circumstance| Differs { what: c.what.clone(), paper: c.paper.clone(), here: here(c.here, run) };
    Compared {
        schema_version: SCHEMA_VERSION.to_owned(),
        paper: paper.key.clone(),
        citation: paper.citation.clone(),
        study: run.study.clone(),
        run: run.id,
        emulated: summary.emulated,
        statement: summary.statement.clone(),
        circumstances: paper.circumstances.iter().map(differs).collect(),
        effects: paper.effects.iter().map(|effect| one(effect, run, summary)).collect(),
    }
}

/// Which sides an effect compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sides {
    GuestToNative,
    GuestToGuest,
    NativeToNative,
}

struct Found {
    numerator: Cell,
    denominator: Cell,
    sides: Sides,
}

fn one(effect: &Effect, run: &Run, summary: &Summary) -> Judged {
    let judged = |cells: Option<&Found>, ratio: Option<Ratio>, verdict: Verdict, reason: String| Judged {
        effect: effect.clone(),
        published_ratio: effect.published_numerator / effect.published_denominator,
        cells: cells.map(|f| (f.numerator.key(), f.denominator.key())),
        ratio,
        verdict,
        reason,
    };
    let undecided = |cells: Option<&Found>, ratio, reason| judged(cells, ratio, Verdict::NotDecidable, reason);
    let found = match find(effect, summary) {
        Ok(found) => found,
        Err(why) => return undecided(None, None, why),
    };
    let figure = |s: &Sample| match effect.measure {
        Measure::Bandwidth | Measure::SmallRequests => s.result.figure(BANDWIDTH),
        Measure::QueueDepth => s.device().map(|d| d.queue_depth),
    };
    let all: Vec<_> =
        pairs(&run.samples, &found.denominator, &found.numerator, figure).into_iter().map(|(_, p)| p).collect();
    let Some(ratio) = paired_ratio(&all) else {
        let why = "no round has a figure of both cells, or the disk's counters are not visible here";
        return undecided(Some(&found), None, why.to_owned());
    };
    let rule = &summary.convergence;
    if ratio.pairs < rule.min_pairs || ratio.boots < rule.min_boots {
        let why = format!(
            "{} pairs from {} boots, at least {} from {} are wanted",
            ratio.pairs, ratio.boots, rule.min_pairs, rule.min_boots
        );
        return undecided(Some(&found), Some(ratio), why);
    }
    for cell in [&found.numerator, &found.denominator] {
        let cached = summary.cell(&cell.key()).is_some_and(|c| c.marks.get(&Mark::Cached) == Some(&c.samples));
        if cached {
            let why = format!("{} never reached the disk: a cache was measured", cell.key());
            return undecided(Some(&found), Some(ratio), why);
        }
    }
    if run.environment.cap_ratio.is_some() {
        let why = "bandwidth was capped on both sides (--gentle), so the caps would be compared";
        return undecided(Some(&found), Some(ratio), why.to_owned());
    }
    let (verdict, reason) = decide(effect, &ratio, found.sides, summary.emulated);
    judged(Some(&found), Some(ratio), verdict, reason)
}

fn find(effect: &Effect, summary: &Summary) -> Result<Found, String> {
    let cell = |wanted: &Pattern| {
        let cells = summary.cells.iter().map(|c| &c.cell);
        wanted.find(&effect.workload, cells).cloned().ok_or_else(|| missing(summary, wanted, &effect.workload))
    };
    let numerator = cell(&effect.numerator)?;
    let Some(wanted) = &effect.denominator else {
        let Some(explained) = summary.explained.iter().find(|e| e.cell == numerator) else {
            return Err(format!(
                "the requests of {} reached the disk no smaller than native ones, so no control cell ran",
                numerator.key()
            ));
        };
        let control = |asked: &crate::summary::explain::Asked| {
            let measured = summary.cell(&asked.key).map(|c| c.cell.clone());
            measured.ok_or_else(|| {
                let skipped = summary.skipped.iter().find(|s| s.cell.key() == asked.key);
                skipped.map_or_else(|| format!("{} was not measured", asked.key), |s| s.reason.clone())
            })
        };
        let (numerator, denominator) = (control(&explained.size)?, control(&explained.reference)?);
        return Ok(Found { numerator, denominator, sides: Sides::NativeToNative });
    };
    let denominator = cell(wanted)?;
    let sides = match (numerator.is_native(), denominator.is_native()) {
        (true, true) => Sides::NativeToNative,
        (false, false) => Sides::GuestToGuest,
        (false, true) => Sides::GuestToNative,
        (true, false) => return Err("the test of this effect is upside down: native over guest".to_owned()),
    };
    Ok(Found { numerator, denominator, sides })
}

/// The verdict of an interval.
fn decide(effect: &Effect, ratio: &Ratio, sides: Sides, emulated: bool) -> (Verdict, String) {
    let bound = effect.bound;
    let above = ratio.surely_above(bound);
    if !above && !ratio.surely_below(bound) {
        return (Verdict::NotDecidable, format!("the interval has {bound} in it"));
    }
    let verdict = if above == (effect.relation == Relation::AtLeast) { Verdict::Holds } else { Verdict::Fails };
    let side = format!("the interval lies wholly {} {bound}", if above { "above" } else { "below" });
    if !emulated {
        return (verdict, side);
    }
    let doubt = |why: &str| (Verdict::NotDecidable, format!("not decidable here: emulation; {side}, but {why}"));
    match sides {
        Sides::NativeToNative => (verdict, format!("{side}; both cells are native, so nothing was emulated")),
        Sides::GuestToNative if above => (verdict, format!("{side}, although emulation slows the guest alone")),
        Sides::GuestToNative => doubt("emulation slows the guest alone and would do that by itself"),
        Sides::GuestToGuest => {
            let beyond = if above { ratio.surely_above(bound.max(1.0)) } else { ratio.surely_below(bound.min(1.0)) };
            if beyond {
                (verdict, format!("{side}; both guests were emulated, so the direction counts and not the size"))
            } else {
                doubt("emulation slows both guests and can hide a difference between them")
            }
        }
    }
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
        Here::Moved => {
            let dd = run.samples.iter().filter(|s| s.cell.workload().starts_with("dd-"));
            match dd.map(|s| s.work()).map(|w| w.bytes()).max() {
                Some(bytes) => format!("dd with 64 KiB blocks, {} MiB a sample", bytes >> 20),
                None => "no dd ran".to_owned(),
            }
        }
    }
}
