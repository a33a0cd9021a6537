//! The rate of a stage: guests whose excess must wait in a hierarchy before the uplink (an IFB that their packets are
//! redirected through), while the host's own and unknown traffic joins theirs at the uplink.
//!
//! The stage's hierarchy shares between its members. Their common rate is what the others leave, which only counters
//! show: the uplink has the others' leaves and one for the stage. Each period the allocator grants the others' demands,
//! and the stage's root gets the rest. Until then the uplink's hierarchy keeps the others' minima, and excess from the
//! stage waits there; that backlog is subtracted from the stage's root, too.

use crate::allocate::{Demand, Member, exact};
use crate::picos::rate_of;
use crate::policy::program::Hierarchy;
use crate::rate::BitRate;

use super::PeriodSample;

/// Rates of a stage are multiples of capacity/STEPS, so that single packets of the host change nothing.
const STEPS: u64 = 128;
/// The least share of the capacity: 1/LEAST_PART.
const LEAST_PART: u64 = 50;
/// Periods in which a backlog behind the stage is worked off.
const PERIODS: u64 = 10;

/// The stage of a pool.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    /// By member: whether it is not in the stage.
    apart: Vec<bool>,
    /// What all share: the uplink's root before the loop subtracts idle hard minima.
    whole: BitRate,
    /// Backlog at the uplink that bursts leave there anyway, in bits.
    burst_bits: u64,
    /// Sum of its leaves' own rates. They send that much whatever the root has, and an HTB root with less runs into a
    /// time debt of up to a minute, which it works off before it lends again (`htb_charge_class` of
    /// net/sched/sch_htb.c): until then no member would get more than its own rate.
    own: BitRate,
    /// Recent traffic of the others: rises at once, falls by a quarter a period.
    taken: BitRate,
}

impl Stage {
    pub(super) fn new(apart: Vec<bool>, program: &Hierarchy) -> Stage {
        let leaves = apart.iter().zip(&program.leaves).filter(|(apart, _)| !**apart);
        let own = leaves.fold(BitRate::ZERO, |sum, (_, leaf)| sum.saturating_add(leaf.rate_bps));
        let burst_bits = u64::from(program.burst_bytes) * 8;
        Stage { apart, whole: program.rate_bps, burst_bits, own, taken: BitRate::ZERO }
    }

    /// The rate of the stage's root out of `root`, after a period of `time` picoseconds. `demands` are those of the
    /// loop; `waiting` bits from the stage wait at the uplink.
    pub(super) fn tick(
        &mut self,
        root: BitRate,
        members: &[Member],
        demands: &[Demand],
        seen: &[PeriodSample],
        waiting: u64,
        time: u64,
    ) -> BitRate {
        // The others' leaves at the uplink can rise at once, so measured traffic needs no margin.
        let demand = |((apart, demand), seen): ((&bool, &Demand), &PeriodSample)| {
            if *apart && !seen.held_back { Demand::Rate(rate_of(seen.passed, time)) } else { *demand }
        };
        let demands: Vec<Demand> = self.apart.iter().zip(demands).zip(seen).map(demand).collect();
        // Idle hard minima are no longer in `root`, and the allocator reserves them itself.
        let grants = exact(self.whole, members, &demands);
        let others = self.apart.iter().zip(&grants).filter(|(apart, _)| **apart);
        let now = others.fold(BitRate::ZERO, |sum, (_, grant)| sum.saturating_add(grant.rate));
        self.taken = now.max(3 * (self.taken / 4));
        let late = rate_of(waiting.saturating_sub(self.burst_bits), time.saturating_mul(PERIODS));
        self.rest(root, self.taken.saturating_add(late))
    }

