//! What the page of a guest shows besides its row: its devices, the busiest threads of its hypervisor, its limits.

use vmio_model::facts::{Guest, Subject};
use vmio_model::top::Latency;
use vmio_model::top::journal::{self, JournalRow};
use vmio_model::top::load::{Device, DeviceLoad, DiskLoad, GuestLoad, Interval, NicLoad, ThreadLoad};
use vmio_model::top::rows::mean_flush;
use vmio_model::waterfall::host::{Asked, HostPart, LiveCalls, Split};

use super::figures::{figure, memory, percent, short, time};

/// Tables of a guest, each with its titles first, and its limits, a line each.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Opened {
    /// The guest's process.
    pub pid: u32,
    /// What it is: kind, numbers, configuration.
    pub about: String,
    /// Its disks.
    pub disks: Vec<Vec<String>>,
    /// What its hypervisor asks of the host for them.
    pub calls: Vec<Vec<String>>,
    /// Its network devices.
    pub nics: Vec<Vec<String>>,
    /// Users of the file systems with a journal that it uses.
    pub journals: Vec<Vec<String>>,
    /// Threads, the busiest first.
    pub threads: Vec<Vec<String>>,
    /// Limits that are in force.
    pub limits: Vec<String>,
}

impl Opened {
    /// The guest of this process in an interval; `None` where it is not there.
    pub fn of(
        pid: u32,
        guest: Option<&Guest>,
        interval: &Interval,
        threads: &[ThreadLoad],
        asked: Option<&LiveCalls>,
    ) -> Option<Opened> {
        let load = interval.guests.iter().find(|g| g.pid == Some(pid))?;
        let s = interval.seconds;
        Some(Opened {
            pid,
            about: about(pid, guest, load),
            disks: disks(load, &interval.devices, s),
            calls: asked.map_or(Vec::new(), calls),
            nics: nics(&load.nics, s),
            journals: journals(&load.name, &journal::rows(interval)),
            threads: titled(
                &["THREAD", "TID", "CPU%", "WAIT%"],
                threads.iter().map(|t| {
                    let share = |seconds: f64| percent((s > 0.0).then(|| seconds / s));
                    // As of a guest: of the time in which it wanted to run.
                    let waited = percent(Some(t.time.wait_ratio().unwrap_or(0.0)));
                    vec![t.name.clone(), t.tid.to_string(), share(t.time.run_seconds), waited]
                }),
            ),
            limits: limits(guest, load),
        })
    }
}

