//! Where per-process disk traffic comes from: tracing of the block layer. A source of its own, so
//! that tests can script it and another tracer can take its place.

use vmio_model::top::Flow;

use vmio_node::Reader;

use crate::trace::{self, BlockTrace};

/// Result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there are no flows, and what would help.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Whoever looks wants none, by this option.
    #[error("{0} was given")]
    Unwanted(&'static str),
    /// Tracing by vmio's own programs.
    #[error(transparent)]
    Trace(#[from] trace::Error),
    /// What another source says.
    #[error("{0}")]
    Other(String),
}

/// Gives what was done on the disks since it was last asked.
pub trait FlowSource: Send {
    /// Flows since the last call, or since the start.
    ///
    /// # Errors
    /// When the counts cannot be read: why, and what would help.
    fn take(&mut self) -> Result<Vec<Flow>>;
    /// Requests since the last call that it had no room to count.
    fn lost(&mut self) -> u64 {
        0
    }
    /// How they are seen, in a few words.
    fn about(&self) -> String;
}

/// Tracing by vmio's own eBPF programs.
pub struct Blocks {
    trace: BlockTrace,
    lost: u64,
}

impl Blocks {
    /// Loads them. They go when this is dropped or its process ends, however it ends.
    ///
    /// # Errors
    /// Why they cannot be loaded, and what would help.
    pub fn start(here: &dyn Reader) -> Result<Blocks> {
        Ok(Blocks { trace: BlockTrace::start(here)?, lost: 0 })
    }
}

impl FlowSource for Blocks {
    fn take(&mut self) -> Result<Vec<Flow>> {
        Ok(self.trace.take()?)
    }
    fn lost(&mut self) -> u64 {
        let all = self.trace.lost();
        all.saturating_sub(std::mem::replace(&mut self.lost, all))
    }
    fn about(&self) -> String {
        "disks by eBPF".into()
    }
}
