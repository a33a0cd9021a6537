//! vmio's own allocation. For one pool (an uplink's direction):
//!
//! 1. Each member is *guaranteed* its demand up to its effective minimum.
//! 2. *Lendable* is the capacity less what is guaranteed; a hard member's whole minimum counts.
//! 3. Priorities share it in order: within one, weighted max-min over the spare part only, each up to its demand or
//!    maximum. What a priority leaves goes to the next; an unsatisfied priority leaves nothing, its rounding (fewer
//!    bit/s than it has members) stays unused.
//! 4. The rest goes to all members that may exceed their maximum, regardless of priority: weighted max-min over what
//!    this step adds, up to their demand.
//!
//! What a member wants of steps 3 and 4 depends on its own demand alone (step 4 happens only when all are satisfied in
//! step 3). So one water level for each priority and one for step 4 define the result: this form and [the incremental
//! one](super::incremental) differ only in finding them.

use super::level::{Level, Want, fill};
use super::{Demand, Grant, Member};
use crate::rate::BitRate;

/// Number of priorities.
pub(crate) const PRIORITIES: usize = 8;

/// What a member's demand asks of each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepWants {
    /// Step 1.
    pub guaranteed: BitRate,
    /// Not available for lending.
    pub reserved: BitRate,
    /// In step 3.
    pub spare: Want,
    /// In step 4.
    pub over: Want,
}

impl StepWants {
    pub fn new(member: &Member, demand: Demand) -> StepWants {
        let weight = member.weight.max(1);
        let guaranteed = demand.up_to(member.min);
        let ceiling = member.ceiling(demand);
        let over = if member.over_max { demand.up_to(BitRate::MAX) - ceiling } else { BitRate::ZERO };
        StepWants {
            guaranteed,
            reserved: if member.hard { member.min } else { guaranteed },
            spare: Want { rate: ceiling - guaranteed, weight },
            over: Want { rate: over, weight },
        }
    }

    /// Its wants by step: that of its priority, and that beyond the maxima.
    pub fn steps(&self, rank: usize) -> impl Iterator<Item = (usize, Want)> {
        [(rank, self.spare), (PRIORITIES, self.over)].into_iter().filter(|(_, want)| want.rate > BitRate::ZERO)
    }
}

/// Index of a member's priority.
pub(crate) fn rank(member: &Member) -> usize {
    usize::from(member.priority.clamp(1, PRIORITIES as u8)) - 1
}

/// The water levels, from which a member's grant follows in constant time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Levels {
    pub priority: [Level; PRIORITIES],
    pub over: Level,
}

impl Levels {
    /// Goes through the steps. `fill(step, pool)` returns a step's level and what it leaves; step [`PRIORITIES`] is the
    /// one beyond the maxima.
    pub fn find(lendable: BitRate, mut fill: impl FnMut(usize, BitRate) -> (Level, BitRate)) -> Levels {
        let mut levels = Levels { priority: [Level::EMPTY; PRIORITIES], over: Level::EMPTY };
        let mut pool = lendable;
        for (step, level) in levels.priority.iter_mut().enumerate() {
            (*level, pool) = fill(step, pool);
            if *level != Level::Full {
                return levels;
            }
        }
        levels.over = fill(PRIORITIES, pool).0;
        levels
    }

    pub fn grant(&self, member: &Member, asked: &StepWants) -> Grant {
        let spare = self.priority[rank(member)].share(&asked.spare) + self.over.share(&asked.over);
        Grant::new(asked.guaranteed, spare)
    }
}

/// What can be lent when `reserved` bit/s cannot.
pub(crate) fn lendable(capacity: BitRate, reserved: u128) -> BitRate {
    BitRate::of_sum(u128::from(capacity).saturating_sub(reserved))
}

/// The grant of each member, in order; linear in their number.
///
/// The members' effective minima must fit the capacity (the policy ensures it); otherwise nothing is lent and the
/// minima alone are granted. `demands` has one entry for each member.
///
/// # Panics
/// When there are not as many demands as members.
pub fn exact(capacity: BitRate, members: &[Member], demands: &[Demand]) -> Vec<Grant> {
    assert_eq!(members.len(), demands.len(), "one demand a member");
    let asked: Vec<StepWants> = members.iter().zip(demands).map(|(m, d)| StepWants::new(m, *d)).collect();
    let reserved = asked.iter().map(|a| u128::from(a.reserved)).sum();
    let mut wants: [Vec<Want>; PRIORITIES + 1] = Default::default();
    for (member, asked) in members.iter().zip(&asked) {
        for (step, want) in asked.steps(rank(member)) {
            wants[step].push(want);
        }
    }
    let levels = Levels::find(lendable(capacity, reserved), |step, pool| fill(&mut wants[step], pool));
    members.iter().zip(&asked).map(|(m, a)| levels.grant(m, a)).collect()
}
