//! Users of disks, network and processors, and the guests that suffer: the pure part of `vmio top`, from observations
//! to rows and verdicts.

pub mod calls;
pub mod cpu_users;
pub mod history;
pub mod journal;
pub mod latency;
pub mod load;
pub mod process;
pub mod reading;
pub mod rows;
pub mod share;
pub mod verdict;
pub mod waits;
mod words;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use history::History;
pub use latency::Latency;
pub use load::Interval;
pub use reading::Reading;
pub use verdict::Verdict;

/// Requests of one process (or of the kernel on its own behalf) on one disk in an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Process that submitted the requests (thread group), 0 for kernel threads.
    pub pid: u32,
    /// Its short name, or the kernel thread's: `kworker/u8:1+flush-254:0`, `md0_resync`.
    pub comm: String,
    /// Id of its control group (version 2: the inode of its directory), 0 where unknown.
    pub cgroup: u64,
    /// The disk, as (major, minor) of the whole device.
    pub device: (u32, u32),
    /// Whether the requests wrote (writes, discards, flushes) or read.
    pub write: bool,
    /// Completed requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sum over the requests of their time at the device. Divided by the interval it is the number in flight at the
    /// device (Little's law).
    pub device_seconds: f64,
    /// Sum over the requests of their time in the host's queue.
    pub queued_seconds: f64,
    /// Time from submission to completion, counted.
    pub latency: Latency,
    /// The part of it in the host's queue.
    pub in_queue: Latency,
    /// The part of it at the device.
    pub at_device: Latency,
}
