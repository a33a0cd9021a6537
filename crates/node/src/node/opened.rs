//! Files of others, as they are told apart and looked at.

use std::fs::File;
use std::path::PathBuf;

use crate::linux::kind;
use crate::node::{FileStat, Result};

/// A file or block device, as the kernel knows it apart from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileIdentity {
    /// What it is.
    pub stat: FileStat,
    /// Its number on the device that holds it.
    pub inode: u64,
    /// Names that it has; 0 for a file that was deleted.
    pub links: u64,
}

impl FileIdentity {
    /// Whether both are one: a block device by its number, since a container or libvirt's guests have nodes of
    /// their own for it.
    pub fn is(&self, other: &FileIdentity) -> bool {
        let kind = |id: &FileIdentity| kind::of(id.stat.mode);
        match kind(self) {
            kind::BLOCK => other.stat.is_block() && self.stat.rdev == other.stat.rdev,
            own => own == kind(other) && (self.stat.dev, self.inode) == (other.stat.dev, other.inode),
        }
    }
}

/// What a process has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Opened {
    /// The process.
    pub pid: u32,
    /// The number of its descriptor.
    pub fd: u32,
    /// What that is.
    pub is: FileIdentity,
    /// Whether the process may read by it.
    pub readable: bool,
}

impl Opened {
    /// How programs of the same user open the same, whatever becomes of its name (proc_pid_fd(5)).
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", self.pid, self.fd).into()
    }
}

/// Where a file of others is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// Where a process has it open.
    Open(Opened),
    /// By its path, with no other rights than our own.
    Path(PathBuf),
}

/// A file system that may write an overwrite to another place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum CowFilesystem {
    /// btrfs.
    Btrfs,
    /// bcachefs.
    Bcachefs,
    /// XFS, of blocks that files share.
    Xfs,
}

/// How a file system that may copy on write keeps a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileLayout {
    /// The file system.
    pub filesystem: CowFilesystem,
    /// Whether each overwrite goes to another place; `None` where the file system does not say.
    pub copy_on_write: Option<bool>,
    /// Whether it compresses the file.
    pub compressed: bool,
    /// Its extents; `None` where they could not be counted.
    pub extents: Option<Extents>,
}

/// Extents of a file, or of parts of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Extents {
    /// How many were seen; one that reaches over several windows of the count counts once in each.
    pub seen: u64,
    /// In so many bytes of the file, holes included.
    pub of_bytes: u64,
    /// Whether that is the whole file.
    pub whole: bool,
    /// How many of them another file shares; 0 on btrfs and bcachefs, where that is not asked.
    pub shared: u64,
}

/// First bytes of a file, and how many of its bytes are in the page cache; the file stays open as long as this lives.
#[derive(Debug)]
pub struct Peek {
    /// Its first bytes.
    pub start: Vec<u8>,
    /// Bytes of it that the page cache holds; `None` where the kernel cannot count them (before Linux 6.5).
    pub cached_bytes: Result<Option<u64>>,
    /// How its file system keeps it; `None` for a device, and where the file system is none of those that copy.
    pub layout: Option<FileLayout>,
    /// A path by which it is reached as long as it is held, whatever becomes of its name.
    pub path: PathBuf,
    pub(crate) _file: Option<File>,
}

impl Peek {
    /// Of a made-up file, for [`crate::fake`].
    pub fn made_up(start: Vec<u8>, cached_bytes: Result<Option<u64>>, path: PathBuf) -> Self {
        Self { start, cached_bytes, layout: None, path, _file: None }
    }
}
