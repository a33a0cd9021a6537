//! Latencies counted in buckets, as an eBPF program can count them in the kernel, and their percentiles.
//!
//! Each power of two of microseconds is split into [`STEPS`] equal parts (as in HdrHistogram with
//! two significant bits), so that a percentile is known to a quarter of its size.

use serde::{Deserialize, Serialize};

/// Parts of each power of two.
pub const STEPS: u32 = 4;
/// Number of buckets: up to 2^24 us, which is 16.8 s; the last one has all longer ones.
pub const BUCKETS: usize = ((24 - 2) * STEPS + 2 * STEPS) as usize;

/// Fewest requests with a 99th percentile: with fewer it would be the largest, by chance.
const LEAST_FOR_P99: u64 = 100;
/// Error of a percentile: the width of a bucket.
pub const BUCKET_ERROR: f64 = 1.0 / STEPS as f64;

/// Counts by bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Requests by bucket; see [`bucket`].
    pub counts: Vec<u64>,
}

impl Default for Latency {
    fn default() -> Self {
        Latency { counts: vec![0; BUCKETS] }
    }
}

/// The bucket of a latency in microseconds: 0, 1, 2, 3, then four for each power of two.
pub fn bucket(us: u64) -> usize {
    if us < u64::from(STEPS) {
        return us as usize;
    }
    let power = 63 - us.leading_zeros();
    let part = (us >> (power - 2)) & u64::from(STEPS - 1);
    (((power - 1) * STEPS) as usize + part as usize).min(BUCKETS - 1)
}

/// Lowest latency of a bucket, in microseconds.
pub fn floor_us(bucket: usize) -> u64 {
    let (power, part) = (bucket as u64 / u64::from(STEPS), bucket as u64 % u64::from(STEPS));
    if power == 0 { part } else { (u64::from(STEPS) + part) << (power - 1) }
}

/// The middle of a bucket, in seconds.
pub fn middle_seconds(bucket: usize) -> f64 {
    (floor_us(bucket) + floor_us(bucket + 1)) as f64 / 2.0 * 1e-6
}

impl Latency {
    /// Counts one request.
    pub fn add(&mut self, us: u64) {
        self.counts[bucket(us)] += 1;
    }

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Latency) {
        for (own, more) in self.counts.iter_mut().zip(&other.counts) {
            *own += more;
        }
    }

    /// Requests counted.
    pub fn requests(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Seconds of those together that took at least so many, each as the middle of its bucket.
    pub fn seconds_from(&self, least: f64) -> f64 {
        let slow = self.counts.iter().enumerate().filter(|(b, n)| **n > 0 && floor_us(*b) as f64 * 1e-6 >= least);
        slow.map(|(b, n)| *n as f64 * (floor_us(b) + floor_us(b + 1)) as f64 / 2.0 * 1e-6).sum()
    }

    /// The latency that 99 % of them do not exceed, in seconds; `None` with fewer than [`LEAST_FOR_P99`].
    pub fn p99_seconds(&self) -> Option<f64> {
        if self.requests() < LEAST_FOR_P99 { None } else { self.quantile_seconds(0.99) }
    }

    /// The latency that this share of the requests does not exceed, in seconds: the middle of its bucket. `None`
    /// without requests.
    pub fn quantile_seconds(&self, share: f64) -> Option<f64> {
        self.quantile_bucket(share).map(middle_seconds)
    }

    /// The bucket of the latency that this share of the requests does not exceed. `None` without requests.
    pub fn quantile_bucket(&self, share: f64) -> Option<usize> {
        let total = self.requests();
        let rank = ((share * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut below = 0;
        let at = self.counts.iter().position(|n| {
            below += n;
            below >= rank
        });
        at.filter(|_| total > 0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_in_the_bucket_that_holds_it() {
        for us in (0..5000).chain((10..24).map(|p| (1 << p) - 1)).chain((10..24).map(|p| 1 << p)) {
            let b = bucket(us);
            assert!(floor_us(b) <= us && us < floor_us(b + 1), "{us} in {b}: {} to {}", floor_us(b), floor_us(b + 1));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!((bucket(3), bucket(4), bucket(7), bucket(8)), (3, 4, 7, 8));
    }

    #[test]
    fn the_time_of_slow_ones() {
        let mut latency = Latency::default();
        (0..100).for_each(|_| latency.add(100));
        (0..10).for_each(|_| latency.add(30_000));
        assert!((latency.seconds_from(15e-3) / 0.3 - 1.0).abs() < 0.25, "{}", latency.seconds_from(15e-3));
        assert!((latency.seconds_from(0.0) / 0.31 - 1.0).abs() < 0.25 && latency.seconds_from(1.0) == 0.0);
    }

    #[test]
    fn quantiles_are_within_a_quarter() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantile_seconds(0.5), None);
        (1..=1000).for_each(|us| latency.add(us * 10));
        for share in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let (found, exact) = (latency.quantile_seconds(share).unwrap(), share * 10_000e-6);
            assert!((found / exact - 1.0).abs() < 0.25, "{share}: {found} against {exact}");
        }
    }
}
