//! The machine whose guests' memory is moved: this one, or a test's.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use vmio_look::scan::{self, MemoryOf};
use vmio_look::{HostView, kinds};
use vmio_model::facts::{CachedReads, Disk, GuestMemory, Unread};
use vmio_node::balloon::Balloon;
use vmio_node::linux::process::Status;
use vmio_node::linux::system;
use vmio_node::{Local, Reader};

/// A report of a balloon's driver is used for this long.
const FRESH_SECONDS: f64 = 60.0;
/// Time between two looks at a balloon that moves.
const PAUSE: Duration = Duration::from_millis(250);

/// The host's memory at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostNow {
    /// All of it.
    pub total_bytes: u64,
    /// What could be used without swapping.
    pub available_bytes: u64,
    /// Pages that were swapped in or out since boot.
    pub swapped_pages: u64,
}

/// What is seen of a guest at a moment; counts are those since it was started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Its process.
    pub pid: u32,
    /// What it was started with.
    pub whole_bytes: u64,
    /// What its balloon leaves it; `None` where it has none, or was not asked.
    pub actual_bytes: Option<u64>,
    /// What of it is in the host's memory.
    pub resident_bytes: u64,
    /// What its driver reported within a minute.
    pub told: Option<GuestMemory>,
    /// Its reads through the host's page cache.
    pub reads: Option<CachedReads>,
    /// What the host's page cache holds of its disks.
    pub host_cached_bytes: u64,
    /// Why its monitor was not asked.
    pub why_not: Option<String>,
}

/// A machine with guests.
pub trait Host {
    /// Its memory, and all guests with kernels of their own; those of these processes are asked.
    ///
    /// # Errors
    /// What of the host itself cannot be read.
    fn look(&self, wanted: &BTreeSet<u32>) -> Result<(HostNow, Vec<Seen>), String>;
    /// The balloon of a guest.
    ///
    /// # Errors
    /// Why its monitor may not be used.
    fn balloon(&self, guest: &str, pid: u32) -> Result<Balloon, String>;
    /// Whether its guest still runs.
    fn runs(&self, balloon: &Balloon) -> bool;
    /// What it leaves its guest.
    ///
    /// # Errors
    /// Why that is not known.
    fn actual_bytes(&self, balloon: &Balloon) -> Result<u64, String>;
    /// Has its guest brought to that.
    ///
    /// # Errors
    /// Why not.
    fn aim_at(&self, balloon: &Balloon, bytes: u64) -> Result<(), String>;
    /// How often its driver is asked for statistics; 0 for never.
    ///
    /// # Errors
    /// Why that is not known.
    fn polling_seconds(&self, balloon: &Balloon) -> Result<u64, String>;
    /// Has its driver asked that often.
    ///
    /// # Errors
    /// Why not.
    fn poll(&self, balloon: &Balloon, seconds: u64) -> Result<(), String>;
    /// Lets drivers work for a moment.
    fn pause(&self);
}

/// This machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Here;

impl Host for Here {
    fn look(&self, wanted: &BTreeSet<u32>) -> Result<(HostNow, Vec<Seen>), String> {
        let node = Local::new();
        let bytes = |name: &str| {
            system::memory_bytes(&node, name).ok_or_else(|| format!("{name} of /proc/meminfo is not readable"))
        };
        let host = HostNow {
            total_bytes: bytes("MemTotal")?,
            available_bytes: bytes("MemAvailable")?,
            swapped_pages: system::swapped_pages(&node).ok_or("/proc/vmstat does not tell what was swapped")?,
        };
        let view = HostView::new(&node);
        let found = scan::memory(&view, wanted);
        Ok((host, found.iter().filter_map(|one| seen(&node, view.at_unix_seconds, one)).collect()))
    }

    fn balloon(&self, guest: &str, pid: u32) -> Result<Balloon, String> {
        let node = Local::new();
        let view = HostView::new(&node);
        let socket = |kind: &&dyn kinds::GuestKind| -> Option<Result<PathBuf, Vec<Unread>>> {
            let guest = kind.running(&view).guests.into_iter().find(|guest| guest.pid == Some(pid))?;
            kind.monitor(&view, &guest)
        };
        let found = kinds::ALL.iter().find_map(socket).unwrap_or(Err(Vec::new()));
        Balloon::of(guest, pid, found.map_err(|unread| reasons(&unread))?)
    }

    fn runs(&self, balloon: &Balloon) -> bool {
        balloon.runs()
    }

    fn actual_bytes(&self, balloon: &Balloon) -> Result<u64, String> {
        balloon.actual_bytes()
    }

    fn aim_at(&self, balloon: &Balloon, bytes: u64) -> Result<(), String> {
        balloon.aim_at(bytes)
    }

    fn polling_seconds(&self, balloon: &Balloon) -> Result<u64, String> {
        balloon.polling_seconds()
    }

    fn poll(&self, balloon: &Balloon, seconds: u64) -> Result<(), String> {
        balloon.poll(seconds)
    }

    fn pause(&self) {
        thread::sleep(PAUSE);
    }
}

/// What was found of a guest; `None` where its memory is not known.
fn seen(reader: &dyn Reader, now_seconds: f64, found: &MemoryOf) -> Option<Seen> {
    let MemoryOf { guest, unread } = found;
    let (own, pid) = (guest.processors.as_ref()?, guest.pid?);
    let status = Status::of(reader, pid).ok()?;
    let disks: Vec<&Disk> = guest.disks.iter().filter(|disk| disk.is_host_cached()).collect();
    let is_fresh = |told: &GuestMemory| now_seconds - told.at_unix_seconds as f64 <= FRESH_SECONDS;
    Some(Seen {
        pid,
        whole_bytes: (*own.memory_bytes)?,
        actual_bytes: own.balloon.map(|balloon| balloon.actual_bytes),
        resident_bytes: status.resident_bytes()?.saturating_add(status.huge_page_bytes().unwrap_or(0)),
        told: own.balloon.and_then(|balloon| balloon.statistics).filter(is_fresh),
        // Without its monitor it would have read nothing, and at the next look all at once.
        reads: if unread.is_none() { CachedReads::of(own, &disks) } else { None },
        host_cached_bytes: disks.iter().filter_map(|d| *d.details.host_cached_bytes).fold(0, u64::saturating_add),
        why_not: unread.as_ref().map(|unread| reasons(unread)),
    })
}

/// Why a monitor may not be used, in a line.
fn reasons(unread: &[Unread]) -> String {
    if unread.is_empty() {
        return "it has no monitor on a socket (QMP)".to_owned();
    }
    unread.iter().map(|one| format!("{}: {}", one.what, one.why)).collect::<Vec<_>>().join("; ")
}