    /// The rest of `root`, in steps.
    pub(super) fn rest(&self, root: BitRate, taken: BitRate) -> BitRate {
        let rest = root.saturating_sub(taken.rounded_up(root / STEPS));
        rest.max(root / LEAST_PART).max(self.own.min(root)).max(BitRate::ONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picos::{MILLISECOND, bits_of};
    use crate::policy::program::{Framing, Leaf};
    use crate::rate::MBIT as M;

    const PERIOD: u64 = 10 * MILLISECOND;

    fn member(priority: u8, min: u64) -> Member {
        Member { priority, min: min * M, max: 100 * M, weight: 1, hard: false, over_max: false }
    }

    fn seen(mbit: u64, held_back: bool) -> PeriodSample {
        let bits = bits_of(mbit * M, PERIOD);
        PeriodSample { offered: bits, passed: bits, held_back }
    }

    /// `host`, two guests, `default`.
    fn members(host: u8) -> Vec<Member> {
        vec![member(host, 2), member(4, 40), member(4, 0), member(8, 0)]
    }

    /// In Mbit/s, after a number of periods in which `host` and `default` use this much and both guests want all.
    fn after(
        periods: usize,
        stage: &mut Stage,
        members: &[Member],
        host: PeriodSample,
        other: PeriodSample,
        waiting: u64,
    ) -> u64 {
        let all = [Demand::Unbounded; 4];
        let seen = [host, seen(40, true), seen(40, true), other];
        let rests = (0..periods).map(|_| stage.tick(100 * M, members, &all, &seen, waiting, PERIOD));
        rests.last().unwrap_or_default() / M
    }

    fn stage() -> Stage {
        stage_of([2, 40, 0, 0])
    }

    /// With these rates of the leaves' own.
    fn stage_of([host, a, b, default]: [u64; 4]) -> Stage {
        let leaf = |name: &str, mbit: u64| Leaf {
            name: name.into(),
            rate_bps: mbit * M,
            ceil_bps: 100 * M,
            priority: 3,
            quantum_bytes: 1514,
            burst_bytes: 131_072,
            policed_bytes: 0,
            queue_bytes: 262_144,
            flows: Vec::new(),
        };
        let leaves = vec![leaf("host", host), leaf("a", a), leaf("b", b), leaf("default", default)];
        let program = Hierarchy { rate_bps: 100 * M, burst_bytes: 131_072, framing: Framing::NONE, leaves };
        Stage::new(vec![true, false, false, true], &program)
    }

    #[test]
    fn guests_get_what_the_others_leave() {
        let (idle, mut stage) = (seen(0, false), stage());
        assert_eq!(after(1, &mut stage, &members(1), idle, idle, 0), 100);
        // At once in steps of a 128th, and back within some periods.
        assert_eq!(after(1, &mut stage, &members(1), seen(10, false), idle, 0), 89);
        // Unknown traffic, less important than guests that want all, takes nothing from them.
        assert_eq!(after(1, &mut stage, &members(1), seen(10, false), seen(5, false), 0), 89);
        assert!(after(1, &mut stage, &members(1), idle, idle, 0) < 95);
        assert_eq!(after(30, &mut stage, &members(1), idle, idle, 0), 99);
    }

    #[test]
    fn a_host_that_floods_gets_its_share_by_its_class_and_minima_hold() {
        let idle = seen(0, false);
        // More important than all: all but the guests' minimum.
        assert_eq!(after(1, &mut stage(), &members(1), seen(60, true), idle, 0), 40);
        // Of the guests' priority: a third of what is spare, and its minimum.
        let rest = after(1, &mut stage(), &members(4), seen(2, true), idle, 0);
        assert!((76..=79).contains(&rest), "{rest}");
        // Less important than all: its minimum.
        assert_eq!(after(1, &mut stage(), &members(8), seen(2, true), idle, 0), 97);
        // Unknown traffic has no minimum, and is last.
        assert_eq!(after(1, &mut stage(), &members(1), idle, seen(1, true), 0), 100);
    }

    #[test]
    fn an_idle_hard_minimum_is_reserved_once() {
        let (idle, flood) = (seen(0, false), seen(30, true));
        let (nothing, all) = (Demand::Rate(BitRate::ZERO), Demand::Unbounded);
        let hard = |priority: u8| Member { hard: true, ..member(priority, 40) };
        // Of 100, 40 are reserved for an idle guest, so the root has 60: host and guest share all of it alike.
        let members = [member(4, 0), hard(4), member(4, 0), member(8, 0)];
        let mut stage = stage_of([0, 40, 0, 0]);
        let rest = stage.tick(60 * M, &members, &[all, nothing, all, nothing], &[flood, idle, flood, idle], 0, PERIOD);
        assert_eq!((stage.taken, rest), (30 * M, 40 * M), "not below the leaves' own rates");
        // The same of the host's minimum: unknown traffic before the guests gets the 30 that it wants.
        let members = [hard(1), member(4, 0), member(4, 0), member(1, 0)];
        let mut stage = stage_of([40, 0, 0, 0]);
        let seen = [idle, flood, flood, seen(30, false)];
        let rest = stage.tick(60 * M, &members, &[nothing, all, all, all], &seen, 0, PERIOD);
        assert_eq!((stage.taken, rest), (30 * M, 30 * M));
    }

    #[test]
    fn what_waits_behind_it_is_worked_off_and_a_burst_is_not() {
        let idle = seen(0, false);
        assert_eq!(after(1, &mut stage(), &members(1), idle, idle, 131_072 * 8), 100);
        assert_eq!(after(1, &mut stage(), &members(1), idle, idle, 131_072 * 8 + M.bits()), 89);
        // Never below the sum of the leaves' own rates, which they send anyway.
        assert_eq!(after(1, &mut stage(), &members(1), idle, idle, 1000 * M.bits()), 40);
        // Nor while they are idle and others take all: the root must have no debt when they start to send.
        let mut stage = stage();
        let (demands, all) = ([Demand::Rate(BitRate::ZERO); 4], Demand::Unbounded);
        let demands = [all, demands[1], demands[2], all];
        let seen = [seen(50, true), idle, idle, seen(50, true)];
        assert_eq!(stage.tick(100 * M, &members(1), &demands, &seen, 0, PERIOD), 40 * M);
    }
}
