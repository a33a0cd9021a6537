//! dm-cache in a guest or on the host, over a slow disk and with a fast one as the cache (kernel document
//! admin-guide/device-mapper/cache.rst): set up before a cell by `dmsetup`, and taken off after it.
//!
//! Its policy smq does not take up what is read once (drivers/md/dm-cache-policy-smq.c, `should_promote`). So a cache
//! that is to hold the slow disk is filled first: over a device of zeros, in the mode writeback, where the kernel takes
//! up each block that is written whole (drivers/md/dm-cache-target.c, `optimisable_bio`). What it then writes back goes
//! nowhere. With nothing left to write back it is put over the slow disk, write-through.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use vmio_model::study::MIB;
use vmio_node::Node;
use vmio_node::mapped::Mapped;

use super::in_guest::{self, disk_bytes, kernel_name, poll};
use crate::disks::targets::DMSETUP;
use crate::probes::dm_cache::Status;

const SECTOR: u64 = 512;
/// A block of the cache: 64 KiB, as bcache's buckets.
const BLOCK: u64 = 64 << 10;
/// A block of its metadata, of which the first is the superblock.
const SUPERBLOCK: usize = 4096;
/// How long a step may take beside what it copies.
const LIMIT: Duration = Duration::from_secs(60);
/// What of the blocks may be written back at once, in sectors: 8 MiB.
const WRITTEN_BACK_AT_ONCE: u64 = 8 * MIB / SECTOR;

/// What was set up: its devices, in the order in which they were made.
pub struct DmCache {
    node: Arc<dyn Node>,
    /// Whose mark they bear, where a journal has them.
    owner: Option<Mapped>,
    made: Vec<String>,
}

impl DmCache {
    /// Sets it up, holding so many bytes from the slow disk's start, or empty, and returns the device. What was set up
    /// until it failed is in `all`, to be taken off.
    pub fn set_up(
        (node, owner): (Arc<dyn Node>, Option<Mapped>),
        (slow, fast): (&Path, &Path),
        held_bytes: Option<u64>,
        all: &mut Vec<impl From<Self>>,
    ) -> anyhow::Result<PathBuf> {
        let mut cache = Self { node, owner, made: Vec::new() };
        let done = cache.make((slow, fast), held_bytes);
        all.push(cache.into());
        done
    }

    fn make(&mut self, (slow, fast): (&Path, &Path), held_bytes: Option<u64>) -> anyhow::Result<PathBuf> {
        let sectors = disk_bytes(&*self.node, slow)? / SECTOR;
        let fast_bytes = disk_bytes(&*self.node, fast)?;
        let metadata_bytes = metadata_bytes(fast_bytes);
        let blocks_bytes = fast_bytes.checked_sub(metadata_bytes).filter(|left| *left >= BLOCK);
        let blocks_bytes = blocks_bytes.context("the cache's disk is too small for dm-cache")?;
        // Where the superblock is zeros the kernel makes new metadata.
        self.node.write(fast, &[0; SUPERBLOCK], None)?;

        let name = device_name(slow)?;
        let [metadata, blocks, zeros] = ["metadata", "blocks", "zeros"].map(|part| format!("{name}-{part}"));
        let (of, at) = (fast.display(), metadata_bytes / SECTOR);
        let metadata = self.create(&metadata, &format!("0 {at} linear {of} 0"))?;
        let blocks = self.create(&blocks, &format!("0 {} linear {of} {at}", blocks_bytes / SECTOR))?;
        let cache = |origin: &Path, how: &str| {
            let origin = origin.display();
            format!("0 {sectors} cache {} {} {origin} {} 1 {how}", metadata.display(), blocks.display(), BLOCK / SECTOR)
        };
        if let Some(bytes) = held_bytes {
            let zeros = self.create(&zeros, &format!("0 {sectors} zero"))?;
            let how = format!("writeback smq 2 migration_threshold {WRITTEN_BACK_AT_ONCE}");
            let filled = self.create(&name, &cache(&zeros, &how))?;
            self.fill((slow, &filled), &name, bytes)?;
            self.remove_last()?;
            self.remove_last()?;
        }
        let device = self.create(&name, &cache(slow, "writethrough smq 0"))?;
        let (status, held) = (self.status(&name)?, held_bytes.unwrap_or(0).div_ceil(BLOCK));
        let is_as_asked = status.dirty_blocks == 0 && status.used_blocks >= held;
        anyhow::ensure!(is_as_asked, "dm-cache holds {status:?}, and was to hold {held} clean blocks");
        Ok(device)
    }

