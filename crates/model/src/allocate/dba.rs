//! The published allocator, made readable and conserving: A. Amamou, M. Bourguiba, K. Haddadou,
//! G. Pujolle, *A Dynamic Bandwidth Allocator for Virtual Machines in a Cloud Environment*, CCNC
//! 2012, section V.A. A periodic loop: it measures what each member transmits (`B_i`), goes
//! through the members by class, in a class by creation, and sets each one's rate anew.
//!
//! Where the printed text cannot be meant as it stands, the code has the reading that keeps the
//! contracts; each place is marked `printed:`. Beyond the slips, two things are not said there:
//! - What is shared "based on priorities": by rank (lowest class 1, the next 2, …), which gives
//!   Figure 4's 500 and 200 Mbit/s; among those that want more than they have. It goes beyond the
//!   maxima, as in that figure (500 and 200 with printed maxima of 300 and 100).
//! - Whether `B_i` is what was [offered](Measures::Offered) or what [passed](Measures::Passed).
//!
//! The paper knows no weight, no lent minimum and no `over_max`; those fields of a [`Member`] are
//! not looked at. A rate is a limit: an idle member's minimum stays reserved for it.

use super::level::{Want, fill};
use super::{Demand, Grant, Member};
use crate::rate::BitRate;

/// What the loop is told of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measures {
    /// What the guest tried to send: known where excess is dropped in the guest's own driver.
    Offered,
    /// What got through the rate in force; never above it. Whoever reached it may want more.
    Passed,
}

impl Measures {
    /// As the command line and a status call it.
    pub fn word(self) -> &'static str {
        match self {
            Measures::Offered => "offered",
            Measures::Passed => "passed",
        }
    }
}

/// The loop and the rates that it has set.
#[derive(Debug, Clone)]
pub struct Loop {
    capacity: BitRate,
    members: Vec<Member>,
    measures: Measures,
    /// Indices of members by priority, inside one by creation.
    order: Vec<usize>,
    /// In the members' order.
    rates: Vec<BitRate>,
    /// Weights of the excess, see [`ranks`].
    ranks: Vec<u32>,
}

impl Loop {
    /// A loop over `members`, in order of creation, for a pool of that capacity. Minima that do
    /// not all fit are granted by class, inside one to the first created first; the loop starts with
    /// each member at what it has of its minimum.
    pub fn new(capacity: BitRate, members: &[Member], measures: Measures) -> Loop {
        let mut members = members.to_vec();
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_by_key(|i| members[*i].priority);
        let mut left = capacity;
        for i in &order {
            members[*i].min = members[*i].min.min(left);
            left = left - members[*i].min;
        }
        let rates = members.iter().map(|m| m.min).collect();
        let ranks = ranks(&members, &[]);
        Loop { capacity, members, measures, order, rates, ranks }
    }

    /// Counts ranks without these, which are no guests: each of them has that of the guests' class at or next below its own,
    /// at least 1. The paper knows guests only, so that they share as it says whoever else there is.
    pub fn rank_without(&mut self, apart: &[bool]) {
        self.ranks = ranks(&self.members, apart);
    }

    /// The rates in force, in the members' order.
    pub fn rates(&self) -> &[BitRate] {
        &self.rates
    }

    /// One turn: what was `measured` of each member since the last, to new rates. The rates never
    /// come to more than the capacity.
    ///
    /// # Panics
    /// When there are not as many measurements as members.
    pub fn step(&mut self, measured: &[BitRate]) -> &[BitRate] {
        assert_eq!(measured.len(), self.members.len(), "one measurement a member");
        let in_force = self.rates.clone();
        let mut turn = Turn::new(self.capacity, &self.members, measured);
        for (place, &i) in self.order.iter().enumerate() {
            turn.visit(i, place, &self.order);
        }
        // printed: nothing for rates between minimum and maximum that together exceed the
        // capacity, which offered traffic can. They are lowered as for a missing minimum.
        turn.reclaim(BitRate::ZERO, None, &self.order);
        let notice = (self.capacity / 1000 / measured.len().max(1) as u64).max(BitRate::ONE);
        let more: Vec<BitRate> = (0..measured.len())
            .map(|i| match self.measures {
                Measures::Offered => measured[i].saturating_sub(turn.rates[i]),
                // It used all that it had, so nobody knows how much it wants.
                Measures::Passed if measured[i] > BitRate::ZERO && measured[i] >= in_force[i] => self.capacity,
                // Nothing passes a rate of 0: a thousandth of the capacity is for being noticed.
                Measures::Passed => notice.saturating_sub(turn.rates[i]),
            })
            .collect();
        turn.share_excess(&more, &self.ranks);
        self.rates = turn.rates;
        &self.rates
    }
}

/// One turn's state, in the paper's terms.
struct Turn<'a> {
    members: &'a [Member],
    /// `B_p^ex`: what of the capacity is not given away, in bit/s. Below 0 while the traffic that
    /// is still to be looked at exceeds the capacity.
    excess: i128,
    /// `B_i`.
    rates: Vec<BitRate>,
}

