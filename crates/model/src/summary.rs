//! Conclusions from the samples of a run: a row for each cell, shares of baselines, headlines. They use the stored
//! samples only, so earlier runs can be judged by today's rules. Fields' names contain their units; a ratio of 1 means
//! equal.

mod build;
mod cell_row;
pub mod compare;
pub mod components;
pub mod durability;
pub mod energy;
pub mod explain;
pub mod grade;
mod headline;
mod judge;
pub mod over_time;
mod rows;
pub mod scores;
pub mod seen;
mod set_ups;
mod shares;
pub mod steady;
pub mod wires;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cell::{Baseline, Cell};
use crate::figure::{Better, Labels, Unit};
use crate::kind::RunKind;
use crate::result::{Environment, RunState, Skipped};
use crate::run::Run;
use crate::stats::{Convergence, Difference, Noise, Ratio};
use crate::study::HostResource;

pub use build::{Partial, PartialReason, answers, partial, summarise};
pub use cell_row::{CellRow, Cpu, CpuClock, Device, DiskFigures, FigureRow, PageCache, Percentile};
pub use compare::{Comparison, compare};
pub use durability::Durability;
pub use explain::Explanation;
pub(crate) use grade::cell_noise;
pub use grade::{Grade, Graded, Reservation, TellsApart};
pub(crate) use headline::percent;
pub use judge::{FAIRNESS, Judge, judge_of};
pub(crate) use rows::amount;
pub use set_ups::widest_difference;
pub(crate) use shares::overall;
pub use shares::{noise, pairs, share_of};

/// Version of the summary's JSON. Fields are only added within a major version.
pub const SCHEMA_VERSION: &str = "2.0";

/// A judged run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Version of this document.
    pub schema_version: String,
    /// Number of the run in the store.
    pub run: i64,
    /// Kind of the run.
    pub study: RunKind,
    /// Its command line.
    pub command: Vec<String>,
    /// Seconds since the epoch.
    pub started_unix_seconds: f64,
    /// How it ended.
    pub state: RunState,
    /// Its environment.
    pub environment: Environment,
    /// Whether the guests ran under software emulation (TCG).
    pub emulated: bool,
    /// What may and may not be concluded from this run; shown with its figures.
    pub statement: Option<String>,
    /// When a share is converged.
    pub convergence: Convergence,
    /// The baseline; left out for the host itself.
    #[serde(default, skip_serializing_if = "Baseline::is_native")]
    pub baseline: Baseline,
    /// The headline of the first nature that has one; `None` without pairs.
    pub headline: Option<Headline>,
    /// Headlines of the other natures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_headlines: Vec<Headline>,
    /// A row for each cell, in the order in which the study names them; others last, in the order in which they first ran.
    pub cells: Vec<CellRow>,
    /// Shares of baselines, in the same order.
    pub shares: Vec<Share>,
    /// Scores of guests in groups of workloads, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<scores::Scores>,
    /// Smallest differences that the machine resolves; `None` before a second round, and without comparisons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tells_apart: Option<TellsApart>,
    /// Guest cells that control cells explain.
    #[serde(default)]
    pub explained: Vec<Explanation>,
    /// Steady state of each writing native cell; empty without steady state in the study.
    #[serde(default)]
    pub steady: Vec<steady::Steady>,
    /// Cells that did not run.
    pub skipped: Vec<Skipped>,
    /// Disk settings in force as read back, by `target/guest/attachment`.
    pub effective: BTreeMap<String, BTreeMap<String, String>>,
}

/// "A reference guest made by vmio gets N % of this host", and its basis. With another baseline the share of the
/// study's first cells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Headline {
    /// Nature of the speed.
    pub nature: HostResource,
    /// The kind of guest: `qemu`, `container`.
    #[serde(default)]
    pub side: String,
    /// The guest's set-up, for example `device/qemu/virtio-blk,none,native`.
    pub guest: String,
    /// Geometric mean of the shares below, calculated round by round.
    pub share_ratio: Ratio,
    /// Whether it is converged.
    pub converged: bool,
    /// Keys of the cells it is calculated from.
    pub cells: Vec<String>,
    /// One sentence with the figure, its interval, and remarks on convergence and emulation.
    pub text: String,
    /// What the interval describes, and the range of the shares, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about_interval: Option<String>,
    /// A line for each workload.
    pub lines: Vec<String>,
}

/// A cell's share of its baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// Key of the cell.
    pub key: String,
    /// Key of the baseline.
    pub baseline: String,
    /// The cell.
    pub cell: Cell,
    /// Name of the figure by which both are judged.
    pub figure: String,
    /// The cell over its baseline, paired by round; where less is better the baseline over the cell. Below 1 is a loss.
    pub share_ratio: Ratio,
    /// Median latency of the leading actor, the cell over its baseline: above 1 is slower.
    pub latency_p50_ratio: Option<Ratio>,
    /// All compared figures of the cell and its baseline.
    #[serde(default)]
    pub figures: Vec<FigureShare>,
    /// Whether the share is converged.
    pub converged: bool,
    /// `converged`, or why not, in words.
    pub verdict: String,
    /// How far it can be relied on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graded: Option<Graded>,
    /// Rounds whose ratio is an outlier: kept and reported.
    pub outlier_rounds: Vec<u32>,
    /// Rounds with a device stall on either side: kept and reported.
    #[serde(default)]
    pub stalled_rounds: Vec<u32>,
    /// Rounds that are in none of these ratios: other processes kept the processors busy on either side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out_rounds: Vec<u32>,
}

impl Share {
    /// A note on device stalls; `None` without any.
    pub fn stalls(&self) -> Option<String> {
        let rounds: Vec<String> = self.stalled_rounds.iter().map(u32::to_string).collect();
        let word = if rounds.len() == 1 { "round" } else { "rounds" };
        (!rounds.is_empty()).then(|| format!("a device stall in {word} {}", rounds.join(", ")))
    }

    /// A note on pairs that are left out; `None` without any.
    pub fn left_out(&self) -> Option<String> {
        let out = self.left_out_rounds.len();
        let all = self.share_ratio.pairs as usize + out;
        (out > 0).then(|| format!("{out} of {all} pairs left out: other processes used over 20 % of the CPUs"))
    }
}

/// A figure of a cell compared with its baseline's, paired by round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FigureShare {
    /// Its name.
    pub name: String,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// Its unit, also of a difference.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// The cell over its baseline, for ratios.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    /// The cell less its baseline, for differences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

/// Noise of a cell compared with itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellNoise {
    /// Key of the cell.
    pub key: String,
    /// Its noise.
    pub noise: Noise,
}

impl Summary {
    /// Whether the run has native cells only.
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

    /// The cells without control cells, which are shown with what they explain.
    pub fn asked_for(&self) -> impl Iterator<Item = &CellRow> {
        self.cells.iter().filter(|c| !c.control)
    }

    /// Shortcut for [`summarise`].
    pub fn of(run: &Run) -> Summary {
        summarise(run)
    }
}

#[cfg(test)]
mod tests;
