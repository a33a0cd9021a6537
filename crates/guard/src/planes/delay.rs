//! How long a member's packets have waited.

use std::time::Duration;

use vmio_model::top::Latency;

/// Waits of a member's packets in its queue on this host, since they are measured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DelayCount {
    /// Packets by their wait in microseconds. Where only some are measured each counts as many as it stands for.
    pub waits: Latency,
    /// Sum of all waits.
    pub sum: Duration,
}

impl DelayCount {
    /// Packets since `before`, by their wait; `None` where the counters started again at zero.
    pub fn since(&self, before: &DelayCount) -> Option<Latency> {
        let both = self.waits.counts.iter().zip(&before.waits.counts);
        let counts: Option<Vec<u64>> = both.map(|(now, before)| now.checked_sub(*before)).collect();
        Some(Latency { counts: counts? })
    }
}
