//! Statistics: means, paired ratios and their 95 % intervals, outliers, convergence, noise.
//!
//! What is judged is a ratio: the guest's figure over the native one of the same round. Ratios
//! are averaged on the log scale (geometric mean), so that 1/2 and 2 cancel out and a change of
//! unit changes nothing. Repeats within one boot share that boot's luck (memory layout, host
//! placement), so they are not independent: the interval comes from a one-way random-effects
//! model with the boot as the random effect, its variance by the method of moments
//! (Searle, Casella and McCulloch, *Variance Components*, 1992, section 3.6), its degrees of
//! freedom by Satterthwaite (Biometrics Bulletin 2, 1946). `docs/statistics.md` has the formulas.

use std::collections::BTreeMap;

pub mod knees;
pub mod multiple;
pub mod steady;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Confidence of every interval in vmio.
pub const CONFIDENCE: f64 = 0.95;

/// Distance from the median, in median absolute deviations, beyond which a value is an outlier:
/// ten standard deviations of a normal distribution, 1.4826 being the factor from one to the
/// other. hyperfine warns at the same bound; Iglewicz and Hoaglin's 3.5 would flag one good
/// value in most runs of a dozen repeats.
const OUTLIER_BOUND: f64 = 1.4826 * 10.0;

/// A 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Half of its width.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Whether the value lies in it.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Whether it lies wholly above the value.
    pub fn above(&self, value: f64) -> bool {
        self.low > value
    }

    /// Whether it lies wholly below the value.
    pub fn below(&self, value: f64) -> bool {
        self.high < value
    }
}

/// A mean with its interval, arithmetic or geometric as the field that holds it says; its unit is that field's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The mean.
    pub value: f64,
    /// 95 % interval; `None` with fewer than two samples, and of a geometric mean of 0.
    pub interval: Option<Interval>,
    /// Samples it was made of.
    pub n: u32,
}

/// One round's figures of two cells, in the same unit, and the boot they were taken in.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Boot of the guest.
    pub boot: u32,
    /// Figure of the baseline.
    pub base: f64,
    /// Figure of what is compared with it.
    pub test: f64,
}

/// A geometric mean of ratios with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// Geometric mean; 1 is "equal".
    pub value: f64,
    /// 95 % interval; `None` with fewer than two pairs.
    pub interval: Option<Interval>,
    /// Pairs it was made of (of the smaller side where the samples were not paired).
    pub pairs: u32,
    /// Boots that the pairs came from.
    pub boots: u32,
}

impl Ratio {
    /// The interval where it says something: with two pairs Student's t is so wide that it does not.
    pub fn told_interval(&self) -> Option<Interval> {
        told(self.interval, self.pairs)
    }

    /// Whether the interval is there and lies wholly above the bound.
    pub fn surely_above(&self, bound: f64) -> bool {
        self.interval.is_some_and(|i| i.above(bound))
    }

    /// Whether the interval is there and lies wholly below the bound.
    pub fn surely_below(&self, bound: f64) -> bool {
        self.interval.is_some_and(|i| i.below(bound))
    }

    /// In words: `3.10 times (2.80 to 3.40)`.
    pub fn times(&self) -> String {
        match self.interval {
            Some(i) => format!("{:.2} times ({:.2} to {:.2})", self.value, i.low, i.high),
            None => format!("{:.2} times", self.value),
        }
    }

    /// The same comparison seen from the other side.
    pub fn inverse(&self) -> Ratio {
        let interval = self.interval.map(|i| Interval { low: 1.0 / i.high, high: 1.0 / i.low });
        Ratio { value: 1.0 / self.value, interval, ..*self }
    }
}

/// An arithmetic mean of differences with its interval, in the unit of what was compared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// Mean; 0 is "equal".
    pub value: f64,
    /// 95 % interval; `None` with fewer than two pairs.
    pub interval: Option<Interval>,
    /// Pairs it was made of.
    pub pairs: u32,
    /// Boots that the pairs came from.
    pub boots: u32,
}

impl Difference {
    /// As [`Ratio::told_interval`].
    pub fn told_interval(&self) -> Option<Interval> {
        told(self.interval, self.pairs)
    }
}

/// An interval where it says something: with two pairs Student's t is so wide that it does not.
fn told(interval: Option<Interval>, pairs: u32) -> Option<Interval> {
    interval.filter(|_| pairs > 2)
}

/// When a ratio counts as known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Convergence {
    /// Largest half width of the interval, absolute: 0.05 is ±5 percentage points.
    pub half_width: f64,
    /// Largest half width as a part of the share itself, where that is asked for: 0.25 is a quarter of it. What is
    /// asked of a share of 5 % by points alone says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width_ratio: Option<f64>,
    /// Fewest pairs.
    pub min_pairs: u32,
    /// Fewest boots.
    pub min_boots: u32,
}

impl Default for Convergence {
    fn default() -> Self {
        Convergence { half_width: 0.05, half_width_ratio: None, min_pairs: 5, min_boots: 3 }
    }
}

