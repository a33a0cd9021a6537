//! Properties of the allocators, on random and on all small cases, compared with an independent solver.
#![allow(clippy::unwrap_used)]

mod dba;
mod exact;
mod oracle;

use proptest::prelude::*;

use super::{Demand, Grant, Member};
use crate::rate::BitRate;

/// A member with weight 1 and a lent minimum, in bit/s.
pub fn member(priority: u8, min: u64, max: u64) -> Member {
    let (min, max) = (BitRate::new(min), BitRate::new(max));
    Member { priority, min, max, weight: 1, hard: false, over_max: false }
}

/// A demand of so many bit/s.
pub fn wants(bits: u64) -> Demand {
    Demand::Rate(BitRate::new(bits))
}

/// Rates of the grants, in bit/s.
pub fn rates(grants: &[Grant]) -> Vec<u64> {
    grants.iter().map(|g| g.rate.bits()).collect()
}

/// The paper's three members, in Mbit/s, with contracts that give Figure 4 under `exact`.
pub fn study() -> [Member; 3] {
    let m = 1_000_000;
    [
        Member { hard: true, ..member(1, 300 * m, 600 * m) },
        Member { weight: 2, over_max: true, ..member(2, 100 * m, 300 * m) },
        Member { over_max: true, ..member(3, 0, 100 * m) },
    ]
}

/// A pool: a capacity, and members whose minima fit, with demands. Small numbers make ties.
pub fn pools() -> impl Strategy<Value = (BitRate, Vec<Member>, Vec<Demand>)> {
    let scale = prop_oneof![Just(1u64), Just(7), Just(1_000_003), Just(80_000_000)];
    let one =
        (1u8..=8, 0u64..40, 0u64..100, 1u32..5, any::<bool>(), any::<bool>(), prop::option::weighted(0.8, 0u64..150));
    (scale, 0u64..10_000, prop::collection::vec(one, 0..24))
        .prop_map(|(scale, capacity, all)| {
            let capacity = capacity * scale;
            let mut left = capacity;
            let (mut members, mut demands) = (Vec::new(), Vec::new());
            for (priority, min, max, weight, hard, over_max, demand) in all {
                let min = (min * scale).min(left);
                left -= min;
                let max = (max * scale).max(min);
                members.push(Member { weight, hard, over_max, ..member(priority, min, max) });
                demands.push(demand.map_or(Demand::Unbounded, |d| wants(d * scale)));
            }
            (BitRate::new(capacity / 8), members, demands)
        })
        .prop_map(|(capacity, members, demands)| {
            // Minima are up to eight times the capacity: fit them, so that both scarcity and plenty are common.
            let mut left = capacity;
            let fit = |m: Member| {
                let min = m.min.min(left);
                left = left - min;
                Member { min, ..m }
            };
            (capacity, members.into_iter().map(fit).collect(), demands)
        })
}

/// Random changes: a member, and its new demand.
pub fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, Option<u64>)>> {
    prop::collection::vec((any::<prop::sample::Index>(), prop::option::weighted(0.8, 0u64..2_000_000)), 1..60)
}
