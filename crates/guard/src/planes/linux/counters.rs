//! What classes of a hierarchy have counted, of all in one dump or of some (`struct gnet_stats_basic` and
//! `gnet_stats_queue` of include/uapi/linux/gen_stats.h, `struct tc_htb_xstats` of pkt_sched.h).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::htb::{self, FLOWS, HANDLE, HTB, RTM_GETQDISC, RTM_GETTCLASS, TCA_KIND, TCA_STATS2, TCMSG, ask};
use super::netlink::wire::{self, Malformed, Message, u32_at, u64_at};
use super::{Device, Netlink, Result};

const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_APP: u16 = 4;
const TCA_STATS_PKT64: u16 = 8;

/// What a class has counted since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// That left it, as long as the size table takes packets to be.
    pub bytes: u64,
    /// That left it; one of many segments counts as that many.
    pub packets: u64,
    /// That its queue had no room for. The kernel counts in 32 bits and begins anew at 0.
    pub dropped_packets: u32,
    /// What a queue whose flows are kept apart has dropped, of whichever flow: the class counts only what came when
    /// there was no room, once. `None` of other queues, and where it was not asked for. 32 bits.
    pub flows_dropped: Option<u32>,
    /// How often it had to wait for its ceiling. 32 bits.
    pub overlimits: u32,
    /// That wait now.
    pub waiting_packets: u32,
    /// That wait now.
    pub waiting_bytes: u32,
    /// Of these, what waits in flow classes that are at their maximum: its member may have more, and they may not.
    pub ceiled_bytes: u32,
    /// Packets that it sent on its own rate. 32 bits.
    pub lends: u32,
    /// Packets that it sent on what others left. 32 bits.
    pub borrows: u32,
}

/// What the classes of a hierarchy have counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Of the leaves, by number.
    pub leaves: BTreeMap<u16, Counts>,
    /// Of flow classes, by their leaf's number and their place in it.
    pub flows: BTreeMap<(u16, usize), Counts>,
}

/// The counts of all classes of our hierarchy on an interface, by number; none where it is not there.
///
/// # Errors
/// When the kernel refuses, or what it says makes no sense.
pub fn read(netlink: &mut Netlink, device: &Device) -> Result<BTreeMap<u16, Counts>> {
    Ok(classes(netlink, device, true)?.leaves)
}

/// A class of ours in the kernel's list.
enum Counted {
    Leaf(u16, Counts),
    Flow((u16, usize), Counts),
}

/// With those in leaves where they are `nested`: for a list of all the kernel looks at each flow of each fq_codel.
fn classes(netlink: &mut Netlink, device: &Device, nested: bool) -> Result<ClassCounts> {
    let mut all = ClassCounts::default();
    let what = format!("read the counters of {device}");
    let request = ask::list(RTM_GETTCLASS, device.index, if nested { 0 } else { HANDLE });
    for counted in netlink.dump(&what, &request, counts)? {
        match counted {
            Counted::Leaf(number, counts) => {
                all.leaves.insert(number, counts);
            }
            Counted::Flow(which, counts) => {
                all.flows.insert(which, counts);
            }
        }
    }
    for ((number, _), flow) in &all.flows {
        if let Some(leaf) = all.leaves.get_mut(number) {
            leaf.ceiled_bytes += flow.ceiled_bytes;
        }
    }
    Ok(all)
}

/// As [`read()`], with what queues have dropped in which flows are kept apart, and of flow classes, too, where there are
/// any (`nested`).
///
/// # Errors
/// As [`read()`].
pub fn read_with_flows(
    netlink: &mut Netlink,
    device: &Device,
    apart: &BTreeSet<u16>,
    nested: bool,
) -> Result<ClassCounts> {
    let mut all = classes(netlink, device, nested)?;
    let leaves = all.leaves.iter_mut().filter(|(number, _)| apart.contains(*number));
    let leaves = leaves.map(|(number, counts)| (htb::classid(*number), counts));
    let flows = all.flows.iter_mut().filter(|((number, _), _)| apart.contains(number));
    let flows = flows.map(|((number, at), counts)| (htb::flow_id(*number, *at), counts));
    add_drops(netlink, device, leaves.chain(flows).collect())?;
    Ok(all)
}

