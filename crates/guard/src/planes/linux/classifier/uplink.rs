//! The programs at an uplink: at egress, one that separates the host's own traffic from forwarded packets; at ingress,
//! one that classifies by destination address and redirects through an IFB.

use std::collections::BTreeMap;

use libbpf_rs::{ErrorKind, MapCore};
use vmio_model::policy::{Direction, Framing};

use super::super::{Device, Error, Netlink, Result};
use super::attach::{Attached, loudly};
use super::by_index::{RECEIVERS, UPLINKS, at_uplink};
use super::filters::{self, FilterOwner};
use super::point::{AttachMode, INGRESS, Point};
use super::{Classifier, counters, encode_framing, full, map};

/// Addresses behind all uplinks together (`max_entries` of the map).
pub(super) const MOST_ADDRESSES: usize = 65_536;
/// Bytes of `struct leaver`, without its `index`.
pub(super) const LEAVER: usize = 28;
/// Bytes of `struct receiver`, without its `index`.
pub(super) const RECEIVER: usize = 16;
/// Where both structures have the mark that packets have passed.
const TRAFFIC_MARK: std::ops::Range<usize> = 12..16;
/// Bytes of `struct destination`.
pub(super) const DESTINATION: usize = 12;

/// Classes of packets that leave by an uplink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leave {
    /// Class of the host's own.
    pub host: u32,
    /// Class of all packets from an IFB, and the IFB's index. Without it each guest has a class of its own here.
    pub stage: Option<(u32, u32)>,
    /// Where there are no queues of the guard's: how frames count of what is no guest's. Packets have no class there.
    pub queueless: Option<Framing>,
}

impl Leave {
    /// `struct leaver`, with the slots for the counters of the host's own and of what is in no class.
    pub(super) fn encode(&self, slots: Option<[u32; 2]>) -> [u8; LEAVER] {
        let (class, through) = self.stage.unwrap_or_default();
        let [own, others] = slots.map_or([0; 2], |slots| slots.map(|slot| slot + 1));
        let mut bytes = [0; LEAVER];
        for (at, value) in [(0, self.host), (4, class), (8, through), (16, own), (20, others)] {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes[24..].copy_from_slice(&encode_framing(self.queueless.unwrap_or(Framing::NONE)));
        bytes
    }
}

/// Classes and redirect of packets that arrive at an uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receive {
    /// Class of multicast groups that are never forwarded, only for the host.
    pub host: u32,
    /// Class of all other addresses.
    pub other: u32,
    /// Index of the IFB.
    pub through: u32,
    /// Class by destination address.
    pub classes: BTreeMap<[u8; 6], u32>,
}

impl Receive {
    /// `struct receiver`.
    pub(super) fn encode(&self, mode: AttachMode) -> [u8; RECEIVER] {
        // At clsact a filter behind the program redirects (redirect.rs).
        let through = if mode == AttachMode::Tcx { self.through } else { 0 };
        let mut bytes = [0; RECEIVER];
        for (at, value) in [(0, self.host), (4, self.other), (8, through)] {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }
}

/// `struct destination`.
pub(super) fn destination(uplink: u32, address: [u8; 6]) -> [u8; DESTINATION] {
    let mut bytes = [0; DESTINATION];
    bytes[..4].copy_from_slice(&uplink.to_ne_bytes());
    bytes[4..10].copy_from_slice(&address);
    bytes
}

/// Whether packets have passed since the mark was cleared; so if there is no telling.
fn has_mark(value: &[u8]) -> bool {
    value.get(TRAFFIC_MARK).is_none_or(|word| word.iter().any(|byte| *byte != 0))
}

fn clear_mark(value: &mut [u8]) {
    value.get_mut(TRAFFIC_MARK).into_iter().flatten().for_each(|byte| *byte = 0);
}

impl Classifier {
    /// Sets the classes of packets that leave by an uplink, and attaches the program there if it is not; returns
    /// whether it had to be attached.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach_uplink(&mut self, netlink: &mut Netlink, device: &Device, leave: Leave) -> Result<bool> {
        self.tcx_or_clsact(|this, mode| this.attach_uplink_by(netlink, device, leave, mode))
    }

