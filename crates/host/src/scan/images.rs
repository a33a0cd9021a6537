//! What the disks of running guests lie on: kind of storage, image format and chain, holes, and what
//! of them the host's page cache holds.
//!
//! A path is taken as the guest's process sees it: where that has a mount namespace of its own, it
//! is looked up through `/proc/PID/root`. An image whose format is not stated is not opened. One that several guests share is read once. What
//! lies on a file server is only asked through `qemu-img`, whose process can be ended when the
//! server is dead; a system call of our own could not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use vmio_model::facts::{Disk, Guest, Unread};

use super::storage::{self, Storage};
use crate::image_info::{self, DEFAULT_L2_CACHE_BYTES, Error, Image};
use crate::look::Look;
use crate::parallel;

mod cached;
mod view;

use cached::Span;
pub use view::is_same_here;
use view::{Located, View};

/// Fills in what can be read of the guests' disks from the host.
pub fn fill(look: &Look<'_>, guests: &mut [Guest]) {
    let views = view::of(look, guests);
    let mut wanted: BTreeSet<Wanted> = BTreeSet::new();
    let (mut users, mut missing) = (Vec::new(), Vec::new());
    // A container's root is a directory or a mounted device, no image.
    for (g, guest) in guests.iter().enumerate().filter(|(_, guest)| guest.kind != "container") {
        for (d, disk) in guest.disks.iter().enumerate() {
            match Wanted::of(look, &views[g], disk) {
                Some(Ok(want)) => {
                    wanted.insert(want.clone());
                    users.push((g, d, want));
                }
                Some(Err(unread)) => missing.push((g, unread)),
                None => {}
            }
        }
    }
    for (g, unread) in missing {
        guests[g].unread.push(unread);
    }
    let images = Images { look, seen: Mutex::default(), dead: Mutex::default() };
    let wanted: Vec<Wanted> = wanted.into_iter().collect();
    let found: BTreeMap<&Wanted, Found> =
        wanted.iter().zip(parallel::map(wanted.iter().collect(), |want| images.look_at(want))).collect();
    let files: BTreeMap<PathBuf, Span> = found.values().flat_map(|f| f.files.iter().cloned()).collect();
    let held = cached::held(look, &files);
    for (g, d, want) in users {
        let Some(found) = found.get(&want) else { continue };
        found.put(&mut guests[g].disks[d], &held);
        for unread in found.unread.iter().chain(found.files.iter().filter_map(|(f, _)| held.get(f)?.as_ref().err())) {
            if !guests[g].unread.contains(unread) {
                guests[g].unread.push(unread.clone());
            }
        }
    }
}

/// A disk's storage on this machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    /// Where it is.
    at: Located,
    /// How the guest's process calls it.
    named: PathBuf,
    view: Arc<View>,
    format: Option<String>,
}

impl Wanted {
    /// `None` for what is no path: a server, a pool, nothing in the drive.
    fn of(look: &Look<'_>, view: &Arc<View>, disk: &Disk) -> Option<Result<Self, Unread>> {
        let source = disk.place.source.as_deref()?;
        let plain = ["file:", "host_device:"].iter().find_map(|p| source.strip_prefix(p)).unwrap_or(source);
        if plain.is_empty() || (!plain.starts_with('/') && plain.split('/').next()?.contains(':')) {
            return None;
        }
        let named = PathBuf::from(plain);
        let found = view.locate(look, &named).map_err(|why| Unread {
            what: format!("disk image {}", named.display()),
            why,
            mend: "run as root; if that does not help, check the symbolic links of that path".into(),
        });
        let format = disk.details.format.clone();
        Some(found.map(|at| Self { at, named, view: Arc::clone(view), format }))
    }
}

/// What was found of a disk's storage.
#[derive(Debug, Default)]
struct Found {
    storage: Option<Storage>,
    format: Option<(String, String)>,
    virtual_bytes: Option<u64>,
    cluster_bytes: Option<u64>,
    backing_files: Option<u32>,
    allocated_bytes: Option<u64>,
    sparse: Option<bool>,
    thin: Option<bool>,
    /// Files that the page cache may hold pieces of.
    files: Vec<(PathBuf, Span)>,
    unread: Vec<Unread>,
    read_from: String,
}

/// Takes a value where the disk has none, and notes where it was read.
macro_rules! put {
    ($disk:ident, $into:expr, $name:literal, $value:expr, $from:expr) => {
        if $into.is_none()
            && let Some(value) = $value
        {
            $into = Some(value);
            $disk.read.insert($name.to_owned(), $from.to_owned());
        }
    };
}

