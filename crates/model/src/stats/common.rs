//! Means of values from each of which a multiple of one common quantity is taken, which was measured by itself.

use super::{Estimate, around, mean, of_both, spread};

/// The mean of `value - scale * mean(common)`, over (value, scale) of `samples`. Both the samples and `common` scatter,
/// independently: the variance of the mean is the sum of both, with the degrees of freedom of Welch and Satterthwaite
/// (Satterthwaite, *An Approximate Distribution of Estimates of Variance Components*, Biometrics Bulletin 2 (1946), 110
/// to 114). `None` where either is empty; no interval with fewer than two of either.
pub fn mean_less(samples: &[(f64, f64)], common: &[f64]) -> Option<Estimate> {
    let level = mean(common)?.value;
    let rest: Vec<f64> = samples.iter().map(|(value, scale)| value - scale * level).collect();
    let value = mean(&rest)?.value;
    let scale = mean(&samples.iter().map(|(_, scale)| *scale).collect::<Vec<f64>>())?.value;
    let theirs = spread(common, level).map(|(variance, freedom)| (scale * scale * variance, freedom));
    let interval = spread(&rest, value).zip(theirs).and_then(|(own, theirs)| around(value, of_both(own, theirs)));
    Some(Estimate { value, interval, n: samples.len() as u32 })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::stats::Interval;

    #[test]
    fn both_scatters_count() {
        // 50 J in 4 s each, above 10 W: 10 J.
        let same = [(50.0, 4.0); 4];
        let exact = mean_less(&same, &[10.0, 10.0]).unwrap();
        assert_eq!((exact.value, exact.interval, exact.n), (10.0, Some(Interval { low: 10.0, high: 10.0 }), 4));
        // Rest of 9 and 11 W: a standard error of 1 W, which is 4 J in 4 s, with one degree of freedom (t = 12.706).
        let wide = mean_less(&same, &[9.0, 11.0]).unwrap();
        assert!((wide.interval.unwrap().half_width() - 4.0 * 12.706).abs() < 0.01, "{wide:?}");
        assert_eq!(mean_less(&same, &[10.0]).unwrap().interval, None, "how far rest scatters is not known");
        assert_eq!((mean_less(&same, &[]), mean_less(&[], &[1.0])), (None, None));
    }

    proptest! {
        /// Without scale it is the mean as ever; common power that is taken from all changes the value alone.
        #[test]
        fn a_constant_common_quantity_only_moves_it(
            values in prop::collection::vec(0.0f64..1e3, 2..20), level in 0.0f64..1e2, scale in 0.0f64..10.0,
        ) {
            let plain = mean(&values).unwrap();
            let samples: Vec<(f64, f64)> = values.iter().map(|value| (*value, scale)).collect();
            let less = mean_less(&samples, &[level, level, level]).unwrap();
            prop_assert!((less.value - (plain.value - scale * level)).abs() < 1e-6);
            let (ours, theirs) = (less.interval.unwrap().half_width(), plain.interval.unwrap().half_width());
            prop_assert!((ours - theirs).abs() < 1e-6 * (1.0 + theirs), "{ours} {theirs}");
        }
    }
}
