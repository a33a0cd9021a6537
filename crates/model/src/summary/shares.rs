//! Shares of baselines: pairs of samples by round, shares, and means of several shares.

use std::collections::{BTreeMap, BTreeSet};

use super::grade::grade;
use super::judge::{Collected, FigureKey, Judge, as_many, collect, judge_between, judge_of, of_lead};
use super::{CellNoise, FigureShare, Share};
use crate::cell::{Baseline, Cell};
use crate::figure::Compared;
use crate::result::{Mark, Sample, WorkloadTraits};
use crate::run::Run;
use crate::stats::{self, Convergence, Pair, Ratio, converged, paired_difference, paired_ratio};

/// The share so far of one cell, for [`crate::study::next`]; `None` without a baseline or usable pairs.
pub fn share_of(
    samples: &[Sample],
    workloads: &[WorkloadTraits],
    baseline: &Baseline,
    cell: &Cell,
    rule: &Convergence,
) -> Option<Ratio> {
    let base = baseline.of(cell).filter(|base| base != cell)?;
    let judge = judge_between(workloads, &base, cell)?;
    paired_ratio(&unrounded(&pairs(samples, (&base, cell), rule, |s| judge.rising(s))))
}

/// Fewest other pairs without which no disturbed ones are left out; more where the study asks for more.
const LEAST_CLEAN: u32 = 5;

/// Pairs of two cells with their rounds: comparable samples of the same round and boot that both have the figure. A
/// round that was interrupted and resumed has two boots, perhaps days apart: its halves are no pair. Disturbed ones are
/// left out where as many others are there as the rule asks for, and at least [`LEAST_CLEAN`].
pub fn pairs(
    samples: &[Sample],
    cells: (&Cell, &Cell),
    rule: &Convergence,
    figure: impl Fn(&Sample) -> Option<f64>,
) -> Vec<(u32, Pair)> {
    parted(samples, cells, rule, figure).0
}

/// The pairs that count, and the rounds of those that are left out. Leaving out must not make a share one with too few
/// pairs or boots: no later round may come.
fn parted(
    samples: &[Sample],
    cells: (&Cell, &Cell),
    rule: &Convergence,
    figure: impl Fn(&Sample) -> Option<f64>,
) -> (Vec<(u32, Pair)>, Vec<u32>) {
    let all = all_pairs(samples, cells, figure);
    let clean = || all.iter().filter(|(.., disturbed)| !disturbed);
    let boots: BTreeSet<u32> = clean().map(|(_, pair, _)| pair.boot).collect();
    let enough = clean().count() >= rule.min_pairs.max(LEAST_CLEAN) as usize && boots.len() >= rule.min_boots as usize;
    let (left_out, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|(.., disturbed)| enough && *disturbed);
    let rounds: BTreeSet<u32> = left_out.into_iter().map(|(round, ..)| round).collect();
    (kept.into_iter().map(|(round, pair, _)| (round, pair)).collect(), rounds.into_iter().collect())
}

/// All pairs with their rounds, and whether each is disturbed: processes of others kept the processors busy on either
/// side. What tells is the time that those processes used, never the figure. A stalled one is not taken for disturbed.
fn all_pairs(
    samples: &[Sample],
    (base, test): (&Cell, &Cell),
    figure: impl Fn(&Sample) -> Option<f64>,
) -> Vec<(u32, Pair, bool)> {
    let by_round: BTreeMap<u32, &Sample> = comparable(samples, base).map(|s| (s.round, s)).collect();
    let pair = |ours: &Sample| {
        let theirs = by_round.get(&ours.round).filter(|theirs| theirs.boot == ours.boot)?;
        let pair = Pair { boot: ours.boot, base: figure(theirs)?, test: figure(ours)? };
        let has = |mark| ours.marks.contains(&mark) || theirs.marks.contains(&mark);
        Some((ours.round, pair, has(Mark::ProcessorsBusy) && !has(Mark::Stalled)))
    };
    comparable(samples, test).filter_map(pair).collect()
}

