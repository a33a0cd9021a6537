//! Probe results around a cell: the watched subjects with their figures.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{READ, REQUESTS, WRITTEN};
use crate::figure::{Figure, Reading, Unit, scalar};

/// Subject of a probe.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Watched {
    /// Disks below targets, by kernel name.
    Disk(String),
    /// A network interface.
    Link(String),
    /// A page cache, by the target whose data may be in it.
    PageCache(String),
    /// A guest's disk as its hypervisor counts it, by its target.
    Drive(String),
    /// The processors of a machine.
    Processors,
    /// Processes that are not vmio's.
    Others,
    /// Vmio's processes and the kernel's threads, by the component in which they work.
    Components,
    /// The threads of a guest's hypervisor, by the guest's side.
    Hypervisor(String),
    /// The processes of a container, by its side.
    Container(String),
    /// Anything else, by its name.
    Other(String),
}

impl Watched {
    /// The figures from which rows and marks are made, as probes declare them. Further figures of a probe come with
    /// their units ([`ProbeResult::units`]) and are reported unchanged ([`crate::summary::seen`]).
    pub fn figures(&self) -> Vec<Figure> {
        let amount = Figure::amount;
        match self {
            Watched::Disk(_) => DeviceUse::figures().into_iter().chain([amount(LONGEST_WAIT, Unit::Seconds)]).collect(),
            Watched::Link(_) => vec![
                amount(SECONDS, Unit::Seconds),
                amount("bytes", Unit::Bytes).by(&[WAY]),
                amount("packets", Unit::Packets).by(&[WAY]),
                amount("dropped", Unit::Packets).by(&[WAY]),
            ],
            Watched::PageCache(_) => [CACHED_BEFORE, CACHED_AFTER].map(|name| amount(name, Unit::Bytes)).into(),
            Watched::Drive(_) => vec![
                amount(READ, Unit::Bytes),
                amount(WRITTEN, Unit::Bytes),
                amount(REQUESTS, Unit::Requests),
                amount(REQUEST_SECONDS, Unit::Seconds),
            ],
            Watched::Processors => [BUSY, STOLEN].map(|name| amount(name, Unit::Seconds)).into(),
            Watched::Others => vec![
                amount(SECONDS, Unit::Seconds),
                amount(BUSY, Unit::Seconds),
                amount(SHARE, Unit::Ratio),
                amount(PART, Unit::Ratio),
                amount(OWN, Unit::Seconds),
                amount(KERNEL, Unit::Seconds),
            ],
            Watched::Components => vec![
                amount(SAMPLED, Unit::Seconds).by(&[ROLE, COMPONENT]),
                amount(SAMPLES, Unit::Count).by(&[ROLE, COMPONENT]),
                amount(LOST, Unit::Count).by(&[SOURCE]),
            ],
            Watched::Hypervisor(_) | Watched::Container(_) => vec![amount(BUSY, Unit::Seconds).by(&[ROLE])],
            Watched::Other(_) => Vec::new(),
        }
    }
}

/// Result of a probe for one subject during a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Seen")]
pub struct ProbeResult {
    /// The subject's machine; empty for the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The subject.
    pub watched: Watched,
    /// Name of the probe.
    pub probe: String,
    /// The figures.
    pub figures: Vec<Reading>,
    /// Units of figures that the subject does not define.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub units: BTreeMap<String, Unit>,
}

impl ProbeResult {
    /// Result of a probe on this host.
    pub fn here(watched: Watched, probe: &str, figures: Vec<Reading>) -> Self {
        Self { node: String::new(), watched, probe: probe.to_owned(), figures, units: BTreeMap::new() }
    }
}

/// Use of the backing device during a cell, calculated from diskstats as iostat does.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DeviceUse {
    /// Seconds between the two readings.
    pub seconds: f64,
    /// Completed reads.
    pub read_ios: u64,
    /// Completed writes.
    pub write_ios: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Completed flushes (kernel 5.5 and newer).
    pub flush_ios: u64,
    /// iostat's rareq-sz/wareq-sz together (older avgrq-sz), here in bytes.
    pub request_bytes: f64,
    /// iostat's aqu-sz (older avgqu-sz): requests in flight, time-averaged.
    pub queue_depth: f64,
    /// iostat's %util as a ratio 0 to 1: share of time with any request in flight; `None` where the storage does not
    /// count it (NFS, RBD).
    pub busy_ratio: Option<f64>,
}

impl DeviceUse {
    /// Its figures, as a probe declares them.
    pub fn figures() -> Vec<Figure> {
        vec![
            Figure::amount(SECONDS, Unit::Seconds),
            Figure::amount("read-requests", Unit::Requests),
            Figure::amount("write-requests", Unit::Requests),
            Figure::amount("read", Unit::Bytes),
            Figure::amount("written", Unit::Bytes),
            Figure::amount("flushes", Unit::Requests),
            Figure::amount("request-size", Unit::Bytes),
            Figure::amount("queue-depth", Unit::Requests),
            Figure::amount("busy", Unit::Ratio),
        ]
    }

