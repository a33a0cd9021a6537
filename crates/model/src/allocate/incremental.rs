//! [`exact`](fn@super::exact) for a pool that is kept: when one member's demand changes, only the
//! water levels are found anew, and any member's grant is then read in constant time. The results
//! are those of the whole form, bit for bit.

use super::exact::{Asked, Levels, PRIORITIES, lendable, rank};
use super::ladder::Ladder;
use super::{Demand, Grant, Member};
use crate::rate::BitRate;

/// A pool with its members, their demands, and the levels that follow.
#[derive(Debug, Clone)]
pub struct Pool {
    capacity: BitRate,
    members: Vec<Member>,
    asked: Vec<Asked>,
    reserved: u128,
    /// A ladder a priority, and one for what goes beyond the maxima.
    ladders: [Ladder; PRIORITIES + 1],
    levels: Levels,
}

impl Pool {
    /// A pool of that capacity, one demand a member.
    ///
    /// # Panics
    /// When there are not as many demands as members.
    pub fn new(capacity: BitRate, members: &[Member], demands: &[Demand]) -> Pool {
        assert_eq!(members.len(), demands.len(), "one demand a member");
        let asked: Vec<Asked> = members.iter().zip(demands).map(|(m, d)| Asked::new(m, *d)).collect();
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

    /// A member's demand has changed: finds the levels anew.
    ///
    /// # Panics
    /// When there is no such member.
    pub fn set(&mut self, member: usize, demand: Demand) {
        let contract = &self.members[member];
        let (old, new) = (self.asked[member], Asked::new(contract, demand));
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

    /// What a member gets now.
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
