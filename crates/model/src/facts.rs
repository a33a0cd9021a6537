//! Facts: the input of the rules. The same rules serve a run (measured cells and gains), running guests (settings
//! only), and a transcript in a test. Each fact has its source; a rule that lacks a fact abstains.

mod below;
mod fact;
mod guest;
mod host;
mod host_state;
mod memory;
mod merge;
mod names;
mod network;
mod nic;
mod place;
mod quota;
mod rate_limit;
mod setting;
mod source;
mod subject;
mod unread;
mod way;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cell::{self, Attachment, Cell, Settings, Vmm};
use crate::result::{DiskTraits, WorkloadTraits};
use crate::run::Run;
use crate::stats::{Convergence, Pair, Ratio, paired_ratio};
use crate::summary::steady::settled_run;
use crate::summary::{CellRow, Share, Summary, judge_of, pairs};

pub use below::{Below, DiscardEnds, Discards, Extents, Layout, Mounted, Raidz, SharedJournal};
pub use fact::{Blank, Fact, Sourced, Sources};
pub use guest::{DeletedFile, Details, Disk, Guest, HostCpu, Overridden, PlacedThread, Processors};
pub use host::HostSeen;
pub use host_state::{Governor, HostState, Ksm, Swap};
pub use memory::{Balloon, CachedReads, GuestMemory};
pub use names::{called, tell_apart};
pub use network::{Busiest, Conntrack, ToGuest, Uplink};
pub use nic::Nic;
pub use place::Place;
pub use quota::{IoWeight, Throttled, WeightedDisk};
pub use rate_limit::{CLOUD_HYPERVISOR, FIRECRACKER, GUARD, Guarded, LimitedAt, RateLimit};
pub use setting::Setting;
pub use source::{CommandLineOption, Source};
pub use subject::{DeviceId, DeviceKind, GuestId, Subject};
pub use unread::{AS_ROOT, Remedy, Unread};
pub use way::{Hop, HopKind, way_shown};

/// Where a fact comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Provenance {
    /// A stored run.
    Run {
        /// Its number.
        run: i64,
    },
    /// The settings of a running guest.
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
    /// The source alone: `virsh dumpxml db1`.
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
    /// Cache mode, AIO engine, or both.
    CacheAio,
    /// The I/O thread alone.
    Iothread,
    /// Queues, discard, zeroes: [`crate::cell::Options`].
    Options,
    /// The workload's queue depth alone.
    Depth,
    /// How the workload submits its requests alone: libaio, io_uring.
    Engine,
    /// Whether the workload uses its side's page cache, alone.
    PageCache,
    /// The network device alone.
    Nic,
    /// One setting of the cell, alone.
    Setting,
    /// The pinning of its actors, alone.
    Pins,
}

/// Gain of one cell over another of the same side that differs in one thing, paired by round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// What differs.
    pub changed: Changed,
    /// The cell before the change.
    pub before: Cell,
    /// The cell after the change.
    pub after: Cell,
    /// After over before: above 1 is faster.
    pub ratio: Ratio,
    /// Whether it may be cited: it has the fewest pairs and boots, and each side that has a baseline has a converged
    /// share. The rule compares its interval with a threshold.
    pub citable: bool,
}

/// What a run measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Number of the run.
    pub run: i64,
    /// Whether the guests ran under software emulation.
    pub emulated: bool,
    /// Whether each workload was capped (`--gentle`): then shares are of that cap.
    #[serde(default)]
    pub capped: bool,
    /// vCPUs of a guest whose cell does not name a number.
    #[serde(default)]
    pub vcpus: u32,
    /// Rows of the run's table, of cells with one actor.
    pub cells: Vec<CellRow>,
    /// Their shares of native.
    pub shares: Vec<Share>,
    /// Gains between cells of the same side, in both directions: guest cells, and native cells. Of cells with several
    /// actors only gains by pinning.
    pub gains: Vec<Gain>,
    /// The workloads' traits.
    pub workloads: Vec<WorkloadTraits>,
    /// When a share counted as converged.
    pub convergence: Convergence,
}

