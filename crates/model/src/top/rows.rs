//! Displayed figures of each guest, disk and other process: rates and shares of one interval.

use schemars::JsonSchema;
use serde::Serialize;

use super::cpu_users::ProcessLoad;
use super::latency::Latency;
use super::load::{
    CpuLoad, DeviceLoad, DiskLoad, DiskSource, GuestLoad, Interval, NicLoad, OtherLoad, Requests, ThreadTime, Transfer,
};
use super::process::OtherKind;
use super::share::{self, Basis};

mod guard;

pub use guard::GuardRow;

/// What a guest waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// Its CPU quota is used up.
    Quota,
    /// A processor of the host.
    Processor,
    /// A disk, which is slower for it than in quiet moments.
    Disk,
    /// A disk that is slow to write out its cache (fsync).
    Flush,
    /// The host's queue of a disk.
    DiskQueue,
    /// fsync on a file system with a journal.
    Fsync,
    /// A thread of its hypervisor that moves its I/O.
    IoThread,
    /// Packets for it are dropped.
    DropsReceived,
    /// Packets that it sends are dropped.
    DropsSent,
    /// Memory: its control group has too little.
    Memory,
    /// Its memory that is in the host's swap.
    Swap,
    /// A guard's limit on its network.
    Guard,
}

/// What a guest waits for most.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Wait {
    /// What for.
    pub what: WaitFor,
    /// How much of its time, requests, packets or memory.
    pub ratio: f64,
    /// In a few words: `disk p99 48ms`.
    pub words: String,
}

/// A line of the table of guests. Unknown figures are `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct GuestRow {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its process.
    pub pid: Option<u32>,
    /// Its number in Proxmox VE.
    pub vmid: Option<String>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// Its disks.
    #[serde(flatten)]
    pub disk: DiskRow,
    /// Source of these.
    pub disk_source: DiskSource,
    /// Bits a second that it sent.
    pub sent_bps: Option<f64>,
    /// Bits a second that it received.
    pub received_bps: Option<f64>,
    /// Packets a second that were dropped at its interfaces, both ways.
    pub drops_per_second: Option<f64>,
    /// Those among them that it should have received.
    pub drops_received_per_second: Option<f64>,
    /// Those among them that it sent.
    pub drops_sent_per_second: Option<f64>,
    /// CPU time of all its threads, in processors (2 busy CPUs: 2).
    pub cpu_ratio: Option<f64>,
    /// CPU time of its vCPUs, as a share of what all of them can have here; `None` where vCPUs are unknown.
    pub cpu_of_guest_ratio: Option<f64>,
    /// Whether its vCPU threads were guessed, since its threads have no names.
    pub cpu_guessed: bool,
    /// CPU time of all its threads, as a share of the host's processors.
    pub cpu_of_host_ratio: Option<f64>,
    /// Its resident memory on the host.
    pub memory_bytes: Option<u64>,
    /// Its memory in the host's swap.
    pub swapped_bytes: Option<u64>,
    /// Limit of memory of its control group, or of one above; `None` without one.
    pub memory_limit_bytes: Option<u64>,
    /// How much of that limit is used, page cache included.
    pub memory_of_limit_ratio: Option<f64>,
    /// Share of the time in which some task of its control group waited for memory (PSI), since its memory was read
    /// before; `None` where it has no group of its own.
    pub memory_stalled_ratio: Option<f64>,
    /// Share of the periods of its CPU quota in which it was throttled; `None` without a quota.
    pub throttled_ratio: Option<f64>,
    /// How much of the nearest limit it uses: of its vCPUs, the host's processors, a saturated disk, an uplink, its
    /// quota, its network limit or, where it waits for memory, its limit of that, the largest of them; or how much it
    /// waits for flushes or swap.
    pub load_ratio: Option<f64>,
    /// What it waits for most; `None` where nothing is known that it waits for.
    pub worst_wait: Option<Wait>,
    /// Its virtual CPUs.
    pub vcpus: Option<u32>,
    /// CPU time of its vCPUs, in processors (2 busy CPUs: 2); `None` where vCPU threads are unknown.
    pub vcpu_ratio: Option<f64>,
    /// The same of its I/O threads, pool threads and vhost.
    pub io_ratio: Option<f64>,
    /// The same for all others.
    pub rest_ratio: Option<f64>,
    /// Share of the time in which its vCPUs were runnable that they waited for a processor.
    pub steal_ratio: Option<f64>,
    /// Mean time that its hypervisor waits for the host without the device, of a request to its disks; `None` unless that
    /// is asked for.
    pub kernel_mean_seconds: Option<f64>,
    /// Limits of a guard on its interfaces, one for each direction; `None` without a guard on this host.
    pub guard: Option<Vec<GuardRow>>,
}

