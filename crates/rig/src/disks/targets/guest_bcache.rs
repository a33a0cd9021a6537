//! A flash cache in a guest: the guest has two disks, a slow one and a fast one, and its kernel's bcache (kernel
//! document admin-guide/bcache.rst) keeps on the fast one what it reads of the slow one. It is set up by the guest's
//! agent before each cell, anew, so that each cell begins with an empty cache, and taken off after it
//! (`engine/stage/bcache.rs`).
//!
//! Both devices are modelled: the slow one is a written-out raw file of the place (`--on modelled:RATE`), the fast one
//! a file in memory ([`memory`]), which the hypervisor opens through the page cache that it lies in anyway.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vmio_look::require::Requirement;
use vmio_model::cell;
use vmio_node::{ChangeId, Journal, Local};

use super::memory;
use super::raw_file::RawFile;
use super::scratch::{self, MIB, Scratch};
use super::{CacheAt, Demands, Prepared, Result, Space, State, Target, TargetCtx, Unfit, WRITTEN_OUT, facts};
use crate::disks::Storage;
use crate::disks::places::{PlaceBackend, Pool};

/// Entry `guest-bcache`.
pub struct GuestBcache;

/// What bcache keeps for itself at the start of the slow disk, in whole MiB: its data begin at 8 KiB.
const OWN_BYTES: u64 = MIB;

/// Least bytes of a cache: the kernel refuses one of 512 buckets or fewer (drivers/md/bcache/super.c, `cache_alloc`),
/// and they have 64 KiB (`engine/stage/bcache/superblock.rs`).
const LEAST_BYTES: u64 = 40 * MIB;

/// Bytes of a cache for so many of a disk: half as much again, since it adds nothing where it is 95 % full.
fn cache_bytes(bytes: u64) -> u64 {
    (bytes + bytes / 2).next_multiple_of(MIB).max(LEAST_BYTES)
}

impl Target for GuestBcache {
    fn name(&self) -> &'static str {
        "guest-bcache"
    }
    fn about(&self) -> &'static str {
        "raw file on a modelled disk with bcache in the guest, whose cache is a disk in memory; guests only, only read"
    }
    fn requirements(&self) -> &'static [Requirement] {
        const { &[memory::REQUIREMENT] }
    }
    fn fits(&self, backend: &PlaceBackend) -> Result<(), Unfit> {
        if backend.modelled().is_some() { Ok(()) } else { Err(Unfit::NotModelled) }
    }
    fn space(&self, bytes: u64, _attachments: u64) -> Space {
        let bytes = bytes + OWN_BYTES;
        Space { taken_bytes: bytes, prepared_bytes: bytes }
    }
    fn cache_bytes(&self, bytes: u64, disks: u64) -> u64 {
        cache_bytes(bytes).saturating_mul(disks)
    }
    fn flash_cache(&self) -> Option<CacheAt> {
        Some(CacheAt::Guest)
    }
    fn can_be(&self, state: State, _native: bool, _pool: Option<&Pool>) -> Result<(), &'static str> {
        match state {
            State::Fresh => Err(WRITTEN_OUT),
            State::WarmGuest | State::WarmHost => {
                Err("a page cache is measured without another cache: use preallocated, or warm-flash here")
            }
            State::Filled | State::WarmFlash => Ok(()),
        }
    }
    fn guest_modules(&self) -> &'static [&'static str] {
        &["bcache"]
    }
    fn guests_alone(&self) -> Option<&'static str> {
        Some("guest-bcache lies in a guest; compare it with preallocated")
    }
    fn only_read(&self) -> Option<&'static str> {
        Some("guest-bcache is only read: what a cache does with writes is not measured")
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        memory::room(ctx.node, cache_bytes(ctx.bytes), 1)?;
        let (dir, bytes) = (ctx.dir.clone(), ctx.bytes + OWN_BYTES);
        let larger = TargetCtx { node: ctx.node, dir, pool: None, bytes, device: None, host: None, ..*ctx };
        let file = Box::new(RawFile::new(Scratch::make_with(&larger, self.name(), Scratch::fill)?, false));
        match memory::dir(ctx.journal, self.name()) {
            Ok((dir, made)) => {
                let node = Local::owned(Arc::clone(ctx.journal));
                Ok(Box::new(Slow { file, node, dir, made, caches: Vec::new() }))
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
            memory::room(&self.node, cache_bytes(self.bytes()), self.caches.len() + 1)?;
            let file = OpenOptions::new().write(true).create_new(true).open(&path);
            let sized = file.and_then(|file| file.set_len(cache_bytes(self.bytes())));
            sized.map_err(scratch::io("make the file of a cache", &path))?;
            self.caches.push((asked.clone(), guest.to_owned()));
        }
        Ok(Some(path))
    }
    fn attached(&self, _asked: &cell::Attachment) -> BTreeMap<String, String> {
        let mib = cache_bytes(self.bytes()) / MIB;
        facts([("in_guest", format!("bcache, write-through, on a modelled cache device of {mib} MiB (memory)"))])
    }
    fn bytes(&self) -> u64 {
        self.file.bytes() - OWN_BYTES
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
