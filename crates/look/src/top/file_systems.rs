//! File systems with a journal: their names, the disks below, and the images on them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vmio_model::facts::{Disk, Guest};
use vmio_model::sanitize;
use vmio_model::top::load::{Device, JournalLoad};
use vmio_node::Reader;
use vmio_node::linux::block::{self, DEEPEST};
use vmio_node::linux::mounts::{self, Mount};
use vmio_node::linux::process;

/// Seconds after which they are looked at again.
const LOOKED_SECONDS: f64 = 60.0;
/// Bytes of an `fdinfo` that are looked at.
const INFO_BYTES: usize = 4096;

/// The file systems that were used.
#[derive(Default)]
pub(super) struct FileSystems {
    looked: f64,
    known: BTreeMap<Device, (String, Vec<Device>)>,
}

impl FileSystems {
    /// Completes names and disks.
    pub fn settle(&mut self, reader: &dyn Reader, loads: &mut [JournalLoad], now: f64) {
        if now - self.looked >= LOOKED_SECONDS {
            self.looked = now;
            self.known.clear();
        }
        let mut own: Option<Vec<Mount>> = None;
        for load in loads {
            let (name, disks) = self.known.entry(load.device).or_insert_with(|| {
                let own = own.get_or_insert_with(|| mounts::own(reader).unwrap_or_default());
                let mut disks = Vec::new();
                below(reader, &block::Device::numbered(reader, load.device).disk(), DEEPEST, &mut disks);
                (name(reader, own, load.device).unwrap_or_else(|| load.name.clone()), disks)
            });
            (load.name, load.disks) = (name.clone(), disks.clone());
        }
    }
}

/// Where the whole of it is mounted, else any part; its device's name where it is mounted elsewhere.
fn name(reader: &dyn Reader, own: &[Mount], device: Device) -> Option<String> {
    let here = own.iter().filter(|m| m.dev == device);
    let best = here.min_by_key(|m| (m.root != Path::new("/"), m.point.as_os_str().len()));
    let name = match best {
        Some(mount) => mount.point.display().to_string(),
        None => block::Device::numbered(reader, device).node_name().ok()??,
    };
    Some(sanitize::line(&name).into_owned())
}

/// The disks below a device, as they are in `/proc/diskstats`: a loop device is one.
fn below(reader: &dyn Reader, device: &block::Device<'_>, depth: u32, found: &mut Vec<Device>) {
    let slaves = device.slaves();
    if slaves.is_empty() || depth == 0 {
        found.extend(device.number());
        return;
    }
    for slave in slaves {
        below(reader, &block::Device::named(reader, &slave).disk(), depth - 1, found);
    }
}

/// Images on ext4 that a thread of the kernel flushes for the hypervisor, by device and inode: those with native
/// asynchronous I/O (QEMU block/linux-aio.c with IO_CMD_FDSYNC; Linux fs/aio.c, `aio_fsync`). The inode is that of
/// `fdinfo` (`ino:`, proc_pid_fdinfo(5), from Linux 5.14); no file is asked.
pub(super) fn images(reader: &dyn Reader, guest: &Guest) -> Vec<(Device, u64)> {
    let native = |disk: &&Disk| disk.aio.as_deref() == Some("native");
    let sources = guest.disks.iter().filter(native).filter_map(|disk| disk.place.source.as_deref());
    let files: Vec<&Path> = sources.filter(|source| !source.starts_with("/dev/")).map(Path::new).collect();
    let Some(pid) = guest.pid.filter(|_| guest.is_qemu() && !files.is_empty()) else { return Vec::new() };
    let mounts = mounts::of_process(reader, pid).unwrap_or_default();
    let image = |(fd, path): (u32, PathBuf)| {
        files.contains(&path.as_path()).then_some(())?;
        let mount = mounts::holding(&mounts, &path).filter(|mount| mount.filesystem == "ext4")?;
        let info = reader.read_start(&process::file(pid, &format!("fdinfo/{fd}")), INFO_BYTES).ok()?;
        let inode = process::fdinfo(std::str::from_utf8(&info).ok()?, "ino")?.parse().ok()?;
        Some((mount.dev, inode))
    };
    process::descriptors(reader, pid).unwrap_or_default().into_iter().filter_map(image).collect()
}
