//! Simulates the guard on an uplink, in virtual time: sources, guest rings, limits, host queues, the wire, and the loop
//! that sets the limits by an allocator. Without clock and system randomness: the same scenario and settings give
//! identical outcomes.
//!
//! Up to [`PACKET_MEMBERS`] members are simulated [packet by packet](packet), more as a [fluid](fluid). Not modelled
//! are CPU time of guest, host and loop, delays other than queueing, and packets of different sizes. Times are
//! picoseconds, rates bit/s of packets as they count on the wire.

mod bucket;
mod fluid;
mod htb;
pub mod judged;
pub mod measured;
mod outcome;
mod packet;
pub mod paper;
mod random;
pub mod scenario;
mod source;
#[cfg(test)]
mod tests;

use crate::allocate::Member;
use crate::policy::Abilities;
use crate::policy::compile::Refusal;
use crate::rate::BitRate;

pub use crate::control::Allocator;
pub use crate::picos::{MILLISECOND, SECOND};
pub use outcome::{Outcome, Sample, Totals};
pub use scenario::Scenario;

/// Linux's scheduler without segmentation behind it: a simulated packet is a frame.
pub const PLANE: Abilities = Abilities { packet_bytes: 1_600, ..Abilities::HTB };

/// More members than this are simulated as a fluid.
const PACKET_MEMBERS: usize = 64;

/// A guest's interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vif {
    /// Its name.
    pub name: String,
    /// Its contract.
    pub contract: Member,
    /// Its traffic source.
    pub source: Source,
}

impl Source {
    /// Rate of its schedule at this time; 0 without a schedule.
    pub fn offers(&self, at: u64) -> BitRate {
        let Source::OpenLoop(schedule) = self else { return BitRate::ZERO };
        schedule.iter().take_while(|step| step.0 <= at).last().map_or(BitRate::ZERO, |step| step.1)
    }
}

/// A traffic source in a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Sends by a schedule regardless of losses: a packet that finds the ring full is never sent. (Start in
    /// picoseconds, rate), ascending; nothing before the first.
    OpenLoop(Vec<(u64, BitRate)>),
    /// Like TCP in congestion avoidance (RFC 5681, section 3.1), paced: one packet more each round trip, halved on a
    /// drop, at most once a round trip. Waits when the ring is full.
    Aimd {
        /// Round trip, in picoseconds.
        rtt: u64,
    },
}

/// Where limits are enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforcement {
    /// By a token bucket behind the guest's ring: excess stays in the guest.
    Held,
    /// By a token bucket behind the host's queue: excess was copied to the host, and waits or is dropped there.
    Queued,
    /// By the host's scheduler: the compiled program runs as in the kernel ([`htb`]), and the loop does what the plane
    /// cannot.
    Hierarchy,
}

/// Queueing of a wire without limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// One queue for all, first in, first out, which drops when full, as on a default uplink.
    Fifo,
    /// A queue for each member, one packet of each in turn.
    Turns,
}

/// Settings of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// What sets the limits.
    pub allocator: Allocator,
    /// Where limits are enforced.
    pub enforcement: Enforcement,
    /// Period of the loop, in picoseconds.
    pub period: u64,
    /// Capacity of a guest's ring in packets.
    pub ring: u32,
    /// Capacity of a member's queue on the host, or of the shared one, in packets.
    pub queue: u32,
    /// Queueing of the wire without limits.
    pub service: Service,
    /// Abilities of the plane, where its scheduler enforces limits.
    pub plane: Abilities,
    /// Seed of the sources' jitter.
    pub seed: u64,
}

impl Settings {
    /// Defaults for an allocator and a period in picoseconds: excess stays in the guest; rings of 256 packets, as
    /// virtio-net's, host queues of 1000, Linux's default.
    pub fn new(allocator: Allocator, period: u64) -> Settings {
        Settings {
            allocator,
            enforcement: Enforcement::Held,
            period: period.max(1),
            ring: 256,
            queue: 1000,
            service: Service::Fifo,
            plane: PLANE,
            seed: 1,
        }
    }
}

impl Settings {
    /// Whether all packets wait in one queue.
    fn shares_a_queue(&self) -> bool {
        let unlimited = self.allocator == Allocator::None && self.enforcement != Enforcement::Hierarchy;
        unlimited && self.service == Service::Fifo
    }
}

/// Simulates a scenario.
///
/// # Errors
/// What the plane cannot do, with [`Enforcement::Hierarchy`].
pub fn run(scenario: &Scenario, settings: &Settings) -> Result<Outcome, Refusal> {
    let form = if scenario.vifs.len() <= PACKET_MEMBERS { packet::run } else { fluid::run };
    form(scenario, settings)
}
