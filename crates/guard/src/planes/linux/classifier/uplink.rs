//! The programs at an uplink: the one that tells the host's own traffic from what came in somewhere, as it leaves,
//! and the one that finds by its destination whom what arrives is for and leads it through an IFB.

use std::collections::BTreeMap;

use libbpf_rs::{ErrorKind, MapCore, MapFlags};
use vmio_model::policy::Direction;

use super::super::{Device, Error, Netlink, Result};
use super::attach::{Attached, loudly};
use super::filters::{self, Whose};
use super::point::{AttachMode, INGRESS, Point};
use super::{Classifier, map};

/// Addresses behind all uplinks together (`max_entries` of the map).
pub(super) const MOST_ADDRESSES: usize = 65_536;
/// Bytes of `struct leaver`.
pub(super) const LEAVER: usize = 16;
/// Bytes of `struct receiver`.
pub(super) const RECEIVER: usize = 16;
/// Where both say whether something has passed.
const STIRRED: usize = 12;
/// Bytes of `struct destination`.
pub(super) const DESTINATION: usize = 12;

/// How packets that leave by an uplink are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leave {
    /// Class of the host's own.
    pub host: u32,
    /// Where what guests send was queued in an IFB before: the class of all that comes from there, and the IFB's index.
    /// Without it, each guest has a class of its own here.
    pub stage: Option<(u32, u32)>,
}

impl Leave {
    /// `struct leaver`.
    pub(super) fn encode(&self) -> [u8; LEAVER] {
        let (class, through) = self.stage.unwrap_or_default();
        let mut bytes = [0; LEAVER];
        for (at, value) in [(0, self.host), (4, class), (8, through)] {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }
}

/// What is done with the packets that arrive at an uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receive {
    /// Class of the groups that are only for the host itself, and never forwarded.
    pub host: u32,
    /// Class of what is for no address below.
    pub other: u32,
    /// Index of the IFB that all of it is led through.
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

/// The map that has what a program at an uplink was told.
fn told_in(direction: Direction) -> &'static str {
    match direction {
        Direction::GuestTx => "uplinks",
        Direction::GuestRx => "receivers",
    }
}

