//! What a policy gives each interface for demands that are named by hand: no machine is looked at.
//! The interfaces are those that the policy names without a pattern, and those that a demand names
//! and a pattern matches; one without a demand wants everything, `host` and `default` nothing.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::groups::{Limits, of_entry};
use super::matcher::{Kind, Matcher, label};
use super::pool::{MemberKind, Pool as Seated, PoolMember};
use super::{DEFAULT, Direction, Entry, HOST, Policy, units};
use crate::allocate::dba::{Loop, Measures, dba};
use crate::allocate::{Demand, Grant, Member, exact};
use crate::rate::BitRate;
use crate::words::nearest;

/// Version of the plan's JSON.
pub const SCHEMA_VERSION: &str = "1.0";

/// How rates are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// vmio's own.
    Exact,
    /// The published loop's steady state (amamou2012, section V.A).
    Dba,
}

impl Algorithm {
    /// What each seat is for the algorithm: its contract, with the minimum that it really has.
    /// `None` for the host and `default` where the published loop leaves them out: it knows guests
    /// only and reserves an idle minimum, so with them Figure 4 would not come out.
    fn members(self, pool: &Seated, wants: &[Want]) -> Vec<Option<Member>> {
        let Algorithm::Dba = self else { return pool.members().into_iter().map(Some).collect() };
        // Minima to the first created first: the loop's own rule.
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

    /// What each seat gets.
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

/// A demand as it was named: `vnet0=300Mbit`, `vm:web1:rx=unbounded`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    kind: Kind,
    name: String,
    /// Which way.
    pub direction: Direction,
    /// How much.
    pub demand: Demand,
    /// Where the text ends in `:rx`: what it names when that is part of the name.
    whole: Option<(Kind, String)>,
}

/// What cannot be planned, one line a problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct PlanError(pub Vec<String>);

impl Ask {
    /// Reads `NAME[:rx]=RATE`. A name of a kind other than an interface's begins with the kind:
    /// `mac:52:54:00:12:34:56`, `vm:web1`, `netns:blue`.
    ///
    /// # Errors
    /// What is wrong, in a sentence.
    pub fn parse(text: &str) -> Result<Ask, String> {
        let how = "write NAME=RATE or NAME:rx=RATE, for example vnet0=300Mbit";
        let (who, amount) = text.rsplit_once('=').ok_or_else(|| format!("`{text}` has no `=`; {how}"))?;
        let demand = match amount {
            "unbounded" => Demand::Unbounded,
            rate => Demand::Rate(units::limit(rate).map_err(|e| format!("{e}, or \"unbounded\""))?),
        };
        let one = |who: &str| {
            let by_kind = Kind::ALL.into_iter().find_map(|k| Some((k, who.strip_prefix(k.word())?.strip_prefix(':')?)));
            let (kind, name) = by_kind.unwrap_or((Kind::Name, who));
            let matcher = Matcher::new(kind, name).map_err(|why| format!("`{text}`: the name {why}; {how}"))?;
            if matcher.is_exact() {
                return Ok((kind, name.to_owned()));
            }
            Err(format!("`{text}`: `{name}` is a pattern; name one interface that it matches"))
        };
        let ask = |(kind, name), direction, whole| Ask { kind, name, direction, demand, whole };
        let Some(stripped) = who.strip_suffix(":rx") else { return Ok(ask(one(who)?, Direction::GuestTx, None)) };
        match (one(stripped), one(who).ok()) {
            (Ok(named), whole) => Ok(ask(named, Direction::GuestRx, whole)),
            (Err(_), Some(whole)) => Ok(ask(whole, Direction::GuestTx, None)),
            (Err(error), None) => Err(error),
        }
    }

    /// What it says of this policy: a `:rx` at the end belongs to the name where only so anything
    /// is matched.
    fn meant(&self, policy: &Policy) -> Ask {
        let known = |kind, name: &str| policy.find(kind, name).is_some();
        match &self.whole {
            Some((kind, name)) if self.implicit().is_none() && !known(self.kind, &self.name) && known(*kind, name) => {
                Ask { kind: *kind, name: name.clone(), direction: Direction::GuestTx, demand: self.demand, whole: None }
            }
            _ => self.clone(),
        }
    }

    fn label(&self) -> String {
        label(self.kind, &self.name)
    }

    /// The name of an implicit member, if it is one.
    fn implicit(&self) -> Option<&'static str> {
        [HOST, DEFAULT].into_iter().find(|name| self.kind == Kind::Name && self.name == *name)
    }
}

