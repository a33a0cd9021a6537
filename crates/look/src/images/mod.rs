//! What the disks of running guests lie on: kind of storage, image format and chain, holes, and what
//! of them the host's page cache holds.
//!
//! A path is taken as the guest's process sees it: where that has a mount namespace of its own, it
//! is looked up through `/proc/PID/root`. Nothing is opened that the process does not have open for
//! reading ([`open`]), and no program is asked to open an image: its header is read here ([`header`]). An
//! image whose format is not stated is not looked into. One that several guests share is read once. Storage
//! that gives no answer is given up, and so is a guest that takes too long ([`HostView::charged`]).

use std::collections::BTreeMap;
use std::path::PathBuf;

use vmio_model::facts::{DeletedFile, Disk, Fact, Guest, Unread};

use crate::host_view::HostView;
use crate::parallel;
use crate::require::Fix;
use crate::storage::Storage;
use info::DEFAULT_L2_CACHE_BYTES;

mod cached;
mod header;
pub mod info;
mod open;
mod read;
mod view;

use cached::Span;
use read::Images;
pub use view::is_same_here;
use view::{Located, View};

/// Fills in what can be read of the guests' disks from the host.
pub fn fill(look: &HostView<'_>, guests: &mut [Guest]) {
    let views = view::of(look, guests);
    let images = Images::new(look);
    // A container's root is a directory or a mounted device, no image.
    let with_images = guests.iter().enumerate().filter(|(_, guest)| !guest.shares_kernel());
    let read = parallel::map(with_images.collect(), |(g, guest)| (g, images.of(guest, &views[g])));
    let files: BTreeMap<PathBuf, Span> =
        read.iter().flat_map(|(_, of)| of.disks.iter()).flat_map(|(_, found)| found.files.iter().cloned()).collect();
    let held = cached::held(look, files);
    for (g, of) in read {
        let guest = &mut guests[g];
        let mut unread = of.unread;
        for (d, found) in of.disks {
            found.put(&mut guest.disks[d], &held);
            unread.extend(found.unread);
            unread.extend(found.files.iter().filter_map(|(file, _)| held.get(file)?.as_ref().err()).cloned());
        }
        for one in unread {
            if !guest.unread.contains(&one) {
                guest.unread.push(one);
            }
        }
    }
}

/// A disk's storage on this machine.
#[derive(Debug, Clone)]
struct Wanted {
    /// Where it is.
    at: Located,
    /// How the guest's process calls it.
    named: PathBuf,
    format: Option<String>,
}

impl Wanted {
    /// `None` for what is no path: a server, a pool, nothing in the drive.
    fn of(look: &HostView<'_>, view: &View, disk: &Disk) -> Option<Result<Self, Unread>> {
        let source = disk.place.source.as_deref()?;
        let plain = ["file:", "host_device:"].iter().find_map(|p| source.strip_prefix(p)).unwrap_or(source);
        if plain.is_empty() || (!plain.starts_with('/') && plain.split('/').next()?.contains(':')) {
            return None;
        }
        let named = PathBuf::from(plain);
        let found = view.locate(look, &named).map_err(|why| Unread {
            what: format!("disk image {}", named.display()),
            why: why.to_string(),
            mend: Fix::RootThen("if that does not help, check the symbolic links of that path").words(look.reader()),
        });
        let format = disk.details.format.value().clone();
        Some(found.map(|at| Self { at, named, format }))
    }
}

/// Storage of a disk, as it was read.
#[derive(Debug, Default)]
struct DiskStorage {
    storage: Option<Storage>,
    format: Option<(String, String)>,
    virtual_bytes: Option<u64>,
    cluster_bytes: Option<u64>,
    backing_files: Option<u32>,
    allocated_bytes: Option<u64>,
    sparse: Option<bool>,
    thin: Option<bool>,
    /// The disk's files that were deleted though the guest has them open.
    deleted: Vec<DeletedFile>,
    /// `tmpfs`, `ramfs`: the disk lies in the host's memory.
    memory: Option<&'static str>,
    /// Files that the page cache may hold pieces of.
    files: Vec<(PathBuf, Span)>,
    unread: Vec<Unread>,
    read_from: String,
}

/// Takes a value where the disk has none, and notes where it was read.
macro_rules! put {
    ($into:expr, $value:expr, $from:expr) => {
        if $into.is_none()
            && let Some(value) = $value
        {
            $into = Fact::read(Some(value), $from);
        }
    };
}

impl DiskStorage {
    fn put(&self, disk: &mut Disk, held: &BTreeMap<PathBuf, cached::Held>) {
        let from = &self.read_from;
        if let Some(storage) = &self.storage {
            // "A block device" is what the command line says of every kind of it.
            if disk.details.storage.as_deref().is_none_or(|said| said == "block") {
                disk.details.storage = Fact::read(Some(storage.kind.to_owned()), &storage.read_from);
            }
            put!(disk.details.volblock_bytes, storage.volblock_bytes, &storage.read_from);
            put!(disk.details.thin, storage.thin, &storage.read_from);
            disk.place.block_device.get_or_insert(storage.block_device);
        }
        if let Some((format, from)) = &self.format {
            put!(disk.details.format, Some(format.clone()), from);
        }
        put!(disk.details.virtual_bytes, self.virtual_bytes, from);
        put!(disk.details.cluster_bytes, self.cluster_bytes, from);
        put!(disk.details.backing_files, self.backing_files, from);
        put!(disk.details.allocated_bytes, self.allocated_bytes, from);
        put!(disk.sparse, self.sparse, from);
        put!(disk.details.thin, self.thin, from);
        put!(disk.details.in_memory, self.memory.map(str::to_owned), "/proc/PID/mountinfo");
        if !self.deleted.is_empty() {
            let from = format!("/proc/{}/fd/{}", self.deleted[0].pid, self.deleted[0].fd);
            disk.details.deleted = Fact::read(self.deleted.clone(), from);
        }
        if disk.details.format.as_deref() == Some("qcow2") {
            let default = "QEMU's default since 3.1";
            put!(disk.details.l2_cache_bytes, Some(DEFAULT_L2_CACHE_BYTES), default);
        }
        let cached: Option<Vec<&(u64, &str)>> =
            self.files.iter().map(|(file, _)| held.get(file).and_then(|h| h.as_ref().ok())).collect();
        if let Some(cached) = cached.filter(|c| !c.is_empty()) {
            let bytes = cached.iter().map(|(bytes, _)| bytes).sum();
            put!(disk.details.host_cached_bytes, Some(bytes), cached[0].1);
        }
    }
}

#[cfg(test)]
mod tests;
