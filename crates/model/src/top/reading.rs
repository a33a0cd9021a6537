//! Counters of a machine at one moment, and the interval between two such moments.
//!
//! Counters may restart between two readings (an interface or disk was removed and came back, a pid was reused) and
//! whole guests come and go. What two readings do not show is left out of that interval; nothing is made up.

use std::collections::BTreeMap;

use super::Flow;
use super::cpu_users::{Processes, ran};
use super::load::{
    Device, DeviceLoad, DiskLoad, DiskSource, GuestLoad, HostCpu, HostMemory, Interval, Memory, NicLoad, OtherLoad,
    Packets, Requests, Transfer, UplinkLoad,
};
use super::process::kind_of;
use super::words::clean;
use crate::rate::BitRate;

mod threads;

pub use threads::busiest;

/// A machine's counters at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// Time of any monotonic clock.
    pub at_seconds: f64,
    /// Disks.
    pub disks: BTreeMap<Device, DiskCounters>,
    /// Guests.
    pub guests: Vec<GuestReading>,
    /// Uplinks of the host.
    pub uplinks: Vec<Interface>,
    /// Processors.
    pub cpu: CpuCounters,
    /// Memory.
    pub memory: MemoryCounters,
    /// Times of all processes; `None` where they were not read.
    pub processes: Option<Processes>,
    /// What could not be read.
    pub notes: Vec<String>,
}

/// A line of `/proc/diskstats` (kernel document admin-guide/iostats.rst). Times are milliseconds in 32 bits: they wrap
/// after 49 days of time in flight.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskCounters {
    /// Name.
    pub name: String,
    /// Reads, writes, discards and flushes: completed requests, bytes, milliseconds.
    pub kinds: [(u64, u64, u64); 4],
    /// Milliseconds with any request in flight.
    pub busy_ms: u64,
}

/// A guest's counters.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GuestReading {
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
    /// Whether block tracing attributes the requests of all its disks.
    pub traceable: bool,
    /// Its virtual CPUs by its configuration, where it has a hypervisor.
    pub vcpus: Option<u32>,
    /// Its threads.
    pub threads: Vec<ThreadReading>,
    /// CPU nanoseconds of all its processes, where it has many and no threads by role.
    pub group_run_ns: Option<u64>,
    /// Its memory, as it was read last.
    pub memory: Option<Memory>,
    /// Share of the time in which some task of its control group waited for memory, since its memory was read before.
    pub memory_stalled_ratio: Option<f64>,
    /// Periods of its CPU quota, and those in which it was throttled.
    pub quota: Option<(u64, u64)>,
    /// Its network devices.
    pub nics: Vec<Interface>,
    /// Its disks by its own counters, where tracing does not see them.
    pub disks: DiskReading,
}

/// A guest's disk traffic without tracing.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum DiskReading {
    /// Could not be read.
    #[default]
    None,
    /// Counters by disk, or of all disks together (`None`).
    Counters(DiskSource, Vec<(Option<Device>, Sides)>),
    /// Sums over the last seconds, where a reading at every tick would be too expensive.
    Recent(DiskSource, f64, Vec<DiskLoad>),
}

/// Reads and writes: requests, if counted, and bytes.
pub type Sides = [(Option<u64>, u64); 2];

/// Role of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Runs a vCPU.
    Vcpu,
    /// I/O thread or vhost, which moves its data alone.
    Io,
    /// One of a pool for I/O, which share their work.
    Pool,
    /// The main loop, which serves devices without an I/O thread.
    Main,
    /// Anything else, and unknown: where QEMU does not name its threads, its vCPUs too.
    Rest,
}

/// A thread's counters (`/proc/PID/task/TID/schedstat`), in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadReading {
    /// Thread id.
    pub tid: u32,
    /// Its role.
    pub part: Part,
    /// Its display name: `I/O thread io0`, `main loop`.
    pub name: String,
    /// Time that it ran.
    pub run_ns: u64,
    /// Time that it waited for a processor.
    pub wait_ns: u64,
}