impl Classifier {
    /// Says which classes packets are of that leave by an uplink, and attaches the program there that tells the host's own
    /// from what came in somewhere; whether it had to be attached.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach_uplink(&mut self, netlink: &mut Netlink, device: &Device, told: Leave) -> Result<bool> {
        self.tcx_or_clsact(|this, mode| this.attach_uplink_by(netlink, device, told, mode))
    }

    /// As [`Classifier::attach_uplink`], in this mode.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach_uplink_by(
        &mut self,
        netlink: &mut Netlink,
        device: &Device,
        told: Leave,
        mode: AttachMode,
    ) -> Result<bool> {
        let there = self.uplinks.get(&(device.index, Point::Leaves));
        let there = there.is_some_and(|(_, attached)| attached.is_there(&self.bond));
        if !there {
            self.detach_uplink(netlink, device)?;
        }
        self.update(device, "uplinks", &device.index.to_ne_bytes(), &told.encode())?;
        if !there {
            self.hang(netlink, device, mode, Point::Leaves)?;
        }
        Ok(!there)
    }

    /// Whether something has passed an uplink in that direction since [`Classifier::hush`]; also where nothing is told of it.
    pub fn has_stirred(&self, device: &Device, direction: Direction) -> bool {
        let told = map(&self.object, told_in(direction)).lookup(&device.index.to_ne_bytes(), MapFlags::ANY);
        told.ok().flatten().is_none_or(|told| told.get(STIRRED..).is_none_or(|word| word.iter().any(|b| *b != 0)))
    }

    /// From now on [`Classifier::has_stirred`] tells of what passes. A packet that passes right now may go unseen.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn hush(&self, device: &Device, direction: Direction) -> Result<()> {
        let (name, key) = (told_in(direction), device.index.to_ne_bytes());
        let Ok(Some(mut told)) = map(&self.object, name).lookup(&key, MapFlags::ANY) else { return Ok(()) };
        told.get_mut(STIRRED..).into_iter().flatten().for_each(|byte| *byte = 0);
        self.update(device, name, &key, &told)
    }

    /// Takes it off an uplink; `false` where it was not there.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn detach_uplink(&mut self, netlink: &mut Netlink, device: &Device) -> Result<bool> {
        let Some((device, attached)) = self.uplinks.remove(&(device.index, Point::Leaves)) else { return Ok(false) };
        // Not there is as good.
        let _ = map(&self.object, "uplinks").delete(&device.index.to_ne_bytes());
        attached.detach(netlink, &device, (&self.bond, &self.log)).map(|()| true)
    }

    /// Says what becomes of what arrives at an uplink, and attaches the program there that does it; whether that
    /// changed anything. It comes behind others' programs: by TCX, or where the kernel has no TCX or others have
    /// filters of clsact there, by a filter behind theirs.
    ///
    /// # Errors
    /// When the kernel refuses, or there are too many addresses.
    pub fn attach_receive(&mut self, netlink: &mut Netlink, device: &Device, told: &Receive) -> Result<bool> {
        if let Some(mode) = self.receives(netlink, device)? {
            if self.received.get(&device.index) == Some(told) {
                return Ok(false);
            }
            return self.attach_receive_by(netlink, device, told, mode);
        }
        self.detach_receive(netlink, device)?;
        let filters = filters::list(netlink, device, INGRESS)?;
        if filters.iter().any(|found| found.whose == Whose::Another) {
            return self.attach_receive_by(netlink, device, told, AttachMode::Clsact);
        }
        self.tcx_or_clsact(|this, mode| this.attach_receive_by(netlink, device, told, mode))
    }

    /// As [`Classifier::attach_receive`], in this mode where it is not there yet.
    ///
    /// # Errors
    /// As [`Classifier::attach_receive`].
    pub fn attach_receive_by(
        &mut self,
        netlink: &mut Netlink,
        device: &Device,
        told: &Receive,
        mode: AttachMode,
    ) -> Result<bool> {
        let there = self.receives(netlink, device)?;
        if there.is_none() {
            self.detach_receive(netlink, device)?;
        }
        // What becomes of packets is known before the first is seen.
        let done = self.say(device, told, there.unwrap_or(mode)).and_then(|()| {
            if there.is_none() {
                self.hang(netlink, device, mode, Point::Enters)?;
            }
            match self.uplinks.get_mut(&(device.index, Point::Enters)) {
                Some((_, attached)) => attached.set_redirect(netlink, device, Some(told.through)),
                None => Ok(()),
            }
        });
        if done.is_err() && there.is_none() {
            // The error that led here says more than one that follows from it.
            let _ = self.detach_receive(netlink, device);
        }
        done.map(|()| true)
    }

    /// Takes it off an uplink; `false` where it was not there.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn detach_receive(&mut self, netlink: &mut Netlink, device: &Device) -> Result<bool> {
        let attached = self.uplinks.remove(&(device.index, Point::Enters));
        let done = attached.map(|(at, attached)| attached.detach(netlink, &at, (&self.bond, &self.log))).transpose();
        // Without the program nobody asks. Not there is as good.
        let _ = map(&self.object, "receivers").delete(&device.index.to_ne_bytes());
        for address in self.received.remove(&device.index).into_iter().flat_map(|told| told.classes.into_keys()) {
            let _ = map(&self.object, "destinations").delete(&destination(device.index, address));
        }
        done.map(|done| done.is_some())
    }

    /// How the packets that arrive at an uplink are redirected; None if somebody removed the program or the filter.
    fn receives(&self, netlink: &mut Netlink, device: &Device) -> Result<Option<AttachMode>> {
        match self.uplinks.get(&(device.index, Point::Enters)) {
            Some((at, attached)) if attached.is_there(&self.bond) && attached.is_redirected(netlink, at)? => {
                Ok(Some(attached.mode()))
            }
            _ => Ok(None),
        }
    }

    fn hang(&mut self, netlink: &mut Netlink, device: &Device, mode: AttachMode, point: Point) -> Result<()> {
        let attached = Attached::attach(&self.object, netlink, device, mode, point, (&self.bond, &self.log))?;
        self.uplinks.insert((device.index, point), (device.clone(), attached));
        Ok(())
    }

    /// Tells the maps: addresses that come, then the uplink itself, then addresses that go.
    fn say(&mut self, device: &Device, told: &Receive, mode: AttachMode) -> Result<()> {
        let before = self.received.get(&device.index).cloned();
        let others: usize =
            self.received.iter().filter(|(i, _)| **i != device.index).map(|(_, r)| r.classes.len()).sum();
        let mut known = before.as_ref().map(|b| b.classes.clone()).unwrap_or_default();
        known.extend(&told.classes);
        if others + known.len() > MOST_ADDRESSES {
            let why = format!("more than {MOST_ADDRESSES} addresses of guests behind all uplinks");
            return Err(Error::Invalid { what: device.to_string(), why });
        }
        // If this fails half way, all that may be in the map is known, and it is not taken for what was told.
        let half = Receive { through: 0, classes: known.clone(), ..told.clone() };
        self.received.insert(device.index, half);
        let sure = before.filter(|b| b.through != 0).map(|b| b.classes).unwrap_or_default();
        for (address, class) in &told.classes {
            if sure.get(address) != Some(class) {
                self.update(device, "destinations", &destination(device.index, *address), &class.to_ne_bytes())?;
            }
        }
        self.update(device, "receivers", &device.index.to_ne_bytes(), &told.encode(mode))?;
        for address in known.keys().filter(|address| !told.classes.contains_key(*address)) {
            let key = destination(device.index, *address);
            loudly(&format!("tell the classifier about {device}"), || {
                match map(&self.object, "destinations").delete(&key) {
                    Err(e) if matches!(e.kind(), ErrorKind::NotFound) => Ok(()),
                    done => done,
                }
            })?;
        }
        self.received.insert(device.index, told.clone());
        Ok(())
    }
}