impl Found {
    fn put(&self, disk: &mut Disk, held: &BTreeMap<PathBuf, cached::Held>) {
        let from = &self.read_from;
        if let Some(storage) = &self.storage {
            // "A block device" is what the command line says of every kind of it.
            if disk.details.storage.as_deref().is_none_or(|said| said == "block") {
                disk.details.storage = Some(storage.kind.to_owned());
                disk.read.insert("storage".to_owned(), storage.read_from.clone());
            }
            put!(disk, disk.details.volblock_bytes, "volblock_bytes", storage.volblock_bytes, &storage.read_from);
            put!(disk, disk.details.thin, "thin", storage.thin, &storage.read_from);
            disk.place.block_device.get_or_insert(storage.block_device);
        }
        if let Some((format, from)) = &self.format {
            put!(disk, disk.details.format, "format", Some(format.clone()), from);
        }
        put!(disk, disk.details.virtual_bytes, "virtual_bytes", self.virtual_bytes, from);
        put!(disk, disk.details.cluster_bytes, "cluster_bytes", self.cluster_bytes, from);
        put!(disk, disk.details.backing_files, "backing_files", self.backing_files, from);
        put!(disk, disk.details.allocated_bytes, "allocated_bytes", self.allocated_bytes, from);
        put!(disk, disk.sparse, "sparse", self.sparse, from);
        put!(disk, disk.details.thin, "thin", self.thin, from);
        if disk.details.format.as_deref() == Some("qcow2") {
            let default = "QEMU's default since 3.1";
            put!(disk, disk.details.l2_cache_bytes, "l2_cache_bytes", Some(DEFAULT_L2_CACHE_BYTES), default);
        }
        let cached: Option<Vec<&(u64, &str)>> =
            self.files.iter().map(|(file, _)| held.get(file).and_then(|h| h.as_ref().ok())).collect();
        if let Some(cached) = cached.filter(|c| !c.is_empty()) {
            let bytes = cached.iter().map(|(bytes, _)| bytes).sum();
            put!(disk, disk.details.host_cached_bytes, "host_cached_bytes", Some(bytes), cached[0].1);
        }
    }
}

/// One reading of an image, for all who want it.
type Once = Arc<OnceLock<Result<Image, Error>>>;

/// Images that were read, so that one that many guests share is read once.
struct Images<'a> {
    look: &'a Look<'a>,
    seen: Mutex<BTreeMap<(PathBuf, String), Once>>,
    /// Mount points of servers that gave no answer; they are not asked again.
    dead: Mutex<BTreeSet<PathBuf>>,
}

