//! What the classes of a hierarchy have counted, all in one dump (`struct gnet_stats_basic` and `gnet_stats_queue` of
//! include/uapi/linux/gen_stats.h, `struct tc_htb_xstats` of pkt_sched.h).

use std::collections::BTreeMap;

use serde::Serialize;

use super::htb::{HANDLE, RTM_GETTCLASS, TCA_STATS2, TCMSG, tcmsg};
use super::netlink::wire::{self, Attributes, Malformed, Message, Request, flag, u32_at, u64_at};
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
    /// How often it had to wait for its ceiling. 32 bits.
    pub overlimits: u32,
    /// That wait now.
    pub waiting_packets: u32,
    /// That wait now.
    pub waiting_bytes: u32,
    /// Packets that it sent on its own rate. 32 bits.
    pub lends: u32,
    /// Packets that it sent on what others left. 32 bits.
    pub borrows: u32,
}

/// The counts of all classes of our hierarchy on an interface, by number; none where it is not there.
///
/// # Errors
/// When the kernel refuses, or what it says makes no sense.
pub fn read(netlink: &mut Netlink, device: &Device) -> Result<BTreeMap<u16, Counts>> {
    let request = Request::new(RTM_GETTCLASS, flag::DUMP, &tcmsg(device.index, 0, 0), Attributes::new());
    let all = netlink.dump(&format!("read the counters of {device}"), &request, counts)?;
    Ok(all.into_iter().collect())
}

fn counts(message: &Message<'_>) -> std::result::Result<Option<(u16, Counts)>, Malformed> {
    let (head, rest) = message.split(TCMSG)?;
    let handle = u32_at(head, 8).unwrap_or(0);
    if handle >> 16 != HANDLE >> 16 {
        return Ok(None);
    }
    let attributes = wire::attributes(rest)?;
    let stats = wire::find(&attributes, TCA_STATS2).map(wire::attributes).transpose()?.unwrap_or_default();
    let part = |kind| wire::find(&stats, kind).unwrap_or_default();
    let small = |kind, at| u32_at(part(kind), at).unwrap_or(0);
    let packets = u64_at(part(TCA_STATS_PKT64), 0).unwrap_or_else(|| u64::from(small(TCA_STATS_BASIC, 8)));
    let counts = Counts {
        bytes: u64_at(part(TCA_STATS_BASIC), 0).unwrap_or(0),
        packets,
        waiting_packets: small(TCA_STATS_QUEUE, 0),
        waiting_bytes: small(TCA_STATS_QUEUE, 4),
        dropped_packets: small(TCA_STATS_QUEUE, 8),
        overlimits: small(TCA_STATS_QUEUE, 16),
        lends: small(TCA_STATS_APP, 0),
        borrows: small(TCA_STATS_APP, 4),
    };
    Ok(Some(((handle & 0xffff) as u16, counts)))
}