/// The distinct cells in the order in which they first ran.
pub(crate) fn cells(samples: &[Sample]) -> Vec<&Cell> {
    let mut seen = BTreeSet::new();
    samples.iter().map(|s| &s.cell).filter(|cell| seen.insert(*cell)).collect()
}

/// The comparable samples of a cell.
pub(super) fn comparable<'a>(samples: &'a [Sample], cell: &'a Cell) -> impl Iterator<Item = &'a Sample> {
    samples.iter().filter(move |s| s.cell == *cell && s.is_comparable())
}

/// Geometric mean over several comparisons (base, test), calculated within each round in which all of them have a pair,
/// so that a disturbance of a whole round counts once. Converged cells are not repeated; without a round with all of
/// them there is no overall figure.
pub(crate) fn overall<'a>(run: &Run, of: impl Iterator<Item = (&'a Cell, &'a Cell)>) -> Option<Ratio> {
    weighted(run, of.map(|(base, test)| (base, test, 1.0)))
}

/// The same with weights: (base, test, weight).
pub(super) fn weighted<'a>(run: &Run, of: impl Iterator<Item = (&'a Cell, &'a Cell, f64)>) -> Option<Ratio> {
    let mut rounds: BTreeMap<u32, Vec<(Pair, f64)>> = BTreeMap::new();
    let (mut count, mut weights) = (0, 0.0);
    let rule = run.study.repeat.convergence();
    for (base, test, weight) in of {
        count += 1;
        weights += weight;
        let judge = judge_between(&run.workloads, base, test)?;
        for (round, pair) in pairs(&run.samples, (base, test), &rule, |s| judge.rising(s)) {
            rounds.entry(round).or_default().push((pair, weight));
        }
    }
    let whole: Vec<Pair> = rounds
        .values()
        .filter(|pairs| pairs.len() == count)
        .map(|pairs| {
            let logs: f64 = pairs.iter().map(|(p, weight)| weight * (p.test / p.base).ln()).sum();
            Pair { boot: pairs[0].0.boot, base: 1.0, test: (logs / weights).exp() }
        })
        .collect();
    paired_ratio(&whole)
}

/// The pairs without their rounds.
pub(super) fn unrounded(pairs: &[(u32, Pair)]) -> Vec<Pair> {
    pairs.iter().map(|&(_, p)| p).collect()
}

/// The noise of each cell: its rounds 0 and 1, 2 and 3, … compared with each other. For an A/A run (`vmio tax
/// --noise`), though it works for any run.
pub fn noise(run: &Run) -> Vec<CellNoise> {
    let of = |cell: &Cell| {
        let judge = judge_of(&run.workloads, cell);
        let rounds: BTreeMap<u32, &Sample> = comparable(&run.samples, cell).map(|s| (s.round, s)).collect();
        let pairs: Vec<Pair> = rounds
            .iter()
            .filter(|(round, _)| *round % 2 == 0)
            .filter_map(|(round, a)| {
                let b = rounds.get(&round.checked_add(1)?)?;
                Some(Pair { boot: a.boot, base: judge.rising(a)?, test: judge.rising(b)? })
            })
            .collect();
        Some(CellNoise { key: cell.key(), noise: stats::noise(&pairs)? })
    };
    cells(&run.samples).into_iter().filter_map(of).collect()
}

