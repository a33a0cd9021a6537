//! Members of one direction of one uplink, in order of creation, each with its contract and effective minimum. Plan,
//! simulation and daemon use it, so that they agree on a pool's members.

use std::borrow::Cow;
use std::time::Duration;

use super::flow::Flow;
use super::{DEFAULT, Direction, Entry, Excess, Framing, HOST, Policy, Uplink, effective_minima};
use crate::allocate::Member;
use crate::rate::BitRate;

/// Kind of a pool's member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberKind {
    /// The host's own traffic.
    Host,
    /// An interface of a guest.
    Interface,
    /// All unmatched traffic, as one member.
    Default,
}

/// A member of a pool before allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolMember {
    /// `host`, `default`, or the interface's label.
    pub name: String,
    /// Its kind.
    pub who: MemberKind,
    /// Its class in this direction.
    pub class: String,
    /// The contract of its class, with the class's minimum, whether it fits or not.
    pub contract: Member,
    /// Length of its queue, where its class has one written or chosen for its targets.
    pub queue: Option<Duration>,
    /// Longest wait of a packet that its class has as a target.
    pub delay: Option<Duration>,
    /// What becomes of what is above its maximum.
    pub excess: Excess,
    /// Flow classes of its class.
    pub flows: Vec<Flow>,
}

/// Name of an interface among members: its own, or with a prefix where it is `host` or `default`. No interface has a
/// colon in its name.
pub fn called(interface: &str) -> Cow<'_, str> {
    match interface {
        HOST | DEFAULT => Cow::Owned(format!("name:{interface}")),
        name => Cow::Borrowed(name),
    }
}

/// A direction of an uplink with its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// The uplink.
    pub uplink: String,
    /// The direction.
    pub direction: Direction,
    /// Its capacity in this direction.
    pub capacity: BitRate,
    /// Framing of its packets.
    pub framing: Framing,
    /// Its members: the host, the interfaces in the given order, and `default`.
    pub seats: Vec<PoolMember>,
}

impl Pool {
    /// The pool of an uplink's direction with these interfaces, each with its label and entry; those of other uplinks,
    /// or without a class in this direction, are left out. `None` for an unknown uplink.
    pub fn of<'a>(
        policy: &Policy,
        uplink: &str,
        direction: Direction,
        interfaces: impl IntoIterator<Item = (&'a str, &'a Entry)>,
    ) -> Option<Pool> {
        let Uplink { capacity, framing, .. } = *policy.uplinks.get(uplink)?;
        let seat = |name: &str, who, class: &str| PoolMember {
            name: name.to_owned(),
            who,
            class: class.to_owned(),
            contract: policy.class(class).member(capacity),
            queue: policy.class(class).queue_time(),
            delay: policy.class(class).delay.map(|target| target.strictest()),
            excess: policy.class(class).excess,
            flows: policy.class(class).flows.clone(),
        };
        let mut seats = vec![seat(HOST, MemberKind::Host, HOST)];
        for (name, entry) in interfaces {
            if let Some(class) = entry.class_in(direction).filter(|_| entry.uplink == uplink) {
                seats.push(seat(&called(name), MemberKind::Interface, class));
            }
        }
        seats.push(seat(DEFAULT, MemberKind::Default, DEFAULT));
        Some(Pool { uplink: uplink.to_owned(), direction, capacity, framing, seats })
    }

    /// The allocator's member for each: its contract with its *effective* minimum.
    pub fn members(&self) -> Vec<Member> {
        let minima: Vec<(u8, BitRate)> = self.seats.iter().map(|s| (s.contract.priority, s.contract.min)).collect();
        let effective = effective_minima(self.capacity, &minima);
        self.seats.iter().zip(effective).map(|(s, min)| Member { min, ..s.contract }).collect()
    }
}
