//! Known values, simulated coverage and properties of the statistics.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::testing::Lcg;

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * b.abs().max(1.0)
}

/// Student's t at 97.5 % from the printed tables (for example NIST/SEMATECH, section 1.3.6.7.2).
#[test]
fn t_quantiles_match_the_printed_table() {
    for (freedom, t) in [(1.0, 12.706), (2.0, 4.303), (3.0, 3.182), (4.0, 2.776), (9.0, 2.262), (30.0, 2.042)] {
        let half = half_width(1.0, freedom).unwrap();
        assert!((half - t).abs() < 6e-4, "{freedom}: {half}");
    }
}

#[test]
fn mean_of_known_samples() {
    let e = mean(&[9.0, 10.0, 11.0]).unwrap();
    // s = 1, standard error = 1/sqrt(3), t(2) = 4.3027
    assert!(close(e.value, 10.0, 1e-12) && close(e.interval.unwrap().half_width(), 4.302_65 / 3f64.sqrt(), 1e-4));
    assert_eq!(mean(&[]), None);
    assert_eq!(mean(&[5.0]).unwrap().interval, None);
}

/// Two boots with three pairs each: log ratios 1, 2, 3 and 5, 6, 7. By hand: MSB = 24, MSW = 1,
/// balanced, so Var(mean) = MSB / 6 = 4 with one degree of freedom.
#[test]
fn random_effects_by_hand() {
    let pair = |boot: u32, log: f64| Pair { boot, base: 1.0, test: log.exp() };
    let pairs = [(0, 1.0), (0, 2.0), (0, 3.0), (1, 5.0), (1, 6.0), (1, 7.0)].map(|(b, l)| pair(b, l));
    let r = paired_ratio(&pairs).unwrap();
    assert!(close(r.value.ln(), 4.0, 1e-9));
    assert!(close(r.interval.unwrap().high.ln() - 4.0, 12.7062 * 2.0, 1e-4));
    assert_eq!((r.pairs, r.boots), (6, 2));
}

/// The same six figures in one boot: plain t, s^2 = 28/5, Var = 28/30, five degrees.
#[test]
fn one_boot_is_a_plain_t_interval() {
    let pairs = [1.0, 2.0, 3.0, 5.0, 6.0, 7.0f64].map(|l| Pair { boot: 4, base: 1.0, test: l.exp() });
    let r = paired_ratio(&pairs).unwrap();
    assert!(close(r.interval.unwrap().high.ln() - 4.0, 2.570_58 * (28.0f64 / 30.0).sqrt(), 1e-4));
}

/// Simulates experiments with a known ratio and returns the share of intervals that contain it.
fn coverage(sizes: &[u32], between: f64, within: f64) -> f64 {
    const EXPERIMENTS: u32 = 2000;
    const TRUTH: f64 = 0.6;
    let mut random = Lcg(20_100_313);
    let mut held = 0;
    for _ in 0..EXPERIMENTS {
        let mut pairs = Vec::new();
        for (boot, &size) in sizes.iter().enumerate() {
            let luck = between * random.normal();
            for _ in 0..size {
                // Drift of both sides must not matter.
                let base = (500.0 + 100.0 * random.uniform()) * 1e6;
                let test = base * TRUTH * (luck + within * random.normal()).exp();
                pairs.push(Pair { boot: boot as u32, base, test });
            }
        }
        held += u32::from(paired_ratio(&pairs).unwrap().interval.unwrap().contains(TRUTH));
    }
    f64::from(held) / f64::from(EXPERIMENTS)
}

#[test]
fn the_interval_holds_the_truth_as_often_as_it_says() {
    let cases: [(&[u32], f64, f64); 9] = [
        (&[8], 0.0, 0.1),
        (&[2, 2, 2], 0.0, 0.1),
        (&[2, 2, 2], 0.1, 0.05),
        (&[2, 2, 1], 0.1, 0.1),
        (&[4, 4, 4], 0.1, 0.1),
        (&[2, 2, 2, 2, 2, 2], 0.0, 0.1),
        (&[2, 2, 2, 2, 2, 2], 0.1, 0.05),
        (&[1, 1, 1, 1, 1], 0.05, 0.05),
        (&[3, 3, 2], 0.05, 0.05),
    ];
    for (sizes, between, within) in cases {
        let share = coverage(sizes, between, within);
        assert!((0.92..=0.98).contains(&share), "{sizes:?}, between {between}, within {within}: {share}");
    }
}

