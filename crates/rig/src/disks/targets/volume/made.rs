//! A volume that is there: as newly made or written out before a cell, and removed in the end.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use vmio_model::cell;
use vmio_node::linux::block;
use vmio_node::{Change, ChangeId, Journal, Local, Node, Volume};

use super::super::scratch::{self, MIB};
use super::super::{Demands, Error, Prepared, Result, State, TargetCtx, facts};
use super::tools::{allocated, emptied, make, mark, settings};
use crate::disks::Storage;
use crate::disks::places::Pool;

/// `BLKDISCARD` of `linux/fs.h`: a range of bytes.
const BLKDISCARD: rustix::ioctl::Opcode = 0x1277;

/// Makes a volume in the pool of the context.
pub fn prepare(ctx: &TargetCtx<'_>, target: &str) -> Result<Box<dyn Prepared>> {
    let Some(pool) = &ctx.pool else {
        let reason = format!("the target {target} needs a place that holds volumes: give one with --on");
        return Err(Error::NotAsAsked { path: ctx.dir.clone(), reason });
    };
    let bytes = ctx.bytes.max(1).next_multiple_of(MIB);
    pool.demand(ctx.node, bytes)?;
    let volume = mark(pool, target, ctx.journal.cookie());
    // The end of the run waits for the tools. One that fails or is killed leaves either nothing or a
    // volume with its mark, so the line in the journal stays for it.
    let making = || Ok::<_, Infallible>(make(pool, &volume, bytes));
    let Ok((device, change)) = ctx.journal.make(Change::Volume(volume.clone()), making)?;
    let made = || -> Result<VolumeTarget> {
        let device = device?;
        let found = size(&open(&device)?).map_err(scratch::io("find the size of", &device))?;
        if found < bytes {
            return Err(Error::NotAsAsked {
                path: device.clone(),
                reason: format!("it has {found} bytes instead of {bytes}"),
            });
        }
        let block = logical_block_bytes(ctx.node, &device);
        let settings = settings(ctx.node, pool, &volume)?;
        let mut made = VolumeTarget {
            settings,
            pool: pool.clone(),
            volume: volume.clone(),
            device,
            bytes,
            block,
            filled: false,
            pace: ctx.pace,
            change,
            journal: Arc::clone(ctx.journal),
        };
        if !pool.allocates() {
            made.fill()?;
        }
        Ok(made)
    };
    match made() {
        Ok(made) => Ok(Box::new(made)),
        Err(e) => Err(scratch::undone(ctx.journal, change, e)),
    }
}

/// Opened for each use and not held: a volume that is open cannot be removed, and after Ctrl-C
/// another thread does that.
fn open(device: &Path) -> Result<File> {
    scratch::open_direct(device, OFlags::empty()).map_err(scratch::io("open", device))
}

fn size(mut file: &File) -> std::io::Result<u64> {
    use std::io::{Seek, SeekFrom};
    file.seek(SeekFrom::End(0))
}

/// The least that can be read or written of a device at once.
pub fn logical_block_bytes(node: &dyn Node, device: &Path) -> u32 {
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    block::Device::whole(node.reader(), &name).logical_block_bytes().unwrap_or(512)
}

/// Gives all blocks of a device back to what is below it.
fn discard(file: &File, bytes: u64) -> std::io::Result<()> {
    // SAFETY: BLKDISCARD reads two 64-bit numbers, start and length, from the pointer it is given.
    unsafe { rustix::ioctl::ioctl(file, rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([0, bytes])) }?;
    Ok(())
}

struct VolumeTarget {
    /// Further settings of its system's.
    settings: BTreeMap<String, String>,
    pool: Pool,
    volume: Volume,
    device: PathBuf,
    bytes: u64,
    block: u32,
    /// Every block holds data.
    filled: bool,
    pace: Option<f64>,
    change: ChangeId,
    journal: Arc<Journal>,
}

impl VolumeTarget {
    fn io(&self, what: &'static str) -> impl FnOnce(std::io::Error) -> Error + use<> {
        scratch::io(what, &self.device)
    }

