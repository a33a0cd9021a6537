//! From a path to the disks below it.

/// The disks below a path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Backing {
    /// Kernel names of the leaves (`vda`, `nvme0n1`), sorted; empty where they are not visible.
    pub leaves: Vec<String>,
    /// (major, minor) of each leaf, in the same order.
    pub numbers: Vec<(u32, u32)>,
    /// Type of the file system that holds the path; empty for a device.
    pub filesystem: String,
    /// Its mount point; empty for a device.
    pub mount: String,
    /// Why there are no leaves.
    pub not_visible: Option<String>,
}

use std::path::Path;

use vmio_node::Reader;

impl Backing {
    /// Resolves a file, directory or block device. The path must exist.
    pub fn of(reader: &dyn Reader, path: &Path) -> Result<Self, vmio_node::Error> {
        todo!("{} {}", reader.name(), path.display())
    }

    /// One line for the environment: `vda (ext4 at /)`.
    pub fn describe(&self) -> String {
        todo!()
    }
}
