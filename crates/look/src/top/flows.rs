//! Per-process disk traffic from block tracing, behind a trait so that tests can script it.

use vmio_model::top::Flow;

use vmio_node::Reader;

use crate::trace::{self, BlockTrace};

/// Result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there are no flows, and the fix.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Tracing is turned off by this option.
    #[error("{0} was given")]
    Unwanted(&'static str),
    /// vmio's own programs failed.
    #[error(transparent)]
    Trace(#[from] trace::Error),
    /// Another source failed.
    #[error("{0}")]
    Other(String),
}

/// A source of disk traffic by process.
pub trait FlowSource: Send {
    /// Flows since the last call, or since the start.
    ///
    /// # Errors
    /// When the counts cannot be read.
    fn take(&mut self) -> Result<Vec<Flow>>;
    /// Requests since the last call that were not counted for lack of room.
    fn lost(&mut self) -> u64 {
        0
    }
    /// Name of the source.
    fn about(&self) -> String;
}

/// The flows that vmio's own eBPF programs count.
pub struct Blocks {
    trace: BlockTrace,
    lost: u64,
}

impl Blocks {
    /// Loads the programs. They end when this is dropped or its process ends.
    ///
    /// # Errors
    /// When they cannot be loaded.
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
