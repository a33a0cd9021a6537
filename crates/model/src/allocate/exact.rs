//! vmio's own allocation. For one pool (an uplink's direction):
//!
//! 1. Each member is *guaranteed* its demand up to its effective minimum.
//! 2. *Lendable* is the capacity less what is guaranteed; a hard member's whole minimum counts.
//! 3. Priorities in order share it: inside one, weighted max-min over the spare part only, each up
//!    to its demand or maximum. What a priority leaves goes to the next; one that is left wanting
//!    leaves nothing, its rounding (fewer bit/s than it has members) stays unused.
//! 4. What is then left goes to all that may exceed their maximum, at once, whatever their
//!    priority: weighted max-min over what this step adds, up to their demand.
//!
//! What a member wants of steps 3 and 4 depends on its own demand alone (step 4 happens only when
//! all have what they want of step 3). So a water level a priority and one for step 4 say it all:
//! the whole form and [the incremental one](super::incremental) differ only in how they find them.

use super::level::{Level, Want, fill};
use super::{Demand, Grant, Member};
use crate::rate::BitRate;

/// Priorities that there are.
pub(crate) const PRIORITIES: usize = 8;

/// What one member's demand comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Step 1.
    pub guaranteed: BitRate,
    /// Taken from what can be lent.
    pub reserved: BitRate,
    /// Of step 3.
    pub spare: Want,
    /// Of step 4.
    pub over: Want,
}

impl Asked {
    pub fn new(member: &Member, demand: Demand) -> Asked {
        let weight = member.weight.max(1);
        let guaranteed = demand.up_to(member.min);
        let ceiling = member.ceiling(demand);
        let over = if member.over_max { demand.up_to(BitRate::MAX) - ceiling } else { BitRate::ZERO };
        Asked {
            guaranteed,
            reserved: if member.hard { member.min } else { guaranteed },
            spare: Want { rate: ceiling - guaranteed, weight },
            over: Want { rate: over, weight },
        }
    }

    /// What it wants of which step: of its priority's, and of that beyond the maxima.
    pub fn steps(&self, rank: usize) -> impl Iterator<Item = (usize, Want)> {
        [(rank, self.spare), (PRIORITIES, self.over)].into_iter().filter(|(_, want)| want.rate > BitRate::ZERO)
    }
}

/// Index of a member's priority.
pub(crate) fn rank(member: &Member) -> usize {
    usize::from(member.priority.clamp(1, PRIORITIES as u8)) - 1
}

/// The water levels: with them a member's grant is found in constant time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Levels {
    pub priority: [Level; PRIORITIES],
    pub over: Level,
}

impl Levels {
    /// Goes through the priorities. `fill(step, pool)` gives a step's level and what it leaves;
    /// step [`PRIORITIES`] is that beyond the maxima.
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

    pub fn grant(&self, member: &Member, asked: &Asked) -> Grant {
        let spare = self.priority[rank(member)].share(&asked.spare) + self.over.share(&asked.over);
        Grant::new(asked.guaranteed, spare)
    }
}

/// What can be lent when `reserved` bit/s cannot.
pub(crate) fn lendable(capacity: BitRate, reserved: u128) -> BitRate {
    BitRate::of_sum(u128::from(capacity).saturating_sub(reserved))
}

/// What each member gets, in their order; linear in their number.
///
/// The members' effective minima must fit the capacity (the policy sees to it); where they do not,
/// nothing is lent and the minima alone are granted. `demands` has one entry a member.
///
/// # Panics
/// When there are not as many demands as members.
pub fn exact(capacity: BitRate, members: &[Member], demands: &[Demand]) -> Vec<Grant> {
    assert_eq!(members.len(), demands.len(), "one demand a member");
    let asked: Vec<Asked> = members.iter().zip(demands).map(|(m, d)| Asked::new(m, *d)).collect();
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
