//! The control group of the native side: it gets the cores and the memory that the guest has,
//! so that a native run cannot hide in the host's page cache (page cache is charged to the
//! group that reads it in, and is reclaimed at the group's limit). Version 1 or 2 of control
//! groups, whichever the host has (kernel documents cgroup-v1/cpusets, cgroup-v1/memory,
//! cgroup-v2). Where it cannot be had the reason is returned, and the result says so.

use std::path::PathBuf;

use vmio_node::Node;

use crate::backing::Backing;
use crate::standin::Journal;

/// `oom_score_adj` of every process that vmio starts: the out-of-memory killer takes these first.
pub const OOM_SCORE_ADJ: i32 = 1000;

/// A control group of our own.
#[derive(Debug)]
pub struct Limits {
    procs: Vec<PathBuf>,
    described: String,
}

impl Limits {
    /// Makes a group called `name` (unique to the run) with `cores` CPUs and `memory_bytes` of
    /// memory and no swap. `Err` is the reason in words why the side cannot be held.
    pub fn create(
        node: &dyn Node,
        journal: &Journal,
        name: &str,
        cores: u32,
        memory_bytes: u64,
    ) -> Result<Self, String> {
        todo!("{} {journal:?} {name} {cores} {memory_bytes}", node.name())
    }

    /// Files for [`vmio_node::Exec::cgroup_procs`].
    pub fn procs_files(&self) -> &[PathBuf] {
        &self.procs
    }

    /// `cgroup v1: cpuset 1, memory 256 MiB`.
    pub fn describe(&self) -> &str {
        &self.described
    }

    /// Caps direct I/O of the group at the backing device (`--gentle`). `Ok` says how it is
    /// held, `Err` why it is not; the workloads' own cap holds in any case.
    pub fn throttle(&self, node: &dyn Node, backing: &Backing, bytes_per_second: u64) -> Result<String, String> {
        todo!("{} {backing:?} {bytes_per_second}", node.name())
    }

    /// Takes the group away. Its processes must have ended.
    pub fn remove(self, journal: &Journal) -> Result<(), String> {
        todo!("{journal:?}")
    }
}
