//! A volume in a pool (see [`crate::places`]): made and marked for this run, used as a block
//! device, removed by its own system's tools.
//!
//! Thick volumes are written out once. Thin ones (LVM thin, sparse ZFS volumes, RBD images) are as
//! newly made before each writing cell, by a discard of the whole device (blkdiscard(8)): guests
//! that have it open see the same device throughout. Before reading cells they are written out.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use vmio_model::setup;
use vmio_node::{Change, ChangeId, Exec, Journal, Local, Node, RBD_OWNER, Volume, VolumeKind, ZFS_OWNER};

use super::scratch::{self, MIB};
use super::{Demands, Error, Prepared, Result, State, Storage, TargetCtx};
use crate::places::tools::exec;
use crate::places::{Ground, Pool};

/// How long udev may take to show a new volume.
const APPEARS: Duration = Duration::from_secs(15);
/// How long a tool may take to make one.
const MAKE_LIMIT: Duration = Duration::from_secs(120);
/// `BLKDISCARD` of `linux/fs.h`: a range of bytes.
const BLKDISCARD: rustix::ioctl::Opcode = 0x1277;

/// Whether a target that makes volumes named `target` can be had in a place.
pub fn fits(target: &str, form: &str, ground: &Ground) -> std::result::Result<(), String> {
    match ground {
        Ground::Volumes(pool) if pool.target() == target => Ok(()),
        Ground::Volumes(pool) => {
            Err(format!("this place holds volumes of another kind ({pool}); give a place for it: --on {form}"))
        }
        Ground::Files(_) => Err(format!("this place holds files; give a place for volumes: --on {form}")),
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
    // Not made under the journal's lock, which the commands need: one that is killed before or
    // while it runs leaves either nothing or a volume with its mark.
    let change = ctx.journal.record(Change::Volume(volume.clone()))?;
    let made = || -> Result<VolumeTarget> {
        let device = make(ctx.node, pool, &volume, bytes)?;
        let found = size(&open(&device)?).map_err(scratch::io("find the size of", &device))?;
        if found < bytes {
            return Err(Error::NotAsAsked {
                path: device.clone(),
                reason: format!("it has {found} bytes instead of {bytes}"),
            });
        }
        let block = logical_block_bytes(ctx.node, &device);
        let mut made = VolumeTarget {
            pool: pool.clone(),
            volume: volume.clone(),
            device,
            bytes,
            block,
            filled: false,
            pace: ctx.pace,
            change,
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
        Pool::Rbd { pool, cluster } => (VolumeKind::Rbd, pool, cluster.options()),
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

/// Makes it, and gives the device node that it can be used by.
fn make(node: &dyn Node, pool: &Pool, volume: &Volume, bytes: u64) -> Result<PathBuf> {
    let mut said = String::new();
    for (tool, args) in commands(pool, volume, bytes) {
        let command: Exec = exec(node, tool, args).limit(MAKE_LIMIT);
        let output = node.exec(&command)?;
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
            Pool::Lvm { .. } | Pool::LvmThin { .. } => crate::places::dm_device(node, parent, name),
            Pool::Zfs { .. } => Some(format!("/dev/zvol/{}", volume.name)),
            // The kernel's device is what `rbd map` prints.
            Pool::Rbd { .. } => said.lines().last().map(|l| l.trim().to_owned()),
        };
        let found = found.map(PathBuf::from);
        if let Some(device) = found.filter(|d| matches!(node.stat(d), Ok(Some(s)) if s.mode & 0o170_000 == 0o060_000)) {
            return Ok(device.canonicalize().unwrap_or(device));
        }
        if Instant::now() >= until {
            let reason = "it was made, but no device node of it came; is udev running?".to_owned();
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
    let name = device.file_name().unwrap_or_default();
    let text = node.read_text(&Path::new("/sys/block").join(name).join("queue/logical_block_size"));
    text.ok().and_then(|t| t.trim().parse().ok()).unwrap_or(512)
}

/// Gives all blocks of a device back to what is below it.
fn discard(file: &File, bytes: u64) -> std::io::Result<()> {
    // SAFETY: BLKDISCARD reads two 64-bit numbers, start and length, from the pointer it is given.
    unsafe { rustix::ioctl::ioctl(file, rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([0, bytes])) }?;
    Ok(())
}

struct VolumeTarget {
    pool: Pool,
    volume: Volume,
    device: PathBuf,
    bytes: u64,
    block: u32,
    /// Every block holds data.
    filled: bool,
    pace: Option<f64>,
    change: ChangeId,
}

impl VolumeTarget {
    fn io(&self, what: &'static str) -> impl FnOnce(std::io::Error) -> Error + use<> {
        scratch::io(what, &self.device)
    }

    fn fill(&mut self) -> Result<u64> {
        if self.filled {
            return Ok(0);
        }
        let file = open(&self.device)?;
        scratch::write_out(&file, 0, self.bytes, self.pace).map_err(self.io("write out"))?;
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
        if let Pool::LvmThin { .. } = self.pool {
            let node = Local::new();
            let args = ["--noheadings", "-o", "data_percent", &self.volume.name];
            let output = node.exec(&exec(&node, "lvs", args))?;
            let used: f64 = output.out().trim().parse().unwrap_or(0.0);
            // The last chunk may be half outside of the volume.
            if used > 1.0 {
                return Err(Error::NotAsAsked {
                    path: self.device.clone(),
                    reason: format!("{used} % are still allocated after all was discarded; {}", self.mend()),
                });
            }
        }
        Ok(())
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
    fn attach(&mut self, _asked: &setup::Attachment) -> Result<Storage> {
        let image = self.volume.name.rsplit_once('/').map_or(&*self.volume.name, |(_, image)| image);
        Ok(match &self.pool {
            Pool::Rbd { pool, cluster } => Storage::Rbd {
                pool: pool.clone(),
                image: image.to_owned(),
                conf: cluster.conf.clone(),
                user: cluster.user.clone(),
            },
            _ => Storage::BlockDevice(self.device.clone()),
        })
    }
    fn attached(&self, asked: &setup::Attachment) -> BTreeMap<String, String> {
        match self.pool {
            // librbd's cache is QEMU's own memory.
            Pool::Rbd { .. } if !asked.cache.direct() => {
                super::facts([("flushed_after_cells", "no: librbd's cache is not flushed from here".to_owned())])
            }
            _ => BTreeMap::new(),
        }
    }
    fn soiled(&mut self, _asked: &setup::Attachment) {
        self.filled = false;
    }
    fn settle(&mut self, _asked: &setup::Attachment) -> Result<()> {
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
        super::facts([
            ("volume", self.pool.to_string()),
            ("logical_block_bytes", self.block.to_string()),
            ("allocates", self.pool.allocates().to_string()),
        ])
    }
    fn reset(&mut self, state: State) -> Result<u64> {
        let wrote = match state {
            State::Fresh if self.pool.allocates() => self.empty().map(|()| 0)?,
            State::Fresh | State::Filled => self.fill()?,
        };
        scratch::forget_pages(&open(&self.device)?, &self.device)?;
        Ok(wrote)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        Ok(journal.undo(self.change)?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::places::rbd::Cluster;

    fn line(pool: &Pool) -> Vec<String> {
        let volume = mark(pool, pool.target(), "c00kie");
        let shown = |(tool, args): (&str, Vec<String>)| Exec::new(tool).args(args).shown();
        commands(pool, &volume, 64 << 20).into_iter().map(shown).collect()
    }

    #[test]
    fn every_volume_bears_its_mark_from_the_start() {
        assert_eq!(
            line(&Pool::Lvm { vg: "vg0".into() }),
            ["lvcreate --yes --wipesignatures y --size 67108864b --name vmio-c00kie-lvm --addtag c00kie vg0"]
        );
        assert_eq!(
            line(&Pool::LvmThin { vg: "vg0".into(), pool: "data".into() }),
            [
                "lvcreate --yes --type thin --virtualsize 67108864b --thinpool data --name vmio-c00kie-lvm-thin --addtag c00kie vg0"
            ]
        );
        assert_eq!(
            line(&Pool::Zfs { dataset: "tank/vm".into(), block: Some("16k".into()) }),
            ["zfs create -s -o org.vmio:owner=c00kie -b 16k -V 67108864 tank/vm/vmio-c00kie-zvol"]
        );
        let cluster = Cluster { conf: None, user: Some("u".into()) };
        assert_eq!(
            line(&Pool::Rbd { pool: "vms".into(), cluster }),
            [
                "rbd --id u create --size 64M --image-feature layering vms/vmio-c00kie-rbd",
                "rbd --id u image-meta set vms/vmio-c00kie-rbd org.vmio.owner c00kie",
                "rbd --id u map vms/vmio-c00kie-rbd"
            ]
        );
    }

    #[test]
    fn a_study_for_another_kind_of_place_is_told_which() {
        let files = Ground::Files("/srv".into());
        let thin = Ground::Volumes(Pool::LvmThin { vg: "v".into(), pool: "p".into() });
        assert_eq!(fits("lvm-thin", "lvmthin:VG/POOL", &thin), Ok(()));
        assert!(fits("lvm-thin", "lvmthin:VG/POOL", &files).unwrap_err().contains("--on lvmthin:VG/POOL"));
        assert!(fits("zvol", "zfs:POOL", &thin).unwrap_err().contains("LVM thin pool v/p"));
    }
}
