//! Why a limit of a guest is not in force.

use std::io;
use std::path::PathBuf;

use vmio_model::policy::groups::GroupKey;
use vmio_model::policy::units::show_bytes;

use crate::undo_log::UndoLogError;

/// Why a limit is not in force; another look tries again.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum WhyNot {
    /// Classes of the guest say different things of it.
    #[error("{0}")]
    Disputed(String),

    #[error("it was not looked for")]
    NotLookedFor,
    #[error("its processes have ended")]
    Ended,
    #[error("it has no process")]
    NoProcess,
    #[error("its control group with the controller `{0}` cannot be seen from here")]
    Unseen(&'static str),
    #[error("its threads are in groups that have none in common")]
    NoneInCommon,
    #[error("its threads are in {0} groups, which have only the root group in common")]
    FirstInCommon(usize),
    #[error("it is in the root control group, which cannot be limited")]
    First,
    #[error("process {pid} ({comm}) is in {dir}, too, and is not the guest's")]
    Stranger { pid: u32, comm: String, dir: PathBuf },
    #[error("a process that cannot be seen from here is in {0}, too, and is not the guest's")]
    UnseenStranger(PathBuf),
    #[error("it shares its control group with {0}")]
    SharedWith(String),

    #[error("{0} is gone; vmio looks for it again at the next check")]
    Gone(PathBuf),
    #[error("its group has no {file}: the controller `{controller}` is not enabled for it")]
    SwitchedOff { file: &'static str, controller: &'static str },
    /// A directory or file of control groups.
    #[error("{path} cannot be {done}: {source}")]
    Io { path: PathBuf, done: &'static str, source: io::Error },
    #[error("its use of memory cannot be read: {0}")]
    UnknownUse(#[source] io::Error),

    #[error("the group is set to run when nothing else does (cpu.idle)")]
    Idle,
    #[error("`{0}` makes no sense")]
    Nonsense(String),
    #[error("its period of {period_us} us is too short: the quota would be {us} us, at least {least_us} us are needed")]
    ShortPeriod { period_us: u64, us: u128, least_us: u64 },
    #[error("the guest would be killed: it has {} of memory", show_bytes(*bytes))]
    GuestsMemory { bytes: u64 },
    #[error("not set: {0}")]
    InUse(InUse),

    #[error("not set, since it could not be undone: {0}")]
    Unwritten(#[source] UndoLogError),
    #[error("the kernel refuses {value} in {file}: {source}{}", help(*key, source))]
    Refused { key: GroupKey, file: &'static str, value: String, source: io::Error },
    #[error("the kernel has {found} in {file} where {value} was written")]
    Differs { file: PathBuf, value: String, found: String },
}

/// A limit of memory is below what is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} are in use ({file}): the kernel would kill processes", show_bytes(*bytes))]
pub struct InUse {
    /// So much is.
    pub bytes: u64,
    /// Which file says so.
    pub file: &'static str,
}

/// What the kernel's refusal means here.
fn help(key: GroupKey, error: &io::Error) -> &'static str {
    match (key, error.raw_os_error()) {
        (_, Some(libc::EACCES | libc::EPERM | libc::EROFS)) => {
            "; the guard needs to write to control groups (CAP_DAC_OVERRIDE)"
        }
        (GroupKey::CpuMax, Some(libc::EINVAL)) => {
            "; a group above it may have less (version 1 refuses more below it), or its cpu.max.burst is larger"
        }
        (GroupKey::CpuWeight, Some(libc::EINVAL)) => "; it may be set to run when nothing else does (cpu.idle)",
        (GroupKey::MemoryMax, Some(libc::EINVAL)) => "; its limit with swap (memsw) may be lower",
        (GroupKey::MemoryMax, Some(libc::EBUSY)) => "; more is in use and cannot be given back",
        _ => "",
    }
}