/// An interface's counters as the host sees them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Speed, if the kernel has one.
    pub speed_bps: Option<BitRate>,
    /// Packets that a guest's tap holds for it at most.
    pub queue_packets: Option<u64>,
    /// What the host received through it.
    pub received: Packets,
    /// What the host sent through it.
    pub sent: Packets,
}

/// `/proc/stat` and `/proc/pressure/cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CpuCounters {
    /// Processors.
    pub cpus: u32,
    /// Busy seconds.
    pub busy_seconds: f64,
    /// Seconds of steal.
    pub stolen_seconds: f64,
    /// Microseconds in which some task waited (`some … total=`); `None` without PSI.
    pub stalled_us: Option<u64>,
}

/// `/proc/meminfo`, and the counters of swapping of `/proc/vmstat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryCounters {
    /// Bytes there are.
    pub total_bytes: u64,
    /// Bytes that new programs can have.
    pub available_bytes: u64,
    /// Bytes of swap in use.
    pub swapped_bytes: u64,
    /// Pages read from swap (`pswpin`) and written to it (`pswpout`) since boot.
    pub swaps: Option<(u64, u64)>,
}

/// Block tracing of an interval.
pub struct Traced<'a> {
    /// The flows.
    pub flows: &'a [Flow],
    /// The guest of each flow, by its index in the later reading.
    pub owners: &'a [Option<usize>],
}

/// The interval between two readings. `traced` is `None` without block tracing.
pub fn between(before: &Reading, after: &Reading, traced: Option<&Traced<'_>>) -> Interval {
    let seconds = after.at_seconds - before.at_seconds;
    let mut notes: Vec<String> = after.notes.iter().map(|note| clean(note)).collect();
    if seconds.is_nan() || seconds <= 0.0 {
        notes.push("no time passed between two readings".into());
        return Interval { notes, ..Interval::default() };
    }
    let mut guests: Vec<GuestLoad> = after.guests.iter().map(|guest| guest_load(before, guest, seconds)).collect();
    let mut others = Vec::new();
    if let Some(traced) = traced {
        let seen = |i: usize| traced.owners.contains(&Some(i));
        for (i, (guest, now)) in guests.iter_mut().zip(&after.guests).enumerate() {
            if seen(i) {
                (guest.disk_source, guest.disks) = (DiskSource::Trace, Vec::new());
                continue;
            }
            // A guest without flows may have its disks elsewhere (Ceph, NFS, a ZFS volume): its own counters are used,
            // on no traced disk. Without traffic in those it was idle if tracing or libvirt covers all its disks; else
            // nothing is known.
            guest.disks.iter_mut().for_each(|d| d.device = None);
            if guest.disks.iter().any(|d| d.both().any()) {
                continue;
            }
            let counted = guest.disk_source == DiskSource::Libvirt && !guest.disks.is_empty();
            guest.disks = Vec::new();
            guest.disk_source = match (now.traceable, counted) {
                (true, _) => DiskSource::Trace,
                (_, true) => DiskSource::Libvirt,
                _ => DiskSource::None,
            };
        }
        for (flow, owner) in traced.flows.iter().zip(traced.owners) {
            match owner.and_then(|i| guests.get_mut(i)) {
                Some(guest) => add(&mut guest.disks, flow),
                None => add(&mut other(&mut others, flow).disks, flow),
            }
        }
    }
    Interval {
        seconds,
        traced: traced.is_some(),
        devices: after.disks.iter().filter_map(|(d, now)| disk_load(*d, before.disks.get(d)?, now)).collect(),
        guests,
        others,
        // Filled in by callers that trace them.
        journals: Vec::new(),
        host_cpu: host_cpu(&before.cpu, &after.cpu, seconds),
        host_memory: host_memory(&before.memory, &after.memory),
        processes: before.processes.as_ref().zip(after.processes.as_ref()).map(|(was, now)| ran(was, now)),
        uplinks: after.uplinks.iter().filter_map(|now| uplink(before, now)).collect(),
        notes,
    }
}

