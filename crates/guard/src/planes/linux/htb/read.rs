//! Reads the qdiscs and classes at an interface's egress, and their owner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::netlink::wire::{self, Attributes, Malformed, Message, u32_at};
use super::super::{Device, Netlink, Result};
use super::ask::{Qdisc, list, one, qdisc, queue_in};
use super::encode::{
    AT_HOOKS, AT_ROOT, Class, RTM_GETQDISC, RTM_GETTCLASS, RTM_GETTFILTER, TCA_KIND, TCA_OPTIONS, TCA_STATS,
    TCA_STATS2, TCA_XSTATS, TCMSG, class_of, default_of, entries_of,
};
use super::flow_tree::{self, FlowTree};
use super::queue::Queue;
use super::{HANDLE, ROOT_CLASS, classid, shown};

/// Statistics of the qdisc's own kind (include/uapi/linux/gen_stats.h).
const TCA_STATS_APP: u16 = 4;

/// Qdiscs that can be restored from their options alone.
const SIMPLE: &[&str] =
    &["bfifo", "cake", "codel", "fq", "fq_codel", "fq_pie", "pfifo", "pfifo_fast", "pie", "sfq", "tbf"];

/// The root qdisc of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// The kernel's default (handle `0:`): `noqueue`, `pfifo_fast`, `fq_codel`, `mq`.
    Kernels {
        /// Its kind; `noop` where the interface is down.
        kind: String,
    },
    /// Our qdisc.
    Ours(InForce),
    /// Another's.
    Foreign(Foreign),
}

/// Our tree in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InForce {
    /// The default class's number.
    pub default: u32,
    /// Somebody gave it a size table.
    pub sized: bool,
    /// Classes by number.
    pub classes: BTreeMap<u16, FoundClass>,
    /// Queues by the number of the class that they are in.
    pub queues: BTreeMap<u16, FoundQueue>,
    /// What is in those queues that hold flow classes, likewise.
    pub flow_trees: BTreeMap<u16, Arc<FlowTree>>,
}

/// A class that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundClass {
    /// Whose child it is; [`u32::MAX`]: nobody's.
    pub parent: u32,
    /// Its settings.
    pub class: Class,
    /// What it owes.
    pub debt: Debt,
}

/// Time that a class owes, in ticks of 64 ns. The kernel gives it as of the class's last packet: it is less by now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Debt {
    /// Before it sends on its own rate.
    pub rate: u32,
    /// Before it sends at all.
    pub ceil: u32,
}

/// A queue that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundQueue {
    /// `bfifo` or `fq_codel`, if it is ours.
    pub kind: String,
    /// Its handle.
    pub handle: u32,
    /// Its settings, of kinds that are ours.
    pub queue: Option<Queue>,
}

/// A foreign qdisc, with what is needed to restore it, also from the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Foreign {
    /// Its kind.
    pub kind: String,
    /// Its handle.
    pub handle: u32,
    /// Its options (TCA_OPTIONS), as the kernel gives them.
    pub options: Option<Vec<u8>>,
    /// Its size table (TCA_STAB), as the kernel gives it.
    pub sizes: Option<Vec<u8>>,
    /// Why it cannot be restored, if so.
    pub lost: Option<String>,
}

impl Foreign {
    /// As `tc` names it.
    pub fn shown(&self) -> String {
        format!("qdisc {} {:x}:", self.kind, self.handle >> 16)
    }
}

/// What is in force on what leaves an interface.
///
/// The kernel lists the qdiscs of all interfaces, and goes on behind so many interfaces where a part ended
/// (`tc_dump_qdisc` of net/sched/sch_api.c): where another interface went meanwhile it leaves some out, and does not
/// say so. What is not in the list is asked for.
///
/// # Errors
/// When the kernel refuses, or what it says makes no sense.
pub fn read(netlink: &mut Netlink, device: &Device) -> Result<Root> {
    let qdiscs = qdiscs(netlink, device)?;
    let mut found = match leaves(netlink, device, &qdiscs)? {
        Root::Ours(found) => found,
        other => return Ok(other),
    };
    let listed: BTreeMap<u32, &Qdisc> = qdiscs.iter().map(|qdisc| (qdisc.parent, qdisc)).collect();
    let nested = found.queues.iter().filter(|(_, queue)| queue.kind == flow_tree::KIND).map(|(minor, _)| *minor);
    for minor in nested.collect::<Vec<u16>>() {
        let flows = flow_tree::read(netlink, device, minor, &listed)?;
        found.flow_trees.extend(flows.map(|flows| (minor, Arc::new(flows))));
    }
    Ok(Root::Ours(found))
}