impl Convergence {
    /// The half width that is asked of an interval around this share.
    pub fn width_at(&self, share: f64) -> f64 {
        self.half_width_ratio.map_or(self.half_width, |part| self.half_width.min(part * share))
    }

    /// Whether the interval is as narrow as it has to be, however many pairs it is from.
    pub fn is_narrow(&self, ratio: &Ratio) -> bool {
        ratio.interval.is_some_and(|i| i.half_width() <= self.width_at(ratio.value))
    }
}

/// How well a ratio is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RatioPrecision {
    /// Well enough to be cited.
    Well,
    /// Its interval is wider than wanted.
    TooWide,
    /// Too few pairs or boots for an interval that says anything.
    NotYet,
}

/// How well a ratio is known, by the rule.
pub fn known(ratio: &Ratio, rule: &Convergence) -> RatioPrecision {
    match ratio.interval.filter(|_| ratio.pairs >= rule.min_pairs && ratio.boots >= rule.min_boots) {
        Some(_) if rule.is_narrow(ratio) => RatioPrecision::Well,
        Some(interval) if told(Some(interval), ratio.pairs).is_some() => RatioPrecision::TooWide,
        _ => RatioPrecision::NotYet,
    }
}

/// Whether the ratio is known well enough to be cited.
pub fn converged(ratio: &Ratio, rule: &Convergence) -> bool {
    known(ratio, rule) == RatioPrecision::Well
}

/// What this machine cannot tell apart, from a run of a cell against itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Noise {
    /// The A/A ratio; 1 lies in its interval on an honest machine in about 95 of 100 runs.
    pub ratio: Ratio,
    /// Largest deviation from 1 that the interval still allows: its half width and its offset
    /// together. A smaller difference, measured with as many pairs, means nothing here.
    pub smallest_difference_ratio: f64,
}

/// The noise from pairs of a cell with itself; `None` with fewer than two usable pairs.
pub fn noise(pairs: &[Pair]) -> Option<Noise> {
    let ratio = paired_ratio(pairs)?;
    let i = ratio.interval?;
    let smallest = (i.high - 1.0).abs().max((1.0 - i.low).abs());
    Some(Noise { ratio, smallest_difference_ratio: smallest })
}

/// Half width of a t interval: `t(df) * sqrt(variance)`. An infinite interval is `None`.
fn half_width(variance: f64, freedom: f64) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.5 + CONFIDENCE / 2.0);
    let half = t * variance.sqrt();
    half.is_finite().then_some(half)
}

/// Arithmetic mean with Student's interval; `None` without samples. The samples count as
/// independent, so this is for describing a cell, not for judging it: see [`paired_ratio`].
pub fn mean(samples: &[f64]) -> Option<Estimate> {
    if samples.is_empty() {
        return None;
    }
    let n = samples.len() as f64;
    let value = samples.iter().sum::<f64>() / n;
    let interval = (samples.len() > 1)
        .then(|| {
            let variance = samples.iter().map(|x| (x - value).powi(2)).sum::<f64>() / (n - 1.0) / n;
            let half = half_width(variance, n - 1.0)?;
            Some(Interval { low: value - half, high: value + half })
        })
        .flatten();
    Some(Estimate { value, interval, n: samples.len() as u32 })
}

/// Geometric mean of what is never negative and lies many times apart (times), with Student's interval on the log scale:
/// it is wholly above 0. `None` without samples; with a sample of 0 the mean is 0 and has no interval. For describing a
/// cell, as [`mean`].
pub fn geometric_mean(samples: &[f64]) -> Option<Estimate> {
    let n = samples.len() as u32;
    if samples.iter().any(|x| *x <= 0.0) {
        return Some(Estimate { value: 0.0, interval: None, n });
    }
    let logs = mean(&samples.iter().map(|x| x.ln()).collect::<Vec<f64>>())?;
    let interval = logs.interval.map(|i| Interval { low: i.low.exp(), high: i.high.exp() });
    Some(Estimate { value: logs.value.exp(), interval: interval.filter(|i| i.high.is_finite() && i.low > 0.0), n })
}

/// Mean of values in groups, with the variance of that mean and its degrees of freedom.
#[derive(Debug, Clone, Copy)]
struct Grouped {
    mean: f64,
    /// Variance of the mean and its degrees of freedom; `None` with fewer than two values.
    spread: Option<(f64, f64)>,
    n: u32,
    groups: u32,
}

