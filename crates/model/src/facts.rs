//! Facts: what the rules look at. The same rules serve a run (measured cells and what they
//! gain over each other), a look at guests that run now (settings only), and a transcript in a
//! test. Each fact carries where it comes from; a rule that misses a fact abstains.

mod guest;
mod merge;
mod names;
mod place;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::result::{Run, WorkloadTraits};
use crate::setup::{Attachment, Setup};
use crate::stats::{Convergence, Pair, Ratio, paired_ratio};
use crate::summary::steady::settled_run;
use crate::summary::{Cell, Share, Summary, figure_of, pairs};

pub use guest::{
    DeletedFile, Details, Disk, Guest, HostCpu, Nic, Overridden, PlacedThread, Processors, Sources, Unread,
};
pub use names::{called, tell_apart};
pub use place::Place;

/// Where a fact comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Provenance {
    /// A stored run.
    Run {
        /// Its number.
        run: i64,
    },
    /// The set-up of a guest that runs now.
    Live {
        /// Name of the guest.
        guest: String,
        /// What was read: `QMP query-block`, `virsh dumpxml`, `/proc/1234/cmdline`.
        read_from: String,
        /// When, in seconds since the epoch.
        at_unix_seconds: f64,
    },
    /// A recorded session, for example in a test.
    Transcript {
        /// Its name.
        name: String,
    },
}

impl Provenance {
    /// The place alone: `virsh dumpxml db1`.
    pub fn place(&self) -> String {
        match self {
            Provenance::Live { read_from, .. } => read_from.clone(),
            other => other.to_string(),
        }
    }
}

impl std::fmt::Display for Provenance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Provenance::Run { run } => write!(f, "run {run}"),
            Provenance::Live { guest, read_from, .. } => write!(f, "guest {guest}, read from {read_from}"),
            Provenance::Transcript { name } => write!(f, "transcript {name}"),
        }
    }
}

/// What differs between the two cells of a [`Gain`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Changed {
    /// The driver alone.
    Driver,
    /// The target alone.
    Target,
    /// Cache mode, AIO engine, or both as a pair.
    CacheAio,
    /// The I/O thread alone.
    Iothread,
    /// Queues, discard, zeroes: what [`crate::setup::Options`] holds.
    Options,
    /// The workload's requests in flight alone.
    Depth,
    /// How the workload submits its requests alone: libaio, io_uring.
    Engine,
    /// Whether the workload goes through its side's page cache alone.
    PageCache,
}

/// What one cell gets over another of the same side that differs in one thing, paired by round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// What differs.
    pub changed: Changed,
    /// The cell before the change.
    pub before: Setup,
    /// The cell after the change.
    pub after: Setup,
    /// After over before: above 1 is faster.
    pub ratio: Ratio,
    /// Whether it may be cited: it has the fewest pairs and boots. Whether its interval excludes
    /// a threshold is for the rule to see; the width of the two shares does not matter to it.
    pub citable: bool,
}

/// What a run measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Number of the run.
    pub run: i64,
    /// Whether the guests ran under software emulation.
    pub emulated: bool,
    /// Whether each workload was held to a cap (`--gentle`): then shares are of that cap.
    #[serde(default)]
    pub capped: bool,
    /// Rows of the run's table.
    pub cells: Vec<Cell>,
    /// Shares against native.
    pub shares: Vec<Share>,
    /// Gains between cells of the same side, in both directions: guest cells, and native cells.
    pub gains: Vec<Gain>,
    /// The workloads' traits.
    pub workloads: Vec<WorkloadTraits>,
    /// When a share counted as known.
    pub convergence: Convergence,
}

/// All that is known when the rules are asked.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// What runs the guest that they are of, by the entry of `guests/`; `None`: QEMU.
    #[serde(default)]
    pub kind: Option<String>,
    /// Disks of guests as they are set up; empty for a run of vmio's own guests.
    pub disks: Vec<Disk>,
    /// Network devices of guests that run now.
    #[serde(default)]
    pub nics: Vec<Nic>,
    /// Processors of guests that run now, and where their threads may run.
    #[serde(default)]
    pub processors: Vec<Processors>,
    /// A run; `None` when nothing was measured.
    pub measured: Option<Measured>,
}

impl Facts {
    /// Whether the set-up of any guest is known.
    pub fn has_settings(&self) -> bool {
        !(self.disks.is_empty() && self.nics.is_empty() && self.processors.is_empty())
    }
}

impl Measured {
    /// The row of a cell.
    pub fn cell(&self, setup: &Setup) -> Option<&Cell> {
        self.cells.iter().find(|c| c.setup == *setup)
    }

    /// The share of a guest cell, if it may be cited.
    pub fn known_share(&self, setup: &Setup) -> Option<&Share> {
        self.shares.iter().find(|s| s.setup == *setup && s.converged)
    }

