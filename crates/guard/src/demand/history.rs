//! What each member got in the last ten minutes, second by second. Kept in memory alone: a restart begins anew.

use std::collections::BTreeMap;
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Demand;
use crate::core::PoolStatus;
use crate::desired::PoolKey;

/// Seconds that are kept of a member.
const SECONDS: usize = 600;
/// Most members (a guest is one in each direction) of which they are kept, so that memory stays below 10 MiB; later
/// ones have none.
const MOST: usize = 2000;
/// Longest time between two counts for which one rate speaks: the machine may have been suspended.
const LONGEST_GAP: u64 = 5;

/// A second of a member, in bit/s; NaN where it is not known.
#[derive(Debug, Clone, Copy)]
struct Point {
    rate: f32,
    min: f32,
}

/// A member's last seconds, as a ring.
#[derive(Debug, Clone)]
struct Member {
    /// The second of its first count, and of its last one.
    first: u64,
    last: u64,
    points: Vec<Point>,
}

/// The last ten minutes of all members.
#[derive(Debug, Clone)]
pub struct History {
    began: Instant,
    pools: BTreeMap<PoolKey, BTreeMap<String, Member>>,
}

/// The last ten minutes of a member: a value for each second, the oldest first, the last one of now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberHistory {
    /// Rate that passed, in bit/s; null where it is not known.
    pub rates_bps: Vec<Option<u64>>,
    /// Minimum in force, in bit/s.
    pub minimums_bps: Vec<Option<u64>>,
}

impl History {
    /// Begins now.
    pub fn new(began: Instant) -> History {
        History { began, pools: BTreeMap::new() }
    }

    fn second(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_secs()
    }

    /// Adds what was counted of these pools' members; members that are gone are forgotten.
    pub fn count(&mut self, pools: &[PoolStatus], demand: &Demand, at: Instant) {
        let second = self.second(at);
        let mut kept: usize = self.pools.values().map(BTreeMap::len).sum();
        for pool in pools {
            let members = self.pools.entry(pool.key.clone()).or_default();
            for member in &pool.members {
                let rate = demand.of(&pool.key, &member.name).and_then(|demand| demand.rate_bps);
                let bits = |rate: vmio_model::rate::BitRate| rate.bits() as f32;
                let point = Point { rate: rate.map_or(f32::NAN, bits), min: bits(member.min_effective_bps) };
                if let Some(known) = members.get_mut(&member.name) {
                    known.add(second, point);
                } else if kept < MOST {
                    kept += 1;
                    let mut points = Vec::with_capacity(SECONDS);
                    points.push(point);
                    members.insert(member.name.clone(), Member { first: second, last: second, points });
                }
            }
        }
        for members in self.pools.values_mut() {
            members.retain(|_, member| member.last == second);
        }
        self.pools.retain(|_, members| !members.is_empty());
    }

    /// Adds a second in which nothing passed of any member, and no minimum changed.
    pub fn rest(&mut self, at: Instant) {
        let second = self.second(at);
        for member in self.pools.values_mut().flat_map(BTreeMap::values_mut) {
            let min = member.at(member.last).map_or(f32::NAN, |point| point.min);
            member.add(second, Point { rate: 0.0, min });
        }
    }

    /// A member's last ten minutes; `None` of one that the last count did not see, or of which none is kept.
    pub fn of(&self, pool: &PoolKey, member: &str) -> Option<MemberHistory> {
        let member = self.pools.get(pool)?.get(member)?;
        let oldest = member.first.max((member.last + 1).saturating_sub(SECONDS as u64));
        let seconds: Vec<Option<Point>> = (oldest..=member.last).map(|second| member.at(second)).collect();
        let values = |of: fn(&Point) -> f32| {
            let value = |point: &Option<Point>| point.as_ref().map(of).filter(|bits| bits.is_finite());
            seconds.iter().map(|point| value(point).map(|bits| bits as u64)).collect()
        };
        Some(MemberHistory { rates_bps: values(|point| point.rate), minimums_bps: values(|point| point.min) })
    }
}

