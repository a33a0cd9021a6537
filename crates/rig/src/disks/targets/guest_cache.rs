//! A flash cache in a guest: the guest has two disks, a slow one and a fast one, and its kernel keeps on the fast one
//! what it reads of the slow one, by bcache (kernel document admin-guide/bcache.rst) or by dm-cache (kernel document
//! admin-guide/device-mapper/cache.rst). It is set up by the guest's agent before each cell, anew, so that each cell
//! begins with an empty cache, or with one that holds the whole disk, and taken off after it (`engine/stage/bcache.rs`,
//! `engine/stage/dm_cache.rs`).
//!
//! Both devices are modelled: the slow one is a written-out raw file of the place (`--on modelled:RATE`), the fast one
//! a file in memory ([`memory`]), which the hypervisor opens through the page cache that it lies in anyway.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vmio_look::require::{self, Requirement};
use vmio_model::cell;
use vmio_node::{ChangeId, Journal, Local};

use super::memory;
use super::raw_file::RawFile;
use super::scratch::{self, MIB, Scratch};
use super::{
    CacheAt, CacheDriver, Demands, Prepared, Result, Space, State, Target, TargetCtx, Unfit, WRITTEN_OUT, facts,
    is_modelled,
};
use crate::disks::Storage;
use crate::disks::places::{PlaceBackend, Pool};

/// What dm-cache is set up by, and asked (dmsetup(8)).
pub const DMSETUP: &str = "dmsetup";

/// Entry `guest-bcache`.
pub const BCACHE: GuestCache = GuestCache {
    name: "guest-bcache",
    about: "raw file on a modelled disk with bcache in the guest, whose cache is a disk in memory; guests only, only \
            read",
    driver: CacheDriver::Bcache,
    shown: "bcache",
    modules: &["bcache"],
    programs: &[],
    requirements: &[memory::REQUIREMENT],
    guests_alone: "guest-bcache lies in a guest; compare it with preallocated",
    only_read: "guest-bcache is only read: what a cache does with writes is not measured",
    // Its superblock: data begin at 8 KiB.
    own_bytes: MIB,
    // The kernel refuses 512 buckets or fewer (drivers/md/bcache/super.c, `cache_alloc`), and they have 64 KiB
    // (`engine/stage/bcache/superblock.rs`).
    least_bytes: 40 * MIB,
};

/// Entry `guest-dm-cache`.
pub const DM_CACHE: GuestCache = GuestCache {
    name: "guest-dm-cache",
    about: "raw file on a modelled disk with dm-cache in the guest, whose cache is a disk in memory; guests only, only \
            read",
    driver: CacheDriver::DmCache,
    shown: "dm-cache (smq)",
    modules: &["dm_cache", "dm_cache_smq", "dm_zero"],
    programs: &[DMSETUP],
    requirements: &[
        memory::REQUIREMENT,
        Requirement {
            name: DMSETUP,
            why: "sets up dm-cache in guests, whose image has the program from here",
            fix: "apt install dmsetup, or leave out the target `guest-dm-cache`",
            check: |reader| require::program(reader, DMSETUP),
        },
    ],
    guests_alone: "guest-dm-cache lies in a guest; compare it with preallocated",
    only_read: "guest-dm-cache is only read: what a cache does with writes is not measured",
    own_bytes: 0,
    // Of the cache's disk its metadata take 5 MiB (`engine/stage/dm_cache.rs`), and all of the slow disk is to fit
    // beside them.
    least_bytes: 16 * MIB,
};

/// A flash cache in a guest.
pub struct GuestCache {
    name: &'static str,
    about: &'static str,
    driver: CacheDriver,
    /// As results name it.
    shown: &'static str,
    /// What the guest's kernel needs for it, and what it is set up by.
    modules: &'static [&'static str],
    programs: &'static [&'static str],
    requirements: &'static [Requirement],
    guests_alone: &'static str,
    only_read: &'static str,
    /// What it keeps for itself of the slow disk, in whole MiB.
    own_bytes: u64,
    /// Least bytes of a cache.
    least_bytes: u64,
}

impl GuestCache {
    /// Bytes of a cache for so many of a disk: half as much again, since bcache adds nothing where it is 95 % full.
    pub(super) fn disk_bytes(&self, bytes: u64) -> u64 {
        let bytes = bytes.next_multiple_of(MIB);
        (bytes + bytes / 2).next_multiple_of(MIB).max(self.least_bytes)
    }
}

/// The states of a disk below a flash cache of a kernel, a guest's or this host's (`dm_cache.rs`).
pub(super) fn can_be(state: State) -> Result<(), &'static str> {
    match state {
        State::Fresh => Err(WRITTEN_OUT),
        State::WarmGuest | State::WarmHost => {
            Err("a page cache is measured without another cache: use preallocated, or warm-flash here")
        }
        State::Filled | State::WarmFlash => Ok(()),
    }
}

