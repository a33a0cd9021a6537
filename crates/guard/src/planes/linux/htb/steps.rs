//! The steps from the tree in force to the wanted one. Pure.

use std::fmt;
use std::sync::Arc;

use super::debts::has_long_turn;
use super::encode::Class;
use super::flow_tree::{self, FlowTree};
use super::queue::Queue;
use super::read::{FoundClass, FoundQueue, InForce};
use super::tree::{Tree, WantedLeaf};
use super::{ROOT_CLASS, classid, queue_handle, shown};

/// One request to the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Our qdisc goes, with all that is in it: what is to change cannot be changed in place.
    RemoveRoot,
    /// Our qdisc.
    AddRoot {
        /// The default class's number.
        default: u16,
    },
    /// A size table that somebody gave our qdisc goes.
    RemoveSizes,
    /// A class.
    AddClass {
        /// Its number.
        minor: u16,
        /// Its settings.
        class: Class,
    },
    /// Other settings for a class.
    SetClass {
        /// Its number.
        minor: u16,
        /// Its settings.
        class: Class,
    },
    /// A queue that somebody put into a class of ours goes.
    RemoveQueue {
        /// The class's number.
        minor: u16,
        /// The queue's handle.
        handle: u32,
    },
    /// A class's queue.
    SetQueue {
        /// The class's number.
        minor: u16,
        /// How what is too much waits.
        queue: Queue,
    },
    /// A class's flow classes, where it has no queue.
    SetFlows {
        /// The class's number.
        minor: u16,
        /// All that is in it.
        flows: Arc<FlowTree>,
    },
    /// A class goes, with what waits in it.
    RemoveClass {
        /// Its number.
        minor: u16,
    },
}

impl Step {
    /// The class that it is about, with its queue; `None` of what is about all.
    pub(super) fn minor(&self) -> Option<u16> {
        match self {
            Step::RemoveRoot | Step::AddRoot { .. } | Step::RemoveSizes => None,
            Step::AddClass { minor, .. }
            | Step::SetClass { minor, .. }
            | Step::RemoveQueue { minor, .. }
            | Step::SetQueue { minor, .. }
            | Step::SetFlows { minor, .. }
            | Step::RemoveClass { minor } => Some(*minor),
        }
    }
}

/// The steps to the wanted tree; `actual` is None if there is none of ours. Additions and increases come before
/// removals, but for classes that are made anew.
pub fn difference(wanted: &Tree, actual: Option<&InForce>) -> Vec<Step> {
    let mut steps = Vec::new();
    let nothing = InForce::default();
    // A default class cannot be changed, classes cannot be moved, and one with children cannot be removed.
    let stays = actual.filter(|a| {
        let fits = a.default == u32::from(wanted.default) && a.is_flat(|m| wanted.leaves.contains_key(&m));
        fits && !a.root_is_void(wanted)
    });
    if actual.is_some() && stays.is_none() {
        steps.push(Step::RemoveRoot);
    }
    match stays {
        None => steps.push(Step::AddRoot { default: wanted.default }),
        Some(there) if there.sized => steps.push(Step::RemoveSizes),
        Some(_) => {}
    }
    let there = stays.unwrap_or(&nothing);
    match there.classes.get(&ROOT_CLASS) {
        None => steps.push(Step::AddClass { minor: ROOT_CLASS, class: wanted.root }),
        Some(found) if !same_root(&found.class, &wanted.root) => {
            steps.push(Step::SetClass { minor: ROOT_CLASS, class: wanted.root });
        }
        Some(_) => {}
    }
    for (&minor, leaf) in &wanted.leaves {
        let anew = |found: &FoundClass| {
            found.debt.is_void(&found.class, &leaf.class) || has_long_turn(&found.class, &leaf.class, &wanted.root)
        };
        if there.classes.get(&minor).is_some_and(anew) {
            let class = leaf.class;
            steps.extend([
                Step::RemoveClass { minor },
                Step::AddClass { minor, class },
                queue_step(wanted, minor, leaf),
            ]);
            continue;
        }
        match there.classes.get(&minor) {
            None => steps.push(Step::AddClass { minor, class: leaf.class }),
            Some(found) if found.class != leaf.class => steps.push(Step::SetClass { minor, class: leaf.class }),
            Some(_) => {}
        }
        let queue = there.queues.get(&minor);
        // A class in which something waits is served by its first priority until it is empty once (`prio_activity` of
        // net/sched/sch_htb.c), which may be never: what waits goes.
        let served_anew = there.classes.get(&minor).is_some_and(|found| found.class.prio != leaf.class.prio);
        // The kind of a queue cannot be changed in place, and flow classes are not.
        let flows = wanted.flow_trees.get(&minor);
        let kind = if flows.is_some() { flow_tree::KIND } else { leaf.queue.kind() };
        let same_flows = there.flow_trees.get(&minor) == flows;
        let goes = |q: &&FoundQueue| q.kind != kind || served_anew || (flows.is_some() && !same_flows);
        if let Some(other) = queue.filter(goes) {
            steps.push(Step::RemoveQueue { minor, handle: other.handle });
        }
        let has = |q: &FoundQueue| if flows.is_some() { same_flows } else { q.queue == Some(leaf.queue) };
        let is = |q: &FoundQueue| q.handle == queue_handle(minor) && has(q) && !served_anew;
        if !queue.is_some_and(is) {
            steps.push(queue_step(wanted, minor, leaf));
        }
    }
    let gone = there.classes.keys().filter(|m| **m != ROOT_CLASS && !wanted.leaves.contains_key(m));
    steps.extend(gone.map(|&minor| Step::RemoveClass { minor }));
    steps
}

