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
    /// File systems with a journal that somebody used; empty without tracing.
    #[serde(default)]
    pub journals: Vec<JournalLoad>,
    /// The processors.
    pub host_cpu: HostCpu,
    /// The memory.
    #[serde(default)]
    pub host_memory: HostMemory,
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
    /// The flushes among them: the disk writes out its cache, for all writes that wait for it.
    #[serde(default)]
    pub flushes: Requests,
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
    /// The part of these in the host's queue; `None` where unknown.
    #[serde(default)]
    pub in_queue: Option<Latency>,
    /// The part of these at the device; `None` where unknown.
    #[serde(default)]
    pub at_device: Option<Latency>,
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
        let latencies = [
            (&mut self.latency, &more.latency),
            (&mut self.in_queue, &more.in_queue),
            (&mut self.at_device, &more.at_device),
        ];
        for (own, more) in latencies {
            if let Some(more) = more {
                own.get_or_insert_default().merge(more);
            }
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
    /// Its memory on the host; `None` where it was not read.
    #[serde(default)]
    pub memory: Option<Memory>,
    /// Share of the periods of its CPU quota in which it was throttled; `None` without a quota.
    #[serde(default)]
    pub throttled_ratio: Option<f64>,
    /// Share of the time in which some task of its control group waited for memory (kernel document
    /// accounting/psi.rst); `None` where it has no group of its own, or the kernel has no PSI.
    #[serde(default)]
    pub memory_stalled_ratio: Option<f64>,
}

/// Memory of a guest on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes that are resident, huge pages included.
    pub resident_bytes: u64,
    /// Bytes that are in the host's swap; `None` where unknown.
    pub swapped_bytes: Option<u64>,
    /// The limit of its control group, or of one above.
    #[serde(default)]
    pub limit: Option<MemoryLimit>,
}

/// A limit of memory of a control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryLimit {
    /// Bytes that the group has of it, page cache included.
    pub used_bytes: u64,
    /// Bytes that it may have.
    pub limit_bytes: u64,
}

/// Memory of the host (`/proc/meminfo`, proc_meminfo(5)), and its swapping in the interval (`/proc/vmstat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostMemory {
    /// Bytes there are; 0 where unknown.
    pub total_bytes: u64,
    /// Bytes that new programs can have without swapping.
    pub available_bytes: u64,
    /// Bytes of swap in use.
    pub swapped_bytes: u64,
    /// Pages read from swap in the interval; `None` where they are not counted.
    pub swapped_in_pages: Option<u64>,
    /// Pages written to swap in the interval.
    pub swapped_out_pages: Option<u64>,
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
    /// Packets that its queue towards the guest holds at most; `None` where it is no tap.
    #[serde(default)]
    pub queue_packets: Option<u64>,
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
    /// Number of vCPU threads; 0 where they are unknown.
    pub vcpus: u32,
    /// Whether those threads were guessed: QEMU gave its threads no names, and the busiest ones count as vCPUs.
    #[serde(default)]
    pub guessed: bool,
    /// Those threads.
    pub vcpu: ThreadTime,
    /// I/O threads, pool threads, vhost.
    pub io: ThreadTime,
    /// The main loop and all else.
    pub rest: ThreadTime,
    /// The busiest thread that moves its I/O alone (I/O thread, vhost, main loop): its name, and its CPU seconds.
    /// `None` where vCPU threads are unknown or guessed.
    pub busiest: Option<(String, f64)>,
    /// The vCPU, or thread of an unknown role, that was runnable longest: its name, and these seconds.
    #[serde(default)]
    pub fullest: Option<(String, f64)>,
}

impl CpuLoad {
    /// Seconds that all its threads ran.
    pub fn run_seconds(&self) -> f64 {
        self.vcpu.run_seconds + self.io.run_seconds + self.rest.run_seconds
    }

    /// Share of what its vCPUs could run on a host with that many processors; `None` where vCPUs are unknown.
    pub fn of_ratio(&self, seconds: f64, host_cpus: u32) -> Option<f64> {
        let at_once = if host_cpus > 0 { self.vcpus.min(host_cpus) } else { self.vcpus };
        let all = f64::from(at_once) * seconds;
        (all > 0.0).then(|| (self.vcpu.run_seconds / all).min(1.0))
    }
}

/// A thread of a guest's hypervisor.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadLoad {
    /// Thread id.
    pub tid: u32,
    /// What it does, by its name.
    pub name: String,
    /// Its time.
    pub time: ThreadTime,
}

/// What a process did on a file system in an interval.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JournalFlow {
    /// The process, 0 for threads of the kernel.
    pub pid: u32,
    /// Its short name, or the kernel thread's: `kworker/u8:1+loop0`.
    pub comm: String,
    /// Id of its control group (version 2), 0 where unknown.
    pub cgroup: u64,
    /// The file system, by its device.
    pub device: Device,
    /// The file that a thread of the kernel flushed for somebody, else 0.
    pub inode: u64,
    /// Calls of fsync and its like.
    pub syncs: u64,
    /// Sum of their times.
    pub wait_seconds: f64,
    /// The longest of them.
    pub worst_seconds: f64,
    /// Bytes of pages that it dirtied.
    pub dirtied_bytes: u64,
}

/// A file system with a journal.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JournalLoad {
    /// Its device.
    pub device: Device,
    /// Where it is mounted; its device's number where that is unknown.
    pub name: String,
    /// The disks that it lies on.
    pub disks: Vec<Device>,
    /// Its users, those of one name together.
    pub users: Vec<JournalUser>,
}

/// A user of a file system with a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalUser {
    /// The guest, by its index in the interval.
    pub guest: Option<usize>,
    /// What it is, if it is none.
    pub kind: OtherKind,
    /// Name of the guest or of the process.
    pub name: String,
    /// Its process, one of several; 0 for the kernel.
    pub pid: u32,
    /// Calls of fsync and its like.
    pub syncs: u64,
    /// Sum of their times.
    pub wait_seconds: f64,
    /// The longest of them.
    pub worst_seconds: f64,
    /// Bytes of pages that it dirtied.
    pub dirtied_bytes: u64,
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

impl HostCpu {
    /// Busy share from which they are full, also where nobody waits yet.
    pub const FULL: f64 = 0.95;

    /// Busy share of what the host's own hypervisor left it; `None` where unknown.
    pub fn busy_ratio(&self, seconds: f64) -> Option<f64> {
        let there = f64::from(self.cpus) * seconds - self.stolen_seconds;
        (there > 0.0).then(|| (self.busy_seconds / there).min(1.0))
    }
}
