//! What a run yields: raw samples as they are stored at once, and the environment they were
//! taken in. Conclusions ([`crate::summary`], [`crate::rules`]) are drawn from these later and
//! never need the machine again.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::setup::Setup;

/// The accelerator that really ran the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// Hardware virtualisation by KVM.
    Kvm,
    /// Software emulation by QEMU's TCG: says nothing about the cost of virtualisation by hardware.
    Tcg,
}

/// Where and with what a run was made. Compared first when two runs are compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// vmio's version.
    pub vmio: String,
    /// `uname -r` of the host.
    pub kernel: String,
    /// `uname -r` of the guest; `None` until one ran.
    pub guest_kernel: Option<String>,
    /// CPU model of the host, from /proc/cpuinfo.
    pub cpu: String,
    /// CPUs online.
    pub cpus: u32,
    /// Memory of the host in bytes.
    pub memory_bytes: u64,
    /// Accelerator of the guests; `None` until one ran.
    pub accel: Option<Accel>,
    /// Why that accelerator.
    pub accel_reason: String,
    /// QEMU's version line.
    pub qemu: Option<String>,
    /// fio's version line.
    pub fio: Option<String>,
    /// The backing device of all targets: kernel name of the leaves, file system, mount.
    pub backing: String,
    /// Cores and memory that both sides have.
    pub vcpus: u32,
    /// Memory in MiB that both sides have.
    pub memory_mib: u32,
    /// How the native side was held to them: `cgroup v1`, `cgroup v2`, or why it could not be.
    pub native_limits: String,
    /// Guests that ran on the host beside ours.
    pub other_guests: u32,
    /// `--gentle`: the share of its own native speed that each workload was capped at, on both
    /// sides; `None` where nothing was capped.
    #[serde(default)]
    pub cap_ratio: Option<f64>,
    /// What the machine is where it is none of metal: `lab host (Linux 6.1.0 under TCG)`.
    #[serde(default)]
    pub node: Option<String>,
    /// Bytes that were written beside the cells (targets made and set back, probes), earlier parts of a
    /// resumed run included: they count against the write budget.
    #[serde(default)]
    pub written_beside_bytes: u64,
}

/// What the backing device did during a cell, from diskstats exactly as iostat computes it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DeviceUse {
    /// Seconds between the two readings.
    pub seconds: f64,
    /// Completed reads.
    pub read_ios: u64,
    /// Completed writes.
    pub write_ios: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Completed flushes (kernel 5.5 and newer).
    pub flush_ios: u64,
    /// iostat's rareq-sz/wareq-sz together (older avgrq-sz), here in bytes.
    pub request_bytes: f64,
    /// iostat's aqu-sz (older avgqu-sz): requests in flight, time-averaged.
    pub queue_depth: f64,
    /// iostat's %util as a ratio 0 to 1: share of time with any request in flight; `None` where
    /// the storage does not count it (NFS, RBD).
    pub busy_ratio: Option<f64>,
}

/// CPU seconds spent during a cell.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CpuUse {
    /// Of the whole host, without idle and iowait.
    pub host_seconds: f64,
    /// Of QEMU by thread role (`vcpu`, `iothread`, `main`, `worker`); empty on the native side.
    pub by_role: BTreeMap<String, f64>,
}

/// Work at the backing device that was not the cell's own.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Foreign {
    /// Bytes a second at the device in the moment before the cell.
    pub before_bytes_per_second: f64,
    /// Requests a second at the device in the moment before the cell.
    pub before_ios_per_second: f64,
    /// Bytes at the device beyond the cell's own, as a share of the cell's own; `None` where the
    /// own share cannot be told (buffered work, caches).
    pub during_bytes_ratio: Option<f64>,
    /// Requests likewise.
    pub during_ios_ratio: Option<f64>,
}

/// Completion latency of a workload in seconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Mean.
    pub mean_seconds: f64,
    /// (percentile 0 to 100, seconds), rising.
    pub percentiles: Vec<(f64, f64)>,
}

impl Latency {
    /// The latency at a percentile that was recorded.
    pub fn at(&self, percentile: f64) -> Option<f64> {
        self.percentiles.iter().find(|(p, _)| (p - percentile).abs() < 1e-6).map(|&(_, s)| s)
    }
}

