//! Rates of each interface by a policy for given demands, without reading a machine. The interfaces are those that the
//! policy names without a pattern, and those that a demand names and a pattern matches; one without a demand wants
//! everything, `host` and `default` nothing.

mod ask;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::groups::{Limits, of_entry};
use super::matcher::{Kind, label};
use super::pool::{MemberKind, Pool as Seated, PoolMember};
use super::{DEFAULT, Direction, Entry, HOST, Policy};
use crate::allocate::dba::{Loop, Measures, dba};
use crate::allocate::{Demand, Grant, Member, exact};
use crate::rate::BitRate;
use crate::words::nearest;

pub use ask::Ask;

/// Version of the plan's JSON.
pub const SCHEMA_VERSION: &str = "1.0";

/// Algorithm of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// vmio's own.
    Exact,
    /// The published loop's steady state (amamou2012, section V.A).
    Dba,
}

impl Algorithm {
    /// The member of each seat: its contract, with its effective minimum. `None` for the host and `default` where the
    /// published loop leaves them out: it has guests only and reserves idle minima, so Figure 4 would not result with
    /// them.
    fn members(self, pool: &Seated, wants: &[Want]) -> Vec<Option<Member>> {
        let Algorithm::Dba = self else { return pool.members().into_iter().map(Some).collect() };
        // Minima by order of creation: the loop's own rule.
        let own = |(s, w): (&PoolMember, &Want)| Member {
            min: if w.out_of_mind { BitRate::ZERO } else { s.contract.min },
            ..s.contract
        };
        let members: Vec<Member> = pool.seats.iter().zip(wants).map(own).collect();
        let state = Loop::new(pool.capacity, &members, Measures::Offered);
        let there =
            |((m, w), min): ((&Member, &Want), &BitRate)| (!w.out_of_mind).then_some(Member { min: *min, ..*m });
        members.iter().zip(wants).zip(state.rates()).map(there).collect()
    }

    /// The grant of each seat.
    fn grants(self, capacity: BitRate, wants: &[Want], members: &[Option<Member>]) -> Vec<Grant> {
        let (there, demands): (Vec<Member>, Vec<Demand>) =
            wants.iter().zip(members).filter_map(|(w, m)| Some(((*m)?, w.demand))).unzip();
        let mut granted = match self {
            Algorithm::Exact => exact(capacity, &there, &demands),
            Algorithm::Dba => dba(capacity, &there, &demands),
        }
        .into_iter();
        members.iter().map(|m| m.and_then(|_| granted.next()).unwrap_or_default()).collect()
    }
}

/// Why nothing can be planned, one line a problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct PlanError(pub Vec<String>);

/// Rates of all members of all pools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Plan {
    /// Version of this document.
    pub schema_version: &'static str,
    /// A pool for each uplink and direction.
    pub pools: Vec<Pool>,
    /// `host`, the interfaces, `default`, pool by pool.
    pub interfaces: Vec<Row>,
    /// Limits of their guests' control groups, each by its own entry alone: on a host all classes of a guest's
    /// interfaces are combined. Guests without limits are left out.
    pub groups: Vec<GroupRow>,
    /// Demands without a row.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// Limits of a guest's processors and memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GroupRow {
    /// As written in the match, with its kind for MAC, VM and namespace.
    pub name: String,
    /// Weight among groups that want the same processors; `None` for no change.
    pub cpu_weight: Option<u16>,
    /// Limit of processor time in microseconds of each 100 ms: 100,000 are one processor; `None` for no change.
    pub cpu_max_us: Option<u64>,
    /// Limit of memory in bytes; `None` for no change.
    pub memory_max_bytes: Option<u64>,
    /// The same as written.
    #[serde(skip)]
    pub limits: Limits,
}

/// One direction of an uplink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Pool {
    /// The uplink.
    pub uplink: String,
    /// The direction.
    pub direction: Direction,
    /// Bit/s.
    pub capacity_bps: BitRate,
    /// Capacity less the sum of all rates and of idle hard minima.
    pub unused_bps: BitRate,
    /// Whether token buckets enforce all of it, without queues: then rates that are limited by the capacity are those
    /// of the uplink's own queue and not the policy's.
    pub queueless: bool,
}

