//! Why a probe says nothing of a subject.

use std::io;

use vmio_look::backing::NotVisible;
use vmio_look::require::Check;
use vmio_node::linux::nfs;

use crate::{guests, redfish};

/// The kinds of reasons.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Unseen {
    /// The probe sees nothing of such a subject.
    #[error("{0}")]
    OtherSubject(&'static str),
    #[error(transparent)]
    NotVisible(NotVisible),
    #[error("fewer than two readings")]
    FewReadings,
    #[error("no time between the readings")]
    NoTime,
    #[error("the counters of {0} went backwards")]
    Backwards(String),
    #[error("the counters of a disk could not be read to the end")]
    CutShort,
    #[error("{} has no NFS mount on {point}", nfs::stats_file().display())]
    NoMount { point: String },
    #[error("no such interface: {0}")]
    NoInterface(String),
    #[error("`{command}` failed: {said}")]
    Command { command: String, said: String },
    #[error("/proc/stat could not be read")]
    NoStat,
    #[error("no counter of energy could be read to the end")]
    NoEnergy,
    #[error("the meter reported power for {told:.1} s of {seconds:.1} s")]
    SeldomTold { told: f64, seconds: f64 },
    #[error(
        "it is too slow for cells of {seconds} s, each of which restarts it ({why}): let it run on and print its \
         watts often, or measure longer cells (without --quick, or by `repeat.seconds` of a study)"
    )]
    TooSlow { seconds: f64, why: String },
    #[error(
        "the meter took over 1 s for {answers} {}, of which none is used",
        if *answers == 1 { "answer" } else { "answers" }
    )]
    Late { answers: u32 },
    #[error("too many questions to meters have no answer yet, so this one is not asked")]
    Hangs,
    #[error(
        "a meter that is asked every {every} s needs cells of {least} s or more, and these are of {seconds} s: measure \
         longer cells (without --quick, or by `repeat.seconds` of a study)"
    )]
    ShortCells { seconds: f64, every: f64, least: f64 },
    #[error("no sensor of power can be read, or all average over more than half of a cell of {seconds} s")]
    NoSensor { seconds: f64 },
    #[error("a power of {watts:.0} W is none of a machine")]
    NoPower { watts: f64 },
    #[error("its counter of energy moved {steps} times, which is too coarse for so short a time")]
    Coarse { steps: usize },
    #[error("the system gives vmio no thread: {0}")]
    NoThread(std::io::Error),
    #[error(transparent)]
    Redfish(#[from] redfish::Error),
    #[error("the processors of this machine cannot be counted")]
    NoProcessors,
    #[error("{0}")]
    Unmet(Check),
    #[error("the kernel does not sample the processors: {0}; help: in a container it takes CAP_PERFMON of the host")]
    NotSampled(io::Error),
    #[error("the kernel gave no sample of vmio's processes or the kernel's threads")]
    NoSamples,
    #[error("{name} (process {pid}) ended during the cell")]
    HypervisorEnded { name: &'static str, pid: u32 },
    #[error("the container ended during the cell")]
    ContainerEnded,
    #[error("the kernel's histogram of {0} could not be read to the end")]
    NoHistogram(&'static str),
    #[error("{issued} requests were issued to {disk} and {ended} ended, so how long they took is not known")]
    NotPaired { disk: String, issued: u64, ended: u64 },
    #[error("{0} has no number")]
    NoDevice(String),
    #[error("the hypervisor does not count what is read of {0}")]
    NotCounted(String),
    #[error(transparent)]
    Guest(#[from] guests::Error),
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
}
