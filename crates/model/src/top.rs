//! Who uses the disks, the wire and the processors now, and who suffers: what `vmio top` shows.
//! Pure: what was observed in, rows and verdicts out.

pub mod cpu_users;
pub mod history;
pub mod latency;
pub mod load;
pub mod process;
pub mod reading;
pub mod rows;
pub mod share;
pub mod verdict;
mod words;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use history::History;
pub use latency::Latency;
pub use load::Interval;
pub use reading::Reading;
pub use verdict::Verdict;

/// What one process (or the kernel for nobody) did on one disk in an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Process that handed the requests in (thread group), 0 for the kernel's own threads.
    pub pid: u32,
    /// Its short name, or that of the kernel's thread: `kworker/u8:1+flush-254:0`, `md0_resync`.
    pub comm: String,
    /// Id of its control group (version 2: the inode of its directory), 0 where unknown.
    pub cgroup: u64,
    /// The disk, as (major, minor) of the whole device.
    pub device: (u32, u32),
    /// Whether the requests wrote (writes, discards, flushes) or read.
    pub write: bool,
    /// Requests that ended.
    pub requests: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Sum over the requests of the time from being handed to the device to their end. Divided by
    /// the interval it is the number in flight at the device (Little's law).
    pub device_seconds: f64,
    /// Sum over the requests of the time that they waited in the host's queue before that.
    pub queued_seconds: f64,
    /// Time from being handed in to the end, counted.
    pub latency: Latency,
}