/// As [`read_with_flows`], of these classes alone and without what waits in flow classes. Each is asked for by itself,
/// which takes less time than a list where they are few of many; but each answer is told to all that listen for changes
/// of queues, too (`tclass_get_notify` and `qdisc_get_notify` of net/sched/sch_api.c).
///
/// # Errors
/// As [`read()`].
pub fn read_some(
    netlink: &mut Netlink,
    device: &Device,
    apart: &BTreeSet<u16>,
    numbers: &BTreeSet<u16>,
) -> Result<BTreeMap<u16, Counts>> {
    let what = format!("read the counters of {device}");
    let mut all = BTreeMap::new();
    for number in numbers {
        let class = htb::classid(*number);
        let found = netlink.ask(&what, &ask::one(RTM_GETTCLASS, device, class, 0), counts)?;
        let Some(Counted::Leaf(_, mut counts)) = found else { continue };
        if apart.contains(number) {
            let queue = ask::one(RTM_GETQDISC, device, 0, class);
            let dropped = netlink.ask(&what, &queue, |message| dropped(message, device))?;
            counts.flows_dropped = dropped.map(|(_, dropped)| dropped);
        }
        all.insert(*number, counts);
    }
    Ok(all)
}

/// So many queues are asked for one by one, as at an uplink behind a stage.
const ONE_BY_ONE: usize = 2;

/// Adds what queues have dropped in which flows are kept apart, by the class that each is in. The kernel lists those of
/// all interfaces.
fn add_drops(netlink: &mut Netlink, device: &Device, apart: BTreeMap<u32, &mut Counts>) -> Result<()> {
    let what = format!("read what queues of {device} dropped");
    let mut found = BTreeMap::new();
    if apart.len() > ONE_BY_ONE {
        let list = ask::list(RTM_GETQDISC, device.index, 0);
        found.extend(netlink.dump(&what, &list, |message| dropped(message, device))?);
    }
    for (class, counts) in apart {
        counts.flows_dropped = match found.get(&class) {
            Some(dropped) => Some(*dropped),
            // A list may lack some (`htb::read`).
            None => {
                let one = ask::one(RTM_GETQDISC, device, 0, class);
                netlink.ask(&what, &one, |message| dropped(message, device))?.map(|(_, dropped)| dropped)
            }
        };
    }
    Ok(())
}

/// Of a queue that keeps flows apart, or that has flow classes with such queues and counts what these drop: the class
/// that it is in, and what was dropped.
fn dropped(message: &Message<'_>, device: &Device) -> std::result::Result<Option<(u32, u32)>, Malformed> {
    let (head, rest) = message.split(TCMSG)?;
    let (index, parent) = (u32_at(head, 4).unwrap_or(0), u32_at(head, 12).unwrap_or(0));
    if index != device.index {
        return Ok(None);
    }
    let attributes = wire::attributes(rest)?;
    let kind = wire::find(&attributes, TCA_KIND).map(wire::text).unwrap_or_default();
    if kind != FLOWS && kind != HTB {
        return Ok(None);
    }
    let stats = wire::find(&attributes, TCA_STATS2).map(wire::attributes).transpose()?.unwrap_or_default();
    let dropped = wire::find(&stats, TCA_STATS_QUEUE).and_then(|queue| u32_at(queue, 8)).unwrap_or(0);
    Ok(Some((parent, dropped)))
}

fn counts(message: &Message<'_>) -> std::result::Result<Option<Counted>, Malformed> {
    let (head, rest) = message.split(TCMSG)?;
    let handle = u32_at(head, 8).unwrap_or(0);
    let flow = htb::flow_of(handle);
    if handle >> 16 != HANDLE >> 16 && flow.is_none() {
        return Ok(None);
    }
    let attributes = wire::attributes(rest)?;
    // Flows of fq_codel are listed as classes, too.
    if wire::find(&attributes, TCA_KIND).map(wire::text).unwrap_or_default() != HTB {
        return Ok(None);
    }
    let stats = wire::find(&attributes, TCA_STATS2).map(wire::attributes).transpose()?.unwrap_or_default();
    let part = |kind| wire::find(&stats, kind).unwrap_or_default();
    let small = |kind, at| u32_at(part(kind), at).unwrap_or(0);
    let packets = u64_at(part(TCA_STATS_PKT64), 0).unwrap_or_else(|| u64::from(small(TCA_STATS_BASIC, 8)));
    // `ctokens`: below zero since its last packet, so it waits for its ceiling.
    let ceiled = flow.is_some() && small(TCA_STATS_APP, 16) >> 31 == 1;
    let waiting_bytes = small(TCA_STATS_QUEUE, 4);
    let counts = Counts {
        bytes: u64_at(part(TCA_STATS_BASIC), 0).unwrap_or(0),
        packets,
        waiting_packets: small(TCA_STATS_QUEUE, 0),
        waiting_bytes,
        ceiled_bytes: if ceiled { waiting_bytes } else { 0 },
        dropped_packets: small(TCA_STATS_QUEUE, 8),
        flows_dropped: None,
        overlimits: small(TCA_STATS_QUEUE, 16),
        lends: small(TCA_STATS_APP, 0),
        borrows: small(TCA_STATS_APP, 4),
    };
    Ok(Some(match flow {
        Some(which) => Counted::Flow(which, counts),
        None => Counted::Leaf((handle & 0xffff) as u16, counts),
    }))
}
