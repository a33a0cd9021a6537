//! [`exact`](fn@super::exact) for a pool that is kept: when one member's demand changes, only the water levels are
//! recomputed, and any member's grant follows in constant time. The results are identical.

use super::exact::{Levels, PRIORITIES, StepWants, lendable, rank};
use super::ladder::Ladder;
use super::{Demand, Grant, Member};
use crate::rate::BitRate;

/// A pool with its members, their demands, and the water levels.
#[derive(Debug, Clone)]
pub struct Pool {
    capacity: BitRate,
    members: Vec<Member>,
    asked: Vec<StepWants>,
    reserved: u128,
    /// A ladder for each priority, and one for what goes beyond the maxima.
    ladders: [Ladder; PRIORITIES + 1],
    levels: Levels,
}

impl Pool {
    /// A pool of that capacity, with one demand for each member.
    ///
    /// # Panics
    /// When there are not as many demands as members.
    pub fn new(capacity: BitRate, members: &[Member], demands: &[Demand]) -> Pool {
        assert_eq!(members.len(), demands.len(), "one demand a member");
        let asked: Vec<StepWants> = members.iter().zip(demands).map(|(m, d)| StepWants::new(m, *d)).collect();
        let mut wants: [Vec<_>; PRIORITIES + 1] = Default::default();
        for (member, asked) in members.iter().zip(&asked) {
            for (step, want) in asked.steps(rank(member)) {
                wants[step].push(want);
            }
        }
        let ladders = wants.map(Ladder::new);
        let reserved = asked.iter().map(|a| u128::from(a.reserved)).sum();
        let levels = Levels::find(lendable(capacity, reserved), |step, pool| ladders[step].fill(pool));
        Pool { capacity, members: members.to_vec(), asked, reserved, ladders, levels }
    }

    /// Changes a member's demand and recomputes the levels.
    ///
    /// # Panics
    /// When there is no such member.
    pub fn set(&mut self, member: usize, demand: Demand) {
        let contract = &self.members[member];
        let (old, new) = (self.asked[member], StepWants::new(contract, demand));
        if old == new {
            return;
        }
        for (step, want) in old.steps(rank(contract)) {
            self.ladders[step].remove(&want);
        }
        for (step, want) in new.steps(rank(contract)) {
            self.ladders[step].insert(want);
        }
        self.reserved = self.reserved - u128::from(old.reserved) + u128::from(new.reserved);
        self.asked[member] = new;
        self.levels = Levels::find(lendable(self.capacity, self.reserved), |step, pool| self.ladders[step].fill(pool));
    }

    /// A member's current grant.
    ///
    /// # Panics
    /// When there is no such member.
    pub fn grant(&self, member: usize) -> Grant {
        self.levels.grant(&self.members[member], &self.asked[member])
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}
