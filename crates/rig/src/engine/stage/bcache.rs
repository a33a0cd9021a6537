//! bcache in a guest, over its slow disk and with its fast one as the cache: set up before a cell by the guest's agent,
//! empty, and taken off after it (kernel documents admin-guide/bcache.rst and ABI/testing/sysfs-block-bcache). No
//! program is needed in the guest: the superblocks are written from here, the rest is its sysfs.
//!
//! Of what it reads it does not keep all: what misses is written to buckets that are free at that moment, and what is
//! left when there is none is not kept, nor waited for (drivers/md/bcache/request.c, `bch_data_insert_start`; alloc.c,
//! `bch_bucket_alloc`). Only one bucket of 512 to 1,024 is kept free. A thread frees others, which it has to write down
//! first (alloc.c, `bch_allocator_thread`), and it waits while garbage is collected. So what is to be in the cache is
//! read in small reads ([`kept_read_bytes`]), as often as it takes (`warming.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use vmio_model::study::MIB;
use vmio_node::{Node, Reader};

use self::superblock::BUCKET_BYTES;
use super::in_guest::{POLL, disk_bytes, kernel_name, poll};

mod superblock;

/// Where devices are registered, and sets are found.
const SETS: &str = "/sys/fs/bcache";
/// How long a step may take: a set that is taken off writes out its tables first.
const LIMIT: Duration = Duration::from_secs(60);
/// How long devices of an earlier cell may be in use after it.
const LET_GO: Duration = Duration::from_secs(10);
/// What it counts of a disk (admin-guide/bcache.rst, `stats_total`).
const STATS: [&str; 6] =
    ["cache_hits", "cache_misses", "cache_bypass_hits", "cache_bypass_misses", "cache_miss_collisions", "bypassed"];
/// The first lines of its `priority_stats`: which part of the buckets is unused, clean, dirty, and metadata.
const PARTS: usize = 4;

/// Bytes of a read through a new cache of so many bytes that mostly finds free buckets for all that it reads: a quarter
/// of those that are kept free (drivers/md/bcache/super.c, `cache_alloc`), a bucket at least, and 1 MiB at most.
pub fn kept_read_bytes(cache_bytes: u64) -> u64 {
    let free = superblock::buckets(cache_bytes).next_power_of_two() >> 10;
    (free / 4 * BUCKET_BYTES).clamp(BUCKET_BYTES, MIB)
}

/// What was set up in a guest.
pub struct Bcache {
    node: Arc<dyn Node>,
    /// Directories of the slow disk's part, of the cache's, and of the set.
    backing: PathBuf,
    cache: PathBuf,
    set: PathBuf,
}

impl Bcache {
    /// Sets it up, and returns the device. What was set up until it failed is in `all`, to be taken off.
    pub fn set_up(
        node: Arc<dyn Node>,
        (slow, fast): (&Path, &Path),
        all: &mut Vec<impl From<Self>>,
    ) -> anyhow::Result<PathBuf> {
        let ((cache, _), (backing, _)) = (uuid(node.reader())?, uuid(node.reader())?);
        let (set, set_text) = uuid(node.reader())?;
        let bytes = disk_bytes(&*node, fast)?;
        node.write(fast, &superblock::cache_device(cache, set, bytes), None)?;
        node.write(slow, &superblock::backing_device(backing, set), None)?;

        let (backing, cache) = (part(slow)?, part(fast)?);
        let set = Path::new(SETS).join(set_text);
        all.push(Self { node: Arc::clone(&node), backing: backing.clone(), cache, set: set.clone() }.into());
        for device in [fast, slow] {
            register(&*node, device)?;
        }
        let put = |at: PathBuf, text: &str| {
            let failed = || format!("the guest's bcache does not take {text} at {}", at.display());
            node.write(&at, text.as_bytes(), None).with_context(failed)
        };
        let device = poll("bcache does not make a device", LIMIT, || Ok(node.reader().link(&backing.join("dev"))?))?;
        // Every read is cached, however long and however busy the cache's disk is.
        put(backing.join("sequential_cutoff"), "0")?;
        put(set.join("congested_read_threshold_us"), "0")?;
        put(set.join("congested_write_threshold_us"), "0")?;
        let state = node.reader().read_text(&backing.join("state"))?;
        anyhow::ensure!(state.trim() == "clean", "the guest's bcache is in the state {}, not clean", state.trim());
        let device = Path::new("/dev").join(device.file_name().context("bcache's device has no name")?);
        poll("the guest has no node of bcache's device", LIMIT, || Ok(node.reader().stat(&device)?))?;
        Ok(device)
    }

    /// What it counts itself, in words. Its hits and misses are as of up to 14 s ago (drivers/md/bcache/stats.c,
    /// `accounting_delay`), the rest is as of now.
    pub fn counted(&self) -> String {
        let reader = self.node.reader();
        let value = |dir: &Path, file: &str| {
            let text = reader.read_text(&dir.join(file)).unwrap_or_else(|_| "-".to_owned());
            text.trim().to_owned()
        };
        let stats = STATS.map(|name| format!("{name} {}", value(&self.backing.join("stats_total"), name))).join(", ");
        let written = value(&self.cache, "written");
        let races = value(&self.set.join("internal"), "cache_read_races");
        let priorities = value(&self.cache, "priority_stats");
        let parts = priorities.lines().take(PARTS).flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
        format!("bcache counts {stats} (up to 14 s ago), now written {written}, cache_read_races {races}, {parts}")
    }

    /// Takes it off.
    pub fn take_off(&self) -> anyhow::Result<()> {
        // The device first, then the set that it was attached to.
        self.stop(&self.backing)?;
        self.stop(&self.set)
    }

