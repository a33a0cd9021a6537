//! The storage below an image or a volume: how its file system keeps it, the sectors of its device, where discards end,
//! the RAIDZ of its pool.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use vmio_model::facts::{Below, DiscardEnds, Discards, Extents, Fact, Layout, Mounted, Raidz};
use vmio_node::linux::block::{DEEPEST, Device};
use vmio_node::linux::device::Number;
use vmio_node::linux::mounts::Mount;
use vmio_node::linux::process;
use vmio_node::{CowFilesystem, FileLayout, FileStat, Reader};

use super::DiskFile;
use crate::backing::zfs;
use crate::host_view::{HostView, Question};
use crate::storage::Storage;

/// Longest time for the list of a pool's disks.
const ZPOOL_LIMIT: Duration = Duration::from_secs(2);

/// RAIDZ of the pools that were asked.
pub(super) type Pools = Mutex<BTreeMap<String, Option<Raidz>>>;

/// What lies below a file or device of this machine.
pub(super) fn of(
    host: &HostView<'_>,
    pools: &Pools,
    want: &DiskFile,
    pid: Option<u32>,
    on: (&FileStat, &Storage, Option<&Mount>),
    layout: Option<FileLayout>,
) -> Below {
    let (stat, storage, mount) = on;
    let mut below = Below { layout: layout.map_or_else(Fact::default, seen_layout), ..Below::default() };
    if storage.kind == "zvol" {
        // Its physical sector is the volume's block.
        below.raidz = raidz(host, pools, &want.named);
        return below;
    }
    let number = if stat.is_block() { stat.rdev } else { stat.dev };
    let device = Device::numbered(host.reader(), number).disk();
    let from = device.dir.join("queue").display().to_string();
    let read = |value: Option<u64>| value.map_or_else(Fact::default, |value| Fact::read(Some(value), &from));
    below.host_logical_block_bytes = read(device.logical_block_bytes().map(u64::from));
    below.host_physical_block_bytes = read(device.physical_block_bytes());
    if stat.is_block() {
        below.discard_ends = discard_ends(host.reader(), number)
            .map_or_else(Fact::default, |ends| Fact::read(Some(ends), format!("{from}/discard_max_bytes")));
        below.discards = pid.and_then(|pid| discards(host, pid, &device)).unwrap_or_default();
    } else if let Some(mount) = mount {
        below.mounted = mounted(mount, stat.dev);
    }
    below
}

/// The file system that holds a file of this device.
pub(crate) fn mounted(mount: &Mount, (major, minor): Number) -> Fact<Option<Mounted>> {
    let mounted = Mounted {
        filesystem: mount.filesystem.clone(),
        point: mount.point.display().to_string(),
        device: format!("{major}:{minor}"),
        options: mount.options.clone(),
    };
    Fact::read(Some(mounted), "/proc/PID/mountinfo")
}

/// What lies below a file of a server: NFS frees blocks from version 4.2 on (RFC 7862, DEALLOCATE).
pub(super) fn on_server(mount: Option<&Mount>) -> Below {
    let ends = |mount: &Mount| {
        let version = mount.option("vers").filter(|_| mount.filesystem.starts_with("nfs"))?;
        let old = matches!(version.as_str(), "2" | "3" | "4" | "4.0" | "4.1");
        old.then(|| DiscardEnds { device: format!("NFS {version}"), kind: "NFS".into(), mapper: None })
    };
    let ends = mount.and_then(ends);
    Below {
        discard_ends: ends.map_or_else(Fact::default, |ends| Fact::read(Some(ends), "/proc/PID/mountinfo")),
        mounted: mount.map_or_else(Fact::default, |mount| mounted(mount, mount.dev)),
        ..Below::default()
    }
}

fn seen_layout(seen: FileLayout) -> Fact<Option<Layout>> {
    let filesystem = match seen.filesystem {
        CowFilesystem::Btrfs => "btrfs",
        CowFilesystem::Bcachefs => "bcachefs",
        CowFilesystem::Xfs => "xfs",
    };
    let extents =
        seen.extents.map(|e| Extents { seen: e.seen, of_bytes: e.of_bytes, whole: e.whole, shared: e.shared });
    let (copy_on_write, compressed) = (seen.copy_on_write, seen.compressed);
    let layout = Layout { filesystem: filesystem.to_owned(), copy_on_write, compressed, extents };
    Fact::read(Some(layout), "FS_IOC_GETFLAGS, FIEMAP")
}

