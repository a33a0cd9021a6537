//! Results of a run: raw samples, stored at once, and the environment of the measurement. Conclusions
//! ([`crate::summary`], [`crate::rules`]) are drawn from these later, without the machine.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::modelled::ModelledDisk;

mod energy;
pub mod roles;
mod seen;
mod traits;
mod work;

pub use energy::{AtRest, CHASSIS_DOMAIN, DOMAIN, ENERGY, Metered, POWER, is_power, metered, of_machine};
pub use seen::{
    BLOCK_EVENTS, BUSY, CACHED_AFTER, CACHED_BEFORE, COMPONENT, CpuUse, DeviceUse, KERNEL, LONGEST_WAIT, LOST, MOVED,
    OWN, PART, ProbeResult, REQUEST_SECONDS, ROLE, SAMPLED, SAMPLES, SECONDS, SHARE, SOURCE, STOLEN, WAY, Watched,
    seen_around,
};
pub use traits::{
    BANDWIDTH, DiskTraits, IOPS, LATE, LATENCY, READ, REQUESTS, Unjudged, WRITTEN, WorkloadTraits, amounts_of,
    figures_of,
};
pub use work::{DiskWork, WorkloadResult};

/// The accelerator that ran the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// Hardware virtualisation by KVM.
    Kvm,
    /// Software emulation by QEMU's TCG: its figures say nothing about hardware virtualisation.
    Tcg,
}

/// Environment of a run. Compared first when two runs are compared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// vmio's version.
    pub vmio: String,
    /// `uname -r` of the host.
    pub kernel: String,
    /// `uname -r` of the guest; `None` until one ran.
    pub guest_kernel: Option<String>,
    /// Kernel file of the guests, if named by the user; `None` for the image's own.
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
    /// Reason for the accelerator.
    pub accel_reason: String,
    /// QEMU's version line.
    pub qemu: Option<String>,
    /// fio's version line.
    pub fio: Option<String>,
    /// Programs that the workloads run, the same on both sides, with their versions; empty in old runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, String>,
    /// Programs that they run at the peer of the network `wire`, with their versions there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peer_programs: BTreeMap<String, String>,
    /// The backing device of all targets: kernel names of the leaves, file system, mount; empty where the study has no
    /// disk.
    #[serde(default)]
    pub backing: String,
    /// The modelled disk of all targets; `None` for the host's storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modelled: Option<ModelledDisk>,
    /// Processors of each side.
    pub vcpus: u32,
    /// Memory of each side in MiB.
    pub memory_mib: u32,
    /// How the native side was limited to them: `cgroup v1`, `cgroup v2`, or why it could not be.
    pub native_limits: String,
    /// How QEMU's threads besides the vCPUs were limited, as `native_limits`; `None` where no guest was booted, and in
    /// old runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu_limits: Option<String>,
    /// Other guests on the host during the run.
    pub other_guests: u32,
    /// `--gentle`: the share of its own native speed that each workload was capped at, on both sides; `None` without a
    /// cap.
    #[serde(default)]
    pub cap_ratio: Option<f64>,
    /// The other machine that was measured; `None` for this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub afar: Option<RemoteHostInfo>,
    /// The peer machine of the network `wire`: `ssh://root@host (192.0.2.7)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// What the machine is, if not bare metal: `lab host (Linux 6.1.0 under TCG)`.
    #[serde(default)]
    pub node: Option<String>,
    /// Bytes written besides the cells (making and resetting targets, probes), earlier parts of a resumed run included:
    /// they count against the write budget.
    #[serde(default)]
    pub written_beside_bytes: u64,
    /// Seconds for which a sample of the processors (`--components`) interrupts one, measured before the first cell;
    /// `None` without such samples, and in old runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_interrupt_seconds: Option<f64>,
    /// The probes by which the plan expected power to be measured, by name; empty for none, and in old runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters_planned: Vec<String>,
    /// Those by which it was; empty for none, and in old runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters: Vec<String>,
    /// Phases with the machine at rest, measured where there is a power meter: before the guests of each boot, and after
    /// the last cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_rest: Vec<AtRest>,
}

