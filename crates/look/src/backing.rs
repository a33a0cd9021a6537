//! From a path to the disks below it, whose counters a run watches.
//!
//! A file lies on the device of its file system; a partition on its disk; a loop device on the storage of its file;
//! device-mapper (LVM, LUKS, multipath) and md devices on their `slaves`, down to the leaves (kernel document
//! ABI/stable/sysfs-block). `zpool` names the disks of a ZFS pool; for a file on NFS the client's counters of the mount
//! are used. Storage without counters (overlay, memory, a Ceph cluster) is reported as not visible.

use std::collections::BTreeMap;
use std::path::Path;

use vmio_node::linux::block::{self, DEEPEST, Device};
use vmio_node::linux::device::Number;
use vmio_node::linux::mounts::{self, Mount};
use vmio_node::{Questions, Reader, Result, held};

mod not_visible;
pub mod zfs;

pub use not_visible::NotVisible;

/// The disks below a path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Backing {
    /// Leaves: (major, minor) by kernel name (`vda`, `nvme0n1`). Empty where not visible.
    pub leaves: BTreeMap<String, (u32, u32)>,
    /// Kernel names of all devices from the top to the leaves, both included.
    pub way: Vec<String>,
    /// Type of the file system that holds the path; empty for a device.
    pub filesystem: String,
    /// Its mount point; empty for a device.
    pub mount: String,
    /// The NFS server that holds it, as `server:/export`: then there are no leaves, and the
    /// client's counters of the mount say what was moved.
    pub nfs: Option<String>,
    /// Loop devices whose own counters are read because their files lie on a file system without any; with its type.
    pub own_counters: BTreeMap<String, String>,
    /// Description of vmio's own modelled disk; `None` for the host's storage.
    pub modelled: Option<String>,
    /// Why no leaves are visible.
    pub not_visible: Option<NotVisible>,
}

impl Backing {
    /// Resolves a file, directory or block device, which must exist.
    ///
    /// # Errors
    /// When the path is missing or `/proc` or `/sys` cannot be read.
    pub fn of(reader: &dyn Reader, path: &Path) -> Result<Self> {
        let mut backing = Self::default();
        let walk = BackingWalk { reader };
        let stat = walk.stat(path)?;
        let found = if stat.is_block() {
            walk.device(stat.rdev, DEEPEST, &mut backing)
        } else {
            // A path through a descriptor is replaced by the file's name.
            let mount = walk.mount(&held::shown(path), stat.dev)?;
            let found = walk.mounted(stat.dev, &mount, DEEPEST, &mut backing);
            backing.filesystem = mount.filesystem;
            backing.mount = mount.point.display().to_string();
            found
        };
        match found {
            Ok(()) => {}
            Err(_) if backing.filesystem.starts_with("nfs") => {
                let mount = walk.mount(&held::shown(path), stat.dev)?;
                backing.nfs = Some(mount.source);
            }
            Err(reason) => {
                backing.leaves.clear();
                backing.not_visible = Some(reason);
            }
        }
        Ok(backing)
    }

    /// As [`Backing::of`], and asks ZFS for the disks of its pools.
    ///
    /// # Errors
    /// As [`Backing::of`].
    pub fn below(node: &dyn Questions, path: &Path) -> Result<Self> {
        let mut backing = Self::of(node, path)?;
        let dataset = match &backing {
            Self { filesystem, mount, .. } if filesystem == "zfs" => {
                mounts::own(node)?.into_iter().rfind(|m| m.point == Path::new(mount)).map(|m| m.source)
            }
            Self { not_visible: Some(_), way, .. } if way.last().is_some_and(|n| block::is_zvol(n)) => {
                zfs::dataset_of(node, path)
            }
            _ => None,
        };
        match dataset.map(|dataset| zfs::leaves(node, &dataset)) {
            Some(Ok(found)) => {
                backing.not_visible = None;
                backing.add(found);
            }
            Some(Err(reason)) => backing.not_visible = Some(reason),
            None => {}
        }
        Ok(backing)
    }