/// Everything that the rules can use.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    /// The monitor whose settings the guest has; QEMU by default.
    pub vmm: Vmm,
    /// Disks of guests; empty for a run of vmio's own guests.
    pub disks: Vec<Disk>,
    /// Network devices of running guests.
    pub nics: Vec<Nic>,
    /// Processors of running guests, with their threads' affinity.
    pub processors: Vec<Processors>,
    /// A run; `None` when nothing was measured.
    pub measured: Option<Measured>,
}

impl Facts {
    /// Whether settings of any guest are known.
    pub fn has_settings(&self) -> bool {
        !(self.disks.is_empty() && self.nics.is_empty() && self.processors.is_empty())
    }
}

impl Measured {
    /// The row of a cell.
    pub fn cell(&self, cell: &Cell) -> Option<&CellRow> {
        self.cells.iter().find(|row| row.cell == *cell)
    }

    /// The share of a guest cell, if it may be cited.
    pub fn known_share(&self, cell: &Cell) -> Option<&Share> {
        self.shares.iter().find(|s| s.cell == *cell && s.converged)
    }

    /// What a workload does on a disk; `None` where it works on none.
    pub fn job(&self, workload: &str) -> Option<&DiskTraits> {
        self.workloads.iter().find(|w| w.name == workload)?.disk.as_ref()
    }

    /// The row of a share's baseline.
    pub fn baseline(&self, share: &Share) -> Option<&CellRow> {
        self.cells.iter().find(|c| c.key == share.baseline)
    }

    /// Citable gains of guest cells of one kind, whose interval lies wholly above the bound.
    pub fn sure_gains(&self, changed: Changed, bound: f64) -> impl Iterator<Item = &Gain> {
        let sure = move |g: &&Gain| g.changed == changed && g.citable && g.ratio.surely_above(bound);
        self.gains.iter().filter(|g| !g.before.is_native()).filter(sure)
    }

    /// The citable gain of one cell over another of the same side, guest or native.
    pub fn gain(&self, before: &Cell, after: &Cell) -> Option<&Gain> {
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
    // A cell that a page cache served is no measure of a disk.
    let rows = || summary.asked_for().filter(|row| !row.cell.is_warm());
    // A cell of several actors is no measure of one of them.
    let alone = || rows().filter(|row| row.cell.is_alone());
    let native = |share: &Share| share.cell.is_alone() && share.baseline == share.cell.natively().key();
    let of_native = |share: &&Share| !share.cell.is_warm() && native(share);
    let mut gains = Vec::new();
    for before in rows() {
        for after in rows() {
            // Each workload has its own cap: between two workloads the caps would be compared.
            let capped = run.environment.cap_ratio.is_some() && before.cell.workload() != after.cell.workload();
            if let Some(changed) = changed(&before.cell, &after.cell, &run.workloads)
                && (before.cell.is_alone() || changed == Changed::Pins)
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
            vcpus: run.environment.vcpus,
            cells: alone().cloned().collect(),
            shares: summary.shares.iter().filter(of_native).cloned().collect(),
            gains,
            workloads: run.workloads.clone(),
            convergence: summary.convergence,
        }),
        ..Facts::default()
    }
}

