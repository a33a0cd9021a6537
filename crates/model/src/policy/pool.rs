//! Who shares one direction of one uplink: its members in the order of their creation, each with its contract
//! and the minimum that it really has. Plan, simulation and daemon ask here, so that none of them has its own
//! idea of who is in a pool.

use std::borrow::Cow;

use super::{DEFAULT, Direction, Entry, Framing, HOST, Policy, Uplink, effective_minima};
use crate::allocate::Member;
use crate::rate::BitRate;

/// Which of a pool's members one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberKind {
    /// The host's own traffic.
    Host,
    /// An interface of a guest.
    Interface,
    /// All traffic that nothing matches, as one member.
    Default,
}

/// A member of a pool before anything is allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolMember {
    /// `host`, `default`, or what the interface is called.
    pub name: String,
    /// Which.
    pub who: MemberKind,
    /// Its class in this direction.
    pub class: String,
    /// What the class promises; its minimum is the class's, whether it fits or not.
    pub contract: Member,
}

/// What an interface is called among members: its name, and where that is what every uplink has a member of, told apart from
/// it. No interface has a colon in its name.
pub fn called(interface: &str) -> Cow<'_, str> {
    match interface {
        HOST | DEFAULT => Cow::Owned(format!("name:{interface}")),
        name => Cow::Borrowed(name),
    }
}

/// One direction of an uplink with its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// The uplink.
    pub uplink: String,
    /// The direction.
    pub direction: Direction,
    /// What it carries in this direction.
    pub capacity: BitRate,
    /// How a frame counts on it.
    pub framing: Framing,
    /// Its members: the host, the interfaces in the order given, and all the rest.
    pub seats: Vec<PoolMember>,
}

impl Pool {
    /// The pool of an uplink's direction with these interfaces, each with what it is called and the entry that
    /// matches it; those of other uplinks, or without a class in this direction, are not in it. `None` of an
    /// uplink that the policy does not have.
    pub fn of<'a>(
        policy: &Policy,
        uplink: &str,
        direction: Direction,
        interfaces: impl IntoIterator<Item = (&'a str, &'a Entry)>,
    ) -> Option<Pool> {
        let Uplink { capacity, framing } = *policy.uplinks.get(uplink)?;
        let seat = |name: &str, who, class: &str| PoolMember {
            name: name.to_owned(),
            who,
            class: class.to_owned(),
            contract: policy.class(class).member(capacity),
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

    /// What each member is for the allocator: its contract with its *effective* minimum.
    pub fn members(&self) -> Vec<Member> {
        let minima: Vec<(u8, BitRate)> = self.seats.iter().map(|s| (s.contract.priority, s.contract.min)).collect();
        let effective = effective_minima(self.capacity, &minima);
        self.seats.iter().zip(effective).map(|(s, min)| Member { min, ..s.contract }).collect()
    }
}
