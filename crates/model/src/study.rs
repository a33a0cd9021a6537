//! A study: the cells to measure, their repeats, and the budget. It is a TOML file (`studies/*.toml`, keys in
//! `docs/study.md`). This module has its types; [`parse`] parses it, [`cells`] lists its cells, [`schedule`] orders
//! them, [`plan`] estimates its cost.

pub mod cells;
pub mod control;
pub mod guard;
mod host_resource;
pub mod named;
mod names;
mod only;
pub mod parse;
pub mod plan;
pub mod schedule;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::cell::{Actor, Aio, Arch, Baseline, Cache, Cell, Options, Shape, Side, State, Subject};
use crate::problem::TextError;
use crate::stats::Convergence;
use crate::stats::steady::MOST_ROUNDS;

pub use control::{Control, Controlled, Link, controls};
pub use guard::GuardPolicy;
pub use host_resource::{HostResource, OF_MEMORY};
pub use named::NamedCell;
pub use names::{Family, Names, SettingName, SubjectKind, WordError, WorkloadName};
pub use plan::{Plan, Rates};
pub use schedule::{DoneReason, Progress, SampleKey, Spent, Step, next};

/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes in a GiB.
pub const GIB: u64 = 1 << 30;
/// Share of a side's memory for warm data: a quarter.
const WARM_PART: u64 = 4;
/// Least amount of warm data.
const WARM_LEAST: u64 = 64 * MIB;

/// A parsed and checked study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// Short name, as typed on the command line.
    pub name: String,
    /// Its question in one line.
    pub title: String,
    /// What it reproduces, for example `shafer2010, section 3.3`; may be empty.
    pub cites: String,
    /// Whether CPU time is told by component, by samples of the processors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub components: bool,
    /// Whether guests count when requests are issued to their disks and completed, for the layers of a request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub layers: bool,
    /// Baseline of the cells.
    #[serde(default, skip_serializing_if = "Baseline::is_native")]
    pub baseline: Baseline,
    /// Processors and memory of both sides.
    pub guest: Resources,
    /// Size of the targets; `None` where no cell is on a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Repeats and budget.
    pub repeat: Repeat,
    /// Workloads with control cells; `None` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Controlled>,
    /// Policies that cells name in the setting `guard`.
    #[serde(default, rename = "guard", skip_serializing_if = "BTreeMap::is_empty")]
    pub guards: BTreeMap<String, GuardPolicy>,
    /// Cells as products,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matrix: Vec<Matrix>,
    /// and cells with each actor named.
    #[serde(default, rename = "cell", skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<NamedCell>,
}

/// A study as TOML text in another document.
pub mod as_text {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::Study;

    /// Writes it with all defaults.
    pub fn serialize<S: Serializer>(study: &Study, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&study.to_toml())
    }

    /// Parses the output of [`serialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Study, D::Error> {
        let text = String::deserialize(from)?;
        toml::from_str(&text).map_err(|e| D::Error::custom(format!("its study cannot be read: {}", e.message())))
    }
}

/// Resources of the guest, to which the native side is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Virtual CPUs, and cores of the native side.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
}

impl Resources {
    /// Resources of a side: its shape's, else these.
    #[must_use]
    pub fn of(&self, side: &Side) -> Self {
        let shape = &side.shape;
        Self { vcpus: shape.vcpus.unwrap_or(self.vcpus), memory_mib: shape.memory_mib.unwrap_or(self.memory_mib) }
    }

    /// The memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        u64::from(self.memory_mib) * MIB
    }
}

/// Sizes of targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Size of a target in MiB.
    pub target_mib: u32,
}