    /// As it is, and not visible where a disk's counters are switched off: they stand still, as if it were at rest.
    #[must_use]
    pub fn counted(mut self, reader: &dyn Reader) -> Self {
        let off = self.leaves.keys().find(|disk| Device::whole(reader, disk).counts() == Some(false));
        self.not_visible = self.not_visible.take().or(off.cloned().map(NotVisible::CountersOff));
        self
    }

    /// Adds the disks of another one.
    pub fn add(&mut self, other: Self) {
        self.leaves.extend(other.leaves);
        self.way.extend(other.way);
        self.own_counters.extend(other.own_counters);
        self.modelled = self.modelled.take().or(other.modelled);
        self.not_visible = self.not_visible.take().or(other.not_visible);
    }

    /// One line for the environment of a run: `vda (ext4 at /)`.
    pub fn describe(&self) -> String {
        let names: Vec<&str> = self.leaves.keys().map(String::as_str).collect();
        let devices = match (&self.not_visible, &self.nfs) {
            (Some(reason), _) => format!("not visible here: {reason}"),
            (None, Some(server)) => format!("NFS server {server}"),
            (None, None) => names.join("+"),
        };
        let own = |(name, below): (&String, &String)| format!("{name}'s own counters, for {below} below it has none");
        let own: Vec<String> = self.own_counters.iter().map(own).collect();
        let devices = if own.is_empty() { devices } else { format!("{devices} ({})", own.join(", ")) };
        if let Some(modelled) = &self.modelled {
            let on = if devices.is_empty() { String::new() } else { format!(": {devices}") };
            return format!("a modelled disk ({modelled}){on}");
        }
        if self.filesystem.is_empty() { devices } else { format!("{devices} ({} at {})", self.filesystem, self.mount) }
    }
}

/// Whether the disks below have a volatile write cache that the kernel flushes: `write back` where
/// any of them has, `write through` where none has, `None` where it cannot be read
/// (`queue/write_cache`; kernel document ABI/stable/sysfs-block).
pub fn write_cache(reader: &dyn Reader, backing: &Backing) -> Option<String> {
    let of = |disk: &String| Device::whole(reader, disk).write_cache();
    let all: Vec<String> = backing.leaves.keys().map(of).collect::<Option<_>>()?;
    all.iter().find(|word| *word != "write through").or(all.first()).cloned()
}

/// A disk below that is flash (not rotational) and has a volatile write cache, as disks for consumers have:
/// `queue/rotational` 0 and `queue/write_cache` `write back`.
pub fn flash_with_write_cache(reader: &dyn Reader, backing: &Backing) -> Option<String> {
    let flash = |disk: &&String| {
        let disk = Device::whole(reader, disk);
        disk.is_rotational() == Some(false) && disk.write_cache().as_deref() == Some("write back")
    };
    backing.leaves.keys().find(flash).cloned()
}

/// Walks from a file or a device down to the disks below it.
struct BackingWalk<'a> {
    reader: &'a dyn Reader,
}

