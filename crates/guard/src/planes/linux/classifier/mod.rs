//! Classifies a guest's packets and checks their source address: an eBPF program (`bpf/classify.bpf.c`) at the ingress
//! of each guest's interface on the host (tap, veth).
//!
//! The class is written to `skb->priority`, which HTB takes for a classid where its major is the qdisc's. That survives
//! a bridge, an Open vSwitch and an IFB, but not routing (the kernel sets it from the packet's TOS) nor a firewall
//! bridge's veth. The number is also written to `skb->tc_index`, which survives these, and from which the program at
//! the uplink ([`Leave`]) restores the class. Packets can be redirected through an IFB ([`Tenant::redirect`]).
//!
//! **Received** packets are classified at the uplink's ingress, by destination address ([`Receive`]).
//!
//! The program is attached by a TCX link, before others' (Linux 6.6), else as a direct-action filter of a clsact qdisc,
//! which is made where there is none. Counters are read through a mapping of the kernel's memory, without a system
//! call.
//!
//! [`Bond`] says whether programs outlive the process, as pinned links (`pins.rs`) and filters of clsact do. The next
//! guard replaces them by its own, and removes the rest (`sweep.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::AsFd;

use libbpf_rs::{ErrorKind, MapCore, MapFlags, Object};
use serde::Serialize;
use vmio_model::policy::program::Framing;

use super::undo_log::PlaneLog;
use super::{Device, Error, Netlink, Result};
use crate::undo_log::UndoLog;
use attach::Attached;
use buckets::Policed;
use by_index::{ByIndex, TENANTS};
use counters::Counters;
use point::Point;

mod attach;
mod buckets;
mod by_index;
mod claims;
mod counters;
mod filters;
mod pins;
mod point;
mod redirect;
mod sweep;
mod uplink;

#[cfg(test)]
mod tests;

pub use attach::Bond;
pub(super) use attach::loudly;
pub use buckets::PolicedAt;
pub use claims::{Checks, as_compared};
pub use counters::Counts;
pub(super) use pins::PinDirectory;
pub use point::AttachMode;
pub(super) use sweep::{has_filters, sweep};
pub use uplink::{Leave, Receive};

/// Most interfaces of a classifier (`max_entries` of its maps).
pub const MOST: usize = 16_383;

/// Most guests' interfaces with a TCX link. Attaching and detaching a link takes the kernel some 15 ms (it waits for
/// all processors), so 1,000 links would take a quarter of a minute; filters of clsact do not.
pub const MOST_LINKS: usize = 32;

const CHECK_ADDRESS: u32 = 1;
const REDIRECT: u32 = 2;
const POLICED: u32 = 4;
/// The bits of a classid that hold the number.
const NUMBERS: u32 = 0x3fff;
/// Bytes of `struct tenant`, without its `index`.
const TENANT: usize = 28;
/// Bytes of `struct lead`.
const LEAD: usize = 16;

/// Treatment of the packets that a guest sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Tenant {
    /// Their class ([`super::htb::classid`]).
    pub class: u32,
    /// The only Ethernet address that they may have as their source; others are dropped and counted.
    pub address: Option<[u8; 6]>,
    /// Index of the IFB that they are redirected through.
    pub redirect: Option<u32>,
    /// How frames count in [`Counts::wire_bytes`].
    pub framing: Framing,
    /// How ARP and neighbour discovery are checked; `None` where they are not.
    pub checks: Option<Checks>,
    /// Where what is above its maximum is dropped ([`Classifier::police`]); `None` where it has no bucket.
    pub policed: Option<PolicedAt>,
}

impl Tenant {
    /// The number of its class.
    pub fn number(&self) -> u16 {
        (self.class & NUMBERS) as u16
    }

