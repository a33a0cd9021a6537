//! Why there is no guest, or no longer.

use std::path::{Path, PathBuf};

use crate::disks::drivers::effective::Differences;

/// Result of this folder.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no guest, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host or the agent in the guest failed.
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
    /// There is no image, or it cannot be read.
    #[error(transparent)]
    Image(#[from] crate::image::Error),
    /// The set-up is wrong.
    #[error("guest {guest}: {reason}")]
    Spec {
        /// Name of the guest.
        guest: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A file or socket on the host failed.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// It did not start, hung, or died. It has been ended.
    #[error("guest {guest} {what}\n{report}")]
    Down {
        /// Name of the guest.
        guest: String,
        /// What was seen.
        what: String,
        /// The end of its console, and what the hypervisor said.
        report: String,
        /// The last line of those; `None` where there is none.
        last: Option<String>,
    },
    /// A disk is not set up as it was asked for.
    #[error("{hypervisor} did not set up {disk} as asked: {why}")]
    NotAsAsked {
        /// What its hypervisor is called.
        hypervisor: &'static str,
        /// The disk, as it was asked for.
        disk: String,
        /// What differs.
        why: Differences,
    },
    /// There is no hypervisor, or it refused what was asked of it, in its own words.
    #[error(transparent)]
    Hypervisor(Box<dyn std::error::Error + Send + Sync>),
    /// No such disk.
    #[error("guest {guest} has no disk {disk}{hint}")]
    NoDisk {
        /// Name of the guest.
        guest: String,
        /// Id that was asked for.
        disk: String,
        /// What was seen instead.
        hint: String,
    },
}

/// An error of a file, from that of the system.
pub(super) fn file_error(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::File { what, path, source }
}