/// One member of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Row {
    /// As written in the match, with its kind for MAC, VM and namespace.
    pub name: String,
    /// The uplink.
    pub uplink: String,
    /// The direction.
    pub direction: Direction,
    /// Its class there.
    pub class: String,
    /// Its demand, in bit/s; `None` for everything.
    pub demand_bps: Option<BitRate>,
    /// Its rate: guaranteed and spare.
    pub rate_bps: BitRate,
    /// Its guaranteed part.
    pub guaranteed_bps: BitRate,
    /// Its spare part.
    pub spare_bps: BitRate,
    /// Its effective minimum; 0 where the algorithm leaves it out.
    pub min_effective_bps: BitRate,
    /// What limits it.
    pub limited_by: LimitedBy,
    /// Its contract; `min` is the class's.
    #[serde(skip)]
    pub contract: Member,
    /// Its contract with `min_effective_bps`; `None` where the algorithm leaves it out.
    #[serde(skip)]
    pub member: Option<Member>,
}

impl Row {
    /// Whether it is the host or `default` without demand. Interfaces have no such names.
    pub fn is_idle_implicit(&self) -> bool {
        [HOST, DEFAULT].contains(&self.name.as_str()) && self.demand_bps == Some(BitRate::ZERO)
    }
}

impl Plan {
    /// The rows of a pool.
    pub fn rows<'a>(&'a self, pool: &'a Pool) -> impl Iterator<Item = &'a Row> {
        self.interfaces.iter().filter(move |r| (&r.uplink, r.direction) == (&pool.uplink, pool.direction))
    }
}

/// What limits a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// Its demand is met.
    Demand,
    /// It is at its maximum.
    Max,
    /// No capacity is left.
    Capacity,
}

impl LimitedBy {
    /// Name in JSON.
    pub fn word(self) -> &'static str {
        match self {
            LimitedBy::Demand => "demand",
            LimitedBy::Max => "max",
            LimitedBy::Capacity => "capacity",
        }
    }
}

/// Demand of a member.
struct Want {
    demand: Demand,
    /// It is the host or `default` without a demand or a written minimum.
    out_of_mind: bool,
}

/// Plans every pool of the policy.
///
/// # Errors
/// Demands for unknown names, or two for the same.
pub fn plan(policy: &Policy, asks: &[Ask], algorithm: Algorithm) -> Result<Plan, PlanError> {
    let asked = Demands::new(policy, asks)?;
    let mut plan = Plan {
        schema_version: SCHEMA_VERSION,
        pools: Vec::new(),
        interfaces: Vec::new(),
        groups: asked.groups(policy),
        warnings: asked.unheard(policy),
    };
    for uplink in policy.uplinks.keys() {
        for direction in Direction::ALL {
            let interfaces = asked.interfaces.iter().map(|(label, entry)| (label.as_str(), *entry));
            if let Some(seated) = Seated::of(policy, uplink, direction, interfaces) {
                let wants = asked.wants(policy, &seated);
                // The published loop sets limits in queues.
                let queueless = algorithm == Algorithm::Exact
                    && direction == Direction::GuestTx
                    && policy.needs_queues(uplink).is_none();
                pool(&mut plan, seated, &wants, algorithm, queueless);
            }
        }
    }
    Ok(plan)
}

fn pool(plan: &mut Plan, seated: Seated, wants: &[Want], algorithm: Algorithm, queueless: bool) {
    let members = algorithm.members(&seated, wants);
    let Seated { uplink, direction, capacity, seats, .. } = seated;
    let grants = algorithm.grants(capacity, wants, &members);
    let used: BitRate = grants.iter().map(|g| g.rate).sum();
    let rows = seats.into_iter().zip(wants).zip(members).zip(&grants).map(|(((seat, want), member), grant)| Row {
        limited_by: limited_by(&seat, want.demand, grant),
        name: seat.name,
        uplink: uplink.clone(),
        direction,
        class: seat.class,
        demand_bps: if let Demand::Rate(rate) = want.demand { Some(rate) } else { None },
        rate_bps: grant.rate,
        guaranteed_bps: grant.guaranteed,
        spare_bps: grant.spare,
        min_effective_bps: member.map_or(BitRate::ZERO, |m| m.min),
        contract: seat.contract,
        member,
    });
    plan.interfaces.extend(rows);
    let unused_bps = capacity.saturating_sub(used);
    plan.pools.push(Pool { uplink, direction, capacity_bps: capacity, unused_bps, queueless });
}

fn limited_by(seat: &PoolMember, demand: Demand, grant: &Grant) -> LimitedBy {
    match demand {
        Demand::Rate(rate) if grant.rate >= rate => LimitedBy::Demand,
        _ if grant.rate >= seat.contract.max && !seat.contract.over_max => LimitedBy::Max,
        _ => LimitedBy::Capacity,
    }
}

