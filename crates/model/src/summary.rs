//! What the samples of a run say: a row a cell, shares against baselines, a headline. Drawn from
//! the stored samples alone, so yesterday's run can be judged by today's rules. The fields'
//! names carry their units; ratios are 1 for "equal".

mod build;
pub mod compare;
pub mod durability;
pub mod explain;
pub mod grade;
mod headline;
mod judge;
pub mod over_time;
mod rows;
pub mod scores;
pub mod seen;
mod shares;
pub mod steady;
pub mod wires;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use over_time::OverTime;
use seen::SeenRow;
use wires::Wire;

use crate::cell::{Baseline, Cell};
use crate::figure::{ACTOR, Better, Compared, Form, Labels, SAME_PERCENTILE, Unit};
use crate::kind::RunKind;
use crate::result::{Environment, Mark, RunState, Skipped};
use crate::run::Run;
use crate::stats::{Convergence, Difference, Estimate, Noise, Ratio};
use crate::study::HostResource;

pub use build::{answers, summarise};
pub use compare::{Comparison, compare};
pub use durability::Durability;
pub use explain::Explanation;
pub(crate) use grade::cell_noise;
pub use grade::{Grade, Graded, Reservation, TellsApart};
pub(crate) use headline::percent;
pub use judge::{FAIRNESS, Judge, judge_of};
pub(crate) use shares::overall;
pub use shares::{noise, pairs, share_of};

/// Version of the summary's JSON. Fields are only added within a major version.
pub const SCHEMA_VERSION: &str = "2.0";

/// A run, judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Version of this document.
    pub schema_version: String,
    /// Number of the run in the store.
    pub run: i64,
    /// What the run is of.
    pub study: RunKind,
    /// Command line that made it.
    pub command: Vec<String>,
    /// Seconds since the epoch.
    pub started_unix_seconds: f64,
    /// How it ended.
    pub state: RunState,
    /// Where it was made.
    pub environment: Environment,
    /// Whether the guests ran under software emulation (TCG).
    pub emulated: bool,
    /// What may and may not be concluded from this run; shown wherever its figures are.
    pub statement: Option<String>,
    /// When a share counted as known.
    pub convergence: Convergence,
    /// What cells are compared with; left out where that is the host itself.
    #[serde(default, skip_serializing_if = "Baseline::is_native")]
    pub baseline: Baseline,
    /// The headline, of the first nature that has one; `None` when no cell that it would be made of has a pair.
    pub headline: Option<Headline>,
    /// Those of the other natures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_headlines: Vec<Headline>,
    /// A row a cell, in the order in which the cells first ran.
    pub cells: Vec<CellRow>,
    /// Cells against their baselines, in the same order.
    pub shares: Vec<Share>,
    /// What guests get in groups of workloads, where those of the run are in any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<scores::Scores>,
    /// What this machine can tell apart; `None` before a second round, and where nothing is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tells_apart: Option<TellsApart>,
    /// Guest cells that control cells explain.
    #[serde(default)]
    pub explained: Vec<Explanation>,
    /// Whether each writing native cell became steady; empty unless the study asked for it.
    #[serde(default)]
    pub steady: Vec<steady::Steady>,
    /// Cells that did not run.
    pub skipped: Vec<Skipped>,
    /// Effective disk settings as read back, by `target/guest/attachment`.
    pub effective: BTreeMap<String, BTreeMap<String, String>>,
}

/// "A reference guest made by vmio gets N % of this host", and what that is made of. Where the study compares
/// with something else: what its first cells get of that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Headline {
    /// What of the host's speed it is about.
    pub nature: HostResource,
    /// The kind of guest: `qemu`, `container`.
    #[serde(default)]
    pub side: String,
    /// What it is about, for example `device/qemu/virtio-blk,none,native`.
    pub guest: String,
    /// Geometric mean of the shares below, round by round.
    pub share_ratio: Ratio,
    /// Whether it is known to the wanted width.
    pub converged: bool,
    /// Keys of the cells that it is made of.
    pub cells: Vec<String>,
    /// One sentence with the figure, its interval, and a word on convergence and emulation.
    pub text: String,
    /// What the interval is of, and how far apart the shares are that it is made of, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about_interval: Option<String>,
    /// A line a workload, in the same words.
    pub lines: Vec<String>,
}

