//! What a guard that runs says of itself: `vmio guard status --json`, and what metrics and dashboard are made of.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmio_model::control::Allocator;
use vmio_model::policy::{Direction, Policy};
use vmio_model::problem::Problem;
use vmio_model::rate::BitRate;

use crate::core::{MemberStatus, PoolStatus};
use crate::daemon;
use crate::demand::Demand;
use crate::groups::{GuestStatus, State};
use crate::observed::Observed;

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
    /// Who sets the limits: `exact` or `dba`.
    #[serde(default = "exact")]
    pub algorithm: String,
    /// What `dba` counts as a member's traffic: `passed` or `offered`; null of `exact`.
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
    /// What deserves a word.
    pub notes: Vec<String>,
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
    /// Changes by other programs that were corrected.
    pub put_right_total: u64,
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

/// One direction of an uplink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolDocument {
    /// The uplink.
    pub uplink: String,
    /// The direction, seen from the guest.
    pub direction: Direction,
    /// Capacity of the uplink.
    pub capacity_bps: BitRate,
    /// What its members share now.
    pub shared_bps: BitRate,
    /// Where the queues of its guests stand apart from the uplink; null where they stand at it.
    pub stage: Option<StageDocument>,
    /// Of what guests receive: bytes that have arrived at the uplink, as they count on the wire; null where nobody counts them.
    #[serde(default)]
    pub arrived_bytes_total: Option<u64>,
    /// Whether as much arrived in the last second as the uplink takes (98 %): a sender does not slow
    /// down, and the loss happens before this host, which cannot prevent it. Null where it is not counted.
    #[serde(default)]
    pub link_full: Option<bool>,
    /// Its members.
    pub members: Vec<MemberDocument>,
}

/// Queues of guests before an uplink, through which the host's own traffic does not pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageDocument {
    /// What the guests share there now: what the host leaves.
    pub shared_bps: BitRate,
    /// Bytes that have left it and wait at the uplink.
    pub waiting_bytes: u64,
    /// Packets that had left it and were dropped at the uplink.
    pub dropped_packets_total: u64,
}

/// Where a member's excess waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExcessDocument {
    /// `held`: in the guest; `queued`: on this host; `nic`: in the card; `none`: nothing limits it.
    pub waits: String,
    /// Send buffer of its tap that is in force; null where there is none.
    pub send_buffer_bytes: Option<u32>,
    /// Why.
    pub reason: String,
}

