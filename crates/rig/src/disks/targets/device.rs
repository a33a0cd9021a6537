//! A whole block device: the user's own (`--device`), a volume where the place holds volumes, or
//! a loop device with direct I/O over a written-out file. It stays open with O_EXCL, so that nobody mounts it meanwhile,
//! unless a workload does that itself.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use vmio_look::require::{self, Requirement};
use vmio_model::cell;
use vmio_node::{ChangeId, Journal, device_safety, held};

use super::scratch::{self, MIB, Scratch};
use super::{
    Demands, Error, Given, Pinned, Prepared, Result, State, Target, TargetCtx, Unfit, elsewhere, loopdev, volume,
};
use crate::disks::Storage;
use crate::disks::places::{PlaceBackend, Pool};

const ROOT: Requirement = Requirement {
    name: "root",
    why: "attaches loop devices and opens block devices",
    fix: "run as root, or leave out the target `device`",
    check: require::root,
};
pub(super) const LOOP_DEVICES: Requirement = Requirement {
    name: "loop devices",
    why: "the scratch block device",
    fix: "modprobe loop, or name a spare disk with --device",
    check: |reader| require::kernel(reader, "loop devices", "/dev/loop-control"),
};

/// Entry `device`.
pub struct Device;

impl Target for Device {
    fn name(&self) -> &'static str {
        "device"
    }
    fn about(&self) -> &'static str {
        "whole block device: a loop device with direct I/O on a fully written file, a volume of the place, a modelled disk, or --device"
    }
    /// Where it is a volume that takes its blocks when they are first written.
    fn refilled(&self, pool: Option<&Pool>) -> bool {
        pool.is_some_and(Pool::allocates)
    }
    fn takes_device(&self) -> bool {
        true
    }
    fn written(&self) -> bool {
        true
    }
    fn native_is_a_device(&self) -> bool {
        true
    }
    fn elsewhere(&self) -> Option<elsewhere::Make> {
        Some(elsewhere::device)
    }
    fn requirements(&self) -> &'static [Requirement] {
        const { &[ROOT, LOOP_DEVICES] }
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        match (&ctx.device, &ctx.pool) {
            (Some(Given::Own(device)), _) => Ok(Box::new(whole_device(ctx, device)?)),
            (Some(Given::Served(file)), _) => Ok(Box::new(served_device(ctx, file)?)),
            (Some(Given::PassedThrough(device)), _) => {
                Err(Error::NotAsAsked { path: device.dir(), reason: Unfit::NoFilesPassedThrough.to_string() })
            }
            (None, Some(_)) => volume::prepare(ctx, self.name()),
            (None, None) => Ok(Box::new(loop_device(ctx, self.name(), loopdev::LoopIoMode::Direct)?)),
        }
    }
    fn fits(&self, backend: &PlaceBackend) -> Result<(), Unfit> {
        backend.passed_through().map_or(Ok(()), |_| Err(Unfit::NoFilesPassedThrough))
    }
}

pub(super) struct WholeDevice {
    /// What programs open: the node of our own loop device, which is ours as long as it is attached. Of
    /// the user's own disk it is what this process has open (`/proc/PID/fd/N`): nodes are udev's and
    /// links anybody's, and a run opens the disk some hundred times.
    device: PathBuf,
    /// Holds the user's own disk and its number.
    pinned: Option<Arc<Pinned>>,
    /// Open with O_DIRECT, and with O_EXCL until it is shared.
    file: File,
    bytes: u64,
    logical_block_bytes: u32,
    effective: BTreeMap<String, String>,
    /// Every block that is used holds data.
    filled: bool,
    pace: Option<f64>,
    journal: Arc<Journal>,
    /// What of it is ours.
    ours: Ours,
}

/// What of a whole device is vmio's own, and goes at the end.
enum Ours {
    /// Nothing: the user's own.
    Nothing,
    /// The loop device, over what a server of vmio's own has in memory.
    Loop(ChangeId),
    /// The loop device, and the file behind it.
    File(ChangeId, Scratch),
}