    /// Stops what a directory is of, where it is there, and waits until it is gone.
    fn stop(&self, dir: &Path) -> anyhow::Result<()> {
        let reader = self.node.reader();
        if reader.stat(dir)?.is_none() {
            return Ok(());
        }
        self.node.write(&dir.join("stop"), b"1", None)?;
        poll("the guest's bcache does not end", LIMIT, || Ok(reader.stat(dir)?.is_none().then_some(())))
    }
}

/// The directory of a disk's part.
fn part(disk: &Path) -> anyhow::Result<PathBuf> {
    Ok(Path::new("/sys/block").join(kernel_name(disk)?).join("bcache"))
}

/// Hands a device to bcache. It is refused while an earlier cell's is still being let go.
fn register(node: &dyn Node, device: &Path) -> anyhow::Result<()> {
    let (at, end) = (Path::new(SETS).join("register"), Instant::now() + LET_GO);
    loop {
        match node.write(&at, device.display().to_string().as_bytes(), None) {
            Ok(()) => return Ok(()),
            Err(_) if Instant::now() < end => thread::sleep(POLL),
            Err(e) => return Err(e).with_context(|| format!("the guest's bcache refuses {}", device.display())),
        }
    }
}

/// A new UUID, as the guest's kernel makes it (random(4)), and its text.
fn uuid(guest: &dyn Reader) -> anyhow::Result<(superblock::Uuid, String)> {
    let text = guest.read_text(Path::new("/proc/sys/kernel/random/uuid"))?.trim().to_owned();
    let read = superblock::uuid(&text).with_context(|| format!("the guest's kernel gives no UUID but {text}"))?;
    Ok((read, text))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use vmio_node::fake::Fake;

    use super::*;

    /// A guest with a slow disk vdb and a fast one vdc, whose bcache is in a state after both are registered.
    fn guest(state: &str) -> Arc<Fake> {
        let guest = Fake::new("guest0")
            .file("/proc/sys/kernel/random/uuid", "00112233-4455-6677-8899-aabbccddeeff\n")
            .file("/sys/block/vdc/size", "196608\n")
            .file("/sys/block/vdb/bcache/state", format!("{state}\n"))
            .symlink("/sys/block/vdb/bcache/dev", "../../../../virtual/block/bcache0")
            .file("/dev/bcache0", "");
        Arc::new(guest)
    }

    fn set_up(guest: &Arc<Fake>) -> (anyhow::Result<PathBuf>, Vec<Bcache>) {
        let (node, mut all) = (Arc::clone(guest), Vec::new());
        (Bcache::set_up(node, (Path::new("/dev/vdb"), Path::new("/dev/vdc")), &mut all), all)
    }

    #[test]
    fn both_disks_are_written_and_registered_and_every_read_is_cached() {
        let guest = guest("clean");
        let (device, all) = set_up(&guest);
        assert_eq!((device.unwrap(), all.len()), ("/dev/bcache0".into(), 1));
        let written = |path: &str| guest.read(Path::new(path)).unwrap();
        assert_eq!((written("/dev/vdb").len(), written("/dev/vdc").len()), (8192, 8192));
        assert_ne!(written("/dev/vdb"), written("/dev/vdc"));
        // The set first: the slow disk is attached when it comes.
        assert_eq!(written("/sys/fs/bcache/register"), b"/dev/vdb");
        let set = "/sys/fs/bcache/00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(all[0].set, Path::new(set));
        for setting in ["/sys/block/vdb/bcache/sequential_cutoff", &format!("{set}/congested_read_threshold_us")] {
            assert_eq!(written(setting), b"0", "{setting}");
        }
    }

    #[test]
    fn what_it_counts_is_told_as_far_as_it_tells() {
        let guest = guest("clean");
        let (_, all) = set_up(&guest);
        let unknown = all[0].counted();
        assert!(unknown.starts_with("bcache counts cache_hits -, cache_misses -, "), "{unknown}");
        for (name, value) in STATS.iter().zip(["812", "96", "0", "0", "3", "0"]) {
            guest.set(format!("/sys/block/vdb/bcache/stats_total/{name}"), format!("{value}\n"));
        }
        guest.set("/sys/block/vdc/bcache/written", "84.2M\n");
        guest.set(all[0].set.join("internal/cache_read_races"), "1\n");
        let priorities = "Unused:\t\t30%\nClean:\t\t66%\nDirty:\t\t0%\nMetadata:\t3%\nAverage:\t7\n";
        guest.set("/sys/block/vdc/bcache/priority_stats", priorities);
        let told = "bcache counts cache_hits 812, cache_misses 96, cache_bypass_hits 0, cache_bypass_misses 0, \
                    cache_miss_collisions 3, bypassed 0 (up to 14 s ago), now written 84.2M, cache_read_races 1, \
                    Unused: 30% Clean: 66% Dirty: 0% Metadata: 3%";
        assert_eq!(all[0].counted(), told);
    }

    #[test]
    fn a_read_that_is_to_be_kept_takes_a_quarter_of_the_free_buckets() {
        let sizes = [40 * MIB, 256 * MIB, 576 * MIB, 1536 * MIB, 1 << 40].map(kept_read_bytes);
        assert_eq!(sizes.map(|bytes| bytes >> 10), [64, 64, 256, 512, 1024]);
    }

    #[test]
    fn one_without_its_cache_is_refused_and_is_taken_off() {
        let guest = guest("no cache");
        let (device, all) = set_up(&guest);
        assert!(device.unwrap_err().to_string().contains("in the state no cache"));
        assert_eq!(all.len(), 1);
        guest.remove("/sys/block/vdb");
        guest.remove("/sys/fs/bcache");
        all[0].take_off().unwrap();
        assert!(guest.read(Path::new("/sys/block/vdb/bcache/stop")).is_err(), "what is gone is not stopped");
    }
}