/// Stopping once the interval is narrow prefers lucky moments. Rounds continue until the share converged, sixty at
/// most, each in a boot of its own and from the sixth on two in one, as in the quick study; the scatter is that of its
/// wide shares.
#[test]
fn stopping_at_convergence_costs_little_coverage() {
    let rule = Convergence { min_boots: 5, ..Convergence::default() };
    for (share, between, within) in [(0.6, 0.03, 0.06), (0.7, 0.0, 0.15), (0.2, 0.0, 0.4), (0.35, 0.07, 0.15)] {
        let (mut held, mut stopped) = (0, 0);
        let mut random = Lcg(5);
        for _ in 0..500 {
            let mut pairs: Vec<Pair> = Vec::new();
            let mut luck = 0.0;
            for round in 0..60 {
                let boot = if round < 5 { round } else { 5 + (round - 5) / 2 };
                if pairs.last().is_none_or(|pair| pair.boot != boot) {
                    luck = between * random.normal();
                }
                pairs.push(Pair { boot, base: 1.0, test: share * (luck + within * random.normal()).exp() });
                let ratio = paired_ratio(&pairs).unwrap();
                if converged(&ratio, &rule) {
                    stopped += 1;
                    held += u32::from(ratio.interval.unwrap().contains(share));
                    break;
                }
            }
        }
        let covered = f64::from(held) / f64::from(stopped);
        assert!(stopped > 450 && covered > 0.9, "{share}: {held} of {stopped}");
    }
}

/// Without boots in the model the intervals of the same data would be wrong far too often.
#[test]
fn ignoring_the_boots_would_lie() {
    let mut random = Lcg(1);
    let mut held = 0;
    for _ in 0..500 {
        let logs: Vec<f64> = (0..3)
            .flat_map(|_| {
                let luck = 0.1 * random.normal();
                (0..4).map(|_| luck + 0.02 * random.normal()).collect::<Vec<f64>>()
            })
            .collect();
        held += u32::from(mean(&logs).unwrap().interval.unwrap().contains(0.0));
    }
    assert!(held < 400, "{held} of 500");
}

#[test]
fn welch_holds_the_truth_too() {
    let mut random = Lcg(99);
    let mut held = 0;
    for _ in 0..2000 {
        let mut side = |centre: f64, scatter: f64| -> Vec<(u32, f64)> {
            (0..8).map(|i| (i / 2, centre * (scatter * random.normal()).exp())).collect()
        };
        let (a, b) = (side(100.0, 0.05), side(120.0, 0.15));
        held += u32::from(independent_ratio(&a, &b).unwrap().interval.unwrap().contains(1.2));
    }
    let share = f64::from(held) / 2000.0;
    assert!((0.92..=0.985).contains(&share), "{share}");
}

#[test]
fn convergence_needs_width_pairs_and_boots() {
    let rule = Convergence::default();
    let ratio = |half: f64, pairs: u32, boots: u32| Ratio {
        value: 0.6,
        interval: Some(Interval { low: 0.6 - half, high: 0.6 + half }),
        pairs,
        boots,
    };
    assert!(converged(&ratio(0.049, 5, 3), &rule));
    assert!(!converged(&ratio(0.051, 5, 3), &rule));
    assert!(!converged(&ratio(0.01, 4, 3), &rule));
    assert!(!converged(&ratio(0.01, 50, 2), &rule));
    // Of a share of 5 % a quarter is 1.25 points; of 80 % the points are less.
    let part = Convergence { half_width_ratio: Some(0.25), ..rule };
    let small = |half: f64| Ratio {
        value: 0.05,
        interval: Some(Interval { low: 0.05 - half, high: 0.05 + half }),
        ..ratio(0.0, 5, 3)
    };
    assert!(converged(&small(0.0124), &part) && !converged(&small(0.0126), &part) && converged(&small(0.0126), &rule));
    assert!(converged(&ratio(0.049, 5, 3), &part) && !converged(&ratio(0.051, 5, 3), &part));
    assert!(!converged(&Ratio { interval: None, ..ratio(0.0, 9, 9) }, &rule));
    // Too wide is distinguished from too few pairs, however narrow or wide.
    assert_eq!(known(&ratio(0.051, 5, 3), &rule), RatioPrecision::TooWide);
    for early in [ratio(0.01, 4, 3), ratio(0.9, 4, 3), ratio(0.9, 9, 2), Ratio { interval: None, ..ratio(0.0, 9, 9) }] {
        assert_eq!(known(&early, &rule), RatioPrecision::NotYet, "{early:?}");
    }
    let two = Convergence { min_pairs: 2, min_boots: 2, ..rule };
    assert_eq!(known(&ratio(0.9, 2, 2), &two), RatioPrecision::NotYet, "two pairs are too few");
}

#[test]
fn outliers_are_named_and_kept() {
    let mut values = vec![100.0, 101.0, 99.0, 100.5, 99.5, 102.0, 98.0];
    assert_eq!(outliers(&values), [] as [usize; 0]);
    values.push(250.0);
    assert_eq!(outliers(&values), [7]);
    // Without a scale.
    assert_eq!(outliers(&[1.0, 1.0, 1.0, 9.0]), [] as [usize; 0]);
    // A disturbance of both sides does not affect the ratio.
    let mut pairs: Vec<Pair> = values[..7].iter().map(|v| Pair { boot: 0, base: 100.0, test: *v }).collect();
    pairs.push(Pair { boot: 0, base: 10.0, test: 10.0 });
    assert_eq!(outlying_pairs(&pairs), [] as [usize; 0]);
    pairs.push(Pair { boot: 0, base: 100.0, test: 10.0 });
    assert_eq!(outlying_pairs(&pairs), [8]);
    assert_eq!(paired_ratio(&pairs).unwrap().pairs, 9);
}

