//! What a guest's control groups let it have of processors and disks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How often a CPU quota was used up, since its control group was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Throttled {
    /// Length of a period in microseconds.
    pub period_us: u64,
    /// Periods in which the group ran.
    pub periods: u64,
    /// Those in which it was stopped until the next one.
    pub throttled: u64,
    /// Microseconds that it was stopped, summed up over processors.
    pub stopped_us: u64,
}

/// A weight of I/O that was set, and what reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IoWeight {
    /// The weight.
    pub weight: u32,
    /// Whether the control group is of version 1, which does not charge writes through the page cache to the guest.
    pub v1: bool,
    /// The disks on which the group did I/O.
    pub disks: Vec<WeightedDisk>,
}

/// A disk of the host on which a weight would have to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WeightedDisk {
    /// Its name: `nvme0n1`.
    pub name: String,
    /// Its number: `259:0`.
    pub number: String,
    /// Its I/O scheduler: `none`, `mq-deadline`, `bfq`.
    pub scheduler: String,
    /// Whether iocost is on for it.
    pub iocost: bool,
}

impl WeightedDisk {
    /// Whether something on it reads weights: BFQ, iocost, or CFQ before Linux 5.0 (cgroup-v2.rst, "IO").
    pub fn holds_weights(&self) -> bool {
        self.iocost || matches!(self.scheduler.as_str(), "bfq" | "cfq")
    }
}