    /// `struct tenant`.
    fn encode(&self, slot: u32, mode: AttachMode) -> [u8; TENANT] {
        let mut flags = 0;
        flags |= if self.address.is_some() { CHECK_ADDRESS } else { 0 };
        flags |= self.checks.map_or(0, Checks::flags);
        // At clsact a filter behind the program redirects (redirect.rs).
        flags |= if self.redirect.is_some() && mode == AttachMode::Tcx { REDIRECT } else { 0 };
        flags |= if self.policed == Some(PolicedAt::Interface) { POLICED } else { 0 };
        let mut bytes = [0; TENANT];
        for (at, value) in [(0, self.class), (4, flags), (8, self.redirect.unwrap_or(0)), (12, slot)] {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes[16..20].copy_from_slice(&encode_framing(self.framing));
        bytes[20..26].copy_from_slice(&self.address.unwrap_or_default());
        bytes
    }

    /// `struct lead`.
    fn encode_lead(&self, slot: u32) -> [u8; LEAD] {
        let mut bytes = [0; LEAD];
        bytes[..4].copy_from_slice(&self.redirect.unwrap_or(0).to_ne_bytes());
        bytes[4..8].copy_from_slice(&(slot + 1).to_ne_bytes());
        bytes[8..12].copy_from_slice(&encode_framing(self.framing));
        bytes[12..].copy_from_slice(&u32::from(self.policed == Some(PolicedAt::Uplink)).to_ne_bytes());
        bytes
    }
}

/// Overhead and least size.
fn encode_framing(framing: Framing) -> [u8; 4] {
    let mut bytes = [0; 4];
    for (at, value) in [(0, framing.overhead_bytes), (2, framing.least_bytes)] {
        bytes[at..at + 2].copy_from_slice(&u16::try_from(value).unwrap_or(u16::MAX).to_ne_bytes());
    }
    bytes
}

/// The loaded program, with the interfaces that it is attached to. Dropping it (in the same network namespace) detaches
/// it with [`Bond::Process`].
pub struct Classifier {
    /// Declared before `object`, so dropped before it.
    attached: BTreeMap<u32, Entry>,
    /// The programs at uplinks.
    uplinks: BTreeMap<(u32, Point), (Device, Attached)>,
    /// Slots of what leaves uplinks without queues and is no guest's: the host's own, and what is in no class.
    queueless: BTreeMap<u32, [u32; 2]>,
    /// Settings of received traffic, by the uplink's index.
    received: BTreeMap<u32, Receive>,
    counters: Counters,
    /// What guests claim, by slot as well.
    claims: Counters,
    /// Token buckets by index, and what was dropped at them.
    policed: BTreeMap<u32, Policed>,
    buckets: Counters,
    /// IP addresses that guests may claim, by the interface's index.
    owned: BTreeMap<u32, BTreeSet<[u8; 16]>>,
    object: Object,
    free: Vec<u32>,
    bond: Bond,
    log: PlaneLog,
}

struct Entry {
    device: Device,
    slot: u32,
    attached: Attached,
}

impl fmt::Debug for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classifier").field("interfaces", &self.attached.keys()).finish_non_exhaustive()
    }
}

impl Classifier {
    /// Loads the program, attached to nothing, with [`Bond::Process`].
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn load() -> Result<Self> {
        Classifier::bound(Bond::Process, PlaneLog::here(&UndoLog::memory())?)
    }

    /// Loads the program; `log` gets the clsact qdiscs that are made for it.
    pub(super) fn bound(bond: Bond, log: PlaneLog) -> Result<Self> {
        let object = loudly("load the classifier", || attach::open()?.load())?;
        let mapped = |name, entries| {
            Counters::map(map(&object, name).as_fd(), entries).map_err(|source| Error::Refused {
                what: format!("map the classifier's {name}"),
                source,
                said: String::new(),
            })
        };
        let (counters, claims) = (mapped("counters", MOST + 1)?, mapped("claims", MOST + 1)?);
        let buckets = mapped("buckets", buckets::ENTRIES)?;
        // The lowest first.
        let free = (0..MOST as u32).rev().collect();
        let (attached, uplinks, queueless, received, policed, owned) = Default::default();
        Ok(Self {
            attached,
            uplinks,
            queueless,
            received,
            counters,
            claims,
            policed,
            buckets,
            owned,
            object,
            free,
            bond,
            log,
        })
    }

