//! Lasting changes of a rate: the levels of a series before and after, as caused by caps and burst buckets of a
//! provider.
//!
//! A stretch of a series (at its beginning, at its end, or within it) is cut out where its mean differs most from that
//! of the rest by Student's t with a common variance. It counts where that t is improbable for equal parts, times the
//! number of possible stretches (Bonferroni's bound), and where the levels differ by at least [`LEAST`], so that a
//! drift of a few per cent does not count. Each part is then searched in the same way: circular binary segmentation
//! (Olshen, Venkatraman, Lucito and Wigler, Biostatistics 5, 2004), which finds a level between two equal ones where a
//! single cut would not. A level has at least [`PART`] values, so that a single outlier is none.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Fewest values of a level.
pub const PART: usize = 3;
/// Least difference of two levels, as a share of the higher one.
pub const LEAST: f64 = 0.10;
/// Highest probability of a cut in a series without a change, for independent, normal values.
const CHANCE: f64 = 0.001;

/// A change of level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Knee {
    /// Index of the first value of the new level.
    pub at: usize,
    /// Mean since the previous knee.
    pub before: f64,
    /// Mean up to the next knee.
    pub after: f64,
}

/// The changes of level of a series, in order; empty where a value is not a number.
pub fn knees(values: &[f64]) -> Vec<Knee> {
    if !values.iter().all(|value| value.is_finite()) {
        return Vec::new();
    }
    let mut cuts = Vec::new();
    look(values, 0, &mut cuts);
    loop {
        let found = levels(values, &cuts);
        // A later cut may have removed the difference of two levels.
        match found.iter().position(|knee| !differ(knee.before, knee.after)) {
            None => return found,
            Some(less) => drop(cuts.remove(less)),
        }
    }
}

/// The knees at these indices.
fn levels(values: &[f64], cuts: &[usize]) -> Vec<Knee> {
    let ends = cuts.iter().copied().skip(1).chain([values.len()]);
    let begins = [0].into_iter().chain(cuts.iter().copied());
    let knee = |((from, &at), to): ((usize, &usize), usize)| Knee {
        at,
        before: mean(&values[from..at]),
        after: mean(&values[at..to]),
    };
    begins.zip(cuts).zip(ends).map(knee).collect()
}

/// Cuts a part that begins at this index, then its rest.
fn look(part: &[f64], begin: usize, cuts: &mut Vec<usize>) {
    let Some((from, to)) = stretch(part) else { return };
    let ends: Vec<usize> = [0, from, to, part.len()].into_iter().collect();
    for pair in ends.windows(2).filter(|pair| pair[0] < pair[1]) {
        if pair[0] > 0 {
            cuts.push(begin + pair[0]);
        }
        look(&part[pair[0]..pair[1]], begin + pair[0], cuts);
    }
}

/// The stretch of a part to cut out, if any.
fn stretch(part: &[f64]) -> Option<(usize, usize)> {
    let n = part.len();
    // Relative to the mean, so that squares of large numbers lose no digits.
    let centre = mean(part);
    let mut sums = vec![(0.0, 0.0)];
    for value in part {
        let (sum, squares) = sums[sums.len() - 1];
        sums.push((sum + (value - centre), squares + (value - centre).powi(2)));
    }
    let rest = |length: usize| length == 0 || length >= PART;
    let all = (0..n).flat_map(|from| (from + PART..=n).map(move |to| (from, to)));
    let all = all.filter(|(from, to)| to - from < n && rest(*from) && rest(n - to));
    let (mut most, mut places) = (None, 0.0);
    for (from, to) in all {
        places += 1.0;
        let t = t(&sums, from, to);
        if most.is_none_or(|(_, highest)| t > highest) {
            most = Some(((from, to), t));
        }
    }
    let ((from, to), t) = most?;
    let chance = 2.0 * places * StudentsT::new(0.0, 1.0, (n - 2) as f64).ok()?.sf(t);
    (chance < CHANCE).then_some((from, to))
}

/// Absolute value of Student's t of a stretch and the rest, from the sums of values and of their squares up to each
/// index.
fn t(sums: &[(f64, f64)], from: usize, to: usize) -> f64 {
    let (all, squares) = sums[sums.len() - 1];
    let (n, m) = ((to - from) as f64, (sums.len() - 1 - (to - from)) as f64);
    let inside = sums[to].0 - sums[from].0;
    let apart = (inside / n - (all - inside) / m).abs();
    let within = (squares - inside.powi(2) / n - (all - inside).powi(2) / m).max(0.0);
    if apart == 0.0 { 0.0 } else { apart / (within / (n + m - 2.0) * (1.0 / n + 1.0 / m)).sqrt() }
}