impl Images<'_> {
    fn image(&self, path: &Path, format: &str) -> Result<Image, Error> {
        let key = (path.to_owned(), format.to_owned());
        let once = Arc::clone(self.seen.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
        once.get_or_init(|| image_info::image(self.look, path, Some(format))).clone()
    }

    fn look_at(&self, want: &Wanted) -> Found {
        let mut found = Found::default();
        let what = || format!("storage {}", want.named.display());
        if let Some(mount) = want.view.server(&want.at) {
            return self.on_server(want, &mount.point, &mount.server);
        }
        let stat = match self.look.reader().stat_foreign(&want.at.here) {
            Ok(Some(stat)) => stat,
            Ok(None) => {
                let gone = Error::Missing { path: want.named.clone() };
                found.unread.push(gone.unread(&want.named));
                return found;
            }
            Err(e) => {
                let mend = "run as root".to_owned();
                found.unread.push(Unread { what: what(), why: e.to_string(), mend });
                return found;
            }
        };
        if !storage::holds_data(&stat) {
            return found; // a device of requests, such as /dev/sg0
        }
        let local = |bytes| Span { bytes, remote: false };
        let storage = storage::of(self.look.reader(), &stat);
        let span = storage.bytes.unwrap_or(stat.size);
        let allocated = (!storage.block_device).then_some(stat.allocated);
        match want.format.as_deref() {
            Some("raw") => {
                found.raw(span, allocated);
                found.read_from = format!("stat {}", want.at.here.display());
                found.files.push((want.at.here.clone(), local(span)));
            }
            Some(format) => self.images(want, format, &mut found, allocated, local(span)),
            None => {
                found.unread.push(probed(&want.named));
                (found.allocated_bytes, found.read_from) = (allocated, format!("stat {}", want.at.here.display()));
                found.files.push((want.at.here.clone(), local(span)));
            }
        }
        if matches!(want.view.filesystem(&want.at), Some("zfs" | "btrfs")) && !storage.block_device {
            // They compress: fewer bytes than the disk has need be no holes.
            (found.sparse, found.thin) = (None, None);
        }
        found.storage = Some(storage);
        found
    }

    /// What lies on a file server is asked of nobody but qemu-img, and no longer once it hangs.
    fn on_server(&self, want: &Wanted, point: &Path, server: &str) -> Found {
        let mut found = Found::default();
        let dead = || self.dead.lock().unwrap_or_else(PoisonError::into_inner);
        if dead().contains(point) {
            let what = format!("disk image {}", want.named.display());
            let mend = "check that the server is reachable".to_owned();
            found.unread.push(Unread { what, why: format!("{server} does not answer"), mend });
            return found;
        }
        let Some(format) = want.format.as_deref() else {
            found.unread.push(probed(&want.named));
            found.storage = Some(storage::on_server(server));
            return found;
        };
        match self.image(&want.at.here, format) {
            Ok(top) if top.format == "raw" => {
                found.raw(top.virtual_bytes, Some(top.allocated_bytes));
                found.format = Some((top.format, format!("qemu-img info {}", want.at.here.display())));
                found.read_from = format!("qemu-img info {}", want.at.here.display());
                found.files.push((want.at.here.clone(), Span { bytes: top.virtual_bytes, remote: true }));
            }
            Ok(top) => {
                let span = Span { bytes: top.allocated_bytes, remote: true };
                self.images(want, format, &mut found, Some(top.allocated_bytes), span);
            }
            Err(e) => {
                if matches!(&e, Error::NotReadable { reason, .. } if reason.contains("may hang")) {
                    dead().insert(point.to_owned());
                }
                found.unread.push(e.unread(&want.named));
                return found;
            }
        }
        found.storage = Some(storage::on_server(server));
        found
    }

    /// Image and chain as qemu-img has them.
    fn images(&self, want: &Wanted, format: &str, found: &mut Found, allocated: Option<u64>, span: Span) {
        let top = match self.image(&want.at.here, format) {
            Ok(top) => top,
            Err(e) => return found.unread.push(e.unread(&want.named)),
        };
        found.read_from = format!("qemu-img info {}", want.at.here.display());
        found.format = Some((top.format.clone(), found.read_from.clone()));
        if top.format == "raw" {
            found.raw(top.virtual_bytes, allocated);
            return found.files.push((want.at.here.clone(), span));
        }
        found.virtual_bytes = Some(top.virtual_bytes);
        found.cluster_bytes = top.cluster_bytes;
        found.thin = allocated.map(|bytes| bytes < top.virtual_bytes);
        let here = |path: PathBuf| match want.view.locate(self.look, &path) {
            Ok(found) => Ok(found.here),
            Err(reason) => Err(Error::NotReadable { path, reason }),
        };
        // Only the first may have no format said, and this one has.
        let image = |path: &Path, named: Option<&str>| self.image(path, named.unwrap_or(format));
        match image_info::follow(&want.at.here, Some(format), image, &here) {
            Ok(chain) => {
                found.backing_files = Some((chain.len() - 1) as u32);
                found.allocated_bytes = Some(chain.iter().map(|i| i.allocated_bytes).sum());
                let of = |i: &Image| (i.path.clone(), Span { bytes: i.allocated_bytes, ..span });
                let spans = chain.iter().map(of);
                found.files.extend(spans);
            }
            Err(e) => {
                found.allocated_bytes = allocated;
                found.unread.push(e.unread(&want.named));
            }
        }
    }
}

/// An image whose format nobody stated. Looking at what is in it would believe a guest, which can
/// write a header of any format on a raw disk, with any file of this machine below it.
fn probed(named: &Path) -> Unread {
    Unread {
        what: format!("format of the disk image {}", named.display()),
        why:
            "the guest's configuration does not state it, and probing it would mean trusting data written by the guest"
                .into(),
        mend: "state it: format=raw or format=qcow2 (QEMU itself warns when it has to guess)".into(),
    }
}

impl Found {
    /// Sizes of a raw disk; `allocated` where it lies in a file.
    fn raw(&mut self, bytes: u64, allocated: Option<u64>) {
        self.virtual_bytes = Some(bytes).filter(|b| *b > 0);
        self.allocated_bytes = allocated;
        self.sparse = allocated.map(|allocated| allocated < bytes);
        self.thin = self.sparse;
        self.backing_files = Some(0);
    }
}

#[cfg(test)]
mod tests;
