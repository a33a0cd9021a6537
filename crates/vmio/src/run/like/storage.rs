//! The storage of a guest's disk: the target of the same kind, and the place beside it.

use std::path::Path;

use vmio_look::{HostView, images};
use vmio_model::facts::{Disk, Guest};
use vmio_model::failure::{Exit, Failure};

use super::Host;

/// Bytes of an entry of a qcow2 image's L2 table (QEMU, docs/interop/qcow2.txt).
const L2_ENTRY_BYTES: u64 = 8;

/// The target, and where it is made.
pub(super) fn of(disk: &Disk, host: &Host, notes: &mut Vec<String>) -> Result<(String, Option<String>), Failure> {
    let place = &disk.place;
    let source = place.source.as_deref();
    let kind = || by_source(source?, place.block_device);
    let storage = disk.details.storage.as_deref().or_else(kind);
    let Some(storage) = storage else {
        let what = format!("cannot tell which storage {} is on", disk.subject);
        return Err(Failure::new(Exit::Precondition, what).help("`vmio scan` says what would let it be read"));
    };
    // Proxmox says in which of its storages a volume lies.
    let pve = place.volume.as_deref().and_then(|v| v.split_once(':')).map(|(storage, _)| format!("pve:{storage}"));
    let nowhere = |kind: &str, form: &str| {
        let what = format!("{} is on {kind}, but its pool could not be read", disk.subject);
        Failure::new(Exit::Usage, what).help(format!("name it with --on {form}"))
    };
    let qcow2 = disk.details.format.as_deref() == Some("qcow2");
    Ok(match storage {
        "file" => {
            let beside = pve.or_else(|| source.and_then(parent).filter(|dir| host.directories.contains(dir)));
            if beside.is_none() {
                let which = source.unwrap_or("its image");
                notes.push(format!(
                    "the directory of {which} is not known to be one of this host: storage where guest images are"
                ));
            }
            (file(disk, notes).to_owned(), beside)
        }
        // A qcow2 image inside of a volume: vmio makes such images in files alone.
        "block" | "lvm" | "lvm-thin" | "zvol" | "rbd" if qcow2 => {
            notes.push(format!("a qcow2 image on {storage}: vmio makes one in a file, where guest images are"));
            (file(disk, notes).to_owned(), None)
        }
        "lvm-thin" => {
            let found = pve.or_else(|| thin_pool(source?, host));
            ("lvm-thin".to_owned(), Some(found.ok_or_else(|| nowhere("a thin volume", "lvmthin:VG/POOL"))?))
        }
        "lvm" => {
            let found = pve.or_else(|| Some(format!("lvm:{}", group(source?)?)));
            ("lvm".to_owned(), Some(found.ok_or_else(|| nowhere("a logical volume", "lvm:VG"))?))
        }
        "zvol" => {
            if let Some(bytes) = *disk.details.volblock_bytes {
                notes.push(format!(
                    "blocks of {} KiB in the guest's volume are not copied: vmio's are as its place or ZFS has them",
                    bytes >> 10
                ));
            }
            let found = pve.or_else(|| Some(format!("zfs:{}", parent(source?.strip_prefix("/dev/zvol/")?)?)));
            ("zvol".to_owned(), Some(found.ok_or_else(|| nowhere("a ZFS volume", "zfs:POOL"))?))
        }
        "rbd" => {
            let pool = || {
                let (pool, _) = source?.trim_start_matches("rbd:").split_once('/')?;
                Some(format!("rbd:{pool}"))
            };
            ("rbd".to_owned(), Some(pve.or_else(pool).ok_or_else(|| nowhere("Ceph", "rbd:POOL"))?))
        }
        "block" => match source.and_then(group).map(|vg| format!("lvm:{vg}")).filter(|lvm| host.places.contains(lvm)) {
            Some(on) => ("lvm".to_owned(), Some(on)),
            None => {
                let which = source.unwrap_or("a device");
                notes.push(format!(
                    "{which} belongs to the guest: using vmio's own block device, where guest images are"
                ));
                ("device".to_owned(), None)
            }
        },
        other => {
            let what = format!("{} is on {other}, which vmio cannot create", disk.subject);
            return Err(Failure::new(Exit::Precondition, what)
                .help("`vmio tax --on PLACE` measures the reference guest on storage of this host"));
        }
    })
}

/// Directories of a guest's images in which storage can be made beside them. A relative path counts from
/// the directory of the guest's process, and in a pod the same path is another file: those are left out.
pub(super) fn directories(view: &HostView<'_>, guest: &Guest) -> Vec<String> {
    let sources = guest.disks.iter().filter_map(|d| d.place.source.as_deref());
    sources.filter(|source| images::is_same_here(view, guest, Path::new(source))).filter_map(parent).collect()
}

/// The kind of storage where only its path or address is known.
fn by_source(source: &str, block_device: Option<bool>) -> Option<&'static str> {
    match source {
        s if s.starts_with("/dev/zvol/") => Some("zvol"),
        s if s.starts_with("rbd:") => Some("rbd"),
        s if s.starts_with("/dev/") || block_device == Some(true) => Some("block"),
        s if s.starts_with('/') => Some("file"),
        _ => None,
    }
}

/// The target of an image in a file.
fn file(disk: &Disk, notes: &mut Vec<String>) -> &'static str {
    let d = &disk.details;
    match d.format.as_deref() {
        Some("qcow2") => {
            let tables = d.virtual_bytes.zip(d.cluster_bytes.filter(|b| *b > 0));
            let tables = tables.map(|(disk, cluster)| disk.div_ceil(cluster) * L2_ENTRY_BYTES);
            if d.backing_files.is_some_and(|n| n > 0) {
                "qcow2-chain"
            } else if tables.zip(*d.l2_cache_bytes).is_some_and(|(tables, cache)| cache < tables) {
                "qcow2-small-l2"
            } else if d.cluster_bytes == Some(2 << 20) {
                "qcow2-2m"
            } else {
                "qcow2"
            }
        }
        Some("raw") => match *disk.sparse {
            Some(true) => "sparse",
            Some(false) => "preallocated",
            None => {
                notes.push("whether the file is sparse was not read: a preallocated one is used".to_owned());
                "preallocated"
            }
        },
        Some(other) => {
            notes.push(format!("{other} is a format vmio cannot create: a qcow2 image is used instead"));
            "qcow2"
        }
        None => {
            notes.push("the image's format was not read: a fully written raw file is used".to_owned());
            "preallocated"
        }
    }
}

/// The directory of a file, the dataset of a volume.
fn parent(path: &str) -> Option<String> {
    let parent = Path::new(path).parent()?.display().to_string();
    (!parent.is_empty()).then_some(parent)
}

/// The volume group of `/dev/VG/LV` or `/dev/mapper/VG-LV`, where hyphens of names are doubled
/// (lvm(8)).
fn group(source: &str) -> Option<String> {
    if let Some(name) = source.strip_prefix("/dev/mapper/") {
        let mask = name.replace("--", "\u{0}");
        return Some(mask.split_once('-')?.0.replace('\u{0}', "-"));
    }
    let (group, volume) = source.strip_prefix("/dev/")?.split_once('/')?;
    (!volume.contains('/') && !["disk", "block", "zvol"].contains(&group)).then(|| group.to_owned())
}

/// The thin pool of a volume's group, if there is but one.
fn thin_pool(source: &str, host: &Host) -> Option<String> {
    let prefix = format!("lvmthin:{}/", group(source)?);
    let mut pools = host.places.iter().filter(|p| p.starts_with(&prefix));
    let pool = pools.next()?;
    pools.next().is_none().then(|| pool.clone())
}
