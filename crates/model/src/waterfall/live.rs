//! The layers of a running guest's disks, as far as they are seen from outside of it: the queue of the host's block
//! layer and the device, request by request.

use schemars::JsonSchema;
use serde::Serialize;

use super::Layer;
use super::cells::{FULL, Times};
use crate::top::Latency;
use crate::top::load::{CpuLoad, GuestLoad, Interval, Transfer};

/// A disk of the host that a guest used.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LiveDisk {
    /// Its name on the host.
    pub name: String,
    /// Requests a second.
    pub iops: f64,
    /// Mean size of a request.
    pub request_bytes: f64,
    /// Requests at once, on average (Little's law).
    pub queue_depth: f64,
    /// Time in the queue of the host's block layer (esxtop: QAVG, a part of KAVG).
    pub queue: Times,
    /// Time at the device (esxtop: DAVG).
    pub device: Times,
    /// Both together, from submission to completion.
    pub host: Times,
}

impl LiveDisk {
    /// The layer that takes longer, and its share of both: what its change brings at most of what is seen.
    pub fn longest(&self) -> (Layer, f64) {
        let (queue, device) = (self.queue.mean_seconds, self.device.mean_seconds);
        let both = queue + device;
        let of = |part: f64| if both > 0.0 { part / both } else { 0.0 };
        if queue > device { (Layer::HostBlock, of(queue)) } else { (Layer::Device, of(device)) }
    }
}

/// A thread of the hypervisor.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "HypervisorThread")]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// Its processor time, in processors.
    pub cpu_ratio: f64,
}

impl Thread {
    /// Whether it has a whole processor nearly all the time, so that it is the limit.
    pub fn is_full(&self) -> bool {
        self.cpu_ratio >= FULL
    }
}

/// The disks that a guest used in this interval, that with most requests at once first. Only with tracing: other sources
/// do not tell the queue from the device.
pub fn disks(guest: &GuestLoad, interval: &Interval) -> Vec<LiveDisk> {
    let name = |device| {
        let known = interval.devices.iter().find(|d| d.device == device);
        known.map_or_else(|| format!("{}:{}", device.0, device.1), |d| d.name.clone())
    };
    let all = guest.disks.iter().filter_map(|disk| live(name(disk.device?), &disk.both(), interval.seconds));
    let mut all: Vec<LiveDisk> = all.collect();
    all.sort_by(|a, b| b.queue_depth.total_cmp(&a.queue_depth).then_with(|| a.name.cmp(&b.name)));
    all
}

fn live(name: String, both: &Transfer, seconds: f64) -> Option<LiveDisk> {
    let requests = both.requests.filter(|n| *n > 0 && seconds > 0.0)? as f64;
    let (queued, at_device) = (both.queued_seconds?, both.device_seconds?);
    let times = |sum: f64, latency: Option<&Latency>| Times {
        mean_seconds: sum / requests,
        p50_seconds: latency.and_then(|l| l.quantile_seconds(0.5)),
        p99_seconds: latency.and_then(Latency::p99_seconds),
    };
    Some(LiveDisk {
        name,
        iops: requests / seconds,
        request_bytes: both.bytes as f64 / requests,
        queue_depth: (queued + at_device) / seconds,
        queue: times(queued, both.in_queue.as_ref()),
        device: times(at_device, both.at_device.as_ref()),
        host: times(queued + at_device, both.latency.as_ref()),
    })
}

/// Names of vhost's threads begin so (drivers/vhost/vhost.c). They move packets: that one is full says nothing of disks.
const VHOST: &str = "vhost-";

/// The busiest thread of the hypervisor that moves its I/O alone; `None` where its threads are not told apart, or that
/// is one of vhost.
pub fn thread(cpu: &CpuLoad, seconds: f64) -> Option<Thread> {
    let (name, run_seconds) = cpu.busiest.clone().filter(|(name, _)| seconds > 0.0 && !name.starts_with(VHOST))?;
    Some(Thread { name, cpu_ratio: run_seconds / seconds })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::top::load::{DeviceLoad, DiskLoad};

    /// 200 requests, each so long in the queue and at the device, in 2 s.
    fn transfer(queue_us: u64, device_us: u64) -> Transfer {
        let all = |us: u64| {
            let mut latency = Latency::default();
            (0..200).for_each(|_| latency.add(us));
            Some(latency)
        };
        let seconds = |us: u64| Some(us as f64 * 200.0 * 1e-6);
        Transfer {
            requests: Some(200),
            bytes: 200 * 4096,
            device_seconds: seconds(device_us),
            queued_seconds: seconds(queue_us),
            latency: all(queue_us + device_us),
            in_queue: all(queue_us),
            at_device: all(device_us),
        }
    }

    fn seen(reads: Transfer) -> Vec<LiveDisk> {
        let device = DeviceLoad { name: "vda".into(), device: (254, 0), ..DeviceLoad::default() };
        let interval = Interval { seconds: 2.0, devices: vec![device], ..Interval::default() };
        let disk = DiskLoad { device: Some((254, 0)), reads, ..DiskLoad::default() };
        disks(&GuestLoad { disks: vec![disk], ..GuestLoad::default() }, &interval)
    }

    #[test]
    fn the_queue_and_the_device_are_told_apart() {
        let all = seen(transfer(100, 2000));
        let disk = &all[0];
        assert_eq!((disk.name.as_str(), disk.iops, disk.request_bytes), ("vda", 100.0, 4096.0));
        assert!((disk.queue.mean_seconds - 100e-6).abs() < 1e-12 && (disk.device.mean_seconds - 2e-3).abs() < 1e-12);
        let p99 = disk.device.p99_seconds.unwrap();
        assert!((p99 / 2e-3 - 1.0).abs() < 0.25, "{p99}");
        let (layer, ratio) = disk.longest();
        assert!(layer == Layer::Device && (ratio - 20.0 / 21.0).abs() < 1e-9);
        assert_eq!(seen(transfer(3000, 1000))[0].longest().0, Layer::HostBlock);
    }

    #[test]
    fn a_thread_of_the_network_is_none_of_the_disks() {
        let busiest = |name: &str| CpuLoad { busiest: Some((name.to_owned(), 1.9)), ..CpuLoad::default() };
        assert!(thread(&busiest("IO iothread0"), 2.0).unwrap().is_full());
        assert_eq!(thread(&busiest("vhost-4242"), 2.0), None);
        assert_eq!(thread(&CpuLoad::default(), 2.0), None);
    }

    #[test]
    fn what_was_not_traced_is_left_out() {
        assert_eq!(seen(Transfer { requests: Some(5), bytes: 4096, ..Transfer::default() }), []);
        assert_eq!(seen(Transfer::default()), []);
    }
}
