//! The guard on a simulated uplink, in virtual time: sources, guest rings, limits, the host's
//! queues, the wire, and the loop that sets the limits by an allocator. Nothing here reads a clock
//! or the system's randomness: the same scenario and settings give the same outcome, bit for bit.
//!
//! Up to [`PACKET_MEMBERS`] members are simulated [packet by packet](packet), more as a
//! [fluid](fluid). What is not modelled: CPU time of guest, host and loop, delays other than
//! queueing, packets of different sizes. Times are picoseconds, rates bit/s, of packets as
//! they count on the wire.

mod bucket;
mod fluid;
mod htb;
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

/// Linux' scheduler for frames that are not segmented behind it: a simulated packet is a frame.
pub const PLANE: Abilities = Abilities { packet_bytes: 1_600, ..Abilities::HTB };

/// More members than this are simulated as a fluid.
const PACKET_MEMBERS: usize = 64;

/// One guest's interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vif {
    /// Its name.
    pub name: String,
    /// What it was promised.
    pub contract: Member,
    /// What sends.
    pub source: Source,
}

impl Source {
    /// What it offers at a moment by its schedule; 0 of one that has none.
    pub fn offers(&self, at: u64) -> BitRate {
        let Source::OpenLoop(schedule) = self else { return BitRate::ZERO };
        schedule.iter().take_while(|step| step.0 <= at).last().map_or(BitRate::ZERO, |step| step.1)
    }
}

/// What sends in a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Sends by a schedule whatever happens: non-blocking, so a packet that finds the ring full is
    /// never sent. (Picosecond from which, rate), rising; nothing before the first.
    OpenLoop(Vec<(u64, BitRate)>),
    /// Like TCP in congestion avoidance (RFC 5681, section 3.1), paced: a packet more each round
    /// trip, half on a drop, at most once a round trip. Waits when the ring is full.
    Aimd {
        /// Round trip, in picoseconds.
        rtt: u64,
    },
}

/// Where limits act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforcement {
    /// A token bucket behind the guest's ring: excess stays in the guest.
    Held,
    /// A token bucket behind the host's queue: excess was copied to the host, and waits or is dropped there.
    Queued,
    /// In the host's scheduler: the program that is compiled for a plane runs as the kernel runs it
    /// ([`htb`]), and the loop does what the plane cannot.
    Hierarchy,
}

/// How a wire without limits serves what waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// One queue for all, first in, first out; what finds it full is dropped. As a stock uplink does.
    Fifo,
    /// A queue each, one packet of each in turn.
    Turns,
}

/// How a scenario is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Who sets the limits.
    pub allocator: Allocator,
    /// Where they act.
    pub enforcement: Enforcement,
    /// Of the loop, in picoseconds.
    pub period: u64,
    /// Packets that a guest's ring holds.
    pub ring: u32,
    /// Packets that a member's queue on the host holds, or the one that they share.
    pub queue: u32,
    /// How the wire serves without limits.
    pub service: Service,
    /// What the plane can hold, where limits act in its scheduler.
    pub plane: Abilities,
    /// Of the sources' jitter.
    pub seed: u64,
}

impl Settings {
    /// The defaults beside an allocator and a period in picoseconds: limits hold excess in the
    /// guest; rings of 256 packets, as virtio-net's, host queues of 1000, Linux' default.
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
    /// All wait in one queue.
    fn shares_a_queue(&self) -> bool {
        let unlimited = self.allocator == Allocator::None && self.enforcement != Enforcement::Hierarchy;
        unlimited && self.service == Service::Fifo
    }
}

/// Runs a scenario from its start to its end.
///
/// # Errors
/// What the plane cannot hold, with [`Enforcement::Hierarchy`].
pub fn run(scenario: &Scenario, settings: &Settings) -> Result<Outcome, Refusal> {
    let form = if scenario.vifs.len() <= PACKET_MEMBERS { packet::run } else { fluid::run };
    form(scenario, settings)
}
