//! What a run yields: raw samples as they are stored at once, and the environment they were
//! taken in. Conclusions ([`crate::summary`], [`crate::rules`]) are drawn from these later and
//! never need the machine again.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::modelled::ModelledDisk;

mod seen;
mod traits;
mod work;

pub use seen::{
    BUSY, CACHED_AFTER, CACHED_BEFORE, CpuUse, DeviceUse, KERNEL, LONGEST_WAIT, OWN, PART, ProbeResult, ROLE, SECONDS,
    SHARE, STOLEN, WAY, Watched, seen_around,
};
pub use traits::{
    BANDWIDTH, DiskTraits, IOPS, LATENCY, READ, REQUESTS, Unjudged, WRITTEN, WorkloadTraits, amounts_of, figures_of,
};
pub use work::{DiskWork, WorkloadResult};

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
    /// File of the guests' kernel, where the user named it; `None`: the image's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_kernel_file: Option<String>,
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
    /// The programs that the workloads run, the same on both sides, each with what it says of its version; empty
    /// in old runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, String>,
    /// The programs that they run at the peer of the network `wire`, each with what it says of its version there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peer_programs: BTreeMap<String, String>,
    /// The backing device of all targets: kernel name of the leaves, file system, mount; empty where the study
    /// has no disk.
    #[serde(default)]
    pub backing: String,
    /// The modelled disk below all targets; `None` where they lay on storage of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modelled: Option<ModelledDisk>,
    /// Cores and memory that both sides have.
    pub vcpus: u32,
    /// Memory in MiB that both sides have.
    pub memory_mib: u32,
    /// How the native side was held to them: `cgroup v1`, `cgroup v2`, or why it could not be.
    pub native_limits: String,
    /// How QEMU, with its threads beside those of the guests' processors, was held: as `native_limits`; `None` where
    /// no guest was booted, and in old runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu_limits: Option<String>,
    /// Guests that ran on the host beside ours.
    pub other_guests: u32,
    /// `--gentle`: the share of its own native speed that each workload was capped at, on both
    /// sides; `None` where nothing was capped.
    #[serde(default)]
    pub cap_ratio: Option<f64>,
    /// The other machine that was measured; `None` where it was this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub afar: Option<RemoteHostInfo>,
    /// The machine at the other end of the paths of the network `wire`: `ssh://root@host (192.0.2.7)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// What the machine is where it is none of metal: `lab host (Linux 6.1.0 under TCG)`.
    #[serde(default)]
    pub node: Option<String>,
    /// Bytes that were written beside the cells (targets made and set back, probes), earlier parts of a
    /// resumed run included: they count against the write budget.
    #[serde(default)]
    pub written_beside_bytes: u64,
}

/// A machine that exists already, as it said of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Afar")]
pub struct RemoteHostInfo {
    /// `ssh://root@host`, `libvirt://web1`.
    pub address: String,
    /// The directory that its files were made in.
    pub dir: String,
    /// The user's own device that cells were on, with what tells it from other disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// `uname -r`.
    pub kernel: String,
    /// CPU model, from /proc/cpuinfo.
    pub cpu: String,
    /// CPUs online.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Its devices with their settings, in words, as `vmio scan` finds them on this host, where it is a guest of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// What `vmio scan` finds to be wrong with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

/// `ssh://root@host: Linux 6.1.0, 2 CPUs (model), 4096 MiB`.
impl std::fmt::Display for RemoteHostInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { address, dir: _, device: _, kernel, cpu, cpus, memory_bytes, settings: _, findings: _ } = self;
        let word = if *cpus == 1 { "CPU" } else { "CPUs" };
        write!(f, "{address}: Linux {kernel}, {cpus} {word} ({cpu}), {} MiB", memory_bytes >> 20)
    }
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

/// Why a sample needs a word of caution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The device moved over 10 % fewer bytes than were asked for, in the cell's own direction.
    Cached,
    /// Foreign load at the device above 20 % of the cell's own.
    HostBusy,
    /// Processes of others kept over 20 % of the processors at work.
    ProcessorsBusy,
    /// What reads through the page cache was read ahead otherwise than on a device of the run's own.
    ReadAhead,
    /// It was to be read from a page cache, and was not, or nothing shows that it was: it is set against nothing.
    NotWarm,
    /// A request at the disk took 10 s or more, or none of those in flight there ended for so long.
    Stalled,
    /// The backing device has no counters that vmio can read.
    NotVisible,
}

/// One execution of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Which cell.
    pub cell: Cell,
    /// Round in which it ran, from 0; the samples of one round form the pairs.
    pub round: u32,
    /// Boot of the guest it ran in, from 0 (native cells: the boot that their round used).
    pub boot: u32,
    /// Seconds since the epoch at the start.
    pub started_unix: f64,
    /// What the leading actor's workload says.
    pub result: WorkloadResult,
    /// What those of the actors beside it say, in the cell's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<WorkloadResult>,
    /// What probes saw around it.
    pub seen: Vec<ProbeResult>,
    /// Foreign load.
    pub foreign: Foreign,
    /// Words of caution.
    pub marks: Vec<Mark>,
}

impl Sample {
    /// Whether it is of what its cell says, and so may be set against others.
    pub fn is_comparable(&self) -> bool {
        !self.marks.contains(&Mark::NotWarm)
    }

    /// What the actors say, the leading one first.
    pub fn results(&self) -> impl Iterator<Item = &WorkloadResult> {
        std::iter::once(&self.result).chain(&self.beside)
    }

    /// What those of its actors say that work on a disk.
    pub fn on_disks(&self) -> impl Iterator<Item = &WorkloadResult> {
        self.cell.actors().zip(self.results()).filter(|(actor, _)| actor.subject.is_disk()).map(|(_, result)| result)
    }

    /// What its actors did on disks, together.
    pub fn work(&self) -> DiskWork {
        self.on_disks().map(WorkloadResult::disk_work).fold(DiskWork::default(), |sum, w| DiskWork {
            read_bytes: sum.read_bytes.saturating_add(w.read_bytes),
            write_bytes: sum.write_bytes.saturating_add(w.write_bytes),
            ios: sum.ios.saturating_add(w.ios),
            seconds: sum.seconds.max(w.seconds),
            latency: None,
        })
    }

    /// What the backing device of its disks did; `None` where there is none, or it cannot be seen.
    pub fn device(&self) -> Option<DeviceUse> {
        self.seen.iter().filter(|seen| seen.node.is_empty()).find_map(DeviceUse::of)
    }

    /// Puts what a disk did in the place of what was seen of it, for made-up runs; `None`: it had no counters.
    pub fn put_device(&mut self, device: Option<DeviceUse>) {
        self.seen.retain(|seen| !matches!(seen.watched, Watched::Disk(_)));
        self.seen.extend(device.map(|device| device.seen("backing")));
    }

    /// CPU seconds, as far as they were seen.
    pub fn cpu(&self) -> CpuUse {
        CpuUse::of(&self.seen)
    }
}

/// A cell that was planned but did not run, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// Which cell.
    pub cell: Cell,
    /// What was unmet or failed, and the mend.
    pub reason: String,
}

impl Skipped {
    /// The keys of their cells.
    pub fn keys(all: &[Self]) -> BTreeSet<String> {
        all.iter().map(|skipped| skipped.cell.key()).collect()
    }
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