/// The device at which discards end, though what lies below it takes them: `queue/discard_max_bytes` is 0 where a
/// device takes none (Linux Documentation/ABI/stable/sysfs-block). Where the lowest takes none, nothing is lost.
fn discard_ends(reader: &dyn Reader, number: Number) -> Option<DiscardEnds> {
    let mut here = Device::numbered(reader, number).disk();
    if here.discard_max_bytes()? > 0 {
        return None;
    }
    for _ in 0..DEEPEST {
        let below = here.inner("slaves").inner(here.slaves().first()?).disk();
        if below.discard_max_bytes()? > 0 {
            let kind = match here.mapper_uuid() {
                Some(uuid) if uuid.starts_with("CRYPT-") => "LUKS",
                Some(_) => "device mapper",
                None => "RAID",
            };
            let device = here.node_name().ok().flatten()?;
            return Some(DiscardEnds { device, kind: kind.to_owned(), mapper: here.mapper_name() });
        }
        here = below;
    }
    None
}

/// Discards of a process on a device, where it has its control group alone. The process of a file image sends none: its
/// file system frees the blocks.
fn discards(host: &HostView<'_>, pid: u32, device: &Device<'_>) -> Option<Fact<Option<Discards>>> {
    let reader = host.reader();
    let own = reader.read_text(&process::file(pid, "cgroup")).ok()?;
    let group = host.groups().group(&own, "io")?;
    let (moved, file) = group.moved_on(reader, pid, device.number()?)?;
    let discards = Discards { requests: moved.discard_ios, bytes: moved.discard_bytes, writes: moved.write_ios };
    Some(Fact::read(Some(discards), file.display().to_string()))
}

