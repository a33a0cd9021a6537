//! How long a member's packets waited in the last window, and whether the targets of its class were met.
//!
//! The **delay** is the wait that 99 % of the packets do not exceed. The **jitter** is the difference between that and
//! the shortest wait: packet delay variation as RFC 5481 (section 4.2) and ITU-T Y.1540 have it. A class's targets mean
//! the same: how long a packet may wait, and how far the waits of two may lie apart.

use std::sync::Arc;
use std::time::Duration;

use vmio_model::policy::delay::DelayTarget;
use vmio_model::top::Latency;
use vmio_model::top::latency::{floor_us, middle_seconds};

use super::breach::{BreachChange, judge};
use crate::core::MemberDelay;
use crate::desired::PoolKey;
use crate::planes::DelayCount;

/// Share of packets whose waits count.
const SHARE: f64 = 0.99;

/// Waits of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waits {
    /// Half of the packets waited no longer, in seconds.
    pub median: f64,
    /// 99 % of them waited no longer.
    pub p99: f64,
    /// What lies between that and the shortest wait.
    pub jitter: f64,
    /// Whether a target was missed; `None` of a class without.
    pub missed: Option<bool>,
}

impl Waits {
    /// `None` of no packets.
    fn of(waits: &Latency, target: &DelayTarget) -> Option<Waits> {
        let (median, p99) = (waits.quantile_seconds(0.5)?, waits.quantile_seconds(SHARE)?);
        // Both ends of a bucket are known, what is between them is not: missed is what is so for certain.
        let (shortest, longest) = (waits.counts.iter().position(|n| *n > 0)?, waits.quantile_bucket(SHARE)?);
        let at_least = Duration::from_micros(floor_us(longest));
        let apart = Duration::from_micros(floor_us(longest).saturating_sub(floor_us(shortest + 1)));
        let targets = [(target.delay, at_least), (target.jitter, apart)];
        let mut missed = targets.into_iter().filter_map(|(target, is)| Some(is > target?)).peekable();
        let missed = missed.peek().is_some().then(|| missed.any(|missed| missed));
        // From the middle of a bucket to that of another.
        let jitter = if shortest == longest { 0.0 } else { p99 - middle_seconds(shortest) };
        Some(Waits { median, p99, jitter, missed })
    }
}

/// Waits of a member's packets since it joined the pool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DelayDemand {
    /// Of the last window; `None` where no packet was measured in it.
    pub waits: Option<Waits>,
    /// Times that a target was missed for 2 s in a row.
    pub misses: u64,
    /// For how long that is so now.
    pub missed: Option<Duration>,
    /// Time in a row in which windows contradicted `missed`.
    otherwise: Duration,
    last: Option<Arc<DelayCount>>,
}

impl DelayDemand {
    /// Adds a window; says whether targets begin to be missed, or are met again after so long.
    pub(super) fn count(&mut self, now: &MemberDelay, time: Duration) -> Option<Option<Duration>> {
        let before = std::mem::replace(&mut self.last, now.count.clone());
        let waits = now.count.as_ref().zip(before).and_then(|(now, before)| now.since(&before));
        let waits = waits.and_then(|waits| Waits::of(&waits, &now.target));
        self.window(waits, waits.is_some_and(|waits| waits.missed == Some(true)), time)
    }

    /// Adds a window at whose ends packets waited, and in which none left: the first of them waited for longer. As
    /// [`DelayDemand::count`] otherwise.
    pub(super) fn stand_still(&mut self, now: &MemberDelay, time: Duration) -> Option<Option<Duration>> {
        self.last.clone_from(&now.count);
        let missed = now.count.is_some() && now.target.delay.is_some_and(|target| target < time);
        self.window(None, missed, time)
    }

    /// Its pool is not in force: nothing is measured.
    pub(super) fn interrupt(&mut self) {
        (self.waits, self.otherwise, self.last) = Default::default();
    }

    /// Adds a window without packets.
    pub(super) fn rest(&mut self, time: Duration) -> Option<Option<Duration>> {
        self.window(None, false, time)
    }

    /// Whether another window without packets changes nothing.
    pub(super) fn is_at_rest(&self) -> bool {
        self.waits.is_none() && self.missed.is_none() && self.otherwise.is_zero()
    }

    fn window(&mut self, waits: Option<Waits>, missed: bool, time: Duration) -> Option<Option<Duration>> {
        self.waits = waits;
        let change = judge((&mut self.missed, &mut self.otherwise, &mut self.misses), missed, time)?;
        Some(match change {
            BreachChange::Begins => None,
            BreachChange::Ends(lasted) => Some(lasted),
        })
    }
}