/// As [`read`], without what is in leaves with flow classes: who asks only whose the root is needs none of it.
pub(in super::super) fn read_leaves(netlink: &mut Netlink, device: &Device) -> Result<Root> {
    let qdiscs = qdiscs(netlink, device)?;
    leaves(netlink, device, &qdiscs)
}

/// The same, with the interface's qdiscs as they were listed.
fn leaves(netlink: &mut Netlink, device: &Device, qdiscs: &[Qdisc]) -> Result<Root> {
    let asked;
    let root = match qdiscs.iter().find(|q| q.parent == AT_ROOT) {
        Some(root) => root,
        None => {
            asked = root(netlink, device)?;
            let Some(root) = &asked else { return Ok(Root::Kernels { kind: "noop".to_owned() }) };
            root
        }
    };
    if root.handle == 0 {
        return Ok(Root::Kernels { kind: root.kind.clone() });
    }
    if !root.is_ours() {
        return foreign(netlink, device, root, qdiscs).map(Root::Foreign);
    }
    let mut found = ours(netlink, device, root)?;
    for qdisc in qdiscs {
        if qdisc.parent >> 16 == HANDLE >> 16 && qdisc.parent != HANDLE {
            found.queues.insert((qdisc.parent & 0xffff) as u16, qdisc.queue());
        }
    }
    let without = found.classes.keys().filter(|minor| **minor != ROOT_CLASS && !found.queues.contains_key(minor));
    let without: Vec<u16> = without.copied().collect();
    for minor in without {
        found.queues.extend(queue(netlink, device, minor)?.map(|queue| (minor, queue)));
    }
    Ok(Root::Ours(found))
}

/// As [`read_leaves`], without the queues where the root is ours: the kernel lists those of all interfaces.
pub(in super::super) fn read_classes(netlink: &mut Netlink, device: &Device) -> Result<Root> {
    match root(netlink, device)? {
        Some(root) if root.is_ours() => ours(netlink, device, &root).map(Root::Ours),
        _ => read_leaves(netlink, device),
    }
}

/// Our root qdisc, and its classes.
fn ours(netlink: &mut Netlink, device: &Device, root: &Qdisc) -> Result<InForce> {
    let malformed = |e: Malformed| super::super::Error::Malformed { what: format!("read qdisc of {device}"), why: e.0 };
    Ok(InForce {
        default: default_of(root.options.as_deref().unwrap_or_default()).map_err(malformed)?,
        sized: root.sizes.is_some(),
        classes: classes(netlink, device)?,
        ..InForce::default()
    })
}

/// What was in force of ours, with these classes and their queues as they are now; what is in leaves with flow classes
/// only of those that are `nested`.
pub(super) fn reread(
    netlink: &mut Netlink,
    device: &Device,
    before: InForce,
    minors: impl IntoIterator<Item = u16>,
    nested: &BTreeSet<u16>,
) -> Result<InForce> {
    let mut now = before;
    for minor in minors {
        let id = classid(minor);
        let what = format!("read class {} of {device}", shown(id));
        now.classes.remove(&minor);
        now.classes.extend(netlink.ask(&what, &one(RTM_GETTCLASS, device, id, 0), class)?);
        now.queues.remove(&minor);
        now.queues.extend(queue(netlink, device, minor)?.map(|queue| (minor, queue)));
        let kept = now.flow_trees.remove(&minor);
        if now.queues.get(&minor).is_some_and(|queue| queue.kind == flow_tree::KIND) {
            let flows = if nested.contains(&minor) {
                flow_tree::read(netlink, device, minor, &BTreeMap::new())?.map(Arc::new)
            } else {
                kept
            };
            now.flow_trees.extend(flows.map(|flows| (minor, flows)));
        }
    }
    Ok(now)
}

