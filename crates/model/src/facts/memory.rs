//! Where a guest's memory is: what its balloon leaves it, what the guest itself says of it, and which of its reads the
//! host's page cache answers instead of the guest's own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Disk, Processors};

/// A guest's balloon (virtio 1.2, section 5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Balloon {
    /// Memory that it leaves the guest, as the guest's driver says (QMP `query-balloon`, `actual`).
    pub actual_bytes: u64,
    /// What the guest's driver reports; null where nobody has it polled, or it names more than the guest has.
    pub statistics: Option<GuestMemory>,
}

impl Balloon {
    /// One whose driver reports this. A guest may write any number: a report of more than it has says nothing.
    pub fn reporting(actual_bytes: u64, statistics: Option<GuestMemory>) -> Self {
        let is_within = |guest: &GuestMemory| {
            let all = [Some(guest.free_bytes), guest.available_bytes, guest.cache_bytes];
            all.into_iter().flatten().all(|bytes| bytes <= actual_bytes)
        };
        Self { actual_bytes, statistics: statistics.filter(is_within) }
    }
}

/// A guest's memory as its own kernel counts it (virtio 1.2, section 5.5.6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestMemory {
    /// Memory that it uses for nothing.
    pub free_bytes: u64,
    /// What it could use without swapping, its page cache included; null where its kernel does not tell.
    pub available_bytes: Option<u64>,
    /// Its page cache; null where its kernel does not tell.
    pub cache_bytes: Option<u64>,
    /// When it told, in seconds since the epoch.
    pub at_unix_seconds: u64,
    /// Page faults that read from a disk, since it was started; null where its kernel does not tell.
    #[serde(default)]
    pub major_faults: Option<u64>,
    /// What it read back from swap since then; null where its kernel does not tell.
    #[serde(default)]
    pub swapped_in_bytes: Option<u64>,
}

/// Reads of a guest through the host's page cache, since some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedReads {
    /// Bytes that it read from disks that the host caches.
    pub asked_bytes: u64,
    /// Bytes that storage read for its process, whatever for: read-ahead and disks that the host does not cache count,
    /// too.
    pub storage_bytes: u64,
}

impl CachedReads {
    /// Those of a guest with these disks since its process started; `None` where unknown.
    pub fn of(p: &Processors, disks: &[&Disk]) -> Option<Self> {
        let read = disks.iter().filter(|disk| disk.is_host_cached()).filter_map(|disk| *disk.details.read_bytes);
        Some(Self { asked_bytes: read.fold(0, u64::saturating_add), storage_bytes: (*p.storage_read_bytes)? })
    }

    /// Percent of what the guest read that storage did not have to read, rounded down: a lower bound, but for unwritten
    /// parts of an image, which are on no storage. `None` where it read nothing.
    pub fn hits_percent(&self) -> Option<u64> {
        let hits = u128::from(self.asked_bytes.saturating_sub(self.storage_bytes));
        (hits * 100).checked_div(u128::from(self.asked_bytes)).and_then(|percent| u64::try_from(percent).ok())
    }
}

/// Storage that QEMU itself speaks to by network or socket, cached in QEMU's memory (librbd) or by the server. A block
/// device of such storage has the page cache above it.
const NOT_CACHED: [&str; 10] = ["rbd", "nbd", "iscsi", "http", "https", "ftp", "ssh", "gluster", "nfs", "vhost-user"];

impl Disk {
    /// Whether its storage is one that the host's page cache lies above, where the cache mode lets it.
    pub fn is_cacheable(&self) -> bool {
        let by_qemu = self.details.storage.as_deref().is_some_and(|s| NOT_CACHED.contains(&s));
        !by_qemu || self.place.block_device == Some(true)
    }

    /// Whether it is known to go through the host's page cache, and what that lacks is read for the guest's own
    /// process: a file system in user space (FUSE) reads in its daemon's name.
    pub fn is_host_cached(&self) -> bool {
        let by_daemon = self.details.filesystem().is_some_and(|name| name.starts_with("fuse") || name == "virtiofs");
        self.cache.is_some() && !self.is_direct() && self.is_cacheable() && !by_daemon
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_what_storage_did_not_read() {
        let percent = |asked_bytes, storage_bytes| CachedReads { asked_bytes, storage_bytes }.hits_percent();
        assert_eq!([percent(1000, 171), percent(1000, 0), percent(1000, 1000)], [Some(82), Some(100), Some(0)]);
        // Read-ahead may read more than was asked for.
        assert_eq!([percent(1000, 5000), percent(0, 10), percent(u64::MAX, 1)], [Some(0), None, Some(99)]);
    }

    #[test]
    fn a_report_of_more_than_the_guest_has_says_nothing() {
        let told = |free_bytes, available_bytes, cache_bytes| {
            let guest = GuestMemory {
                free_bytes,
                available_bytes,
                cache_bytes,
                at_unix_seconds: 1,
                major_faults: None,
                swapped_in_bytes: None,
            };
            Balloon::reporting(4096, Some(guest)).statistics.is_some()
        };
        assert!(told(4096, Some(4096), Some(0)) && told(0, None, None));
        assert!(!told(4097, None, None) && !told(0, Some(u64::MAX), None) && !told(0, None, Some(4097)));
        assert_eq!(Balloon::reporting(1, None), Balloon { actual_bytes: 1, statistics: None });
    }
}