/// A target of delay or jitter that is missed from now on, or met again.
#[derive(Debug, Clone, PartialEq)]
pub struct DelayChange {
    /// The pool.
    pub pool: PoolKey,
    /// The member.
    pub member: String,
    /// Its targets.
    pub target: DelayTarget,
    /// Waits of the last second; `None` where there were none.
    pub waits: Option<Waits>,
    /// `None` where it begins; how long it lasted where it ends.
    pub ended_after: Option<Duration>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn member(waits: &[u64], target: DelayTarget) -> MemberDelay {
        let mut count = DelayCount::default();
        waits.iter().for_each(|us| count.waits.add(*us));
        MemberDelay { count: Some(Arc::new(count)), target }
    }

    fn target(delay_ms: Option<u64>, jitter_ms: Option<u64>) -> DelayTarget {
        let ms = |time: Option<u64>| time.map(Duration::from_millis);
        DelayTarget { delay: ms(delay_ms), jitter: ms(jitter_ms), ..DelayTarget::default() }
    }

    #[test]
    fn delay_and_jitter_of_a_window() {
        let second = Duration::from_secs(1);
        let (mut demand, mut all) = (DelayDemand::default(), vec![70_000; 50]);
        demand.count(&member(&all, target(None, None)), second);
        assert_eq!(demand.waits, None, "what was before is not known");
        // 200 of 10 ms and one of a second: the window alone counts, and 99 % of it.
        all.extend([10_000; 200]);
        all.push(1_000_000);
        demand.count(&member(&all, target(None, None)), second);
        let waits = demand.waits.unwrap();
        assert!((waits.median / 0.01 - 1.0).abs() < 0.13 && waits.p99 == waits.median, "{waits:?}");
        assert_eq!((waits.jitter, waits.missed), (0.0, None));
        all.extend([0; 100]);
        all.extend([20_000; 10]);
        demand.count(&member(&all, target(Some(30), Some(30))), second);
        let waits = demand.waits.unwrap();
        assert!(
            (waits.jitter / 0.02 - 1.0).abs() < 0.13 && waits.median < 1e-6 && waits.missed == Some(false),
            "{waits:?}"
        );
        demand.count(&member(&all, target(None, None)), second);
        assert_eq!(demand.waits, None, "no packet");
        demand.count(&member(&[5], target(None, None)), second);
        assert_eq!(demand.waits, None, "the counters started again");
    }

    #[test]
    fn a_target_is_missed_for_certain() {
        let waits = |us: &[u64], target| {
            let mut latency = Latency::default();
            us.iter().for_each(|us| latency.add(*us));
            Waits::of(&latency, &target).unwrap().missed
        };
        assert_eq!(waits(&[21_000; 9], target(Some(20), None)), Some(true));
        // A bucket is from 16.4 to 20.5 ms.
        assert_eq!(waits(&[20_400; 9], target(Some(20), None)), Some(false));
        assert_eq!(waits(&[21_000; 9], target(None, Some(5))), Some(false), "all waited the same");
        assert_eq!(waits(&[0, 21_000], target(None, Some(5))), Some(true));
        assert_eq!(waits(&[0, 21_000], target(Some(30), Some(5))), Some(true));
    }

    /// No packet tells how long it waited.
    #[test]
    fn a_queue_that_stands_still_misses_its_delay() {
        let second = Duration::from_secs(1);
        let begins = |target, windows: usize| {
            let mut demand = DelayDemand::default();
            demand.count(&member(&[9], target), second);
            let changes: Vec<_> = (0..windows).map(|_| demand.stand_still(&member(&[9], target), second)).collect();
            (changes, demand.misses)
        };
        assert_eq!(begins(target(Some(20), None), 3), (vec![None, Some(None), None], 1));
        assert_eq!(begins(target(Some(2000), None), 3), (vec![None; 3], 0), "it may have waited for a second");
        assert_eq!(begins(target(None, Some(5)), 3), (vec![None; 3], 0));
    }

    #[test]
    fn a_miss_begins_and_ends_after_two_seconds() {
        let (mut demand, mut all, second) = (DelayDemand::default(), Vec::new(), Duration::from_secs(1));
        let mut add = |us: u64| {
            all.push(us);
            demand.count(&member(&all, target(Some(20), None)), second)
        };
        assert_eq!([add(9), add(50_000), add(50_000), add(50_000), add(9)], [None, None, Some(None), None, None]);
        assert_eq!(add(9), Some(Some(Duration::from_secs(3))));
        assert_eq!((demand.misses, demand.missed), (1, None));
    }
}