fn other<'a>(others: &'a mut Vec<OtherLoad>, flow: &Flow) -> &'a mut OtherLoad {
    let (kind, name) = (kind_of(&flow.comm, flow.pid == 0), clean(&flow.comm));
    // The kernel's workers have different names and count as one.
    let alike = |o: &OtherLoad| o.kind == kind && (o.name == name || (flow.pid == 0 && o.pid == 0));
    let at = others.iter().position(alike).unwrap_or_else(|| {
        others.push(OtherLoad { kind, name: name.clone(), pid: flow.pid, disks: Vec::new() });
        others.len() - 1
    });
    &mut others[at]
}

fn add(disks: &mut Vec<DiskLoad>, flow: &Flow) {
    let at = disks.iter().position(|d| d.device == Some(flow.device)).unwrap_or_else(|| {
        disks.push(DiskLoad { device: Some(flow.device), ..DiskLoad::default() });
        disks.len() - 1
    });
    let side = if flow.write { &mut disks[at].writes } else { &mut disks[at].reads };
    side.add(&Transfer {
        requests: Some(flow.requests),
        bytes: flow.bytes,
        device_seconds: Some(flow.device_seconds),
        queued_seconds: Some(flow.queued_seconds),
        latency: Some(flow.latency.clone()),
        in_queue: Some(flow.in_queue.clone()),
        at_device: Some(flow.at_device.clone()),
    });
}

/// `None` when one of the counters restarted.
fn disk_load(device: Device, before: &DiskCounters, now: &DiskCounters) -> Option<DeviceLoad> {
    if before.name != now.name {
        return None;
    }
    let mut sides = [Requests::default(); 4];
    for (side, (b, n)) in sides.iter_mut().zip(before.kinds.iter().zip(&now.kinds)) {
        side.requests = n.0.checked_sub(b.0)?;
        side.bytes = n.1.checked_sub(b.1)?;
        side.request_seconds = milliseconds(b.2, n.2)?;
    }
    let [reads, writes, discards, flushes] = sides;
    let others = Requests {
        requests: discards.requests + flushes.requests,
        // Discarded bytes are not moved.
        bytes: 0,
        request_seconds: discards.request_seconds + flushes.request_seconds,
    };
    let busy_seconds = milliseconds(before.busy_ms, now.busy_ms)?;
    Some(DeviceLoad { name: now.name.clone(), device, reads, writes, others, flushes, busy_seconds })
}

/// Seconds between two values of a 32-bit counter of milliseconds.
fn milliseconds(before: u64, now: u64) -> Option<f64> {
    const WIDTH: u64 = 1 << 32;
    let passed = match now.checked_sub(before) {
        Some(passed) => passed,
        // A wrap is plausible only near the end, else the counter restarted.
        None if before < WIDTH && before > WIDTH / 2 => now + WIDTH - before,
        None => return None,
    };
    Some(passed as f64 * 1e-3)
}

fn guest_load(before: &Reading, now: &GuestReading, seconds: f64) -> GuestLoad {
    let mut load = GuestLoad {
        name: clean(&now.name),
        kind: now.kind.clone(),
        pid: now.pid,
        vmid: now.vmid.as_deref().map(clean),
        uuid: now.uuid.clone(),
        memory: now.memory,
        memory_stalled_ratio: now.memory_stalled_ratio,
        ..GuestLoad::default()
    };
    if let DiskReading::Recent(source, span, disks) = &now.disks {
        load.disk_source = *source;
        load.disks = if *span > 0.0 { disks.iter().map(|d| scaled(d, seconds / span)).collect() } else { Vec::new() };
    }
    // A guest is identified by process, since its name changes when another with the same name comes.
    let same = |g: &&GuestReading| g.pid == now.pid && (now.pid.is_some() || g.name == now.name);
    let Some(was) = before.guests.iter().find(same) else { return load };
    load.cpu = threads::cpu_load(was, now, seconds);
    load.throttled_ratio = now.quota.zip(was.quota).and_then(throttled);
    load.nics = now.nics.iter().filter_map(|n| nic(was, n)).collect();
    if let (DiskReading::Counters(source, now), DiskReading::Counters(old, was)) = (&now.disks, &was.disks)
        && source == old
    {
        load.disk_source = *source;
        let pairs = now.iter().filter_map(|(d, n)| Some((*d, was.iter().find(|(w, _)| w == d)?.1, *n)));
        load.disks = pairs.filter_map(|(d, was, now)| counted(d, &was, &now)).collect();
    }
    load
}

