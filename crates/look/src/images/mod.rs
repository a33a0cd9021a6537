//! Storage of running guests' disks: its kind, image format and chain, holes, and what the host's page cache holds of
//! it.
//!
//! A path is resolved as the guest's process sees it: through `/proc/PID/root` where it has a mount namespace of its
//! own. Only files that the process has open for reading are opened ([`open`]), and image headers are parsed here
//! ([`header`]). An image without a stated format is not read. One that several guests share is read once. Storage that
//! does not answer, and a guest that takes too long ([`HostView::charged`]), are given up.

use std::collections::BTreeMap;
use std::path::PathBuf;

use vmio_model::facts::{Below, DeletedFile, Disk, Fact, Guest, Unread};

use crate::host_view::HostView;
use crate::parallel;
use crate::require::Fix;
use crate::storage::Storage;
use info::DEFAULT_L2_CACHE_BYTES;

mod below;
mod cached;
mod header;
pub mod info;
mod open;
mod read;
mod view;

pub(crate) use below::mounted;
use cached::Span;
use read::Images;
pub use view::is_same_here;
use view::{Located, View};

/// Fills in what the host's files show of the guests' disks.
pub fn fill(host: &HostView<'_>, guests: &mut [Guest]) {
    let views = view::of(host, guests);
    let images = Images::new(host);
    // A container's root is a directory or a mounted device, not an image.
    let with_images = guests.iter().enumerate().filter(|(_, guest)| !guest.shares_kernel());
    let read = parallel::map(with_images.collect(), |(g, guest)| (g, images.of(guest, &views[g])));
    let files: BTreeMap<PathBuf, Span> =
        read.iter().flat_map(|(_, of)| of.disks.iter()).flat_map(|(_, found)| found.files.iter().cloned()).collect();
    let held = cached::held(host, files);
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

/// A disk's file or device.
#[derive(Debug, Clone)]
struct DiskFile {
    /// Path on this machine.
    at: Located,
    /// Path as the guest's process names it.
    named: PathBuf,
    format: Option<String>,
}

impl DiskFile {
    /// `None` where there is no path: a server, a pool, an empty drive.
    fn of(host: &HostView<'_>, view: &View, disk: &Disk) -> Option<Result<Self, Unread>> {
        let source = disk.place.source.as_deref()?;
        let plain = ["file:", "host_device:"].iter().find_map(|p| source.strip_prefix(p)).unwrap_or(source);
        if plain.is_empty() || (!plain.starts_with('/') && plain.split('/').next()?.contains(':')) {
            return None;
        }
        let named = PathBuf::from(plain);
        let found = view.locate(host, &named).map_err(|why| Unread {
            what: format!("disk image {}", named.display()),
            why: why.to_string(),
            mend: Fix::RootThen("if that does not help, check the symbolic links of that path").remedy(host.reader()),
        });
        let format = disk.details.format.value().clone();
        Some(found.map(|at| Self { at, named, format }))
    }
}

/// Storage of a disk, as read.
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
    /// Files of the disk that were deleted while the guest has them open.
    deleted: Vec<DeletedFile>,
    /// `tmpfs`, `ramfs`: the disk lies in the host's memory.
    memory: Option<&'static str>,
    below: Below,
    /// Files of which the page cache may hold pages.
    files: Vec<(PathBuf, Span)>,
    unread: Vec<Unread>,
    read_from: String,
}

/// Sets a fact that the disk does not have yet.
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
    fn put(&self, disk: &mut Disk, held: &BTreeMap<PathBuf, cached::CachedBytes>) {
        let from = &self.read_from;
        if let Some(storage) = &self.storage {
            // A command line's `block` is replaced by the kind that sysfs shows.
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
        disk.details.below.fill(self.below.clone(), &disk.from);
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
