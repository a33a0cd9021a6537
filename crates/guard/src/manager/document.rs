//! What a guard that runs says of itself: `vmio guard status --json`, and what metrics and dashboard are made of.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmio_model::control::Allocator;
use vmio_model::policy::Policy;
use vmio_model::policy::pool::called;
use vmio_model::problem::Problem;

use crate::core::PoolStatus;
use crate::daemon;
use crate::demand::Demand;
use crate::desired::Identity;
use crate::groups::{GuestStatus, State};
use crate::interface::DiscoveredInterface;
use crate::memory;
use crate::observed::Observed;

mod delay;
mod guest_memory;
mod local;
mod pool;
mod settings;

pub use delay::DelayDocument;
pub use guest_memory::MemoryDocument;
pub use local::{LocalDocument, local_note};
use pool::Known;
pub use pool::{ExcessDocument, FlowDocument, MemberDocument, OtherLimitDocument, PoolDocument, StageDocument};
pub use settings::SettingsDocument;

/// Version of this document; fields are only added within a major version.
pub const SCHEMA_VERSION: &str = "1.0";

/// A guard that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of this document.
    pub schema_version: String,
    /// Version of the vmio that runs it.
    pub vmio_version: String,
    /// What puts limits in force.
    pub plane: String,
    /// Who sets the limits: `exact`, `exact-loop` or `dba`.
    #[serde(default = "exact")]
    pub algorithm: String,
    /// What `dba` counts as a member's traffic: `passed` or `offered`; null of the others.
    #[serde(default)]
    pub measures: Option<String>,
    /// When it was started, in seconds since the epoch.
    pub started_unix_seconds: f64,
    /// The policy.
    pub policy: PolicyStatus,
    /// The loop.
    #[serde(rename = "loop")]
    pub loops: LoopStatus,
    /// How fast new interfaces got their limits.
    pub appeared: Appeared,
    /// Each direction of each uplink that is in force.
    pub pools: Vec<PoolDocument>,
    /// Guests that are owed something of processors and memory.
    pub guests: Vec<GuestDocument>,
    /// Memory of guests whose classes have a `memory_min`.
    #[serde(default)]
    pub memory: Vec<MemoryDocument>,
    /// Moves of guests' memory since the start.
    #[serde(default)]
    pub memory_moves_total: u64,
    /// What deserves a word.
    pub notes: Vec<String>,
    /// Uplinks that are set down, so that nothing passes them.
    #[serde(default)]
    pub uplinks_down: Vec<String>,
    /// What goes wrong now.
    pub trouble: Option<String>,
    /// What was seen by a guard that only observes (`vmio guard run --observe`); null of one that enforces.
    #[serde(default)]
    pub observed: Option<Observed>,
}

/// All that there was before it was said.
fn exact() -> String {
    Allocator::Exact.word().to_owned()
}

/// The policy in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyStatus {
    /// Counts each change since the start.
    pub revision: u64,
    /// Files that it was read from.
    pub files: Vec<String>,
    /// Whether the files have been changed since: `vmio guard apply` puts them in force.
    pub files_differ: bool,
    /// What was set over them (`vmio guard set`), as TOML; empty where nothing was.
    pub over: String,
    /// The change in force is taken back in so many seconds unless it is confirmed.
    pub taken_back_in_seconds: Option<f64>,
    /// Why the last change was refused; null when it was not.
    pub refused: Option<String>,
    /// Warnings of the policy.
    pub warnings: Vec<String>,
}

/// The loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopStatus {
    /// Its period.
    pub period_seconds: f64,
    /// Periods since the start.
    pub periods_total: u64,
    /// Time that the last one took.
    pub last_seconds: f64,
    /// The longest so far.
    pub longest_seconds: f64,
    /// Changes by other programs that were corrected: each queue, class, filter and limit of a control group is one, so
    /// that one interruption (of a pool: `interruptions_total`) is often several.
    pub corrected_changes_total: u64,
    /// Time that all took.
    #[serde(default)]
    pub seconds_total: f64,
    /// Of all, how many took at most so long; the shortest time first, each with those before it.
    #[serde(default)]
    pub buckets: Vec<Bucket>,
}

/// How many periods took at most so long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bucket {
    /// So long.
    pub at_most_seconds: f64,
    /// So many.
    pub total: u64,
}

/// Times from an interface's appearing to its limit in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Appeared {
    /// Since the start.
    pub total: u64,
    /// Median of the last 1,000; null where there was none.
    pub p50_seconds: Option<f64>,
    /// 99th percentile of the last 1,000.
    pub p99_seconds: Option<f64>,
    /// Sum of all.
    #[serde(default)]
    pub seconds_total: f64,
}

/// A guest that is owed something besides the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GuestDocument {
    /// Its name.
    pub guest: String,
    /// What it is owed.
    pub limits: Vec<LimitDocument>,
}

/// A limit of a guest's control group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitDocument {
    /// The key of the class: `cpu_weight`, `cpu_max`, `memory_max`.
    pub key: String,
    /// As the policy has it; null where classes of the guest dispute it.
    pub wanted: Option<String>,
    /// The file that it is written to; null where it is not in force.
    pub file: Option<String>,
    /// What is there.
    pub value: Option<String>,
    /// What comes back when it is taken off.
    pub before: Option<String>,
    /// Why it is not in force; null where it is.
    pub why_not: Option<String>,
}

