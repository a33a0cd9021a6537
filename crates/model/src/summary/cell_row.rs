//! Rows of a summary.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::components::Components;
use super::durability::Durability;
use super::energy::EnergyRow;
use super::over_time::OverTime;
use super::seen::SeenRow;
use super::wires::Wire;
use crate::cell::Cell;
use crate::figure::{ACTOR, Better, Compared, Form, Labels, SAME_PERCENTILE, Unit};
use crate::result::Mark;
use crate::stats::Estimate;

/// A row of the table. `device`, `cpu`, `components`, `page_cache`, `wires` and `energy` are derived from probe results;
/// `seen` has those of probes without a field of their own, as they are, and those of meters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellRow {
    /// Its name: `device/qemu/virtio-blk,none,native/seq-write`, `device/native/seq-write`.
    pub key: String,
    /// The cell.
    pub cell: Cell,
    /// Whether it is a control cell that the study does not name.
    #[serde(default)]
    pub control: bool,
    /// Number of samples.
    pub samples: u32,
    /// Number of boots.
    pub boots: u32,
    /// Name of the figure by which it is judged.
    pub figure: String,
    /// Whether latency matters most (durable append).
    pub latency_first: bool,
    /// All its figures.
    #[serde(default)]
    pub figures: Vec<FigureRow>,
    /// Figures of disk workloads; absent where the leading actor uses no disk.
    #[serde(flatten)]
    pub disk: Option<DiskFigures>,
    /// The backing device; `None` without counters.
    pub device: Option<Device>,
    /// Its CPU time.
    pub cpu: Cpu,
    /// Its CPU time by component; absent where the processors were not sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub components: Option<Components>,
    /// For durable appends: whether acknowledged data are on the device.
    #[serde(default)]
    pub durability: Option<Durability>,
    /// Bytes of the guests' disks in the host's page cache; absent without counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<PageCache>,
    /// Traffic of its paths' interfaces by the host's counters; empty without a network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wires: Vec<Wire>,
    /// Energy by each power meter; empty without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub energy: Vec<EnergyRow>,
    /// Further probe results, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<SeenRow>,
    /// Its figure over time; for other machines and paths to them only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_time: Option<OverTime>,
    /// Number of samples with each mark.
    pub marks: BTreeMap<Mark, u32>,
    /// Rounds with an outlier (more than ten standard deviations off): kept and reported.
    pub outlier_rounds: Vec<u32>,
}

/// Bytes of the storage of a cell's guests in the host's page cache.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageCache {
    /// Bytes before the work.
    pub before_bytes: Estimate,
    /// Bytes after it.
    pub after_bytes: Estimate,
}

/// A figure of a cell over its samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FigureRow {
    /// Its name.
    pub name: String,
    /// Its labels; `actor` is the actor's number, from 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// Its unit.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// How it is compared.
    pub compared: Compared,
    /// Form of its values.
    pub form: Form,
    /// Mean over the samples of one representative number: for a distribution the geometric mean of the medians.
    pub typical: Estimate,
    /// Geometric mean over the samples of their means, for a distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<Estimate>,
    /// All recorded percentiles, ascending, for a distribution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub percentiles: Vec<Percentile>,
}

/// A percentile of a distribution over the samples of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Percentile {
    /// The percentile, 0 to 100.
    pub percentile: f64,
    /// Geometric mean over the samples with it.
    #[serde(flatten)]
    pub over: Estimate,
}

/// Figures of disk workloads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiskFigures {
    /// Bytes a second.
    pub bandwidth_bytes_per_second: Estimate,
    /// Requests a second; `None` where the workload does not count them.
    pub requests_per_second: Option<Estimate>,
    /// Median latency: the geometric mean over the samples.
    pub latency_p50_seconds: Option<Estimate>,
    /// 99th percentile of latency: the geometric mean over the samples.
    pub latency_p99_seconds: Option<Estimate>,
}

/// The backing device during a cell: means over its samples, with intervals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Device {
    /// Request size in bytes.
    pub request_bytes: Estimate,
    /// The same in sectors of 512 bytes: the papers' avgrq-sz.
    pub avgrq_sz_sectors: Estimate,
    /// Requests in flight: the papers' avgqu-sz.
    pub queue_depth: Estimate,
    /// Share of time with any request in flight: the papers' %util, here 0 to 1.
    pub busy_ratio: Option<Estimate>,
    /// Bytes read a second.
    pub read_bytes_per_second: Estimate,
    /// Bytes written a second.
    pub write_bytes_per_second: Estimate,
    /// Flushes a second.
    pub flushes_per_second: Estimate,
}

/// Clock of the whole host's CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CpuClock {
    /// Process accounting, as for the parts: vmio's processes and kernel threads. The parts are at most the whole,
    /// except for ticks of 10 ms to which each process's time is rounded.
    Processes,
    /// Processor ticks, in samples of older versions: the sum of the parts, which are exact, can be more.
    Ticks,
}

/// CPU time of a cell for its work, over all its samples: for each unit of the amounts in bytes and requests that its
/// workload declares. Without figures where several actors count different amounts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    /// Of the whole host for each GB (10^9 bytes) moved or otherwise processed, without other processes; 0 without an
    /// amount in bytes.
    pub host_seconds_per_gigabyte: f64,
    /// Of the whole host for each request; `None` without an amount in requests.
    pub host_seconds_per_request: Option<f64>,
    /// Clock of the whole.
    pub clock: CpuClock,
    /// The kernel threads' part for each GB, for whomever they ran; `None` without a count.
    pub kernel_seconds_per_gigabyte: Option<f64>,
    /// The same for each request.
    pub kernel_seconds_per_request: Option<f64>,
    /// Of QEMU by thread role for each GB.
    pub role_seconds_per_gigabyte: BTreeMap<String, f64>,
    /// Of QEMU by thread role for each request.
    pub role_seconds_per_request: BTreeMap<String, f64>,
    /// Share of the time in which its guests' vCPUs ran: at 1 they are the limit. `None` natively, and without process
    /// accounting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpu_busy_ratio: Option<f64>,
    /// Share of the time in which the host's processors were idle, by their ticks, all processes included. `None` where
    /// the duration is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_idle_ratio: Option<f64>,
}

impl FigureRow {
    /// Geometric mean over the samples of this percentile, if recorded.
    pub fn at(&self, percentile: f64) -> Option<Estimate> {
        self.percentiles.iter().find(|p| (p.percentile - percentile).abs() < SAME_PERCENTILE).map(|p| p.over)
    }
}

impl CellRow {
    /// Its figure of this name without labels.
    pub fn figure(&self, name: &str) -> Option<&FigureRow> {
        self.figures.iter().find(|f| f.name == name && f.labels.is_empty())
    }

    /// The figure by which it is judged: the sum of several actors, or the leading one's where they are not added up.
    pub fn judged(&self) -> Option<&FigureRow> {
        let leads =
            |f: &&FigureRow| f.name == self.figure && f.labels.iter().eq([(&ACTOR.to_owned(), &"1".to_owned())]);
        self.figure(&self.figure).or_else(|| self.figures.iter().find(leads))
    }
}
