//! Free space, and where scratch files go.

use std::path::{Path, PathBuf};

use vmio_node::{Node, Reader};

use super::Result;

/// What is left where scratch files go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// Bytes left: the smallest of file system, quota and thin pool.
    pub free_bytes: u64,
    /// Which of them that is: `file system`, `thin pool vg0/pool`.
    pub of: String,
}

/// What is left for files in `dir`.
pub fn left(node: &dyn Node, dir: &Path) -> Result<Space> {
    todo!("{} {}", node.name(), dir.display())
}

/// Refuses `bytes` in `dir` unless they fit with 20 % to spare.
pub fn require(node: &dyn Node, dir: &Path, bytes: u64) -> Result<Space> {
    todo!("{} {} {bytes}", node.name(), dir.display())
}

/// Where guest images are on this machine: the first of libvirt's and Proxmox's directories that
/// is there and can be written, else `state`.
pub fn default_dir(reader: &dyn Reader, state: &Path) -> PathBuf {
    todo!("{} {}", reader.name(), state.display())
}
