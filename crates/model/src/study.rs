//! A study: the matrix of cells to measure, how often, and within which budget. It is a TOML
//! file (`studies/*.toml`, keys in `docs/study.md`). This module holds its types; reading it is
//! [`parse`], its cells are [`cells`], their order in time [`schedule`], its price [`plan`].

pub mod cells;
pub mod control;
pub mod guard;
mod host_resource;
pub mod named;
mod only;
pub mod parse;
pub mod plan;
pub mod schedule;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::cell::{Actor, Aio, Arch, Baseline, Cache, Cell, Options, Shape, Side, State};
use crate::problem::TextError;
use crate::result::WorkloadTraits;
use crate::stats::Convergence;
use crate::stats::steady::MOST_ROUNDS;

pub use control::{Control, Controlled, Link, controls};
pub use guard::GuardPolicy;
pub use host_resource::{HostResource, OF_MEMORY};
pub use named::NamedCell;
pub use plan::{Plan, Rates};
pub use schedule::{DoneReason, Progress, SampleKey, Spent, Step, next};

/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes in a GiB.
pub const GIB: u64 = 1 << 30;
/// The part of a side's memory that what is warm in it takes: a quarter.
const WARM_PART: u64 = 4;
/// The least of it, where that is less.
const WARM_LEAST: u64 = 64 * MIB;

/// A study as it was read and checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// Short name, as typed on the command line.
    pub name: String,
    /// One line that says what it answers.
    pub title: String,
    /// What it follows or reproduces, for example `shafer2010, section 3.3`; may be empty.
    pub cites: String,
    /// What each cell is compared with.
    #[serde(default, skip_serializing_if = "Baseline::is_native")]
    pub baseline: Baseline,
    /// What both sides have.
    pub guest: Resources,
    /// How large the targets are; `None` where no cell is on a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// How often, until when.
    pub repeat: Repeat,
    /// Whose guests get control cells; `None`: nobody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Controlled>,
    /// Policies that cells name by the setting `guard`.
    #[serde(default, rename = "guard", skip_serializing_if = "BTreeMap::is_empty")]
    pub guards: BTreeMap<String, GuardPolicy>,
    /// The cells are the union of these products,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matrix: Vec<Matrix>,
    /// and of these, which name each actor.
    #[serde(default, rename = "cell", skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<NamedCell>,
}

/// A study as TOML text within another document.
pub mod as_text {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::Study;

    /// Writes it with every default.
    pub fn serialize<S: Serializer>(study: &Study, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&study.to_toml())
    }

    /// Reads what [`serialize`] wrote.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Study, D::Error> {
        let text = String::deserialize(from)?;
        toml::from_str(&text).map_err(|e| D::Error::custom(format!("its study cannot be read: {}", e.message())))
    }
}

/// What the guest has, and the native side is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Virtual CPUs, and cores of the native side.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
}

impl Resources {
    /// What a side has: what its shape says, else these.
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

/// Sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Size of a target in MiB.
    pub target_mib: u32,
}

/// How often each cell runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    /// Fewest pairs before a share may count as known.
    pub min_pairs: u32,
    /// Most pairs; a cell that has not converged by then is reported so.
    pub max_pairs: u32,
    /// Fewest boots before a share may count as known.
    pub min_boots: u32,
    /// Half width of the interval at which a cell is done, absolute: 0.05 is ±5 points.
    pub half_width: f64,
    /// The same as a part of the share itself, for shares so small that points say nothing; `None`: points alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width_ratio: Option<f64>,
    /// Measured seconds of a cell whose workload runs for a time.
    pub seconds: f64,
    /// The run ends after this many minutes of measuring.
    pub max_minutes: f64,
    /// The run ends after this many GiB have been written; `None` where no cell is on a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_gib_written: Option<f64>,
    /// Flash is brought into its steady state first: see [`crate::stats::steady`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steady_state: bool,
}

