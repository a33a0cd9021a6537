//! A finite send buffer on the tap of a running process, so that what a guest sends beyond its limit stays in the
//! guest: what waits in a queue of ours is charged to the tap, and with the buffer full its hypervisor takes no more
//! packets from the guest's ring. Without one ([`UNLIMITED`]) it takes all, and the queue drops.
//!
//! How the descriptor is reached, and why that happens in a process of its own: [`vmio_node::tap`]. Here is what a
//! journal needs:
//!
//! 1. [`find`] the process that holds the tap, among those that the caller names.
//! 2. [`plan`] says what would be set and what was there ([`Held`]); nothing is changed. **Write it down.**
//! 3. [`hold`] sets it and reads it back on every queue. Nothing is changed where by now something else is there
//!    than the plan says.
//! 4. [`undo`] puts back what was there before.
//!
//! A tap that is opened anew (the hypervisor restarts) begins without a limit, and so does **each queue that is
//! opened or switched on later**, as a guest's driver does that has just come up: the kernel sets those that are on.
//! [`in_force`] tells; [`hold`] again with the same [`Held`] puts it right.

use std::io;

use serde::{Deserialize, Serialize};
use vmio_node::tap::{Change, Found, Interface, NetworkNamespace, Queue, send_buffer};

pub use vmio_node::tap::Process;

use super::{Device, Error, Result};

/// What the kernel gives each queue that is opened: no limit in effect.
pub const UNLIMITED: u32 = i32::MAX.unsigned_abs();
/// The least that is set: with so much 64 KiB of segments still pass; a buffer of 1 stalls the guest.
pub const LEAST_BYTES: u32 = 4096;

/// A tap's send buffer, held small: what a journal keeps. In the network namespace of the thread that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// Who holds the tap.
    pub process: Process,
    /// The tap's index.
    pub index: u32,
    /// The tap's name, for people.
    pub interface: String,
    /// What was there before vmio, and comes back.
    pub before_bytes: u32,
    /// What this one replaces: the same, or an earlier size of ours.
    pub replaces_bytes: u32,
    /// What is to be there.
    pub bytes: u32,
}

impl Held {
    /// With another size, as a limit changes; to be written down before [`hold`], too.
    ///
    /// # Errors
    /// When the size cannot be.
    pub fn resized(&self, bytes: u32) -> Result<Held> {
        sensible(&self.device(), bytes)?;
        Ok(Held { replaces_bytes: self.bytes, bytes, ..self.clone() })
    }

    /// The tap.
    pub fn device(&self) -> Device {
        Device { index: self.index, name: self.interface.clone() }
    }

    /// Whether vmio may have left this size there.
    fn is_known(&self, bytes: u32) -> bool {
        [self.before_bytes, self.replaces_bytes, self.bytes].contains(&bytes)
    }
}

/// What became of an [`undo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone {
    /// What was there before is there again.
    Restored,
    /// It is, but for so many queues that the guest has switched off with ours in force: the kernel sets them only when
    /// they are on again. Another [`undo`] does it then.
    Except(usize),
    /// The process, or its descriptor of the tap, is gone, and the buffer with it.
    Gone,
    /// Somebody else has set that many bytes since, which were left alone.
    Others(u32),
}

/// The first of these processes that holds the tap; `None` where none does. Several may: a descriptor of one is
/// enough. Who has ended meanwhile is passed over.
///
/// # Errors
/// When none is found and one could not be looked at to its end.
pub fn find(device: &Device, candidates: &[u32]) -> Result<Option<Process>> {
    let interface = interface(device)?;
    let mut unsure = None;
    for process in candidates.iter().filter_map(|pid| Process::now(*pid)) {
        match ask(device, interface, process, None) {
            Ok(Found::Held { .. }) => return Ok(Some(process)),
            Ok(found @ Found::Without { all: false, .. }) => unsure = Some(refused(device, process, found)),
            Ok(_) => {}
            Err(e) => unsure = Some(e),
        }
    }
    unsure.map_or(Ok(None), Err)
}

/// What would be set, and what is there now. Changes nothing.
///
/// # Errors
/// When the size cannot be, the process has ended, is another by now, does not hold the tap or may not be looked at.
pub fn plan(device: &Device, process: Process, bytes: u32) -> Result<Held> {
    sensible(device, bytes)?;
    let before = match ask(device, interface(device)?, process, None)? {
        // Where queues differ, somebody's limit is in force on some alone: without one they are as they were opened.
        Found::Held { before, .. } => before.into_iter().map(|queue| queue.bytes).max().unwrap_or(UNLIMITED),
        other => return Err(refused(device, process, other)),
    };
    let (index, interface) = (device.index, device.name.clone());
    Ok(Held { process, index, interface, before_bytes: before, replaces_bytes: before, bytes })
}