/// Whether two levels differ.
fn differ(one: f64, other: f64) -> bool {
    (one - other).abs() >= LEAST * one.abs().max(other.abs()) && one != other
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places(values: &[f64]) -> Vec<usize> {
        knees(values).iter().map(|knee| knee.at).collect()
    }

    /// Levels with their lengths, and noise on each value.
    fn series(levels: &[(f64, usize)], noise: &[f64]) -> Vec<f64> {
        let all = levels.iter().flat_map(|(level, length)| std::iter::repeat_n(*level, *length));
        all.zip(noise.iter().cycle()).map(|(level, off)| level * (1.0 + off)).collect()
    }

    fn noise(most: f64) -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(-most..most, 97)
    }

    #[test]
    fn what_a_burst_bucket_does_is_found_with_its_levels() {
        let found = knees(&[3000.0, 3000.0, 3000.0, 3000.0, 100.0, 100.0, 100.0, 100.0, 100.0]);
        assert_eq!(found, [Knee { at: 4, before: 3000.0, after: 100.0 }]);
        let filled_again = knees(&[9.0, 9.1, 9.0, 3.0, 3.1, 3.0, 9.0, 9.1, 9.0]);
        assert_eq!(filled_again.iter().map(|knee| knee.at).collect::<Vec<_>>(), [3, 6]);
        assert!(filled_again[0].after < 3.1 && filled_again[1].before == filled_again[0].after);
    }

    #[test]
    fn few_values_odd_values_and_no_numbers_are_no_knees() {
        assert_eq!(places(&[]), Vec::<usize>::new());
        assert_eq!(places(&[9.0, 9.0, 1.0, 1.0]), Vec::<usize>::new(), "levels of two values");
        assert_eq!(places(&[9.0, 9.0, 9.0, 9.0, 1.0, 9.0, 9.0, 9.0, 9.0]), Vec::<usize>::new(), "one odd value");
        assert_eq!(places(&[0.0; 20]), Vec::<usize>::new());
        assert_eq!(places(&[9.0, 9.0, 9.0, f64::NAN, 1.0, 1.0, 1.0]), Vec::<usize>::new());
        // It stops for good.
        assert_eq!(places(&[9.0, 9.0, 9.0, 0.0, 0.0, 0.0]), [3]);
    }

    proptest! {
        /// A series within a tenth has no knee, in any order.
        #[test]
        fn a_steady_rate_has_none(level in 1e-3..1e12, length in 0usize..200, noise in noise(0.05)) {
            prop_assert_eq!(places(&series(&[(level, length)], &noise)), Vec::<usize>::new());
        }

        #[test]
        fn each_change_is_found_where_it_is(
            level in 1e-3..1e12,
            factors in prop::collection::vec(prop_oneof![0.05..0.7, 1.5..20.0], 1..4),
            lengths in prop::collection::vec(6usize..40, 4),
            noise in noise(0.02),
        ) {
            let mut levels = vec![(level, lengths[0])];
            let mut at = Vec::new();
            for (factor, length) in factors.iter().zip(&lengths[1..]) {
                at.push(levels.iter().map(|(_, length)| length).sum::<usize>());
                levels.push((levels[levels.len() - 1].0 * factor, *length));
            }
            let values = series(&levels, &noise);
            let found = knees(&values);
            // A large change may hide a small one next to it.
            if factors.len() == 1 {
                prop_assert_eq!(found.iter().map(|knee| knee.at).collect::<Vec<_>>(), at.clone());
            }
            for knee in &found {
                prop_assert!(at.contains(&knee.at), "{knee:?} is not at {at:?}");
                prop_assert!(differ(knee.before, knee.after));
            }
        }

        /// Units and the direction of time do not matter, where a change is no matter of rounding.
        #[test]
        fn units_and_the_direction_of_time_change_nothing(
            one in 1.0..100.0,
            factor in prop_oneof![0.05..0.7, Just(1.0), 1.5..20.0],
            lengths in (6usize..30, 6usize..30),
            noise in noise(0.02),
            unit in 1e-6..1e6,
        ) {
            let values = series(&[(one, lengths.0), (one * factor, lengths.1)], &noise);
            let scaled: Vec<f64> = values.iter().map(|value| value * unit).collect();
            prop_assert_eq!(places(&scaled), places(&values));
            let back: Vec<f64> = values.iter().rev().copied().collect();
            let mirrored: Vec<usize> = places(&back).iter().rev().map(|at| values.len() - at).collect();
            prop_assert_eq!(mirrored, places(&values));
        }
    }
}
