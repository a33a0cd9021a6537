//! A finite send buffer on the tap of a running process, so that a guest's excess stays in the guest: packets in our
//! queue are charged to the tap, and while its buffer is full the hypervisor takes no more from the guest's ring.
//! Without a limit ([`UNLIMITED`]) it takes all, and the queue drops.
//!
//! [`vmio_node::tap`] reaches the descriptor, in a process of its own. The steps:
//!
//! 1. [`find`] the process that holds the tap, among candidates.
//! 2. [`plan`] returns the change ([`Held`]) and makes none. **Record it.**
//! 3. [`hold`] sets the buffer and reads it back on every queue, unless it has changed since the plan.
//! 4. [`undo`] restores the buffer before.
//!
//! A tap that is opened anew (the hypervisor restarts) has no limit, nor has **each queue that is opened or switched on
//! later**, as by a guest's driver that starts: the kernel sets only queues that are on. [`in_force`] checks, and
//! [`hold`] with the same [`Held`] sets them.

use std::io;

use serde::{Deserialize, Serialize};
use vmio_node::tap::{Change, HolderState, Interface, NetworkNamespace, Queue, send_buffer};

pub use vmio_node::tap::Process;

use super::{Device, Error, Result};

/// What the kernel gives each queue that is opened: no limit in effect.
pub const UNLIMITED: u32 = i32::MAX.unsigned_abs();
/// Least size: with this 64 KiB of segments still pass; a buffer of 1 stalls the guest.
pub const LEAST_BYTES: u32 = 4096;

/// A limit of a tap's send buffer, for the ledger; in the network namespace of the thread that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// Who holds the tap.
    pub process: Process,
    /// The tap's index.
    pub index: u32,
    /// The tap's name, for people.
    pub interface: String,
    /// Size before vmio, which is restored.
    pub before_bytes: u32,
    /// Size that this one replaces: the same, or an earlier one of the guard's.
    pub replaces_bytes: u32,
    /// Size to set.
    pub bytes: u32,
}

impl Held {
    /// The same with another size; to be recorded before [`hold`] as well.
    ///
    /// # Errors
    /// When the size is out of range.
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

/// Result of [`undo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone {
    /// The size before was restored.
    Restored,
    /// Restored except for this many queues that the guest has switched off: the kernel sets only queues that are on,
    /// so [`undo`] has to be called again.
    Except(usize),
    /// The process, or its descriptor of the tap, is gone, and with it the limit.
    Gone,
    /// Somebody else has set this size since; it was left alone.
    Others(u32),
}

/// The first of these processes that holds the tap, if any. One descriptor is enough.
///
/// # Errors
/// When none is found and one could not be examined completely.
pub fn find(device: &Device, candidates: &[u32]) -> Result<Option<Process>> {
    let interface = interface(device)?;
    let mut unsure = None;
    for process in candidates.iter().filter_map(|pid| Process::now(*pid)) {
        match ask(device, interface, process, None) {
            Ok(HolderState::Held { .. }) => return Ok(Some(process)),
            Ok(found @ HolderState::Without { all: false, .. }) => unsure = Some(refused(device, process, found)),
            Ok(_) => {}
            Err(e) => unsure = Some(e),
        }
    }
    unsure.map_or(Ok(None), Err)
}

/// Plans a limit, given the current size. Changes nothing.
///
/// # Errors
/// When the size is out of range, or the process has ended, does not hold the tap or may not be examined.
pub fn plan(device: &Device, process: Process, bytes: u32) -> Result<Held> {
    sensible(device, bytes)?;
    let before = match ask(device, interface(device)?, process, None)? {
        // Where queues differ, some have a limit that others lack; the largest is taken for all.
        HolderState::Held { before, .. } => before.into_iter().map(|queue| queue.bytes).max().unwrap_or(UNLIMITED),
        other => return Err(refused(device, process, other)),
    };
    let (index, interface) = (device.index, device.name.clone());
    Ok(Held { process, index, interface, before_bytes: before, replaces_bytes: before, bytes })
}

