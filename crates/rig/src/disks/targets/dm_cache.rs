//! dm-cache on the host itself (kernel document admin-guide/device-mapper/cache.rst), over a slow disk and a fast one:
//! what a guest's own flash cache (`guest_cache.rs`) is compared with. It is set up before each cell, anew, and
//! taken off after it, by the same code as in a guest (`engine/stage/dm_cache.rs`).
//!
//! Both devices are modelled: the slow one is a loop device with direct I/O over a written-out file of the place
//! (`--on modelled:RATE`), the fast one a loop device over a file in memory ([`memory::disk`]). Neither is held open here,
//! since the device mapper claims both for itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vmio_look::require::{self, Missing, Requirement};
use vmio_model::cell;
use vmio_node::mapped::Mapped;
use vmio_node::{Change, ChangeId, Journal, Reader};

use super::device::LOOP_DEVICES;
use super::guest_cache::{self, DMSETUP};
use super::loopdev::{self, LoopIoMode};
use super::scratch::{self, MIB, Scratch};
use super::{CacheAt, Demands, Error, Prepared, Result, State, Target, TargetCtx, Unfit, facts, is_modelled, memory};
use crate::disks::Storage;
use crate::disks::places::{PlaceBackend, Pool};

/// Entry `dm-cache`.
pub struct DmCache;

const NAME: &str = "dm-cache";
/// The cache, its policy, and what it is filled over. Asked for one that it has not, the kernel would load it.
const MODULES: [&str; 3] = ["dm_cache", "dm_cache_smq", "dm_zero"];
const NATIVE_ALONE: &str = "dm-cache is this host's own; for a guest use guest-dm-cache or flash-cache";

/// Whether the kernel has them as modules, loaded.
fn has_modules(reader: &dyn Reader) -> Result<(), Missing> {
    MODULES.iter().try_for_each(|module| require::kernel(reader, NAME, &format!("/sys/module/{module}")))
}

impl Target for DmCache {
    fn name(&self) -> &'static str {
        NAME
    }
    fn about(&self) -> &'static str {
        "raw file on a modelled disk with this host's dm-cache over it, cached in memory; native only, only read"
    }
    fn requirements(&self) -> &'static [Requirement] {
        const {
            &[
                Requirement {
                    name: "root",
                    why: "attaches loop devices and sets up dm-cache",
                    fix: "run as root, or leave out the target `dm-cache`",
                    check: require::root,
                },
                LOOP_DEVICES,
                memory::REQUIREMENT,
                Requirement {
                    name: DMSETUP,
                    why: "sets up dm-cache",
                    fix: "apt install dmsetup, or leave out the target `dm-cache`",
                    check: |reader| require::program(reader, DMSETUP),
                },
                Requirement {
                    name: "kernel's dm-cache",
                    why: "is the cache of the target `dm-cache`",
                    fix: "modprobe -a dm_cache dm_cache_smq dm_zero; or have a lab host measure its native cells: vmio \
                          lab run -- vmio study run lu2016-flash-native --on modelled:RATE --yes",
                    check: has_modules,
                },
            ]
        }
    }
    fn fits(&self, backend: &PlaceBackend) -> Result<(), Unfit> {
        is_modelled(backend)
    }
    /// There is one cache, and no guest has it.
    fn cache_bytes(&self, bytes: u64, _disks: u64) -> u64 {
        guest_cache::DM_CACHE.disk_bytes(bytes)
    }
    fn flash_cache(&self) -> Option<CacheAt> {
        Some(CacheAt::Native)
    }
    fn can_be(&self, state: State, _native: bool, _pool: Option<&Pool>) -> Result<(), &'static str> {
        guest_cache::can_be(state)
    }
    fn native_alone(&self) -> Option<&'static str> {
        Some(NATIVE_ALONE)
    }
    fn only_read(&self) -> Option<&'static str> {
        Some("dm-cache is only read: what a cache does with writes is not measured")
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        let cache_bytes = self.cache_bytes(ctx.bytes, 0);
        memory::room(ctx.node, cache_bytes, 1)?;
        let file = Scratch::make_with(ctx, NAME, Scratch::fill)?;
        match attach_both(ctx, &file, cache_bytes) {
            Ok(disks) => Ok(Box::new(Cached { file, disks, cache_bytes })),
            Err(e) => Err(scratch::undone(ctx.journal, file.change, e)),
        }
    }
}

