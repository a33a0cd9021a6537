//! Block devices: `/sys/block`, `/sys/class/block`, `/sys/dev/block` (Linux Documentation/ABI/stable/sysfs-block,
//! ABI/testing/sysfs-block-dm) and their counters.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::device::{self, Number};
use super::{is_there, number, word};
use crate::{Reader, Result};

/// Sectors of sysfs and of all counters are of 512 bytes, whatever the device's own (Linux
/// Documentation/block/stat.rst).
pub const SECTOR_BYTES: u64 = 512;

/// More devices upon each other than this are a loop in something that was not understood.
pub const DEEPEST: u32 = 16;

const WHOLE: &str = "/sys/block";

/// A block device in sysfs. Making one looks at nothing.
#[derive(Clone)]
pub struct Device<'a> {
    reader: &'a dyn Reader,
    /// Its directory.
    pub dir: PathBuf,
}

/// The file behind a loop device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopFile {
    /// As the kernel shows it: with ` (deleted)` behind the name of a file that has none any more.
    pub shown: PathBuf,
    /// Its name, now or when it had one.
    pub path: PathBuf,
}

impl<'a> Device<'a> {
    /// By its number: whole devices and partitions.
    pub fn numbered(reader: &'a dyn Reader, (major, minor): Number) -> Self {
        Self { reader, dir: format!("/sys/dev/block/{major}:{minor}").into() }
    }

    /// A whole device by its name in sysfs (`sda`, `cciss!c0d0`).
    pub fn whole(reader: &'a dyn Reader, name: &str) -> Self {
        Self { reader, dir: Path::new(WHOLE).join(name) }
    }

    /// A whole device or a partition by its name in sysfs.
    pub fn named(reader: &'a dyn Reader, name: &str) -> Self {
        let whole = Self::whole(reader, name);
        if whole.is_there() { whole } else { Self { reader, dir: Path::new("/sys/class/block").join(name) } }
    }

    /// The counters of a whole device, for who reads them again and again: see [`Counters::parse`].
    pub fn stat_file(name: &str) -> PathBuf {
        Path::new(WHOLE).join(name).join("stat")
    }

    /// Itself; of a partition its disk, which has the `queue` of both.
    pub fn disk(&self) -> Self {
        if self.is_partition() { self.inner("..") } else { self.clone() }
    }

    /// What lies in its directory: a partition of it, one of its `slaves`.
    pub fn inner(&self, path: impl AsRef<Path>) -> Self {
        Self { reader: self.reader, dir: self.dir.join(path) }
    }

    /// Whether the kernel has it.
    pub fn is_there(&self) -> bool {
        is_there(self.reader, &self.dir)
    }

    fn word(&self, file: &str) -> Option<String> {
        word(self.reader, &self.dir.join(file)).filter(|w| !w.is_empty())
    }

    fn value<T: FromStr>(&self, file: &str) -> Option<T> {
        number(self.reader, &self.dir.join(file))
    }

    fn has(&self, file: &str) -> bool {
        is_there(self.reader, &self.dir.join(file))
    }

    fn names(&self, dir: &str) -> Vec<String> {
        self.reader.list(&self.dir.join(dir)).unwrap_or_default()
    }

    /// Its name below `/dev` (`sda1`, `cciss/c0d0`); `None` where the kernel tells none. Below `/sys` it has `!` for
    /// each `/`: see [`sysfs_name`].
    ///
    /// # Errors
    /// When there is no such device.
    pub fn node_name(&self) -> Result<Option<String>> {
        let uevent = self.reader.read_text(&self.dir.join("uevent"))?;
        let name = uevent.lines().find_map(|l| l.strip_prefix("DEVNAME=")).filter(|n| !n.is_empty());
        Ok(name.map(str::to_owned))
    }