/// What a status is made of.
pub(super) struct StatusParts<'a> {
    pub plane: &'static str,
    pub allocator: Allocator,
    pub started: Duration,
    pub revision: u64,
    pub files: Vec<String>,
    pub files_differ: bool,
    pub over: &'a str,
    pub confirm: Option<Duration>,
    pub warnings: &'a [Problem],
    pub policy: &'a Policy,
    pub loops: &'a daemon::Status,
    pub pools: Vec<PoolDocument>,
    pub local_note: Option<String>,
    pub appeared: &'a [Duration],
    pub appeared_in_all: u64,
    pub appeared_time: Duration,
    pub trouble: Option<&'a str>,
    pub refused: Option<&'a str>,
    pub groups: &'a [GuestStatus],
    pub groups_put_right: u64,
    pub group_notes: &'a [String],
    pub memory: &'a memory::Status,
    pub observed: Option<Observed>,
    pub uplinks_down: Vec<String>,
}

/// The pools that were read: their names are moved, since there may be thousands.
pub(super) fn pools(
    read: Vec<PoolStatus>,
    policy: &Policy,
    demand: &Demand,
    found: &[DiscoveredInterface],
    identities: &BTreeMap<String, Identity>,
) -> Vec<PoolDocument> {
    let of_members = Known { guests: guests(found), identities };
    read.into_iter().map(|pool| PoolDocument::of(pool, policy, demand, &of_members)).collect()
}

/// The note on what their members send beside the uplink.
pub(super) fn note(read: &[PoolStatus], policy: &Policy) -> Option<String> {
    local_note(&local::exceeded(read, policy))
}

pub(super) fn status(known: StatusParts<'_>) -> Status {
    let StatusParts { policy, loops, .. } = known;
    let mut appeared = known.appeared.to_vec();
    appeared.sort_unstable();
    // The nearest rank.
    let quantile = |part: usize| {
        let rank = (appeared.len() * part).div_ceil(100).max(1) - 1;
        appeared.get(rank).map(Duration::as_secs_f64)
    };
    let notes = loops.notes.iter().chain(known.group_notes).chain(&known.memory.notes);
    Status {
        schema_version: SCHEMA_VERSION.to_owned(),
        vmio_version: env!("CARGO_PKG_VERSION").to_owned(),
        plane: known.plane.to_owned(),
        algorithm: known.allocator.word().to_owned(),
        measures: known.allocator.measures().map(|measures| measures.word().to_owned()),
        started_unix_seconds: known.started.as_secs_f64(),
        policy: PolicyStatus {
            revision: known.revision,
            files: known.files,
            files_differ: known.files_differ,
            over: known.over.to_owned(),
            taken_back_in_seconds: known.confirm.map(|left| left.as_secs_f64()),
            refused: known.refused.map(str::to_owned),
            warnings: known.warnings.iter().map(ToString::to_string).collect(),
        },
        loops: LoopStatus {
            period_seconds: policy.guard.period.as_secs_f64(),
            periods_total: loops.ticks,
            last_seconds: loops.tick_time.as_secs_f64(),
            longest_seconds: loops.longest_tick_time.as_secs_f64(),
            corrected_changes_total: loops.put_right + known.groups_put_right,
            seconds_total: loops.tick_times.sum.as_secs_f64(),
            buckets: loops
                .tick_times
                .buckets()
                .map(|(at_most_seconds, total)| Bucket { at_most_seconds, total })
                .collect(),
        },
        appeared: Appeared {
            total: known.appeared_in_all,
            p50_seconds: quantile(50),
            p99_seconds: quantile(99),
            seconds_total: known.appeared_time.as_secs_f64(),
        },
        pools: known.pools,
        guests: known.groups.iter().map(guest).collect(),
        memory: known.memory.guests.iter().map(MemoryDocument::of).collect(),
        memory_moves_total: known.memory.moves,
        notes: notes.cloned().chain(known.local_note).collect(),
        uplinks_down: known.uplinks_down,
        trouble: known.trouble.map(str::to_owned),
        observed: known.observed,
    }
}

/// The guest behind each interface, by the name of the member.
fn guests(found: &[DiscoveredInterface]) -> BTreeMap<Cow<'_, str>, &str> {
    let named = found.iter().map(|found| &found.interface).filter_map(|interface| {
        let guest = interface.vms.first().or(interface.netns.as_ref()).filter(|guest| !guest.is_empty())?;
        Some((called(&interface.name), guest.as_str()))
    });
    named.collect()
}

fn guest(guest: &GuestStatus) -> GuestDocument {
    let limit = |limit: &crate::groups::LimitStatus| {
        let (file, value, before, why_not) = match &limit.state {
            State::InForce { file, value, before } => {
                (Some(file.display().to_string()), Some(value.clone()), Some(before.clone()), None)
            }
            State::Not(why) => (None, None, None, Some(why.to_string())),
        };
        LimitDocument { key: limit.key.word().to_owned(), wanted: limit.wanted.clone(), file, value, before, why_not }
    };
    GuestDocument { guest: guest.guest.clone(), limits: guest.limits.iter().map(limit).collect() }
}
