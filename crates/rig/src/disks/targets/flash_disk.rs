//! What flash caches lie on here, alone: a loop device over a written-out file in memory ([`memory`]), which stands for
//! a flash device. Natively read it is what hits of a cache are compared with.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use vmio_look::require::{self, Requirement};
use vmio_model::cell;
use vmio_node::{ChangeId, Journal};

use super::device::LOOP_DEVICES;
use super::loopdev::Attached;
use super::scratch::{self, MIB};
use super::{
    Demands, Error, Prepared, Result, Space, State, Target, TargetCtx, Unfit, WRITTEN_OUT, facts, is_modelled, memory,
};
use crate::disks::Storage;
use crate::disks::places::{PlaceBackend, Pool};

/// Entry `flash-disk`.
pub struct FlashDisk;

const NAME: &str = "flash-disk";
const NATIVE_ALONE: &str = "flash-disk is what this host's flash caches lie on; for a guest use flash-cache";

impl Target for FlashDisk {
    fn name(&self) -> &'static str {
        NAME
    }
    fn about(&self) -> &'static str {
        "loop device over a file in memory, which flash caches lie on, beside a modelled disk; native only, only read"
    }
    fn requirements(&self) -> &'static [Requirement] {
        const {
            &[
                Requirement {
                    name: "root",
                    why: "attaches loop devices",
                    fix: "run as root, or leave out the target `flash-disk`",
                    check: require::root,
                },
                LOOP_DEVICES,
                memory::REQUIREMENT,
            ]
        }
    }
    /// Nowhere else it could be taken for the disk that a study is about.
    fn fits(&self, backend: &PlaceBackend) -> Result<(), Unfit> {
        is_modelled(backend)
    }
    /// Nothing is written to the place.
    fn space(&self, bytes: u64, _attachments: u64) -> Space {
        Space { taken_bytes: bytes, prepared_bytes: 0 }
    }
    fn can_be(&self, state: State, _native: bool, _pool: Option<&Pool>) -> Result<(), &'static str> {
        match state {
            State::Fresh => Err(WRITTEN_OUT),
            State::WarmGuest | State::WarmHost | State::WarmFlash => {
                Err("it stands for a flash device without any cache: use filled")
            }
            State::Filled => Ok(()),
        }
    }
    fn native_alone(&self) -> Option<&'static str> {
        Some(NATIVE_ALONE)
    }
    fn only_read(&self) -> Option<&'static str> {
        Some("flash-disk is only read: it is memory, and says nothing of what flash does with writes")
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        let bytes = ctx.bytes.max(1).next_multiple_of(MIB);
        memory::room(ctx.node, bytes, 1)?;
        let mut made = Vec::new();
        match memory::disk(ctx, NAME, bytes, &mut made).and_then(|disk| fill(ctx, disk, bytes)) {
            Ok(Attached { device, file, logical_block_bytes, .. }) => {
                Ok(Box::new(Disk { device, file, logical_block_bytes, bytes, made }))
            }
            Err(e) => Err(made.into_iter().rev().fold(e, |e, change| scratch::undone(ctx.journal, change, e))),
        }
    }
}

/// Writes it out: holes of a file in memory are not read from memory of their own.
fn fill(ctx: &TargetCtx<'_>, disk: Attached, bytes: u64) -> Result<Attached> {
    let go_on = || !ctx.journal.is_closed();
    let written = scratch::write_out(&disk.file, 0, bytes, ctx.pace, &go_on).and_then(|()| disk.file.sync_all());
    written.map_err(scratch::io("write out", &disk.device))?;
    Ok(disk)
}

struct Disk {
    device: PathBuf,
    /// Open with O_EXCL and O_DIRECT.
    file: File,
    logical_block_bytes: u32,
    bytes: u64,
    /// In the order in which it was made.
    made: Vec<ChangeId>,
}

impl Prepared for Disk {
    fn native(&self) -> &Path {
        &self.device
    }
    fn attach(&mut self, _asked: &cell::Attachment) -> Result<Storage> {
        Err(Error::NotAsAsked { path: self.device.clone(), reason: NATIVE_ALONE.to_owned() })
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn demands(&self) -> Demands {
        Demands { logical_block_bytes: self.logical_block_bytes, direct: true }
    }
    fn effective(&self) -> BTreeMap<String, String> {
        let (device, mib) = (self.device.display(), self.bytes / MIB);
        facts([("device", format!("{device}, a modelled flash device of {mib} MiB (memory)"))])
    }
    fn reset(&mut self, _state: State) -> Result<u64> {
        scratch::forget_pages(&self.file, &self.device)?;
        Ok(0)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        let Self { file, made, .. } = *self;
        // The kernel detaches a loop device only when nobody has it open.
        drop(file);
        made.into_iter().rev().try_for_each(|change| journal.undo(change))?;
        Ok(())
    }
}
