//! What keeps the bytes of a pool's volumes. Who may change them is the pool's to decide, by its lock and its records.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use super::{Name, Result, Volume};

/// Keeps volumes. What makes, enlarges or deletes one is called under the pool's lock.
pub(super) trait Store: Send + Sync {
    /// The size that a volume has for which so many bytes are asked.
    fn fitted(&self, bytes: u64) -> Result<u64>;
    /// All that are whole, by name.
    fn list(&self) -> Result<Vec<Volume>>;
    /// A volume, open for writing, and its size.
    fn open(&self, name: &Name) -> Result<(OwnedFd, u64)>;
    /// The size that a server would find now. Asked several times a second, so no program is started for it.
    fn size(&self, name: &Name) -> Option<u64>;
    /// What a server opens.
    fn path(&self, name: &Name) -> PathBuf;
    /// Makes one of zeros, whole or not at all.
    fn create(&self, name: &Name, bytes: u64) -> Result<()>;
    /// Makes one of the bytes of another one that nobody can write meanwhile, whole or not at all.
    fn copy(&self, from: (&Name, &OwnedFd, u64), new: &Name) -> Result<()>;
    /// Finishes a `grow` that a crash has cut off.
    fn finish_growth(&self, name: &Name) -> Result<()>;
    /// Makes one larger, its new bytes zeros.
    fn grow(&self, name: &Name, file: &OwnedFd, from: u64, to: u64) -> Result<()>;
    /// Deletes one that nobody uses; no program can begin to use it as long as `file` is open.
    fn delete(&self, name: &Name, file: OwnedFd) -> Result<()>;
}