/// Disk traffic.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct DiskRow {
    /// Reads a second.
    pub read_iops: Option<f64>,
    /// Writes a second.
    pub write_iops: Option<f64>,
    /// Bytes read a second.
    pub read_bytes_per_second: Option<f64>,
    /// Bytes written a second.
    pub write_bytes_per_second: Option<f64>,
    /// Mean size of its requests.
    pub request_bytes: Option<f64>,
    /// Median latency of its requests.
    pub latency_p50_seconds: Option<f64>,
    /// 99th percentile of latency; `None` with fewer than 100 requests.
    pub latency_p99_seconds: Option<f64>,
    /// Mean latency of its requests.
    pub latency_mean_seconds: Option<f64>,
    /// The part of that mean in the queue of the host's block layer; `None` without tracing.
    pub queued_mean_seconds: Option<f64>,
    /// 99th percentile of that part.
    pub queued_p99_seconds: Option<f64>,
    /// The part of the mean at the device; `None` without tracing.
    pub device_mean_seconds: Option<f64>,
    /// 99th percentile of that part.
    pub device_p99_seconds: Option<f64>,
    /// Its requests in flight or queued, on average (Little's law).
    pub queue_depth: Option<f64>,
    /// Its share of the time that all requests spent at the disks (of bytes, where times are unknown: see `basis` of
    /// the document).
    pub device_share_ratio: Option<f64>,
}

/// A line of the table of disks.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DeviceRow {
    /// Its name.
    pub name: String,
    /// Its number.
    pub device: (u32, u32),
    /// Reads a second.
    pub read_iops: f64,
    /// Writes a second.
    pub write_iops: f64,
    /// Bytes read a second.
    pub read_bytes_per_second: f64,
    /// Bytes written a second.
    pub write_bytes_per_second: f64,
    /// Mean time of a read or write, with the time in the host's queue.
    pub latency_mean_seconds: Option<f64>,
    /// Flushes a second: the disk writes out its cache.
    pub flushes_per_second: f64,
    /// Mean time of a flush.
    pub flush_mean_seconds: Option<f64>,
    /// Requests in flight or queued, on average (Little's law), discards and flushes included.
    pub queue_depth: f64,
    /// Share of the time with any request in flight.
    pub busy_ratio: f64,
}

/// A line of disk traffic of no guest.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OtherRow {
    /// Its purpose.
    pub kind: OtherKind,
    /// Name of the process.
    pub name: String,
    /// Pid of one of its processes, 0 for the kernel.
    pub pid: u32,
    /// Its traffic.
    #[serde(flatten)]
    pub disk: DiskRow,
}

/// Processes of one name, of no guest.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ProcessRow {
    /// Their short name.
    pub name: String,
    /// Pid of the busiest one.
    pub pid: u32,
    /// Their number.
    pub processes: u32,
    /// Their CPU time, in processors.
    pub cpu_ratio: f64,
}

/// Most processes shown.
const PROCESSES: usize = 10;

/// All rows of an interval.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Rows {
    /// Disks, by requests in flight, descending.
    pub devices: Vec<DeviceRow>,
    /// Guests, in the order of the interval.
    pub guests: Vec<GuestRow>,
    /// Traffic of no guest, by share, descending.
    pub others: Vec<OtherRow>,
    /// Processes of no guest, the busiest first, at most ten; `None` where they were not read.
    pub processes: Option<Vec<ProcessRow>>,
    /// Basis of disks' shares.
    pub basis: Basis,
}

