//! What is to be in force, in the kernel's units.
//!
//! How a value is rounded, so that what is read back must be equal:
//! - **rate, ceil**: whole bytes a second (`psched_ratecfg_precompute` of net/sched/sch_generic.c keeps them in 64 bits):
//!   bit/s divided by 8, rounded down, at least 1.
//! - **burst, cburst**: not bytes but the time in which the rate (the ceiling) gives them, in ticks of 64 ns
//!   (`PSCHED_SHIFT` of include/net/pkt_sched.h), 32 bits: rounded up, so that the bucket holds at least what was
//!   asked for; at most 2^32 - 1 ticks, 274 s.
//! - **quantum, prio, limit** of the queue, **overhead, mpu**: as they are. Framing is a class's, not the qdisc's (a size
//!   table): the kernel has added the headers of each segment of a packet that is cut later (`qdisc_pkt_len_init` of
//!   net/core/dev.c) before a class adds its overhead, and a size table would throw that away.
//! - A root class keeps the quantum and priority of its first moment and uses neither: they are not compared.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use vmio_model::policy::program::{Framing, Hierarchy, Leaf};
use vmio_model::rate::{BitRate, ByteRate};

use super::super::{Error, Result};
use super::encode::Class;
use super::flow_tree::{self, FlowTree};
use super::queue::Queue;
use super::{DEFAULT, MOST_LEAVES, ROOT_CLASS, TICK_NS};
use crate::desired::LAST_NUMBER;

/// Priorities of HTB (TC_HTB_NUMPRIO).
const PRIORITIES: u8 = 8;

/// A leaf and its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WantedLeaf {
    /// Its class.
    pub class: Class,
    /// How what is too much waits.
    pub queue: Queue,
}

/// What is to be in force on one interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// Where packets go that no class is named for.
    pub default: u16,
    /// The class that lends.
    pub root: Class,
    /// By number.
    pub leaves: BTreeMap<u16, WantedLeaf>,
    /// What is in leaves with flow classes instead of their queue, by number.
    pub flow_trees: BTreeMap<u16, FlowTree>,
}

impl Tree {
    /// That of a hierarchy, with each leaf's number.
    ///
    /// # Errors
    /// Where a leaf has no number or senseless values, or none is called `default`: what nobody is for would pass
    /// unshaped.
    pub fn wanted(hierarchy: &Hierarchy, numbers: &Numbers) -> Result<Self> {
        let framing = hierarchy.framing;
        if framing.overhead_bytes > 1024 || framing.least_bytes > 4096 {
            return Err(invalid(
                "framing",
                "an overhead of at most 1024 and a least frame of at most 4096 bytes are taken",
            ));
        }
        if hierarchy.leaves.len() > MOST_LEAVES {
            return Err(invalid("hierarchy", &format!("{} leaves, at most {MOST_LEAVES}", hierarchy.leaves.len())));
        }
        let (mut leaves, mut flow_trees) = (BTreeMap::new(), BTreeMap::new());
        for leaf in &hierarchy.leaves {
            let named = format!("leaf {:?}", leaf.name);
            let minor = numbers.of(&leaf.name).ok_or_else(|| invalid(&named, "it has no number"))?;
            let queue = numbers.queue(minor, leaf.queue_bytes);
            let wanted = WantedLeaf { class: class(leaf, framing, &named)?, queue };
            flow_trees.extend(FlowTree::wanted(minor, leaf, queue, framing)?.map(|flows| (minor, flows)));
            if leaves.insert(minor, wanted).is_some() {
                return Err(invalid(&named, "there are two of that name"));
            }
        }
        let queues: usize = hierarchy.leaves.iter().map(|leaf| leaf.flows.len()).sum();
        if queues > flow_tree::MOST_QUEUES {
            let why = format!("{queues} flow classes and rests, at most {}", flow_tree::MOST_QUEUES);
            return Err(invalid("hierarchy", &why));
        }
        let default = numbers.of(DEFAULT).filter(|minor| leaves.contains_key(minor));
        let default = default.ok_or_else(|| {
            invalid("hierarchy", &format!("no leaf is called {DEFAULT:?}: unclassified traffic would pass unshaped"))
        })?;
        if hierarchy.rate_bps == BitRate::ZERO || hierarchy.burst_bytes == 0 {
            return Err(invalid("hierarchy", "a root of rate or burst 0 lets nothing pass"));
        }
        let (rate, burst) = (bytes(hierarchy.rate_bps), hierarchy.burst_bytes);
        let ticks = ticks(burst, rate);
        let (overhead, mpu) = (short(framing.overhead_bytes), short(framing.least_bytes));
        // It lends by its children's quanta; its own is asked for only when it is made.
        let quantum = leaves.values().map(|l| l.class.quantum).max().unwrap_or(1);
        let root = Class { rate, ceil: rate, burst: ticks, cburst: ticks, quantum, prio: 0, overhead, mpu };
        Ok(Self { default, root, leaves, flow_trees })
    }
}

