//! Why there is no network.

use super::NO_PEER;

/// Result of this folder.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine failed.
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
    /// A namespace could not be made.
    #[error("cannot make a network namespace: {0}")]
    Namespace(String),
    /// `ip` refused a line.
    #[error("`ip {line}` failed: {said}")]
    Ip {
        /// What it was told.
        line: String,
        /// What it said.
        said: String,
    },
    /// The other machine of a wire was not named.
    #[error("{NO_PEER}")]
    NoPeer,
    /// There is no bridge before the other host, or no address left on it.
    #[error("no more guests can be plugged in before that host: a link has room for {most}")]
    NoRoom {
        /// How many fit.
        most: u8,
    },
    /// A guest's device did not come up.
    #[error("its network device {mac} did not show within {seconds} s; it has {has}")]
    NotShown {
        /// The device's hardware address.
        mac: String,
        /// How long was waited.
        seconds: u64,
        /// The devices that the guest has, or why that is not known.
        has: String,
    },
    /// A guest's device was set up and found no link.
    #[error("its network device {device} has no link {seconds} s after it was set up")]
    NoLink {
        /// The guest's name of it.
        device: String,
        /// How long was waited.
        seconds: u64,
    },
}