    fn fill(&mut self) -> Result<u64> {
        if self.filled {
            return Ok(0);
        }
        if let Pool::LvmThin { .. } = self.pool {
            let node = Local::new();
            let there = allocated(&node, &self.pool, &self.volume, self.bytes)?.unwrap_or(0.0) / 100.0;
            self.pool.takes(&node, (self.bytes as f64 * (1.0 - there).max(0.0)) as u64)?;
        }
        let file = open(&self.device)?;
        let go_on = || !self.journal.is_closed();
        scratch::write_out(&file, 0, self.bytes, self.pace, &go_on).map_err(self.io("write out"))?;
        file.sync_all().map_err(self.io("flush"))?;
        self.filled = true;
        Ok(self.bytes)
    }

    /// Gives all blocks back, and sees to it that they are.
    fn empty(&mut self) -> Result<()> {
        self.filled = false;
        let file = open(&self.device)?;
        let whole = size(&file).map_err(self.io("find the size of"))?;
        discard(&file, whole).map_err(|e| Error::NotAsAsked {
            path: self.device.clone(),
            reason: format!("its blocks cannot be given back ({e}); {}", self.mend()),
        })?;
        let node = Local::new();
        emptied(&node, &self.pool, &self.volume, self.bytes).map_err(|why| Error::NotAsAsked {
            path: self.device.clone(),
            reason: format!("{why}; {}", self.mend()),
        })?;
        // The cell may write all of it, and the pool is not asked again before 5 s have passed.
        Ok(self.pool.takes(&node, self.bytes)?)
    }

    /// How it is seen that a writing cell finds nothing allocated.
    fn emptied_by(&self) -> &'static str {
        match self.pool {
            Pool::Lvm { .. } => "never: written out once",
            Pool::LvmThin { .. } => "before writing cells, checked (lvs, data_percent)",
            Pool::Zfs { .. } => "before writing cells, checked (zfs get referenced)",
            Pool::Rbd { .. } => "before writing cells, not checked",
        }
    }

    fn mend(&self) -> String {
        match &self.pool {
            Pool::LvmThin { vg, pool } => format!("lvchange --discards passdown {vg}/{pool}"),
            _ => "its driver must pass discards on".into(),
        }
    }
}

impl Prepared for VolumeTarget {
    fn native(&self) -> &Path {
        &self.device
    }
    fn attach(&mut self, _asked: &cell::Attachment) -> Result<Storage> {
        let image = self.volume.name.rsplit_once('/').map_or(&*self.volume.name, |(_, image)| image);
        Ok(match &self.pool {
            Pool::Rbd { pool, cluster, kernel: false } => Storage::Rbd {
                pool: pool.clone(),
                image: image.to_owned(),
                conf: cluster.conf.clone(),
                user: cluster.user.clone(),
            },
            _ => Storage::BlockDevice(self.device.clone()),
        })
    }
    fn attached(&self, asked: &cell::Attachment) -> BTreeMap<String, String> {
        match self.pool {
            // librbd's cache is in its client's own memory.
            Pool::Rbd { .. } if !asked.cache.direct() => {
                facts([("flushed_after_cells", "no: librbd's cache is not flushed from here".to_owned())])
            }
            _ => BTreeMap::new(),
        }
    }
    fn mark_dirty(&mut self, _asked: &cell::Attachment) {
        self.filled = false;
    }
    fn settle(&mut self, _asked: &cell::Attachment) -> Result<()> {
        match self.pool {
            Pool::Rbd { .. } => Ok(()),
            _ => scratch::flush(&self.device),
        }
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn demands(&self) -> Demands {
        Demands { logical_block_bytes: self.block, direct: true }
    }
    fn allocates(&self) -> bool {
        self.pool.allocates()
    }
    fn effective(&self) -> BTreeMap<String, String> {
        let mut all = facts([
            ("volume", self.pool.to_string()),
            ("logical_block_bytes", self.block.to_string()),
            ("allocates", self.pool.allocates().to_string()),
            ("emptied", self.emptied_by().to_owned()),
        ]);
        all.extend(self.settings.clone());
        if let Pool::Rbd { kernel, .. } = self.pool {
            let client = if kernel { "kernel (krbd), as natively" } else { "librbd" };
            all.insert("guest_client".into(), client.into());
        }
        all
    }
    fn reset(&mut self, state: State) -> Result<u64> {
        let wrote = match state {
            State::Fresh if self.pool.allocates() => self.empty().map(|()| 0)?,
            _ => self.fill()?,
        };
        scratch::forget_pages(&open(&self.device)?, &self.device)?;
        Ok(wrote)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        Ok(journal.undo(self.change)?)
    }
}
