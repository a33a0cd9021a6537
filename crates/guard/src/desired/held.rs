//! Where the excess of each of a pool's interfaces waits, and which cannot be limited. The latter are refused only when
//! a policy is loaded that names them. A guest that appears later with such a card, or that a pattern happens to match,
//! is noted and shares `default`, so that it does not take everybody else's limits off.

use vmio_model::holding::{Holding, Queue, QueueingPoint, holding, of_nobody, send_buffer_bytes};
use vmio_model::policy::pool::called;
use vmio_model::policy::{Abilities, Class, Direction, Policy, compile};
use vmio_model::rate::BitRate;

use super::{Matched, UnlimitedInterface};

/// Treatment of interfaces that cannot be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// A policy is loaded: those that it names without a pattern are refused, unless it says `allow_unenforced`.
    Policy,
    /// The interfaces changed: all are noted.
    Interfaces,
}

/// Where the excess of a pool's interfaces waits, and which cannot be limited.
#[derive(Default)]
pub(super) struct HoldingPlan<'a> {
    pub(super) seated: Vec<(&'a Matched<'a>, Holding)>,
    pub(super) unheld: Vec<UnlimitedInterface>,
    pub(super) notes: Vec<String>,
    pub(super) refused: Vec<String>,
}

pub(super) fn plan<'a>(
    policy: &Policy,
    plane: &Abilities,
    (uplink, direction, queueless): (&str, Direction, bool),
    here: impl Iterator<Item = &'a Matched<'a>>,
    strictness: Strictness,
) -> HoldingPlan<'a> {
    let mut plan = HoldingPlan::default();
    let Some(shared) = policy.uplinks.get(uplink) else { return plan };
    // The compile step refuses the whole pool.
    let nobody = direction == Direction::GuestRx && !plane.receive && strictness == Strictness::Policy;
    for matched in here {
        let (found, entry) = (matched.found, matched.entry);
        let class = entry.class_in(direction).unwrap_or_default();
        let limit = policy.class(class).most_on(shared.capacity);
        let mut held = match &found.nic {
            Some(nic) => holding(nic, found.paths.get(uplink).copied().unwrap_or_default(), plane, direction, limit),
            None => of_nobody(plane, direction),
        };
        if let (None, Some(netns), QueueingPoint::Queued) = (&found.nic, &found.interface.netns, held.waits) {
            held.reason = format!("it leads to network namespace {netns}, whose programs share its queue");
        }
        let room = half_queue(policy.class(class), shared.capacity, direction, plane);
        held.send_buffer_bytes = held.send_buffer_bytes.map(|bytes| bytes.min(room));
        let strict = strictness == Strictness::Policy && entry.matcher.is_exact() && !policy.guard.allow_unenforced;
        let (flows, delay) = (!policy.class(class).flows.is_empty(), policy.class(class).delay.is_some());
        let drops = policy.class(class).excess.drops();
        if queueless {
            held = unqueued(held, drops);
        } else if drops {
            held = dropped(held, direction);
        } else if flows {
            held = told_apart(held);
        }
        let parts = [(flows, "flow classes"), (delay, "targets of delay"), (drops, "excess = \"drop\"")];
        for (_, what) in parts.iter().filter(|(has, _)| *has && held.waits == QueueingPoint::Nic) {
            let (place, name) = (&entry.place, &found.interface.name);
            let why =
                format!("{place}: {name} is limited in its card, which does not know the {what} of class {class}");
            if strict {
                plan.refused.push(format!("{why}; leave it out, or admit it with {ADMITS}"));
            } else {
                plan.notes.push(format!("{why}; they do not hold for it"));
            }
        }
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
        if strict {
            plan.refused.push(format!("{why}; leave it out, or admit it with {ADMITS}"));
        } else {
            plan.notes.push(format!("{why}; it is not limited"));
        }
        plan.unheld.push(UnlimitedInterface {
            name: called(name).into_owned(),
            class: class.to_owned(),
            reason: held.reason,
        });
    }
    plan
}

/// What admits interfaces that cannot be limited.
const ADMITS: &str = "guard.allow_unenforced = true";

/// Flow classes need their packets on this host: what waits in the guest leaves it in the guest's own order.
fn told_apart(held: Holding) -> Holding {
    if held.waits != QueueingPoint::Held {
        return held;
    }
    let reason = "its flow classes are told apart on this host, and what finds no room is dropped";
    Holding { waits: QueueingPoint::Queued, send_buffer_bytes: None, reason: reason.into(), ..held }
}

/// What is above the maximum is dropped before it could wait; less than that waits on this host while others want the
/// uplink, where that is cheaper: nothing needs to be charged to a tap.
fn dropped(held: Holding, direction: Direction) -> Holding {
    if !matches!(held.waits, QueueingPoint::Held | QueueingPoint::Queued) {
        return held;
    }
    let queue = if direction == Direction::GuestTx { Queue::Uplink } else { Queue::Ifb };
    Holding {
        waits: QueueingPoint::Queued,
        queue: Some(queue),
        send_buffer_bytes: None,
        reason: "what is above its maximum is dropped, not held back; what others leave it no room for waits".into(),
    }
}

/// Nothing waits for a maximum, nor on this host for what others leave.
fn unqueued(held: Holding, drops: bool) -> Holding {
    if !matches!(held.waits, QueueingPoint::Held | QueueingPoint::Queued) {
        return held;
    }
    let reason = if drops {
        "what is above its maximum is dropped, not held back; the guard has no queue here"
    } else {
        "it has no maximum; the guard has no queue here"
    };
    Holding { waits: QueueingPoint::Queued, queue: None, send_buffer_bytes: None, reason: reason.into() }
}

/// Half the length of a class's queue, and at least the smallest send buffer: a tap lets one more packet through than its
/// buffer has room for, and what it lets through must not be dropped.
fn half_queue(class: &Class, capacity: BitRate, direction: Direction, plane: &Abilities) -> u32 {
    let ceiling = class.max.unwrap_or(capacity).min(capacity);
    (compile::queue(class.queue_time(), ceiling, direction, plane) / 2).max(send_buffer_bytes(BitRate::ZERO))
}

/// Where a pool's queues are: all on an IFB if one of its interfaces needs that.
pub(super) fn queue<'a>(direction: Direction, mut all: impl Iterator<Item = &'a Holding>) -> Queue {
    match direction {
        Direction::GuestTx if !all.any(|holding| holding.queue == Some(Queue::Ifb)) => Queue::Uplink,
        _ => Queue::Ifb,
    }
}
