//! The guard's loop: what was seen of each member in a period, to the limits of the next.

use super::{Allocator, Enforcement, Scenario, Settings, rate_of};
use crate::allocate::dba::Loop;
use crate::allocate::{Demand, Member, cap, exact};

/// What was seen of a member in a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Bits that the guest tried to send.
    pub offered: u64,
    /// Bits that passed the limit.
    pub passed: u64,
    /// Something had to wait for the limit, or was dropped at it.
    pub held_back: bool,
}

/// The allocator with what it remembers.
pub struct Control {
    kind: Kind,
    capacity: u64,
    members: Vec<Member>,
    /// Limits in force, in bit/s.
    caps: Vec<u64>,
    /// A period's measure cannot tell less than this apart, in bits.
    packet_bits: u64,
}

enum Kind {
    /// No loop.
    None,
    Dba(Box<Loop>, crate::allocate::dba::Measures),
    /// The demands that the limits in force follow from.
    Exact(Vec<Demand>),
}

impl Control {
    pub fn new(scenario: &Scenario, settings: &Settings) -> Control {
        let members: Vec<Member> = scenario.vifs.iter().map(|v| v.contract).collect();
        let capacity = scenario.capacity;
        let allocator =
            if settings.enforcement == Enforcement::Hierarchy { Allocator::None } else { settings.allocator };
        let (kind, caps) = match allocator {
            Allocator::None => (Kind::None, vec![u64::MAX; members.len()]),
            Allocator::Dba(measures) => {
                let state = Loop::new(capacity, &members, measures);
                let caps = state.rates().to_vec();
                (Kind::Dba(Box::new(state), measures), caps)
            }
            // Nothing is known yet, so all may want everything.
            Allocator::Exact => {
                let demands = vec![Demand::Unbounded; members.len()];
                let caps = caps(capacity, &members, &demands);
                (Kind::Exact(demands), caps)
            }
        };
        Control { kind, capacity, members, caps, packet_bits: u64::from(scenario.packet_bytes) * 8 }
    }

    /// Limits in force, in bit/s.
    pub fn caps(&self) -> &[u64] {
        &self.caps
    }

    /// The end of a period of `time` picoseconds.
    pub fn tick(&mut self, seen: &[Seen], time: u64) {
        match &mut self.kind {
            Kind::None => {}
            Kind::Dba(state, measures) => {
                let measured = |(s, cap): (&Seen, &u64)| match measures {
                    crate::allocate::dba::Measures::Offered => rate_of(s.offered, time),
                    // Held back is to have used all that it had, whatever rounding to packets says.
                    crate::allocate::dba::Measures::Passed if s.held_back => *cap,
                    crate::allocate::dba::Measures::Passed => rate_of(s.passed, time).min(*cap),
                };
                let measured: Vec<u64> = seen.iter().zip(&self.caps).map(measured).collect();
                self.caps.copy_from_slice(state.step(&measured));
            }
            Kind::Exact(demands) => {
                // A limit at just what was seen would hold back the next packet that comes early.
                let room = |bits: u64| bits.saturating_add(bits / 32).saturating_add(self.packet_bits);
                let demand = |s: &Seen| match (s.held_back, s.passed) {
                    (true, _) => Demand::Unbounded,
                    (false, 0) => Demand::Rate(0),
                    (false, passed) => Demand::Rate(rate_of(room(passed), time)),
                };
                let now: Vec<Demand> = seen.iter().map(demand).collect();
                if now != *demands {
                    self.caps = caps(self.capacity, &self.members, &now);
                    *demands = now;
                }
            }
        }
    }
}

fn caps(capacity: u64, members: &[Member], demands: &[Demand]) -> Vec<u64> {
    let grants = exact(capacity, members, demands);
    // An idle member without a minimum must be able to show that it wakes up: a thousandth of the
    // capacity is set aside for that, so that it does not matter how many there are.
    let least = (capacity / 1000 / members.len().max(1) as u64).max(1);
    members.iter().zip(&grants).map(|(m, g)| cap(m, g).max(least)).collect()
}