    /// The result of the disk probe for this disk.
    pub fn seen(&self, disk: &str) -> ProbeResult {
        ProbeResult::here(Watched::Disk(disk.to_owned()), "diskstats", self.readings())
    }

    /// Its figures, as a probe reports them.
    pub fn readings(&self) -> Vec<Reading> {
        let mut all = vec![
            Reading::scalar(SECONDS, self.seconds),
            Reading::scalar("read-requests", self.read_ios as f64),
            Reading::scalar("write-requests", self.write_ios as f64),
            Reading::scalar("read", self.read_bytes as f64),
            Reading::scalar("written", self.write_bytes as f64),
            Reading::scalar("flushes", self.flush_ios as f64),
            Reading::scalar("request-size", self.request_bytes),
            Reading::scalar("queue-depth", self.queue_depth),
        ];
        all.extend(self.busy_ratio.map(|busy| Reading::scalar("busy", busy)));
        all
    }

    /// From a probe's result; `None` where that is not of a disk.
    pub fn of(seen: &ProbeResult) -> Option<Self> {
        let Watched::Disk(_) = seen.watched else { return None };
        let figure = |name: &str| scalar(&seen.figures, name);
        let count = |name: &str| figure(name).map(|n| n as u64);
        Some(Self {
            seconds: figure(SECONDS)?,
            read_ios: count("read-requests")?,
            write_ios: count("write-requests")?,
            read_bytes: count("read")?,
            write_bytes: count("written")?,
            flush_ios: count("flushes")?,
            request_bytes: figure("request-size")?,
            queue_depth: figure("queue-depth")?,
            busy_ratio: figure("busy"),
        })
    }
}

/// CPU seconds spent during a cell.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CpuUse {
    /// Of the host without other processes: by process accounting vmio's processes and the kernel's threads, or where
    /// that is unknown by processor ticks.
    pub host_seconds: f64,
    /// The kernel threads' part; `None` where the whole is from ticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_seconds: Option<f64>,
    /// Of QEMU by thread role (`vcpu`, `iothread`, `main`, `worker`); empty natively.
    pub by_role: BTreeMap<String, f64>,
}

/// Figure of disks, links and processes: seconds of the measurement.
pub const SECONDS: &str = "seconds";
/// Label of links: direction of packets, as the interface sees it.
pub const WAY: &str = "way";
/// Figure of the page cache: bytes of a guest's disk before and after.
pub const CACHED_BEFORE: &str = "cached-before";
/// See [`CACHED_BEFORE`].
pub const CACHED_AFTER: &str = "cached-after";
/// Figure of processors: seconds in use.
pub const BUSY: &str = "busy-seconds";
/// Figure of processors: seconds of steal.
pub const STOLEN: &str = "stolen-seconds";
/// Figure of processes: their share of all processors.
pub const SHARE: &str = "share";
/// Figure of processes: their part of the time that all processes ran.
pub const PART: &str = "part-of-busy";
/// Figure of processes: seconds that vmio's own ran, guests included.
pub const OWN: &str = "own-seconds";
/// Figure of processes: seconds that kernel threads ran, for whomever.
pub const KERNEL: &str = "kernel-seconds";
/// Figure of disks: the longest time with requests in flight without a completion, as far as the readings show it.
pub const LONGEST_WAIT: &str = "longest-wait";
/// Figure of drives: the times of all requests, flushes included, added up.
pub const REQUEST_SECONDS: &str = "request-seconds";
/// Name of what counts requests at the driver of a guest's disk, from issue to completion: the probe, and what it
/// watches.
pub const BLOCK_EVENTS: &str = "block-events";
/// Figure of block events: bytes of all requests.
pub const MOVED: &str = "moved";
/// Figure of components: CPU seconds by the samples in each.
pub const SAMPLED: &str = "sampled-seconds";
/// Figure of components: samples in each.
pub const SAMPLES: &str = "samples";
/// Figure of components: samples that the kernel could not keep.
pub const LOST: &str = "lost-samples";
/// Label of components: a file of a program, a subsystem of the kernel, a guest.
pub const COMPONENT: &str = "component";
/// Label of lost samples: what makes samples, `cycles` or `cpu-clock`.
pub const SOURCE: &str = "source";
/// Label of a hypervisor's threads: their role.
pub const ROLE: &str = "role";

impl CpuUse {
    /// From probe results: the host by process accounting where that was read, as its parts are, else by ticks; and the
    /// threads of all hypervisors by role.
    pub fn of(seen: &[ProbeResult]) -> Self {
        let mut all = Self::by_ticks(seen);
        let here = seen.iter().filter(|s| s.node.is_empty() && s.watched == Watched::Others);
        let times = here.filter_map(|s| Some((scalar(&s.figures, OWN)?, scalar(&s.figures, KERNEL)?)));
        if let Some((own, kernel)) = times.reduce(|a, b| (a.0 + b.0, a.1 + b.1)) {
            all.host_seconds = own + kernel;
            all.kernel_seconds = Some(kernel);
        }
        all
    }