/// Puts it in force on all queues that are switched on, and reads it back. Doing it twice changes nothing.
///
/// # Errors
/// As [`plan`]; and when something else is there by now than what it replaces, which then stays.
pub fn hold(held: &Held) -> Result<()> {
    let device = held.device();
    match set(held, held.bytes)? {
        Found::Held { after: Some(after), .. } => read_back(&device, held.bytes, &after),
        Found::Held { before, after: None } => Err(Error::Foreign {
            place: device.name,
            what: format!("its tap's send buffer ({} bytes)", foreign(held, &before)),
            help: "look what else sets it (libvirt: <tune><sndbuf>), then plan anew".to_owned(),
        }),
        other => Err(refused(&device, held.process, other)),
    }
}

/// Whether it is in force on all queues that are switched on; not where the process or its descriptor is gone.
///
/// # Errors
/// When it may not be looked at.
pub fn in_force(held: &Held) -> Result<bool> {
    let device = held.device();
    let found = ask(&device, interface(&device)?, held.process, None)?;
    Ok(matches!(found, Found::Held { before, .. } if before.iter().all(|queue| !queue.on || queue.bytes == held.bytes)))
}

/// Puts back what was there before.
///
/// # Errors
/// When the process may not be looked at, or the kernel refuses.
pub fn undo(held: &Held) -> Result<Undone> {
    let device = held.device();
    match set(held, held.before_bytes)? {
        Found::Held { after: Some(after), .. } => {
            read_back(&device, held.before_bytes, &after)?;
            Ok(match after.iter().filter(|queue| !queue.on && queue.bytes != held.before_bytes).count() {
                0 => Undone::Restored,
                off => Undone::Except(off),
            })
        }
        Found::Held { before, after: None } => Ok(Undone::Others(foreign(held, &before))),
        // It may hold it all the same.
        found @ Found::Without { all: false, .. } => Err(refused(&device, held.process, found)),
        Found::Ended | Found::Another { .. } | Found::Without { .. } => Ok(Undone::Gone),
    }
}

fn set(held: &Held, to: u32) -> Result<Found> {
    let device = held.device();
    let from = vec![held.before_bytes, held.replaces_bytes, held.bytes];
    ask(&device, interface(&device)?, held.process, Some(Change { to, from }))
}

fn ask(device: &Device, interface: Interface, process: Process, change: Option<Change>) -> Result<Found> {
    let what = match &change {
        None => format!("read the send buffer of tap {device} in process {}", process.pid),
        Some(change) => format!("set the send buffer of tap {device} in process {} to {}", process.pid, change.to),
    };
    send_buffer(interface, process, change).map_err(|source| {
        let said = match source.kind() {
            io::ErrorKind::PermissionDenied => "another user's process is looked at with CAP_SYS_PTRACE",
            io::ErrorKind::TimedOut => "given up; it stays as it was or as it was to be",
            _ => "",
        };
        Error::Refused { what, source, said: said.to_owned() }
    })
}

fn interface(device: &Device) -> Result<Interface> {
    let namespace = NetworkNamespace::own().map_err(|source| Error::Refused {
        what: "look at this thread's network namespace".to_owned(),
        source,
        said: String::new(),
    })?;
    Ok(Interface { namespace, index: device.index })
}

fn sensible(device: &Device, bytes: u32) -> Result<()> {
    if (LEAST_BYTES..=UNLIMITED).contains(&bytes) {
        return Ok(());
    }
    let why = format!("a send buffer has {LEAST_BYTES} to {UNLIMITED} bytes, not {bytes}");
    Err(Error::Invalid { what: format!("tap {device}"), why })
}

/// Why a process's tap cannot be held.
fn refused(device: &Device, process: Process, found: Found) -> Error {
    Error::NotHolder { device: device.clone(), pid: process.pid, found }
}

/// What was found at a process, in words.
pub(super) fn told(pid: u32, found: &Found) -> String {
    match found {
        Found::Ended => format!("process {pid} has ended"),
        Found::Another { .. } => {
            format!("process {pid} is another by now: the one that was meant has ended, and its number is used again")
        }
        Found::Without { all: true, .. } => format!("process {pid} does not hold it; look with: ip -d tuntap"),
        Found::Without { descriptors: 0, .. } => {
            format!("the first thread of process {pid} has ended and others have not, so its descriptors are not told")
        }
        Found::Without { descriptors, .. } => {
            format!(
                "process {pid} has more descriptors than are looked at, and it is not among the first {descriptors}"
            )
        }
        Found::Held { .. } => format!("process {pid} holds it"),
    }
}

/// The size that vmio has not set.
fn foreign(held: &Held, queues: &[Queue]) -> u32 {
    let mut on = queues.iter().filter(|queue| queue.on).map(|queue| queue.bytes);
    on.find(|bytes| !held.is_known(*bytes)).unwrap_or(held.bytes)
}

fn read_back(device: &Device, wanted: u32, queues: &[Queue]) -> Result<()> {
    match queues.iter().find(|queue| queue.on && queue.bytes != wanted) {
        None => Ok(()),
        Some(other) => Err(Error::Mismatch {
            place: format!("tap {device}"),
            field: "send buffer".to_owned(),
            wanted: wanted.to_string(),
            found: other.bytes.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests;
