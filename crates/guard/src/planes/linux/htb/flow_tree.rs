//! What is in a leaf with flow classes in place of its queue: an HTB of its own. Its root never runs dry, so what the
//! leaf may send is shared inside alone: flow classes below their own rate first, then all by priority. The leaf itself
//! is as it would be without: what it gets of the uplink, and beside whom, does not depend on its flow classes.
//!
//! As classes between the root and leaves of their own they would take part in the uplink's sharing: HTB borrows by a
//! leaf's priority and gives each leaf a turn (`htb_lookup_leaf` of net/sched/sch_htb.c), so that a guest's priorities
//! would count against other guests, and one with three flow classes would get three turns.
//!
//! Nothing in it is changed in place: where anything differs it is made anew, and what waits in it is dropped.

use std::collections::BTreeMap;

use vmio_model::policy::program::{FlowLeaf, Framing, Leaf};
use vmio_model::rate::ByteRate;

use super::super::netlink::Change;
use super::super::netlink::wire::{self, Attributes, Malformed, Message, Request, flag, u32_at};
use super::super::{Device, Netlink, Result};
use super::ask::{Qdisc, list, queue_in};
use super::encode::{
    self, AT_ROOT, Class, RTM_GETTCLASS, RTM_GETTFILTER, RTM_NEWQDISC, RTM_NEWTCLASS, TCA_KIND, TCA_OPTIONS, TCMSG,
    class_of, default_of, tcmsg,
};
use super::filter::{self, Instruction};
use super::queue::Queue;
use super::units;
use super::{ROOT_CLASS, classid, place, queue_handle};

/// The kernel's name of the qdisc.
pub(in super::super) const KIND: &str = "htb";
/// The number of the first flow class inside.
pub(super) const FIRST_FLOW: u16 = 2;
/// Queues of flow classes in one hierarchy: the kernel gives them handles from 8000: on.
pub(super) const MOST_QUEUES: usize = 30_000;

/// The root's rate, the plane's highest, in bytes a second, and a second of it in ticks: it is never empty.
const UNLIMITED: ByteRate = ByteRate::new(100_000_000_000);
const SECOND: u32 = 15_625_000;
/// The root's, which it does not use.
const QUANTUM: u32 = 65_536;

const RTM_NEWTFILTER: u16 = 44;
/// Options of cls_bpf (include/uapi/linux/pkt_cls.h).
const TCA_BPF_OPS_LEN: u16 = 4;
const TCA_BPF_OPS: u16 = 5;
/// The filter's preference, and ETH_P_ALL as it goes over the wire.
const FILTER: u32 = 1 << 16 | 3u16.to_be() as u32;

/// What is in a leaf with flow classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowTree {
    /// Its root, the flow classes in their order, and the rest.
    pub classes: Vec<Class>,
    /// The queue in each of them.
    pub queue: Queue,
    /// Tells which packet belongs to which.
    pub filter: Vec<Instruction>,
}

impl FlowTree {
    /// That of a leaf; `None` of one without flow classes.
    ///
    /// # Errors
    /// Where one has senseless values.
    pub(super) fn wanted(minor: u16, leaf: &Leaf, queue: Queue, framing: Framing) -> Result<Option<FlowTree>> {
        let Some((_, each)) = leaf.flows.split_last() else { return Ok(None) };
        let class = |flow: &FlowLeaf| -> Result<Class> {
            let FlowLeaf { name, rate_bps, ceil_bps, priority, quantum_bytes, burst_bytes, .. } = flow;
            let alone = Leaf {
                name: name.clone(),
                rate_bps: *rate_bps,
                ceil_bps: *ceil_bps,
                priority: *priority,
                quantum_bytes: *quantum_bytes,
                burst_bytes: *burst_bytes,
                policed_bytes: 0,
                queue_bytes: leaf.queue_bytes,
                flows: Vec::new(),
            };
            let class = units::class(&alone, framing, &format!("leaf {:?}, flow class {name:?}", leaf.name))?;
            // One without a maximum never waits for its ceiling, however many large packets leave it at once.
            let cburst = if class.ceil >= UNLIMITED { SECOND } else { class.cburst };
            Ok(Class { cburst, ..class })
        };
        let mut classes = vec![root(framing)];
        for flow in &leaf.flows {
            classes.push(class(flow)?);
        }
        let numbered = each.iter().zip(FIRST_FLOW..);
        let matched = numbered.map(|(flow, number)| (&flow.matcher, flow.direction, id(minor, number)));
        Ok(Some(FlowTree { classes, queue, filter: filter::program(matched) }))
    }

