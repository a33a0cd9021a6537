//! A [`Hierarchy`](vmio_model::policy::program::Hierarchy) as Linux' HTB (net/sched/sch_htb.c) on what leaves an
//! interface: the qdisc `7a00:`, its root class `7a00:1`, a class a leaf, and in each leaf a queue: of so many bytes
//! (bfifo), or with its flows apart (fq_codel).
//!
//! - [`Tree::wanted`] computes the desired tree in the kernel's units, so that what is read back must be **equal**
//!   (`units.rs` has the kernel's rounding);
//! - [`read`] reads the current tree and its owner;
//! - [`difference`] computes the steps, and [`put`] makes them and reads back;
//! - [`undo`] removes the tree.
//!
//! A leaf with flow classes has an HTB of its own in place of the queue (`flow_tree.rs`), with a queue for each.
//!
//! A leaf's class keeps its number ([`Numbers`]) as long as the leaf exists, so that classified packets keep their
//! class.

use vmio_model::policy::Abilities;

use super::Device;

mod apply;
pub(super) mod ask;
mod debts;
mod encode;
mod filter;
mod flow_tree;
mod queue;
mod read;
mod steps;
mod tree;
mod units;

#[cfg(test)]
mod tests;

pub use apply::{Applied, Undone, evict, may_put, purge, put, put_over, undo};
pub use debts::Cause;
pub use encode::{Class, tcmsg};
pub use filter::Instruction;
pub use flow_tree::FlowTree;
pub use queue::{Flows, Queue, has_flows};
pub use read::{Debt, Foreign, FoundClass, FoundQueue, InForce, Root, read, settings};
pub use steps::{Step, difference};
pub use tree::{BuiltFlows, Numbers, Tree, WantedLeaf};

pub(super) use encode::{RTM_GETQDISC, RTM_GETTCLASS, TCA_KIND, TCA_STATS2, TCMSG};
pub(super) use flow_tree::{KIND as HTB, flow_id, flow_of};
pub(super) use queue::FLOWS;
pub(super) use read::{Placed, hook, placed, read_classes, read_leaves};

/// The handle of our qdisc: `7a00:`. One at the root of an interface under this handle, of kind `htb`, is ours.
pub const HANDLE: u32 = 0x7a00_0000;
/// Nanoseconds of a tick.
const TICK_NS: u128 = 64;
/// The number of the root class.
pub const ROOT_CLASS: u16 = 1;
/// Leaves of one hierarchy: as many as there are numbers for them.
pub const MOST_LEAVES: usize = Abilities::HTB.members;
/// The leaf of unclassified packets.
pub const DEFAULT: &str = "default";

/// Whether a qdisc at the root of an interface is ours.
pub(super) fn is_ours(handle: u32, kind: &str) -> bool {
    handle == HANDLE && kind == HTB
}

/// The classid of a number, which a packet's `skb->priority` names it by.
pub const fn classid(minor: u16) -> u32 {
    HANDLE | minor as u32
}

/// The handle of a leaf's queue: `4002:` for number 2. Below ours, and below those that the kernel gives by itself
/// (8000: and on): [`crate::desired::LAST_NUMBER`] sees to it.
const fn queue_handle(minor: u16) -> u32 {
    (0x4000 + minor as u32) << 16
}

/// A handle or classid as `tc` writes it.
fn shown(handle: u32) -> String {
    format!("{:x}:{:x}", handle >> 16, handle & 0xffff)
}

fn place(device: &Device, minor: u16) -> String {
    format!("{device}, class {}", shown(classid(minor)))
}
