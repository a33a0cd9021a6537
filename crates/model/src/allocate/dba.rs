//! The published allocator: A. Amamou, M. Bourguiba, K. Haddadou, G. Pujolle, *A Dynamic Bandwidth Allocator for
//! Virtual Machines in a Cloud Environment*, CCNC 2012, section V.A. A periodic loop measures what each member
//! transmits (`B_i`), goes through the members by class, in a class by creation, and sets their rates.
//!
//! Where the printed text is in error, the code has the reading that keeps the contracts; each place is marked
//! `printed:`. Two things are not specified there:
//! - How the excess is shared "based on priorities": here by rank (lowest class 1, the next 2, …), which gives Figure
//!   4's 500 and 200 Mbit/s, among members that want more than they have, and beyond the maxima, as in that figure (500
//!   and 200 with printed maxima of 300 and 100).
//! - Whether `B_i` is the [offered](Measures::Offered) or the [passed](Measures::Passed) traffic.
//!
//! The paper has no weight, no lent minimum and no `over_max`; those fields of a [`Member`] are ignored. A rate is a
//! limit: an idle member's minimum stays reserved.

use super::level::{Want, fill};
use super::{Demand, Grant, Member};
use crate::rate::BitRate;

/// What the loop measures of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measures {
    /// What the guest tried to send: known where excess is dropped in the guest's own driver.
    Offered,
    /// What passed the limit in force, and never more. A member that reached it may want more.
    Passed,
}

impl Measures {
    /// Name on the command line and in the status.
    pub fn word(self) -> &'static str {
        match self {
            Measures::Offered => "offered",
            Measures::Passed => "passed",
        }
    }
}

/// The loop's state.
#[derive(Debug, Clone)]
pub struct Loop {
    capacity: BitRate,
    members: Vec<Member>,
    measures: Measures,
    /// Indices of members by priority, within one by creation.
    order: Vec<usize>,
    /// By member.
    rates: Vec<BitRate>,
    /// Weights of the excess, see [`ranks`].
    ranks: Vec<u32>,
}

impl Loop {
    /// A loop over `members`, in order of creation, for a pool of that capacity. Minima that do not fit are granted by
    /// class, within one in order of creation; the loop starts with these rates.
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

    /// Leaves `apart` members, which are no guests, out of the ranks: each has the rank of the guests' class at or next
    /// below its own, at least 1. The paper has guests only, so they share as published whoever else there is.
    pub fn rank_without(&mut self, apart: &[bool]) {
        self.ranks = ranks(&self.members, apart);
    }

    /// The limits in force, by member.
    pub fn rates(&self) -> &[BitRate] {
        &self.rates
    }

    /// One period: from what was `measured` of each member to new rates, whose sum is at most the capacity.
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
        // printed: nothing for rates between minimum and maximum whose sum exceeds the capacity, which offered traffic
        // can. They are lowered as for a missing minimum.
        turn.reclaim(BitRate::ZERO, None, &self.order);
        let notice = (self.capacity / 1000 / measured.len().max(1) as u64).max(BitRate::ONE);
        let more: Vec<BitRate> = (0..measured.len())
            .map(|i| match self.measures {
                Measures::Offered => measured[i].saturating_sub(turn.rates[i]),
                // It reached its limit, so its demand is unknown.
                Measures::Passed if measured[i] > BitRate::ZERO && measured[i] >= in_force[i] => self.capacity,
                // Nothing passes a rate of 0, so a thousandth of the capacity lets it show demand.
                Measures::Passed => notice.saturating_sub(turn.rates[i]),
            })
            .collect();
        turn.share_excess(&more, &self.ranks);
        self.rates = turn.rates;
        &self.rates
    }
}

/// State of one period, in the paper's terms.
struct Turn<'a> {
    members: &'a [Member],
    /// `B_p^ex`: capacity not given away, in bit/s. Negative while members that are not visited yet exceed the
    /// capacity.
    excess: i128,
    /// `B_i`.
    rates: Vec<BitRate>,
}

impl<'a> Turn<'a> {
    fn new(capacity: BitRate, members: &'a [Member], measured: &[BitRate]) -> Turn<'a> {
        let used: i128 = measured.iter().map(|m| i128::from(m.bits())).sum();
        Turn { members, excess: i128::from(capacity.bits()) - used, rates: measured.to_vec() }
    }

    /// Sets a member's rate and adds the difference to the excess.
    ///
    /// printed: the reclaiming loops set `B_j` first and then add the difference, which is 0. The difference to the
    /// previous rate is meant.
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
        // printed: the first test reads (B_i - B_min) < B_ex, whose left side is never positive here, and the later
        // ones B_ex > B_min. What is missing is B_min - B_i, at most all of the excess.
        let missing = min - self.rates[i];
        self.reclaim(missing, Some(place), order);
        // printed: "B_min is readjusted to B_i"; the formula beside it assigns B_i, as here.
        // printed: otherwise B_i <- B_ex, which drops its own rate: here the excess is added.
        let found = u64::try_from(self.excess.clamp(0, i128::from(missing.bits()))).unwrap_or(0);
        self.set(i, self.rates[i] + BitRate::new(found));
    }

    /// Lowers others to their minima until `missing` is free: by class, the least important first.
    ///
    /// printed: stops at the member's own class, so that a class between its bounds could keep a less important one
    /// below its minimum for ever. Minima are the contract, so this continues.
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

    /// Shares the excess by rank among members that want `more` each.
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

/// Rank of each member: 1 for the least important class, 2 for the next, …; classes of `apart` members do not count.
fn ranks(members: &[Member], apart: &[bool]) -> Vec<u32> {
    let counted = members.iter().enumerate().filter(|(i, _)| !apart.get(*i).copied().unwrap_or(false));
    let mut classes: Vec<u8> = counted.map(|(_, m)| m.priority).collect();
    classes.sort_unstable();
    classes.dedup();
    let rank = |m: &Member| (classes.len() - classes.partition_point(|c| *c < m.priority)).max(1) as u32;
    members.iter().map(rank).collect()
}

/// The loop's steady state when each member, in order of creation, keeps offering its demand. The rates are limits with
/// a sum of at most the capacity: an idle member's is its minimum, not its demand. `guaranteed` is the part up to its
/// granted minimum.
///
/// # Panics
/// When there are not as many demands as members.
pub fn dba(capacity: BitRate, members: &[Member], demands: &[Demand]) -> Vec<Grant> {
    assert_eq!(members.len(), demands.len(), "one demand a member");
    // More than the capacity makes no difference.
    let offered: Vec<BitRate> = demands.iter().map(|d| d.up_to(capacity)).collect();
    let mut turns = Loop::new(capacity, members, Measures::Offered);
    // With offered traffic a period does not depend on earlier ones: the first is the steady state.
    turns.step(&offered);
    let grant = |(m, rate): (&Member, &BitRate)| Grant::new(m.min.min(*rate), *rate - m.min.min(*rate));
    turns.members.iter().zip(&turns.rates).map(grant).collect()
}