/// What puts a leaf's queue, or its flow classes, in place.
fn queue_step(wanted: &Tree, minor: u16, leaf: &WantedLeaf) -> Step {
    match wanted.flow_trees.get(&minor) {
        Some(flows) => Step::SetFlows { minor, flows: Arc::clone(flows) },
        None => Step::SetQueue { minor, queue: leaf.queue },
    }
}

/// A class that lends keeps its first quantum and priority, and uses neither.
fn same_root(found: &Class, wanted: &Class) -> bool {
    *found == Class { quantum: found.quantum, prio: found.prio, ..*wanted }
}

/// The first field that differs: its class, name, wanted and current value.
pub(super) fn mismatch(wanted: &Tree, found: &InForce) -> Option<(u16, &'static str, String, String)> {
    let step = difference(wanted, Some(found)).into_iter().next()?;
    Some(match step {
        Step::RemoveRoot | Step::AddRoot { .. } if found.default != u32::from(wanted.default) => {
            (ROOT_CLASS, "default", wanted.default.to_string(), found.default.to_string())
        }
        Step::RemoveRoot | Step::AddRoot { .. } => (ROOT_CLASS, "shape", "two levels".into(), "another".into()),
        Step::RemoveSizes => (ROOT_CLASS, "size table", "none".into(), "there".into()),
        Step::AddClass { minor, .. } => (minor, "class", "there".into(), "missing".into()),
        Step::RemoveClass { minor } if !wanted.leaves.contains_key(&minor) => {
            (minor, "class", "none".into(), "there".into())
        }
        Step::SetFlows { minor, .. } => (minor, "flow classes", "there".into(), "missing".into()),
        Step::RemoveQueue { minor, .. } if wanted.flow_trees.contains_key(&minor) => {
            (minor, "flow classes", "as written".into(), "others".into())
        }
        Step::RemoveQueue { minor, .. } => {
            let kind = wanted.leaves.get(&minor).map_or("", |leaf| leaf.queue.kind());
            (minor, "queue", kind.into(), found.queues.get(&minor).map_or_else(String::new, |q| q.kind.clone()))
        }
        Step::SetQueue { minor, queue } => {
            let there = found.queues.get(&minor);
            let differing = queue.differing(there.and_then(|there| there.queue));
            let (field, wanted, found) = differing.unwrap_or_else(|| {
                let shown = |handle: u32, queue: &dyn fmt::Display| format!("{:x}: {queue}", handle >> 16);
                let there = there.map(|there| match &there.queue {
                    Some(queue) => shown(there.handle, queue),
                    None => shown(there.handle, &there.kind),
                });
                ("queue", shown(queue_handle(minor), &queue), there.unwrap_or("missing".to_owned()))
            });
            (minor, field, wanted, found)
        }
        Step::SetClass { minor, .. } | Step::RemoveClass { minor } => {
            let class = wanted.leaves.get(&minor).map_or(wanted.root, |leaf| leaf.class);
            let there = found.classes.get(&minor)?.class;
            let (field, wanted, found) = differing(minor, &class, &there)?;
            (minor, field, wanted, found)
        }
    })
}

fn differing(minor: u16, wanted: &Class, found: &Class) -> Option<(&'static str, String, String)> {
    let leaf = minor != ROOT_CLASS;
    let fields = [
        ("rate (bytes/s)", wanted.rate.bytes(), found.rate.bytes(), true),
        ("ceil (bytes/s)", wanted.ceil.bytes(), found.ceil.bytes(), true),
        ("burst (64 ns)", u64::from(wanted.burst), u64::from(found.burst), true),
        ("cburst (64 ns)", u64::from(wanted.cburst), u64::from(found.cburst), true),
        ("quantum", u64::from(wanted.quantum), u64::from(found.quantum), leaf),
        ("prio", u64::from(wanted.prio), u64::from(found.prio), leaf),
        ("overhead", u64::from(wanted.overhead), u64::from(found.overhead), true),
        ("mpu", u64::from(wanted.mpu), u64::from(found.mpu), true),
    ];
    let differs = fields.into_iter().find(|(_, wanted, found, counts)| *counts && wanted != found)?;
    Some((differs.0, differs.1.to_string(), differs.2.to_string()))
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = |minor: &u16| shown(classid(*minor));
        match self {
            Step::RemoveRoot => write!(f, "remove qdisc 7a00:"),
            Step::AddRoot { default } => write!(f, "add qdisc 7a00: default {}", id(default)),
            Step::RemoveSizes => write!(f, "remove the size table of qdisc 7a00:"),
            Step::AddClass { minor, class } => write!(f, "add class {} {class}", id(minor)),
            Step::SetClass { minor, class } => write!(f, "change class {} {class}", id(minor)),
            Step::RemoveQueue { minor, handle } => {
                write!(f, "remove queue {:x}: of class {}", handle >> 16, id(minor))
            }
            Step::SetQueue { minor, queue } => write!(f, "set queue of class {} to {queue}", id(minor)),
            Step::SetFlows { minor, flows } => {
                write!(
                    f,
                    "set {} flow classes of class {} with queues of {}",
                    flows.classes.len() - 1,
                    id(minor),
                    flows.queue
                )
            }
            Step::RemoveClass { minor } => write!(f, "remove class {}", id(minor)),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Class { rate, ceil, burst, cburst, quantum, prio, overhead, mpu } = self;
        let (rate, ceil) = (rate.bytes(), ceil.bytes());
        write!(f, "rate {rate} ceil {ceil} burst {burst} cburst {cburst} quantum {quantum} prio {prio}")?;
        if *overhead > 0 || *mpu > 0 { write!(f, " overhead {overhead} mpu {mpu}") } else { Ok(()) }
    }
}