/// What differs between two cells of a side, if it is one thing.
pub(crate) fn changed(before: &Cell, after: &Cell, workloads: &[WorkloadTraits]) -> Option<Changed> {
    let (a, b) = (&before.lead, &after.lead);
    if before != after && unpinned(before) == unpinned(after) {
        return Some(Changed::Pins);
    }
    if before == after || a.side != b.side || before.beside != after.beside {
        return None;
    }
    if (a.start, a.duration) != (b.start, b.duration) {
        return None;
    }
    if before.settings != after.settings {
        let one = setting(&before.settings, &after.settings) && a == b;
        return one.then_some(Changed::Setting);
    }
    if a.workload != b.workload {
        let find = |name: &str| workloads.iter().find(|w| w.name == name)?.disk.as_ref();
        return (a.subject == b.subject).then(|| job(find(&a.workload)?, find(&b.workload)?)).flatten();
    }
    use cell::Subject as On;
    match (&a.subject, &b.subject) {
        (On::Disk { target, attachment, state }, On::Disk { target: other, attachment: after, state: found }) => {
            if state != found {
                return None;
            }
            if attachment == after {
                return Some(Changed::Target);
            }
            disk(attachment.as_ref()?, after.as_ref()?).filter(|_| target == other)
        }
        (
            On::Path { network, peer, nic, co_sender },
            On::Path { network: other, peer: end, nic: after, co_sender: also },
        ) => {
            let same = network == other && peer == end && co_sender == also;
            (same && nic.is_some() && after.is_some()).then_some(Changed::Nic)
        }
        _ => None,
    }
}

/// The cell without pinning.
fn unpinned(cell: &Cell) -> Cell {
    let mut free = cell.clone();
    free.actors_mut().for_each(|actor| actor.side.shape.pins.clear());
    free
}

/// Whether two cells differ in exactly one setting.
fn setting(a: &Settings, b: &Settings) -> bool {
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    names.into_iter().filter(|name| a.get(*name) != b.get(*name)).count() == 1
}

/// What differs between two disk workloads, if it is one thing.
fn job(x: &DiskTraits, y: &DiskTraits) -> Option<Changed> {
    let jobs = [
        (Changed::Depth, DiskTraits { depth: y.depth, ..x.clone() }),
        (Changed::Engine, DiskTraits { engine: y.engine.clone(), ..x.clone() }),
        (Changed::PageCache, DiskTraits { direct: y.direct, ..x.clone() }),
    ];
    // Two names of one workload: nothing differs.
    jobs.into_iter().find(|(_, job)| x != y && job == y).map(|(changed, _)| changed)
}

/// What differs between two attachments, if it is one thing.
fn disk(a: &Attachment, b: &Attachment) -> Option<Changed> {
    let ways = [
        (Changed::Driver, Attachment { driver: b.driver.clone(), ..a.clone() }),
        (Changed::CacheAio, Attachment { cache: b.cache, aio: b.aio, ..a.clone() }),
        (Changed::Iothread, Attachment { iothread: b.iothread, ..a.clone() }),
        (Changed::Options, Attachment { options: b.options.clone(), ..a.clone() }),
    ];
    ways.into_iter().find(|(_, way)| way == b).map(|(changed, _)| changed)
}

/// Gain of one cell over another in the same run, paired by round, by the figure that judges `before`'s workload;
/// `None` without a common round.
pub fn gain_ratio(run: &Run, before: &Cell, after: &Cell) -> Option<Ratio> {
    let judge = judge_of(&run.workloads, before);
    let of_round = pairs(&run.samples, (before, after), &run.study.repeat.convergence(), |s| judge.rising(s));
    paired_ratio(&of_round.into_iter().map(|(_, p)| p).collect::<Vec<Pair>>())
}

fn gain(run: &Run, summary: &Summary, changed: Changed, before: &CellRow, after: &CellRow) -> Option<Gain> {
    let ratio = gain_ratio(run, &before.cell, &after.cell)?;
    let rule = &summary.convergence;
    let enough = ratio.pairs >= rule.min_pairs && ratio.boots >= rule.min_boots;
    // A native cell, or any in a study without a baseline, has no share that could be unknown.
    let known = |cell: &Cell| {
        let compared = summary.baseline.of(cell).is_some_and(|base| base != *cell);
        !compared || summary.shares.iter().any(|s| s.cell == *cell && s.converged)
    };
    let citable = enough && known(&before.cell) && known(&after.cell);
    Some(Gain { changed, before: before.cell.clone(), after: after.cell.clone(), ratio, citable })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
