//! Token buckets in place of a queue (`bpf/bucket.h`): what members, and flow classes of them, send or receive above
//! their maxima is dropped, and counted.

use std::net::IpAddr;

use libbpf_rs::{MapCore, MapFlags};
use vmio_model::policy::Direction;
use vmio_model::policy::flow::{FlowMatch, MOST_FLOWS, MOST_PORTS};
use vmio_model::policy::policer::{Policer, Policers};
use vmio_model::policy::program::Framing;

use super::super::{Device, Result};
use super::{Classifier, MOST, counters, map};

/// Entries of the maps: one by the number of a class for each direction.
pub(super) const ENTRIES: usize = 2 * (MOST + 1);
/// Of an index: what the member receives.
const RECEIVED: u32 = 0x4000;
/// Units of time in a second.
const UNITS: u128 = 16_000_000_000;
/// Bytes of `struct limit`.
pub(super) const LIMIT: usize = 24;
/// Bytes of `struct flow_limit`.
pub(super) const FLOW: usize = 72;
/// Places in `struct bucket` of what was dropped and of what arrived, as numbers of 64 bits.
const DROPPED: usize = 3;
const ARRIVED: usize = 4;

const HAS_DSCP: u8 = 1;
const HAS_PROTOCOL: u8 = 2;
const HAS_PORTS: u8 = 4;

/// Where what a guest sends meets its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicedAt {
    /// At its interface: all that it sends.
    Interface,
    /// At the uplink: what leaves by it.
    Uplink,
}

/// The buckets of a member in one direction, as they are in the maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Policed {
    /// The member's interface: a number may be given to another one.
    interface: u32,
    policers: Policers,
    framing: Framing,
}

/// Its place in the maps.
fn index(direction: Direction, number: u16) -> u32 {
    match direction {
        Direction::GuestTx => u32::from(number),
        Direction::GuestRx => RECEIVED | u32::from(number),
    }
}

/// Rate in bytes a second, and how long a full bucket lasts, in units; zeroes for no bucket.
fn rate(policer: Option<Policer>) -> [u64; 2] {
    policer.map_or([0; 2], |policer| {
        let rate = policer.rate_bps.bytes().bytes().max(1);
        let lasts = u128::from(policer.burst_bytes) * UNITS / u128::from(rate);
        [rate, u64::try_from(lasts).unwrap_or(u64::MAX >> 1).max(1)]
    })
}

/// `struct limit`.
pub(super) fn limit(policers: &Policers, framing: Framing) -> [u8; LIMIT] {
    let mut bytes = [0; LIMIT];
    for (at, value) in [0, 8].into_iter().zip(rate(policers.own)) {
        bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }
    bytes[16..20].copy_from_slice(&super::encode_framing(framing));
    let flows = policers.flows.len().min(MOST_FLOWS) as u32;
    bytes[20..].copy_from_slice(&flows.to_ne_bytes());
    bytes
}

/// `struct flow_limit`.
pub(super) fn flow(matcher: &FlowMatch, policer: Option<Policer>) -> [u8; FLOW] {
    let mut bytes = [0; FLOW];
    let [rate, lasts] = rate(policer);
    bytes[..8].copy_from_slice(&rate.to_ne_bytes());
    // An entry without a bucket is one all the same.
    bytes[8..16].copy_from_slice(&lasts.max(1).to_ne_bytes());
    if let Some(network) = matcher.address {
        let (family, address) = match network.address {
            IpAddr::V4(address) => (4, address.octets().to_vec()),
            IpAddr::V6(address) => (6, address.octets().to_vec()),
        };
        bytes[16..16 + address.len()].copy_from_slice(&address);
        for bit in 0..usize::from(network.prefix) {
            bytes[32 + bit / 8] |= 0x80 >> (bit % 8);
        }
        bytes[64] = family;
    }
    for (at, place) in (48..64).step_by(4).enumerate() {
        // None is in an empty range.
        let (low, high) = matcher.ports.get(at).copied().unwrap_or((1, 0));
        bytes[place..place + 2].copy_from_slice(&low.to_ne_bytes());
        bytes[place + 2..place + 4].copy_from_slice(&high.to_ne_bytes());
    }
    debug_assert!(matcher.ports.len() <= MOST_PORTS);
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    bytes[65] = matcher.dscp.unwrap_or(0);
    bytes[66] = matcher.protocol.unwrap_or(0);
    bytes[67] = flag(matcher.dscp.is_some(), HAS_DSCP)
        | flag(matcher.protocol.is_some(), HAS_PROTOCOL)
        | flag(!matcher.ports.is_empty(), HAS_PORTS);
    bytes
}

