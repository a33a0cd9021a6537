//! What a guest has over one of its disks for a cell: a loop device over a file in the file system that the disk
//! holds, or a flash cache; natively a flash cache alone. It is set up before the cell (by the guest's agent) and taken
//! off after it, so that each cell begins without the file's pages in the guest's cache, or with a new flash cache.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use vmio_model::study::MIB;
use vmio_node::Node;
use vmio_node::mapped::Mapped;

use super::bcache::{self, Bcache};
use super::dm_cache::DmCache;
use super::warming::Passes;
use super::{PreparedActor, Stager, in_guest};
use crate::disks::targets::CacheDriver;
use crate::workloads::At;

/// Where it is mounted in a guest, whose image has the directory.
const POINT: &str = "/mnt";
/// How long a step may take.
const LIMIT: Duration = Duration::from_secs(60);

/// What is to be over a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// A loop device over this file in the file system that the disk holds.
    File(&'static str),
    /// A flash cache.
    Cache {
        /// Which.
        driver: CacheDriver,
        /// The disk that it is over.
        slow: PathBuf,
        /// The disk that it keeps blocks on.
        fast: PathBuf,
        /// Bytes of the slow disk, from its start, that it is to hold; `None` where it begins empty.
        held_bytes: Option<u64>,
        /// Whose devices they are in a journal; `None` in a guest, with which they end.
        owner: Option<Mapped>,
    },
}

impl Wanted {
    /// How a disk is read for so many bytes of it to be in its flash cache; `None` where it is to have none.
    pub fn passes(&self, node: &dyn Node, bytes: u64) -> anyhow::Result<Option<Passes>> {
        let Self::Cache { driver, slow, fast, .. } = self else { return Ok(None) };
        let read_bytes = match driver {
            CacheDriver::Bcache => bcache::kept_read_bytes(in_guest::disk_bytes(node, fast)?),
            // It was filled when it was set up, and a pass shows it.
            CacheDriver::DmCache => MIB,
        };
        Ok(Some(Passes { slow: in_guest::kernel_name(slow)?, bytes, read_bytes }))
    }
}

/// What was set up over a disk.
pub enum Inside {
    /// A loop device over a file.
    Loop(LoopDevice),
    /// bcache over two disks.
    Bcache(Bcache),
    /// dm-cache over two disks.
    DmCache(DmCache),
}

impl Inside {
    fn take_off(&self) -> anyhow::Result<()> {
        match self {
            Self::Loop(device) => device.take_off(),
            Self::Bcache(bcache) => bcache.take_off(),
            Self::DmCache(cache) => cache.take_off(),
        }
    }

    /// What a cache counts itself, in words; `None` of what is no cache.
    fn counted(&self) -> Option<String> {
        match self {
            Self::Loop(_) => None,
            Self::Bcache(bcache) => Some(bcache.counted()),
            Self::DmCache(cache) => Some(cache.counted()),
        }
    }
}

impl From<Bcache> for Inside {
    fn from(bcache: Bcache) -> Self {
        Self::Bcache(bcache)
    }
}

impl From<DmCache> for Inside {
    fn from(cache: DmCache) -> Self {
        Self::DmCache(cache)
    }
}

/// A loop device over a file in a file system that is mounted for it.
pub struct LoopDevice {
    node: Arc<dyn Node>,
    device: Option<String>,
}

impl LoopDevice {
    fn run(&self, program: &str, args: &[&str]) -> anyhow::Result<String> {
        in_guest::run(&*self.node, program, args, LIMIT)
    }

    /// Mounts what the disk holds, and attaches a loop device to a file there.
    fn set_up(node: Arc<dyn Node>, disk: &Path, file: &str, all: &mut Vec<Inside>) -> anyhow::Result<PathBuf> {
        let mut inside = Self { node, device: None };
        inside.run("mount", &["-t", "ext4", "-o", "ro,noload", &disk.display().to_string(), POINT])?;
        let attached = inside.run("losetup", &["--find", "--show", "--read-only", &format!("{POINT}/{file}")]);
        inside.device = attached.as_ref().ok().cloned();
        all.push(Inside::Loop(inside));
        Ok(PathBuf::from(attached?))
    }

