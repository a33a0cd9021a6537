//! Outliers.

use super::{Pair, log_ratio};

/// Distance of an outlier from the median, in median absolute deviations: ten standard deviations of a normal
/// distribution, with the factor 1.4826 between the two. hyperfine has the same limit; Iglewicz and Hoaglin's 3.5 would
/// flag one good value in most runs of a dozen repeats.
const OUTLIER_BOUND: f64 = 1.4826 * 10.0;

/// Indices of the values further than [`OUTLIER_BOUND`] from the median. Outliers are reported, never dropped: a slow
/// repeat is part of the machine's behaviour. Empty when more than half of the values are equal, since then there is no
/// scale.
pub fn outliers(values: &[f64]) -> Vec<usize> {
    let Some(centre) = median(values) else { return Vec::new() };
    let deviations: Vec<f64> = values.iter().map(|x| (x - centre).abs()).collect();
    match median(&deviations) {
        Some(mad) if mad > 0.0 => (0..values.len()).filter(|&i| deviations[i] / mad > OUTLIER_BOUND).collect(),
        _ => Vec::new(),
    }
}

/// Indices of the pairs whose log ratio is an outlier: a disturbance of both sides does not affect a ratio and is not
/// flagged.
pub fn outlying_pairs(pairs: &[Pair]) -> Vec<usize> {
    let usable: Vec<(usize, f64)> = pairs.iter().enumerate().filter_map(|(i, p)| Some((i, log_ratio(p)?))).collect();
    let logs: Vec<f64> = usable.iter().map(|&(_, x)| x).collect();
    outliers(&logs).into_iter().map(|i| usable[i].0).collect()
}

/// Median; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}
