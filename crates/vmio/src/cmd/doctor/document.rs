//! What this host has and lacks, for programs.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::facts::Unread;
use vmio_rig::guests::Accelerator;

/// What this host has and lacks for each thing that vmio can do.
#[derive(Serialize, JsonSchema)]
pub struct Document<'a> {
    /// Version of this document.
    pub(super) schema_version: &'static str,
    /// Whether nothing is missing that measuring needs, and nothing of it failed when it was tried.
    pub(super) ready: bool,
    /// What vmio can do.
    pub(super) abilities: Vec<AbilityRow>,
    /// What `--try` tries, and what came of it.
    pub(super) tries: Vec<TryRow<'a>>,
    /// What guests run on here, as the last real boot found it; `None` before the first one.
    pub(super) accelerator: Option<&'a Accelerator>,
    /// Guests that run here beside vmio's own.
    pub(super) other_guests: Vec<String>,
    /// Why there may be more of them; `None` where all could be seen.
    pub(super) other_guests_unseen: Option<&'a str>,
    /// Where scratch files go without `--on`.
    pub(super) scratch_directory: &'a Path,
    /// Where targets can be made beside directories.
    pub(super) places: PlaceRows<'a>,
    /// What runs guests here, for `vmio scan` and `vmio top`.
    pub(super) looks_at: Vec<WatchedRow<'a>>,
    /// Where runs, images and journals are kept.
    pub(super) state_directory: &'a Path,
    /// Runs in the store; `None` where it cannot be read.
    pub(super) stored_runs: Option<usize>,
    /// Why it cannot be read.
    pub(super) store_error: Option<&'a str>,
}

/// Something that vmio can do.
#[derive(Serialize, JsonSchema)]
pub(super) struct AbilityRow {
    /// Kind of thing: `image`, `guest`, `driver`, `target`, `network`, `nic`, `setting`, `workload`, `guard`,
    /// `probe`.
    pub(super) point: &'static str,
    /// Its name.
    pub(super) name: String,
    /// What it is.
    pub(super) about: &'static str,
    /// Whether nothing is missing for it.
    pub(super) ready: bool,
    /// `ready`: it worked here; `untried`: nothing is missing; `lacking`.
    pub(super) state: &'static str,
    /// What is missing for it.
    pub(super) missing: Vec<Lacking>,
}

/// A requirement that is not met.
#[derive(Serialize, JsonSchema)]
pub(super) struct Lacking {
    /// Its name.
    pub(super) name: &'static str,
    /// What was found instead.
    pub(super) why: String,
    /// What would meet it.
    pub(super) mend: String,
}

/// Something that `--try` tries.
#[derive(Serialize, JsonSchema)]
pub(super) struct TryRow<'a> {
    /// Its name.
    pub(super) name: &'static str,
    /// What is done.
    pub(super) about: &'static str,
    /// Whether measuring a disk needs it.
    pub(super) needed: bool,
    /// `found`: nothing is missing, not tried; `lacking`: not tried, since something is missing, or what it builds on
    /// did not work; `worked`; `failed`. Of KVM also what an earlier boot of a guest found.
    pub(super) state: &'static str,
    /// How long it took; `None` where it did not work or was not tried now.
    pub(super) seconds: Option<f64>,
    /// What is missing, what it waits for, or how it failed.
    pub(super) why: Option<&'a str>,
    /// What would help.
    pub(super) mend: Option<&'a str>,
}

/// Where targets can be made beside directories.
#[derive(Serialize, JsonSchema)]
pub(super) struct PlaceRows<'a> {
    /// Places of this host.
    pub(super) there: Vec<PlaceRow>,
    /// Kinds of places that this host has no tools for.
    pub(super) lacking: Vec<LackingPlace<'a>>,
}

/// A place.
#[derive(Serialize, JsonSchema)]
pub(super) struct PlaceRow {
    /// As `--on` names it.
    pub(super) name: String,
    /// Whether it can be used.
    pub(super) ready: bool,
    /// What is left there, or why it cannot be used, in words.
    pub(super) state: String,
}

/// A kind of place without its tools.
#[derive(Serialize, JsonSchema)]
pub(super) struct LackingPlace<'a> {
    /// How `--on` would name one.
    pub(super) form: &'static str,
    /// What is missing, and what would help.
    pub(super) why: &'a str,
}

/// A manager, or a kind of guest, that was looked for.
#[derive(Serialize, JsonSchema)]
pub(super) struct WatchedRow<'a> {
    /// `manager` or `guest`.
    pub(super) point: &'static str,
    /// Its name.
    pub(super) name: &'static str,
    /// What it is.
    pub(super) about: &'static str,
    /// How many of its guests run.
    pub(super) guests: usize,
    /// What could not be read.
    pub(super) unread: &'a [Unread],
}
