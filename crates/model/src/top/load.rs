//! Load of an interval: of each disk, of each guest by disk, network device and processors, and of others. All figures
//! are sums over the interval; [`super::rows`] makes rates of them.

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
    /// Its length; 0 when no time passed between two readings, and then all else is empty.
    pub seconds: f64,
    /// Whether the block layer was traced: then guests and others have times, and all traffic that is not in `guests`
    /// is in `others`.
    pub traced: bool,
    /// Disks with a reading at both ends of the interval.
    pub devices: Vec<DeviceLoad>,
    /// Guests, in the order in which they were given.
    pub guests: Vec<GuestLoad>,
    /// Disk traffic of no guest.
    pub others: Vec<OtherLoad>,
    /// The processors.
    pub host_cpu: HostCpu,
    /// Processes of no guest, added up by name, the busiest first; `None` where they were not read.
    #[serde(default)]
    pub processes: Option<Vec<ProcessLoad>>,
    /// Uplinks of the host.
    pub uplinks: Vec<UplinkLoad>,
    /// What could not be read, with the fix.
    pub notes: Vec<String>,
}

/// Reads or writes of a disk, from `/proc/diskstats` (kernel document admin-guide/iostats.rst).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Requests {
    /// Completed requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sum over the requests of the time from creation to completion: in the host's queue and at the device.
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
    /// Discards and flushes, with 0 bytes.
    #[serde(default)]
    pub others: Requests,
    /// Time with any request in flight. On flash this does not show the load.
    pub busy_seconds: f64,
}

/// Transfer on one disk, in one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Transfer {
    /// Completed requests; `None` where only bytes are known.
    pub requests: Option<u64>,
    /// Bytes.
    pub bytes: u64,
    /// Sum over the requests of their time at the device; `None` where unknown.
    pub device_seconds: Option<f64>,
    /// Sum of their time in the host's queue; `None` where unknown.
    pub queued_seconds: Option<f64>,
    /// Their latencies; `None` where unknown.
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

    /// Whether there was any.
    pub fn any(&self) -> bool {
        self.bytes > 0 || self.requests.is_some_and(|n| n > 0)
    }
}

/// Traffic on one disk.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DiskLoad {
    /// The disk; `None` where it is unknown.
    pub device: Option<Device>,
    /// Reads.
    pub reads: Transfer,
    /// Writes.
    pub writes: Transfer,
}

impl DiskLoad {
    /// Both directions together.
    pub fn both(&self) -> Transfer {
        let mut both = self.reads.clone();
        both.add(&self.writes);
        both
    }
}

/// Source of a guest's disk figures, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskSource {
    /// Tracing of the block layer: everything.
    Trace,
    /// libvirt's counters: requests, bytes and times in the hypervisor; no percentiles.
    Libvirt,
    /// Its control group: requests and bytes by disk.
    ControlGroup,
    /// `/proc/PID/io`: bytes only, of all disks together.
    Process,
    /// None.
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
    /// Source of `disks`.
    pub disk_source: DiskSource,
    /// Its traffic by disk.
    pub disks: Vec<DiskLoad>,
    /// Its network devices.
    pub nics: Vec<NicLoad>,
    /// Its processor time; `None` where unreadable, or the guest is new in this interval.
    pub cpu: Option<CpuLoad>,
}

/// Packets in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Packets {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Packets that were dropped.
    pub dropped: u64,
}

/// A guest's network device, with directions as the guest sees them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NicLoad {
    /// Interface on the host.
    pub interface: String,
    /// What the guest sent.
    pub sent: Packets,
    /// What the guest received.
    pub received: Packets,
}

/// An uplink of the host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct UplinkLoad {
    /// Its name.
    pub name: String,
    /// Speed of the link in bits a second; `None` where the kernel has none.
    pub speed_bps: Option<BitRate>,
    /// What the host sent.
    pub sent: Packets,
    /// What the host received.
    pub received: Packets,
}

/// CPU time of some threads.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ThreadTime {
    /// Seconds that they ran.
    pub run_seconds: f64,
    /// Seconds that they were runnable and waited for a processor (run delay of `/proc/PID/task/TID/schedstat`, kernel
    /// document scheduler/sched-stats.rst).
    pub wait_seconds: f64,
}

impl ThreadTime {
    /// Adds another.
    pub fn add(&mut self, more: ThreadTime) {
        self.run_seconds += more.run_seconds;
        self.wait_seconds += more.wait_seconds;
    }

    /// Waited seconds as a share of those in which they were runnable; `None` when idle.
    pub fn wait_ratio(&self) -> Option<f64> {
        let wanted = self.run_seconds + self.wait_seconds;
        (wanted > 0.0).then(|| self.wait_seconds / wanted)
    }
}

/// CPU time of a guest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuLoad {
    /// Number of vCPU threads.
    pub vcpus: u32,
    /// Those threads.
    pub vcpu: ThreadTime,
    /// I/O threads, pool threads, vhost.
    pub io: ThreadTime,
    /// The main loop and all else.
    pub rest: ThreadTime,
    /// The busiest thread that moves its I/O alone (I/O thread, vhost, main loop): its name, and its CPU seconds.
    /// `None` where vCPU threads are unknown.
    pub busiest: Option<(String, f64)>,
}

impl CpuLoad {
    /// Seconds that all its threads ran.
    pub fn run_seconds(&self) -> f64 {
        self.vcpu.run_seconds + self.io.run_seconds + self.rest.run_seconds
    }
}

/// Disk traffic of a process, or several similar ones, of no guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherLoad {
    /// Its purpose.
    pub kind: OtherKind,
    /// Name of the process or kernel thread.
    pub name: String,
    /// Pid of one of its processes; 0 for the kernel.
    pub pid: u32,
    /// Its traffic by disk.
    pub disks: Vec<DiskLoad>,
}

/// The host's processors, from `/proc/stat` and `/proc/pressure/cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostCpu {
    /// Processors.
    pub cpus: u32,
    /// Busy seconds, guests included.
    pub busy_seconds: f64,
    /// Seconds of steal.
    pub stolen_seconds: f64,
    /// Share of the time in which some task waited for a processor; `None` without PSI (kernel document
    /// accounting/psi.rst).
    pub stalled_ratio: Option<f64>,
}
