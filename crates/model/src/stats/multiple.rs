//! Effects that are judged together: a p-value of each, corrected for their number, and the noise below which none
//! counts.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{CONFIDENCE, Pair, grouped, half_width, log_ratio};

/// Significance level of corrected p-values, as of the intervals.
pub const LEVEL: f64 = 1.0 - CONFIDENCE;

/// Two-sided p-value of "the ratio is `bound`", by the model of [`super::paired_ratio`]: below [`LEVEL`] exactly where
/// that ratio's interval does not contain the bound. `None` without an interval.
pub fn p_value(pairs: &[Pair], bound: f64) -> Option<f64> {
    let logs: Vec<(u32, f64)> = pairs.iter().filter_map(|p| Some((p.boot, log_ratio(p)?))).collect();
    let of = grouped(&logs)?;
    let (variance, freedom) = of.spread?;
    let far = (of.mean - bound.ln()).abs();
    if variance <= 0.0 {
        return Some(if far > 0.0 { 0.0 } else { 1.0 });
    }
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some((2.0 * student.sf(far / variance.sqrt())).clamp(0.0, 1.0))
}

/// P-values corrected for multiple tests, in the same order: the probability that any effect called significant is
/// absent stays below the level, whatever their dependence. Holm, *A Simple Sequentially Rejective Multiple Test
/// Procedure*, Scandinavian Journal of Statistics 6 (1979), 65 to 70: the i-th smallest of m is multiplied by m - i +
/// 1, and is at least the one before it.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut corrected = vec![1.0; p.len()];
    let mut least = 0.0f64;
    for (rank, &i) in order.iter().enumerate() {
        least = least.max((p.len() - rank) as f64 * p[i]).min(1.0);
        corrected[i] = least;
    }
    corrected
}

/// Logarithm of the largest ratio of two equal cells by chance, with this number of pairs, where each scatters from
/// round to round as these figures do: the half width of its 95 % interval, `t(n - 1) * s * sqrt(2 / pairs)` with the
/// standard deviation `s` of the logarithms. Disturbances common to both sides of a pair would cancel out and are
/// included here, so it is an upper estimate. `None` with fewer than two figures.
pub fn rounds_noise(figures: &[f64], pairs: u32) -> Option<f64> {
    let logs: Vec<f64> = figures.iter().filter(|x| **x > 0.0).map(|x| x.ln()).filter(|x| x.is_finite()).collect();
    if logs.len() < 2 || pairs == 0 {
        return None;
    }
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let variance = logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    half_width(2.0 * variance / f64::from(pairs), n - 1.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::stats::paired_ratio;

    fn close(a: &[f64], b: &[f64]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12)
    }

    /// Calculated by hand, as in Holm's table of critical levels: 0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1, which is
    /// at least the one before it. R's `p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")` gives the same.
    #[test]
    fn holm_of_known_values() {
        assert!(close(&holm(&[0.01, 0.04, 0.03, 0.005]), &[0.03, 0.06, 0.06, 0.02]));
        assert!(close(&holm(&[0.01, 0.02, 0.03, 0.04]), &[0.04, 0.06, 0.06, 0.06]));
        // At most 1; a single one is unchanged.
        assert!(close(&holm(&[0.5, 0.6]), &[1.0, 1.0]));
        assert!(close(&holm(&[0.04]), &[0.04]));
        assert!(holm(&[]).is_empty());
    }

    /// One boot of six, log ratios 1, 2, 3, 5, 6, 7 (see `one_boot_is_a_plain_t_interval`): t = 4 / sqrt(28 / 30) = 4.1404
    /// with five degrees of freedom against 1. Student's t leaves 0.01 beyond 4.0321 and 0.005 beyond 4.7733 (printed
    /// tables, two-sided).
    #[test]
    fn p_values_of_known_pairs() {
        let pairs = [1.0, 2.0, 3.0, 5.0, 6.0, 7.0f64].map(|l| Pair { boot: 4, base: 1.0, test: l.exp() });
        let p = p_value(&pairs, 1.0).unwrap();
        assert!(p < 0.01 && p > 0.005, "{p}");
        let at = |t: f64| p_value(&pairs, (4.0 - t * (28.0f64 / 30.0).sqrt()).exp()).unwrap();
        assert!((at(4.0321) - 0.01).abs() < 2e-6 && (at(2.5706) - 0.05).abs() < 2e-6, "{} {}", at(4.0321), at(2.5706));
        // The interval contains exactly the bounds with p-values above the level.
        let interval = paired_ratio(&pairs).unwrap().interval.unwrap();
        for bound in [interval.low * 0.999, interval.low * 1.001, interval.high * 0.999, interval.high * 1.001] {
            assert_eq!(interval.contains(bound), p_value(&pairs, bound).unwrap() >= LEVEL, "{bound}");
        }
        let alike = [Pair { boot: 0, base: 2.0, test: 1.0 }; 3];
        assert_eq!((p_value(&alike, 0.5), p_value(&alike, 1.0)), (Some(1.0), Some(0.0)));
        assert_eq!(p_value(&alike[..1], 1.0), None);
    }

    /// Logarithms 0, 1, 2: s = 1, t(2) = 4.3027, with 8 pairs half of it.
    #[test]
    fn noise_of_known_rounds() {
        let figures = [1.0, 1f64.exp(), 2f64.exp()];
        assert!((rounds_noise(&figures, 8).unwrap() - 4.302_65 / 2.0).abs() < 1e-4);
        assert_eq!(rounds_noise(&[5.0, 5.0, 5.0], 5), Some(0.0));
        assert_eq!((rounds_noise(&[5.0], 5), rounds_noise(&figures, 0)), (None, None));
    }
}