    /// As [`Classifier::attach_uplink`], in this mode.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach_uplink_by(
        &mut self,
        netlink: &mut Netlink,
        device: &Device,
        leave: Leave,
        mode: AttachMode,
    ) -> Result<bool> {
        let there = self.uplinks.get(&(device.index, Point::Leaves));
        let there = there.is_some_and(|(_, attached)| attached.is_there(&self.bond));
        if !there {
            self.detach_uplink(netlink, device)?;
        }
        let slots = leave.queueless.map(|_| self.slots_at(device)).transpose()?;
        let settings = leave.encode(slots);
        // To set them anew would clear the mark that packets have passed.
        if !there || !self.leaves_by(device, &settings) {
            self.put(device, &UPLINKS, &settings)?;
        }
        if slots.is_none() {
            self.free_slots(device.index);
        }
        if !there {
            self.attach_at(netlink, device, mode, Point::Leaves)?;
        }
        Ok(!there)
    }

    /// Whether packets leave an uplink by these settings, whatever the mark says.
    fn leaves_by(&self, device: &Device, settings: &[u8; LEAVER]) -> bool {
        let mut entries = UPLINKS.find(&self.object, device.index).unwrap_or_default();
        entries.iter_mut().for_each(|entry| clear_mark(&mut entry.value));
        !entries.is_empty() && entries.iter().all(|entry| entry.value.starts_with(settings))
    }

    /// The slots for what leaves an uplink without queues and is no guest's; new ones count from 0.
    fn slots_at(&mut self, device: &Device) -> Result<[u32; 2]> {
        if let Some(slots) = self.queueless.get(&device.index) {
            return Ok(*slots);
        }
        let at = self.free.len().checked_sub(2).ok_or_else(|| full(device))?;
        let slots = [self.free[at + 1], self.free[at]];
        for slot in slots {
            self.update(device, "counters", &slot.to_ne_bytes(), &[0; counters::BYTES])?;
        }
        self.free.truncate(at);
        self.queueless.insert(device.index, slots);
        Ok(slots)
    }

    fn free_slots(&mut self, index: u32) {
        self.free.extend(self.queueless.remove(&index).into_iter().flatten());
    }

    /// Bytes on the wire that left an uplink without queues: the host's own, and what is in no class. No system call.
    pub(in super::super) fn left(&self, device: &Device) -> Option<[u64; 2]> {
        Some(self.queueless.get(&device.index)?.map(|slot| self.counters.read(slot).left_bytes))
    }

    /// Whether packets passed an uplink since [`Classifier::clear_traffic_mark`]; true where that is unknown.
    pub fn has_traffic(&self, device: &Device, direction: Direction) -> bool {
        let entries = at_uplink(direction).find(&self.object, device.index).unwrap_or_default();
        entries.is_empty() || entries.iter().any(|entry| has_mark(&entry.value))
    }

    /// Clears the mark that packets have passed. One that passes at the same time may be missed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn clear_traffic_mark(&self, device: &Device, direction: Direction) -> Result<()> {
        let Ok(entries) = at_uplink(direction).find(&self.object, device.index) else { return Ok(()) };
        for mut entry in entries.into_iter().filter(|entry| has_mark(&entry.value)) {
            clear_mark(&mut entry.value);
            self.update(device, entry.map, &entry.key, &entry.value)?;
        }
        Ok(())
    }

    /// Detaches it from an uplink; `false` where it was not attached.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn detach_uplink(&mut self, netlink: &mut Netlink, device: &Device) -> Result<bool> {
        let Some((device, attached)) = self.uplinks.remove(&(device.index, Point::Leaves)) else { return Ok(false) };
        // It may not exist.
        let _ = UPLINKS.remove(&self.object, device.index);
        self.free_slots(device.index);
        attached.detach(netlink, &device, (&self.bond, &self.log)).map(|()| true)
    }

    /// Sets classes and redirect of packets that arrive at an uplink, and attaches the program there if it is not;
    /// returns whether that changed anything. It runs after foreign programs: by TCX, or by a filter after theirs where
    /// the kernel has no TCX or there are foreign filters of clsact.
    ///
    /// # Errors
    /// When the kernel refuses, or there are too many addresses.
    pub fn attach_receive(&mut self, netlink: &mut Netlink, device: &Device, receive: &Receive) -> Result<bool> {
        if let Some(mode) = self.receives(netlink, device)? {
            if self.received.get(&device.index) == Some(receive) {
                return Ok(false);
            }
            return self.attach_receive_by(netlink, device, receive, mode);
        }
        self.detach_receive(netlink, device)?;
        let filters = filters::list(netlink, device, INGRESS)?;
        if filters.iter().any(|filter| filter.owner == FilterOwner::Other) {
            return self.attach_receive_by(netlink, device, receive, AttachMode::Clsact);
        }
        self.tcx_or_clsact(|this, mode| this.attach_receive_by(netlink, device, receive, mode))
    }

    /// Whether packets that arrive at an uplink get other classes now than these.
    pub fn receives_otherwise(&self, device: &Device, receive: &Receive) -> bool {
        self.received.get(&device.index).is_some_and(|now| now != receive)
    }

    /// As [`Classifier::attach_receive`], in this mode where it is not there yet.
    ///
    /// # Errors
    /// As [`Classifier::attach_receive`].
    pub fn attach_receive_by(
        &mut self,
        netlink: &mut Netlink,
        device: &Device,
        receive: &Receive,
        mode: AttachMode,
    ) -> Result<bool> {
        let there = self.receives(netlink, device)?;
        if there.is_none() {
            self.detach_receive(netlink, device)?;
        }
        // The maps are complete before the first packet.
        let done = self.update_receive(device, receive, there.unwrap_or(mode)).and_then(|()| {
            if there.is_none() {
                self.attach_at(netlink, device, mode, Point::Enters)?;
            }
            match self.uplinks.get_mut(&(device.index, Point::Enters)) {
                Some((_, attached)) => attached.set_redirect(netlink, device, Some(receive.through)),
                None => Ok(()),
            }
        });
        if done.is_err() && there.is_none() {
            // The first error matters.
            let _ = self.detach_receive(netlink, device);
        }
        done.map(|()| true)
    }

    /// Detaches it from an uplink; `false` where it was not attached.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn detach_receive(&mut self, netlink: &mut Netlink, device: &Device) -> Result<bool> {
        let attached = self.uplinks.remove(&(device.index, Point::Enters));
        let done = attached.map(|(at, attached)| attached.detach(netlink, &at, (&self.bond, &self.log))).transpose();
        // They may not exist; without the program they are unused.
        let _ = RECEIVERS.remove(&self.object, device.index);
        for address in self.received.remove(&device.index).into_iter().flat_map(|receive| receive.classes.into_keys()) {
            let _ = map(&self.object, "destinations").delete(&destination(device.index, address));
        }
        done.map(|done| done.is_some())
    }

    /// How the program at an uplink's ingress is attached; None if it or its redirect filter was removed.
    fn receives(&self, netlink: &mut Netlink, device: &Device) -> Result<Option<AttachMode>> {
        match self.uplinks.get(&(device.index, Point::Enters)) {
            Some((at, attached)) if attached.is_there(&self.bond) && attached.is_redirected(netlink, at)? => {
                Ok(Some(attached.mode()))
            }
            _ => Ok(None),
        }
    }

    fn attach_at(&mut self, netlink: &mut Netlink, device: &Device, mode: AttachMode, point: Point) -> Result<()> {
        let attached = Attached::attach(&self.object, netlink, device, mode, point, (&self.bond, &self.log))?;
        self.uplinks.insert((device.index, point), (device.clone(), attached));
        Ok(())
    }

    /// Updates the maps: adds addresses, then sets the uplink, then removes addresses.
    fn update_receive(&mut self, device: &Device, receive: &Receive, mode: AttachMode) -> Result<()> {
        let before = self.received.get(&device.index).cloned();
        let others: usize =
            self.received.iter().filter(|(i, _)| **i != device.index).map(|(_, r)| r.classes.len()).sum();
        let mut addresses = before.as_ref().map(|b| b.classes.clone()).unwrap_or_default();
        addresses.extend(&receive.classes);
        if others + addresses.len() > MOST_ADDRESSES {
            let why = format!("more than {MOST_ADDRESSES} addresses of guests behind all uplinks");
            return Err(Error::Invalid { what: device.to_string(), why });
        }
        // After a failure this lists all addresses that may be in the map; `through: 0` marks it as incomplete.
        let half = Receive { through: 0, classes: addresses.clone(), ..receive.clone() };
        self.received.insert(device.index, half);
        let sure = before.filter(|b| b.through != 0).map(|b| b.classes).unwrap_or_default();
        for (address, class) in &receive.classes {
            if sure.get(address) != Some(class) {
                self.update(device, "destinations", &destination(device.index, *address), &class.to_ne_bytes())?;
            }
        }
        self.put(device, &RECEIVERS, &receive.encode(mode))?;
        for address in addresses.keys().filter(|address| !receive.classes.contains_key(*address)) {
            let key = destination(device.index, *address);
            loudly(&format!("tell the classifier about {device}"), || {
                match map(&self.object, "destinations").delete(&key) {
                    Err(e) if matches!(e.kind(), ErrorKind::NotFound) => Ok(()),
                    done => done,
                }
            })?;
        }
        self.received.insert(device.index, receive.clone());
        Ok(())
    }
}
