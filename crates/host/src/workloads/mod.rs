//! What runs on a disk: the paper's `dd` and fio jobs. The same command with the same
//! arguments runs on both sides; only the path differs.
//!
//! No workload goes over its span twice: a job ends when its span has been moved once or its
//! seconds are over, whichever comes first, so that on a fresh sparse file each write is a
//! first write. There is no warm-up either: all that a job does is counted, so that its bytes
//! can be compared with those that the device moved.
//!
//! Adding a workload: a file with a type that implements [`Workload`], and its line in [`ALL`].

use std::path::PathBuf;

use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_node::{Exec, Node};

use crate::require::Requirement;
pub use crate::targets::State;

/// All workloads, in the order in which they are shown.
pub const ALL: &[&dyn Workload] = &[];

/// A job.
pub trait Workload: Sync {
    /// One line for help and docs.
    fn about(&self) -> &'static str;
    /// Name and nature, as the model needs them.
    fn traits(&self) -> WorkloadTraits;
    /// What the node that it runs on must have.
    fn requirements(&self) -> &'static [Requirement];
    /// What it must find on the target.
    fn needs_state(&self) -> State;
    /// Smallest span in bytes for a side with this much memory.
    fn bytes_needed(&self, memory_bytes: u64) -> u64;
    /// Whether it can be held to a bandwidth (`--gentle`), else why not.
    fn can_be_gentle(&self) -> std::result::Result<(), &'static str>;
    /// Runs it to its end on a node: this machine or a guest.
    fn run(&self, node: &dyn Node, ctx: &WorkCtx) -> Result<WorkloadResult>;
}

/// What a workload runs on.
#[derive(Debug, Clone)]
pub struct WorkCtx {
    /// File or block device on the node. Must exist; it is never made and never cut short.
    pub path: PathBuf,
    /// Span in bytes from its start that may be used.
    pub bytes: u64,
    /// Longest time of the measured part (dd has no such limit: it moves its bytes).
    pub seconds: f64,
    /// Memory of the side in bytes.
    pub memory_bytes: u64,
    /// Prototype of commands: control group files, `oom_score_adj`, environment.
    pub exec_base: Exec,
    /// Bandwidth cap.
    pub gentle: Option<Gentle>,
}

/// The cap of `--gentle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gentle {
    /// Bytes a second, reads and writes each.
    pub cap_bytes_per_second: u64,
}

/// The workload of that name.
pub fn find(name: &str) -> Option<&'static dyn Workload> {
    ALL.iter().copied().find(|w| w.traits().name == name)
}

/// Result of this folder.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a workload gave no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tool failed.
    #[error("{node}: `{command}` failed ({how}): {said}")]
    Failed {
        /// Where.
        node: String,
        /// The command line.
        command: String,
        /// Exit code, signal, time limit or fio's error field.
        how: String,
        /// What it said on standard error.
        said: String,
    },
    /// Its output is not what the tool of a known version says.
    #[error("{node}: the output of `{command}` cannot be used: {reason}")]
    Output {
        /// Where.
        node: String,
        /// The command line.
        command: String,
        /// Why, with the start of the output.
        reason: String,
    },
    /// It cannot be run like this.
    #[error("{workload} cannot run here: {reason}")]
    Unfit {
        /// Which.
        workload: String,
        /// Why, and what to do.
        reason: String,
    },
    /// From the node.
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
}