/// Rows of an interval.
pub fn rows(interval: &Interval) -> Rows {
    let s = interval.seconds;
    let mut devices: Vec<DeviceRow> = interval.devices.iter().map(|d| device(d, s)).collect();
    devices.sort_by(|a, b| b.queue_depth.total_cmp(&a.queue_depth).then_with(|| a.name.cmp(&b.name)));
    let basis = share::basis(interval, None);
    let all: f64 = share::parts(interval, None, basis).iter().map(|(_, part)| part).sum();
    let part = |disks: &[DiskLoad]| share::of(disks, None, basis).filter(|_| all > 0.0).map(|p| p / all);
    let mut others: Vec<OtherRow> = interval.others.iter().map(|o| other(o, s, part(&o.disks))).collect();
    others
        .sort_by(|a, b| b.disk.device_share_ratio.unwrap_or(0.0).total_cmp(&a.disk.device_share_ratio.unwrap_or(0.0)));
    let cpus = interval.host_cpu.cpus;
    let guests = interval.guests.iter().map(|g| guest(g, s, cpus, part(&g.disks))).collect();
    let process = |p: &ProcessLoad| {
        let (name, cpu_ratio) = (p.name.clone(), per_second(p.run_seconds, s));
        ProcessRow { name, pid: p.pid, processes: p.processes, cpu_ratio }
    };
    let processes = interval.processes.as_ref().map(|all| all.iter().take(PROCESSES).map(process).collect());
    Rows { devices, guests, others, processes, basis }
}

/// `x` a second; 0 when no time passed.
pub(super) fn per_second(x: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { x / seconds } else { 0.0 }
}

fn device(load: &DeviceLoad, seconds: f64) -> DeviceRow {
    let (requests, time) = totals(load);
    let rate = |x: u64| per_second(x as f64, seconds);
    let Requests { requests: reads, bytes: read_bytes, .. } = load.reads;
    let Requests { requests: writes, bytes: write_bytes, .. } = load.writes;
    DeviceRow {
        name: load.name.clone(),
        device: load.device,
        read_iops: rate(reads),
        write_iops: rate(writes),
        read_bytes_per_second: rate(read_bytes),
        write_bytes_per_second: rate(write_bytes),
        latency_mean_seconds: (requests > 0).then(|| time / requests as f64),
        flushes_per_second: rate(load.flushes.requests),
        flush_mean_seconds: mean_flush(load),
        queue_depth: per_second(time + load.others.request_seconds, seconds),
        busy_ratio: per_second(load.busy_seconds, seconds).min(1.0),
    }
}

/// Mean time of a disk's flushes.
pub fn mean_flush(load: &DeviceLoad) -> Option<f64> {
    let Requests { requests, request_seconds, .. } = load.flushes;
    (requests > 0).then(|| request_seconds / requests as f64)
}

/// Reads and writes of a disk and the sum of their times. Flushes and discards are left out, since their times depend
/// on the cache and on sizes; a write that waits for a flush counts with that wait (Linux block/blk-flush.c).
pub(super) fn totals(load: &DeviceLoad) -> (u64, f64) {
    (load.reads.requests + load.writes.requests, load.reads.request_seconds + load.writes.request_seconds)
}

fn disk(disks: &[DiskLoad], known: bool, seconds: f64, share: Option<f64>) -> DiskRow {
    if !known {
        return DiskRow::default();
    }
    let [reads, writes] = [|d: &DiskLoad| d.reads.clone(), |d: &DiskLoad| d.writes.clone()].map(|side| {
        let mut sum = Transfer::default();
        disks.iter().for_each(|d| sum.add(&side(d)));
        sum
    });
    let mut both = reads.clone();
    both.add(&writes);
    let idle = !both.any();
    let requests = both.requests.filter(|n| *n > 0).map(|n| n as f64);
    let spent = both.device_seconds.map(|at| at + both.queued_seconds.unwrap_or(0.0));
    // Without tracing the whole time is told as the device's, and means the hypervisor's.
    let traced = both.queued_seconds.is_some();
    let mean = |time: Option<f64>| time.filter(|_| traced).zip(requests).map(|(time, n)| time / n);
    let quantile = |q| both.latency.as_ref().and_then(|l| l.quantile_seconds(q));
    let p99 = |of: &Option<Latency>| of.as_ref().and_then(Latency::p99_seconds);
    // Where only bytes are counted, no bytes means no requests.
    let iops = |side: &Transfer| match side.requests {
        Some(n) => Some(per_second(n as f64, seconds)),
        None => (!side.any()).then_some(0.0),
    };
    DiskRow {
        read_iops: iops(&reads),
        write_iops: iops(&writes),
        read_bytes_per_second: Some(per_second(reads.bytes as f64, seconds)),
        write_bytes_per_second: Some(per_second(writes.bytes as f64, seconds)),
        request_bytes: requests.map(|n| both.bytes as f64 / n),
        latency_p50_seconds: quantile(0.5),
        latency_p99_seconds: p99(&both.latency),
        latency_mean_seconds: spent.zip(requests).map(|(time, n)| time / n),
        queued_mean_seconds: mean(both.queued_seconds),
        queued_p99_seconds: p99(&both.in_queue),
        device_mean_seconds: mean(both.device_seconds),
        device_p99_seconds: p99(&both.at_device),
        queue_depth: spent.map(|time| per_second(time, seconds)).or(idle.then_some(0.0)),
        // Without requests the share is 0, whatever the others do; an unknown share stays unknown.
        device_share_ratio: share.or(idle.then_some(0.0)),
    }
}