/// One-way random effects: `values` as (group, value).
fn grouped(values: &[(u32, f64)]) -> Option<Grouped> {
    let mut by_group: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for &(group, value) in values {
        by_group.entry(group).or_default().push(value);
    }
    // Sorted, so that the order of the samples cannot change the last bit of a sum.
    by_group.values_mut().for_each(|v| v.sort_by(f64::total_cmp));
    let n = values.len() as f64;
    let k = by_group.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = by_group.values().flatten().sum::<f64>() / n;
    let (mut between, mut within, mut squares) = (0.0, 0.0, 0.0);
    for group in by_group.values() {
        let size = group.len() as f64;
        let centre = group.iter().sum::<f64>() / size;
        between += size * (centre - mean).powi(2);
        within += group.iter().map(|x| (x - centre).powi(2)).sum::<f64>();
        squares += size * size;
    }
    let spread = (n > 1.0).then(|| {
        // Mean squares between and within groups, and the effective group size. Without
        // repeats inside any group (n == k) all there is to see is the scatter of the groups.
        let plain = ((between + within) / (n - 1.0) / n, n - 1.0);
        if k < 2.0 || n <= k {
            return plain;
        }
        let (msb, msw) = (between / (k - 1.0), within / (n - k));
        if msb <= msw {
            return plain;
        }
        let size = (n - squares / n) / (k - 1.0);
        // Var(mean) = sum(n_i^2)/n^2 * component + msw / n = a*msb + b*msw
        let a = squares / (n * n) / size;
        let b = 1.0 / n - a;
        let variance = a * msb + b * msw;
        let freedom = variance.powi(2) / ((a * msb).powi(2) / (k - 1.0) + (b * msw).powi(2) / (n - k));
        (variance, freedom.clamp(1.0, n - 1.0))
    });
    Some(Grouped { mean, spread, n: values.len() as u32, groups: by_group.len() as u32 })
}

impl Grouped {
    fn ratio(&self) -> Ratio {
        let interval = self
            .spread
            .and_then(|(variance, freedom)| half_width(variance, freedom))
            .map(|half| Interval { low: (self.mean - half).exp(), high: (self.mean + half).exp() })
            .filter(|i| i.high.is_finite());
        Ratio { value: self.mean.exp(), interval, pairs: self.n, boots: self.groups }
    }
}

/// Logarithm of a pair's ratio; `None` where a side is not a positive number.
fn log_ratio(pair: &Pair) -> Option<f64> {
    (pair.base > 0.0 && pair.test > 0.0).then(|| (pair.test / pair.base).ln()).filter(|x| x.is_finite())
}

/// Geometric mean of `test / base` with an interval that allows for the boots. Pairs in which
/// a side is not positive cannot be put on a log scale and are left out (a workload that did
/// nothing has failed, and is no sample). `None` without usable pairs.
pub fn paired_ratio(pairs: &[Pair]) -> Option<Ratio> {
    let logs: Vec<(u32, f64)> = pairs.iter().filter_map(|p| Some((p.boot, log_ratio(p)?))).collect();
    grouped(&logs).map(|g| g.ratio())
}

/// Mean of `test - base` with an interval that allows for the boots: for what may be 0 on a side. `None`
/// without usable pairs.
pub fn paired_difference(pairs: &[Pair]) -> Option<Difference> {
    let all: Vec<(u32, f64)> = pairs.iter().map(|p| (p.boot, p.test - p.base)).filter(|(_, d)| d.is_finite()).collect();
    let grouped = grouped(&all)?;
    let half = grouped.spread.and_then(|(variance, freedom)| half_width(variance, freedom));
    let interval = half.map(|half| Interval { low: grouped.mean - half, high: grouped.mean + half });
    Some(Difference { value: grouped.mean, interval, pairs: grouped.n, boots: grouped.groups })
}

/// Geometric mean of `test / base` from independent samples given as (boot, figure): Welch's
/// interval on the log scale, each side's variance allowing for its boots. `None` when a side
/// has no positive sample.
pub fn independent_ratio(base: &[(u32, f64)], test: &[(u32, f64)]) -> Option<Ratio> {
    let logs = |side: &[(u32, f64)]| {
        let logs: Vec<_> = side.iter().filter(|(_, x)| *x > 0.0).map(|&(b, x)| (b, x.ln())).collect();
        grouped(&logs)
    };
    let (base, test) = (logs(base)?, logs(test)?);
    let spread = base.spread.zip(test.spread).map(|((v, f), (w, g))| {
        let freedom = (v + w).powi(2) / (v * v / f + w * w / g);
        // Two sides without any scatter: no variance, and any freedom will do.
        (v + w, if freedom.is_finite() { freedom } else { f + g })
    });
    let both =
        Grouped { mean: test.mean - base.mean, spread, n: base.n.min(test.n), groups: base.groups.min(test.groups) };
    Some(both.ratio())
}

/// Indices of the values further than [`OUTLIER_BOUND`] from the median. Outliers are shown,
/// never dropped: a slow repeat is part of what the machine does. None are named when more
/// than half of the values are equal, as there is then no scale to measure by.
pub fn outliers(values: &[f64]) -> Vec<usize> {
    let Some(centre) = median(values) else { return Vec::new() };
    let deviations: Vec<f64> = values.iter().map(|x| (x - centre).abs()).collect();
    match median(&deviations) {
        Some(mad) if mad > 0.0 => (0..values.len()).filter(|&i| deviations[i] / mad > OUTLIER_BOUND).collect(),
        _ => Vec::new(),
    }
}

/// Indices of the pairs whose log ratio is an outlier: a disturbance that hit both sides
/// alike does no harm to a ratio and is not flagged.
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

#[cfg(test)]
mod tests;