/// Share of the periods that were throttled; 0 where none passed, since then nothing ran. `None` when they restarted.
fn throttled((now, was): ((u64, u64), (u64, u64))) -> Option<f64> {
    let (periods, throttled) = (now.0.checked_sub(was.0)?, now.1.checked_sub(was.1)?);
    Some(if periods > 0 { (throttled as f64 / periods as f64).min(1.0) } else { 0.0 })
}

fn counted(device: Option<Device>, was: &Sides, now: &Sides) -> Option<DiskLoad> {
    let side = |was: (Option<u64>, u64), now: (Option<u64>, u64)| -> Option<Transfer> {
        let requests = match (was.0, now.0) {
            (Some(was), Some(now)) => Some(now.checked_sub(was)?),
            _ => None,
        };
        Some(Transfer { requests, bytes: now.1.checked_sub(was.1)?, ..Transfer::default() })
    };
    Some(DiskLoad { device, reads: side(was[0], now[0])?, writes: side(was[1], now[1])? })
}

fn scaled(disk: &DiskLoad, by: f64) -> DiskLoad {
    let side = |t: &Transfer| Transfer {
        requests: t.requests.map(|n| (n as f64 * by).round() as u64),
        bytes: (t.bytes as f64 * by).round() as u64,
        device_seconds: t.device_seconds.map(|s| s * by),
        queued_seconds: t.queued_seconds.map(|s| s * by),
        latency: t.latency.clone(),
        in_queue: t.in_queue.clone(),
        at_device: t.at_device.clone(),
    };
    DiskLoad { device: disk.device, reads: side(&disk.reads), writes: side(&disk.writes) }
}

fn packets(was: &Packets, now: &Packets) -> Option<Packets> {
    Some(Packets {
        packets: now.packets.checked_sub(was.packets)?,
        bytes: now.bytes.checked_sub(was.bytes)?,
        dropped: now.dropped.checked_sub(was.dropped)?,
    })
}

fn nic(was: &GuestReading, now: &Interface) -> Option<NicLoad> {
    let was = was.nics.iter().find(|n| n.name == now.name)?;
    // What the host receives from the tap, the guest sent.
    let (sent, received) = (packets(&was.received, &now.received)?, packets(&was.sent, &now.sent)?);
    Some(NicLoad { interface: clean(&now.name), queue_packets: now.queue_packets, sent, received })
}

fn uplink(before: &Reading, now: &Interface) -> Option<UplinkLoad> {
    let was = before.uplinks.iter().find(|u| u.name == now.name)?;
    let (sent, received) = (packets(&was.sent, &now.sent)?, packets(&was.received, &now.received)?);
    Some(UplinkLoad { name: now.name.clone(), speed_bps: now.speed_bps, sent, received })
}

fn host_cpu(was: &CpuCounters, now: &CpuCounters, seconds: f64) -> HostCpu {
    let stalled = now.stalled_us.zip(was.stalled_us).and_then(|(now, was)| now.checked_sub(was));
    HostCpu {
        cpus: now.cpus,
        busy_seconds: (now.busy_seconds - was.busy_seconds).max(0.0),
        stolen_seconds: (now.stolen_seconds - was.stolen_seconds).max(0.0),
        stalled_ratio: stalled.map(|us| (us as f64 * 1e-6 / seconds).min(1.0)),
    }
}

fn host_memory(was: &MemoryCounters, now: &MemoryCounters) -> HostMemory {
    let pages = now.swaps.zip(was.swaps);
    HostMemory {
        total_bytes: now.total_bytes,
        available_bytes: now.available_bytes,
        swapped_bytes: now.swapped_bytes,
        swapped_in_pages: pages.and_then(|(now, was)| now.0.checked_sub(was.0)),
        swapped_out_pages: pages.and_then(|(now, was)| now.1.checked_sub(was.1)),
    }
}
