//! Interfaces that the uplink's own card limits (SR-IOV): their packets pass no queue of this kernel. A card knows a limit for
//! each virtual function and lends nothing, so what one is given is what it gets when all guests want everything and the host
//! its minimum; the others share what that leaves, so no minimum of theirs depends on what a function does.

use vmio_model::allocate::{Demand, Member, exact};
use vmio_model::holding::QueueingPoint;
use vmio_model::policy::pool::{MemberKind, Pool, PoolMember};
use vmio_model::policy::{Direction, Policy};
use vmio_model::rate::{BitRate, MBIT};

use super::held::HoldingPlan;

/// A virtual function of the uplink's card, and its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carded {
    /// What the interface is called.
    pub name: String,
    /// Its class.
    pub class: String,
    /// Its number in the card.
    pub function: u32,
    /// Its minimum as far as all fit.
    pub min: BitRate,
    /// Its limit in Mbit/s, at least 1: 0 is none.
    pub mbit: u32,
    /// Why it is limited there.
    pub reason: String,
}

impl Carded {
    /// Its limit as a rate.
    pub fn limit(&self) -> BitRate {
        u64::from(self.mbit) * MBIT
    }
}

/// The pool of those that queues hold, and those that the card does, which are taken out of `plan`. `None` of an uplink
/// that the policy does not have.
pub(super) fn apart(
    policy: &Policy,
    uplink: &str,
    direction: Direction,
    plan: &mut HoldingPlan<'_>,
) -> Option<(Pool, Vec<Carded>)> {
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
        let way = matched.found.ways.get(uplink).copied().unwrap_or_default();
        let Some(function) = way.card.filter(|_| in_card(holding.waits)) else { continue };
        let mbit = u32::try_from(grant.rate / MBIT).unwrap_or(u32::MAX).max(1);
        cards.push(Carded {
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
                "{place}: {} is given less than 1 Mbit/s, and its card knows nothing below: it is limited to that",
                seat.name
            ));
        }
    }
    plan.seated.retain(|(_, holding)| !in_card(holding.waits));
    let taken = cards.iter().map(Carded::limit).fold(BitRate::ZERO, BitRate::saturating_add);
    let rest = of(plan)?;
    let capacity = rest.capacity.saturating_sub(taken).max(BitRate::ONE);
    Some((Pool { capacity, ..rest }, cards))
}
