//! A direction of an uplink, and its members.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmio_model::policy::{Class, DEFAULT_PRIORITY, Direction, Policy};
use vmio_model::rate::BitRate;

use super::{DelayDocument, LocalDocument, SettingsDocument};
use crate::core::{MemberStatus, PoolStatus};
use crate::demand::{Demand, MemberDemand};
use crate::desired::Identity;
use crate::planes::FlowCount;

/// One direction of an uplink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolDocument {
    /// The uplink.
    pub uplink: String,
    /// The direction, seen from the guest.
    pub direction: Direction,
    /// Capacity of the uplink.
    pub capacity_bps: BitRate,
    /// What its members share now; 0 while it is not in force.
    pub shared_bps: BitRate,
    /// Why it is not in force now, and what to do; null where it is.
    #[serde(default)]
    pub not_in_force: Option<String>,
    /// Times since the start that its limits were broken from outside: another program changed them (however many at
    /// once) or put its own queue in their place, or the uplink was gone.
    #[serde(default)]
    pub interruptions_total: u64,
    /// How long those lasted in all, with one that goes on: each from the last look, some times a second, at which
    /// nothing was reported as changed, until its limits were in force again.
    #[serde(default)]
    pub interrupted_seconds_total: f64,
    /// Whether it has no queue: all that the policy asks for are maxima, by token buckets.
    #[serde(default)]
    pub queueless: bool,
    /// Where the queues of its guests stand apart from the uplink; null where they stand at it, or there are none.
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

/// A flow class of a member, inside its share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowDocument {
    /// Its name in the class; `rest`: what none matches.
    pub name: String,
    /// 1 is served first, 8 last, beyond the minima.
    #[serde(default)]
    pub priority: u8,
    /// Its minimum, inside the interface's share.
    #[serde(default)]
    pub min_bps: BitRate,
    /// Its maximum; without one of its own the interface's.
    #[serde(default)]
    pub max_bps: BitRate,
    /// What passed in the last second; null where that is not known yet.
    #[serde(default)]
    pub rate_bps: Option<BitRate>,
    /// Bytes that passed, as they count on the wire, since its queue was made.
    pub passed_bytes_total: u64,
    /// Packets that were dropped at its queue since then.
    pub dropped_packets_total: u64,
    /// Bytes that wait now.
    pub waiting_bytes: u64,
}

/// A member of a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemberDocument {
    /// `host`, `default`, or the interface.
    pub name: String,
    /// The guest behind the interface: as its manager or its process names it, else its network namespace; null where
    /// none is known.
    #[serde(default)]
    pub guest: Option<String>,
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
    /// Packets that were dropped at its queue since that exists.
    pub dropped_packets_total: u64,
    /// Bytes that wait now; without those of flow classes that are at their maximum.
    pub waiting_bytes: u64,
    /// What passed or came to wait in the last second; null where that is not known yet. Where packets were dropped it is
    /// what came in at the interface, if that is counted: the kernel counts how many were dropped, not how long they were.
    #[serde(default)]
    pub offered_bps: Option<BitRate>,
    /// The same in bytes, since the daemon saw it first.
    #[serde(default)]
    pub offered_bytes_total: u64,
    /// Time, since the daemon saw it first, in which it wanted more than it got: packets of it waited, or were dropped.
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
    /// Of what it sends: packets that claimed an address of another, by their Ethernet address, by ARP or by neighbour
    /// discovery.
    #[serde(default)]
    pub spoofed_packets_total: u64,
    /// Those of them that were dropped.
    #[serde(default)]
    pub spoofed_dropped_packets_total: u64,
    /// Packets of ARP and neighbour discovery that were dropped since it sent too many.
    #[serde(default)]
    pub resolution_dropped_packets_total: u64,
    /// Where its excess waits; null of `host` and `default`.
    pub excess: Option<ExcessDocument>,
    /// What it sends or receives beside the uplink; null where that is not counted.
    #[serde(default)]
    pub local: Option<LocalDocument>,
    /// What the policy says of it besides rates; null of `host`, `default`, and of what the card limits or nothing does.
    #[serde(default)]
    pub settings: Option<SettingsDocument>,
    /// Its flow classes in their order, and the rest; empty where its class has none.
    #[serde(default)]
    pub flows: Vec<FlowDocument>,
    /// What another program limits the same traffic to at its interface, as far as the interface's own qdisc does; null
    /// where none does.
    #[serde(default)]
    pub other_limit: Option<OtherLimitDocument>,
    /// How long its packets wait in its queue on this host; null where that is not measured.
    #[serde(default)]
    pub delay: Option<DelayDocument>,
}

