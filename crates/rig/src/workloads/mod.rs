//! What runs on a disk: the paper's `dd` and fio jobs. The same command with the same
//! arguments runs on both sides; only the path differs.
//!
//! No workload goes over its span twice: a job ends when its span has been moved once or its
//! seconds are over, whichever comes first, so that on a fresh sparse file each write is a
//! first write. There is no warm-up either: all that a job does is counted, so that its bytes
//! can be compared with those that the device moved.
//!
//! Adding a workload: a file with a type that implements [`Workload`], and its line in [`ALL`].
//! Jobs that differ in size, depth, engine or page cache only need none: [`family`] makes them
//! from their names. [`find`] knows both.

use std::ops::Deref;
use std::path::PathBuf;

use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_node::linux::system::sysctl;
use vmio_node::{Exec, Node, Reader};

pub use crate::disks::targets::State;
use vmio_look::require::{Requirement, program};

mod append;
mod dd;
mod dd_read;
mod dd_write;
mod durable_append;
pub mod family;
mod fio;
mod rand_read_1;
mod rand_read_32;
mod rand_write_1;
mod rand_write_32;
mod seq_read;
mod seq_write;

pub use fio::{Engine, FioJob, Rw};

/// All workloads, in the order in which they are shown.
pub const ALL: &[&dyn Workload] = &[
    &durable_append::ENTRY,
    &seq_write::ENTRY,
    &seq_read::ENTRY,
    &rand_read_1::ENTRY,
    &rand_read_32::ENTRY,
    &rand_write_1::ENTRY,
    &rand_write_32::ENTRY,
    &dd_write::ENTRY,
    &dd_read::ENTRY,
];

/// A job.
pub trait Workload: Sync {
    /// One line for help and docs.
    fn about(&self) -> &str;
    /// Name and nature, as the model needs them.
    fn traits(&self) -> WorkloadTraits;
    /// What the node that it runs on must have.
    fn requirements(&self) -> &'static [Requirement];
    /// What it must find on the target.
    fn needs_state(&self) -> State;
    /// Whether each cell moves twice the memory through the page cache, whatever the rate.
    fn moves_twice_the_memory(&self) -> bool {
        false
    }
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

/// A workload that was found by its name: an entry of [`ALL`], or a job of [`family`].
pub enum Found {
    /// One of [`ALL`].
    Entry(&'static dyn Workload),
    /// Made from its name.
    Job(FioJob),
}

impl Deref for Found {
    type Target = dyn Workload;

    fn deref(&self) -> &Self::Target {
        match self {
            Found::Entry(entry) => *entry,
            Found::Job(job) => job,
        }
    }
}

/// The workload of that name.
pub fn find(name: &str) -> Option<Found> {
    let entry = ALL.iter().copied().find(|w| w.traits().name == name).map(Found::Entry);
    entry.or_else(|| Some(Found::Job(family::parse(name)?.ok()?.job())))
}

const FIO: Requirement = Requirement {
    name: "fio",
    why: "runs all workloads except dd",
    mend: "apt install fio",
    check: |reader| program(reader, "fio"),
};

const IO_URING: Requirement = Requirement {
    name: "io_uring",
    why: "runs the workloads that end in -uring",
    mend: "sysctl kernel.io_uring_disabled=0, on a kernel from 5.1",
    check: |reader| match sysctl(reader, "kernel.io_uring_disabled") {
        // Kernels before 6.6 have no such switch.
        Err(_) => Ok(()),
        Ok(text) if text == "0" || text == "1" => Ok(()),
        Ok(text) => Err(format!("kernel.io_uring_disabled is {text}")),
    },
};

const DD: Requirement = Requirement {
    name: "dd",
    why: "runs the paper's workloads",
    mend: "apt install coreutils",
    check: |reader| program(reader, "dd"),
};

/// Refuses a span or a time that is too small, and a cap that the workload cannot keep.
fn enough(workload: &dyn Workload, ctx: &WorkCtx) -> Result<()> {
    let unfit = |reason: String| Err(Error::Unfit { workload: workload.traits().name, reason });
    let needed = workload.bytes_needed(ctx.memory_bytes);
    if ctx.bytes < needed {
        return unfit(format!(
            "it needs {} MiB of storage and {} MiB are there: use a larger target (size.target_mib of the study)",
            needed >> 20,
            ctx.bytes >> 20
        ));
    }
    if !(ctx.seconds.is_finite() && ctx.seconds >= 0.1) {
        return unfit(format!("{} seconds are too short: use at least 0.1", ctx.seconds));
    }
    match (ctx.gentle, workload.can_be_gentle()) {
        (Some(_), Err(reason)) => unfit(reason.into()),
        _ => Ok(()),
    }
}

/// Refuses a path that is not there (the tools' own messages for that mislead), or is too small.
fn exists(workload: &dyn Workload, reader: &dyn Reader, ctx: &WorkCtx) -> Result<()> {
    let unfit = |reason: String| {
        let reason = format!("{} on {}: {reason}", ctx.path.display(), reader.name());
        Err(Error::Unfit { workload: workload.traits().name, reason })
    };
    match reader.stat(&ctx.path)? {
        None => unfit("no such file or device".into()),
        Some(s) if s.is_block() => Ok(()),
        Some(s) if !s.is_file() => unfit("neither a regular file nor a block device".into()),
        Some(s) if s.size < ctx.bytes => unfit(format!("{} bytes instead of {}", s.size, ctx.bytes)),
        Some(_) => Ok(()),
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    pub(super) fn ctx() -> WorkCtx {
        WorkCtx {
            path: "/scratch/target".into(),
            bytes: 768 << 20,
            seconds: 2.0,
            memory_bytes: 256 << 20,
            exec_base: Exec::default(),
            gentle: None,
        }
    }

    #[test]
    fn contract_of_every_workload() {
        for (i, workload) in ALL.iter().enumerate() {
            let traits = workload.traits();
            let name = &traits.name;
            assert!(!name.contains([' ', ',', '/', '+']), "{name}: cell keys use these characters");
            assert!(ALL[..i].iter().all(|w| w.traits().name != *name), "{name} twice");
            assert!(!workload.about().is_empty() && !workload.requirements().is_empty(), "{name}");
            assert!(traits.reads != traits.writes, "{name} goes one way");
            assert_eq!(workload.needs_state(), if traits.writes { State::Fresh } else { State::Filled }, "{name}");
            assert!(traits.block_bytes.is_power_of_two() && traits.depth >= 1, "{name}");
            let (small, large) = (workload.bytes_needed(128 << 20), workload.bytes_needed(512 << 20));
            assert!(small >= 64 << 20 && large >= small && large % (1 << 20) == 0, "{name}");
            assert!(matches!(find(name), Some(Found::Entry(e)) if e.traits() == traits), "{name}");
            assert_eq!(family::parse(name), None, "{name} has two meanings");
        }
    }

    #[test]
    fn what_cannot_be_measured_is_refused_before_it_runs() {
        for workload in ALL {
            let small = WorkCtx { bytes: 1 << 20, ..ctx() };
            assert!(enough(*workload, &small).unwrap_err().to_string().contains("size.target_mib"));
            let short = WorkCtx { seconds: f64::NAN, ..ctx() };
            assert!(enough(*workload, &short).is_err());
            let gentle = WorkCtx { gentle: Some(Gentle { cap_bytes_per_second: 1 << 20 }), ..ctx() };
            assert_eq!(enough(*workload, &gentle).is_ok(), workload.can_be_gentle().is_ok());
        }
    }
}