fn guest(load: &GuestLoad, seconds: f64, host_cpus: u32, share: Option<f64>) -> GuestRow {
    let known = load.disk_source != DiskSource::None;
    let nics = (!load.nics.is_empty()).then_some(&load.nics);
    let bits = |bytes: u64| per_second(bytes as f64 * 8.0, seconds);
    let cpu = load.cpu.as_ref();
    let named = cpu.is_some_and(|c| c.vcpus > 0);
    let dropped = |of: fn(&NicLoad) -> u64| nics.map(|n| per_second(n.iter().map(of).sum::<u64>() as f64, seconds));
    let cpu_ratio = cpu.map(|c| per_second(c.run_seconds(), seconds));
    let limit = load.memory.and_then(|m| m.limit);
    let ratio = |of: fn(&CpuLoad) -> ThreadTime| cpu.map(|c| per_second(of(c).run_seconds, seconds));
    GuestRow {
        name: load.name.clone(),
        kind: load.kind.clone(),
        pid: load.pid,
        vmid: load.vmid.clone(),
        uuid: load.uuid.clone(),
        disk: disk(&load.disks, known, seconds, share),
        disk_source: load.disk_source,
        sent_bps: nics.map(|n| bits(n.iter().map(|n| n.sent.bytes).sum())),
        received_bps: nics.map(|n| bits(n.iter().map(|n| n.received.bytes).sum())),
        drops_per_second: dropped(|n| n.sent.dropped + n.received.dropped),
        drops_received_per_second: dropped(|n| n.received.dropped),
        drops_sent_per_second: dropped(|n| n.sent.dropped),
        cpu_ratio,
        cpu_of_guest_ratio: cpu.and_then(|c| c.of_ratio(seconds, host_cpus)),
        cpu_guessed: cpu.is_some_and(|c| c.guessed),
        cpu_of_host_ratio: cpu_ratio.filter(|_| host_cpus > 0).map(|ran| ran / f64::from(host_cpus)),
        memory_bytes: load.memory.map(|m| m.resident_bytes),
        swapped_bytes: load.memory.and_then(|m| m.swapped_bytes),
        memory_limit_bytes: limit.map(|l| l.limit_bytes),
        memory_of_limit_ratio: limit.map(|l| l.used_bytes as f64 / l.limit_bytes.max(1) as f64),
        memory_stalled_ratio: load.memory_stalled_ratio,
        throttled_ratio: load.throttled_ratio,
        // Filled in by [`super::waits`], from the verdicts.
        load_ratio: None,
        worst_wait: None,
        vcpus: cpu.map(|c| c.vcpus).filter(|n| *n > 0),
        // Where vCPU threads are unknown, their time is in the rest.
        vcpu_ratio: ratio(|c| c.vcpu).filter(|_| named),
        io_ratio: ratio(|c| c.io).filter(|_| named),
        rest_ratio: ratio(|c| c.rest),
        // One that was never runnable never waited.
        steal_ratio: cpu.filter(|_| named).map(|c| c.vcpu.wait_ratio().unwrap_or(0.0)),
        // Filled in by callers that time its calls, and that query a guard.
        kernel_mean_seconds: None,
        guard: None,
    }
}

fn other(load: &OtherLoad, seconds: f64, share: Option<f64>) -> OtherRow {
    let row = disk(&load.disks, true, seconds, share);
    OtherRow { kind: load.kind, name: load.name.clone(), pid: load.pid, disk: row }
}
