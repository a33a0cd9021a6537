//! The program of one pool for a plane: a [`Hierarchy`] for one that schedules, [`Limits`] for one that only sets
//! limits. [`super::compile`] makes them, a plane applies them and reads them back, the simulation runs them.

use serde::Serialize;

use super::flow::FlowMatch;
use super::{Abilities, Direction};
use crate::rate::BitRate;

/// Framing: how a packet counts on the wire.
///
/// A physical Ethernet port sends 7 bytes of preamble, 1 of start delimiter, 4 of check sequence and 12 of gap with
/// each frame of at least 60 bytes (IEEE 802.3, clauses 3.1.1 and 4.4.2). A virtual link adds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Framing {
    /// Bytes added to each frame as the kernel counts it (header and payload).
    pub overhead_bytes: u32,
    /// Smallest size of a frame in bytes, overhead included.
    pub least_bytes: u32,
}

impl Framing {
    /// No framing.
    pub const NONE: Framing = Framing { overhead_bytes: 0, least_bytes: 0 };
    /// A physical Ethernet port.
    pub const ETHERNET: Framing = Framing { overhead_bytes: 24, least_bytes: 84 };

    /// Bytes that one frame takes on the wire.
    pub fn wire_bytes(self, frame_bytes: u32) -> u32 {
        frame_bytes.saturating_add(self.overhead_bytes).max(self.least_bytes)
    }
}

/// Two levels of token buckets: a root that lends, and a leaf for each member, as in Linux's HTB (net/sched/sch_htb.c):
/// a leaf below its own rate is served first; the root's rest is borrowed by priority, within one in turns of a
/// quantum; no leaf exceeds its ceiling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hierarchy {
    /// Rate of the root, for all together.
    pub rate_bps: BitRate,
    /// Bucket of the root.
    pub burst_bytes: u32,
    /// Framing of packets.
    pub framing: Framing,
    /// A leaf for each member, in order.
    pub leaves: Vec<Leaf>,
}

/// A member's leaf in a [`Hierarchy`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leaf {
    /// Its name in the pool.
    pub name: String,
    /// Its own rate: the effective minimum, and at least the plane's least.
    pub rate_bps: BitRate,
    /// Its ceiling, at least the rate.
    pub ceil_bps: BitRate,
    /// 0 borrows first, 7 last.
    pub priority: u8,
    /// Bytes that it borrows in one turn.
    pub quantum_bytes: u32,
    /// Size of both its buckets.
    pub burst_bytes: u32,
    /// What a token bucket before it lets pass at once; 0 without one. The bucket of its ceiling has room for it, that of
    /// its own rate does not: what it took from there would come before others' minima.
    pub policed_bytes: u32,
    /// Length of its queue; where it has flows, of each one's.
    pub queue_bytes: u32,
    /// Its flow classes in the order in which they are tried, and the rest last; empty without flow classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowLeaf>,
}

/// A flow class inside of a member's leaf: of all that the leaf may send those below their own rate go first, then the
/// others by priority, in equal turns within one; none exceeds its ceiling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlowLeaf {
    /// Its name in the class, or [`REST`](super::flow::REST).
    pub name: String,
    /// Its packets; of the rest all.
    pub matcher: FlowMatch,
    /// Direction of its packets, which says which end of them is the other one's.
    pub direction: Direction,
    /// Its own rate: the minimum, and at least the plane's least.
    pub rate_bps: BitRate,
    /// Its ceiling, at least the rate.
    pub ceil_bps: BitRate,
    /// 0 first, 7 last.
    pub priority: u8,
    /// Bytes of one turn.
    pub quantum_bytes: u32,
    /// Size of both its buckets.
    pub burst_bytes: u32,
}

impl Leaf {
    /// Limits it: rounded down to a rate of the plane, and at least its least one.
    pub fn cap(&mut self, limit: BitRate, plane: &Abilities) {
        self.rate_bps = limit.min(plane.most_bps).rounded_down(plane.step_bps).max(plane.least_bps);
        self.ceil_bps = self.rate_bps;
    }
}

/// A limit for each member, for planes without sharing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// One for each member, in order.
    pub limits: Vec<Limit>,
}

/// A member's limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// Its name in the pool.
    pub name: String,
    /// At least the effective minimum, so that a loop that died breaks no guarantee.
    pub cap_bps: BitRate,
    /// Burst.
    pub burst_bytes: u32,
}

/// The program of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "form")]
pub enum Program {
    /// The plane shares by itself.
    Hierarchy(Hierarchy),
    /// The loop shares, the plane holds limits.
    Limits(Limits),
}

/// A program with its pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolProgram {
    /// The uplink.
    pub uplink: String,
    /// Its direction.
    pub direction: Direction,
    /// The program.
    #[serde(flatten)]
    pub program: Program,
}
