//! Interfaces that the uplink's card limits (SR-IOV), whose packets pass no queue of this kernel. A card has a fixed
//! limit for each virtual function and lends nothing, so a function gets its share for the case that all guests want
//! everything and the host its minimum. The other members share the rest, so that their minima do not depend on a
//! function's traffic.

use vmio_model::allocate::{Demand, Member, exact};
use vmio_model::holding::QueueingPoint;
use vmio_model::policy::pool::{MemberKind, Pool, PoolMember};
use vmio_model::policy::{Direction, Policy};
use vmio_model::rate::{BitRate, MBIT};

use super::held::HoldingPlan;

/// A virtual function of the uplink's card, and its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardLimit {
    /// Name of the interface.
    pub name: String,
    /// Its class.
    pub class: String,
    /// Its number in the card.
    pub function: u32,
    /// Its minimum, reduced where not all minima fit.
    pub min: BitRate,
    /// Its limit in Mbit/s, at least 1: 0 is none.
    pub mbit: u32,
    /// Why it is limited there.
    pub reason: String,
}

impl CardLimit {
    /// Its limit as a rate.
    pub fn limit(&self) -> BitRate {
        u64::from(self.mbit) * MBIT
    }
}

/// Moves the interfaces that the card limits out of `plan`; returns the pool of the others, and the card's limits.
/// `None` of an uplink that the policy does not have.
pub(super) fn split_off(
    policy: &Policy,
    uplink: &str,
    direction: Direction,
    plan: &mut HoldingPlan<'_>,
) -> Option<(Pool, Vec<CardLimit>)> {
    let of = |plan: &HoldingPlan<'_>| {
        let names = plan.seated.iter().map(|(m, _)| (m.found.interface.name.as_str(), m.entry));
        Pool::of(policy, uplink, direction, names)
    };
    let all = of(plan)?;
    let in_card = |waits| waits == QueueingPoint::Nic;
    if !plan.seated.iter().any(|(_, holding)| in_card(holding.waits)) {
        return Some((all, Vec::new()));
    }
    let members = all.members();
    let wants = |(seat, member): (&PoolMember, &Member)| match seat.who {
        MemberKind::Host => Demand::Rate(member.min),
        _ => Demand::Unbounded,
    };
    let demands: Vec<Demand> = all.seats.iter().zip(&members).map(wants).collect();
    let grants = exact(all.capacity, &members, &demands);
    let granted =
        all.seats.iter().zip(&members).zip(&grants).filter(|((seat, _), _)| seat.who == MemberKind::Interface);
    let mut cards = Vec::new();
    for ((matched, holding), ((seat, member), grant)) in plan.seated.iter().zip(granted) {
        let path = matched.found.paths.get(uplink).copied().unwrap_or_default();
        let Some(function) = path.card.filter(|_| in_card(holding.waits)) else { continue };
        let mbit = u32::try_from(grant.rate / MBIT).unwrap_or(u32::MAX).max(1);
        cards.push(CardLimit {
            name: seat.name.clone(),
            class: seat.class.clone(),
            function,
            min: member.min,
            mbit,
            reason: holding.reason.clone(),
        });
        if grant.rate < MBIT {
            let place = &matched.entry.place;
            plan.notes.push(format!(
                "{place}: {} gets less than 1 Mbit/s, the least its card can set: it is limited to 1 Mbit/s",
                seat.name
            ));
        }
    }
    plan.seated.retain(|(_, holding)| !in_card(holding.waits));
    let taken = cards.iter().map(CardLimit::limit).fold(BitRate::ZERO, BitRate::saturating_add);
    let rest = of(plan)?;
    let capacity = rest.capacity.saturating_sub(taken).max(BitRate::ONE);
    Some((Pool { capacity, ..rest }, cards))
}
