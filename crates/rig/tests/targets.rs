//! Targets that need no root: sparse and written-out files, on a real file system.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use common::Bed;
use vmio_model::cell::{Aio, Attachment, Cache};
use vmio_rig::disks::space;
use vmio_rig::disks::targets::{self, State};
use vmio_testbed::skip;

const MIB: u64 = 1 << 20;

fn allocated(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

/// Number of 4 KiB blocks that are all zero, and of those that equal the one before.
fn dull_blocks(path: &Path) -> (usize, usize) {
    let data = std::fs::read(path).unwrap();
    let blocks: Vec<&[u8]> = data.chunks(4096).collect();
    let zero = blocks.iter().filter(|b| b.iter().all(|&x| x == 0)).count();
    (zero, blocks.windows(2).filter(|w| w[0] == w[1]).count())
}

#[test]
fn a_sparse_file_is_empty_before_each_writing_cell() {
    let bed = Bed::new();
    let mut target = targets::find("sparse").unwrap().prepare(&bed.ctx(8)).unwrap();
    let path = target.native().to_owned();
    assert_eq!((target.bytes(), path.metadata().unwrap().len(), allocated(&path)), (8 * MIB, 8 * MIB, 0));
    // Through the page cache, as a buffered workload leaves it.
    File::options().write(true).open(&path).unwrap().write_all_at(&[7; 3 << 20], MIB).unwrap();
    target.reset(State::Filled).unwrap();
    assert!(allocated(&path) >= 8 * MIB);
    assert_eq!(dull_blocks(&path), (0, 767), "what the workload wrote stays, the holes hold data");
    target.reset(State::Fresh).unwrap();
    assert!(allocated(&path) <= 64 << 10, "{} bytes are left", allocated(&path));
    assert_eq!(path.metadata().unwrap().len(), 8 * MIB, "the size is kept");
    assert_eq!(dull_blocks(&path).0, 2048, "all of it reads as zeros");
    target.remove(&bed.journal).unwrap();
    assert_eq!(bed.files(), [""; 0]);
}

#[test]
fn a_preallocated_file_is_written_out() {
    let bed = Bed::new();
    let mut target = targets::find("preallocated").unwrap().prepare(&bed.ctx(5)).unwrap();
    let path = target.native().to_owned();
    assert!(allocated(&path) >= 5 * MIB);
    assert_eq!(dull_blocks(&path), (0, 0));
    assert_eq!(target.effective()["allocated_bytes"].parse::<u64>().unwrap(), allocated(&path));
    let before = std::fs::read(&path).unwrap();
    target.reset(State::Fresh).unwrap();
    assert!(std::fs::read(&path).unwrap() == before, "it is not written again");
    target.remove(&bed.journal).unwrap();
    assert_eq!(bed.files(), [""; 0]);
}

/// bcache's own blocks are beside what the target holds; dm-cache has none there.
#[test]
fn each_guest_has_a_cache_disk_of_its_own_in_memory() {
    let bed = Bed::new();
    if space::demand(&bed.node, Path::new("/dev/shm"), 80 * MIB).is_err() {
        return skip("/dev/shm has no room for two caches");
    }
    for (name, file_mib, least_mib) in [("guest-bcache", 5, 40), ("guest-dm-cache", 4, 16)] {
        let mut target = targets::find(name).unwrap().prepare(&bed.ctx(4)).unwrap();
        assert_eq!((target.bytes(), target.native().metadata().unwrap().len()), (4 * MIB, file_mib * MIB), "{name}");
        let asked = Attachment::new("virtio-blk", Cache::None, Aio::Threads);
        let [one, again, other] =
            ["qemu", "qemu", "qemu#2"].map(|guest| target.cache_disk(&asked, guest).unwrap().unwrap());
        assert_eq!(one, again);
        assert_ne!(one, other);
        assert_eq!(one.metadata().unwrap().len(), least_mib * MIB, "{name} takes no smaller one");
        let dir = one.parent().unwrap().to_owned();
        target.remove(&bed.journal).unwrap();
        assert!(!dir.exists() && bed.files().is_empty(), "{name}: {:?}", bed.files());
    }
}

#[test]
fn the_journal_takes_away_what_was_not_removed() {
    let bed = Bed::new();
    for name in ["sparse", "preallocated"] {
        std::mem::forget(targets::find(name).unwrap().prepare(&bed.ctx(1)).unwrap());
    }
    assert_eq!(bed.files(), ["vmio-preallocated.raw", "vmio-sparse.raw"]);
    assert_eq!(bed.journal.undo_all(), [""; 0]);
    assert_eq!(bed.files(), [""; 0]);
}

/// As after a run that was killed.
#[test]
fn the_journal_takes_away_caches_in_memory() {
    let bed = Bed::new();
    if space::demand(&bed.node, Path::new("/dev/shm"), 40 * MIB).is_err() {
        return skip("/dev/shm has no room for a cache");
    }
    let mut target = targets::find("guest-bcache").unwrap().prepare(&bed.ctx(1)).unwrap();
    let asked = Attachment::new("virtio-blk", Cache::None, Aio::Threads);
    let cache = target.cache_disk(&asked, "qemu").unwrap().unwrap();
    std::mem::forget(target);
    assert!(cache.exists());
    assert_eq!(bed.journal.undo_all(), [""; 0]);
    assert!(!cache.parent().unwrap().exists() && bed.files().is_empty(), "{}", cache.display());
}

#[test]
fn somebody_elses_file_is_never_overwritten() {
    let bed = Bed::new();
    let path = bed.dir().join("vmio-sparse.raw");
    std::fs::write(&path, "precious").unwrap();
    let said = targets::find("sparse").unwrap().prepare(&bed.ctx(1)).err().unwrap().to_string();
    assert!(said.contains("vmio-sparse.raw"), "{said}");
    assert_eq!(bed.journal.undo_all(), [""; 0]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn what_cannot_be_had_is_refused_before_anything_is_made() {
    let bed = Bed::new();
    let mut ctx = bed.ctx(1 << 40);
    let said = targets::find("sparse").unwrap().prepare(&ctx).err().unwrap().to_string();
    assert!(said.contains("not enough space") && said.contains("--on"), "{said}");
    ctx.bytes = MIB;
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    ctx.dir = memory.path().into();
    for name in ["sparse", "preallocated"] {
        let said = targets::find(name).unwrap().prepare(&ctx).err().unwrap().to_string();
        assert!(said.contains("tmpfs has no direct I/O"), "{said}");
    }
    ctx.dir = bed.dir().join("missing");
    let said = targets::find("sparse").unwrap().prepare(&ctx).err().unwrap().to_string();
    assert!(said.contains("missing") && said.contains("No such file"), "{said}");
    assert_eq!(bed.files(), [""; 0]);
}