    fn take_off(&self) -> anyhow::Result<()> {
        let detached = self.device.as_ref().map_or(Ok(String::new()), |device| self.run("losetup", &["-d", device]));
        let unmounted = self.run("umount", &[POINT]);
        detached.and(unmounted).map(drop)
    }
}

impl Stager<'_, '_> {
    /// Gives actors what they are to have over a disk, in the disk's place. What was set up until it failed is
    /// to be taken off all the same.
    pub fn go_inside(
        &mut self,
        mut actors: Vec<PreparedActor>,
    ) -> anyhow::Result<(Vec<PreparedActor>, Vec<Inside>, anyhow::Result<()>)> {
        if actors.iter().all(|prepared| prepared.inside.is_none()) {
            return Ok((actors, Vec::new(), Ok(())));
        }
        self.bed.on_storage(move || {
            let mut all = Vec::new();
            let done = actors.iter_mut().try_for_each(|prepared| {
                let Some(wanted) = &prepared.inside else { return Ok(()) };
                for end in prepared.stage.ends.values_mut() {
                    let At::Path(path) = &end.at else { continue };
                    let node = end.node.clone();
                    let device = match wanted {
                        Wanted::File(file) => LoopDevice::set_up(node, path, file, &mut all)
                            .context("a loop device over a file in the guest could not be set up")?,
                        // What it is to hold is read through it once it is there.
                        Wanted::Cache { driver: CacheDriver::Bcache, slow, fast, .. } => {
                            Bcache::set_up(node, (slow, fast), &mut all)
                                .context("bcache could not be set up in the guest")?
                        }
                        Wanted::Cache { driver: CacheDriver::DmCache, slow, fast, held_bytes, owner } => {
                            DmCache::set_up((node, owner.clone()), (slow, fast), *held_bytes, &mut all)
                                .context("dm-cache could not be set up")?
                        }
                    };
                    end.at = At::Path(device);
                }
                Ok(())
            });
            (actors, all, done)
        })
    }

    /// What caches that were set up count themselves, in words.
    pub fn counted(&mut self, all: Vec<Inside>) -> (Vec<Inside>, Vec<String>) {
        if all.is_empty() || self.bed.storage_failed() {
            return (all, Vec::new());
        }
        let ask = move || {
            let said: Vec<String> = all.iter().filter_map(Inside::counted).collect();
            (all, said)
        };
        // Where the storage fails now, nothing is taken off either.
        self.bed.on_storage(ask).unwrap_or_default()
    }

    /// Takes off what was set up.
    pub fn come_out(&mut self, all: Vec<Inside>) -> anyhow::Result<()> {
        // Where the storage is sick guests may hang, and they are ended.
        if all.is_empty() || self.bed.storage_failed() {
            return Ok(());
        }
        let each = move || all.iter().rev().map(Inside::take_off).fold(Ok(()), Result::and);
        self.bed.on_storage(each)?.context("what was over a disk for the cell could not be taken off")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use vmio_node::fake::Fake;

    use super::*;

    #[test]
    fn a_cache_is_read_through_by_reads_that_it_keeps() {
        // 12,288 buckets, of which 16 are kept free.
        let guest = Fake::new("guest0").file("/sys/block/vdc/size", (768 * MIB / 512).to_string());
        let passes = |driver: CacheDriver| {
            let (slow, fast) = ("/dev/vdb".into(), "/dev/vdc".into());
            let wanted = Wanted::Cache { driver, slow, fast, held_bytes: Some(512 * MIB), owner: None };
            wanted.passes(&guest, 512 * MIB).unwrap()
        };
        let expected = |read_bytes: u64| Some(Passes { slow: "vdb".into(), bytes: 512 * MIB, read_bytes });
        assert_eq!(passes(CacheDriver::Bcache), expected(MIB / 4));
        assert_eq!(passes(CacheDriver::DmCache), expected(MIB));
        assert_eq!(Wanted::File("file").passes(&guest, MIB).unwrap(), None);
    }
}
