//! Where per-process disk traffic comes from: tracing of the block layer. A source of its own, so
//! that tests can script it and another tracer can take its place.

use vmio_model::top::Flow;

use vmio_node::Reader;

use crate::trace::BlockTrace;

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
        let trace = BlockTrace::start(here).map_err(|e| Error(e.to_string()))?;
        Ok(Blocks { trace, lost: 0 })
    }
}

impl FlowSource for Blocks {
    fn take(&mut self) -> Result<Vec<Flow>> {
        self.trace.take().map_err(|e| Error(e.to_string()))
    }
    fn lost(&mut self) -> u64 {
        let all = self.trace.lost();
        all.saturating_sub(std::mem::replace(&mut self.lost, all))
    }
    fn about(&self) -> String {
        "disks by eBPF".into()
    }
}