/// What a workload itself says it did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadResult {
    /// Bytes read by the workload.
    pub read_bytes: u64,
    /// Bytes written by the workload.
    pub write_bytes: u64,
    /// Requests completed by the workload.
    pub ios: u64,
    /// Seconds of the measured part, flush included where the workload counts it.
    pub seconds: f64,
    /// Latency of what the workload is about (for durable append: write and fdatasync together).
    pub latency: Option<Latency>,
    /// The tool's own output whole: fio's `json+` document, dd's last line.
    pub raw: serde_json::Value,
    /// The command as it was run.
    pub command: String,
}

impl WorkloadResult {
    /// Bytes a second.
    pub fn bandwidth(&self) -> f64 {
        (self.read_bytes + self.write_bytes) as f64 / self.seconds
    }
    /// Requests a second.
    pub fn iops(&self) -> f64 {
        self.ios as f64 / self.seconds
    }
}

/// Why a sample needs a word of caution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The device moved over 10 % fewer bytes than were asked for, in the cell's own direction.
    Cached,
    /// Foreign load at the device above 20 % of the cell's own.
    HostBusy,
    /// The backing device has no counters that vmio can read.
    NotVisible,
}

/// One execution of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Which cell.
    pub setup: Setup,
    /// Round in which it ran, from 0; the samples of one round form the pairs.
    pub round: u32,
    /// Boot of the guest it ran in, from 0 (native cells: the boot that their round used).
    pub boot: u32,
    /// Seconds since the epoch at the start.
    pub started_unix: f64,
    /// What the workload says.
    pub result: WorkloadResult,
    /// What the backing device did; `None` where it cannot be seen.
    pub device: Option<DeviceUse>,
    /// CPU.
    pub cpu: CpuUse,
    /// Foreign load.
    pub foreign: Foreign,
    /// Words of caution.
    pub marks: Vec<Mark>,
}

/// What a workload is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Bytes a second; more is better.
    Bandwidth,
    /// Requests a second; more is better.
    Iops,
}

impl Figure {
    /// The figure of a sample.
    pub fn of(self, result: &WorkloadResult) -> f64 {
        match self {
            Figure::Bandwidth => result.bandwidth(),
            Figure::Iops => result.iops(),
        }
    }
}

/// What the model must know of a workload; the entry in `vmio-rig` declares it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadTraits {
    /// Name of the entry.
    pub name: String,
    /// What it is judged by.
    pub figure: Figure,
    /// Whether it reads, writes.
    pub reads: bool,
    /// Whether it writes.
    pub writes: bool,
    /// Whether its offsets are sequential.
    pub sequential: bool,
    /// Request size at the application in bytes.
    pub block_bytes: u64,
    /// Requests that it keeps in flight.
    pub depth: u32,
    /// Whether it goes round the page cache of its own kernel (O_DIRECT).
    pub direct: bool,
    /// How it submits requests: `libaio`, `io_uring`, `psync`; empty for dd and in old runs.
    #[serde(default)]
    pub engine: String,
}

/// A cell that was planned but did not run, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// Which cell.
    pub setup: Setup,
    /// What was unmet or failed, and the mend.
    pub reason: String,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "state", content = "reason")]
pub enum RunState {
    /// Still being measured, or vmio was killed.
    Running,
    /// All that was planned is there, or the budget was spent.
    Done,
    /// Broken off; can be resumed.
    Interrupted(
        /// Why.
        String,
    ),
    /// Failed; what was measured is kept.
    Failed(
        /// Why.
        String,
    ),
}

/// A whole run as it comes out of the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Number in the store.
    pub id: i64,
    /// Name of the study.
    pub study: String,
    /// The study as it was resolved, TOML text (for resume and for the report).
    pub study_toml: String,
    /// The command line that made it.
    pub command: Vec<String>,
    /// Seconds since the epoch.
    pub started_unix: f64,
    /// How it ended.
    pub state: RunState,
    /// Where it was made.
    pub environment: Environment,
    /// The workloads' traits at the time.
    pub workloads: Vec<WorkloadTraits>,
    /// Effective disk settings as QEMU reported them, by attachment key `target/guest/attachment`.
    pub effective: BTreeMap<String, BTreeMap<String, String>>,
    /// All samples, in the order in which they were taken.
    pub samples: Vec<Sample>,
    /// Cells that did not run.
    pub skipped: Vec<Skipped>,
}
