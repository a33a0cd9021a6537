//! A volume in a pool (see [`crate::disks::places`]): made and marked for this run, used as a block
//! device, removed by its own system's tools.
//!
//! Thick volumes are written out once. Thin ones (LVM thin, sparse ZFS volumes, RBD images) are as
//! newly made before each writing cell, by a discard of the whole device (blkdiscard(8)): guests
//! that have it open see the same device throughout. Before reading cells they are written out.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use vmio_model::cell;
use vmio_node::linux::block;
use vmio_node::{Change, ChangeId, Exec, Journal, Local, Node, RBD_OWNER, Reader, Volume, VolumeKind, ZFS_OWNER};

use super::scratch::{self, MIB};
use super::{Demands, Error, Prepared, Result, State, TargetCtx, Unfit};
use crate::disks::Storage;
use crate::disks::places::tools::exec;
use crate::disks::places::{PlaceBackend, Pool};

/// How long udev may take to show a new volume.
const APPEARS: Duration = Duration::from_secs(15);
/// How long a tool may take to make one.
const MAKE_LIMIT: Duration = Duration::from_secs(120);
/// How long ZFS may take to tell of blocks that were given back (`zfs_txg_timeout` is 5 s).
const ZFS_TELLS: Duration = Duration::from_secs(10);
/// Properties of a zvol. Data in ZFS's own cache (ARC) would be read from memory, by the native side
/// and by guests whatever their cache mode; and nobody's scheduled snapshots keep blocks that are given back.
const ZFS_ASKED: [(&str, &str); 2] = [("primarycache", "metadata"), ("com.sun:auto-snapshot", "false")];
/// Why no volume is warm natively: `blkdev_put` of the kernel's block/bdev.c.
pub const LET_GO: &str = "the kernel drops what it has of a volume as soon as nobody has it open; use a file or device";
/// Why a guest's image of Ceph is not.
pub const OWN_CACHE: &str = "what is cached of it is in the memory of its client; use preallocated or device";
/// `BLKDISCARD` of `linux/fs.h`: a range of bytes.
const BLKDISCARD: rustix::ioctl::Opcode = 0x1277;

/// Whether a target that makes volumes named `target` can be had in a place.
pub fn fits(target: &str, form: &'static str, backend: &PlaceBackend) -> Result<(), Unfit> {
    match backend {
        PlaceBackend::Volumes(pool) if pool.target() == target => Ok(()),
        PlaceBackend::Volumes(pool) => Err(Unfit::OtherVolumes { pool: pool.clone(), form }),
        PlaceBackend::Files(_) | PlaceBackend::Modelled(_) => Err(Unfit::NoVolumes { form }),
    }
}

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

/// The volume's name and mark.
fn mark(pool: &Pool, target: &str, cookie: &str) -> Volume {
    let (kind, parent, options) = match pool {
        Pool::Lvm { vg } | Pool::LvmThin { vg, .. } => (VolumeKind::Lvm, vg, vec![]),
        Pool::Zfs { dataset, .. } => (VolumeKind::Zvol, dataset, vec![]),
        Pool::Rbd { pool, cluster, .. } => (VolumeKind::Rbd, pool, cluster.options()),
    };
    Volume { kind, name: format!("{parent}/vmio-{cookie}-{target}"), tag: cookie.to_owned(), options }
}

/// The commands that make a volume, mark and all.
fn commands(pool: &Pool, volume: &Volume, bytes: u64) -> Vec<(&'static str, Vec<String>)> {
    let (_, name) = volume.name.rsplit_once('/').unwrap_or(("", &volume.name));
    let words = |words: &[&str]| words.iter().map(|&w| w.to_owned()).collect::<Vec<_>>();
    let size = format!("{bytes}b");
    match pool {
        Pool::Lvm { vg } => vec![(
            "lvcreate",
            words(&["--yes", "--wipesignatures", "y", "--size", &size, "--name", name, "--addtag", &volume.tag, vg]),
        )],
        Pool::LvmThin { vg, pool } => vec![(
            "lvcreate",
            words(&[
                "--yes",
                "--type",
                "thin",
                "--virtualsize",
                &size,
                "--thinpool",
                pool,
                "--name",
                name,
                "--addtag",
                &volume.tag,
                vg,
            ]),
        )],
        Pool::Zfs { block, .. } => {
            let mut args = words(&["create", "-s", "-o", &format!("{ZFS_OWNER}={}", volume.tag)]);
            args.extend(ZFS_ASKED.iter().flat_map(|(key, value)| ["-o".to_owned(), format!("{key}={value}")]));
            args.extend(block.iter().flat_map(|b| ["-b".to_owned(), b.clone()]));
            args.extend(words(&["-V", &bytes.to_string(), &volume.name]));
            vec![("zfs", args)]
        }
        Pool::Rbd { .. } => {
            let with = |args: &[&str]| volume.options.iter().cloned().chain(words(args)).collect();
            let mib = format!("{}M", bytes / MIB);
            vec![
                // Every kernel can map images with this feature alone.
                ("rbd", with(&["create", "--size", &mib, "--image-feature", "layering", &volume.name])),
                ("rbd", with(&["image-meta", "set", &volume.name, RBD_OWNER, &volume.tag])),
                ("rbd", with(&["map", &volume.name])),
            ]
        }
    }
}