/// A loop device over a file that is made for it and written out.
pub(super) fn loop_device(ctx: &TargetCtx<'_>, name: &str, mode: loopdev::LoopIoMode) -> Result<WholeDevice> {
    let scratch = Scratch::make_with(ctx, name, Scratch::fill)?;
    // The kernel takes direct I/O from how the file was opened, too.
    let attached = || match mode {
        loopdev::LoopIoMode::Direct => loopdev::attach(ctx, &scratch.path, &scratch.file, mode),
        loopdev::LoopIoMode::Cached => {
            let opened = OpenOptions::new().read(true).write(true).open(&scratch.open);
            loopdev::attach(ctx, &scratch.path, &opened.map_err(scratch::io("open", &scratch.path))?, mode)
        }
    };
    let attached = attached().map_err(|e| scratch::undone(ctx.journal, scratch.change, e))?;
    let effective = super::facts([
        ("device", attached.device.display().to_string()),
        ("direct_io", attached.direct_io.to_string()),
        ("logical_block_bytes", attached.logical_block_bytes.to_string()),
        ("allocated_bytes", scratch.allocated()?.to_string()),
    ]);
    Ok(WholeDevice {
        device: attached.device,
        pinned: None,
        file: attached.file,
        bytes: scratch.bytes,
        logical_block_bytes: attached.logical_block_bytes,
        effective,
        filled: true,
        pace: ctx.pace,
        journal: Arc::clone(ctx.journal),
        ours: Ours::File(attached.change, scratch),
    })
}

/// What a modelled disk has without a file system. All of it is in memory from the start, so there is nothing to fill.
fn served_device(ctx: &TargetCtx<'_>, path: &Path) -> Result<WholeDevice> {
    let fail = |what: &'static str| scratch::io(what, path);
    let mut served = OpenOptions::new().read(true).write(true).open(path).map_err(fail("open"))?;
    let bytes = served.seek(SeekFrom::End(0)).map_err(fail("find the size of"))?;
    let wanted = ctx.bytes.max(1).next_multiple_of(MIB);
    if bytes < wanted {
        let reason = format!("it has {bytes} bytes and {wanted} are needed");
        return Err(Error::NotAsAsked { path: path.into(), reason });
    }
    let attached = loopdev::attach_own(ctx.node.reader(), ctx.journal, path, &served)?;
    let effective = super::facts([
        ("device", attached.device.display().to_string()),
        ("direct_io", attached.direct_io.to_string()),
        ("logical_block_bytes", attached.logical_block_bytes.to_string()),
    ]);
    Ok(WholeDevice {
        device: attached.device,
        pinned: None,
        file: attached.file,
        bytes: wanted,
        logical_block_bytes: attached.logical_block_bytes,
        effective,
        filled: true,
        pace: ctx.pace,
        journal: Arc::clone(ctx.journal),
        ours: Ours::Loop(attached.change),
    })
}

/// The user's own device. It is opened for writing through the descriptor that held it since the plan, so
/// nothing that became of links and nodes meanwhile leads elsewhere; and where something did become of
/// them, nothing is written.
fn whole_device(ctx: &TargetCtx<'_>, pinned: &Arc<Pinned>) -> Result<WholeDevice> {
    let device = pinned.asked.clone();
    let reader = ctx.node.reader();
    pinned.same(reader)?;
    device_safety::check(ctx.node, pinned, ctx.force)?;
    let fail = |what: &'static str| {
        let path = device.clone();
        move |source| Error::Io { what, path, source }
    };
    let mut file = pinned.open_alone(reader)?;
    let size = file.seek(SeekFrom::End(0)).map_err(fail("find the size of"))? / MIB * MIB;
    let bytes = ctx.bytes.max(1).next_multiple_of(MIB);
    if size < bytes {
        return Err(Error::NotAsAsked {
            path: device,
            reason: format!("it has {size} bytes and {bytes} are needed; use a study with a smaller size.target_mib"),
        });
    }
    let logical_block_bytes = volume::logical_block_bytes(ctx.node, Path::new(&pinned.name));
    let effective = super::facts([
        ("device", pinned.named()),
        ("disk", pinned.identity.describe()),
        ("logical_block_bytes", logical_block_bytes.to_string()),
    ]);
    let mut whole = WholeDevice {
        device: device_safety::path_of(&file),
        pinned: Some(Arc::clone(pinned)),
        file,
        bytes,
        logical_block_bytes,
        effective,
        filled: false,
        pace: ctx.pace,
        journal: Arc::clone(ctx.journal),
        ours: Ours::Nothing,
    };
    whole.fill()?;
    Ok(whole)
}

