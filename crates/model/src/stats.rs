//! Statistics: means, paired ratios and their 95 % intervals, outliers, convergence, noise.
//!
//! Shares are ratios: the guest's figure over the native one of the same round. Ratios are averaged on the log scale
//! (geometric mean), so that 1/2 and 2 cancel out and the unit does not matter. Repeats within one boot have common
//! conditions (memory layout, host placement), so they are not independent: the interval comes from a one-way
//! random-effects model with the boot as the random effect, its variance by the method of moments (Searle, Casella and
//! McCulloch, *Variance Components*, 1992, section 3.6), its degrees of freedom by Satterthwaite (Biometrics Bulletin
//! 2, 1946). `docs/statistics.md` has the formulas.

use std::collections::BTreeMap;

pub mod common;
pub mod knees;
pub mod multiple;
mod outliers;
pub mod steady;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

pub use outliers::{median, outliers, outlying_pairs};

/// Confidence of every interval in vmio.
pub const CONFIDENCE: f64 = 0.95;

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

/// A mean with its interval, arithmetic or geometric, in the unit of the field that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The mean.
    pub value: f64,
    /// 95 % interval; `None` with fewer than two samples, and for a geometric mean of 0.
    pub interval: Option<Interval>,
    /// Number of samples.
    pub n: u32,
}

/// Figures of two cells in one round, in the same unit, with their boot.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Boot of the guest.
    pub boot: u32,
    /// Figure of the baseline.
    pub base: f64,
    /// Figure of the cell compared with it.
    pub test: f64,
}

/// A geometric mean of ratios with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// Geometric mean; 1 is equality.
    pub value: f64,
    /// 95 % interval; `None` with fewer than two pairs.
    pub interval: Option<Interval>,
    /// Number of pairs (of the smaller side, where samples are not paired).
    pub pairs: u32,
    /// Number of boots.
    pub boots: u32,
}

impl Ratio {
    /// The interval, where it is useful: with two pairs Student's t is too wide.
    pub fn usable_interval(&self) -> Option<Interval> {
        if_usable(self.interval, self.pairs)
    }

    /// The interval to show: of a ratio that is known by its rule, from however few pairs; else the useful one.
    pub fn shown_interval(&self, known: bool) -> Option<Interval> {
        if known { self.interval } else { self.usable_interval() }
    }

    /// Whether there is an interval and all of it is above the bound.
    pub fn surely_above(&self, bound: f64) -> bool {
        self.interval.is_some_and(|i| i.above(bound))
    }

    /// Whether there is an interval and all of it is below the bound.
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

    /// The inverse comparison.
    pub fn inverse(&self) -> Ratio {
        let interval = self.interval.map(|i| Interval { low: 1.0 / i.high, high: 1.0 / i.low });
        Ratio { value: 1.0 / self.value, interval, ..*self }
    }
}

/// An arithmetic mean of differences with its interval, in the unit of the compared figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "MeanDifference")]
pub struct Difference {
    /// Mean; 0 is equality.
    pub value: f64,
    /// 95 % interval; `None` with fewer than two pairs.
    pub interval: Option<Interval>,
    /// Number of pairs.
    pub pairs: u32,
    /// Number of boots.
    pub boots: u32,
}

impl Difference {
    /// As [`Ratio::usable_interval`].
    pub fn usable_interval(&self) -> Option<Interval> {
        if_usable(self.interval, self.pairs)
    }
}

/// An interval, where it is useful: with two pairs Student's t is too wide.
fn if_usable(interval: Option<Interval>, pairs: u32) -> Option<Interval> {
    interval.filter(|_| pairs > 2)
}

/// When a ratio is converged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Convergence {
    /// Largest half width of the interval, absolute: 0.05 is ±5 percentage points.
    pub half_width: f64,
    /// Largest half width relative to the share, if set: 0.25 is a quarter of it. For a share of 5 % an absolute width
    /// alone is too coarse.
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
    /// The required half width at this share.
    pub fn width_at(&self, share: f64) -> f64 {
        self.half_width_ratio.map_or(self.half_width, |part| self.half_width.min(part * share))
    }

    /// Whether the interval is narrow enough, from any number of pairs.
    pub fn is_narrow(&self, ratio: &Ratio) -> bool {
        ratio.interval.is_some_and(|i| i.half_width() <= self.width_at(ratio.value))
    }
}

/// Precision of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RatioPrecision {
    /// Converged: it may be cited.
    Well,
    /// Its interval is too wide.
    TooWide,
    /// Too few pairs or boots for a useful interval.
    NotYet,
}

/// Precision of a ratio by this rule.
pub fn known(ratio: &Ratio, rule: &Convergence) -> RatioPrecision {
    match ratio.interval.filter(|_| ratio.pairs >= rule.min_pairs && ratio.boots >= rule.min_boots) {
        Some(_) if rule.is_narrow(ratio) => RatioPrecision::Well,
        Some(_) if ratio.usable_interval().is_some() => RatioPrecision::TooWide,
        _ => RatioPrecision::NotYet,
    }
}

