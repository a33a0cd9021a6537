//! Why the disks below a path are not visible.

use std::path::PathBuf;

use vmio_node::linux::block::DEEPEST;

/// Where the search for the disks ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum NotVisible {
    /// A file system.
    #[error("{0} has no block device of its own")]
    NoDevice(String),
    #[error("the devices of the btrfs on {} are unknown", .0.display())]
    Btrfs(PathBuf),
    #[error("{}/uevent has no DEVNAME", .0.display())]
    NoName(PathBuf),
    #[error("{}/dev holds no number", .0.display())]
    NoNumber(PathBuf),
    #[error("{0} is stacked on more than {DEEPEST} devices")]
    TooDeep(String),
    #[error("{0} is not in /sys/block")]
    Unknown(String),
    #[error("the file behind {device}: {why}")]
    LoopFile { device: String, why: String },
    #[error("{0} is a ZFS volume, whose disks are not listed below it")]
    Zvol(String),
    #[error("zpool, which lists the disks of a ZFS pool, is missing")]
    NoZpool,
    #[error("`{command}` failed: {said}")]
    Zpool { command: String, said: String },
    #[error("zpool lists no disk of {0}")]
    EmptyPool(String),
    #[error("its disks are those of the Ceph cluster; `ceph osd perf` and `rbd perf image iostat` show them")]
    Ceph,
    #[error("its disks are those of another machine, {0}")]
    OtherMachine(String),
    /// A disk.
    #[error("{0} does not count its requests: echo 1 > /sys/block/{0}/queue/iostats")]
    CountersOff(String),
    #[error("no disk was found below it")]
    NoDisk,
    /// The node's error.
    #[error("{0}")]
    Unreadable(String),
}

impl From<vmio_node::Error> for NotVisible {
    fn from(error: vmio_node::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}