    /// Traits of a workload.
    pub fn traits(&self, workload: &str) -> Option<&WorkloadTraits> {
        self.workloads.iter().find(|w| w.name == workload)
    }

    /// Gains of guest cells of one kind that may be cited and whose interval lies wholly above the
    /// bound.
    pub fn sure_gains(&self, changed: Changed, bound: f64) -> impl Iterator<Item = &Gain> {
        let sure = move |g: &&Gain| g.changed == changed && g.citable && g.ratio.surely_above(bound);
        self.gains.iter().filter(|g| !g.before.is_native()).filter(sure)
    }

    /// What one cell gets over another of the same side, guest or native, if it may be cited.
    pub fn gain(&self, before: &Setup, after: &Setup) -> Option<&Gain> {
        self.gains.iter().find(|g| g.citable && g.before == *before && g.after == *after)
    }

    /// The run as a provenance.
    pub fn from(&self) -> Provenance {
        Provenance::Run { run: self.run }
    }
}

/// The facts of a run.
pub fn facts_of(run: &Run, summary: &Summary) -> Facts {
    let run = &*settled_run(run);
    let mut gains = Vec::new();
    for before in &summary.cells {
        for after in &summary.cells {
            // Each workload has a cap of its own: between two of them the caps would be compared.
            let capped = run.environment.cap_ratio.is_some() && before.setup.workload != after.setup.workload;
            if let Some(changed) = changed(&before.setup, &after.setup, &run.workloads)
                && !capped
            {
                gains.extend(gain(run, summary, changed, before, after));
            }
        }
    }
    Facts {
        measured: Some(Measured {
            run: run.id,
            emulated: summary.emulated,
            capped: run.environment.cap_ratio.is_some(),
            cells: summary.asked_for().cloned().collect(),
            shares: summary.shares.clone(),
            gains,
            workloads: run.workloads.clone(),
            convergence: summary.convergence,
        }),
        ..Facts::default()
    }
}

/// The one thing in which two cells of a side differ, if it is one.
pub(crate) fn changed(before: &Setup, after: &Setup, workloads: &[WorkloadTraits]) -> Option<Changed> {
    if before == after || before.guest != after.guest {
        return None;
    }
    if before.workload != after.workload {
        let same_disk = before.target == after.target && before.attachment == after.attachment;
        let find = |name: &str| workloads.iter().find(|w| w.name == name);
        let (x, y) = (find(&before.workload).filter(|_| same_disk)?, find(&after.workload)?);
        let deeper = WorkloadTraits { name: y.name.clone(), depth: y.depth, ..x.clone() };
        let engine = WorkloadTraits { name: y.name.clone(), engine: y.engine.clone(), ..x.clone() };
        let cached = WorkloadTraits { name: y.name.clone(), direct: y.direct, ..x.clone() };
        return match () {
            // One job by two names: nothing differs.
            () if deeper == *y && x.depth == y.depth => None,
            () if deeper == *y => Some(Changed::Depth),
            () if engine == *y => Some(Changed::Engine),
            () if cached == *y => Some(Changed::PageCache),
            () => None,
        };
    }
    if before.attachment == after.attachment {
        return Some(Changed::Target);
    }
    let (a, b) = (before.attachment.as_ref()?, after.attachment.as_ref()?);
    let driver = Attachment { driver: b.driver.clone(), ..a.clone() };
    let pair = Attachment { cache: b.cache, aio: b.aio, ..a.clone() };
    let iothread = Attachment { iothread: b.iothread, ..a.clone() };
    let options = Attachment { options: b.options.clone(), ..a.clone() };
    match () {
        () if before.target != after.target => None,
        () if driver == *b => Some(Changed::Driver),
        () if pair == *b => Some(Changed::CacheAio),
        () if iothread == *b => Some(Changed::Iothread),
        () if options == *b => Some(Changed::Options),
        () => None,
    }
}

/// What one cell gets over another in the same run, paired by round, by the figure of the first
/// one's workload; `None` without a round that both ran in.
pub fn gain_ratio(run: &Run, before: &Setup, after: &Setup) -> Option<Ratio> {
    let figure = figure_of(&run.workloads, &before.workload);
    let of_round = pairs(&run.samples, before, after, |s| Some(figure.of(&s.result)));
    paired_ratio(&of_round.into_iter().map(|(_, p)| p).collect::<Vec<Pair>>())
}

fn gain(run: &Run, summary: &Summary, changed: Changed, before: &Cell, after: &Cell) -> Option<Gain> {
    let ratio = gain_ratio(run, &before.setup, &after.setup)?;
    let rule = &summary.convergence;
    let enough = ratio.pairs >= rule.min_pairs && ratio.boots >= rule.min_boots;
    Some(Gain { changed, before: before.setup.clone(), after: after.setup.clone(), ratio, citable: enough })
}
