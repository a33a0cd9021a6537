//! Which of a pool's interfaces can be held, and where. What cannot be is refused where an operator can answer: when a
//! policy comes, of interfaces that it names. A guest that appears later with a card that nobody can hold must not take
//! everybody else's limits off, nor one that a pattern happens to match: it is noted, and left to `default`.

use vmio_model::holding::{Holding, Queue, QueueingPoint, holding, of_nobody};
use vmio_model::policy::pool::called;
use vmio_model::policy::{Abilities, Direction, Policy};

use super::{Matched, Unheld};

/// What becomes of interfaces that cannot be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// A policy comes: those that it names without a pattern are refused, unless it says `allow_unenforced`.
    Policy,
    /// Interfaces come and go: all are noted.
    Interfaces,
}

/// How the interfaces of a pool are held, and which cannot be.
#[derive(Default)]
pub(super) struct HoldingPlan<'a> {
    pub(super) seated: Vec<(&'a Matched<'a>, Holding)>,
    pub(super) unheld: Vec<Unheld>,
    pub(super) notes: Vec<String>,
    pub(super) refused: Vec<String>,
}

pub(super) fn plan<'a>(
    policy: &Policy,
    plane: &Abilities,
    uplink: &str,
    direction: Direction,
    here: impl Iterator<Item = &'a Matched<'a>>,
    strictness: Strictness,
) -> HoldingPlan<'a> {
    let mut plan = HoldingPlan::default();
    let Some(shared) = policy.uplinks.get(uplink) else { return plan };
    // No interface of any kind: the compile step says so, of the pool.
    let nobody = direction == Direction::GuestRx && !plane.receive && strictness == Strictness::Policy;
    for matched in here {
        let (found, entry) = (matched.found, matched.entry);
        let class = entry.class_in(direction).unwrap_or_default();
        let contract = policy.class(class).member(shared.capacity);
        let limit = if contract.over_max { shared.capacity } else { contract.max.min(shared.capacity) };
        let held = match &found.nic {
            Some(nic) => holding(nic, found.ways.get(uplink).copied().unwrap_or_default(), plane, direction, limit),
            None => of_nobody(plane, direction),
        };
        if held.waits != QueueingPoint::None || nobody {
            plan.seated.push((matched, held));
            continue;
        }
        let name = &found.interface.name;
        let matched_by = entry.matcher.to_string();
        let known_as = if matched_by == *name { String::new() } else { format!(" ({matched_by})") };
        let why = format!(
            "{}: {name}{known_as} cannot be held to class {class} ({}): {}",
            entry.place,
            direction.word(),
            held.reason
        );
        let named = entry.matcher.is_exact();
        if strictness == Strictness::Policy && named && !policy.guard.allow_unenforced {
            plan.refused.push(format!("{why}; leave it out, or admit it with guard.allow_unenforced = true"));
        } else {
            plan.notes.push(format!("{why}; it is not limited"));
        }
        plan.unheld.push(Unheld { name: called(name).into_owned(), class: class.to_owned(), reason: held.reason });
    }
    plan
}

/// Where the queues of a pool's interfaces stand: where one of them must be held behind itself, all are.
pub(super) fn queue<'a>(direction: Direction, mut all: impl Iterator<Item = &'a Holding>) -> Queue {
    match direction {
        Direction::GuestTx if !all.any(|holding| holding.queue == Some(Queue::Ifb)) => Queue::Uplink,
        _ => Queue::Ifb,
    }
}