    /// Writes so many bytes of the slow disk to a cache over zeros, and waits until it has written them back.
    fn fill(&self, (slow, filled): (&Path, &Path), name: &str, bytes: u64) -> anyhow::Result<()> {
        let mib = bytes.div_ceil(MIB);
        // 1 MiB a second is slower than any disk that still works.
        let limit = LIMIT + Duration::from_secs(mib);
        let (from, to) = (format!("if={}", slow.display()), format!("of={}", filled.display()));
        let count = format!("count={mib}");
        let args = [from.as_str(), to.as_str(), "bs=1M", count.as_str(), "iflag=direct", "oflag=direct"];
        in_guest::run(&*self.node, "dd", &args, limit)?;
        let held = bytes.div_ceil(BLOCK);
        let used = self.status(name)?.used_blocks;
        anyhow::ensure!(used >= held, "dm-cache took up {used} of {held} blocks that were written to it");
        poll("dm-cache does not write back what was written to it", limit, || {
            Ok((self.status(name)?.dirty_blocks == 0).then_some(()))
        })
    }

    /// What the kernel counts of it, in its own words.
    pub fn counted(&self) -> String {
        // The cache is over all others.
        let said = self.made.last().map(|name| self.dmsetup(&["status", name.as_str()])).transpose();
        match said {
            Ok(said) => format!("dmsetup status: {}", said.as_deref().unwrap_or("-")),
            Err(e) => format!("{e:#}"),
        }
    }

    /// Takes it off, the last device first.
    pub fn take_off(&self) -> anyhow::Result<()> {
        self.made.iter().rev().map(|name| self.remove(name)).fold(Ok(()), Result::and)
    }

    /// Makes a device; its node by the kernel's own name, since a guest has no udev that would make those by names.
    fn create(&mut self, name: &str, table: &str) -> anyhow::Result<PathBuf> {
        let uuid = self.owner.as_ref().map(|owner| owner.uuid(name));
        let mut args = vec!["create", name, "--noudevsync", "--noudevrules", "--table", table];
        args.extend(uuid.iter().flat_map(|uuid| ["--uuid", uuid.as_str()]));
        self.dmsetup(&args)?;
        self.made.push(name.to_owned());
        let minor = self.dmsetup(&["info", "-c", "--noheadings", "-o", "minor", name])?;
        let device = Path::new("/dev").join(format!("dm-{minor}"));
        let reader = self.node.reader();
        poll("there is no node of dm-cache's device", LIMIT, || Ok(reader.stat(&device)?))?;
        Ok(device)
    }

    fn remove_last(&mut self) -> anyhow::Result<()> {
        let Some(name) = self.made.last() else { return Ok(()) };
        self.remove(name)?;
        self.made.pop();
        Ok(())
    }

    fn remove(&self, name: &str) -> anyhow::Result<()> {
        self.dmsetup(&["remove", "--noudevsync", "--noudevrules", "--retry", name]).map(drop)
    }

    fn status(&self, name: &str) -> anyhow::Result<Status> {
        let said = self.dmsetup(&["status", name])?;
        Status::read(&said).with_context(|| format!("dm-cache is in the state {said}"))
    }

    fn dmsetup(&self, args: &[&str]) -> anyhow::Result<String> {
        in_guest::run(&*self.node, DMSETUP, args, LIMIT)
    }
}

/// The name of the device that a cache over a disk has.
pub fn device_name(slow: &Path) -> anyhow::Result<String> {
    Ok(format!("vmio-{}", kernel_name(slow)?))
}

/// Bytes of a read as the kernel counts it, of so many that so many requests read: of a larger request each of its
/// blocks counts.
pub fn bytes_of_one(read_bytes: u64, requests: u64) -> Option<f64> {
    (requests > 0).then(|| (read_bytes as f64 / requests as f64).min(BLOCK as f64))
}