impl BackingWalk<'_> {
    fn stat(&self, path: &Path) -> Result<vmio_node::FileStat> {
        self.reader.stat(path)?.ok_or_else(|| vmio_node::Error::File {
            node: self.reader.name().into(),
            what: "find",
            path: path.into(),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }

    /// The mount that holds a path: of the mounts of its device (bind mounts share one) the one with the longest mount
    /// point above the path.
    fn mount(&self, path: &Path, dev: Number) -> Result<Mount> {
        let all = mounts::own(self.reader)?;
        let above = |m: &&Mount| path.starts_with(&m.point);
        let longest = |m: &&Mount| m.point.as_os_str().len();
        // btrfs subvolumes have device numbers that no mount has: then the path decides.
        let found = all.iter().filter(|m| m.dev == dev).filter(above).max_by_key(longest);
        let found = found.or_else(|| all.iter().find(|m| m.dev == dev));
        let found = found.or_else(|| all.iter().filter(above).max_by_key(longest));
        let unknown = Mount {
            dev,
            root: "/".into(),
            point: "?".into(),
            filesystem: "unknown file system".into(),
            source: String::new(),
            read_only: false,
            options: String::new(),
        };
        Ok(found.cloned().unwrap_or(unknown))
    }

    fn mounted(&self, dev: Number, mount: &Mount, depth: u32, into: &mut Backing) -> WalkResult {
        if mount.filesystem == "btrfs" {
            return self.btrfs(Path::new(&mount.source), depth, into);
        }
        // Major 0 is for file systems without a block device (kernel document devices.txt).
        if dev.0 == 0 {
            return Err(NotVisible::NoDevice(mount.filesystem.clone()));
        }
        self.device(dev, depth, into)
    }

    /// All devices of the btrfs that `source` is one of.
    fn btrfs(&self, source: &Path, depth: u32, into: &mut Backing) -> WalkResult {
        let name = source.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if let Some(devices) = block::btrfs_devices(self.reader, name) {
            return devices.iter().try_for_each(|d| self.named(d, depth, into));
        }
        match self.reader.stat(source) {
            Ok(Some(stat)) if stat.is_block() => self.device(stat.rdev, depth, into),
            _ => Err(NotVisible::Btrfs(source.to_owned())),
        }
    }

    fn device(&self, dev: Number, depth: u32, into: &mut Backing) -> WalkResult {
        let device = Device::numbered(self.reader, dev);
        let name = device.node_name()?.ok_or_else(|| NotVisible::NoName(device.dir.clone()))?;
        self.named(&block::sysfs_name(&name), depth, into)
    }

    fn named(&self, name: &str, depth: u32, into: &mut Backing) -> WalkResult {
        let depth = depth.checked_sub(1).ok_or_else(|| NotVisible::TooDeep(name.to_owned()))?;
        let here = Device::whole(self.reader, name);
        if !here.is_there() {
            let disk = block::disk_of(self.reader, name);
            return self.named(&disk.ok_or_else(|| NotVisible::Unknown(name.to_owned()))?, depth, into);
        }
        let number = || here.number().ok_or_else(|| NotVisible::NoNumber(here.dir.clone()));
        if let Some(block::LoopFile { shown: file, .. }) = here.loop_file() {
            into.way.push(name.to_owned());
            let lost = |e: vmio_node::Error| NotVisible::LoopFile { device: name.to_owned(), why: e.to_string() };
            let stat = self.stat(&file).map_err(lost)?;
            if stat.is_block() {
                return self.device(stat.rdev, depth, into);
            }
            let mount = self.mount(&file, stat.dev)?;
            if !without_counters(&mount) {
                return self.mounted(stat.dev, &mount, depth, into);
            }
            into.leaves.insert(name.to_owned(), number()?);
            into.own_counters.insert(name.to_owned(), mount.filesystem);
            return Ok(());
        }
        into.way.push(name.to_owned());
        let slaves = here.slaves();
        if !slaves.is_empty() {
            return slaves.iter().try_for_each(|slave| self.named(slave, depth, into));
        }
        if block::is_zvol(name) {
            return Err(NotVisible::Zvol(name.to_owned()));
        }
        into.leaves.insert(name.to_owned(), number()?);
        Ok(())
    }
}

/// Whether nothing below a file system counts its traffic: it has no block device (major 0; kernel document
/// devices.txt), lists none (btrfs, ZFS) and is no network mount, whose client counts.
fn without_counters(mount: &Mount) -> bool {
    let counted = ["btrfs", "zfs"].contains(&mount.filesystem.as_str()) || mount.filesystem.starts_with("nfs");
    mount.dev.0 == 0 && !counted
}

type WalkResult = std::result::Result<(), NotVisible>;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_node::fake::Tree;

    const MOUNTS: &str = "\
22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/mapper/vg-root rw
23 22 0:21 / /srv/nfs rw - nfs4 server:/export rw
24 22 0:30 / /tank rw - zfs tank rw
25 22 0:40 /sub /data rw - btrfs /dev/sdc rw
26 22 0:41 / /dev/shm rw - tmpfs tmpfs rw
27 22 0:42 / /var/lib/docker/overlay2 rw - overlay overlay rw
29 22 0:43 / /modelled rw - fuse.vmio vmio rw
28 22 8:33 / /with\\040space rw - xfs /dev/sdc1 rw
";

    #[test]
    fn flash_with_a_volatile_write_cache_is_told_from_other_disks() {
        let disk = |rotational: &str, cache: &str| {
            let queue = [("/sys/block/sda/queue/rotational", rotational), ("/sys/block/sda/queue/write_cache", cache)];
            let backing = Backing { leaves: [("sda".to_owned(), (8, 0))].into(), ..Backing::default() };
            flash_with_write_cache(&Tree::of(&queue), &backing)
        };
        assert_eq!(disk("0\n", "write back\n").as_deref(), Some("sda"));
        assert_eq!(disk("1\n", "write back\n"), None, "a disk that turns, or says nothing else of itself");
        assert_eq!(disk("0\n", "write through\n"), None, "flash whose cache survives a power cut");
        assert_eq!(flash_with_write_cache(&Tree::default(), &Backing::default()), None);
    }

    /// LVM over md over partitions; a btrfs of two disks; a loop device in a file on LVM.
    fn machine() -> Tree {
        Tree::of(&[
            ("/proc/self/mountinfo", MOUNTS),
            ("/sys/dev/block/253:0/uevent", "MAJOR=253\nMINOR=0\nDEVNAME=dm-0\nDEVTYPE=disk\n"),
            ("/sys/dev/block/8:33/uevent", "DEVNAME=sdc1\nDEVTYPE=partition\n"),
            ("/sys/dev/block/7:3/uevent", "DEVNAME=loop3\n"),
            ("/sys/dev/block/230:0/uevent", "DEVNAME=zd0\n"),
            ("/sys/dev/block/9:9/uevent", "DEVNAME=dm-9\n"),
            ("/sys/block/dm-0/slaves/md0", ""),
            ("/sys/block/md0/slaves/sda2", ""),
            ("/sys/block/md0/slaves/sdb2", ""),
            ("/sys/block/sda/dev", "8:0\n"),
            ("/sys/block/sda/sda2/partition", "2\n"),
            ("/sys/block/sdb/dev", "8:16\n"),
            ("/sys/block/sdb/sdb2/partition", "2\n"),
            ("/sys/block/sdc/dev", "8:32\n"),
            ("/sys/block/sdc/sdc1/partition", "1\n"),
            ("/sys/block/sdd/dev", "8:48\n"),
            ("/sys/block/loop3/dev", "7:3\n"),
            ("/sys/block/loop3/loop/backing_file", "/images/disk.raw\n"),
            ("/sys/dev/block/7:4/uevent", "DEVNAME=loop4\n"),
            ("/sys/block/loop4/dev", "7:4\n"),
            ("/sys/block/loop4/loop/backing_file", "/modelled/disk\n"),
            ("/sys/dev/block/7:5/uevent", "DEVNAME=loop5\n"),
            ("/sys/block/loop5/dev", "7:5\n"),
            ("/sys/block/loop5/loop/backing_file", "/srv/nfs/f\n"),
            ("/sys/block/zd0/dev", "230:0\n"),
            ("/sys/block/dm-9/slaves/dm-9", ""),
            ("/sys/fs/btrfs/1234/devices/sdc", ""),
            ("/sys/fs/btrfs/1234/devices/sdd", ""),
            ("/sys/fs/btrfs/features/raid1c34", ""),
        ])
        .file("/images/disk.raw", "", (253, 0))
        .file("/modelled/disk", "", (0, 43))
        .block("/dev/loop4", (7, 4))
        .block("/dev/loop5", (7, 5))
        .file("/srv/nfs/f", "", (0, 21))
        .file("/tank/f", "", (0, 30))
        .file("/data/f", "", (0, 55))
        .file("/dev/shm/f", "", (0, 41))
        .file("/var/lib/docker/overlay2/f", "", (0, 42))
        .file("/with space/f", "", (8, 33))
        .block("/dev/loop3", (7, 3))
        .block("/dev/zd0", (230, 0))
        .block("/dev/dm-9", (9, 9))
    }

    fn leaves(path: &str) -> Vec<String> {
        let backing = Backing::of(&machine(), Path::new(path)).unwrap();
        assert_eq!(backing.not_visible, None, "{path}");
        backing.leaves.into_keys().collect()
    }

    #[test]
    fn stacks_are_followed_to_their_leaves() {
        assert_eq!(leaves("/images/disk.raw"), ["sda", "sdb"]);
        assert_eq!(leaves("/dev/loop3"), ["sda", "sdb"]);
        assert_eq!(leaves("/data/f"), ["sdc", "sdd"]);
        assert_eq!(leaves("/with space/f"), ["sdc"]);
        let backing = Backing::of(&machine(), Path::new("/images/disk.raw")).unwrap();
        assert_eq!(backing.describe(), "sda+sdb (ext4 at /)");
        assert_eq!(backing.leaves["sdb"], (8, 16));
        assert_eq!(backing.way, ["dm-0", "md0", "sda", "sdb"]);
    }

    #[test]
    fn a_loop_device_counts_itself_where_nothing_below_it_does() {
        let mut backing = Backing::of(&machine(), Path::new("/dev/loop4")).unwrap();
        assert_eq!((backing.leaves["loop4"], &backing.not_visible), ((7, 4), &None));
        let description = "loop4 (loop4's own counters, for fuse.vmio below it has none)";
        assert_eq!(backing.describe(), description);
        backing.modelled = Some("40 MB/s".into());
        assert_eq!(backing.describe(), format!("a modelled disk (40 MB/s): {description}"));
        // An NFS client has counters, though not by device.
        let on_nfs = Backing::of(&machine(), Path::new("/dev/loop5")).unwrap();
        assert!(on_nfs.leaves.is_empty() && on_nfs.not_visible.is_some(), "{on_nfs:?}");
    }

    #[test]
    fn what_has_no_counters_is_named() {
        for (path, word) in [
            ("/tank/f", "zfs"),
            ("/dev/shm/f", "tmpfs"),
            ("/var/lib/docker/overlay2/f", "overlay"),
            ("/dev/zd0", "ZFS volume"),
            ("/dev/dm-9", "stacked on"),
        ] {
            let backing = Backing::of(&machine(), Path::new(path)).unwrap();
            assert!(backing.leaves.is_empty(), "{path}");
            assert!(backing.not_visible.as_ref().unwrap().to_string().contains(word), "{path}: {backing:?}");
            assert!(backing.describe().contains("not visible here"), "{path}");
        }
    }

    #[test]
    fn a_server_is_named_for_what_lies_on_nfs() {
        let backing = Backing::of(&machine(), Path::new("/srv/nfs/f")).unwrap();
        assert_eq!((backing.nfs.as_deref(), &backing.not_visible), (Some("server:/export"), &None));
        assert_eq!(backing.describe(), "NFS server server:/export (nfs4 at /srv/nfs)");
        assert!(backing.leaves.is_empty());
    }

    #[test]
    fn a_disk_whose_counters_are_off_is_not_at_rest() {
        let of = |iostats: &str| {
            let fake = vmio_node::Fake::new("fake")
                .file("/sys/block/sda/queue/iostats", iostats)
                .file("/sys/block/sda/mq/0/cpu_list", "0\n");
            let backing = Backing { leaves: [("sda".to_owned(), (8, 0))].into(), ..Backing::default() };
            backing.counted(&fake).not_visible
        };
        assert_eq!(of("1\n"), None);
        let off = of("0\n").unwrap();
        assert_eq!(off.to_string(), "sda does not count its requests: echo 1 > /sys/block/sda/queue/iostats");
    }

    #[test]
    fn a_missing_path_is_an_error() {
        let said = Backing::of(&machine(), Path::new("/nowhere")).unwrap_err().to_string();
        assert!(said.contains("/nowhere"), "{said}");
    }
}
