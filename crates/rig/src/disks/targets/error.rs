//! Why a target cannot be used, or is not any more what was made.

use std::path::PathBuf;

use vmio_node::device_safety;

use crate::disks::places;
use crate::nets;

/// Result of this folder.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a target cannot be used. Says what failed, on what, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// `punch holes into`, …
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// Not enough space, or it cannot be told.
    #[error(transparent)]
    Space(#[from] crate::disks::space::Error),
    /// It became full while it was written.
    #[error("{}: {source}; free some space or quota, or use a study with a smaller size.target_mib", path.display())]
    Full {
        /// Which file.
        path: PathBuf,
        /// `No space left on device`, `Disk quota exceeded`.
        source: std::io::Error,
    },
    /// The file system cannot do direct I/O.
    #[error("{}: {filesystem} has no direct I/O (O_DIRECT), so the page cache would be measured; use --on a directory on a disk", dir.display())]
    NoDirect {
        /// Where.
        dir: PathBuf,
        /// File system type.
        filesystem: String,
    },
    /// A device that must not be written.
    #[error("{} is not used: {reason}", device.display())]
    Refused {
        /// The device.
        device: PathBuf,
        /// What it holds or who uses it, and what to do.
        reason: String,
    },
    /// The kernel did not do what was asked.
    #[error("{}: {reason}", path.display())]
    NotAsAsked {
        /// On what.
        path: PathBuf,
        /// Asked and found.
        reason: String,
    },
    /// What serves a target has failed.
    #[error("the storage server of {}: {reason}", path.display())]
    Server {
        /// The file that it serves.
        path: PathBuf,
        /// What became of it.
        reason: String,
    },
    /// A tool could not make an image.
    #[error("{command} failed: {reason}")]
    Tool {
        /// What was run.
        command: String,
        /// What it said.
        reason: String,
    },
    /// An image is not what it should be.
    #[error(transparent)]
    Image(#[from] vmio_look::images::info::Error),
    /// The place cannot take it.
    #[error("{error}; {}", error.help)]
    Place {
        /// What is wrong, and what to do.
        #[from]
        error: places::Error,
    },
    /// There is no way to the host that serves it.
    #[error(transparent)]
    Link(#[from] nets::Error),
    /// What was made is no longer where it was made, or no longer what it was.
    #[error("{} is no longer what vmio created: {reason}; vmio wrote only to its own file and has ended the run: find \
             out who may write the directories above it, or use --on a directory that only its service user and root \
             may write", path.display())]
    Exchanged {
        /// Where it was made.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// From the node or its journal.
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
}

impl From<device_safety::Error> for Error {
    fn from(error: device_safety::Error) -> Self {
        match error {
            device_safety::Error::Io { what, path, source } => Self::Io { what, path, source },
            device_safety::Error::Refused { device, reason } => Self::Refused { device, reason },
            device_safety::Error::Node(error) => Self::Node(error),
        }
    }
}