    /// The number of the rest, where no flow class matches.
    fn rest(&self) -> u16 {
        self.classes.len() as u16
    }

    /// The requests that put it in an empty leaf.
    pub(super) fn changes(&self, device: &Device, minor: u16) -> Vec<Change> {
        let (index, handle) = (device.index, queue_handle(minor));
        let htb = || Attributes::new().with_text(TCA_KIND, KIND);
        let add = flag::CREATE | flag::EXCLUSIVE;
        let qdisc = htb().with_nested(TCA_OPTIONS, encode::qdisc(self.rest()));
        let mut requests = vec![Request::new(
            RTM_NEWQDISC,
            flag::CREATE | flag::REPLACE,
            &tcmsg(index, handle, classid(minor)),
            qdisc,
        )];
        for (class, number) in self.classes.iter().zip(ROOT_CLASS..) {
            let parent = if number == ROOT_CLASS { handle } else { id(minor, ROOT_CLASS) };
            let attributes = htb().with_nested(TCA_OPTIONS, encode::class(class));
            requests.push(Request::new(RTM_NEWTCLASS, add, &tcmsg(index, id(minor, number), parent), attributes));
        }
        for number in FIRST_FLOW..=self.rest() {
            let fixed = tcmsg(index, 0, id(minor, number));
            requests.push(Request::new(RTM_NEWQDISC, flag::CREATE | flag::REPLACE, &fixed, self.queue.attributes()));
        }
        let ops: Vec<u8> = self.filter.iter().flat_map(|instruction| instruction.encode()).collect();
        let options =
            Attributes::new().with(TCA_BPF_OPS_LEN, &(self.filter.len() as u16).to_ne_bytes()).with(TCA_BPF_OPS, &ops);
        let attributes = Attributes::new().with_text(TCA_KIND, "bpf").with_nested(TCA_OPTIONS, options);
        let mut fixed = tcmsg(index, 0, handle);
        fixed[16..].copy_from_slice(&FILTER.to_ne_bytes());
        requests.push(Request::new(RTM_NEWTFILTER, add, &fixed, attributes));
        let what = format!("set flow classes of {}", place(device, minor));
        requests.into_iter().map(|request| Change { what: what.clone(), request }).collect()
    }
}

fn root(framing: Framing) -> Class {
    Class {
        rate: UNLIMITED,
        ceil: UNLIMITED,
        burst: SECOND,
        cburst: SECOND,
        quantum: QUANTUM,
        prio: 0,
        overhead: units::short(framing.overhead_bytes),
        mpu: units::short(framing.least_bytes),
    }
}

/// The classid of a class in a leaf.
fn id(minor: u16, number: u16) -> u32 {
    queue_handle(minor) | u32::from(number)
}

/// The classid of a flow class, by its leaf's number and its place in it.
pub(in super::super) fn flow_id(minor: u16, at: usize) -> u32 {
    id(minor, FIRST_FLOW) + at as u32
}

/// The leaf's number and the place among its flow classes of a class in a leaf; `None` of other classes.
pub(in super::super) fn flow_of(id: u32) -> Option<(u16, usize)> {
    let minor = u16::try_from((id >> 16).checked_sub(queue_handle(0) >> 16)?).ok()?;
    let number = (id & 0xffff) as u16;
    let known = minor > ROOT_CLASS && minor <= crate::desired::LAST_NUMBER && number >= FIRST_FLOW;
    known.then(|| (minor, usize::from(number - FIRST_FLOW)))
}

