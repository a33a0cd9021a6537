//! A guest that runs, as the engine and the probes see it.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::path::PathBuf;
use std::sync::Arc;

use vmio_node::Node;

use super::{Accelerator, Error, Processes, Result};
use crate::disks::Storage;

/// A guest that runs.
pub trait Guest: Send {
    /// Where commands run in it.
    fn node(&self) -> Arc<dyn Node>;
    /// Its hypervisor as seen from the host now; `None` for what has none here: a container.
    ///
    /// # Errors
    /// When it has ended.
    fn hypervisor(&self) -> Result<Option<Hypervisor>> {
        Ok(None)
    }
    /// Its processes as seen from the host, where it is a container.
    fn processes(&self) -> Option<Processes> {
        None
    }
    /// Its disks; `None` for what has none.
    fn disks(&self) -> Option<&dyn Disks> {
        None
    }
    /// Its balloon; `None` for what has none.
    fn balloon(&self) -> Option<Arc<dyn Balloon>> {
        None
    }
    /// How its hypervisor says that the network device at a tap is set up, by the keys of [`crate::nics`]; empty where
    /// the guest alone knows.
    fn card(&self, _tap: &str) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    /// What really runs it, and why; `None` for what shares the host's kernel.
    fn accelerator(&self) -> Option<&Accelerator> {
        None
    }
    /// Seconds from its start to the first answer; `None` for what vmio does not start.
    fn boot_seconds(&self) -> Option<f64> {
        None
    }
    /// For a guest that no longer answers (`seen` says what was seen): ends it if it still runs,
    /// and returns what became of it, with the end of its console.
    fn give_up(&self, seen: &str) -> Error;
    /// Ends it and takes away all that its launch left on the host.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// The disks of a guest.
pub trait Disks {
    /// Path of a disk in the guest.
    ///
    /// # Errors
    /// [`Error::NoDisk`].
    fn path(&self, id: &str) -> Result<PathBuf>;
    /// Settings of each disk as the hypervisor says it has them now, by disk and then by the keys
    /// of [`crate::disks::drivers::effective`]. Empty for what has no device: a container.
    ///
    /// # Errors
    /// When the hypervisor does not say, or one is not as it was asked for.
    fn effective(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
        Ok(BTreeMap::new())
    }
    /// One of them, as the hypervisor counts what is read of it; `None` where it does not.
    fn drive(&self, _id: &str) -> Option<Arc<dyn Drive>> {
        None
    }
    /// Exchanges images below them; `None` where the hypervisor cannot.
    fn images(&self) -> Option<&dyn Images> {
        None
    }
}

/// A disk of a guest, as its hypervisor counts it from outside of the guest. Shown by its name, unique in the run.
pub trait Drive: Debug + Display + Send + Sync {
    /// What the guest has done so far; `None` where that is not counted, as of what another process serves.
    ///
    /// # Errors
    /// When the hypervisor does not say.
    fn counts(&self) -> Result<Option<DriveCounts>>;
}

/// What a guest did on a disk since its hypervisor counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DriveCounts {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads and writes that were completed.
    pub requests: u64,
    /// Nanoseconds from the hypervisor's block layer to completion, added up over reads, writes and flushes.
    pub nanoseconds: u64,
}

impl DriveCounts {
    /// What was done since; `None` where a count went back.
    pub fn since(&self, old: &Self) -> Option<Self> {
        Some(Self {
            read_bytes: self.read_bytes.checked_sub(old.read_bytes)?,
            written_bytes: self.written_bytes.checked_sub(old.written_bytes)?,
            requests: self.requests.checked_sub(old.requests)?,
            nanoseconds: self.nanoseconds.checked_sub(old.nanoseconds)?,
        })
    }
}

/// A guest's balloon: the device by which its host takes memory of it, and gives it back.
pub trait Balloon: Send + Sync {
    /// Bytes of memory that it leaves the guest now.
    ///
    /// # Errors
    /// When the hypervisor does not say.
    fn actual_bytes(&self) -> Result<u64>;
    /// Has the guest's driver go there. That takes a while, and the guest may stop before.
    ///
    /// # Errors
    /// When the hypervisor refuses.
    fn aim_at(&self, bytes: u64) -> Result<()>;
}

/// Disk images that can be exchanged while the guest runs.
pub trait Images {
    /// Puts another disk image under a disk on which nothing is in flight. On success the old one
    /// is closed, with all of its tables written.
    ///
    /// # Errors
    /// When there is no such disk, or the hypervisor refuses; then the old one stays.
    fn exchange(&self, id: &str, storage: &Storage) -> Result<()>;
}

/// The process that runs a guest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hypervisor {
    /// What it is called in messages.
    pub name: &'static str,
    /// Process id on the host.
    pub pid: u32,
    /// Role (`vcpu`, `iothread`, `main`, `vhost`, `other`) by thread id. Threads that are not listed are workers.
    pub roles: BTreeMap<u32, String>,
    /// Processes that serve the disk in its place.
    pub servers: Vec<u32>,
}

impl dyn Guest + '_ {
    /// Path of a disk in the guest.
    ///
    /// # Errors
    /// [`Error::NoDisk`], also for a guest without disks.
    pub fn disk_path(&self, id: &str) -> Result<PathBuf> {
        let none = || {
            let hint = "; it has none at all".to_owned();
            Error::NoDisk { guest: self.node().name().to_owned(), disk: id.to_owned(), hint }
        };
        self.disks().ok_or_else(none)?.path(id)
    }

    /// As [`Disks::effective`]; nothing for a guest without disks.
    ///
    /// # Errors
    /// As [`Disks::effective`].
    pub fn effective(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
        self.disks().map_or(Ok(BTreeMap::new()), |disks| disks.effective())
    }

    /// As [`Images::exchange`].
    ///
    /// # Errors
    /// As [`Images::exchange`], also for a guest that cannot.
    pub fn exchange(&self, id: &str, storage: &Storage) -> Result<()> {
        let images = self.disks().and_then(|disks| disks.images()).ok_or_else(|| {
            let reason = "this kind of guest cannot exchange images while it runs".to_owned();
            Error::Spec { guest: format!("with disk {id}"), reason }
        })?;
        images.exchange(id, storage)
    }
}