/// An existing machine, as it described itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Afar")]
pub struct RemoteHostInfo {
    /// `ssh://root@host`, `libvirt://web1`.
    pub address: String,
    /// The directory of its files.
    pub dir: String,
    /// The user's own device under test, with its identification.
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
    /// The findings of `vmio scan` about them.
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

/// Load at the backing device that was not the cell's own.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Foreign {
    /// Bytes a second at the device just before the cell.
    pub before_bytes_per_second: f64,
    /// Requests a second at the device just before the cell.
    pub before_ios_per_second: f64,
    /// Bytes at the device beyond the cell's own, as a share of the cell's own; `None` where that is unknown (buffered
    /// work, caches).
    pub during_bytes_ratio: Option<f64>,
    /// The same for requests.
    pub during_ios_ratio: Option<f64>,
}

/// What speaks against a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The device moved over 10 % fewer bytes than requested, in the cell's own direction.
    Cached,
    /// Foreign load at the device above 20 % of the cell's own.
    HostBusy,
    /// Other processes used over 20 % of the processors.
    ProcessorsBusy,
    /// Reads through the page cache had another read-ahead than on a device of the run's own.
    ReadAhead,
    /// Reads were not served by the cache that the state names, or not by the disk below a flash cache, or nothing shows
    /// that they were: the sample is not compared.
    NotWarm,
    /// A request at the disk took 10 s or more, or none of the requests in flight completed for that long.
    Stalled,
    /// Fewer than 95 % of the requests of its rate were sent, and fewer than chance explains.
    Saturated,
    /// The backing device has no readable counters.
    NotVisible,
    /// A power meter that was asked during the cell reported too little of it, or nothing that is a reading.
    Unmetered,
}

/// One execution of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Which cell.
    pub cell: Cell,
    /// Round in which it ran, from 0; the samples of one round form the pairs.
    pub round: u32,
    /// Boot of its guest, from 0 (for a native cell the boot of its round).
    pub boot: u32,
    /// Seconds since the epoch at the start.
    pub started_unix: f64,
    /// Result of the leading actor's workload.
    pub result: WorkloadResult,
    /// Results of the other actors, in the cell's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<WorkloadResult>,
    /// Results of the probes.
    pub seen: Vec<ProbeResult>,
    /// Foreign load.
    pub foreign: Foreign,
    /// What speaks against it.
    pub marks: Vec<Mark>,
}

impl Sample {
    /// Whether it measured what its cell says, and may be compared.
    pub fn is_comparable(&self) -> bool {
        !self.marks.contains(&Mark::NotWarm)
    }

    /// Results of all actors, the leading one first.
    pub fn results(&self) -> impl Iterator<Item = &WorkloadResult> {
        std::iter::once(&self.result).chain(&self.beside)
    }

    /// Results of the actors that work on a disk.
    pub fn on_disks(&self) -> impl Iterator<Item = &WorkloadResult> {
        self.cell.actors().zip(self.results()).filter(|(actor, _)| actor.subject.is_disk()).map(|(_, result)| result)
    }

    /// The disk work of all actors, added up.
    pub fn work(&self) -> DiskWork {
        self.on_disks().map(WorkloadResult::disk_work).fold(DiskWork::default(), |sum, w| DiskWork {
            read_bytes: sum.read_bytes.saturating_add(w.read_bytes),
            write_bytes: sum.write_bytes.saturating_add(w.write_bytes),
            ios: sum.ios.saturating_add(w.ios),
            seconds: sum.seconds.max(w.seconds),
            latency: None,
        })
    }

    /// Use of its disks' backing device; `None` where there is none, or it has no counters.
    pub fn device(&self) -> Option<DeviceUse> {
        self.seen.iter().filter(|seen| seen.node.is_empty()).find_map(DeviceUse::of)
    }

    /// Replaces the use of the backing device, for made-up runs; `None` for no counters.
    pub fn put_device(&mut self, device: Option<DeviceUse>) {
        self.seen.retain(|seen| !matches!(seen.watched, Watched::Disk(_)));
        self.seen.extend(device.map(|device| device.seen("backing")));
    }

    /// CPU seconds, as far as they were measured.
    pub fn cpu(&self) -> CpuUse {
        CpuUse::of(&self.seen)
    }
}

/// A planned cell that did not run, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// Which cell.
    pub cell: Cell,
    /// What was unmet or failed, and the fix.
    pub reason: String,
}

impl Skipped {
    /// Keys of the skipped cells.
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
    /// All that was planned is measured, or the budget is used up.
    Done,
    /// Interrupted; can be resumed.
    Interrupted(
        /// Why.
        String,
    ),
    /// Failed; samples are kept.
    Failed(
        /// Why.
        String,
    ),
}