/// The qdisc at the root of an interface, if anybody put one there.
fn root(netlink: &mut Netlink, device: &Device) -> Result<Option<Qdisc>> {
    let what = format!("read the qdisc of {device}");
    netlink.ask(&what, &one(RTM_GETQDISC, device, 0, AT_ROOT), |m| qdisc(m).map(Some))
}

/// The queue in a class.
fn queue(netlink: &mut Netlink, device: &Device, minor: u16) -> Result<Option<FoundQueue>> {
    Ok(queue_in(netlink, device, classid(minor))?.as_ref().map(Qdisc::queue))
}

/// All qdiscs and classes of an interface as the kernel gives them, without what it counts: equal before and after
/// means that nothing was left behind.
///
/// # Errors
/// When the kernel refuses, or what it says makes no sense.
pub fn settings(netlink: &mut Netlink, device: &Device) -> Result<Vec<Vec<u8>>> {
    let bare = |m: &Message<'_>| {
        let (head, rest) = m.split(TCMSG)?;
        let mut bytes = head.to_vec();
        for (kind, payload) in wire::attributes(rest)? {
            if ![TCA_STATS, TCA_XSTATS, TCA_STATS2].contains(&kind) {
                bytes.extend(Attributes::new().with(kind, payload).bytes());
            }
        }
        Ok((u32_at(head, 4) == Some(device.index)).then_some(bytes))
    };
    let mut all = netlink.dump(&format!("list qdiscs of {device}"), &list(RTM_GETQDISC, 0, 0), bare)?;
    all.extend(netlink.dump(&format!("list classes of {device}"), &list(RTM_GETTCLASS, device.index, 0), bare)?);
    Ok(all)
}

/// The kernel lists those of all interfaces.
fn qdiscs(netlink: &mut Netlink, device: &Device) -> Result<Vec<Qdisc>> {
    netlink.dump(&format!("list qdiscs of {device}"), &list(RTM_GETQDISC, 0, 0), |m| {
        let (head, _) = m.split(TCMSG)?;
        if u32_at(head, 4) != Some(device.index) {
            return Ok(None);
        }
        qdisc(m).map(Some)
    })
}

impl Qdisc {
    fn is_ours(&self) -> bool {
        super::is_ours(self.handle, &self.kind)
    }

    fn queue(&self) -> FoundQueue {
        let queue = Queue::of(&self.kind, self.options.as_deref().unwrap_or_default());
        FoundQueue { kind: self.kind.clone(), handle: self.handle, queue }
    }
}

/// Of our qdisc alone: for a list of all the kernel looks at each flow of each fq_codel.
fn classes(netlink: &mut Netlink, device: &Device) -> Result<BTreeMap<u16, FoundClass>> {
    let request = list(RTM_GETTCLASS, device.index, HANDLE);
    Ok(netlink.dump(&format!("list classes of {device}"), &request, class)?.into_iter().collect())
}

/// One of ours, by its number.
fn class(message: &Message<'_>) -> std::result::Result<Option<(u16, FoundClass)>, Malformed> {
    let (head, rest) = message.split(TCMSG)?;
    let handle = u32_at(head, 8).unwrap_or(0);
    if handle >> 16 != HANDLE >> 16 {
        return Ok(None);
    }
    let attributes = wire::attributes(rest)?;
    let class = class_of(wire::find(&attributes, TCA_OPTIONS).unwrap_or_default())?;
    let parent = u32_at(head, 12).unwrap_or(0);
    Ok(Some(((handle & 0xffff) as u16, FoundClass { parent, class, debt: debt(&attributes)? })))
}

/// `tokens` and `ctokens` of `struct tc_htb_xstats` (include/uapi/linux/pkt_sched.h), where they are below zero.
fn debt(attributes: &[(u16, &[u8])]) -> std::result::Result<Debt, Malformed> {
    let stats = wire::find(attributes, TCA_STATS2).map(wire::attributes).transpose()?.unwrap_or_default();
    let xstats = wire::find(&stats, TCA_STATS_APP).unwrap_or_default();
    let owes = |at| u32_at(xstats, at).filter(|tokens| tokens >> 31 == 1).map_or(0, u32::wrapping_neg);
    Ok(Debt { rate: owes(12), ceil: owes(16) })
}