/// Whether the ratio is converged.
pub fn converged(ratio: &Ratio, rule: &Convergence) -> bool {
    known(ratio, rule) == RatioPrecision::Well
}

/// Smallest difference that this machine can resolve, from a run of a cell compared with itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Noise {
    /// The A/A ratio; without systematic error 1 is in its interval in about 95 of 100 runs.
    pub ratio: Ratio,
    /// Largest deviation from 1 within the interval: half width and offset together. A smaller difference, with as many
    /// pairs, is noise.
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

/// The t interval of a mean, by the variance of that mean and its degrees of freedom.
fn around(mean: f64, (variance, freedom): (f64, f64)) -> Option<Interval> {
    let half = half_width(variance, freedom)?;
    Some(Interval { low: mean - half, high: mean + half })
}

/// Variance of the mean of samples, and its degrees of freedom; `None` with fewer than two.
fn spread(samples: &[f64], mean: f64) -> Option<(f64, f64)> {
    let n = samples.len() as f64;
    (samples.len() > 1).then(|| (samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0) / n, n - 1.0))
}

/// The sum of two independent variances, with the degrees of freedom of Welch and Satterthwaite.
fn of_both((v, f): (f64, f64), (w, g): (f64, f64)) -> (f64, f64) {
    let freedom = (v + w).powi(2) / (v * v / f + w * w / g);
    // Two sides without scatter: no variance, and the freedom does not matter.
    (v + w, if freedom.is_finite() { freedom } else { f + g })
}

/// Arithmetic mean with Student's interval; `None` without samples. Samples count as independent, so it describes a
/// cell and is no basis for a comparison: see [`paired_ratio`].
pub fn mean(samples: &[f64]) -> Option<Estimate> {
    if samples.is_empty() {
        return None;
    }
    let value = samples.iter().sum::<f64>() / samples.len() as f64;
    let interval = spread(samples, value).and_then(|spread| around(value, spread));
    Some(Estimate { value, interval, n: samples.len() as u32 })
}

/// Geometric mean of values that are never negative and of different magnitudes (times), with Student's interval on the
/// log scale, which is always above 0. `None` without samples; with a sample of 0 the mean is 0 without an interval. It
/// describes a cell, like [`mean`].
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
    // Sorted, so that the order of the samples does not change the last bit of a sum.
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
        // Mean squares between and within groups, and the effective group size. Without repeats in any group (n == k)
        // only the scatter of the groups is known.
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

    fn difference(&self) -> Difference {
        let interval = self.spread.and_then(|spread| around(self.mean, spread));
        Difference { value: self.mean, interval, pairs: self.n, boots: self.groups }
    }

    /// The difference of two independent means, with Welch's degrees of freedom.
    fn less(&self, base: &Grouped) -> Grouped {
        let spread = base.spread.zip(self.spread).map(|(theirs, own)| of_both(theirs, own));
        let (n, groups) = (base.n.min(self.n), base.groups.min(self.groups));
        Grouped { mean: self.mean - base.mean, spread, n, groups }
    }
}

/// Logarithm of a pair's ratio; `None` where a side is not a positive number.
fn log_ratio(pair: &Pair) -> Option<f64> {
    (pair.base > 0.0 && pair.test > 0.0).then(|| (pair.test / pair.base).ln()).filter(|x| x.is_finite())
}

/// Geometric mean of `test / base` with an interval that accounts for boots. Pairs with a side that is not positive
/// have no logarithm and are left out (a workload without work has failed). `None` without usable pairs.
pub fn paired_ratio(pairs: &[Pair]) -> Option<Ratio> {
    let logs: Vec<(u32, f64)> = pairs.iter().filter_map(|p| Some((p.boot, log_ratio(p)?))).collect();
    grouped(&logs).map(|g| g.ratio())
}

/// Mean of `test - base` with an interval that accounts for boots: for figures that may be 0. `None` without usable
/// pairs.
pub fn paired_difference(pairs: &[Pair]) -> Option<Difference> {
    let all: Vec<(u32, f64)> = pairs.iter().map(|p| (p.boot, p.test - p.base)).filter(|(_, d)| d.is_finite()).collect();
    Some(grouped(&all)?.difference())
}

/// Geometric mean of `test / base` from independent samples given as (boot, figure): Welch's interval on the log scale,
/// with each side's variance accounting for its boots. `None` when a side has no positive sample.
pub fn independent_ratio(base: &[(u32, f64)], test: &[(u32, f64)]) -> Option<Ratio> {
    let logs = |side: &[(u32, f64)]| {
        let logs: Vec<_> = side.iter().filter(|(_, x)| *x > 0.0).map(|&(b, x)| (b, x.ln())).collect();
        grouped(&logs)
    };
    Some(logs(test)?.less(&logs(base)?).ratio())
}

/// Mean of `test - base` from independent samples given as (boot, figure), for figures that may be 0: Welch's interval,
/// as for [`independent_ratio`]. `None` when a side has no sample.
pub fn independent_difference(base: &[(u32, f64)], test: &[(u32, f64)]) -> Option<Difference> {
    Some(grouped(test)?.less(&grouped(base)?).difference())
}

#[cfg(test)]
mod tests;
