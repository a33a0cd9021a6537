//! How far a share can be relied on, and the smallest differences that a run's machine resolves.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Share;
use super::judge::judge_of;
use crate::cell::{Baseline, Cell};
use crate::result::Sample;
use crate::run::Run;
use crate::stats::multiple::rounds_noise;
use crate::stats::{Convergence, Ratio};

/// How far a share can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Grade {
    /// Converged, without reservation.
    A,
    /// Converged, with [`Reservation`]s.
    B,
    /// Not converged.
    C,
}

impl Grade {
    /// The best one first.
    pub const ALL: [Grade; 3] = [Grade::A, Grade::B, Grade::C];
}

impl std::fmt::Display for Grade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Grade::A => "A",
            Grade::B => "B",
            Grade::C => "C",
        })
    }
}

/// A reservation about a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reservation {
    /// Samples of the cell or its baseline have a mark: others at work, a cache, a stall.
    Marks,
    /// The ratio of a round is an outlier.
    Outliers,
    /// The baseline scatters from round to round by more than the required width.
    Noise,
}

/// Grade of a share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Graded {
    /// The grade.
    pub grade: Grade,
    /// Reservations, also for a share that is not converged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<Reservation>,
    /// Ratio (or its inverse) of two cells like the baseline by chance, in as many rounds; `None` with fewer than two
    /// rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_ratio: Option<f64>,
}

/// Grades a share.
pub(super) fn grade(
    run: &Run,
    (base, cell): (&Cell, &Cell),
    (share, converged, outliers): (&Ratio, bool, bool),
    rule: &Convergence,
) -> Graded {
    let marked = run.samples.iter().any(|s| (s.cell == *cell || s.cell == *base) && !s.marks.is_empty());
    let noise = noise(run, base, share.pairs);
    let noisy = noise.is_some_and(|noise| share.value * noise.exp_m1() > rule.width_at(share.value));
    let all = [(marked, Reservation::Marks), (outliers, Reservation::Outliers), (noisy, Reservation::Noise)];
    let reservations: Vec<Reservation> = all.into_iter().filter(|(is, _)| *is).map(|(_, why)| why).collect();
    let grade = match (converged, reservations.is_empty()) {
        (false, _) => Grade::C,
        (true, false) => Grade::B,
        (true, true) => Grade::A,
    };
    Graded { grade, reservations, noise_ratio: noise.map(f64::exp) }
}

/// Logarithm of the noise of a cell's rounds, by the figure that judges it.
fn noise(run: &Run, cell: &Cell, rounds: u32) -> Option<f64> {
    let judge = judge_of(&run.workloads, cell);
    cell_noise(run, cell, rounds, |s| judge.rising(s))
}

/// Logarithm of the noise of a cell's rounds by a figure: see [`rounds_noise`].
pub(crate) fn cell_noise(run: &Run, cell: &Cell, rounds: u32, figure: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
    let all: Vec<f64> = run.samples.iter().filter(|s| s.cell == *cell).filter_map(figure).collect();
    rounds_noise(&all, rounds)
}

/// Smallest differences that a run's machine resolves, by the scatter of its baselines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TellsApart {
    /// The baseline with the least scatter.
    pub finest: CellNoiseRatio,
    /// The baseline with the most scatter.
    pub coarsest: CellNoiseRatio,
    /// The same in a sentence.
    pub text: String,
}

/// A cell and its noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellNoiseRatio {
    /// Key of the cell.
    pub key: String,
    /// Ratio (or its inverse) of two such cells by chance, in as many rounds.
    pub noise_ratio: f64,
}

