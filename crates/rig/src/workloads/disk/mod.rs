//! What runs on a disk: the paper's `dd` and fio jobs.
//!
//! No workload goes over its span twice: a job ends when its span has been moved once or its
//! seconds are over, whichever comes first, so that on a fresh sparse file each write is a
//! first write. There is no warm-up either: all that a job does is counted, so that its bytes
//! can be compared with those that the device moved.

use std::path::PathBuf;
use std::sync::Arc;

use vmio_look::require::{Missing, Requirement, program};
use vmio_node::linux::system::sysctl;
use vmio_node::{Exec, Node, Reader};

use super::{At, End, Error, Gentle, Result, Role, Span, Stage, Wants, Workload};

mod append;
mod dd;
mod dfsio;
pub mod family;
mod fio;
mod hdfs;
mod hdparm;
mod jobs;

pub(super) use dd::last_line;
pub use dd::{DD_READ, DD_WRITE};
pub use dfsio::ENTRY as DFSIO;
pub use fio::{Engine, FioJob, Rw};
pub use hdfs::{ENTRY as DFSIO_HDFS, REMOTE as DFSIO_HDFS_REMOTE};
pub use hdparm::ENTRY as HDPARM;
pub use jobs::{DURABLE_APPEND, RAND_READ_1, RAND_READ_32, RAND_WRITE_1, RAND_WRITE_32, SEQ_READ, SEQ_WRITE};

/// What a disk workload has beside what all have.
pub trait DiskWorkload: Workload {
    /// Whether it drops what the page cache of its side has of the disk before it reads.
    fn drops_pages(&self) -> bool {
        false
    }
    /// Whether each cell moves twice the memory through the page cache, whatever the rate.
    fn moves_twice_the_memory(&self) -> bool {
        false
    }
    /// Whether it makes a file system on the disk, and mounts it.
    fn mounts(&self) -> bool {
        false
    }
    /// Smallest span in bytes for a side with this much memory.
    fn bytes_needed(&self, memory_bytes: u64) -> u64;
    /// Whether it had a rate to keep, and lagged behind it.
    fn is_saturated(&self, _: &vmio_model::result::WorkloadResult) -> bool {
        false
    }
    /// Seconds of the request that took longest, as its program says; `None` where it does not say.
    fn longest_seconds(&self, _: &vmio_model::result::WorkloadResult) -> Option<f64> {
        None
    }
}

/// What a disk workload runs on.
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
    /// See [`Span::warm`].
    pub warm: bool,
}

/// The one role of disk workloads.
const WORKER: &str = "worker";

impl Stage {
    /// The stage of a disk workload.
    pub fn on_disk(node: Arc<dyn Node>, ctx: WorkCtx) -> Self {
        let WorkCtx { path, bytes, seconds, memory_bytes, exec_base, gentle, warm } = ctx;
        let end = End { exec_base, ..End::here(node, At::Path(path)) };
        let span = Some(Span { bytes, memory_bytes, gentle, warm });
        Self { span, ..Self::of(WORKER, end, seconds) }
    }

    /// The machine of a disk workload, and what it works on there.
    ///
    /// # Errors
    /// When there is no disk.
    pub(super) fn disk(&self) -> Result<(&Arc<dyn Node>, WorkCtx)> {
        let end = self.end(WORKER)?;
        let missing = || Error::Unfit { workload: "the workload".into(), reason: "it was given no disk".into() };
        let (span, path) = self.span.zip(end.path()).ok_or_else(missing)?;
        let Span { bytes, memory_bytes, gentle, warm } = span;
        let (path, exec_base) = (path.to_owned(), end.exec_base.clone());
        Ok((&end.node, WorkCtx { path, bytes, seconds: self.seconds, memory_bytes, exec_base, gentle, warm }))
    }
}

const fn worker(programs: &'static [&'static str], requirements: &'static [Requirement]) -> [Role; 1] {
    [Role { name: WORKER, wants: Wants::Path, programs, requirements }]
}

const FIO: Requirement = Requirement {
    name: "fio",
    why: "runs all disk workloads except dd, hdparm and those of Hadoop",
    fix: "apt install fio",
    check: |reader| program(reader, "fio"),
};

const IO_URING: Requirement = Requirement {
    name: "io_uring",
    why: "runs the workloads that end in -uring",
    fix: "sysctl kernel.io_uring_disabled=0, on a kernel from 5.1",
    check: |reader| match sysctl(reader, "kernel.io_uring_disabled") {
        // Kernels before 6.6 have no such switch.
        Err(_) => Ok(()),
        Ok(text) if text == "0" || text == "1" => Ok(()),
        Ok(text) => Err(Missing::Unlike(format!("kernel.io_uring_disabled is {text}"))),
    },
};

pub(crate) const DD: Requirement = Requirement {
    name: "dd",
    why: "runs the paper's workloads",
    fix: "apt install coreutils",
    check: |reader| program(reader, "dd"),
};

/// Refuses a span or a time that is too small, and a cap that the workload cannot keep.
fn enough(workload: &dyn DiskWorkload, ctx: &WorkCtx) -> Result<()> {
    let unfit = |reason: String| Err(Error::Unfit { workload: workload.traits().name, reason });
    // What is warm has room in the memory.
    let needed = workload.bytes_needed(if ctx.warm { 0 } else { ctx.memory_bytes });
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
fn exists(workload: &dyn DiskWorkload, reader: &dyn Reader, ctx: &WorkCtx) -> Result<()> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::cell::State;
    use vmio_model::rate::ByteRate;

    use super::*;
    use crate::workloads::ALL;

    pub(super) fn ctx() -> WorkCtx {
        WorkCtx {
            path: "/scratch/target".into(),
            bytes: 768 << 20,
            seconds: 2.0,
            memory_bytes: 256 << 20,
            exec_base: Exec::default(),
            gentle: None,
            warm: false,
        }
    }

    #[test]
    fn contract_of_every_disk_workload() {
        for workload in ALL {
            let Some(own) = workload.disk() else { continue };
            let (traits, name) = (workload.traits(), workload.traits().name);
            let disk = traits.disk.as_ref().unwrap();
            assert!(disk.reads != disk.writes, "{name} goes one way");
            assert_eq!(disk.state(), if disk.writes { State::Fresh } else { State::Filled }, "{name}");
            assert!(disk.block_bytes.is_power_of_two() && disk.depth >= 1, "{name}");
            let (small, large) = (own.bytes_needed(128 << 20), own.bytes_needed(512 << 20));
            assert!(small >= 64 << 20 && large >= small && large % (1 << 20) == 0, "{name}");
        }
    }

    #[test]
    fn what_cannot_be_measured_is_refused_before_it_runs() {
        for workload in ALL.iter().filter_map(|w| w.disk()) {
            let small = WorkCtx { bytes: 1 << 20, ..ctx() };
            assert!(enough(workload, &small).unwrap_err().to_string().contains("size.target_mib"));
            let short = WorkCtx { seconds: f64::NAN, ..ctx() };
            assert!(enough(workload, &short).is_err());
            let gentle = WorkCtx { gentle: Some(Gentle { cap: ByteRate::new(1 << 20) }), ..ctx() };
            assert_eq!(enough(workload, &gentle).is_ok(), workload.can_be_gentle().is_ok());
        }
    }
}
