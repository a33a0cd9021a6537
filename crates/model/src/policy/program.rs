//! What a plane is told: the program of one pool. A plane that schedules gets a [`Hierarchy`], one that
//! knows only limits gets [`Limits`]. Both are data: [`super::compile`] makes them, a plane puts them in
//! force and reads them back, the simulation runs them.

use serde::Serialize;

use super::{Abilities, Direction};
use crate::rate::BitRate;

/// How a frame counts on the wire.
///
/// A physical Ethernet port sends 7 bytes of preamble, 1 of start delimiter, 4 of check sequence and 12 of gap
/// beside each frame of at least 60 bytes (IEEE 802.3, clauses 3.1.1 and 4.4.2). A virtual link sends nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Framing {
    /// Added to each frame as the kernel counts it (header and payload), in bytes.
    pub overhead_bytes: u32,
    /// A frame counts at least so much, in bytes, with what was added.
    pub least_bytes: u32,
}

impl Framing {
    /// Frames as they are.
    pub const NONE: Framing = Framing { overhead_bytes: 0, least_bytes: 0 };
    /// A physical Ethernet port.
    pub const ETHERNET: Framing = Framing { overhead_bytes: 24, least_bytes: 84 };

    /// Bytes that one frame takes on the wire.
    pub fn wire_bytes(self, frame_bytes: u32) -> u32 {
        frame_bytes.saturating_add(self.overhead_bytes).max(self.least_bytes)
    }
}

/// Two levels of token buckets: a root that lends, and a leaf a member. The shape of Linux' HTB
/// (net/sched/sch_htb.c): a leaf below its own rate is served first; what the root has left is borrowed by
/// priority, inside one in turns of a quantum; nobody goes beyond his ceiling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hierarchy {
    /// Of the root: what all together get.
    pub rate_bps: BitRate,
    /// Of the root's bucket.
    pub burst_bytes: u32,
    /// How a frame counts.
    pub framing: Framing,
    /// One a member, in the members' order.
    pub leaves: Vec<Leaf>,
}

/// What one member has of a [`Hierarchy`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leaf {
    /// Its name in the pool.
    pub name: String,
    /// Its own: the effective minimum, and never less than the plane's least.
    pub rate_bps: BitRate,
    /// Not exceeded; at least the rate.
    pub ceil_bps: BitRate,
    /// 0 borrows first, 7 last.
    pub priority: u8,
    /// What it borrows in one turn.
    pub quantum_bytes: u32,
    /// Of both of its buckets.
    pub burst_bytes: u32,
    /// What may wait in its queue.
    pub queue_bytes: u32,
}

impl Leaf {
    /// Holds it to a limit whatever others leave: rounded down to what the plane can have, and not below its least.
    pub fn cap(&mut self, limit: BitRate, plane: &Abilities) {
        self.rate_bps = limit.min(plane.most_bps).rounded_down(plane.step_bps).max(plane.least_bps);
        self.ceil_bps = self.rate_bps;
    }
}

/// A limit a member, for planes that know nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// One a member, in the members' order.
    pub limits: Vec<Limit>,
}

/// A member's limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// Its name in the pool.
    pub name: String,
    /// Never less than the effective minimum, so that a loop that died breaks no guarantee.
    pub cap_bps: BitRate,
    /// What may pass at once.
    pub burst_bytes: u32,
}

/// What one pool's plane is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "form")]
pub enum Program {
    /// The plane shares by itself.
    Hierarchy(Hierarchy),
    /// The loop shares, the plane holds limits.
    Limits(Limits),
}

/// A program beside the pool that it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolProgram {
    /// The uplink.
    pub uplink: String,
    /// Its direction.
    pub direction: Direction,
    /// What the plane is told.
    #[serde(flatten)]
    pub program: Program,
}
