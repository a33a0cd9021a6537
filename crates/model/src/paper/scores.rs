//! A paper's shares of guests in groups of workloads, beside the scores of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Paper, PrintedScore, Verdict};
use crate::stats::Ratio;
use crate::summary::Summary;
use crate::summary::scores::Score;

/// A published score beside a guest's of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScoreJudged {
    /// The published score.
    pub published: PrintedScore,
    /// The guest: `machine/qemu`; `None` where the run has no score.
    pub guest: Option<String>,
    /// Our score.
    pub ratio: Option<Ratio>,
    /// The verdict: `holds` where the whole interval is within the tolerance around the published figure.
    pub verdict: Verdict,
    /// The reason, in a sentence.
    pub reason: String,
}

/// Each published score beside that of each guest.
pub fn scores(paper: &Paper, summary: &Summary) -> Vec<ScoreJudged> {
    let of = |published: &PrintedScore| -> Vec<ScoreJudged> {
        let found = summary.scores.iter().map(|scores| {
            let ours = scores.groups.iter().find(|score| score.group == published.group);
            judged(published, Some(scores.guest.clone()), ours, summary.emulated)
        });
        let found: Vec<ScoreJudged> = found.collect();
        if found.is_empty() { vec![judged(published, None, None, summary.emulated)] } else { found }
    };
    paper.scores.iter().flat_map(of).collect()
}

fn judged(published: &PrintedScore, guest: Option<String>, ours: Option<&Score>, emulated: bool) -> ScoreJudged {
    let ratio = ours.and_then(|score| score.score_ratio);
    let (verdict, reason) = verdict(published, ours, emulated);
    ScoreJudged { published: published.clone(), guest, ratio, verdict, reason }
}

fn verdict(published: &PrintedScore, ours: Option<&Score>, emulated: bool) -> (Verdict, String) {
    let open = |why: String| (Verdict::NotDecidable, why);
    let Some(score) = ours else { return open("this run has no score of the group".into()) };
    if emulated {
        // Even one emulated guest makes it a measurement of the emulator.
        return open(
            "the guest's processor was emulated (TCG): the score is the emulator's, not virtualisation's".into(),
        );
    }
    if !score.lacks.is_empty() {
        return open(format!("the score is without {}", score.lacks.join(", ")));
    }
    let Some(interval) = score.score_ratio.and_then(|ratio| ratio.usable_interval()).filter(|_| score.converged) else {
        return open(score.verdict.clone());
    };
    let (low, high) = (published.ratio - published.tolerance, published.ratio + published.tolerance);
    let around = format!("within {:.0} points of it", published.tolerance * 100.0);
    if interval.above(low) && interval.below(high) {
        (Verdict::Holds, format!("the whole interval is {around}"))
    } else if interval.above(high) || interval.below(low) {
        (Verdict::Fails, format!("no part of the interval is {around}"))
    } else {
        open(format!("the interval is partly {around}"))
    }
}
