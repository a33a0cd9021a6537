//! The guard on a simulated uplink, in virtual time: sources, guest rings, limits, the host's
//! queues, the wire, and the loop that sets the limits by an allocator. Nothing here reads a clock
//! or the system's randomness: the same scenario and settings give the same outcome, bit for bit.
//!
//! Up to [`PACKET_MEMBERS`] members are simulated [packet by packet](packet), more as a
//! [fluid](fluid). What is not modelled: CPU time of guest, host and loop, delays other than
//! queueing, packets of different sizes. Times are picoseconds, rates bit/s, of Ethernet frames
//! without preamble and FCS.

mod bucket;
mod control;
mod fluid;
mod outcome;
mod packet;
pub mod paper;
mod random;
pub mod scenario;
mod source;
#[cfg(test)]
mod tests;

use crate::allocate::Member;
use crate::allocate::dba::Measures;

pub use outcome::{Outcome, Sample, Totals};
pub use scenario::{Scenario, ScenarioError};

/// Picoseconds in a second: a 64-byte frame at 800 Gbit/s takes 640 of them.
pub const SECOND: u64 = 1_000_000_000_000;
/// Picoseconds in a millisecond.
pub const MILLISECOND: u64 = SECOND / 1000;

/// More members than this are simulated as a fluid.
pub const PACKET_MEMBERS: usize = 64;

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

/// What sends in a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Sends by a schedule whatever happens: non-blocking, so a packet that finds the ring full is
    /// never sent. (Picosecond from which, bit/s), rising; nothing before the first.
    OpenLoop(Vec<(u64, u64)>),
    /// Like TCP in congestion avoidance (RFC 5681, section 3.1), paced: a packet more each round
    /// trip, half on a drop, at most once a round trip. Waits when the ring is full.
    Aimd {
        /// Round trip, in picoseconds.
        rtt: u64,
    },
}

/// Who sets the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocator {
    /// Nobody: there are none, and the host serves its queues in turn.
    None,
    /// The published loop.
    Dba(Measures),
    /// vmio's own.
    Exact,
}

impl Allocator {
    /// As a report calls it.
    pub fn label(self) -> &'static str {
        match self {
            Allocator::None => "unshaped",
            Allocator::Dba(Measures::Offered) => "dba, offered measured",
            Allocator::Dba(Measures::Passed) => "dba, passed measured",
            Allocator::Exact => "exact",
        }
    }
}

/// Where limits act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforcement {
    /// A token bucket behind the guest's ring: excess stays in the guest.
    Held,
    /// A token bucket behind the host's queue: excess was copied to the host, and waits or is dropped there.
    Queued,
    /// No loop and no limits: the host's scheduler serves minima first, then spare by priority and
    /// weight, as hierarchical token buckets do. It lends hard reserves, too.
    Hierarchy,
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
    /// Packets that a member's queue on the host holds.
    pub queue: u32,
    /// Of the sources' jitter.
    pub seed: u64,
}

impl Settings {
    /// The defaults beside an allocator and a period in picoseconds: limits hold excess in the
    /// guest; rings of 256 packets, as virtio-net's, host queues of 1000, Linux' default.
    pub fn new(allocator: Allocator, period: u64) -> Settings {
        Settings { allocator, enforcement: Enforcement::Held, period: period.max(1), ring: 256, queue: 1000, seed: 1 }
    }
}

/// Runs a scenario from its start to its end.
pub fn run(scenario: &Scenario, settings: &Settings) -> Outcome {
    if scenario.vifs.len() <= PACKET_MEMBERS { packet::run(scenario, settings) } else { fluid::run(scenario, settings) }
}

/// Time that `bits` take at `rate` bit/s, in picoseconds; for ever at 0.
fn time_of(bits: u64, rate: u64) -> u64 {
    (u128::from(bits) * u128::from(SECOND))
        .checked_div(u128::from(rate))
        .map_or(u64::MAX, |t| u64::try_from(t).unwrap_or(u64::MAX))
}

/// Rate at which `bits` pass in `time` picoseconds, in bit/s.
fn rate_of(bits: u64, time: u64) -> u64 {
    let rate = u128::from(bits) * u128::from(SECOND) / u128::from(time.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Bits that pass at `rate` bit/s in `time` picoseconds.
fn bits_of(rate: u64, time: u64) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(time) / u128::from(SECOND)).unwrap_or(u64::MAX)
}