/// A limit of another program at a member's own interface: of two in a row the lower one holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OtherLimitDocument {
    /// Kind of its qdisc, as `tc` names it.
    pub kind: String,
    /// The most that it lets through.
    pub rate_bps: BitRate,
}

/// What is known of members besides their counters, by the name of each.
pub(super) struct Known<'a> {
    pub(super) guests: BTreeMap<Cow<'a, str>, &'a str>,
    pub(super) identities: &'a BTreeMap<String, Identity>,
}

impl PoolDocument {
    pub(super) fn of(mut pool: PoolStatus, policy: &Policy, demand: &Demand, of_members: &Known<'_>) -> PoolDocument {
        let capacity_bps = capacity(&pool, policy);
        let members = std::mem::take(&mut pool.members);
        PoolDocument {
            uplink: pool.key.uplink.clone(),
            direction: pool.key.direction,
            capacity_bps,
            shared_bps: if pool.interruptions.now.is_some() { BitRate::ZERO } else { pool.root_bps },
            not_in_force: pool.interruptions.now.clone(),
            interruptions_total: pool.interruptions.total,
            interrupted_seconds_total: pool.interruptions.time.as_secs_f64(),
            queueless: pool.queue.is_none(),
            stage: pool.stage.map(|(shared_bps, backlog)| StageDocument {
                shared_bps,
                waiting_bytes: backlog.waiting_bytes,
                dropped_packets_total: backlog.dropped_packets,
            }),
            arrived_bytes_total: pool.arrived_bytes,
            link_full: demand.is_full(&pool.key),
            members: members.into_iter().map(|m| MemberDocument::of(m, &pool, policy, demand, of_members)).collect(),
        }
    }
}

impl FlowDocument {
    /// Of a class whose members have this maximum.
    fn of(flow: &FlowCount, rate_bps: Option<BitRate>, class: &Class, max: BitRate) -> FlowDocument {
        let written = class.flows.iter().find(|written| written.name == flow.name);
        FlowDocument {
            name: flow.name.clone(),
            priority: written.map_or(DEFAULT_PRIORITY, |written| written.priority),
            min_bps: written.map_or(BitRate::ZERO, |written| written.min),
            max_bps: written.and_then(|written| written.max).map_or(max, |own| own.min(max)),
            rate_bps,
            passed_bytes_total: flow.passed_bytes,
            dropped_packets_total: flow.dropped_packets,
            waiting_bytes: flow.waiting_bytes,
        }
    }
}

impl MemberDocument {
    fn of(
        m: MemberStatus,
        pool: &PoolStatus,
        policy: &Policy,
        demand: &Demand,
        of_members: &Known<'_>,
    ) -> MemberDocument {
        let class = policy.class(&m.class);
        let contract = class.member(capacity(pool, policy));
        let identity = of_members.identities.get(&m.name);
        let unknown = MemberDemand::default();
        let known = demand.of(&pool.key, &m.name).unwrap_or(&unknown);
        let (local, flows) = (LocalDocument::of(&m, known.local_bps), flows(&m, &known.flow_bps, class, contract.max));
        let delay = DelayDocument::of(&m, &known.delay);
        MemberDocument {
            guest: of_members.guests.get(m.name.as_str()).map(|guest| (*guest).to_owned()),
            name: m.name,
            class: m.class,
            priority: contract.priority,
            min_effective_bps: m.min_effective_bps,
            max_bps: contract.max,
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
            spoofed_packets_total: m.count.claimed.packets,
            spoofed_dropped_packets_total: m.count.claimed.dropped,
            resolution_dropped_packets_total: m.count.claimed.floods,
            excess: m.held.map(|held| ExcessDocument {
                waits: held.waits.word().to_owned(),
                send_buffer_bytes: held.send_buffer_bytes,
                reason: held.reason,
            }),
            local,
            settings: identity.map(|identity| SettingsDocument::of(identity, class, pool.key.direction)),
            flows,
            delay,
            other_limit: m.other_limit.map(|other| OtherLimitDocument { kind: other.kind, rate_bps: other.rate_bps }),
        }
    }
}

/// The flow classes of a member, with the rate of each as far as it is known.
fn flows(m: &MemberStatus, rates: &[Option<BitRate>], class: &Class, max: BitRate) -> Vec<FlowDocument> {
    let rates = rates.iter().copied().chain(std::iter::repeat(None));
    m.flows.iter().zip(rates).map(|(flow, rate)| FlowDocument::of(flow, rate, class, max)).collect()
}

fn capacity(pool: &PoolStatus, policy: &Policy) -> BitRate {
    policy.uplinks.get(&pool.key.uplink).map_or(BitRate::ZERO, |uplink| uplink.capacity)
}
