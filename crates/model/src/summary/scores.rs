//! Scores: a guest's share of its baseline in each group of workloads, and in all of them. Workloads name their group
//! ([`crate::result::WorkloadTraits::group`]).
//!
//! A score is the geometric mean of its members' ratios, so that large figures have no more weight (P. Fleming, J.
//! Wallace, How not to lie with statistics: the correct way to summarize benchmark results, CACM 29(3), 1986). It is
//! calculated round by round, over the rounds with all members, like the headline. In the score of the whole system
//! each group has the same weight, however many members it has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Share;
use super::shares::{overall, verdict, weighted};
use crate::cell::{Baseline, Cell};
use crate::run::Run;
use crate::stats::{Convergence, Ratio, converged};

/// Scores of a guest by group, and overall.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scores {
    /// The guest and its subject: `machine/qemu`.
    pub guest: String,
    /// A score for each group, in the order of the run's workloads.
    pub groups: Vec<Score>,
    /// Geometric mean of the groups' scores with equal weights; `None` with one group only, or no round with all
    /// members.
    pub whole_ratio: Option<Ratio>,
    /// Whether it is converged.
    pub whole_converged: bool,
}

/// Score of a guest in a group of workloads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GroupScore")]
pub struct Score {
    /// The group.
    pub group: String,
    /// Geometric mean of the members' ratios, over the rounds with all of them; `None` without such a round.
    pub score_ratio: Option<Ratio>,
    /// Whether it is converged.
    pub converged: bool,
    /// `converged`, or why not, in words.
    pub verdict: String,
    /// Its members.
    pub members: Vec<Member>,
    /// Workloads of the group that the run should have measured and did not; they are not in the score.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
}

/// A workload of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ScoreMember")]
pub struct Member {
    /// The workload.
    pub workload: String,
    /// Key of the cell.
    pub key: String,
    /// Its share, as in the cell's share.
    pub share_ratio: Ratio,
    /// Whether that is converged.
    pub converged: bool,
}

/// The group of a cell's workload.
fn group<'a>(run: &'a Run, cell: &Cell) -> Option<&'a str> {
    run.workloads.iter().find(|w| w.name == cell.workload())?.group.as_deref()
}

/// The scores of a run: of each guest with two compared workloads of any groups.
pub(super) fn scores(run: &Run, shares: &[Share], baseline: &Baseline, rule: &Convergence) -> Vec<Scores> {
    let grouped: Vec<&Share> = shares.iter().filter(|s| s.cell.is_alone() && group(run, &s.cell).is_some()).collect();
    let guests = distinct(grouped.iter().map(|s| s.cell.place_key()));
    let of = |guest: String| {
        let members: Vec<&Share> = grouped.iter().filter(|s| s.cell.place_key() == guest).copied().collect();
        (members.len() > 1).then(|| scores_of(run, guest, &members, baseline, rule))
    };
    guests.into_iter().filter_map(of).collect()
}

fn scores_of(run: &Run, guest: String, shares: &[&Share], baseline: &Baseline, rule: &Convergence) -> Scores {
    let groups: Vec<Score> = distinct(run.workloads.iter().filter_map(|w| w.group.clone()))
        .into_iter()
        .filter_map(|name| score(run, (&guest, name), shares, baseline, rule))
        .collect();
    let weight = |share: &Share| {
        let own = groups.iter().find(|score| group(run, &share.cell) == Some(&score.group))?;
        Some(1.0 / own.members.len() as f64)
    };
    let bases: Vec<(Cell, &Share, f64)> =
        shares.iter().filter_map(|s| Some((baseline.of(&s.cell)?, *s, weight(s)?))).collect();
    let whole = weighted(run, bases.iter().map(|(base, s, weight)| (base, &s.cell, *weight)));
    let whole = whole.filter(|_| groups.iter().filter(|score| !score.members.is_empty()).count() > 1);
    Scores { guest, whole_converged: whole.is_some_and(|ratio| converged(&ratio, rule)), whole_ratio: whole, groups }
}

/// The score of a group; `None` where the run has no member of it in this guest, measured or not.
fn score(
    run: &Run,
    (guest, name): (&str, String),
    shares: &[&Share],
    baseline: &Baseline,
    rule: &Convergence,
) -> Option<Score> {
    let own: Vec<&Share> = shares.iter().filter(|s| group(run, &s.cell) == Some(&name)).copied().collect();
    let lacks = run.skipped.iter().map(|skipped| &skipped.cell).filter(|cell| {
        let measured = own.iter().any(|share| share.cell == **cell);
        cell.place_key() == guest && group(run, cell) == Some(&name) && !measured
    });
    let lacks: Vec<String> = lacks.map(|cell| cell.workload().to_owned()).collect();
    if own.is_empty() && lacks.is_empty() {
        return None;
    }
    let bases: Vec<(Cell, &Share)> = own.iter().filter_map(|s| Some((baseline.of(&s.cell)?, *s))).collect();
    let ratio = overall(run, bases.iter().map(|(base, s)| (base, &s.cell)));
    let member = |share: &&Share| Member {
        workload: share.cell.workload().to_owned(),
        key: share.key.clone(),
        share_ratio: share.share_ratio,
        converged: share.converged,
    };
    Some(Score {
        group: name,
        converged: ratio.is_some_and(|ratio| converged(&ratio, rule)),
        verdict: ratio.map_or_else(|| "no round has all of its members".to_owned(), |ratio| verdict(&ratio, rule)),
        score_ratio: ratio,
        members: own.iter().map(member).collect(),
        lacks,
    })
}

/// Without duplicates, in order of appearance.
fn distinct(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = Vec::new();
    all.for_each(|name| {
        if !seen.contains(&name) {
            seen.push(name);
        }
    });
    seen
}
