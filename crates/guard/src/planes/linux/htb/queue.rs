//! A leaf's queue: bfifo, or fq_codel (net/sched/sch_fq_codel.c; options of include/uapi/linux/pkt_sched.h). fq_codel's
//! drops by age are switched off, since they would come before the sender's socket is full and has to wait. At its
//! limit the largest flow loses packets, so that TCP beside a flood keeps its share.

use std::fmt;

use serde::Serialize;

use super::super::netlink::wire::{self, Attributes, Request, flag, u32_at};
use super::super::netlink::{Change, Netlink};
use super::super::{Error, Result};
use super::encode::{AT_ROOT, RTM_NEWQDISC, TCA_KIND, TCA_OPTIONS, tcmsg};

pub(super) const BYTES: &str = "bfifo";
pub(in super::super) const FLOWS: &str = "fq_codel";

const TCA_FQ_CODEL_TARGET: u16 = 1;
const TCA_FQ_CODEL_LIMIT: u16 = 2;
const TCA_FQ_CODEL_INTERVAL: u16 = 3;
const TCA_FQ_CODEL_ECN: u16 = 4;
const TCA_FQ_CODEL_FLOWS: u16 = 5;
const TCA_FQ_CODEL_MEMORY_LIMIT: u16 = 9;

/// 1000 s, which no packet reaches; a whole number of the kernel's units of 1.024 us.
const NEVER_US: u32 = 1_000_000_000;
/// More packets than memory has room for: the memory is the limit.
const PACKETS: u32 = 1 << 20;
/// The kernel takes no more.
const MOST_MEMORY: u32 = 1 << 31;
/// Of each network namespace.
const LOOPBACK: u32 = 1;

/// How a class's packets wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// bfifo with this limit in bytes.
    Bytes(u32),
    /// fq_codel.
    Flows(Flows),
}

/// Settings of fq_codel. Its number of flows is the kernel's default, which cannot be changed in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Flows {
    /// Microseconds that may be waited before something is dropped.
    pub target_us: u32,
    /// Microseconds for which it must last.
    pub interval_us: u32,
    /// That may wait.
    pub packets: u32,
    /// The kernel's memory for them.
    pub memory_bytes: u32,
    /// Whether packets are marked instead of dropped.
    pub ecn: u32,
}

impl Queue {
    /// fq_codel with room for this many bytes of frames. A frame of 1514 bytes takes some 2,300 bytes of kernel memory,
    /// which sockets count as well.
    pub fn flows(bytes: u32) -> Queue {
        let memory_bytes = bytes.saturating_mul(2).min(MOST_MEMORY);
        Queue::Flows(Flows { target_us: NEVER_US, interval_us: NEVER_US, packets: PACKETS, memory_bytes, ecn: 0 })
    }

    /// The kernel's name of it.
    pub fn kind(&self) -> &'static str {
        match self {
            Queue::Bytes(_) => BYTES,
            Queue::Flows(_) => FLOWS,
        }
    }

    /// Its kind and options.
    pub(super) fn attributes(&self) -> Attributes {
        let attributes = Attributes::new().with_text(TCA_KIND, self.kind());
        match self {
            Queue::Bytes(bytes) => attributes.with_u32(TCA_OPTIONS, *bytes),
            Queue::Flows(flows) => attributes.with_nested(TCA_OPTIONS, flows.options()),
        }
    }

    /// From its kind and options; `None` of other kinds.
    pub(super) fn of(kind: &str, options: &[u8]) -> Option<Queue> {
        match kind {
            BYTES => Some(Queue::Bytes(u32_at(options, 0).unwrap_or(0))),
            FLOWS => Some(Queue::Flows(Flows::of(options))),
            _ => None,
        }
    }

    /// The first field that is not as it should be: which, as wanted, as found.
    pub(super) fn differing(&self, found: Option<Queue>) -> Option<(&'static str, String, String)> {
        let (Queue::Flows(wanted), Some(Queue::Flows(found))) = (self, found) else { return None };
        let fields = [
            ("queue's target (us)", wanted.target_us, found.target_us),
            ("queue's interval (us)", wanted.interval_us, found.interval_us),
            ("queue's packets", wanted.packets, found.packets),
            ("queue's memory (bytes)", wanted.memory_bytes, found.memory_bytes),
            ("queue's ECN", wanted.ecn, found.ecn),
        ];
        let differs = fields.into_iter().find(|(_, wanted, found)| wanted != found)?;
        Some((differs.0, differs.1.to_string(), differs.2.to_string()))
    }
}

impl Flows {
    fn options(&self) -> Attributes {
        Attributes::new()
            .with_u32(TCA_FQ_CODEL_TARGET, self.target_us)
            .with_u32(TCA_FQ_CODEL_LIMIT, self.packets)
            .with_u32(TCA_FQ_CODEL_INTERVAL, self.interval_us)
            .with_u32(TCA_FQ_CODEL_ECN, self.ecn)
            .with_u32(TCA_FQ_CODEL_MEMORY_LIMIT, self.memory_bytes)
    }

    /// A missing option is 0, so it differs from what was written, except for ECN.
    fn of(options: &[u8]) -> Flows {
        let attributes = wire::attributes(options).unwrap_or_default();
        let of = |kind| wire::find(&attributes, kind).and_then(|value| u32_at(value, 0)).unwrap_or(0);
        Flows {
            target_us: of(TCA_FQ_CODEL_TARGET),
            interval_us: of(TCA_FQ_CODEL_INTERVAL),
            packets: of(TCA_FQ_CODEL_LIMIT),
            memory_bytes: of(TCA_FQ_CODEL_MEMORY_LIMIT),
            ecn: of(TCA_FQ_CODEL_ECN),
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Queue::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Queue::Flows(flows) => write!(f, "{FLOWS} of {} bytes of memory", flows.memory_bytes),
        }
    }
}

/// Whether the kernel has fq_codel, or can load it. Requests one without flows at the loopback interface: a kernel with
/// fq_codel refuses that (EINVAL), another one does not find it (ENOENT), and nothing is made.
///
/// # Errors
/// When the kernel refuses otherwise.
pub fn has_flows(netlink: &mut Netlink) -> Result<bool> {
    let options = Attributes::new().with_u32(TCA_FQ_CODEL_FLOWS, 0);
    let attributes = Attributes::new().with_text(TCA_KIND, FLOWS).with_nested(TCA_OPTIONS, options);
    // With all three flags the kernel checks the kind whatever qdisc exists.
    let flags = flag::CREATE | flag::REPLACE | flag::EXCLUSIVE;
    let request = Request::new(RTM_NEWQDISC, flags, &tcmsg(LOOPBACK, 0, AT_ROOT), attributes);
    match netlink.change(&[Change { what: format!("ask for {FLOWS}"), request }]) {
        Err(Error::Refused { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(Error::Refused { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => Ok(true),
        done => done.map(|()| true),
    }
}