/// A cell's share of its baseline; `None` without a baseline, or pairs.
pub(super) fn share(run: &Run, cell: &Cell, baseline: &Baseline, rule: &Convergence) -> Option<Share> {
    let base = baseline.of(cell).filter(|base| base != cell)?;
    let judge = judge_between(&run.workloads, &base, cell)?;
    let (rounds, left_out_rounds) = parted(&run.samples, (&base, cell), rule, |s| judge.rising(s));
    let ratio = paired_ratio(&unrounded(&rounds))?;
    let latency = all_pairs(&run.samples, (&base, cell), |s| s.result.latency()?.at(50.0));
    let latency = latency.into_iter().filter(|(round, ..)| !left_out_rounds.contains(round));
    let latency: Vec<Pair> = latency.map(|(_, pair, _)| pair).collect();
    let converged = converged(&ratio, rule);
    let outlier_rounds: Vec<u32> =
        stats::outlying_pairs(&unrounded(&rounds)).into_iter().map(|i| rounds[i].0).collect();
    let graded = grade(run, (&base, cell), (&ratio, converged, !outlier_rounds.is_empty()), rule);
    let stalled = |round: &u32| {
        let of_round = |s: &&Sample| s.round == *round && (s.cell == base || s.cell == *cell);
        run.samples.iter().filter(of_round).any(|s| s.marks.contains(&Mark::Stalled))
    };
    Some(Share {
        key: cell.key(),
        baseline: base.key(),
        cell: cell.clone(),
        share_ratio: ratio,
        latency_p50_ratio: paired_ratio(&latency),
        figures: figure_shares(run, &judge, (&base, cell), &left_out_rounds),
        figure: judge.figure.name,
        converged,
        verdict: verdict(&ratio, rule),
        graded: Some(graded),
        outlier_rounds,
        stalled_rounds: rounds.iter().map(|(round, _)| *round).filter(stalled).collect(),
        left_out_rounds,
    })
}

/// Each compared figure of the cell and its baseline, without these rounds.
fn figure_shares(run: &Run, judge: &Judge, (base, cell): (&Cell, &Cell), left_out: &[u32]) -> Vec<FigureShare> {
    let of = |cell: &Cell| {
        let samples = comparable(&run.samples, cell);
        // With different numbers of actors only the leading ones are compared.
        if as_many(base, cell) {
            return collect(samples, |s| judge.all(s, &run.workloads));
        }
        collect(samples, |s| of_lead(s, &run.workloads))
    };
    let bases: BTreeMap<FigureKey, Collected> = of(base).into_iter().map(|base| (base.key(), base)).collect();
    let share = |test: Collected| {
        let base = bases.get(&test.key()).filter(|base| base.figure == test.figure)?;
        let pairs: Vec<Pair> = test
            .values
            .iter()
            .filter(|(round, _)| !left_out.contains(round))
            .filter_map(|(round, ours)| {
                let theirs = base.values.get(round).filter(|theirs| theirs.boot == ours.boot)?;
                Some(Pair { boot: ours.boot, base: theirs.value.typical(), test: ours.value.typical() })
            })
            .collect();
        let (ratio, difference) = match test.figure.compared {
            Compared::Ratio => (Some(paired_ratio(&pairs)?), None),
            Compared::Difference => (None, Some(paired_difference(&pairs)?)),
            Compared::No => return None,
        };
        let (unit, better) = (test.figure.unit, test.figure.better);
        Some(FigureShare { name: test.figure.name, labels: test.labels, unit, better, ratio, difference })
    };
    of(cell).into_iter().filter_map(share).collect()
}

/// `converged`, or what is missing.
pub(super) fn verdict(ratio: &Ratio, rule: &Convergence) -> String {
    let mut missing = Vec::new();
    if ratio.pairs < rule.min_pairs {
        missing.push(format!("{} of at least {} pairs", ratio.pairs, rule.min_pairs));
    }
    if ratio.boots < rule.min_boots {
        missing.push(format!("{} of at least {} boots", ratio.boots, rule.min_boots));
    }
    match ratio.interval.map(|i| i.half_width()) {
        // The width of an interval from too few pairs is not meaningful.
        _ if !missing.is_empty() => {}
        _ if rule.is_narrow(ratio) => {}
        Some(_) if ratio.usable_interval().is_none() => {
            missing.push("two pairs are too few for an interval".to_owned())
        }
        Some(w) => {
            let [has, asked] = [w, rule.width_at(ratio.value)].map(|width| width * 100.0);
            // With as many digits as make them differ.
            let shown = |decimals: usize| [has, asked].map(|width| format!("{width:.decimals$}"));
            let [has, asked] = (1..4).map(shown).find(|[has, asked]| has != asked).unwrap_or_else(|| shown(4));
            missing.push(format!("±{has} points where ±{asked} are required"));
        }
        None => missing.push("no interval".to_owned()),
    }
    if missing.is_empty() { "converged".to_owned() } else { format!("not converged: {}", missing.join(", ")) }
}
