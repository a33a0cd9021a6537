//! What is to be in force, in the kernel's units (`units.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use vmio_model::policy::program::{FlowLeaf, Framing, Hierarchy, Leaf};
use vmio_model::rate::BitRate;

use super::super::Result;
use super::encode::Class;
use super::flow_tree::{self, FlowTree};
use super::queue::Queue;
use super::units::{bytes, class, invalid, short, ticks};
use super::{DEFAULT, MOST_LEAVES, ROOT_CLASS};
use crate::desired::LAST_NUMBER;

/// A leaf and its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WantedLeaf {
    /// Its class.
    pub class: Class,
    /// How what is too much waits.
    pub queue: Queue,
}

/// What is to be in force on one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Where packets go that no class is named for.
    pub default: u16,
    /// The class that lends.
    pub root: Class,
    /// By number.
    pub leaves: BTreeMap<u16, WantedLeaf>,
    /// What is in leaves with flow classes instead of their queue, by number.
    pub flow_trees: BTreeMap<u16, Arc<FlowTree>>,
}

impl Tree {
    /// That of a hierarchy, with each leaf's number.
    ///
    /// # Errors
    /// Where a leaf has no number or senseless values, or none is called `default`: what nobody is for would pass
    /// unshaped.
    pub fn wanted(hierarchy: &Hierarchy, numbers: &Numbers) -> Result<Self> {
        Tree::wanted_with(&mut BuiltFlows::default(), hierarchy, numbers)
    }

    /// As [`Tree::wanted`], with flow classes that were built before where they are the same.
    ///
    /// # Errors
    /// As [`Tree::wanted`].
    pub fn wanted_with(built: &mut BuiltFlows, hierarchy: &Hierarchy, numbers: &Numbers) -> Result<Self> {
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
            flow_trees.extend(built.of(minor, leaf, queue, framing)?.map(|flows| (minor, flows)));
            if leaves.insert(minor, wanted).is_some() {
                return Err(invalid(&named, "there are two of that name"));
            }
        }
        built.0.retain(|minor, _| flow_trees.contains_key(minor));
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

/// What was built last for an interface's leaves with flow classes, by number: each has a filter, and the loop changes
/// rates many times a second, but no flow class.
#[derive(Debug, Default)]
pub struct BuiltFlows(BTreeMap<u16, Built>);

/// That of a leaf, and what it was built from.
#[derive(Debug)]
struct Built {
    flows: Vec<FlowLeaf>,
    queue: Queue,
    framing: Framing,
    tree: Arc<FlowTree>,
}

impl BuiltFlows {
    /// That of a leaf; `None` of one without flow classes.
    fn of(&mut self, minor: u16, leaf: &Leaf, queue: Queue, framing: Framing) -> Result<Option<Arc<FlowTree>>> {
        let is_same = |b: &&Built| b.flows == leaf.flows && b.queue == queue && b.framing == framing;
        if let Some(built) = self.0.get(&minor).filter(is_same) {
            return Ok(Some(Arc::clone(&built.tree)));
        }
        let Some(tree) = FlowTree::wanted(minor, leaf, queue, framing)?.map(Arc::new) else { return Ok(None) };
        let (flows, built) = (leaf.flows.clone(), Arc::clone(&tree));
        self.0.insert(minor, Built { flows, queue, framing, tree: built });
        Ok(Some(tree))
    }
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