impl Repeat {
    /// Asks for steady state, with as many rounds as its specification allows for reaching it.
    pub fn ask_for_steady_state(&mut self) {
        self.steady_state = true;
        self.max_pairs = self.max_pairs.max(MOST_ROUNDS);
    }

    /// When a share counts as known.
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
}

/// A product of sides, subjects, workloads and settings. The subjects are of one sort.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Matrix {
    /// Entries of `guests/`; `native` may be left out where it is the baseline, which is added anyway.
    pub sides: Vec<String>,
    /// Shapes of the guests; none: the study's own.
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
    /// Entries of `settings/`, each with the values that it takes in turn.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Vec<String>>,
}

/// A product of disks. Native cells take the target only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Disks {
    /// Entries of `disks/targets/`.
    pub targets: Vec<String>,
    /// What is found on them; none: what each workload needs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<State>,
    /// Entries of `disks/drivers/`.
    pub drivers: Vec<String>,
    /// Cache modes.
    pub caches: Vec<Cache>,
    /// AIO engines.
    pub aios: Vec<Aio>,
    /// With and without an I/O thread.
    pub iothreads: Vec<bool>,
    /// What else is set.
    pub options: Vec<Options>,
}

/// A product of paths. Native cells take network and peer only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Paths {
    /// Entries of `nets/`.
    pub networks: Vec<String>,
    /// Other ends, by their names in the network.
    pub peers: Vec<String>,
    /// Device models that guests see their end by.
    pub nics: Vec<String>,
    /// Carried by the hypervisor, by the host's kernel.
    pub vhost: Vec<bool>,
    /// Queues; none: as the hypervisor likes.
    pub queues: Vec<u32>,
    /// Descriptors of the receive ring; none: as the hypervisor likes.
    pub rings: Vec<u32>,
}

/// Names of the entries of each extension point: this crate does not know them.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Of `guests/`.
    pub guests: Vec<String>,
    /// Of `disks/targets/`.
    pub targets: Vec<String>,
    /// Of `disks/drivers/`.
    pub drivers: Vec<String>,
    /// Of `nets/`.
    pub networks: Vec<String>,
    /// Those of them whose both ends are on the actor's own machine: guests see them by no card.
    pub inside: Vec<String>,
    /// Other ends that any of these names.
    pub peers: Vec<String>,
    /// Device models that guests can have.
    pub nics: Vec<String>,
    /// Of `settings/`, each with what reads a value of it and gives its one spelling, or says what is wrong.
    pub settings: Vec<SettingName>,
    /// Of `workloads/`.
    pub workloads: Vec<WorkloadName>,
    /// Workloads that are made from their names, beside those.
    pub workload_families: Vec<Family>,
    /// What a workload of either measures; `None` where that is not known here, and then nothing is refused for it.
    pub traits: Option<fn(&str) -> Option<WorkloadTraits>>,
}

/// A word, of a study or of a command line, that cannot be read: what is wrong, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WordError(pub String);

/// An entry of `settings/`.
#[derive(Debug, Clone, Copy)]
pub struct SettingName {
    /// Its name.
    pub name: &'static str,
    /// The one spelling of a value, or what is wrong with it.
    pub value: fn(&str) -> Result<String, WordError>,
}

/// An entry of `workloads/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadName {
    /// Its name.
    pub name: String,
    /// On what it works.
    pub works_on: SubjectKind,
}

/// The kinds of subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubjectKind {
    /// A disk.
    Disk,
    /// A path of a network.
    Path,
    /// The machine itself.
    Machine,
}

impl SubjectKind {
    /// That of a subject.
    pub fn of(subject: &crate::cell::Subject) -> Self {
        use crate::cell::Subject;
        match subject {
            Subject::Disk { .. } => SubjectKind::Disk,
            Subject::Path { .. } => SubjectKind::Path,
            Subject::Machine => SubjectKind::Machine,
        }
    }

    /// `a disk`.
    pub fn word(self) -> &'static str {
        match self {
            SubjectKind::Disk => "a disk",
            SubjectKind::Path => "a path of a network",
            SubjectKind::Machine => "the machine itself",
        }
    }
}