/// The smallest differences of a run; `None` where no baseline of its shares has two rounds.
pub(super) fn tells_apart(run: &Run, shares: &[Share], baseline: &Baseline) -> Option<TellsApart> {
    let bases: BTreeSet<Cell> = shares.iter().filter_map(|share| baseline.of(&share.cell)).collect();
    let of = |cell: &Cell| {
        let rounds = run.samples.iter().filter(|s| s.cell == *cell).count() as u32;
        Some(CellNoiseRatio { key: cell.key(), noise_ratio: noise(run, cell, rounds)?.exp() })
    };
    let mut all: Vec<CellNoiseRatio> = bases.iter().filter_map(of).collect();
    all.sort_by(|a, b| a.noise_ratio.total_cmp(&b.noise_ratio));
    let (finest, coarsest) = (all.first()?.clone(), all.last()?.clone());
    let shown = |noise: &CellNoiseRatio| format!("{} ({})", percent(noise.noise_ratio - 1.0), noise.key);
    let range = if finest == coarsest { shown(&finest) } else { format!("{} to {}", shown(&finest), shown(&coarsest)) };
    let graded = |share: &Share, grade| share.graded.as_ref().is_some_and(|graded| graded.grade == grade);
    let grades: Vec<String> = Grade::ALL
        .into_iter()
        .map(|grade| (grade, shares.iter().filter(|share| graded(share, grade)).count()))
        .filter(|(_, n)| *n > 0)
        .map(|(grade, n)| format!("{n} {grade}"))
        .collect();
    let text = format!(
        "Noise: two equal set-ups differ by up to {range} by chance in this many rounds. Smaller differences count \
         only between cells run side by side. Shares by grade: {}.",
        grades.join(", ")
    );
    Some(TellsApart { finest, coarsest, text })
}

/// An upper limit in per cent, in whole points where that is exact enough.
fn percent(ratio: f64) -> String {
    match ratio * 100.0 {
        small if small < 10.0 => format!("{small:.1} %"),
        large => format!("{large:.0} %"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::result::Mark;
    use crate::summary::summarise;
    use crate::testing::{Bench, native, virtio};

    fn run(scatter: f64) -> Run {
        let cells = [(native("device", "seq-read"), 400e6), (virtio("device", "seq-read"), 200e6)];
        let bench = cells.into_iter().fold(Bench::new(), |bench, (cell, rate)| bench.cell(cell, rate));
        bench.rounds(6).scatter(scatter).run()
    }

    fn graded(run: &Run) -> Graded {
        summarise(run).shares[0].graded.clone().unwrap()
    }

    #[test]
    fn a_share_is_graded_by_what_is_known_and_by_what_was_beside() {
        let calm = graded(&run(0.005));
        assert_eq!((calm.grade, &calm.reservations[..]), (Grade::A, &[][..]), "{calm:?}");
        assert!(calm.noise_ratio.unwrap() < 1.02, "{calm:?}");
        // A mark on either side is enough.
        for native_side in [true, false] {
            let mut marked = run(0.005);
            let sample = marked.samples.iter_mut().find(|s| s.cell.is_native() == native_side).unwrap();
            sample.marks.push(Mark::Cached);
            assert_eq!((graded(&marked).grade, graded(&marked).reservations), (Grade::B, vec![Reservation::Marks]));
        }
        // Both sides vary alike: the share is converged, and the noise is still reported.
        let mut restless = run(0.005);
        for s in &mut restless.samples {
            let factor = [1.0, 1.6][s.round as usize % 2];
            s.result.amend(|w| w.seconds *= factor);
        }
        let restless = graded(&restless);
        assert_eq!((restless.grade, &restless.reservations[..]), (Grade::B, &[Reservation::Noise][..]), "{restless:?}");
        let mut unknown = run(0.005);
        unknown.samples.retain(|s| s.round < 2);
        assert_eq!(graded(&unknown).grade, Grade::C);
    }

    #[test]
    fn what_can_be_told_apart_is_said_from_the_spread_of_the_baselines() {
        let mut run = run(0.005);
        let of = |run: &Run| summarise(run).tells_apart;
        let found = of(&run).unwrap();
        assert!(found.finest == found.coarsest && found.text.contains("Shares by grade: 1 A"), "{found:?}");
        let other: Vec<Sample> = run.samples.clone();
        for mut s in other {
            s.cell = s.cell.running("seq-write");
            let factor = [1.0, 1.3][s.round as usize % 2];
            s.result.amend(|w| w.seconds *= if s.cell.is_native() { factor } else { 1.0 });
            run.samples.push(s);
        }
        let found = of(&run).unwrap();
        assert_eq!((&*found.finest.key, &*found.coarsest.key), ("device/native/seq-read", "device/native/seq-write"));
        assert!(found.coarsest.noise_ratio > 1.1 && found.text.contains("device/native/seq-write"), "{found:?}");
        run.samples.retain(|s| s.round == 0);
        assert_eq!(of(&run), None);
    }
}