/// Bytes of the metadata of a cache on a disk of so many bytes, in whole MiB: 4 MiB and 16 bytes for each block
/// (cache.rst).
fn metadata_bytes(fast_bytes: u64) -> u64 {
    (4 * MIB + fast_bytes / BLOCK * 16).next_multiple_of(MIB)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use vmio_node::fake::{Fake, fails, says};
    use vmio_node::{Exec, Reader};

    use super::*;

    /// What a cache of 8 MiB with a disk of 4 MiB says.
    fn status(used: u64, dirty: u64) -> String {
        format!(
            "0 8192 cache 8 29/1280 128 {used}/176 7 3 64 0 0 64 {dirty} 1 writethrough 2 migration_threshold 2048 smq \
             0 rw - \n"
        )
    }

    fn minor(name: &str) -> &'static str {
        match name {
            "vmio-vdb-metadata" => "0\n",
            "vmio-vdb-blocks" => "1\n",
            "vmio-vdb-zeros" => "2\n",
            _ => "3\n",
        }
    }

    /// A guest with a slow disk vdb of 4 MiB and a fast one vdc of 16 MiB, whose cache says these, the first first, and
    /// the last from then on.
    fn guest(said: &[String]) -> Arc<Fake> {
        let said = Mutex::new(said.iter().rev().cloned().collect::<Vec<_>>());
        let guest = Fake::new("guest0")
            .file("/sys/block/vdb/size", "8192\n")
            .file("/sys/block/vdc/size", "32768\n")
            .file("/dev/dm-0", "")
            .file("/dev/dm-1", "")
            .file("/dev/dm-2", "")
            .file("/dev/dm-3", "")
            .command(move |command| match command.args.first().map(String::as_str) {
                Some("status") => {
                    let mut said = said.lock().unwrap();
                    Some(says(if said.len() > 1 { said.pop().unwrap() } else { said[0].clone() }))
                }
                Some("info") => Some(says(minor(command.args.last().unwrap()))),
                _ => Some(says("")),
            });
        Arc::new(guest)
    }

    fn set_up(guest: &Arc<Fake>, held_bytes: Option<u64>) -> (anyhow::Result<PathBuf>, Vec<DmCache>) {
        let (node, mut all) = (Arc::clone(guest), Vec::new());
        let disks = (Path::new("/dev/vdb"), Path::new("/dev/vdc"));
        (DmCache::set_up((node, None), disks, held_bytes, &mut all), all)
    }

    /// What was run, without what is looked at, and without the options of each.
    fn told(guest: &Fake) -> Vec<String> {
        let shown = guest.ran().iter().map(Exec::shown).collect::<Vec<_>>();
        let done = shown.iter().filter(|line| !line.contains(" status ") && !line.contains(" info "));
        done.map(|line| line.replace(" --noudevsync --noudevrules", "").replace(" --retry", "")).collect()
    }

    const PARTS: [&str; 2] = [
        "dmsetup create vmio-vdb-metadata --table '0 10240 linear /dev/vdc 0'",
        "dmsetup create vmio-vdb-blocks --table '0 22528 linear /dev/vdc 10240'",
    ];

    fn over(origin: &str, how: &str) -> String {
        format!("dmsetup create vmio-vdb --table '0 8192 cache /dev/dm-0 /dev/dm-1 {origin} 128 1 {how}'")
    }

    #[test]
    fn an_empty_one_has_new_metadata_and_is_taken_off_the_last_device_first() {
        let guest = guest(&[status(0, 0)]);
        let (device, all) = set_up(&guest, None);
        assert_eq!(device.unwrap(), Path::new("/dev/dm-3"));
        assert_eq!(guest.read(Path::new("/dev/vdc")).unwrap(), [0; 4096]);
        let whole = over("/dev/vdb", "writethrough smq 0");
        assert_eq!(told(&guest), [PARTS[0], PARTS[1], whole.as_str()]);
        assert_eq!(all[0].counted(), format!("dmsetup status: {}", status(0, 0).trim()));
        all[0].take_off().unwrap();
        let off = ["", "-blocks", "-metadata"].map(|part| format!("dmsetup remove vmio-vdb{part}"));
        assert_eq!(told(&guest)[3..], off);
    }

    #[test]
    fn one_that_is_to_hold_the_disk_is_filled_over_zeros_and_put_over_the_disk_once_it_is_clean() {
        let guest = guest(&[status(64, 64), status(64, 64), status(64, 9), status(64, 0)]);
        let (device, all) = set_up(&guest, Some(4 * MIB));
        assert_eq!((device.unwrap(), all[0].made.len()), ("/dev/dm-3".into(), 3));
        let zeros = over("/dev/dm-2", "writeback smq 2 migration_threshold 16384");
        let whole = over("/dev/vdb", "writethrough smq 0");
        let copied = "dd if=/dev/vdb of=/dev/dm-3 bs=1M count=4 iflag=direct oflag=direct";
        let expected = [
            PARTS[0],
            PARTS[1],
            "dmsetup create vmio-vdb-zeros --table '0 8192 zero'",
            zeros.as_str(),
            copied,
            "dmsetup remove vmio-vdb",
            "dmsetup remove vmio-vdb-zeros",
            whole.as_str(),
        ];
        assert_eq!(told(&guest), expected);
        let looked = guest.ran().iter().filter(|command| command.args[0] == "status").count();
        assert_eq!(looked, 5, "until nothing is dirty, and once in the end");
    }

    #[test]
    fn one_that_does_not_hold_what_it_is_to_hold_is_refused() {
        let said = |statuses: &[String]| set_up(&guest(statuses), Some(4 * MIB)).0.unwrap_err().to_string();
        assert!(said(&[status(63, 63)]).contains("took up 63 of 64 blocks"));
        let forgot = said(&[status(64, 64), status(64, 0), status(0, 0)]);
        assert!(forgot.contains("was to hold 64 clean blocks"), "{forgot}");
        let failed = said(&["0 8192 cache Fail\n".to_owned()]);
        assert!(failed.ends_with("in the state 0 8192 cache Fail"), "{failed}");
    }

    #[test]
    fn what_was_made_until_it_failed_is_taken_off() {
        let guest = Fake::new("guest0")
            .file("/sys/block/vdb/size", "8192\n")
            .file("/sys/block/vdc/size", "32768\n")
            .command(|command| {
                let refused = command.args[0] == "create" && command.args[1] == "vmio-vdb";
                Some(match command.args[0].as_str() {
                    _ if refused => fails(1, "device-mapper: reload ioctl failed\n"),
                    "info" => says(minor(command.args.last().unwrap())),
                    _ => says(""),
                })
            })
            .file("/dev/dm-0", "")
            .file("/dev/dm-1", "");
        let (device, all) = set_up(&Arc::new(guest), None);
        assert!(device.unwrap_err().to_string().contains("reload ioctl failed"));
        assert_eq!(all[0].made, ["vmio-vdb-metadata", "vmio-vdb-blocks"]);
        all[0].take_off().unwrap();
    }

    #[test]
    fn devices_of_the_hosts_own_bear_the_mark_of_their_journal() {
        let (host, mut all) = (guest(&[status(0, 0)]), Vec::<DmCache>::new());
        let (node, owner) = (Arc::clone(&host), Some(Mapped::of("run-7-ab")));
        let disks = (Path::new("/dev/vdb"), Path::new("/dev/vdc"));
        DmCache::set_up((node, owner), disks, None, &mut all).unwrap();
        let made = told(&host).into_iter().filter(|line| line.starts_with("dmsetup create ")).collect::<Vec<_>>();
        for (line, name) in made.iter().zip(["vmio-vdb-metadata", "vmio-vdb-blocks", "vmio-vdb"]) {
            assert!(line.ends_with(&format!(" --uuid vmio-run-7-ab:{name}")), "{line}");
        }
        assert_eq!(made.len(), 3);
    }

    #[test]
    fn a_large_request_counts_by_its_blocks() {
        assert_eq!(bytes_of_one(40 << 10, 10), Some(4096.0));
        assert_eq!(bytes_of_one(10 * MIB, 10), Some(65536.0));
        assert_eq!(bytes_of_one(MIB, 0), None);
    }

    #[test]
    fn metadata_grow_with_the_cache() {
        assert_eq!([16 * MIB, 1536 * MIB, 1 << 40].map(metadata_bytes), [5 * MIB, 5 * MIB, 260 * MIB]);
    }
}
