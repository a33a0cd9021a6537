//! Why a run has to end before its study's own rule says so. What it measured is kept.

/// The causes, in words that say what happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StopCause {
    /// The storage that targets lie on does not answer, or takes no more writes: nothing there may be touched.
    #[error("{0}")]
    StorageFailed(String),
    /// Somebody else has moved what was made, or put something in its place.
    #[error("{0}")]
    ObjectReplaced(String),
    /// What was set on the host for a cell cannot be set back.
    #[error("{0}")]
    SettingStuck(String),
    /// The peer of paths that lead to another machine does not answer.
    #[error("{0}")]
    PeerLost(String),
    /// `--gentle`: another guest of the host is slowed down.
    #[error("{0}")]
    OtherGuestSlowed(String),
}