    /// The same with the host by ticks, less the other processes' part.
    pub fn by_ticks(seen: &[ProbeResult]) -> Self {
        let mut all = CpuUse::default();
        let mut others: f64 = 0.0;
        for one in seen.iter().filter(|s| s.node.is_empty()) {
            match one.watched {
                Watched::Processors => all.host_seconds += scalar(&one.figures, BUSY).unwrap_or(0.0),
                Watched::Hypervisor(_) | Watched::Container(_) => {
                    for reading in one.figures.iter().filter(|r| r.figure == BUSY) {
                        let Some(role) = reading.labels.get(ROLE) else { continue };
                        *all.by_role.entry(role.clone()).or_default() += reading.value.typical();
                    }
                }
                Watched::Others => others += scalar(&one.figures, PART).unwrap_or(0.0),
                Watched::Disk(_)
                | Watched::Link(_)
                | Watched::PageCache(_)
                | Watched::Drive(_)
                | Watched::Components
                | Watched::Other(_) => {}
            }
        }
        // A ratio, since the two probes begin and end at different times.
        all.host_seconds *= (1.0 - others).max(0.0);
        all
    }

    /// Results of the processor probe for the host and one hypervisor.
    pub fn seen(&self, hypervisor: &str) -> Vec<ProbeResult> {
        let host = ProbeResult::here(Watched::Processors, "cpu", vec![Reading::scalar(BUSY, self.host_seconds)]);
        let roles = self.by_role.iter().map(|(role, seconds)| Reading::scalar(BUSY, *seconds).with(ROLE, role.clone()));
        let threads = (!self.by_role.is_empty())
            .then(|| ProbeResult::here(Watched::Hypervisor(hypervisor.to_owned()), "cpu", roles.collect()));
        let processes = self.kernel_seconds.map(|kernel| {
            let figures = vec![Reading::scalar(OWN, self.host_seconds - kernel), Reading::scalar(KERNEL, kernel)];
            ProbeResult::here(Watched::Others, "others", figures)
        });
        std::iter::once(host).chain(threads).chain(processes).collect()
    }
}

/// Results of the disk and processor probes around a cell of one guest, for made-up and old runs.
pub fn seen_around(device: Option<DeviceUse>, cpu: &CpuUse) -> Vec<ProbeResult> {
    device.map(|device| device.seen("backing")).into_iter().chain(cpu.seen("guest")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_took_is_taken_off_the_hosts_time() {
        let used = CpuUse { host_seconds: 2.0, by_role: BTreeMap::from([("vcpu".into(), 0.5)]), ..CpuUse::default() };
        let mut seen = used.seen("qemu");
        let others = |part: f64| {
            ProbeResult::here(Watched::Others, "others", vec![Reading::scalar(BUSY, 9.0), Reading::scalar(PART, part)])
        };
        seen.push(others(0.25));
        let cpu = CpuUse::of(&seen);
        assert!((cpu.host_seconds - 1.5).abs() < 1e-12 && cpu.by_role["vcpu"] == 0.5, "{cpu:?}");
        seen.push(others(1.0));
        assert_eq!(CpuUse::of(&seen).host_seconds, 0.0);
    }

    /// Ticks were less than the sum of the parts: the whole is by the parts' clock, and others' work in the ticks is
    /// left out.
    #[test]
    fn the_whole_has_the_clock_of_its_parts() {
        let by_role = BTreeMap::from([("vcpu".to_owned(), 1.5), ("worker".to_owned(), 0.6)]);
        let mut seen = CpuUse { host_seconds: 2.0, by_role, ..CpuUse::default() }.seen("qemu");
        let figures = [(BUSY, 9.0), (PART, 0.25), (OWN, 2.2), (KERNEL, 0.3)];
        let figures = figures.map(|(name, value)| Reading::scalar(name, value)).into();
        seen.push(ProbeResult::here(Watched::Others, "others", figures));
        let cpu = CpuUse::of(&seen);
        assert!((cpu.host_seconds - 2.5).abs() < 1e-12 && cpu.kernel_seconds == Some(0.3), "{cpu:?}");
        assert!(cpu.by_role.values().sum::<f64>() + 0.3 <= cpu.host_seconds);
        let ticks = CpuUse::by_ticks(&seen);
        assert!((ticks.host_seconds - 1.5).abs() < 1e-12 && ticks.kernel_seconds.is_none(), "{ticks:?}");
        // A probe elsewhere measured another machine.
        seen.iter_mut().for_each(|s| s.node = "guest0".into());
        assert_eq!(CpuUse::of(&seen), CpuUse::default());
        // A use by process accounting converts back.
        assert_eq!(CpuUse::of(&cpu.seen("qemu")), cpu);
    }
}