/// The RAIDZ that a volume `/dev/zvol/POOL/…` lies on; each pool is asked once.
fn raidz(host: &HostView<'_>, pools: &Pools, named: &Path) -> Fact<Option<Raidz>> {
    let Some(pool) = named.strip_prefix("/dev/zvol").ok().and_then(|name| name.iter().next()?.to_str()) else {
        return Fact::default();
    };
    // The name of a pool (zpoolconcepts(7)); it is a part of a path here.
    let plain = pool.starts_with(|c: char| c.is_ascii_alphabetic())
        && pool.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c));
    if !plain {
        return Fact::default();
    }
    let mut pools = pools.lock().unwrap_or_else(PoisonError::into_inner);
    let found = *pools.entry(pool.to_owned()).or_insert_with(|| {
        // A suspended pool never answers (OpenZFS, module/zfs/spa_stats.c, `spa_state_data`).
        let state = host.reader().read_text(Path::new(&format!("/proc/spl/kstat/zfs/{pool}/state"))).ok()?;
        if !matches!(state.trim(), "ONLINE" | "DEGRADED") {
            return None;
        }
        let asked = Question::Zpool { pool: pool.to_owned(), limit: ZPOOL_LIMIT };
        zfs::raidz(&host.ask(&asked).ok()?)
    });
    found.map_or_else(Fact::default, |found| Fact::read(Some(found), format!("zpool list -vHP {pool}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_node::fake::{Fake, says};
    use vmio_node::linux::mounts;

    fn block(rdev: Number) -> FileStat {
        FileStat { mode: 0o060_660, size: 0, allocated: 0, dev: (0, 6), rdev }
    }

    fn below(fake: &Fake, named: &str, stat: &FileStat) -> Below {
        let storage = crate::storage::of(fake, stat);
        let host = HostView::new(fake);
        let at = super::super::Located { here: named.into(), seen: named.into() };
        let want = DiskFile { at, named: named.into(), format: Some("raw".into()) };
        of(&host, &Pools::default(), &want, Some(8), (stat, &storage, None), None)
    }

    #[test]
    fn sectors_of_a_partition_are_those_of_its_disk() {
        let fake = Fake::new("fake")
            .file("/sys/dev/block/8:1/partition", "1\n")
            .file("/sys/dev/block/8:1/../queue/logical_block_size", "512\n")
            .file("/sys/dev/block/8:1/../queue/physical_block_size", "4096\n");
        let found = below(&fake, "/dev/sda1", &block((8, 1)));
        assert_eq!((*found.host_logical_block_bytes, *found.host_physical_block_bytes), (Some(512), Some(4096)));
        assert!(found.discard_ends.is_blank());
    }

    #[test]
    fn discards_end_where_the_device_below_still_takes_them() {
        let stack = |leaf: &str| {
            Fake::new("fake")
                .file("/sys/dev/block/253:3/uevent", "DEVNAME=dm-3\n")
                .file("/sys/dev/block/253:3/dm/uuid", "CRYPT-LUKS2-x\n")
                .file("/sys/dev/block/253:3/dm/name", "web1\n")
                .file("/sys/dev/block/253:3/queue/discard_max_bytes", "0\n")
                .file("/sys/dev/block/253:3/slaves/sda/queue/discard_max_bytes", leaf)
        };
        let found = below(&stack("2147450880\n"), "/dev/mapper/web1", &block((253, 3)));
        let ends = DiscardEnds { device: "dm-3".into(), kind: "LUKS".into(), mapper: Some("web1".into()) };
        assert_eq!(*found.discard_ends, Some(ends));
        assert!(below(&stack("0\n"), "/dev/mapper/web1", &block((253, 3))).discard_ends.is_blank());
    }

    #[test]
    fn discards_are_counted_of_a_process_alone_in_its_group() {
        let found = |processes: &str| {
            let fake = Fake::new("fake")
                .file("/proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
                .file("/proc/8/cgroup", "0::/machine/web1\n")
                .file("/sys/fs/cgroup/machine/web1/cgroup.procs", processes)
                .file("/sys/fs/cgroup/machine/web1/io.stat", "8:0 rbytes=0 wbytes=9 rios=0 wios=4 dbytes=4096 dios=1\n")
                .file("/sys/dev/block/8:0/dev", "8:0\n");
            *below(&fake, "/dev/sda", &block((8, 0))).discards
        };
        assert_eq!(found("8\n"), Some(Discards { requests: 1, bytes: 4096, writes: 4 }));
        assert_eq!(found("8\n9\n"), None);
    }

    #[test]
    fn nfs_frees_blocks_from_version_4_2_on() {
        let ends = |options: &str| {
            let table = format!("23 22 0:21 / /srv rw - nfs4 nas:/vm rw,vers={options},hard\n");
            on_server(mounts::parse(table.as_bytes()).first()).discard_ends.value().clone().map(|e| e.device)
        };
        assert_eq!((ends("4.1").as_deref(), ends("4.2"), ends("3").as_deref()), (Some("NFS 4.1"), None, Some("NFS 3")));
    }

    #[test]
    fn pools_are_asked_once_and_only_where_they_answer() {
        let list = include_str!("../../tests/fixtures/places/zpool-list-raidz2.txt");
        let volume = |state: &str| {
            Fake::new("fake")
                .installed("zpool")
                .command(move |cmd| cmd.program.ends_with("zpool").then(|| says(list)))
                .file("/proc/spl/kstat/zfs/tank/state", state)
                .file("/sys/dev/block/230:16/uevent", "DEVNAME=zd16\n")
        };
        let online = volume("ONLINE\n");
        let found = below(&online, "/dev/zvol/tank/vm-101-disk-0", &block((230, 16)));
        assert_eq!(*found.raidz, Some(Raidz { parity: 2, disks: 6 }));
        let suspended = volume("SUSPENDED\n");
        assert!(below(&suspended, "/dev/zvol/tank/vm-101-disk-0", &block((230, 16))).raidz.is_blank());
        assert!(suspended.ran().is_empty() && below(&online, "/dev/zd16", &block((230, 16))).raidz.is_blank());
    }
}