impl Target for GuestCache {
    fn name(&self) -> &'static str {
        self.name
    }
    fn about(&self) -> &'static str {
        self.about
    }
    fn requirements(&self) -> &'static [Requirement] {
        self.requirements
    }
    fn fits(&self, backend: &PlaceBackend) -> Result<(), Unfit> {
        is_modelled(backend)
    }
    fn space(&self, bytes: u64, _attachments: u64) -> Space {
        let bytes = bytes + self.own_bytes;
        Space { taken_bytes: bytes, prepared_bytes: bytes }
    }
    fn cache_bytes(&self, bytes: u64, disks: u64) -> u64 {
        self.disk_bytes(bytes).saturating_mul(disks)
    }
    fn flash_cache(&self) -> Option<CacheAt> {
        Some(CacheAt::Guest(self.driver))
    }
    fn can_be(&self, state: State, _native: bool, _pool: Option<&Pool>) -> Result<(), &'static str> {
        can_be(state)
    }
    fn guest_modules(&self) -> &'static [&'static str] {
        self.modules
    }
    fn guest_programs(&self) -> &'static [&'static str] {
        self.programs
    }
    fn guests_alone(&self) -> Option<&'static str> {
        Some(self.guests_alone)
    }
    fn only_read(&self) -> Option<&'static str> {
        Some(self.only_read)
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        let cache_bytes = self.disk_bytes(ctx.bytes);
        memory::room(ctx.node, cache_bytes, 1)?;
        let (dir, bytes) = (ctx.dir.clone(), ctx.bytes + self.own_bytes);
        let larger = TargetCtx { node: ctx.node, dir, pool: None, bytes, device: None, host: None, ..*ctx };
        let file = Box::new(RawFile::new(Scratch::make_with(&larger, self.name, Scratch::fill)?, false));
        match memory::dir(ctx.journal, self.name) {
            Ok((dir, made)) => {
                let node = Local::owned(Arc::clone(ctx.journal));
                let (own_bytes, shown) = (self.own_bytes, self.shown);
                Ok(Box::new(Slow { file, node, dir, made, caches: Vec::new(), own_bytes, cache_bytes, shown }))
            }
            Err(e) => {
                let _ = file.remove(ctx.journal);
                Err(e)
            }
        }
    }
}

/// The slow disk, and the files of caches.
struct Slow {
    file: Box<RawFile>,
    /// Where there is to be room for the caches.
    node: Local,
    /// Directory of the caches, of mode 0700.
    dir: PathBuf,
    made: ChangeId,
    /// By attachment and guest; the place in the list is part of a file's name.
    caches: Vec<(cell::Attachment, String)>,
    /// What the cache keeps for itself of the slow disk.
    own_bytes: u64,
    /// Of each cache's disk.
    cache_bytes: u64,
    /// The cache, as results name it.
    shown: &'static str,
}

impl Prepared for Slow {
    fn native(&self) -> &Path {
        self.file.native()
    }
    fn intact(&self) -> Result<()> {
        self.file.intact()
    }
    fn attach(&mut self, asked: &cell::Attachment) -> Result<Storage> {
        self.file.attach(asked)
    }
    fn cache_disk(&mut self, asked: &cell::Attachment, guest: &str) -> Result<Option<PathBuf>> {
        let known = self.caches.iter().position(|(of, name)| of == asked && name == guest);
        let path = self.dir.join(format!("{}.raw", known.unwrap_or(self.caches.len())));
        if known.is_none() {
            // None takes what it may before the first cell.
            memory::room(&self.node, self.cache_bytes, self.caches.len() + 1)?;
            let file = OpenOptions::new().write(true).create_new(true).open(&path);
            let sized = file.and_then(|file| file.set_len(self.cache_bytes));
            sized.map_err(scratch::io("make the file of a cache", &path))?;
            self.caches.push((asked.clone(), guest.to_owned()));
        }
        Ok(Some(path))
    }
    fn attached(&self, _asked: &cell::Attachment) -> BTreeMap<String, String> {
        let (shown, mib) = (self.shown, self.cache_bytes / MIB);
        facts([("in_guest", format!("{shown}, write-through, on a modelled cache device of {mib} MiB (memory)"))])
    }
    fn bytes(&self) -> u64 {
        self.file.bytes() - self.own_bytes
    }
    fn demands(&self) -> Demands {
        self.file.demands()
    }
    fn effective(&self) -> BTreeMap<String, String> {
        self.file.effective()
    }
    fn reset(&mut self, state: State) -> Result<u64> {
        self.file.reset(state)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        let Self { file, made, .. } = *self;
        journal.undo(made)?;
        file.remove(journal)
    }
}
