//! A study: the matrix of cells to measure, how often, and within which budget. It is a TOML
//! file (`studies/*.toml`, keys in `docs/study.md`). This module holds its types; reading it is
//! [`parse`], its cells are [`cells`], their order in time [`schedule`], its price [`plan`].

pub mod cells;
pub mod control;
pub mod parse;
pub mod plan;
pub mod schedule;

use serde::{Deserialize, Serialize};

use crate::setup::{Aio, Cache, Options};
use crate::stats::Convergence;
use crate::stats::steady::MOST_ROUNDS;

pub use crate::problem::Problem;
pub use control::{Control, Controlled, Link, controls};
pub use parse::StudyError;
pub use plan::{Plan, Rates};
pub use schedule::{DoneReason, Progress, SampleKey, Spent, Step, next};

/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes in a GiB.
pub const GIB: u64 = 1 << 30;

/// A study as it was read and checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// Short name, as typed on the command line.
    pub name: String,
    /// One line that says what it answers.
    pub title: String,
    /// What it follows or reproduces, for example `shafer2010, section 3.3`; may be empty.
    pub cites: String,
    /// What both sides have.
    pub guest: Resources,
    /// How large the targets are.
    pub size: Size,
    /// How often, until when.
    pub repeat: Repeat,
    /// Whose guests get control cells; `None`: nobody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Controlled>,
    /// The cells are the union of these products.
    pub matrix: Vec<Matrix>,
}

/// What the guest has, and the native side is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Virtual CPUs, and cores of the native side.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
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
    /// Measured seconds of a cell whose workload runs for a time.
    pub seconds: f64,
    /// The run ends after this many minutes of measuring.
    pub max_minutes: f64,
    /// The run ends after this many GiB have been written.
    pub max_gib_written: f64,
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
        Convergence { half_width: self.half_width, min_pairs: self.min_pairs, min_boots: self.min_boots }
    }

    /// Rounds that share a boot: the most with which the fewest pairs still use the fewest boots.
    pub fn rounds_per_boot(&self) -> u32 {
        match self.min_boots {
            0 | 1 => self.min_pairs.max(1),
            boots => (self.min_pairs.div_ceil(boots - 1)).saturating_sub(1).max(1),
        }
    }
}

/// A product of settings. Native cells take target and workload only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    /// Entries of `targets/`.
    pub targets: Vec<String>,
    /// Entries of `guests/`; `native` may be left out, the baseline is added anyway.
    pub guests: Vec<String>,
    /// Entries of `drivers/`.
    pub drivers: Vec<String>,
    /// Cache modes.
    pub caches: Vec<Cache>,
    /// AIO engines.
    pub aios: Vec<Aio>,
    /// With and without an I/O thread.
    pub iothreads: Vec<bool>,
    /// What else is set.
    pub options: Vec<Options>,
    /// Entries of `workloads/`.
    pub workloads: Vec<String>,
}

/// Names of the entries of each extension point: this crate does not know them.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Of `guests/`.
    pub guests: Vec<String>,
    /// Of `targets/`.
    pub targets: Vec<String>,
    /// Of `drivers/`.
    pub drivers: Vec<String>,
    /// Of `workloads/`.
    pub workloads: Vec<String>,
    /// Workloads that are made from their names, beside those.
    pub workload_family: Option<Family>,
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
    pub recognise: fn(&str) -> Option<Result<(), String>>,
}

impl Study {
    /// Reads a study. `file` is only named in the problems.
    pub fn parse(file: &str, text: &str, names: &Names) -> Result<Study, StudyError> {
        parse::parse(file, text, names)
    }

    /// The study as TOML again, every default written out; [`Study::parse`] reads it back.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a study has only strings, numbers and lists of them")
    }

    /// Whether it has native cells alone: no guest is booted, and there is no share to state.
    pub fn is_native_only(&self) -> bool {
        self.matrix.iter().all(|m| m.guests.iter().all(|g| g == "native"))
    }

    /// Bytes that a buffered workload (`dd`) moves: twice the memory of its side, so that most
    /// of it cannot stay in the page cache, and never more than the target holds.
    /// [`Study::parse`] refuses a target smaller than twice the memory.
    pub fn buffered_bytes(&self) -> u64 {
        (2 * u64::from(self.guest.memory_mib) * MIB).min(self.target_bytes())
    }

    /// Size of a target in bytes.
    pub fn target_bytes(&self) -> u64 {
        u64::from(self.size.target_mib) * MIB
    }
}