/// Repeats of cells, and the run's budget.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    /// Fewest pairs of a converged share.
    pub min_pairs: u32,
    /// Most pairs; a cell that has not converged by then is reported so.
    pub max_pairs: u32,
    /// Fewest boots of a converged share.
    pub min_boots: u32,
    /// Half width of the interval at which a cell is converged, absolute: 0.05 is ±5 points.
    pub half_width: f64,
    /// The same relative to the share, for very small shares; `None` for the absolute width only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width_ratio: Option<f64>,
    /// Measured seconds of a cell whose workload runs for a time.
    pub seconds: f64,
    /// The same for cells on the machine itself, whose figures scatter little; `None` for [`Repeat::seconds`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_seconds: Option<f64>,
    /// The run ends after this many minutes of measuring.
    pub max_minutes: f64,
    /// The run ends after this many GiB have been written; `None` where no cell is on a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_gib_written: Option<f64>,
    /// Bring flash into its steady state first: see [`crate::stats::steady`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steady_state: bool,
}

/// How long the machine is left alone before it is measured at rest, in seconds: a meter's average still holds what was
/// before.
pub const SETTLE_SECONDS: f64 = 2.0;
/// The shortest and the longest phase at rest, in seconds; in between it is as long as a cell.
const REST_SECONDS: (f64, f64) = (3.0, 10.0);

/// Rounds of a boot after the fewest boots: with more the boots would be few, and the interval wide for want of them.
const LATER_ROUNDS: u32 = 2;

impl Repeat {
    /// Requires steady state, with the rounds that its specification allows.
    pub fn ask_for_steady_state(&mut self) {
        self.steady_state = true;
        self.max_pairs = self.max_pairs.max(MOST_ROUNDS);
    }

    /// When a share is converged.
    pub fn convergence(&self) -> Convergence {
        let Repeat { half_width, half_width_ratio, min_pairs, min_boots, .. } = *self;
        Convergence { half_width, half_width_ratio, min_pairs, min_boots }
    }

    /// Rounds that share a boot: the most with which the fewest pairs still use the fewest boots.
    pub fn rounds_per_boot(&self) -> u32 {
        match self.min_boots {
            0 | 1 => self.min_pairs.max(1),
            boots => (self.min_pairs.div_ceil(boots - 1)).saturating_sub(1).max(1),
        }
    }

    /// Rounds of a boot before which so many boots were: once the fewest boots are there, another one adds little.
    pub fn rounds_of_boot(&self, before: u32) -> u32 {
        if before < self.min_boots { self.rounds_per_boot() } else { self.rounds_per_boot().max(LATER_ROUNDS) }
    }

    /// Boots that so many rounds take.
    pub fn boots_of(&self, rounds: u32) -> u32 {
        let first = self.min_boots.saturating_mul(self.rounds_per_boot());
        let later = rounds.saturating_sub(first).div_ceil(self.rounds_of_boot(self.min_boots));
        rounds.min(first).div_ceil(self.rounds_per_boot()) + later
    }

    /// Seconds for which a power meter measures the machine at rest, each time.
    pub fn rest_seconds(&self) -> f64 {
        let (least, most) = REST_SECONDS;
        self.seconds.clamp(least, most)
    }

    /// The same with the time for which the machine is left alone before.
    pub fn rest_phase_seconds(&self) -> f64 {
        SETTLE_SECONDS + self.rest_seconds()
    }

    /// Measured seconds of a workload on this subject that runs for a time.
    pub fn seconds_on(&self, subject: &Subject) -> f64 {
        match subject {
            Subject::Machine => self.machine_seconds.unwrap_or(self.seconds),
            Subject::Disk { .. } | Subject::Path { .. } => self.seconds,
        }
    }
}

/// A product of sides, subjects of one kind, workloads and settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Matrix {
    /// Entries of `guests/`; `native` may be omitted where it is the baseline, which is always added.
    pub sides: Vec<String>,
    /// Shapes of the guests; empty for the study's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<Shape>,
    /// Disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disks: Option<Disks>,
    /// Paths of networks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paths: Option<Paths>,
    /// The machine itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub machine: bool,
    /// Entries of `workloads/`.
    pub workloads: Vec<String>,
    /// Entries of `settings/` with their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Vec<String>>,
}

/// A product of disks. Native cells use the target only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Disks {
    /// Entries of `disks/targets/`.
    pub targets: Vec<String>,
    /// States; empty for each workload's default.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<State>,
    /// Entries of `disks/drivers/`.
    pub drivers: Vec<String>,
    /// Cache modes.
    pub caches: Vec<Cache>,
    /// AIO engines.
    pub aios: Vec<Aio>,
    /// With or without an I/O thread.
    pub iothreads: Vec<bool>,
    /// Other options.
    pub options: Vec<Options>,
}