/// Names of a family, which are too many for a list.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// How they are made, for messages and help: `<seq|rand>-<read|write>-…`.
    pub grammar: &'static str,
    /// One of them.
    pub example: &'static str,
    /// `None`: the word is nothing like this family; `Some(Err(why))`: it is meant to be of the
    /// family, but is not; `Some(Ok(()))`: it is.
    pub recognise: fn(&str) -> Option<Result<(), WordError>>,
    /// On what its members work.
    pub works_on: SubjectKind,
}

impl Names {
    /// The figure that a workload is judged by and another one does not measure, as far as both are known.
    pub fn lacks(&self, workload: &str, judged: &str) -> Option<String> {
        let traits = |name: &str| self.traits.and_then(|of| of(name));
        let judge = traits(judged)?.judge()?.clone();
        (!traits(workload)?.figures.contains(&judge)).then_some(judge.name)
    }

    /// On what a workload works, one of the list or of a family; `None` where it is neither.
    pub fn works_on(&self, workload: &str) -> Option<SubjectKind> {
        let listed = self.workloads.iter().find(|w| w.name == workload).map(|w| w.works_on);
        let family = || self.workload_families.iter().find(|f| (f.recognise)(workload) == Some(Ok(())));
        listed.or_else(|| family().map(|f| f.works_on))
    }
}

impl Study {
    /// Reads a study. `file` is only named in the problems.
    pub fn parse(file: &str, text: &str, names: &Names) -> Result<Study, TextError> {
        parse::parse(file, text, names)
    }

    /// The study as TOML again, every default written out; [`Study::parse`] reads it back.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a study has only strings, numbers and lists of them")
    }

    /// Whether it has native cells alone: no guest is booted.
    pub fn is_native_only(&self) -> bool {
        self.cells().iter().all(Cell::is_native)
    }

    /// Whether no guest is booted that has a machine of its own, and so an image: its guests are containers, if any.
    pub fn boots_nothing(&self) -> bool {
        self.cells().iter().flat_map(Cell::actors).all(|actor| actor.side.shares_kernel())
    }

    /// Whether any cell is on a disk: then there is a place for it, and a size, and a write budget.
    pub fn has_disks(&self) -> bool {
        self.named_cells().any(|cell| cell.targets().next().is_some())
    }

    /// Whether there is a native cell on a disk, which may become steady.
    pub fn can_become_steady(&self) -> bool {
        self.cells().iter().any(|cell| cell.is_native() && cell.targets().next().is_some())
    }

    /// Whether a cell is set against another one.
    pub fn compares(&self, cell: &Cell) -> bool {
        self.baseline.of(cell).is_some_and(|baseline| baseline != *cell)
    }

    /// Memory of the largest guest, in MiB; the native side is never given more.
    pub fn most_memory_mib(&self) -> u32 {
        let own = |cell: Cell| cell.actors().filter_map(|a| a.side.shape.memory_mib).max();
        self.named_cells().filter_map(own).fold(self.guest.memory_mib, u32::max)
    }

    /// What the processors of its guests understand; empty where it has no guest with a machine.
    pub fn arches(&self) -> BTreeSet<Arch> {
        let guests = |cell: Cell| {
            let own: Vec<Arch> = cell.actors().filter(|a| !a.side.shares_kernel()).map(|a| a.side.shape.arch).collect();
            own
        };
        self.named_cells().flat_map(guests).collect()
    }

    /// Bytes that a buffered workload (`dd`) moves: twice the memory of the largest side, so that most
    /// of it cannot stay in the page cache, and never more than the target holds.
    /// [`Study::parse`] refuses a target smaller than twice the memory.
    pub fn buffered_bytes(&self) -> u64 {
        (2 * u64::from(self.most_memory_mib()) * MIB).min(self.target_bytes())
    }

    /// Bytes of its target that a page cache is to hold for an actor. In the host's below a guest that is all of it; in
    /// the one of its own side so much that the memory has room for all else, and as much as fio needs.
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