/// One cell of the table. `device`, `cpu`, `page_cache` and `wires` are derived from what probes saw and stay for their
/// names; what none of them has stands in `seen` as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellRow {
    /// Its name: `device/qemu/virtio-blk,none,native/seq-write`, `device/native/seq-write`.
    pub key: String,
    /// What was measured.
    pub cell: Cell,
    /// Whether it is a control cell, which the study did not name.
    #[serde(default)]
    pub control: bool,
    /// Samples.
    pub samples: u32,
    /// Boots they came from.
    pub boots: u32,
    /// Name of the figure that it is judged by.
    pub figure: String,
    /// Whether latency is what its reader wants first (durable append).
    pub latency_first: bool,
    /// All of its figures.
    #[serde(default)]
    pub figures: Vec<FigureRow>,
    /// What disk workloads are read by; absent where the leading actor works on no disk.
    #[serde(flatten)]
    pub disk: Option<DiskFigures>,
    /// What the backing device saw; `None` where it cannot be seen.
    pub device: Option<Device>,
    /// What it cost in CPU time.
    pub cpu: Cpu,
    /// For durable appends: whether what was acknowledged is on the device.
    #[serde(default)]
    pub durability: Option<durability::Durability>,
    /// What the host's page cache held of the guests' disks; absent where that was not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<PageCache>,
    /// What the interfaces of its paths carried, as the host counts it beside what its programs say; none where it is on no
    /// network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wires: Vec<Wire>,
    /// What else probes saw; left out where there is nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<SeenRow>,
    /// How it went on while the run lasted; absent but on other machines and on the way to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_time: Option<OverTime>,
    /// How many samples carry which word of caution.
    pub marks: BTreeMap<Mark, u32>,
    /// Rounds whose figure is an outlier (more than ten standard deviations off): kept, and shown.
    pub outlier_rounds: Vec<u32>,
}

/// What the host's page cache holds of the storage of a cell's guests.
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
    /// What tells it from others of the same name; `actor`: which of several, from 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// In what it is counted.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// How it is compared.
    pub compared: Compared,
    /// In which form it came.
    pub form: Form,
    /// Mean over the samples of the one number that stands for each: of a distribution its median, and the geometric mean.
    pub typical: Estimate,
    /// Geometric mean over the samples of their means; of a distribution alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<Estimate>,
    /// All percentiles that were recorded, rising; of a distribution alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub percentiles: Vec<Percentile>,
}

/// A percentile of a distribution over the samples of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Percentile {
    /// Which one, 0 to 100.
    pub percentile: f64,
    /// Geometric mean over the samples that have it.
    #[serde(flatten)]
    pub over: Estimate,
}

/// What disk workloads are read by.
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

/// What the backing device saw during a cell: means over its samples, with their intervals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Device {
    /// Bytes a request.
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

/// By what clock the CPU time of the whole host was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CpuClock {
    /// That of processes, which is the one of the parts: of vmio's own and of the kernel's threads. The parts are no more
    /// than the whole, but for ticks of 10 ms to which each process's time is rounded.
    Processes,
    /// The processors' ticks, in samples of older versions: the parts, which are exact, can add up to more.
    Ticks,
}

/// CPU time of a cell over the work that it did, over all its samples together: over the amounts of bytes and of
/// requests that its workload declares. Where several work that do not count the same there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    /// Of the whole host for each GB (10^9 bytes) moved, or whatever else is done with bytes, without what other
    /// processes took; 0 where none are counted.
    pub host_seconds_per_gigabyte: f64,
    /// Of the whole host for each request; `None` where requests are not counted.
    pub host_seconds_per_request: Option<f64>,
    /// How the whole was counted.
    pub clock: CpuClock,
    /// What of the whole the kernel's threads ran for each GB, whoever it was for; `None` where that was not counted.
    pub kernel_seconds_per_gigabyte: Option<f64>,
    /// The same for each request.
    pub kernel_seconds_per_request: Option<f64>,
    /// Of QEMU by thread role for each GB.
    pub role_seconds_per_gigabyte: BTreeMap<String, f64>,
    /// Of QEMU by thread role for each request.
    pub role_seconds_per_request: BTreeMap<String, f64>,
    /// How much of the time its guests' processors ran: at 1 it is they that are the limit. `None` natively, and where the
    /// time was not counted by the clock of processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpu_busy_ratio: Option<f64>,
    /// How much of the time the host's processors were idle, all of them together and whoever else worked, by their ticks
    /// as every tool counts it. `None` where the time was not watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_idle_ratio: Option<f64>,
}