    /// Its number, of its `dev`.
    pub fn number(&self) -> Option<Number> {
        device::parse(&self.word("dev")?)
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> Option<u64> {
        self.value::<u64>("size")?.checked_mul(SECTOR_BYTES)
    }

    /// Smallest unit that it takes, in bytes; a partition has its disk's. A value that is no block size is not known.
    pub fn logical_block_bytes(&self) -> Option<u32> {
        self.value::<u32>("queue/logical_block_size").filter(|bytes| bytes.is_power_of_two())
    }

    /// Smallest unit that it writes without reading first, in bytes. OpenZFS gives a volume's block size here
    /// (module/os/linux/zfs/zvol_os.c).
    pub fn physical_block_bytes(&self) -> Option<u64> {
        self.value("queue/physical_block_size")
    }

    /// `write back` where it has a volatile cache that the kernel flushes, `write through` where it has none.
    pub fn write_cache(&self) -> Option<String> {
        self.word("queue/write_cache")
    }

    /// The I/O scheduler in use: `none`, `mq-deadline`, `bfq`.
    pub fn scheduler(&self) -> Option<String> {
        let all = self.word("queue/scheduler")?;
        // One that is the only one stands without brackets.
        let used =
            all.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(all.as_str(), |(name, _)| name);
        Some(used.to_owned())
    }

    /// Most bytes that one discard takes; 0 where it takes none.
    pub fn discard_max_bytes(&self) -> Option<u64> {
        self.value("queue/discard_max_bytes")
    }

    /// Where the read-ahead of a whole device is read and set, in KiB: how much is read beyond what was asked for when a
    /// file or the device is read through the page cache from one end to the other.
    pub fn read_ahead_file(&self) -> PathBuf {
        self.dir.join("queue/read_ahead_kb")
    }

    /// Read-ahead in KiB. Partitions have their disk's, and none of their own.
    pub fn read_ahead_kib(&self) -> Option<u64> {
        number(self.reader, &self.read_ahead_file())
    }

    /// Hardware queues.
    pub fn queues(&self) -> Option<usize> {
        Some(self.reader.list(&self.dir.join("mq")).ok()?.len())
    }

    /// Whether it counts its requests and their times (`queue/iostats`; kernel document ABI/stable/sysfs-block). `None`
    /// of devices without hardware queues: some of these count whatever stands there.
    pub fn counts(&self) -> Option<bool> {
        self.queues().filter(|queues| *queues > 0)?;
        Some(self.value::<u8>("queue/iostats")? != 0)
    }

    /// Whether it turns.
    pub fn is_rotational(&self) -> Option<bool> {
        Some(self.value::<u8>("queue/rotational")? != 0)
    }

    /// Whether it cannot be written.
    pub fn is_read_only(&self) -> bool {
        self.value("ro") == Some(1u8)
    }

    /// Whether it is a part of a disk.
    pub fn is_partition(&self) -> bool {
        self.has("partition")
    }

    /// What it is made of (device-mapper, md, bcache), by name. ZFS volumes are made of disks too, and do not say so.
    pub fn slaves(&self) -> Vec<String> {
        self.names("slaves")
    }

    /// What is made of it, by name.
    pub fn holders(&self) -> Vec<String> {
        self.names("holders")
    }

    /// Names of its partitions.
    pub fn partitions(&self) -> Vec<String> {
        self.names("").into_iter().filter(|name| self.inner(name).is_partition()).collect()
    }

    /// Its name in device-mapper: `vg0-root`.
    pub fn mapper_name(&self) -> Option<String> {
        self.word("dm/name")
    }

    /// Its UUID in device-mapper, which begins with who made it: `LVM-`, `CRYPT-`, `mpath-`; empty where that was not
    /// said. `None` for what is not device-mapper's.
    pub fn mapper_uuid(&self) -> Option<String> {
        word(self.reader, &self.dir.join("dm/uuid"))
    }

    /// Whether a file is behind it, as with loop devices in use.
    pub fn has_loop_file(&self) -> bool {
        self.has("loop/backing_file")
    }

    /// The file behind a loop device; `None` where there is none.
    pub fn loop_file(&self) -> Option<LoopFile> {
        let mut shown = self.reader.read(&self.dir.join("loop/backing_file")).ok()?;
        if shown.last() == Some(&b'\n') {
            shown.pop();
        }
        let path = shown.strip_suffix(b" (deleted)").unwrap_or(&shown).to_vec();
        Some(LoopFile { shown: OsString::from_vec(shown).into(), path: OsString::from_vec(path).into() })
    }

    /// Whether a loop device passes the page cache of the host by.
    ///
    /// # Errors
    /// When it is no loop device.
    pub fn loop_is_direct(&self) -> Result<bool> {
        Ok(self.reader.read_text(&self.dir.join("loop/dio"))?.trim() == "1")
    }

    /// Bytes of data that a frame carries to a disk by ATA over Ethernet (`payload`; Linux: drivers/block/aoe/aoeblk.c).
    pub fn frame_payload_bytes(&self) -> Option<u64> {
        self.value("payload")
    }

    /// Whether it is a way to a disk that has a device of its own, and no node (`hidden`; Linux
    /// Documentation/ABI/stable/sysfs-block).
    pub fn is_hidden(&self) -> bool {
        self.value::<u8>("hidden") == Some(1)
    }

    /// Name of the NVMe subsystem that it is a disk of, of whatever controller (`subsysnqn`; Linux:
    /// drivers/nvme/host/sysfs.c, `nvme_sysfs_show_subsysnqn`; of several ways core.c, `nvme_subsys_show_nqn`).
    pub fn nvme_subsystem(&self) -> Option<String> {
        self.word("device/subsysnqn")
    }

    /// The process that connected a network block device with its server and serves it; `None` while nobody does
    /// (`pid`; Linux: drivers/block/nbd.c).
    pub fn nbd_client(&self) -> Option<u32> {
        self.value("pid")
    }

    /// Serial number as the disk tells it. virtio-blk has `serial` beside the device; NVMe has it in `device/`; SCSI
    /// and ATA disks answer with page 0x80 of their vital product data (SPC-4, 7.8.15).
    pub fn serial(&self) -> Option<String> {
        let page = || unit_serial(&self.reader.read(&self.dir.join("device/vpd_pg80")).ok()?);
        self.told(&["serial", "device/serial"]).or_else(page)
    }

    /// World wide name, or what the kernel has in its place.
    pub fn wwn(&self) -> Option<String> {
        self.told(&["wwid", "device/wwid", "dm/uuid"])
    }

    /// Model, for people.
    pub fn model(&self) -> Option<String> {
        self.told(&["device/model", "dm/name"])
    }

    fn told(&self, files: &[&str]) -> Option<String> {
        files.iter().find_map(|file| printable(&self.reader.read(&self.dir.join(file)).ok()?))
    }
}

/// Names of all whole devices.
///
/// # Errors
/// When `/sys` is not there.
pub fn whole(reader: &dyn Reader) -> Result<Vec<String>> {
    reader.list(Path::new(WHOLE))
}

/// The disk that a partition belongs to.
pub fn disk_of(reader: &dyn Reader, partition: &str) -> Option<String> {
    whole(reader).ok()?.into_iter().find(|disk| Device::whole(reader, disk).inner(partition).is_partition())
}

/// Read-ahead in KiB of what is read through the page cache of a path: of a block device its own, of a file that of its
/// file system (Linux Documentation/ABI/testing/sysfs-class-bdi; file systems without a device have one, too).
pub fn read_ahead_kib(reader: &dyn Reader, path: &Path) -> Option<u64> {
    let stat = reader.stat(path).ok().flatten()?;
    let on @ (major, minor) = if stat.is_block() { stat.rdev } else { stat.dev };
    let own = || number(reader, Path::new(&format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")));
    let device = Device::numbered(reader, on);
    device.read_ahead_kib().or_else(own).or_else(|| device.disk().read_ahead_kib())
}

/// All devices of the btrfs that one is of, by name; `None` where it is of none (Linux fs/btrfs/sysfs.c, `devices`).
pub fn btrfs_devices(reader: &dyn Reader, one: &str) -> Option<Vec<String>> {
    let base = Path::new("/sys/fs/btrfs");
    let devices = |id: String| reader.list(&base.join(id).join("devices")).ok();
    reader.list(base).ok()?.into_iter().filter_map(devices).find(|devices| devices.iter().any(|d| d == one))
}

/// A name below `/dev` as sysfs has it: `cciss!c0d0` of `cciss/c0d0`.
pub fn sysfs_name(node_name: &str) -> String {
    node_name.replace('/', "!")
}

/// The name in sysfs of the device at a path below `/dev`: `etherd!e0.0` of `/dev/etherd/e0.0`.
pub fn name_at(path: &Path) -> Option<String> {
    path.strip_prefix("/dev").ok()?.to_str().map(sysfs_name)
}

/// Whether a whole device is of a driver that numbers its own: `zd16` of `zd`.
pub fn is_numbered(name: &str, driver: &str) -> bool {
    name.strip_prefix(driver).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Whether a whole device is a ZFS volume.
pub fn is_zvol(name: &str) -> bool {
    is_numbered(name, "zd")
}

/// Page 0x80 of vital product data, without its head: type of device, number of the page, two bytes of length.
fn unit_serial(page: &[u8]) -> Option<String> {
    printable(page.get(4..).filter(|_| page[1] == 0x80)?)
}

/// What a disk says of itself, fit to be printed: the printable bytes alone.
fn printable(bytes: &[u8]) -> Option<String> {
    let text: String = bytes.iter().filter(|b| (0x20..0x7f).contains(*b)).map(|&b| char::from(b)).collect();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then(|| text.chars().take(64).collect())
}

/// Requests of a kind since the device appeared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requests {
    /// That ended.
    pub ios: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Milliseconds that they took, summed.
    pub ms: u64,
}

/// A device's counters: its `stat`, or its line of `/proc/diskstats` (Linux Documentation/block/stat.rst,
/// admin-guide/iostats.rst). Nothing is allocated for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Reads.
    pub reads: Requests,
    /// Writes.
    pub writes: Requests,
    /// Discards, from Linux 4.18 on.
    pub discards: Requests,
    /// Flushes, which have no bytes, from Linux 5.5 on.
    pub flushes: Requests,
    /// Requests in flight at the time of the reading.
    pub in_flight: u64,
    /// Milliseconds with any request in flight.
    pub busy_ms: u64,
    /// Milliseconds in flight, summed over requests.
    pub queue_ms: u64,
}

impl Counters {
    /// Of the content of a `stat`. `None` where a field is no number, or the eleven that every kernel has are not
    /// there.
    pub fn parse(fields: &str) -> Option<Self> {
        let (mut all, mut found) = ([0u64; 17], 0);
        for (field, into) in fields.split_ascii_whitespace().zip(&mut all) {
            *into = field.parse().ok()?;
            found += 1;
        }
        let kind = |ios: usize| {
            let bytes = all[ios + 2].checked_mul(SECTOR_BYTES)?;
            Some(Requests { ios: all[ios], bytes, ms: all[ios + 3] })
        };
        let flushes = Requests { ios: all[15], bytes: 0, ms: all[16] };
        (found >= 11).then_some(())?;
        Some(Self {
            reads: kind(0)?,
            writes: kind(4)?,
            discards: kind(11)?,
            flushes,
            in_flight: all[8],
            busy_ms: all[9],
            queue_ms: all[10],
        })
    }

    /// Requests of any kind that ended.
    pub fn ended(&self) -> u64 {
        [self.reads, self.writes, self.discards, self.flushes].iter().fold(0, |sum, kind| sum.saturating_add(kind.ios))
    }

    /// What was done since an older reading; `None` where a counter went back, since it is another device.
    pub fn since(&self, old: &Self) -> Option<Self> {
        let kind = |new: Requests, old: Requests| {
            Some(Requests {
                ios: new.ios.checked_sub(old.ios)?,
                bytes: new.bytes.checked_sub(old.bytes)?,
                // Does not say whether it is the same device.
                ms: new.ms.saturating_sub(old.ms),
            })
        };
        Some(Self {
            reads: kind(self.reads, old.reads)?,
            writes: kind(self.writes, old.writes)?,
            discards: kind(self.discards, old.discards)?,
            flushes: kind(self.flushes, old.flushes)?,
            in_flight: self.in_flight,
            busy_ms: self.busy_ms.checked_sub(old.busy_ms)?,
            queue_ms: self.queue_ms.checked_sub(old.queue_ms)?,
        })
    }
}

/// The content of `/proc/diskstats`: number and name of each device, and the fields that [`Counters::parse`] takes.
pub fn diskstats(text: &str) -> impl Iterator<Item = (Number, &str, &str)> {
    text.lines().filter_map(|line| {
        let (major, rest) = line.trim_ascii_start().split_once(' ')?;
        let (minor, rest) = rest.trim_ascii_start().split_once(' ')?;
        let (name, fields) = rest.trim_ascii_start().split_once(' ')?;
        Some(((major.parse().ok()?, minor.parse().ok()?), name, fields))
    })
}

/// The path of a device node by its name in sysfs.
pub fn node_path(name: &str) -> PathBuf {
    Path::new("/dev").join(name.replace('!', "/"))
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
