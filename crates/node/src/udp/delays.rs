//! Times by how often each occurred, in a fixed amount of memory: buckets that are exact up to 64 ns and a 64th of
//! their value wide above (the idea of HdrHistogram).

use super::report::Delay;
use super::{SECOND_NS, seconds};

/// Buckets of each doubling.
const PARTS: u64 = 64;
/// Bits of those.
const PART_BITS: u32 = PARTS.ilog2();
/// All buckets: those that are exact, then each doubling above.
const BUCKETS: usize = (PARTS * (u64::BITS - PART_BITS + 1) as u64) as usize;
/// The percentiles that are told.
const TOLD: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 100.0];

/// Times.
#[derive(Debug, Clone)]
pub(super) struct Delays {
    counts: Box<[u64]>,
    packets: u64,
    sum_seconds: f64,
    most_ns: u64,
}

impl Default for Delays {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into(), packets: 0, sum_seconds: 0.0, most_ns: 0 }
    }
}

/// The bucket of a time.
fn bucket(ns: u64) -> usize {
    let doubling = (u64::BITS - ns.leading_zeros()).saturating_sub(PART_BITS + 1);
    // Of a value above, the first bits below its highest one.
    (u64::from(doubling) * PARTS + (ns >> doubling)) as usize
}

/// The middle of a bucket.
fn middle(bucket: usize) -> f64 {
    let (doubling, part) = match bucket as u64 {
        b if b < 2 * PARTS => (0, b),
        b => (b / PARTS - 1, b % PARTS + PARTS),
    };
    let width = (1u64 << doubling) as f64;
    part as f64 * width + (width - 1.0) / 2.0
}

impl Delays {
    /// One more.
    pub(super) fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.packets += 1;
        self.sum_seconds += seconds(ns);
        self.most_ns = self.most_ns.max(ns);
    }

    /// What they are; `None` of none.
    pub(super) fn report(&self) -> Option<Delay> {
        if self.packets == 0 {
            return None;
        }
        let at = |percentile: f64| {
            let rank = ((percentile / 100.0 * self.packets as f64).ceil() as u64).max(1);
            let mut below = 0;
            let found = self.counts.iter().position(|&count| {
                below += count;
                below >= rank
            });
            let most = self.most_ns as f64;
            let ns = found.filter(|_| percentile < 100.0).map_or(most, |bucket| middle(bucket).min(most));
            (percentile, ns / SECOND_NS as f64)
        };
        Some(Delay {
            packets: self.packets,
            mean_seconds: self.sum_seconds / self.packets as f64,
            percentiles: TOLD.map(at).to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_time_has_a_bucket() {
        assert_eq!((bucket(0), bucket(63), bucket(64), bucket(127), bucket(128)), (0, 63, 64, 127, 128));
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!((middle(63), middle(128)), (63.0, 128.5));
        assert_eq!(Delays::default().report(), None);
    }

    proptest! {
        #[test]
        fn percentiles_within_a_64th(
            times in proptest::collection::vec(prop_oneof![0u64..1000, 0u64..1 << 40, any::<u64>()], 1..300)
        ) {
            let mut delays = Delays::default();
            times.iter().for_each(|&ns| delays.add(ns));
            let mut sorted = times;
            sorted.sort_unstable();
            let report = delays.report().unwrap();
            for (percentile, told) in report.percentiles {
                let rank = ((percentile / 100.0 * sorted.len() as f64).ceil() as usize).max(1);
                let exact = seconds(sorted[rank - 1]);
                prop_assert!((told - exact).abs() <= exact / 64.0 + 1e-12, "{}: {} for {}", percentile, told, exact);
            }
            prop_assert_eq!(report.packets, sorted.len() as u64);
        }
    }
}