fn foreign(netlink: &mut Netlink, device: &Device, root: &Qdisc, all: &[Qdisc]) -> Result<Foreign> {
    let child = all.iter().find(|q| q.parent >> 16 == root.handle >> 16 && q.parent != root.handle);
    let entries = root.sizes.as_deref().and_then(|s| entries_of(s).ok()).is_some_and(|entries| entries > 0);
    let lost = if !SIMPLE.contains(&root.kind.as_str()) {
        Some("its classes would be lost".to_owned())
    } else if let Some(child) = child {
        Some(format!("the qdisc {} in it would be lost", child.kind))
    } else if entries {
        Some("the kernel does not report the entries of its size table".to_owned())
    } else if filters(netlink, device, root.handle)? {
        Some("its filters would be lost".to_owned())
    } else {
        None
    };
    let (options, sizes) = (root.options.clone(), root.sizes.clone());
    Ok(Foreign { kind: root.kind.clone(), handle: root.handle, options, sizes, lost })
}

/// Whether there are filters at a qdisc.
fn filters(netlink: &mut Netlink, device: &Device, parent: u32) -> Result<bool> {
    let what = format!("list filters of {device} at {}", shown(parent));
    // A qdisc that takes none answers with nothing.
    Ok(!netlink.dump(&what, &list(RTM_GETTFILTER, device.index, parent), |_| Ok(Some(())))?.is_empty())
}

/// The qdisc at an interface's hooks: `clsact`, `ingress`, or none.
pub(in super::super) fn hook(netlink: &mut Netlink, device: &Device) -> Result<Option<String>> {
    let request = one(RTM_GETQDISC, device, 0, AT_HOOKS);
    netlink.ask(&format!("look at the hooks of {device}"), &request, |m| {
        let (_, rest) = m.split(TCMSG)?;
        let kind = wire::find(&wire::attributes(rest)?, TCA_KIND).map(wire::text);
        // The kernel's own, where one was and went.
        Ok(kind.filter(|kind| kind != "noop"))
    })
}

/// Which of an interface's qdiscs matter when one looks for what is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Placed {
    /// Our hierarchy.
    Ours,
    /// A clsact qdisc.
    Clsact,
}

/// The interfaces of the namespace that have one, by index. The list may lack some ([`read`]), so it is taken until it
/// gives the same twice; who asks about each interface instead is heard by all that listen for changes.
pub(in super::super) fn placed(netlink: &mut Netlink, what: Placed) -> Result<BTreeSet<u32>> {
    let mut before = listed(netlink, what)?;
    for _ in 0..LISTS {
        let mut now = listed(netlink, what)?;
        if now.is_subset(&before) {
            break;
        }
        before.append(&mut now);
    }
    Ok(before)
}

/// Most further lists, until one adds nothing.
const LISTS: usize = 16;

fn listed(netlink: &mut Netlink, what: Placed) -> Result<BTreeSet<u32>> {
    let all = netlink.dump("list qdiscs", &list(RTM_GETQDISC, 0, 0), |m| {
        let (head, _) = m.split(TCMSG)?;
        let found = qdisc(m)?;
        let is = match what {
            Placed::Ours => found.parent == AT_ROOT && found.is_ours(),
            Placed::Clsact => found.kind == "clsact",
        };
        Ok(u32_at(head, 4).filter(|_| is))
    })?;
    Ok(all.into_iter().collect())
}

impl InForce {
    /// Whether what there is has two levels: the root class, and its children.
    pub(super) fn is_flat(&self, wanted: impl Fn(u16) -> bool) -> bool {
        self.classes.iter().all(|(minor, found)| match *minor {
            super::ROOT_CLASS => found.parent == AT_ROOT,
            minor if wanted(minor) => found.parent == classid(super::ROOT_CLASS),
            _ => found.parent == AT_ROOT || found.parent == classid(super::ROOT_CLASS),
        })
    }
}