impl<'a> Turn<'a> {
    fn new(capacity: BitRate, members: &'a [Member], measured: &[BitRate]) -> Turn<'a> {
        let used: i128 = measured.iter().map(|m| i128::from(m.bits())).sum();
        Turn { members, excess: i128::from(capacity.bits()) - used, rates: measured.to_vec() }
    }

    /// Sets a member's rate; the excess takes up the difference.
    ///
    /// printed: in the reclaiming loops `B_j` is set first and the difference, then 0, is added
    /// to the excess after. The difference is meant as it was before.
    fn set(&mut self, i: usize, rate: BitRate) {
        self.excess += i128::from(self.rates[i].bits()) - i128::from(rate.bits());
        self.rates[i] = rate;
    }

    /// The paper's three cases for one member.
    fn visit(&mut self, i: usize, place: usize, order: &[usize]) {
        let Member { min, max, .. } = self.members[i];
        let max = max.max(min);
        // printed: "no change" when B_max < B_i < B_min; the bounds are swapped.
        if (min..=max).contains(&self.rates[i]) {
            return;
        }
        if self.rates[i] > max {
            return self.set(i, max);
        }
        // printed: the first test reads (B_i - B_min) < B_ex, whose left side is never positive
        // here, and the later ones B_ex > B_min. What is missing is B_min - B_i, and it may be all.
        let missing = min - self.rates[i];
        self.reclaim(missing, Some(place), order);
        // printed: "B_min is readjusted to B_i"; the formula beside it assigns B_i, as here.
        // printed: otherwise B_i <- B_ex, which forgets what it had: the excess comes on top.
        let found = u64::try_from(self.excess.clamp(0, i128::from(missing.bits()))).unwrap_or(0);
        self.set(i, self.rates[i] + BitRate::new(found));
    }

    /// Lowers others to their minima until `missing` is free: class by class, the least important
    /// first.
    ///
    /// printed: stops at the member's own class, so that a class between its bounds could keep
    /// a more modest one below its minimum for ever. Minima are the contract: this goes on.
    fn reclaim(&mut self, missing: BitRate, except: Option<usize>, order: &[usize]) {
        let mut end = order.len();
        while end > 0 && self.excess < i128::from(missing.bits()) {
            let class = self.members[order[end - 1]].priority;
            let start = order[..end].iter().rposition(|j| self.members[*j].priority != class).map_or(0, |p| p + 1);
            for (place, &j) in order.iter().enumerate().take(end).skip(start) {
                if Some(place) != except && self.rates[j] > self.members[j].min {
                    self.set(j, self.members[j].min);
                }
            }
            end = start;
        }
    }

    /// Shares the excess by rank among members that want so much `more` each.
    fn share_excess(&mut self, more: &[BitRate], ranks: &[u32]) {
        let pool = BitRate::new(u64::try_from(self.excess).unwrap_or(0));
        let want = |i: usize| Want { rate: more[i], weight: ranks[i] };
        let mut wants: Vec<Want> = (0..more.len()).filter(|i| more[*i] > BitRate::ZERO).map(want).collect();
        let (level, _) = fill(&mut wants, pool);
        for i in (0..more.len()).filter(|i| more[*i] > BitRate::ZERO) {
            self.set(i, self.rates[i] + level.share(&want(i)));
        }
    }
}

/// Each member's rank: 1 for the least important class that there is, 2 for the next, …; classes of members that are `apart`
/// are not counted.
fn ranks(members: &[Member], apart: &[bool]) -> Vec<u32> {
    let counted = members.iter().enumerate().filter(|(i, _)| !apart.get(*i).copied().unwrap_or(false));
    let mut classes: Vec<u8> = counted.map(|(_, m)| m.priority).collect();
    classes.sort_unstable();
    classes.dedup();
    let rank = |m: &Member| (classes.len() - classes.partition_point(|c| *c < m.priority)).max(1) as u32;
    members.iter().map(rank).collect()
}

/// The loop's steady state when each member, in order of creation, keeps offering its demand and
/// that is what is measured. The rates are limits and sum up to the capacity at most: an idle
/// member's is its minimum, not its demand. `guaranteed` is the part of the rate
/// up to what it has of its minimum.
///
/// # Panics
/// When there are not as many demands as members.
pub fn dba(capacity: BitRate, members: &[Member], demands: &[Demand]) -> Vec<Grant> {
    assert_eq!(members.len(), demands.len(), "one demand a member");
    // What exceeds the capacity cannot be had and need not be told apart.
    let offered: Vec<BitRate> = demands.iter().map(|d| d.up_to(capacity)).collect();
    let mut turns = Loop::new(capacity, members, Measures::Offered);
    // With offered traffic a turn depends on nothing before it: the first is the steady state.
    turns.step(&offered);
    let grant = |(m, rate): (&Member, &BitRate)| Grant::new(m.min.min(*rate), *rate - m.min.min(*rate));
    turns.members.iter().zip(&turns.rates).map(grant).collect()
}