impl Member {
    fn at(&self, second: u64) -> Option<Point> {
        self.points.get((second - self.first) as usize % SECONDS).copied()
    }

    /// Sets the seconds since the last count: the rate is their mean.
    fn add(&mut self, second: u64, point: Point) {
        let unknown = Point { rate: f32::NAN, ..point };
        let speaks = second.saturating_sub(self.last) <= LONGEST_GAP;
        let from = (self.last + 1).max(second.saturating_sub(SECONDS as u64 - 1)).min(second);
        for each in from..=second {
            let place = (each - self.first) as usize % SECONDS;
            let point = if speaks || each == second { point } else { unknown };
            if place < self.points.len() {
                self.points[place] = point;
            } else {
                self.points.resize(place, unknown);
                self.points.push(point);
            }
        }
        self.last = self.last.max(second);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use vmio_model::rate::BitRate;

    use super::super::tests::{key, member, pool_of};
    use super::*;

    const MBIT: u64 = 1_000_000;

    struct Clock {
        began: Instant,
        demand: Demand,
        history: History,
        passed_bytes: u64,
    }

    impl Clock {
        fn new() -> Clock {
            let began = Instant::now();
            Clock { began, demand: Demand::default(), history: History::new(began), passed_bytes: 0 }
        }

        /// A second that ends so many after the begin, in which `a` passed this rate.
        fn count(&mut self, second: u64, mbit: u64, names: &[&str]) {
            self.passed_bytes += mbit * MBIT / 8;
            let member = |name: &&str| member(name, BitRate::new(10 * MBIT), self.passed_bytes, 0, 0);
            let pool = pool_of(names.iter().map(member).collect(), None);
            let at = self.began + Duration::from_secs(second);
            self.demand.count(std::slice::from_ref(&pool), at);
            self.history.count(&[pool], &self.demand, at);
        }

        fn mbit(&self) -> Vec<Option<u64>> {
            let all = self.history.of(&key(), "a").unwrap().rates_bps;
            all.into_iter().map(|bits| bits.map(|bits| bits / MBIT)).collect()
        }
    }

    #[test]
    fn each_second_has_its_rate() {
        let mut clock = Clock::new();
        for second in 0..4 {
            clock.count(second, 10 * second, &["a", "b"]);
        }
        clock.history.rest(clock.began + Duration::from_secs(4));
        assert_eq!(clock.mbit(), [None, Some(10), Some(20), Some(30), Some(0)]);
        let minimums = clock.history.of(&key(), "a").unwrap().minimums_bps;
        assert_eq!(minimums, vec![Some(10 * MBIT); 5]);
        assert_eq!(clock.history.of(&key(), "c"), None);
    }

    #[test]
    fn ten_minutes_are_kept() {
        let mut clock = Clock::new();
        for second in 0..700 {
            clock.count(second, second % 50, &["a"]);
        }
        let all = clock.mbit();
        assert_eq!((all.len(), all[0], all[599]), (600, Some(0), Some(49)), "{all:?}");
    }

    #[test]
    fn a_gap_is_not_known() {
        let mut clock = Clock::new();
        clock.count(0, 0, &["a"]);
        clock.count(1, 20, &["a"]);
        clock.count(11, 100, &["a"]);
        let all = clock.mbit();
        assert_eq!((all.len(), all[1], &all[2..11], all[11]), (12, Some(20), &[None; 9][..], Some(10)));
        // A short one has its mean.
        clock.count(13, 20, &["a"]);
        assert_eq!(clock.mbit()[12..], [Some(10), Some(10)]);
    }

    #[test]
    fn who_is_gone_is_forgotten_and_memory_is_bounded() {
        let mut clock = Clock::new();
        clock.count(0, 0, &["a", "b"]);
        clock.count(1, 0, &["b"]);
        assert_eq!(clock.history.of(&key(), "a"), None);
        let names: Vec<String> = (0..3 * MOST).map(|n| format!("guest{n}")).collect();
        clock.count(2, 0, &names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(clock.history.pools[&key()].len(), MOST - 1, "b had a place until this second");
    }
}
