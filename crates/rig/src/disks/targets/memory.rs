//! Memory in place of a flash device: what caches of targets lie on.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::retry_on_intr;
use vmio_look::require::{self, Requirement};
use vmio_node::{ChangeId, Journal, Node};

use super::loopdev::{self, Attached, LoopIoMode};
use super::{Error, Result, TargetCtx, scratch};
use crate::disks::space;

/// A file system in memory (shm_overview(7)).
pub const MEMORY: &str = "/dev/shm";

/// What this machine must have for it.
pub const REQUIREMENT: Requirement = Requirement {
    name: MEMORY,
    why: "holds caches, in place of a flash device, and keys",
    fix: "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
    check: |reader| require::kernel(reader, "file system in memory", MEMORY),
};

/// Sees to it that it is memory, with room for so many caches of so many bytes.
pub fn room(node: &dyn Node, bytes: u64, caches: usize) -> Result<()> {
    let memory = Path::new(MEMORY);
    if scratch::not_in_memory(memory).is_ok() {
        let reason = "it is no file system in memory (tmpfs), and the cache would lie on a disk".to_owned();
        return Err(Error::NotAsAsked { path: memory.into(), reason });
    }
    space::demand(node, memory, bytes.saturating_mul(caches as u64))?;
    Ok(())
}

/// A directory there of mode 0700, for the target of this name. It goes with the journal, with all that is in it.
pub fn dir(journal: &Journal, target: &str) -> Result<(PathBuf, ChangeId)> {
    let dir = Path::new(MEMORY).join(format!("vmio-{target}-{}", journal.cookie()));
    let made = journal.scratch_dir(&dir)?;
    Ok((dir, made))
}

/// A loop device over a new file there, through the page cache that the file lies in anyway. The file has its memory
/// from the start, so that [`room`] counts it for the next. What is made is added to `made`, in that order, also where
/// it fails.
pub fn disk(ctx: &TargetCtx<'_>, target: &str, bytes: u64, made: &mut Vec<ChangeId>) -> Result<Attached> {
    let (dir, change) = dir(ctx.journal, target)?;
    made.push(change);
    let path = dir.join("disk.raw");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let sized = file.and_then(|file| {
        // A tmpfs gives up at any signal, and gives back what it took until then.
        retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, bytes))?;
        Ok(file)
    });
    let file = sized.map_err(scratch::io("make the file of a disk", &path))?;
    let disk = loopdev::attach(ctx, &path, &file, LoopIoMode::Cached)?;
    made.push(disk.change);
    Ok(disk)
}
