//! The host and all guests together, as two lines above the guests, in the same columns.

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::top::load::Interval;
use vmio_model::top::rows::{DiskRow, GuestRow, Rows};
use vmio_model::top::verdict::LEAST_WANTED;

use crate::report::format::count;

/// The host, and all guests together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Totals {
    /// The host: its processors, memory, disks and uplinks.
    pub host: Total,
    /// The sum of all guests, those that the filter left out included.
    pub guests: Total,
}

/// Figures of the host or of all guests. What is not known is `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Total {
    /// CPU time in processors.
    pub cpu_ratio: Option<f64>,
    /// CPU time as a share of the guests' vCPUs, or of the host's processors.
    pub cpu_of_all_ratio: Option<f64>,
    /// CPU time as a share of the host's processors.
    pub cpu_of_host_ratio: Option<f64>,
    /// Memory in use.
    pub memory_bytes: Option<f64>,
    /// Memory in swap.
    pub swapped_bytes: Option<f64>,
    /// Of guests: share of the time in which their vCPUs were runnable that they waited; unknown where that is next to
    /// nothing. Of the host: share of the time in which some task waited for a processor (PSI).
    pub wait_ratio: Option<f64>,
    /// Reads a second.
    pub read_iops: Option<f64>,
    /// Writes a second.
    pub write_iops: Option<f64>,
    /// Bytes read a second.
    pub read_bytes_per_second: Option<f64>,
    /// Bytes written a second.
    pub write_bytes_per_second: Option<f64>,
    /// Bits a second that guests received, or the host by its uplinks.
    pub received_bps: Option<f64>,
    /// Bits a second that they sent.
    pub sent_bps: Option<f64>,
    /// Packets a second that were dropped on their way in.
    pub drops_received_per_second: Option<f64>,
    /// Packets a second that were dropped on their way out.
    pub drops_sent_per_second: Option<f64>,
}

impl Totals {
    /// Of an interval and its rows.
    pub fn of(interval: &Interval, rows: &Rows) -> Totals {
        Totals { host: host(interval, rows), guests: guests(interval, &rows.guests) }
    }

    /// The two lines, in the columns of a guest.
    pub fn rows(&self, cpus: u32, guests: usize) -> [GuestRow; 2] {
        let cpus = if cpus == 1 { "1 CPU".to_owned() } else { format!("{cpus} CPUs") };
        [self.host.row(format!("HOST ({cpus})")), self.guests.row(count(guests, "guest"))]
    }
}

impl Total {
    fn row(&self, name: String) -> GuestRow {
        let drops =
            self.drops_received_per_second.zip(self.drops_sent_per_second).map(|(received, sent)| received + sent);
        GuestRow {
            name,
            disk: DiskRow {
                read_iops: self.read_iops,
                write_iops: self.write_iops,
                read_bytes_per_second: self.read_bytes_per_second,
                write_bytes_per_second: self.write_bytes_per_second,
                ..DiskRow::default()
            },
            sent_bps: self.sent_bps,
            received_bps: self.received_bps,
            drops_per_second: drops,
            drops_received_per_second: self.drops_received_per_second,
            drops_sent_per_second: self.drops_sent_per_second,
            cpu_of_guest_ratio: self.cpu_of_all_ratio,
            cpu_of_host_ratio: self.cpu_of_host_ratio,
            memory_bytes: self.memory_bytes.map(|b| b as u64),
            swapped_bytes: self.swapped_bytes.map(|b| b as u64),
            steal_ratio: self.wait_ratio,
            ..GuestRow::default()
        }
    }
}

fn host(interval: &Interval, rows: &Rows) -> Total {
    let (s, cpu, memory) = (interval.seconds, interval.host_cpu, interval.host_memory);
    let known = s > 0.0;
    let rate = |x: u64| known.then(|| x as f64 / s);
    let links = |of: fn(&vmio_model::top::load::UplinkLoad) -> u64| rate(interval.uplinks.iter().map(of).sum());
    let disks = |of: fn(&vmio_model::top::rows::DeviceRow) -> f64| Some(rows.devices.iter().map(of).sum::<f64>());
    let busy = (known && cpu.cpus > 0).then(|| (cpu.busy_seconds / s / f64::from(cpu.cpus)).min(1.0));
    let has_memory = memory.total_bytes > 0;
    Total {
        cpu_ratio: known.then(|| cpu.busy_seconds / s),
        cpu_of_all_ratio: busy,
        cpu_of_host_ratio: busy,
        memory_bytes: has_memory.then(|| memory.total_bytes.saturating_sub(memory.available_bytes) as f64),
        swapped_bytes: has_memory.then_some(memory.swapped_bytes as f64),
        wait_ratio: cpu.stalled_ratio,
        read_iops: disks(|d| d.read_iops),
        write_iops: disks(|d| d.write_iops),
        read_bytes_per_second: disks(|d| d.read_bytes_per_second),
        write_bytes_per_second: disks(|d| d.write_bytes_per_second),
        received_bps: links(|u| u.received.bytes).map(|bytes| bytes * 8.0),
        sent_bps: links(|u| u.sent.bytes).map(|bytes| bytes * 8.0),
        drops_received_per_second: links(|u| u.received.dropped),
        drops_sent_per_second: links(|u| u.sent.dropped),
    }
}

fn guests(interval: &Interval, rows: &[GuestRow]) -> Total {
    let sum = |of: fn(&GuestRow) -> Option<f64>| rows.iter().filter_map(of).reduce(|sum, more| sum + more);
    // No more of them run at once than the host has processors.
    let most = if interval.host_cpu.cpus > 0 { interval.host_cpu.cpus } else { u32::MAX };
    let vcpus: u32 = rows.iter().filter_map(|g| g.vcpus).map(|n| n.min(most)).sum();
    let (mut ran, mut waited) = (0.0, 0.0);
    for vcpu in interval.guests.iter().filter_map(|g| g.cpu.as_ref()).map(|c| c.vcpu) {
        ran += vcpu.run_seconds;
        waited += vcpu.wait_seconds;
    }
    Total {
        cpu_ratio: sum(|g| g.cpu_ratio),
        cpu_of_all_ratio: sum(|g| g.vcpu_ratio).filter(|_| vcpus > 0).map(|ran| (ran / f64::from(vcpus)).min(1.0)),
        cpu_of_host_ratio: sum(|g| g.cpu_of_host_ratio),
        memory_bytes: sum(|g| g.memory_bytes.map(|b| b as f64)),
        swapped_bytes: sum(|g| g.swapped_bytes.map(|b| b as f64)),
        wait_ratio: (ran + waited > LEAST_WANTED * interval.seconds).then(|| waited / (ran + waited)),
        read_iops: sum(|g| g.disk.read_iops),
        write_iops: sum(|g| g.disk.write_iops),
        read_bytes_per_second: sum(|g| g.disk.read_bytes_per_second),
        write_bytes_per_second: sum(|g| g.disk.write_bytes_per_second),
        received_bps: sum(|g| g.received_bps),
        sent_bps: sum(|g| g.sent_bps),
        drops_received_per_second: sum(|g| g.drops_received_per_second),
        drops_sent_per_second: sum(|g| g.drops_sent_per_second),
    }
}