/// Makes it, and gives the device node that it can be used by. The tools bear no mark: LVM that is
/// killed while it has a pool suspended leaves all guests on that pool hanging, and the daemon
/// that it may start (dmeventd) outlives the run.
fn make(pool: &Pool, volume: &Volume, bytes: u64) -> Result<PathBuf> {
    let node = &Local::new();
    let mut said = String::new();
    for (tool, args) in commands(pool, volume, bytes) {
        let command: Exec = exec(node, tool, args).limit(MAKE_LIMIT);
        let output = node.exec_gently(&command)?;
        if !output.ok() {
            let reason = format!("`{}` failed ({:?}): {}", command.shown(), output.end, output.err().trim());
            return Err(Error::NotAsAsked { path: volume.name.clone().into(), reason });
        }
        said = output.out();
    }
    let (parent, name) = volume.name.rsplit_once('/').unwrap_or(("", &volume.name));
    let until = Instant::now() + APPEARS;
    loop {
        let found = match pool {
            Pool::Lvm { .. } | Pool::LvmThin { .. } => crate::disks::places::dm_device(node, parent, name),
            Pool::Zfs { .. } => Some(format!("/dev/zvol/{}", volume.name)),
            // The kernel's device is what `rbd map` prints.
            Pool::Rbd { .. } => said.lines().last().map(|l| l.trim().to_owned()),
        };
        let found = found.map(PathBuf::from);
        if let Some(device) = found.filter(|d| matches!(node.stat(d), Ok(Some(s)) if s.is_block())) {
            return Ok(device.canonicalize().unwrap_or(device));
        }
        if Instant::now() >= until {
            let reason = "it was created, but its device node did not appear; is udev running?".to_owned();
            return Err(Error::NotAsAsked { path: volume.name.clone().into(), reason });
        }
        thread::sleep(Duration::from_millis(50));
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

pub(super) fn logical_block_bytes(node: &dyn Node, device: &Path) -> u32 {
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    block::Device::whole(node.reader(), &name).logical_block_bytes().unwrap_or(512)
}

/// Gives all blocks of a device back to what is below it.
fn discard(file: &File, bytes: u64) -> std::io::Result<()> {
    // SAFETY: BLKDISCARD reads two 64-bit numbers, start and length, from the pointer it is given.
    unsafe { rustix::ioctl::ioctl(file, rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([0, bytes])) }?;
    Ok(())
}

/// Percent of a volume that take space in its pool; `None` where it is not told.
fn allocated(node: &dyn Node, pool: &Pool, volume: &Volume, bytes: u64) -> Result<Option<f64>> {
    let (tool, args, whole) = match pool {
        Pool::LvmThin { .. } => ("lvs", ["--noheadings", "-o", "data_percent", &volume.name].to_vec(), 100.0),
        Pool::Zfs { .. } => {
            ("zfs", ["get", "-Hp", "-o", "value", "referenced", &volume.name].to_vec(), bytes.max(1) as f64)
        }
        Pool::Lvm { .. } | Pool::Rbd { .. } => return Ok(None),
    };
    let command = exec(node, tool, args);
    let output = node.exec(&command)?;
    match output.out().trim().parse::<f64>() {
        Ok(used) if output.ok() => Ok(Some(used / whole * 100.0)),
        _ => Err(Error::NotAsAsked {
            path: volume.name.clone().into(),
            reason: format!(
                "`{}` ({:?}) does not say how much of it is allocated: {} {}",
                command.shown(),
                output.end,
                output.out().trim(),
                output.err().trim()
            ),
        }),
    }
}

/// Why it is not known that a volume has no blocks any more.
#[derive(Debug, thiserror::Error)]
enum NotEmpty {
    #[error("{percent:.1} % is still allocated after discarding everything")]
    Allocated { percent: f64 },
    #[error(transparent)]
    Untold(#[from] Error),
}

/// Sees to it that all blocks of a volume were given back, where its system tells.
fn emptied(node: &dyn Node, pool: &Pool, volume: &Volume, bytes: u64) -> Result<(), NotEmpty> {
    // The last chunk of a thin volume may be half outside of it; a zvol keeps its own tables, and
    // says so when its transaction group has been written.
    let (most, patience) = match pool {
        Pool::Zfs { .. } => (5.0, ZFS_TELLS),
        _ => (1.0, Duration::ZERO),
    };
    let until = Instant::now() + patience;
    loop {
        match allocated(node, pool, volume, bytes)? {
            Some(percent) if percent > most && Instant::now() >= until => {
                return Err(NotEmpty::Allocated { percent });
            }
            Some(percent) if percent > most => thread::sleep(Duration::from_millis(500)),
            _ => return Ok(()),
        }
    }
}

/// What a zvol was set up with, as ZFS says itself.
fn settings(node: &dyn Node, pool: &Pool, volume: &Volume) -> Result<BTreeMap<String, String>> {
    let Pool::Zfs { .. } = pool else { return Ok(BTreeMap::new()) };
    let command = exec(node, "zfs", ["get", "-Hp", "-o", "property,value", "volblocksize,primarycache", &volume.name]);
    let output = node.exec(&command)?;
    let wrong = |reason: String| Error::NotAsAsked { path: volume.name.clone().into(), reason };
    if !output.ok() {
        return Err(wrong(format!("`{}` failed ({:?}): {}", command.shown(), output.end, output.err().trim())));
    }
    let pair = |line: &str| line.split_once('\t').map(|(key, value)| (key.to_owned(), value.trim().to_owned()));
    let found: BTreeMap<String, String> = output.out().lines().filter_map(pair).collect();
    match found.get("primarycache").map(String::as_str) {
        Some("metadata") => Ok(found),
        other => Err(wrong(format!("asked for primarycache=metadata, ZFS says {other:?}"))),
    }
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
            // librbd's cache is QEMU's own memory.
            Pool::Rbd { .. } if !asked.cache.direct() => {
                super::facts([("flushed_after_cells", "no: librbd's cache is not flushed from here".to_owned())])
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
        let mut all = super::facts([
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

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
