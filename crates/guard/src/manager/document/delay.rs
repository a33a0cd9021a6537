//! How long a member's packets wait.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Bucket;
use crate::core::MemberStatus;
use crate::demand::DelayDemand;
use vmio_model::top::latency::bucket;

/// Upper bounds of the histogram, in microseconds: each the begin of a bucket in which they are counted.
const AT_MOST_US: [u64; 12] = [64, 256, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 524_288, 2_097_152];

/// Waits of a member's packets in its queue on this host, measured from the call by which the queue takes a packet to
/// the one by which it gives it up. Where only some are measured each counts as many as it stands for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DelayDocument {
    /// Half of the last second's packets waited no longer; null where there were none, as the next three.
    pub median_seconds: Option<f64>,
    /// 99 % of them waited no longer: the delay.
    pub p99_seconds: Option<f64>,
    /// The difference between that and the shortest wait: the jitter (RFC 5481, section 4.2).
    pub jitter_seconds: Option<f64>,
    /// Whether the targets of its class were met; null also of a class without.
    pub met: Option<bool>,
    /// For how long one is missed now, 2 s and more; null where none is.
    pub missed_seconds: Option<f64>,
    /// Times that one was missed for 2 s or more in a row.
    pub misses_total: u64,
    /// Packets since it is measured.
    pub packets_total: u64,
    /// Sum of their waits.
    pub wait_seconds_total: f64,
    /// Of them, how many waited at most so long; the shortest time first, each with those before it.
    pub buckets: Vec<Bucket>,
}

impl DelayDocument {
    pub(super) fn of(member: &MemberStatus, known: &DelayDemand) -> Option<DelayDocument> {
        let count = member.delay.count.as_ref()?;
        let counts = &count.waits.counts;
        let buckets = AT_MOST_US
            .iter()
            .map(|most| Bucket { at_most_seconds: *most as f64 / 1e6, total: counts[..bucket(*most)].iter().sum() });
        Some(DelayDocument {
            median_seconds: known.waits.map(|waits| waits.median),
            p99_seconds: known.waits.map(|waits| waits.p99),
            jitter_seconds: known.waits.map(|waits| waits.jitter),
            met: known.waits.and_then(|waits| waits.missed).map(|missed| !missed),
            missed_seconds: known.missed.map(|time| time.as_secs_f64()),
            misses_total: known.misses,
            packets_total: count.waits.requests(),
            wait_seconds_total: count.sum.as_secs_f64(),
            buckets: buckets.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use vmio_model::top::latency::floor_us;

    use super::*;

    #[test]
    fn bounds_are_those_of_buckets() {
        assert!(AT_MOST_US.iter().all(|most| floor_us(bucket(*most)) == *most));
    }
}
