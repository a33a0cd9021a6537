//! Errors of nodes.

use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong on a node. Says what failed, on what, and why.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory operation failed.
    #[error("{node}: cannot {what} {}: {source}", path.display())]
    File {
        /// Node name.
        node: String,
        /// `read`, `write`, …
        what: &'static str,
        /// Path on the node.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A command could not be started.
    #[error("{node}: cannot start {program}: {source}")]
    Spawn {
        /// Node name.
        node: String,
        /// Program.
        program: String,
        /// Cause.
        source: std::io::Error,
    },
    /// A killed process does not end.
    #[error("{node}: {program} (process {pid}) was killed but does not end; is it stuck in I/O?")]
    Stuck {
        /// Node name.
        node: String,
        /// Program.
        program: String,
        /// Process id on the node.
        pid: u32,
    },
    /// The stream to the agent broke or the agent is gone.
    #[error("{node}: the agent is gone: {reason}")]
    Gone {
        /// Node name.
        node: String,
        /// What was seen.
        reason: String,
    },
    /// The other side broke the protocol or speaks another version.
    #[error("{node}: agent protocol: {reason}")]
    Protocol {
        /// Node name.
        node: String,
        /// What was wrong.
        reason: String,
    },
    /// A device that must not be written.
    #[error("{} on {node} is not used: {reason}", device.display())]
    Refused {
        /// Node name.
        node: String,
        /// The device.
        device: PathBuf,
        /// What it holds or who uses it, and what to do.
        reason: String,
    },
    /// What others could have written is not obeyed.
    #[error("{} is unsafe: {why}; {mend}", path.display())]
    Untrusted {
        /// Directory or journal.
        path: PathBuf,
        /// Who could have written it.
        why: String,
        /// What to do.
        mend: String,
    },
    /// A journal could not be used.
    #[error("journal {}: {reason}", path.display())]
    Journal {
        /// Journal file.
        path: PathBuf,
        /// What was wrong and what to do.
        reason: String,
    },
}

impl Error {
    /// What the system said of a file; `None` where it is about none.
    pub fn kind(&self) -> Option<std::io::ErrorKind> {
        match self {
            Error::File { source, .. } => Some(source.kind()),
            _ => None,
        }
    }
}