/// What is in a leaf that has an HTB; `None` where it is not of this kind. Qdiscs that are not `listed`, by the class
/// that each is in, are asked for.
pub(super) fn read(
    netlink: &mut Netlink,
    device: &Device,
    minor: u16,
    listed: &BTreeMap<u32, &Qdisc>,
) -> Result<Option<FlowTree>> {
    let qdisc_in = |netlink: &mut Netlink, class: u32| match listed.get(&class) {
        Some(&qdisc) => Ok(Some(qdisc.clone())),
        None => queue_in(netlink, device, class),
    };
    let what = format!("read the flow classes of {}", place(device, minor));
    let request = list(RTM_GETTCLASS, device.index, queue_handle(minor));
    let found: BTreeMap<u32, (u32, Class)> = netlink.dump(&what, &request, class)?.into_iter().collect();
    let mut classes = Vec::new();
    for ((found, (parent, class)), number) in found.into_iter().zip(ROOT_CLASS..) {
        let wanted = if number == ROOT_CLASS { AT_ROOT } else { id(minor, ROOT_CLASS) };
        if found != id(minor, number) || parent != wanted {
            return Ok(None);
        }
        classes.push(class);
    }
    let rest = classes.len() as u16;
    let mut queue = None;
    for number in FIRST_FLOW..=rest {
        let found = qdisc_in(netlink, id(minor, number))?;
        let found = found.and_then(|qdisc| Queue::of(&qdisc.kind, qdisc.options.as_deref().unwrap_or_default()));
        if found.is_none() || (number > FIRST_FLOW && found != queue) {
            return Ok(None);
        }
        queue = found;
    }
    let Some(queue) = queue else { return Ok(None) };
    let qdisc = qdisc_in(netlink, classid(minor))?;
    let default = qdisc.and_then(|qdisc| default_of(&qdisc.options.unwrap_or_default()).ok());
    let filters = netlink.dump(&what, &list(RTM_GETTFILTER, device.index, queue_handle(minor)), filters)?;
    let [filter] = filters.as_slice() else { return Ok(None) };
    Ok((default == Some(u32::from(rest))).then(|| FlowTree { classes, queue, filter: filter.clone() }))
}

/// A class's parent and settings, by its classid.
type Listed = (u32, (u32, Class));

fn class(message: &Message<'_>) -> std::result::Result<Option<Listed>, Malformed> {
    let (head, rest) = message.split(TCMSG)?;
    let attributes = wire::attributes(rest)?;
    let class = class_of(wire::find(&attributes, TCA_OPTIONS).unwrap_or_default())?;
    let number = |at| u32_at(head, at).unwrap_or(0);
    Ok(Some((number(8), (number(12), class))))
}

/// The program of a filter; an empty one of filters that are not of this kind.
fn filters(message: &Message<'_>) -> std::result::Result<Option<Vec<Instruction>>, Malformed> {
    let (head, rest) = message.split(TCMSG)?;
    let number = |at| u32_at(head, at).unwrap_or(0);
    // The head of a row of filters.
    if number(8) == 0 {
        return Ok(None);
    }
    let attributes = wire::attributes(rest)?;
    let kind = wire::find(&attributes, TCA_KIND).map(wire::text).unwrap_or_default();
    if kind != "bpf" || number(16) != FILTER {
        return Ok(Some(Vec::new()));
    }
    let options = wire::attributes(wire::find(&attributes, TCA_OPTIONS).unwrap_or_default())?;
    let ops = wire::find(&options, TCA_BPF_OPS).unwrap_or_default();
    let (each, _) = ops.as_chunks::<{ Instruction::BYTES }>();
    Ok(Some(each.iter().map(|bytes| Instruction::decode(*bytes)).collect()))
}