/// What each member of each pool gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Plan {
    /// Version of this document.
    pub schema_version: &'static str,
    /// One an uplink and direction.
    pub pools: Vec<Pool>,
    /// `host`, the interfaces, `default`, pool by pool.
    pub interfaces: Vec<Row>,
    /// What the guests behind them are owed besides, each by its own entry alone: on a host all classes of a guest's
    /// interfaces add up. Those whose classes say nothing of it are left out.
    pub groups: Vec<GroupRow>,
    /// Demands that no row answers.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// What the guest behind an interface is owed of processors and memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GroupRow {
    /// As written in the match, with its kind for MAC, VM and namespace.
    pub name: String,
    /// Weight among groups that want the same processors; `None` for as it is.
    pub cpu_weight: Option<u16>,
    /// Most microseconds of processors in each 100 ms: 100,000 are one processor; `None` for as it is.
    pub cpu_max_us: Option<u64>,
    /// Most bytes of memory; `None` for as it is.
    pub memory_max_bytes: Option<u64>,
    /// The same as it is written.
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
    /// Capacity less the sum of all rates, hard minima that are idle included.
    pub unused_bps: BitRate,
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
    /// What it wants, in bit/s; `None` for everything.
    pub demand_bps: Option<BitRate>,
    /// What it gets: guaranteed and spare.
    pub rate_bps: BitRate,
    /// Of it, what it is owed.
    pub guaranteed_bps: BitRate,
    /// Of it, what others leave.
    pub spare_bps: BitRate,
    /// Its minimum as far as all minima together fit; 0 where the algorithm leaves it out.
    pub min_effective_bps: BitRate,
    /// Why it gets no more.
    pub limited_by: LimitedBy,
    /// Its contract; `min` is the class's.
    #[serde(skip)]
    pub contract: Member,
    /// What it is for the algorithm: the contract with `min_effective_bps`. `None` where it is left
    /// out of it.
    #[serde(skip)]
    pub member: Option<Member>,
}

impl Row {
    /// It is the host or `default`, and wants nothing. Interfaces have no such names.
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

/// Why a member gets no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// It has all that it asks.
    Demand,
    /// It has its maximum.
    Max,
    /// Nothing is left for it.
    Capacity,
}

impl LimitedBy {
    /// As JSON names it.
    pub fn word(self) -> &'static str {
        match self {
            LimitedBy::Demand => "demand",
            LimitedBy::Max => "max",
            LimitedBy::Capacity => "capacity",
        }
    }
}

/// What is asked of a member.
struct Want {
    demand: Demand,
    /// It is the host or `default`, no demand names it, and no minimum was written for it.
    out_of_mind: bool,
}

/// Plans every pool of the policy.
///
/// # Errors
/// Demands for what the policy does not know, or twice for the same.
pub fn plan(policy: &Policy, asks: &[Ask], algorithm: Algorithm) -> Result<Plan, PlanError> {
    let asked = Asked::new(policy, asks)?;
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
                pool(&mut plan, seated, &wants, algorithm);
            }
        }
    }
    Ok(plan)
}

fn pool(plan: &mut Plan, seated: Seated, wants: &[Want], algorithm: Algorithm) {
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
    plan.pools.push(Pool { uplink, direction, capacity_bps: capacity, unused_bps: capacity.saturating_sub(used) });
}

fn limited_by(seat: &PoolMember, demand: Demand, grant: &Grant) -> LimitedBy {
    match demand {
        Demand::Rate(rate) if grant.rate >= rate => LimitedBy::Demand,
        _ if grant.rate >= seat.contract.max && !seat.contract.over_max => LimitedBy::Max,
        _ => LimitedBy::Capacity,
    }
}

/// The demands beside the interfaces that they are for.
struct Asked<'a> {
    /// Interfaces with their entries: those named in the policy, then those that a demand names.
    interfaces: Vec<(String, &'a Entry)>,
    /// By label and direction.
    demands: BTreeMap<(String, Direction), Demand>,
}

impl<'a> Asked<'a> {
    fn new(policy: &'a Policy, asks: &[Ask]) -> Result<Asked<'a>, PlanError> {
        let named = policy.entries.iter().filter(|e| e.matcher.is_exact());
        let mut interfaces: Vec<(String, &Entry)> = named.map(|e| (e.matcher.label(), e)).collect();
        // One interface in two spellings is one; it is shown in the first.
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        let mut demands = BTreeMap::new();
        let mut wrong = Vec::new();
        for ask in asks {
            let ask = &ask.meant(policy);
            let label = match (ask.implicit(), policy.find(ask.kind, &ask.name)) {
                (Some(name), _) => name.to_owned(),
                // A MAC address may be typed in other letters than the policy has.
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
        if wrong.is_empty() { Ok(Asked { interfaces, demands }) } else { Err(PlanError(wrong)) }
    }

    /// What each member of a pool wants.
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

    /// What the policy says of processors and memory.
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

    /// Demands in a direction in which nothing limits them.
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

/// A demand for what no entry matches.
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
