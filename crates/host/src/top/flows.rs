//! Where per-process disk traffic comes from: tracing of the block layer. A source of its own, so
//! that tests can script it and another tracer can take its place.

use vmio_model::top::Flow;

/// Result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there are no flows, and what would help.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// Gives what was done on the disks since it was last asked.
pub trait FlowSource: Send {
    /// Flows since the last call, or since the start.
    ///
    /// # Errors
    /// When the counts cannot be read: why, and what would help.
    fn take(&mut self) -> Result<Vec<Flow>>;
    /// How they are seen, in a few words: what is loaded into the kernel.
    fn about(&self) -> String;
}
