//! What was done in one interval: by each disk, by each guest on each disk and each of its network
//! devices and on the processors, and by what no guest explains. All figures are sums over the
//! interval; [`super::rows`] makes rates of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cpu_users::ProcessLoad;
use super::latency::Latency;
use super::process::OtherKind;
use crate::rate::BitRate;

/// A disk, as (major, minor) of the whole device.
pub type Device = (u32, u32);

/// One interval.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Interval {
    /// Its length; 0 when no time passed between two readings, and then nothing else is there.
    pub seconds: f64,
    /// Whether the block layer was traced: then guests and others have times, and what is not in
    /// `guests` is in `others`.
    pub traced: bool,
    /// Disks that could be read at both ends of the interval.
    pub devices: Vec<DeviceLoad>,
    /// Guests, in the order in which they were given.
    pub guests: Vec<GuestLoad>,
    /// Disk traffic that no guest explains.
    pub others: Vec<OtherLoad>,
    /// The processors.
    pub host_cpu: HostCpu,
    /// Processes that are no guest, those of one name as one, the busiest first; `None` where they were not
    /// looked at.
    #[serde(default)]
    pub processes: Option<Vec<ProcessLoad>>,
    /// Network interfaces of the host that lead away from it.
    pub uplinks: Vec<UplinkLoad>,
    /// What could not be seen, in words, with what would help.
    pub notes: Vec<String>,
}

/// Reads or writes of a disk, from `/proc/diskstats` (kernel document admin-guide/iostats.rst).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Requests {
    /// Requests that ended.
    pub requests: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Sum over the requests of the time from being made to their end: the wait in the host's queue
    /// and the time at the device.
    pub request_seconds: f64,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeviceLoad {
    /// Its name: `nvme0n1`.
    pub name: String,
    /// Its number.
    pub device: Device,
    /// Reads.
    pub reads: Requests,
    /// Writes.
    pub writes: Requests,
    /// Discards and flushes, which move nothing: their bytes are 0.
    #[serde(default)]
    pub others: Requests,
    /// Time with any request in flight. On flash this says nothing of how much more would fit.
    pub busy_seconds: f64,
}

/// Who handed in how much on one disk, in one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Transfer {
    /// Requests that ended; `None` where only bytes are known.
    pub requests: Option<u64>,
    /// Bytes.
    pub bytes: u64,
    /// Sum over the requests of their time at the device; `None` where it is not known.
    pub device_seconds: Option<f64>,
    /// Sum of their time in the host's queue before that; `None` where it is not known.
    pub queued_seconds: Option<f64>,
    /// Their latencies; `None` where they are not known.
    pub latency: Option<Latency>,
}

impl Transfer {
    /// Adds another.
    pub fn add(&mut self, more: &Transfer) {
        fn plus<T: Copy + std::ops::Add<Output = T>>(into: &mut Option<T>, more: Option<T>) {
            if let Some(more) = more {
                *into = Some(into.map_or(more, |own| own + more));
            }
        }
        plus(&mut self.requests, more.requests);
        self.bytes += more.bytes;
        plus(&mut self.device_seconds, more.device_seconds);
        plus(&mut self.queued_seconds, more.queued_seconds);
        if let Some(latency) = &more.latency {
            self.latency.get_or_insert_default().merge(latency);
        }
    }

    /// Whether anything was moved or asked for.
    pub fn any(&self) -> bool {
        self.bytes > 0 || self.requests.is_some_and(|n| n > 0)
    }
}

/// Somebody's traffic on one disk.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DiskLoad {
    /// The disk; `None` where it is not known on which disks the bytes went.
    pub device: Option<Device>,
    /// Reads.
    pub reads: Transfer,
    /// Writes.
    pub writes: Transfer,
}

impl DiskLoad {
    /// Both directions as one.
    pub fn both(&self) -> Transfer {
        let mut both = self.reads.clone();
        both.add(&self.writes);
        both
    }
}

