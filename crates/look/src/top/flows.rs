//! Per-process disk traffic from block tracing, behind a trait so that tests can script it.

use std::collections::{BTreeMap, BTreeSet};

use vmio_model::top::Flow;
use vmio_model::top::calls::CallLoad;
use vmio_model::top::load::JournalFlow;

use vmio_node::Reader;

use crate::trace::calls::{self, CallTrace};
use crate::trace::syncs::SyncTrace;
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
    /// What was done on file systems with a journal since the last call, or since the start.
    fn journals(&mut self) -> Vec<JournalFlow> {
        Vec::new()
    }
    /// What of that is not seen, in words.
    fn journals_unseen(&mut self) -> Option<String> {
        None
    }
    /// Counts from now on what these processes ask of their host, which `here` reads, and no others; without any it
    /// ends.
    fn watch_calls(&mut self, _here: &dyn Reader, _pids: &BTreeSet<u32>) {}
    /// What each of them asked since the last call; empty where that is not seen.
    fn calls(&mut self) -> BTreeMap<u32, CallLoad> {
        BTreeMap::new()
    }
    /// What of that is not seen, in words.
    fn calls_unseen(&mut self) -> Option<String> {
        None
    }
    /// Name of the source.
    fn about(&self) -> String;
}

/// The flows that vmio's own eBPF programs count.
pub struct Blocks {
    trace: BlockTrace,
    lost: u64,
    /// `None` where the kernel has no ext4, or it is not seen.
    syncs: Option<SyncTrace>,
    /// Why it is not seen.
    unseen: Option<String>,
    syncs_lost: u64,
    calls: Option<Calls>,
}

/// Processes whose calls are counted.
struct Calls {
    trace: std::result::Result<CallTrace, calls::Error>,
    watched: BTreeSet<u32>,
    lost: u64,
}

/// Words for waits in fsync that are not seen.
fn unseen(why: &trace::syncs::Error) -> String {
    format!("waits in fsync are not seen: {why}")
}

impl Blocks {
    /// Loads the programs. They end when this is dropped or its process ends.
    ///
    /// # Errors
    /// When those of the block layer cannot be loaded. Those of ext4 may be missing, which is told.
    pub fn start(here: &dyn Reader) -> Result<Blocks> {
        let trace = BlockTrace::start(here)?;
        let (syncs, unseen) = match SyncTrace::start(here) {
            Ok(syncs) => (syncs, None),
            Err(why) => (None, Some(unseen(&why))),
        };
        Ok(Blocks { trace, lost: 0, syncs, unseen, syncs_lost: 0, calls: None })
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
    fn journals(&mut self) -> Vec<JournalFlow> {
        match self.syncs.as_mut().map(SyncTrace::take) {
            Some(Ok(flows)) => flows,
            Some(Err(why)) => {
                (self.syncs, self.unseen) = (None, Some(unseen(&why)));
                Vec::new()
            }
            None => Vec::new(),
        }
    }
    fn journals_unseen(&mut self) -> Option<String> {
        let all = self.syncs.as_ref().map_or(0, SyncTrace::lost);
        let lost = all.saturating_sub(std::mem::replace(&mut self.syncs_lost, all));
        let full = || format!("{lost} writes or fsyncs were not counted: too many processes use file systems at once");
        self.unseen.clone().or_else(|| (lost > 0).then(full))
    }
    fn watch_calls(&mut self, here: &dyn Reader, pids: &BTreeSet<u32>) {
        if pids.is_empty() {
            self.calls = None;
            return;
        }
        let start = || Calls { trace: CallTrace::start(here), watched: BTreeSet::new(), lost: 0 };
        let calls = self.calls.get_or_insert_with(start);
        if calls.watched != *pids {
            let failed = calls.trace.as_mut().ok().and_then(|trace| trace.watch(pids).err());
            if let Some(why) = failed {
                calls.trace = Err(why);
            }
            calls.watched.clone_from(pids);
        }
    }
    fn calls(&mut self) -> BTreeMap<u32, CallLoad> {
        let Some(calls) = &mut self.calls else { return BTreeMap::new() };
        let taken = match &mut calls.trace {
            Ok(trace) => trace.take(),
            Err(_) => return BTreeMap::new(),
        };
        taken.unwrap_or_else(|why| {
            calls.trace = Err(why);
            BTreeMap::new()
        })
    }
    fn calls_unseen(&mut self) -> Option<String> {
        let calls = self.calls.as_mut()?;
        let trace = match &calls.trace {
            Ok(trace) => trace,
            Err(why) => return Some(format!("system calls of hypervisors are not seen: {why}")),
        };
        let all = trace.lost();
        let lost = all.saturating_sub(std::mem::replace(&mut calls.lost, all));
        let full = || format!("{lost} calls of hypervisors were not counted: too many at once");
        let lacks = |name: &str| {
            format!("requests by io_uring are not seen: the kernel has no tracepoint {name}; {}", calls::RINGS.fix)
        };
        (lost > 0).then(full).or_else(|| trace.lacks().map(lacks))
    }
    fn about(&self) -> String {
        "disks by eBPF".into()
    }
}