impl Classifier {
    /// Sets the buckets of a member, or takes them away; returns whether that changed anything. Another limit begins
    /// with a full bucket, and counters go on; those of another interface begin at 0.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn police(
        &mut self,
        device: &Device,
        (direction, number): (Direction, u16),
        policers: Option<&Policers>,
        framing: Framing,
    ) -> Result<bool> {
        let index = index(direction, number);
        let before = self.policed.get(&index);
        let wanted = Policed { interface: device.index, policers: policers.cloned().unwrap_or_default(), framing };
        if before.map_or(policers.is_none(), |before| *before == wanted) {
            return Ok(false);
        }
        let before = before.filter(|before| before.interface == device.index).map(|before| &before.policers);
        let matchers = |policers: &Policers| policers.flows.iter().map(|(m, _)| m.clone()).collect::<Vec<_>>();
        let same_flows = before.is_some_and(|before| matchers(before) == matchers(&wanted.policers));
        let key = index.to_ne_bytes();
        if before.is_none() {
            self.update(device, "buckets", &key, &[0; counters::BYTES])?;
        }
        if wanted.policers.flows.is_empty() {
            // They may not be there.
            let _ = map(&self.object, "flow_limits").delete(&key);
            let _ = map(&self.object, "flow_buckets").delete(&key);
        } else {
            if !same_flows {
                self.update(device, "flow_buckets", &key, &[0; counters::BYTES * MOST_FLOWS])?;
            }
            let mut all = [0; FLOW * MOST_FLOWS];
            for (place, (matcher, policer)) in all.chunks_mut(FLOW).zip(&wanted.policers.flows) {
                place.copy_from_slice(&flow(matcher, *policer));
            }
            self.update(device, "flow_limits", &key, &all)?;
        }
        self.update(device, "limits", &key, &limit(&wanted.policers, framing))?;
        self.policed.insert(index, wanted);
        Ok(true)
    }

    /// Whether any member has or had a bucket.
    pub(in super::super) fn has_buckets(&self) -> bool {
        !self.policed.is_empty()
    }

    /// Packets that were dropped at a member's buckets, those of its flow classes included. No system call.
    pub fn dropped_above(&self, direction: Direction, number: u16) -> u64 {
        self.buckets.number(index(direction, number), DROPPED)
    }

    /// Packets that arrived for a member, whether it has buckets or not, since they were set last or a number was used
    /// first. No system call.
    pub fn arrived(&self, number: u16) -> u64 {
        self.buckets.number(index(Direction::GuestRx, number), ARRIVED)
    }

    /// Packets that were dropped at the buckets of a member's flow classes, in their order; those that have none, and
    /// what follows the last that has one, may be missing.
    pub fn flows_dropped_above(&self, direction: Direction, number: u16) -> Vec<u64> {
        let index = index(direction, number);
        if self.policed.get(&index).is_none_or(|policed| policed.policers.flows.is_empty()) {
            return Vec::new();
        }
        let value = map(&self.object, "flow_buckets").lookup(&index.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        let dropped = |bucket: &[u8]| {
            let (numbers, _) = bucket.as_chunks::<8>();
            numbers.get(DROPPED).map_or(0, |number| u64::from_ne_bytes(*number))
        };
        value.unwrap_or_default().chunks(counters::BYTES).map(dropped).collect()
    }
}