/// What a cell gets of its baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// Key of the cell.
    pub key: String,
    /// Key of the baseline.
    pub baseline: String,
    /// The cell.
    pub cell: Cell,
    /// Name of the figure that both are judged by.
    pub figure: String,
    /// The cell over its baseline, paired by round; of a figure of which less is better the baseline over the
    /// cell. Below 1 is a loss.
    pub share_ratio: Ratio,
    /// Median latency of the leading actor, the cell over its baseline: above 1 is slower.
    pub latency_p50_ratio: Option<Ratio>,
    /// All figures that are compared, the cell against its baseline.
    #[serde(default)]
    pub figures: Vec<FigureShare>,
    /// Whether the share is known to the wanted width.
    pub converged: bool,
    /// `converged`, or why not, in words.
    pub verdict: String,
    /// How far it can be relied on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graded: Option<Graded>,
    /// Rounds whose ratio is an outlier: kept, and shown.
    pub outlier_rounds: Vec<u32>,
    /// Rounds in which either side's sample holds a device stall: kept, and shown.
    #[serde(default)]
    pub stalled_rounds: Vec<u32>,
}

impl Share {
    /// What must be said with it where it holds device stalls; `None` where it does not.
    pub fn stalls(&self) -> Option<String> {
        let rounds: Vec<String> = self.stalled_rounds.iter().map(u32::to_string).collect();
        let word = if rounds.len() == 1 { "round" } else { "rounds" };
        (!rounds.is_empty()).then(|| format!("a device stall in {word} {}", rounds.join(", ")))
    }
}

/// A figure of a cell against that of its baseline, paired by round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FigureShare {
    /// Its name.
    pub name: String,
    /// What tells it from others of the same name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// In what it is counted, and a difference with it.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// The cell over its baseline, where it is compared so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    /// The cell less its baseline, where it is compared so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

/// What a cell cannot be told apart from itself by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellNoise {
    /// Key of the cell.
    pub key: String,
    /// Its noise.
    pub noise: Noise,
}

impl Summary {
    /// Whether the run is about native cells alone: it asked for no guest.
    pub fn is_native_only(&self) -> bool {
        !self.cells.is_empty()
            && self.cells.iter().all(|c| c.cell.is_native())
            && self.skipped.iter().all(|s| s.cell.is_native())
    }

    /// All headlines, one for each resource.
    pub fn headlines(&self) -> impl Iterator<Item = &Headline> {
        self.headline.iter().chain(&self.further_headlines)
    }

    /// The row of a cell.
    pub fn cell(&self, key: &str) -> Option<&CellRow> {
        self.cells.iter().find(|c| c.key == key)
    }

    /// The share of a cell.
    pub fn share(&self, key: &str) -> Option<&Share> {
        self.shares.iter().find(|s| s.key == key)
    }

    /// The cells without the control cells, which are shown with what they explain.
    pub fn asked_for(&self) -> impl Iterator<Item = &CellRow> {
        self.cells.iter().filter(|c| !c.control)
    }

    /// Shortcut for [`summarise`].
    pub fn of(run: &Run) -> Summary {
        summarise(run)
    }
}

impl FigureRow {
    /// Geometric mean over the samples of this percentile, where it was recorded.
    pub fn at(&self, percentile: f64) -> Option<Estimate> {
        self.percentiles.iter().find(|p| (p.percentile - percentile).abs() < SAME_PERCENTILE).map(|p| p.over)
    }
}

impl CellRow {
    /// Its figure of that name without labels.
    pub fn figure(&self, name: &str) -> Option<&FigureRow> {
        self.figures.iter().find(|f| f.name == name && f.labels.is_empty())
    }

    /// The figure that it is judged by: of several actors the sum, or the leading one's where they are not added up.
    pub fn judged(&self) -> Option<&FigureRow> {
        let leads =
            |f: &&FigureRow| f.name == self.figure && f.labels.iter().eq([(&ACTOR.to_owned(), &"1".to_owned())]);
        self.figure(&self.figure).or_else(|| self.figures.iter().find(leads))
    }
}

#[cfg(test)]
mod tests;