fn titled(titles: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Vec<Vec<String>> {
    std::iter::once(titles.iter().map(|title| (*title).to_owned()).collect()).chain(rows).collect()
}

fn about(pid: u32, guest: Option<&Guest>, load: &GuestLoad) -> String {
    let version = guest.and_then(|g| g.version.clone()).unwrap_or_else(|| load.kind.clone());
    let mut parts = vec![version, format!("pid {pid}")];
    parts.extend(load.vmid.as_ref().map(|vmid| format!("VMID {vmid}")));
    parts.extend(load.uuid.as_ref().map(|uuid| format!("UUID {uuid}")));
    let own = guest.and_then(|g| g.processors.as_ref());
    parts.extend(own.and_then(|p| *p.vcpus).map(|n| if n == 1 { "1 vCPU".into() } else { format!("{n} vCPUs") }));
    parts.extend(own.and_then(|p| *p.memory_bytes).map(|b| format!("{} of memory", memory(Some(b as f64)))));
    parts.join(", ")
}

fn disks(load: &GuestLoad, devices: &[DeviceLoad], seconds: f64) -> Vec<Vec<String>> {
    let found = |device: Option<Device>| devices.iter().find(|d| Some(d.device) == device);
    let name = |device: Option<Device>| match device {
        None => "all of its disks".to_owned(),
        Some(number) => found(device).map_or_else(|| format!("{}:{}", number.0, number.1), |d| d.name.clone()),
    };
    let rate = |x: u64| if seconds > 0.0 { x as f64 / seconds } else { 0.0 };
    let row = |d: &DiskLoad| {
        let both = d.both();
        let median = both.latency.as_ref().and_then(|l| l.quantile_seconds(0.5));
        let p99 = |of: &Option<Latency>| time(of.as_ref().and_then(Latency::p99_seconds), None);
        let spent = both.device_seconds.map(|at| at + both.queued_seconds.unwrap_or(0.0));
        vec![
            name(d.device),
            short(d.reads.requests.map(rate)),
            short(d.writes.requests.map(rate)),
            figure(Some(rate(both.bytes) / 1e6)),
            time(median, None),
            p99(&both.latency),
            p99(&both.in_queue),
            p99(&both.at_device),
            time(found(d.device).and_then(mean_flush), None),
            figure(spent.filter(|_| seconds > 0.0).map(|spent| spent / seconds)),
        ]
    };
    let titles = ["ON DISK", "R/s", "W/s", "MB/s", "p50", "p99", "QUEUEp99", "DEVp99", "FLUSH", "DEPTH"];
    titled(&titles, load.disks.iter().map(row))
}

/// KERNEL is esxtop's KAVG, of which QUEUE is QAVG; DEVICE is DAVG.
fn calls(calls: &LiveCalls) -> Vec<Vec<String>> {
    let row = |what: &str, asked: &Asked, split: Option<&Split>| {
        let part = |of: fn(&Split) -> f64| time(split.map(|split| of(split).max(0.0)), None);
        let Asked { per_second, times, .. } = asked;
        vec![
            what.to_owned(),
            short(Some(*per_second)),
            time(Some(times.mean_seconds), None),
            time(times.p50_seconds, None),
            time(times.p99_seconds, None),
            part(Split::kernel_seconds),
            part(|split| split.queue_seconds),
            part(|split| split.device_seconds),
        ]
    };
    let LiveCalls { reads, writes, flushes, submissions } = calls;
    let direction =
        |(what, part): (&str, &Option<HostPart>)| part.as_ref().map(|part| row(what, &part.asked, part.split.as_ref()));
    let alone = |(what, asked): (&str, &Option<Asked>)| asked.as_ref().map(|asked| row(what, asked, None));
    let rows = [("reads", reads), ("writes, flushes", writes)].into_iter().filter_map(direction);
    let more = [("flushes alone", flushes), ("io_submit", submissions)].into_iter().filter_map(alone);
    titled(&["ASKS THE HOST", "/s", "MEAN", "p50", "p99", "KERNEL", "QUEUE", "DEVICE"], rows.chain(more))
}

fn nics(all: &[NicLoad], seconds: f64) -> Vec<Vec<String>> {
    let rate = |x: u64| if seconds > 0.0 { x as f64 / seconds } else { 0.0 };
    let row = |n: &NicLoad| {
        vec![
            n.interface.clone(),
            figure(Some(rate(n.received.bytes) * 8e-6)),
            figure(Some(rate(n.sent.bytes) * 8e-6)),
            short(Some(rate(n.received.packets))),
            short(Some(rate(n.sent.packets))),
            short(Some(rate(n.received.dropped))),
            short(Some(rate(n.sent.dropped))),
        ]
    };
    titled(&["INTERFACE", "RXMb", "TXMb", "RXpk/s", "TXpk/s", "DROPin", "DROPout"], all.iter().map(row))
}

/// All users of those that this guest uses, since one waits for another.
fn journals(name: &str, all: &[JournalRow]) -> Vec<Vec<String>> {
    let own = all.iter().filter(|j| j.users.iter().any(|u| u.guest.as_deref() == Some(name)));
    let rows = own.flat_map(|j| j.users.iter().map(move |u| (j, u))).map(|(j, u)| {
        vec![
            format!("{} on {}", u.who, j.name),
            short(Some(u.fsyncs_per_second)),
            time(u.fsync_mean_seconds, None),
            time(u.fsync_worst_seconds, None),
            figure(Some(u.dirtied_bytes_per_second / 1e6)),
        ]
    });
    titled(&["FSYNC BY", "FSYNC/s", "MEAN", "WORST", "DIRTYMB/s"], rows)
}

fn limits(guest: Option<&Guest>, load: &GuestLoad) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(memory_now) = load.memory {
        let swapped =
            memory_now.swapped_bytes.map_or(String::new(), |b| format!(", {} in swap", memory(Some(b as f64))));
        all.push(format!("memory: {} on the host{swapped}", memory(Some(memory_now.resident_bytes as f64))));
    }
    let limit = load.memory.and_then(|m| m.limit).map(|limit| {
        let [used, most] = [limit.used_bytes, limit.limit_bytes].map(|bytes| memory(Some(bytes as f64)));
        format!("memory limit: {used} of {most} used")
    });
    let stalled = load.memory_stalled_ratio.map(|r| format!("waits for memory {} % of the time", percent(Some(r))));
    match (limit, stalled) {
        (Some(limit), Some(stalled)) => all.push(format!("{limit}; {stalled}")),
        (Some(limit), None) => all.push(limit),
        (None, Some(stalled)) => all.push(format!("no limit of memory; {stalled}")),
        (None, None) => {}
    }
    let Some(guest) = guest else { return all };
    if let Some(cpus) = guest.processors.as_ref().and_then(|p| *p.quota_cpus) {
        let throttled = load
            .throttled_ratio
            .map_or(String::new(), |r| format!(", throttled in {} % of its periods", percent(Some(r))));
        all.push(format!("CPU quota: {} processors{throttled}", figure(Some(cpus))));
    }
    let mut of = |subject: &Subject, limits: &[String]| {
        if let Some(device) = subject.device.as_ref().filter(|_| !limits.is_empty()) {
            all.push(format!("{device}: {}", limits.join(", ")));
        }
    };
    guest.disks.iter().for_each(|disk| of(&disk.subject, &disk.details.limits));
    guest.nics.iter().for_each(|nic| of(&nic.subject, &nic.limits_shown()));
    all
}