    /// Attaches it to an interface's ingress in the thread's network namespace, if it is not, and sets the treatment of
    /// its packets. Uses a TCX link where the kernel has them, up to [`MOST_LINKS`].
    ///
    /// # Errors
    /// When the kernel refuses, or there are more than [`MOST`].
    pub fn attach(&mut self, netlink: &mut Netlink, device: &Device, tenant: &Tenant) -> Result<AttachMode> {
        let links = self.attached.values().filter(|entry| entry.attached.mode() == AttachMode::Tcx);
        if links.take(MOST_LINKS).count() == MOST_LINKS && !self.attached.contains_key(&device.index) {
            return self.attach_by(netlink, device, tenant, AttachMode::Clsact);
        }
        self.tcx_or_clsact(|this, mode| this.attach_by(netlink, device, tenant, mode))
    }

    /// As [`Classifier::attach`], in this mode. Where it is attached already only the settings change; where it was
    /// removed, or another interface has the index now, it is attached anew and counts from 0.
    ///
    /// # Errors
    /// When the kernel refuses, or there are more than [`MOST`].
    pub fn attach_by(
        &mut self,
        netlink: &mut Netlink,
        device: &Device,
        tenant: &Tenant,
        mode: AttachMode,
    ) -> Result<AttachMode> {
        if let Some(there) = self.attached.get_mut(&device.index) {
            if there.attached.is_there(&self.bond) {
                let mode = there.attached.mode();
                // It may have been renamed.
                there.device = device.clone();
                self.set(netlink, device, tenant)?;
                return Ok(mode);
            }
            // It was removed, or another interface has the index now.
            self.detach(netlink, device)?;
        }
        let slot = self.free.pop().ok_or_else(|| full(device))?;
        // The maps are complete before the first packet.
        let held = (&self.bond, &self.log);
        let attached = self
            .update(device, "counters", &slot.to_ne_bytes(), &[0; counters::BYTES])
            .and_then(|()| self.update(device, "claims", &slot.to_ne_bytes(), &[0; counters::BYTES]))
            .and_then(|()| self.update_tenant(device, slot, tenant, mode))
            .and_then(|()| Attached::attach(&self.object, netlink, device, mode, Point::Arrives, held))
            .and_then(|mut attached| match attached.set_redirect(netlink, device, tenant.redirect) {
                Ok(()) => Ok(attached),
                Err(e) => {
                    let _ = attached.detach(netlink, device, held);
                    Err(e)
                }
            });
        match attached {
            Ok(attached) => {
                self.attached.insert(device.index, Entry { device: device.clone(), slot, attached });
                Ok(mode)
            }
            Err(e) => {
                self.forget(device.index);
                self.free.push(slot);
                Err(e)
            }
        }
    }

    /// Changes the treatment of the packets of an interface, from the next packet on.
    ///
    /// # Errors
    /// When it is not attached there, or the kernel refuses.
    pub fn set(&mut self, netlink: &mut Netlink, device: &Device, tenant: &Tenant) -> Result<()> {
        let Some(entry) = self.attached.get_mut(&device.index) else {
            return Err(Error::Invalid { what: device.to_string(), why: "no classifier is attached there".to_owned() });
        };
        entry.attached.set_redirect(netlink, device, tenant.redirect)?;
        let (slot, mode) = (entry.slot, entry.attached.mode());
        self.update_tenant(device, slot, tenant, mode)
    }

