//! The kind of storage of a file or device, by sysfs alone.

use vmio_node::linux::block::Device;
use vmio_node::linux::device::Number;
use vmio_node::{FileStat, Reader};

/// A file's or device's storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// Its kind: `file`, `lvm`, `lvm-thin`, `zvol`, `loop`, `partition`, `block`, …
    pub kind: &'static str,
    /// Whether it is a block device.
    pub block_device: bool,
    /// Size in bytes of a block device.
    pub bytes: Option<u64>,
    /// Block size in bytes of a ZFS volume.
    pub volblock_bytes: Option<u64>,
    /// Whether blocks are allocated on the first write; `None` where unknown.
    pub thin: Option<bool>,
    /// Where this was read.
    pub read_from: String,
}

/// A file on a server: `NFS server host:/export`.
pub fn on_server(server: &str) -> Storage {
    let read_from = format!("/proc/PID/mountinfo, {server}");
    Storage { kind: "file", block_device: false, bytes: None, volblock_bytes: None, thin: None, read_from }
}

/// Whether it is a regular file or a block device.
pub fn holds_data(stat: &FileStat) -> bool {
    stat.is_block() || stat.is_file()
}

/// The storage of a file with this status.
pub fn of(reader: &dyn Reader, stat: &FileStat) -> Storage {
    if !stat.is_block() {
        let read_from = "stat".to_owned();
        return Storage { kind: "file", block_device: false, bytes: None, volblock_bytes: None, thin: None, read_from };
    }
    device(reader, stat.rdev)
}

/// The storage of a block device.
pub fn device(reader: &dyn Reader, number: Number) -> Storage {
    let device = Device::numbered(reader, number);
    let name = device.node_name().ok().flatten().unwrap_or_default();
    let (kind, thin) = kind(&device, &name);
    Storage {
        kind,
        block_device: true,
        bytes: device.size_bytes(),
        volblock_bytes: device.physical_block_bytes().filter(|_| kind == "zvol"),
        thin,
        read_from: device.dir.display().to_string(),
    }
}

fn kind(device: &Device<'_>, name: &str) -> (&'static str, Option<bool>) {
    if let Some(uuid) = device.mapper_uuid() {
        // `LVM-` and the ids of group and volume; a thin volume's pool ends in `-tpool`.
        let is_pool = |slave: &String| {
            let below = device.inner("slaves").inner(slave);
            below.mapper_uuid().is_some_and(|uuid| uuid.ends_with("-tpool"))
        };
        return match uuid.split('-').next() {
            Some("LVM") if device.slaves().iter().any(is_pool) => ("lvm-thin", Some(true)),
            Some("LVM") => ("lvm", Some(false)),
            Some("CRYPT") => ("luks", None),
            Some("mpath") => ("multipath", None),
            _ => ("device-mapper", None),
        };
    }
    // A partition's name begins with its disk's.
    let numbered =
        |prefix: &str| name.strip_prefix(prefix).is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()));
    let known = [("zd", ("zvol", None)), ("rbd", ("rbd", Some(true))), ("nbd", ("nbd", None))];
    if let Some((_, kind)) = known.into_iter().find(|known| numbered(known.0)) {
        return kind;
    }
    if device.has_loop_file() {
        return ("loop", None);
    }
    if device.is_partition() { ("partition", Some(false)) } else { ("block", None) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmio_node::Fake;

    fn device(rdev: (u32, u32)) -> FileStat {
        FileStat { mode: 0o060_660, size: 0, allocated: 0, dev: (0, 6), rdev }
    }

    #[test]
    fn every_kind_of_device_is_told_by_sysfs() {
        let fake = Fake::new("fake")
            .file("/sys/dev/block/253:3/uevent", "DEVNAME=dm-3\n")
            .file("/sys/dev/block/253:3/size", "2048\n")
            .file("/sys/dev/block/253:3/dm/uuid", "LVM-aaaabbbb\n")
            .file("/sys/dev/block/253:3/slaves/dm-2/dm/uuid", "LVM-aaaacccc-tpool\n")
            .file("/sys/dev/block/253:4/dm/uuid", "LVM-aaaadddd\n")
            .file("/sys/dev/block/253:4/slaves/sda3/dev", "8:3\n")
            .file("/sys/dev/block/253:5/dm/uuid", "CRYPT-LUKS2-x\n")
            .file("/sys/dev/block/253:6/dm/uuid", "\n")
            .file("/sys/dev/block/230:16/uevent", "DEVNAME=zd16\n")
            .file("/sys/dev/block/230:16/queue/physical_block_size", "131072\n")
            .file("/sys/dev/block/7:1/uevent", "DEVNAME=loop1\n")
            .file("/sys/dev/block/7:1/loop/backing_file", "/i/a\n")
            .file("/sys/dev/block/8:3/uevent", "DEVNAME=sda3\n")
            .file("/sys/dev/block/8:3/partition", "3\n")
            .file("/sys/dev/block/8:0/uevent", "DEVNAME=sda\n")
            .file("/sys/dev/block/251:0/uevent", "DEVNAME=zram0\n");
        let kinds = [
            ((253, 3), "lvm-thin", Some(true)),
            ((253, 4), "lvm", Some(false)),
            ((253, 5), "luks", None),
            ((253, 6), "device-mapper", None),
            ((230, 16), "zvol", None),
            ((7, 1), "loop", None),
            ((8, 3), "partition", Some(false)),
            ((8, 0), "block", None),
            ((251, 0), "block", None),
        ];
        for (rdev, kind, thin) in kinds {
            let storage = of(&fake, &device(rdev));
            assert_eq!((storage.kind, storage.thin, storage.block_device), (kind, thin, true), "{rdev:?}");
        }
        assert_eq!(of(&fake, &device((253, 3))).bytes, Some(1 << 20));
        assert_eq!(of(&fake, &device((230, 16))).volblock_bytes, Some(131_072));
        assert_eq!(of(&fake, &device((253, 3))).volblock_bytes, None);
        let file = FileStat { mode: 0o100_644, ..device((0, 0)) };
        assert_eq!((of(&fake, &file).kind, of(&fake, &file).block_device), ("file", false));
    }
}