/// Sets the limit on all queues that are switched on, and reads it back. Calling it twice changes nothing.
///
/// # Errors
/// As [`plan`]; also when the size is not the one that it replaces; it then stays.
pub fn hold(held: &Held) -> Result<()> {
    let device = held.device();
    match set(held, held.bytes)? {
        HolderState::Held { after: Some(after), .. } => read_back(&device, held.bytes, &after),
        HolderState::Held { before, after: None } => Err(Error::Foreign {
            place: device.name,
            what: format!("its tap's send buffer ({} bytes)", foreign(held, &before)),
            help: "find out what else sets it (libvirt: <tune><sndbuf>), then plan again".to_owned(),
        }),
        other => Err(refused(&device, held.process, other)),
    }
}

/// Whether the limit is in force on all queues that are switched on; false where the process or its descriptor is gone.
///
/// # Errors
/// When the process may not be examined.
pub fn in_force(held: &Held) -> Result<bool> {
    let device = held.device();
    let found = ask(&device, interface(&device)?, held.process, None)?;
    Ok(
        matches!(found, HolderState::Held { before, .. } if before.iter().all(|queue| !queue.on || queue.bytes == held.bytes)),
    )
}

/// Restores the size before.
///
/// # Errors
/// When the process may not be examined, or the kernel refuses.
pub fn undo(held: &Held) -> Result<Undone> {
    let device = held.device();
    match set(held, held.before_bytes)? {
        HolderState::Held { after: Some(after), .. } => {
            read_back(&device, held.before_bytes, &after)?;
            Ok(match after.iter().filter(|queue| !queue.on && queue.bytes != held.before_bytes).count() {
                0 => Undone::Restored,
                off => Undone::Except(off),
            })
        }
        HolderState::Held { before, after: None } => Ok(Undone::Others(foreign(held, &before))),
        // Not all descriptors were examined, so it may hold the tap.
        found @ HolderState::Without { all: false, .. } => Err(refused(&device, held.process, found)),
        HolderState::Ended | HolderState::Another { .. } | HolderState::Without { .. } => Ok(Undone::Gone),
    }
}

fn set(held: &Held, to: u32) -> Result<HolderState> {
    let device = held.device();
    let from = vec![held.before_bytes, held.replaces_bytes, held.bytes];
    ask(&device, interface(&device)?, held.process, Some(Change { to, from }))
}

fn ask(device: &Device, interface: Interface, process: Process, change: Option<Change>) -> Result<HolderState> {
    let what = match &change {
        None => format!("read the send buffer of tap {device} in process {}", process.pid),
        Some(change) => format!("set the send buffer of tap {device} in process {} to {}", process.pid, change.to),
    };
    send_buffer(interface, process, change).map_err(|source| {
        let said = match source.kind() {
            io::ErrorKind::PermissionDenied => "another user's process can only be read with CAP_SYS_PTRACE",
            io::ErrorKind::TimedOut => "timed out; it may or may not have been set",
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
fn refused(device: &Device, process: Process, found: HolderState) -> Error {
    Error::NotHolder { device: device.clone(), pid: process.pid, found }
}

/// The state of a process as holder of a tap, in words.
pub(super) fn describe_holder(pid: u32, found: &HolderState) -> String {
    match found {
        HolderState::Ended => format!("process {pid} has ended"),
        HolderState::Another { .. } => {
            format!("process {pid} has ended, and its number is now used by another process")
        }
        HolderState::Without { all: true, .. } => format!("process {pid} does not hold it; look with: ip -d tuntap"),
        HolderState::Without { descriptors: 0, .. } => {
            format!("the first thread of process {pid} has ended while others run, so its descriptors cannot be read")
        }
        HolderState::Without { descriptors, .. } => {
            format!(
                "process {pid} has more descriptors than vmio reads, and the tap is not among the first {descriptors}"
            )
        }
        HolderState::Held { .. } => format!("process {pid} holds it"),
    }
}

/// The size that is not vmio's.
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