/// Attaches the slow disk's file and one for the cache. What of it was done until it failed is undone.
fn attach_both(ctx: &TargetCtx<'_>, file: &Scratch, cache_bytes: u64) -> Result<Disks> {
    let mut made = Vec::new();
    attach(ctx, file, cache_bytes, &mut made)
        .map_err(|e| made.iter().rev().fold(e, |e, change| scratch::undone(ctx.journal, *change, e)))
}

fn attach(ctx: &TargetCtx<'_>, file: &Scratch, cache_bytes: u64, made: &mut Vec<ChangeId>) -> Result<Disks> {
    let slow = loopdev::attach(ctx, &file.path, &file.file, LoopIoMode::Direct)?;
    made.push(slow.change);
    let fast = memory::disk(ctx, NAME, cache_bytes, made)?;
    // The devices over both come and go with each cell.
    made.push(ctx.journal.record(Change::Mapped(Mapped::of(ctx.journal.cookie())))?);
    let logical_block_bytes = slow.logical_block_bytes.max(fast.logical_block_bytes);
    Ok(Disks { slow: slow.device, fast: fast.device, logical_block_bytes, made: std::mem::take(made) })
}

/// Loop devices, attached and not open.
struct Disks {
    slow: PathBuf,
    fast: PathBuf,
    logical_block_bytes: u32,
    /// In the order in which they were made.
    made: Vec<ChangeId>,
}

struct Cached {
    file: Scratch,
    disks: Disks,
    cache_bytes: u64,
}

impl Prepared for Cached {
    fn native(&self) -> &Path {
        &self.disks.slow
    }
    fn native_cache(&self) -> Option<&Path> {
        Some(&self.disks.fast)
    }
    fn intact(&self) -> Result<()> {
        self.file.intact()
    }
    fn attach(&mut self, _asked: &cell::Attachment) -> Result<Storage> {
        Err(Error::NotAsAsked { path: self.file.path.clone(), reason: NATIVE_ALONE.to_owned() })
    }
    fn bytes(&self) -> u64 {
        self.file.bytes
    }
    fn demands(&self) -> Demands {
        Demands { logical_block_bytes: self.disks.logical_block_bytes, direct: true }
    }
    fn effective(&self) -> BTreeMap<String, String> {
        let (slow, mib) = (self.disks.slow.display(), self.cache_bytes / MIB);
        facts([
            ("device", format!("dm-cache (smq), write-through, over {slow}")),
            ("cache", format!("{}, modelled, {mib} MiB (memory)", self.disks.fast.display())),
            ("allocated_bytes", self.file.allocated().unwrap_or(0).to_string()),
        ])
    }
    fn reset(&mut self, _state: State) -> Result<u64> {
        let wrote = self.file.fill()?;
        self.file.forget_pages()?;
        Ok(wrote)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        let Self { file, disks, .. } = *self;
        disks.made.into_iter().rev().try_for_each(|change| journal.undo(change))?;
        scratch::remove(journal, file)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::Fake;

    use super::*;

    #[test]
    fn a_kernel_without_a_part_of_it_is_refused_and_the_cache_has_room_for_all() {
        let host = Fake::new("host").file("/sys/module/dm_cache/refcnt", "0\n");
        let host = host.file("/sys/module/dm_cache_smq/refcnt", "0\n");
        assert!(has_modules(&host).unwrap_err().to_string().contains("/sys/module/dm_zero is missing"));
        has_modules(&host.file("/sys/module/dm_zero/refcnt", "0\n")).unwrap();
        assert_eq!(DmCache.cache_bytes(1 << 30, 0), 3 << 29);
        assert!(DmCache.fits(&PlaceBackend::Files("/".into())).is_err() && DmCache.native_alone().is_some());
    }
}