/// Where a guest's disk figures come from; the first is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskSource {
    /// Tracing of the block layer: everything.
    Trace,
    /// libvirt's counters: requests, bytes and times as the hypervisor sees them; no percentiles.
    Libvirt,
    /// Its control group: requests and bytes by disk.
    ControlGroup,
    /// `/proc/PID/io`: bytes alone, of all disks together.
    Process,
    /// Nothing could be read.
    #[default]
    None,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GuestLoad {
    /// Its name.
    pub name: String,
    /// Its kind, by the entry of `guests/`.
    pub kind: String,
    /// Its process.
    pub pid: Option<u32>,
    /// Its number in Proxmox VE.
    #[serde(default)]
    pub vmid: Option<String>,
    /// Its UUID.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Where `disks` comes from.
    pub disk_source: DiskSource,
    /// Its traffic by disk.
    pub disks: Vec<DiskLoad>,
    /// Its network devices.
    pub nics: Vec<NicLoad>,
    /// Its processor time; `None` where it could not be read, or the guest came in this interval.
    pub cpu: Option<CpuLoad>,
}

/// Packets one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Packets {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Packets that were dropped.
    pub dropped: u64,
}

/// A guest's network device, directions as the guest sees them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NicLoad {
    /// Interface on the host.
    pub interface: String,
    /// What the guest sent.
    pub sent: Packets,
    /// What the guest received.
    pub received: Packets,
}

/// A network interface of the host that leads away from it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct UplinkLoad {
    /// Its name.
    pub name: String,
    /// Speed of the link in bits a second; `None` where the kernel knows none.
    pub speed_bps: Option<BitRate>,
    /// What the host sent.
    pub sent: Packets,
    /// What the host received.
    pub received: Packets,
}

/// Processor time of some threads.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Ran {
    /// Seconds that they ran.
    pub run_seconds: f64,
    /// Seconds that they could have run and waited for a processor (run delay of
    /// `/proc/PID/task/TID/schedstat`, kernel document scheduler/sched-stats.rst).
    pub wait_seconds: f64,
}

impl Ran {
    /// Adds another.
    pub fn add(&mut self, more: Ran) {
        self.run_seconds += more.run_seconds;
        self.wait_seconds += more.wait_seconds;
    }

    /// Waited seconds as a share of those in which they ran or could have; `None` when idle.
    pub fn wait_ratio(&self) -> Option<f64> {
        let wanted = self.run_seconds + self.wait_seconds;
        (wanted > 0.0).then(|| self.wait_seconds / wanted)
    }
}

/// Processor time of a guest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuLoad {
    /// Threads that run virtual CPUs.
    pub vcpus: u32,
    /// Those threads.
    pub vcpu: Ran,
    /// I/O threads, pool threads, vhost.
    pub io: Ran,
    /// The main loop and all else.
    pub rest: Ran,
    /// The busiest of the threads that move its I/O alone (I/O threads, vhost, the main loop): what it
    /// is, and the seconds that it ran. `None` where it is not known which threads run its vCPUs.
    pub busiest: Option<(String, f64)>,
}

impl CpuLoad {
    /// Seconds that all its threads ran.
    pub fn run_seconds(&self) -> f64 {
        self.vcpu.run_seconds + self.io.run_seconds + self.rest.run_seconds
    }
}

/// Disk traffic of a process, or of some like it, that is no guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherLoad {
    /// What it is for.
    pub kind: OtherKind,
    /// Name of the process or of the kernel's thread.
    pub name: String,
    /// One of its processes; 0 for the kernel.
    pub pid: u32,
    /// Its traffic by disk.
    pub disks: Vec<DiskLoad>,
}

/// The host's processors, from `/proc/stat` and `/proc/pressure/cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostCpu {
    /// Processors.
    pub cpus: u32,
    /// Seconds that they worked, guests included.
    pub busy_seconds: f64,
    /// Seconds that the host's own hypervisor gave to others.
    pub stolen_seconds: f64,
    /// Share of the time in which some task waited for a processor; `None` without PSI (kernel
    /// document accounting/psi.rst).
    pub stalled_ratio: Option<f64>,
}