pub(super) fn class(leaf: &Leaf, framing: Framing, named: &str) -> Result<Class> {
    let wrong = if leaf.rate_bps == BitRate::ZERO {
        "a rate of 0 is none for HTB: its least is 8 bit/s"
    } else if leaf.ceil_bps < leaf.rate_bps {
        "its ceiling is below its rate"
    } else if leaf.priority >= PRIORITIES {
        "priorities are 0 to 7"
    } else if leaf.burst_bytes == 0 || leaf.queue_bytes == 0 {
        "a burst or queue of 0 lets nothing pass"
    } else if leaf.quantum_bytes == 0 || i32::try_from(leaf.quantum_bytes).is_err() {
        "a quantum is 1 to 2147483647 bytes"
    } else {
        let (rate, ceil) = (bytes(leaf.rate_bps), bytes(leaf.ceil_bps));
        return Ok(Class {
            rate,
            ceil,
            burst: ticks(leaf.burst_bytes, rate),
            cburst: ticks(leaf.burst_bytes, ceil),
            quantum: leaf.quantum_bytes,
            prio: u32::from(leaf.priority),
            overhead: short(framing.overhead_bytes),
            mpu: short(framing.least_bytes),
        });
    };
    Err(invalid(named, wrong))
}

pub(super) fn short(bytes: u32) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

/// As the kernel counts it, at least 1.
fn bytes(rate: BitRate) -> ByteRate {
    rate.bytes().max(ByteRate::new(1))
}

/// Ticks in which a rate gives so many bytes.
fn ticks(burst: u32, rate: ByteRate) -> u32 {
    let ticks = (u128::from(burst) * 1_000_000_000).div_ceil(u128::from(rate.bytes().max(1)) * TICK_NS);
    u32::try_from(ticks).unwrap_or(u32::MAX).max(1)
}

fn invalid(what: &str, why: &str) -> Error {
    Error::Invalid { what: what.to_owned(), why: why.to_owned() }
}

/// Which leaf has which number ([`crate::desired::Numbers`] gives them), and in whose queues flows are kept apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    given: BTreeMap<String, u16>,
    apart: BTreeSet<u16>,
}

impl Numbers {
    /// By the leaves' names.
    ///
    /// # Errors
    /// When two have one number, or one has a number that no leaf can have.
    pub fn given(numbers: BTreeMap<String, u16>) -> Result<Self> {
        let mut seen = BTreeSet::new();
        for (name, minor) in &numbers {
            if *minor <= ROOT_CLASS || *minor > LAST_NUMBER || !seen.insert(*minor) {
                return Err(invalid(&format!("leaf {name:?}"), &format!("number {minor} is another's or no leaf's")));
            }
        }
        Ok(Self { given: numbers, apart: BTreeSet::new() })
    }

    /// Whose number is which.
    pub fn of(&self, name: &str) -> Option<u16> {
        self.given.get(name).copied()
    }

    /// With flows kept apart in the queues of these numbers, and of no others.
    pub fn with_flows_apart(self, numbers: impl IntoIterator<Item = u16>) -> Self {
        Self { apart: numbers.into_iter().collect(), ..self }
    }

    /// In whose queues flows are kept apart.
    pub fn apart(&self) -> &BTreeSet<u16> {
        &self.apart
    }

    /// The queue of a number, for so many bytes.
    pub fn queue(&self, minor: u16, bytes: u32) -> Queue {
        if self.apart.contains(&minor) { Queue::flows(bytes) } else { Queue::Bytes(bytes) }
    }
}