/// A product of paths. Native cells use network and peer only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Paths {
    /// Entries of `nets/`.
    pub networks: Vec<String>,
    /// Peers, by their names in the network.
    pub peers: Vec<String>,
    /// Card models of guests.
    pub nics: Vec<String>,
    /// Packets moved by the hypervisor, or by the host's kernel.
    pub vhost: Vec<bool>,
    /// Numbers of queues; empty for the hypervisor's default.
    pub queues: Vec<u32>,
    /// Receive ring sizes; empty for the hypervisor's default.
    pub rings: Vec<u32>,
}

impl Study {
    /// Parses a study. `file` is for messages only.
    pub fn parse(file: &str, text: &str, names: &Names) -> Result<Study, TextError> {
        parse::parse(file, text, names)
    }

    /// The study as TOML with all defaults, which [`Study::parse`] reads back.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a study has only strings, numbers and lists of them")
    }

    /// Whether it has native cells only, so that no guest is booted.
    pub fn is_native_only(&self) -> bool {
        self.cells().iter().all(Cell::is_native)
    }

    /// Whether no guest with a machine and an image is booted: its guests are containers, if any.
    pub fn boots_nothing(&self) -> bool {
        self.cells().iter().flat_map(Cell::actors).all(|actor| actor.side.shares_kernel())
    }

    /// Whether anybody works on this host.
    pub fn uses_host(&self) -> bool {
        self.cells().iter().flat_map(Cell::actors).any(|actor| !actor.side.is_afar())
    }

    /// Whether any cell is on a disk, so that it has a place, a size and a write budget.
    pub fn has_disks(&self) -> bool {
        self.named_cells().any(|cell| cell.targets().next().is_some())
    }

    /// Whether a native cell is on a disk, which may become steady.
    pub fn can_become_steady(&self) -> bool {
        self.cells().iter().any(|cell| cell.is_native() && cell.targets().next().is_some())
    }

    /// Whether a cell has a baseline other than itself.
    pub fn compares(&self, cell: &Cell) -> bool {
        self.baseline.of(cell).is_some_and(|baseline| baseline != *cell)
    }

    /// Memory of the largest guest, in MiB; the native side never has more.
    pub fn most_memory_mib(&self) -> u32 {
        let own = |cell: Cell| cell.actors().filter_map(|a| a.side.shape.memory_mib).max();
        self.named_cells().filter_map(own).fold(self.guest.memory_mib, u32::max)
    }

    /// Instruction sets of its guests; empty without a guest that has a machine.
    pub fn arches(&self) -> BTreeSet<Arch> {
        let guests = |cell: Cell| {
            let own: Vec<Arch> = cell.actors().filter(|a| !a.side.shares_kernel()).map(|a| a.side.shape.arch).collect();
            own
        };
        self.named_cells().flat_map(guests).collect()
    }

    /// Bytes that a buffered workload (`dd`) moves: twice the memory of the largest side, so that most of it cannot
    /// stay in the page cache, and at most the target's size. [`Study::parse`] refuses a target smaller than twice the
    /// memory.
    pub fn buffered_bytes(&self) -> u64 {
        (2 * u64::from(self.most_memory_mib()) * MIB).min(self.target_bytes())
    }

    /// Bytes of its target that a cache must hold for an actor: all of it in one below a guest or on flash; in its own
    /// side's as much as leaves memory for everything else, and at least what fio needs.
    pub fn warm_bytes(&self, actor: &Actor) -> u64 {
        let part = self.guest.of(&actor.side).memory_bytes() / WARM_PART / MIB * MIB;
        let most = if actor.is_warm_below() { u64::MAX } else { part.max(WARM_LEAST) };
        most.min(self.target_bytes())
    }

    /// Size of a target in bytes; 0 where no cell is on a disk.
    pub fn target_bytes(&self) -> u64 {
        self.size.map_or(0, |size| u64::from(size.target_mib) * MIB)
    }
}