#[test]
fn noise_is_never_less_than_what_the_interval_allows() {
    let pairs: Vec<Pair> = [1.01, 0.97, 1.04, 1.0, 0.99, 1.02]
        .iter()
        .enumerate()
        .map(|(i, t)| Pair { boot: i as u32 / 2, base: 1.0, test: *t })
        .collect();
    let n = noise(&pairs).unwrap();
    let i = n.ratio.interval.unwrap();
    assert!(n.smallest_difference_ratio >= i.half_width() - 1e-12);
    assert!(i.high <= 1.0 + n.smallest_difference_ratio + 1e-12 && i.low >= 1.0 - n.smallest_difference_ratio - 1e-12);
    assert_eq!(noise(&pairs[..1]), None);
}

fn pairs_strategy() -> impl Strategy<Value = Vec<Pair>> {
    let pair = (0u32..5, 1.0f64..1e9, 0.01f64..10.0).prop_map(|(boot, base, r)| Pair { boot, base, test: base * r });
    prop::collection::vec(pair, 2..24)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_unit_does_not_matter(pairs in pairs_strategy(), k in 1e-6f64..1e6) {
        let scaled: Vec<Pair> = pairs.iter().map(|p| Pair { base: p.base * k, test: p.test * k, ..*p }).collect();
        let (a, b) = (paired_ratio(&pairs).unwrap(), paired_ratio(&scaled).unwrap());
        prop_assert!(close(a.value, b.value, 1e-9));
        if let (Some(i), Some(j)) = (a.interval, b.interval) {
            prop_assert!(close(i.low.ln(), j.low.ln(), 1e-6) && close(i.high.ln(), j.high.ln(), 1e-6));
        }
    }

    #[test]
    fn a_faster_guest_moves_the_ratio_alone(pairs in pairs_strategy(), k in 0.1f64..10.0) {
        let faster: Vec<Pair> = pairs.iter().map(|p| Pair { test: p.test * k, ..*p }).collect();
        let (a, b) = (paired_ratio(&pairs).unwrap(), paired_ratio(&faster).unwrap());
        prop_assert!(close(a.value * k, b.value, 1e-9));
        if let (Some(i), Some(j)) = (a.interval, b.interval) {
            prop_assert!(close((i.high / i.low).ln(), (j.high / j.low).ln(), 1e-6));
        }
    }

    #[test]
    fn order_does_not_matter(pairs in pairs_strategy().prop_flat_map(|p| (Just(p.clone()), Just(p).prop_shuffle()))) {
        prop_assert_eq!(paired_ratio(&pairs.0), paired_ratio(&pairs.1));
    }

    #[test]
    fn names_of_boots_do_not_matter(pairs in pairs_strategy(), shift in 1u32..1000) {
        let renamed: Vec<Pair> = pairs.iter().map(|p| Pair { boot: p.boot + shift, ..*p }).collect();
        prop_assert_eq!(paired_ratio(&pairs), paired_ratio(&renamed));
    }

    #[test]
    fn swapping_the_sides_inverts(pairs in pairs_strategy()) {
        let swapped: Vec<Pair> = pairs.iter().map(|p| Pair { base: p.test, test: p.base, ..*p }).collect();
        let (a, b) = (paired_ratio(&pairs).unwrap(), paired_ratio(&swapped).unwrap().inverse());
        prop_assert!(close(a.value, b.value, 1e-9));
        if let (Some(i), Some(j)) = (a.interval, b.interval) {
            prop_assert!(close(i.low.ln(), j.low.ln(), 1e-6) && close(i.high.ln(), j.high.ln(), 1e-6));
        }
    }

    #[test]
    fn the_interval_holds_the_value(pairs in pairs_strategy()) {
        let r = paired_ratio(&pairs).unwrap();
        if let Some(i) = r.interval {
            prop_assert!(i.low <= r.value && r.value <= i.high && i.low >= 0.0);
        }
    }

    #[test]
    fn nothing_panics_on_odd_figures(values in prop::collection::vec((0u32..3, prop::num::f64::ANY, prop::num::f64::ANY), 0..12)) {
        let pairs: Vec<Pair> = values.iter().map(|&(boot, base, test)| Pair { boot, base, test }).collect();
        if let Some(r) = paired_ratio(&pairs) {
            prop_assert!(r.pairs as usize <= pairs.len());
        }
        let flat: Vec<f64> = values.iter().map(|v| v.1).collect();
        prop_assert!(outliers(&flat).iter().all(|i| *i < flat.len()));
        let _ = outlying_pairs(&pairs);
    }
}
