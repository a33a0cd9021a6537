//! Type bits of a mode (inode(7)).

use std::os::unix::fs::MetadataExt;

use super::device;
use crate::FileStat;

/// The bits that hold the type, `S_IFMT`.
const MASK: u32 = 0o170_000;
/// `S_IFREG`: a regular file.
pub const FILE: u32 = 0o100_000;
/// `S_IFDIR`: a directory.
pub const DIRECTORY: u32 = 0o040_000;
/// `S_IFBLK`: a block device.
pub const BLOCK: u32 = 0o060_000;
/// `S_IFCHR`: a character device.
pub const CHARACTER: u32 = 0o020_000;
/// `S_IFLNK`: a symbolic link.
pub const LINK: u32 = 0o120_000;

/// The type bits of a mode, one of the constants of this module (or a pipe's, a socket's).
pub fn of(mode: u32) -> u32 {
    mode & MASK
}

impl FileStat {
    /// Of what the kernel said.
    pub fn of(meta: &std::fs::Metadata) -> Self {
        Self {
            mode: meta.mode(),
            size: meta.size(),
            // st_blocks counts 512 bytes whatever the block size (stat(2)).
            allocated: meta.blocks() * 512,
            dev: device::of_dev(meta.dev()),
            rdev: device::of_dev(meta.rdev()),
        }
    }
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        of(self.mode) == FILE
    }
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        of(self.mode) == DIRECTORY
    }
    /// Whether it is a block device.
    pub fn is_block(&self) -> bool {
        of(self.mode) == BLOCK
    }
    /// Whether it is a character device.
    pub fn is_character(&self) -> bool {
        of(self.mode) == CHARACTER
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Local, Reader};
    use std::path::Path;

    #[test]
    fn the_types_are_those_of_this_kernel() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), "").unwrap();
        let stat = |path: &Path| Local::new().stat(path).unwrap().unwrap();
        assert!(stat(dir.path()).is_directory() && !stat(dir.path()).is_file());
        assert!(stat(&dir.path().join("f")).is_file());
        assert!(stat(Path::new("/dev/null")).is_character());
        // A block device's bits hold those of a directory and of a character device.
        let block = FileStat { mode: 0o060_660, size: 0, allocated: 0, dev: (0, 6), rdev: (8, 0) };
        assert!(block.is_block() && !block.is_directory() && !block.is_character() && !block.is_file());
    }
}