/// A member of a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemberDocument {
    /// `host`, `default`, or the interface.
    pub name: String,
    /// Its class.
    pub class: String,
    /// 1 is served first, 8 last.
    pub priority: u8,
    /// Its minimum as far as all fit.
    pub min_effective_bps: BitRate,
    /// Its maximum.
    pub max_bps: BitRate,
    /// Its limit now; null for none of its own.
    pub limit_bps: Option<BitRate>,
    /// What passed in the last second; null where that is not known yet.
    pub rate_bps: Option<BitRate>,
    /// Bytes that passed, as they count on the wire.
    pub passed_bytes_total: u64,
    /// Packets that were dropped at its queue.
    pub dropped_packets_total: u64,
    /// Bytes that wait now.
    pub waiting_bytes: u64,
    /// What passed or came to wait in the last second; null where that is not known yet. Where packets were dropped it is
    /// what came in at the interface, if that is counted: the kernel counts how many were dropped, not how long they were.
    #[serde(default)]
    pub offered_bps: Option<BitRate>,
    /// The same in bytes, since the daemon saw it first.
    #[serde(default)]
    pub offered_bytes_total: u64,
    /// Time in which it was held back: packets of it waited, or were dropped.
    #[serde(default)]
    pub held_seconds_total: f64,
    /// Time in which it wanted its minimum.
    #[serde(default)]
    pub guarantee_wanted_seconds_total: f64,
    /// Time of that in which it got it.
    #[serde(default)]
    pub guarantee_met_seconds_total: f64,
    /// Of the last minute's time in which it wanted its minimum, the share in which it got it, 0 to 1; null where it did
    /// not want it.
    #[serde(default)]
    pub guarantee_met_ratio: Option<f64>,
    /// Times that it did not get a minimum that it wanted, for 2 s or more in a row.
    #[serde(default)]
    pub breaches_total: u64,
    /// For how long that is so now; null where it is not.
    #[serde(default)]
    pub breached_seconds: Option<f64>,
    /// Time in which it received less than its minimum while its uplink was full.
    #[serde(default)]
    pub flooded_seconds_total: f64,
    /// For how long that is so now; null where it is not, or for less than 2 s.
    #[serde(default)]
    pub flooded_seconds: Option<f64>,
    /// Where its excess waits; null of `host` and `default`.
    pub excess: Option<ExcessDocument>,
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
    pub demand: &'a Demand,
    pub appeared: &'a [Duration],
    pub appeared_in_all: u64,
    pub appeared_time: Duration,
    pub trouble: Option<&'a str>,
    pub refused: Option<&'a str>,
    pub groups: &'a [GuestStatus],
    pub groups_put_right: u64,
    pub group_notes: &'a [String],
    pub observed: Option<Observed>,
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
            put_right_total: loops.put_right + known.groups_put_right,
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
        pools: loops.pools.iter().map(|pool| self::pool(pool, policy, known.demand)).collect(),
        guests: known.groups.iter().map(guest).collect(),
        notes: loops.notes.iter().chain(known.group_notes).cloned().collect(),
        trouble: known.trouble.map(str::to_owned),
        observed: known.observed,
    }
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

fn pool(pool: &PoolStatus, policy: &Policy, demand: &Demand) -> PoolDocument {
    let capacity_bps = policy.uplinks.get(&pool.key.uplink).map_or(BitRate::ZERO, |uplink| uplink.capacity);
    let member = |m: &MemberStatus| {
        let class = policy.class(&m.class).member(capacity_bps);
        let known = demand.of(&pool.key, &m.name).cloned().unwrap_or_default();
        MemberDocument {
            name: m.name.clone(),
            class: m.class.clone(),
            priority: class.priority,
            min_effective_bps: m.min_effective_bps,
            max_bps: class.max,
            limit_bps: m.limit_bps,
            rate_bps: known.rate_bps,
            passed_bytes_total: m.count.passed_bytes,
            dropped_packets_total: m.count.dropped_packets,
            waiting_bytes: m.count.waiting_bytes,
            offered_bps: known.offered_bps,
            offered_bytes_total: known.offered_bytes,
            held_seconds_total: known.held.as_secs_f64(),
            guarantee_wanted_seconds_total: known.wanted.as_secs_f64(),
            guarantee_met_seconds_total: known.met.as_secs_f64(),
            guarantee_met_ratio: known.ratio(),
            breaches_total: known.breaches,
            breached_seconds: known.breached.map(|time| time.as_secs_f64()),
            flooded_seconds_total: known.flooded.as_secs_f64(),
            flooded_seconds: known.flooded_for().map(|time| time.as_secs_f64()),
            excess: m.held.as_ref().map(|held| ExcessDocument {
                waits: held.waits.word().to_owned(),
                send_buffer_bytes: held.send_buffer_bytes,
                reason: held.reason.clone(),
            }),
        }
    };
    PoolDocument {
        uplink: pool.key.uplink.clone(),
        direction: pool.key.direction,
        capacity_bps,
        shared_bps: pool.root_bps,
        stage: pool.stage.map(|(shared_bps, backlog)| StageDocument {
            shared_bps,
            waiting_bytes: backlog.waiting_bytes,
            dropped_packets_total: backlog.dropped_packets,
        }),
        arrived_bytes_total: pool.arrived_bytes,
        link_full: demand.is_full(&pool.key),
        members: pool.members.iter().map(member).collect(),
    }
}