impl WholeDevice {
    /// The file behind a loop device of vmio's own.
    pub(super) fn behind(&self) -> Option<&Scratch> {
        if let Ours::File(_, scratch) = &self.ours { Some(scratch) } else { None }
    }

    /// Its name in messages.
    fn shown(&self) -> &Path {
        self.pinned.as_ref().map_or(&self.device, |pinned| &pinned.asked)
    }

    /// Writes out the user's own device: blocks that were never written or were discarded are not read
    /// from the medium.
    fn fill(&mut self) -> Result<u64> {
        if self.filled {
            return Ok(0);
        }
        let fail = |what| scratch::io(what, self.shown());
        let go_on = || !self.journal.is_closed();
        scratch::write_out(&self.file, 0, self.bytes, self.pace, &go_on).map_err(fail("write out"))?;
        self.file.sync_all().map_err(fail("flush"))?;
        self.filled = true;
        Ok(self.bytes)
    }
}

impl Prepared for WholeDevice {
    fn native(&self) -> &Path {
        &self.device
    }
    fn intact(&self) -> Result<()> {
        match &self.ours {
            Ours::File(_, scratch) => scratch.intact(),
            Ours::Loop(_) | Ours::Nothing => Ok(()),
        }
    }
    fn share(&mut self) -> Result<()> {
        let again = |path: PathBuf| scratch::open_direct(&path, OFlags::empty());
        // Opened before the other is closed: a loop device stays attached, a number stays the disk's.
        self.file = held::by_descriptor(&self.file).and_then(again).map_err(scratch::io("open", self.shown()))?;
        if self.pinned.is_some() {
            self.device = device_safety::path_of(&self.file);
        }
        Ok(())
    }
    fn attach(&mut self, _asked: &cell::Attachment) -> Result<Storage> {
        Ok(Storage::BlockDevice(self.device.clone()))
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn demands(&self) -> Demands {
        Demands { logical_block_bytes: self.logical_block_bytes, direct: true }
    }
    fn effective(&self) -> BTreeMap<String, String> {
        self.effective.clone()
    }
    fn mark_dirty(&mut self, _asked: &cell::Attachment) {
        // The file behind a loop device tells its holes itself; memory has none.
        self.filled = !matches!(self.ours, Ours::Nothing);
    }
    fn reset(&mut self, _state: State) -> Result<u64> {
        let wrote = self.fill()?;
        scratch::forget_pages(&self.file, self.shown())?;
        match &self.ours {
            Ours::File(_, scratch) => {
                let wrote = scratch.fill()?;
                scratch.forget_pages()?;
                Ok(wrote)
            }
            Ours::Loop(_) | Ours::Nothing => Ok(wrote),
        }
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        let Self { file, ours, .. } = *self;
        // The kernel detaches a loop device only when nobody has it open.
        drop(file);
        match ours {
            Ours::Nothing => Ok(()),
            Ours::Loop(change) => Ok(journal.undo(change)?),
            Ours::File(change, scratch) => {
                journal.undo(change)?;
                scratch::remove(journal, scratch)
            }
        }
    }
}