    /// Detaches it from an interface; `false` where it was not attached.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn detach(&mut self, netlink: &mut Netlink, device: &Device) -> Result<bool> {
        let Some(entry) = self.attached.remove(&device.index) else { return Ok(false) };
        let done = entry.attached.detach(netlink, device, (&self.bond, &self.log));
        self.forget(device.index);
        self.free.push(entry.slot);
        done.map(|()| true)
    }

    /// Whether it is still attached to an interface.
    pub fn is_attached(&self, device: &Device) -> bool {
        self.attached.get(&device.index).is_some_and(|entry| entry.attached.is_there(&self.bond))
    }

    /// As [`Classifier::is_attached`]; with `sure` that no filter was removed, checks only links.
    pub(super) fn is_kept(&self, device: &Device, sure: bool) -> bool {
        let by_filter = |entry: &Entry| entry.attached.mode() == AttachMode::Clsact;
        (sure && self.attached.get(&device.index).is_some_and(by_filter)) || self.is_attached(device)
    }

    /// Whether it was attached to the guest's interface of that index; does not check.
    pub(super) fn is_at(&self, index: u32) -> bool {
        self.attached.contains_key(&index)
    }

    /// Whether all links are still attached: the kernel reports removed filters, but not detached links.
    pub(super) fn links_hold(&self) -> bool {
        let all =
            self.attached.values().map(|e| &e.attached).chain(self.uplinks.values().map(|(_, attached)| attached));
        all.filter(|attached| attached.mode() == AttachMode::Tcx).all(|attached| attached.is_there(&self.bond))
    }

    /// Counters of an interface since it was attached; `None` where it is not. No system call.
    pub fn counts(&self, device: &Device) -> Option<Counts> {
        self.attached.get(&device.index).map(|entry| self.counters.read(entry.slot))
    }

    fn update_tenant(&self, device: &Device, slot: u32, tenant: &Tenant, mode: AttachMode) -> Result<()> {
        let number = tenant.class & NUMBERS;
        self.update(device, "led", &number.to_ne_bytes(), &tenant.encode_lead(slot))?;
        self.put(device, &TENANTS, &tenant.encode(slot, mode))
    }

    /// Sets an interface's entry.
    fn put(&self, device: &Device, entries: &ByIndex, value: &[u8]) -> Result<()> {
        let what = format!("tell the classifier about {device}");
        loudly(&what, || entries.put(&self.object, device.index, value))
    }

    fn update(&self, device: &Device, name: &str, key: &[u8], value: &[u8]) -> Result<()> {
        let what = format!("tell the classifier about {device}");
        loudly(&what, || map(&self.object, name).update(key, value, MapFlags::ANY))
    }

    /// Attaches by a TCX link where the kernel and the bond allow it, else by clsact.
    fn tcx_or_clsact<T>(&mut self, mut attach: impl FnMut(&mut Self, AttachMode) -> Result<T>) -> Result<T> {
        if matches!(self.bond, Bond::Clsact) {
            return attach(self, AttachMode::Clsact);
        }
        match attach(self, AttachMode::Tcx) {
            // bpf(2) knows no such link.
            Err(Error::Bpf { source, .. }) if matches!(source.kind(), ErrorKind::InvalidInput) => {
                attach(self, AttachMode::Clsact)
            }
            done => done,
        }
    }

    fn forget(&self, index: u32) {
        // It may not exist.
        let _ = TENANTS.remove(&self.object, index);
    }
}

impl Drop for Classifier {
    fn drop(&mut self) {
        if !matches!(self.bond, Bond::Process) {
            return;
        }
        let uplinks = std::mem::take(&mut self.uplinks);
        let mut all = self.attached.values().map(|e| &e.attached).chain(uplinks.values().map(|(_, attached)| attached));
        if all.all(|attached| attached.mode() == AttachMode::Tcx) {
            return;
        }
        // Filters and qdiscs would stay; their interfaces may be gone.
        let Ok(mut netlink) = Netlink::open() else { return };
        let entries = std::mem::take(&mut self.attached).into_values().map(|e| (e.device, e.attached));
        for (device, attached) in entries.chain(uplinks.into_values()) {
            let _ = attached.detach(&mut netlink, &device, (&self.bond, &self.log));
        }
    }
}

/// That there is no slot left.
fn full(device: &Device) -> Error {
    Error::Invalid { what: device.to_string(), why: format!("a classifier takes {MOST} interfaces") }
}

/// A map of the object.
pub(super) fn map<'o>(object: &'o Object, name: &str) -> libbpf_rs::Map<'o> {
    let found = object.maps().find(|m| m.name() == name);
    found.expect("the object was built with this map")
}