/// Demands with their interfaces.
struct Demands<'a> {
    /// Interfaces with their entries: those named in the policy, then those of demands.
    interfaces: Vec<(String, &'a Entry)>,
    /// By label and direction.
    demands: BTreeMap<(String, Direction), Demand>,
}

impl<'a> Demands<'a> {
    fn new(policy: &'a Policy, asks: &[Ask]) -> Result<Demands<'a>, PlanError> {
        let named = policy.entries.iter().filter(|e| e.matcher.is_exact());
        let mut interfaces: Vec<(String, &Entry)> = named.map(|e| (e.matcher.label(), e)).collect();
        // Two spellings of one interface are one, shown in the first.
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        let mut demands = BTreeMap::new();
        let mut wrong = Vec::new();
        for ask in asks {
            let ask = &ask.meant(policy);
            let label = match (ask.implicit(), policy.find(ask.kind, &ask.name)) {
                (Some(name), _) => name.to_owned(),
                // A MAC address may be written in other case than in the policy.
                (None, Some(entry)) if entry.matcher.is_exact() => entry.matcher.label(),
                (None, Some(entry)) => {
                    let first = known.entry(label(ask.kind, &ask.kind.plain(&ask.name))).or_insert_with(|| {
                        interfaces.push((ask.label(), entry));
                        ask.label()
                    });
                    first.clone()
                }
                (None, None) => {
                    wrong.push(unknown(policy, ask));
                    continue;
                }
            };
            if demands.insert((label.clone(), ask.direction), ask.demand).is_some() {
                wrong.push(format!("{} of {label} has two demands", ask.direction.word()));
            }
        }
        if wrong.is_empty() { Ok(Demands { interfaces, demands }) } else { Err(PlanError(wrong)) }
    }

    /// Demands of the members of a pool.
    fn wants(&self, policy: &Policy, pool: &Seated) -> Vec<Want> {
        let want = |seat: &PoolMember| {
            let named = self.demands.get(&(seat.name.clone(), pool.direction)).copied();
            let implicit = seat.who != MemberKind::Interface;
            Want {
                demand: named.unwrap_or(if implicit { Demand::Rate(BitRate::ZERO) } else { Demand::Unbounded }),
                out_of_mind: implicit
                    && named.is_none()
                    && policy.class(&seat.class).min.unwrap_or_default() == BitRate::ZERO,
            }
        };
        pool.seats.iter().map(want).collect()
    }

    /// Limits of control groups.
    fn groups(&self, policy: &Policy) -> Vec<GroupRow> {
        let row = |(label, entry): &(String, &Entry)| {
            let limits = of_entry(policy, entry);
            let Limits { cpu_weight, cpu_max: cpu_max_us, memory_max: memory_max_bytes } = limits;
            (!limits.is_empty()).then(|| GroupRow {
                name: label.clone(),
                cpu_weight,
                cpu_max_us,
                memory_max_bytes,
                limits,
            })
        };
        self.interfaces.iter().filter_map(row).collect()
    }

    /// Demands in directions without limits.
    fn unheard(&self, policy: &Policy) -> Vec<String> {
        let entry = |label: &str| self.interfaces.iter().find(|(l, _)| l == label).map(|(_, e)| *e);
        let lost = self.demands.keys().filter(|(label, direction)| match entry(label) {
            Some(entry) => entry.class_in(*direction).is_none(),
            None => policy.uplinks.is_empty(),
        });
        lost.map(|(label, direction)| {
            let word = direction.word();
            let key = if *direction == Direction::GuestRx { "rx_class" } else { "class" };
            match entry(label) {
                Some(_) => format!("{label} has no {key}: its {word} is not limited, and its demand there not planned"),
                None => format!("the policy has no uplink: the demand of {label} is not planned"),
            }
        })
        .collect()
    }
}

/// Message for a demand that no entry matches.
fn unknown(policy: &Policy, ask: &Ask) -> String {
    let other = Kind::ALL.into_iter().find(|k| policy.find(*k, &ask.name).is_some());
    let labels: Vec<String> = policy.entries.iter().map(|e| e.matcher.label()).collect();
    let near = nearest(&ask.label(), labels.iter().map(String::as_str).chain([HOST, DEFAULT]));
    let mean = match (other, near) {
        (Some(kind), _) => format!("; did you mean `{}`?", label(kind, &ask.name)),
        (None, Some(near)) => format!("; did you mean `{near}`?"),
        (None, None) => String::new(),
    };
    format!("no [[interface]] matches `{}`{mean}", ask.label())
}
