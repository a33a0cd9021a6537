//! The desired state: a program for each pool, computed from a policy, the host's interfaces and their numbers. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use vmio_model::holding::{Holding, Queue};
use vmio_model::policy::assign::{Interface, assign};
use vmio_model::policy::compile::{Compiled, Refusal, compile};
use vmio_model::policy::policer::Policers;
use vmio_model::policy::pool::{MemberKind, Pool};
use vmio_model::policy::{Abilities, Direction, Entry, Form, OnConflict, Policy, Spoofing, Uplink};
use vmio_model::rate::BitRate;
use vmio_model::words::first_of;

use crate::interface::DiscoveredInterface;

mod cards;
mod held;

pub use cards::CardLimit;
pub use held::Strictness;

/// One direction of an uplink.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolKey {
    /// The uplink.
    pub uplink: String,
    /// The direction.
    pub direction: Direction,
}

impl std::fmt::Display for PoolKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.uplink, self.direction.word())
    }
}

/// A member of a desired pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredMember {
    /// `host`, `default`, or the interface's name.
    pub name: String,
    /// Its kind.
    pub who: MemberKind,
    /// Its class.
    pub class: String,
    /// Its number in the pool, which it keeps as long as it exists.
    pub number: u16,
    /// The interface; `None` of `host` and `default`.
    pub interface: Option<Interface>,
    /// Where its excess waits; `None` of `host` and `default`.
    pub holding: Option<Holding>,
    /// Processes that may hold the tap.
    pub pids: Vec<u32>,
    /// Whether its queue is as long as its class's targets of delay allow, in bytes.
    pub is_bounded: bool,
    /// What all that it sends is held to at its own interface; `None` where its class only counts local traffic.
    pub local_max: Option<BitRate>,
    /// Token buckets of its maximum and of its flow classes' ones, where what is above is dropped.
    pub policers: Option<Policers>,
    /// What it may claim to be.
    pub identity: Identity,
}

impl DesiredMember {
    /// Whether all that it sends is limited in a queue at its own interface; a bucket there needs none.
    pub fn is_capped(&self) -> bool {
        self.local_max.is_some() && self.policers.as_ref().is_none_or(|policers| policers.own.is_none())
    }
}

/// What a guest may claim to be, and what becomes of packets that claim something else.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// What becomes of them.
    pub spoofing: Spoofing,
    /// Its IP addresses, which no guest without them may claim; empty where none is known.
    pub addresses: Vec<IpAddr>,
    /// Whether these are all, by the policy: what a manager's configuration names may be only some.
    pub all_known: bool,
    /// Whether it routes for others.
    pub router: bool,
}

/// An interface with a class that this plane cannot limit: its traffic shares `default`, if it passes the host at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnlimitedInterface {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: String,
    /// Why it is not limited.
    pub reason: String,
}

/// A desired pool; members in the program's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredPool {
    /// Its uplink and direction.
    pub key: PoolKey,
    /// The pool as the policy has it.
    pub pool: Pool,
    /// The members.
    pub seats: Vec<DesiredMember>,
    /// Limits in the uplink's card; their rates are not part of what the members share.
    pub cards: Vec<CardLimit>,
    /// Interfaces with a class here that cannot be limited.
    pub unheld: Vec<UnlimitedInterface>,
    /// IP addresses on the uplink's network that no guest may claim.
    pub gateways: Vec<IpAddr>,
    /// Where its queues are: one place for all interfaces, so that they share exactly. `None` where token buckets
    /// enforce all of it without queues.
    pub queue: Option<Queue>,
    /// The plane's program, and what the control loop does.
    pub compiled: Compiled,
}

impl DesiredPool {
    /// Whether the queues of sent traffic are on an IFB before the uplink, which the host's own traffic does not pass.
    pub fn is_staged(&self) -> bool {
        self.key.direction == Direction::GuestTx && self.queue == Some(Queue::Ifb)
    }

    /// Whether it has no queues: all that the policy asks for are maxima, by token buckets.
    pub fn is_queueless(&self) -> bool {
        self.queue.is_none()
    }

    /// Whether it needs the control loop.
    pub fn is_looped(&self) -> bool {
        self.is_staged() || !self.compiled.emulated.is_empty()
    }
}

/// The desired state of all pools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Desired {
    /// By uplink and direction.
    pub pools: Vec<DesiredPool>,
    /// Notes, a sentence each: interfaces that several entries or none match, or that cannot be limited; entries that
    /// match none.
    pub notes: Vec<String>,
    /// What becomes of others' queues in place of ours.
    pub on_conflict: OnConflict,
    /// Whether it is measured how long packets wait.
    pub measure_delay: bool,
}

/// Number of the host's own traffic in each pool.
pub const HOST_NUMBER: u16 = 2;
/// Number of the traffic of all others.
pub const DEFAULT_NUMBER: u16 = 3;
/// Number, at an uplink, of all traffic that was queued on an IFB before.
pub const GUESTS_NUMBER: u16 = 4;
/// First number of an interface.
const FIRST_NUMBER: u16 = 16;
/// Last number of an interface: queue handles derived from higher ones are used by the kernel.
pub const LAST_NUMBER: u16 = 0x39ff;

/// Numbers of interfaces, by index and name: an interface that was made anew gets a new number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Numbers {
    given: BTreeMap<(u32, String), u16>,
}

impl Numbers {
    /// Numbers of these interfaces: each keeps the one that it has, new ones get the lowest that is free. One that is
    /// free only now comes last: what its class has counted, and owes, is another guest's.
    ///
    /// # Errors
    /// When there are more interfaces than numbers.
    pub fn of<'a>(&self, interfaces: impl IntoIterator<Item = &'a Interface> + Clone) -> Result<Numbers, Refusal> {
        let key = |i: &Interface| (i.index, i.name.clone());
        let mut given: BTreeMap<(u32, String), u16> =
            interfaces.clone().into_iter().filter_map(|i| Some((key(i), *self.given.get(&key(i))?))).collect();
        let taken: BTreeSet<u16> = given.values().copied().collect();
        let before: BTreeSet<u16> = self.given.values().copied().collect();
        let unused = (FIRST_NUMBER..=LAST_NUMBER).filter(|n| !before.contains(n));
        let left = (FIRST_NUMBER..=LAST_NUMBER).filter(|n| before.contains(n) && !taken.contains(n));
        let mut free = unused.chain(left);
        for interface in interfaces {
            if given.contains_key(&key(interface)) {
                continue;
            }
            let Some(number) = free.next() else {
                let most = LAST_NUMBER - FIRST_NUMBER + 1;
                return Err(Refusal(vec![format!(
                    "more than {most} interfaces: let fewer match, the rest share `default`"
                )]));
            };
            given.insert(key(interface), number);
        }
        Ok(Numbers { given })
    }

    /// Numbers of an earlier guard, as (index, name, number): its classes stay valid.
    pub fn handed_on(given: impl IntoIterator<Item = (u32, String, u16)>) -> Numbers {
        Numbers { given: given.into_iter().map(|(index, name, number)| ((index, name), number)).collect() }
    }

    fn get(&self, interface: &Interface) -> Option<u16> {
        self.given.get(&(interface.index, interface.name.clone())).copied()
    }
}

/// Computes the desired state of a policy for these interfaces on this plane.
///
/// # Errors
/// All that the plane cannot hold, of all pools at once. An interface that cannot be limited is refused or noted, as
/// [`Strictness`] says.
pub fn desired(
    policy: &Policy,
    found: &[DiscoveredInterface],
    numbers: &Numbers,
    plane: &Abilities,
    strictness: Strictness,
) -> Result<Desired, Refusal> {
    let mut notes = Vec::new();
    let mut matched: Vec<Matched<'_>> = Vec::new();
    let (mut used, mut without) = (BTreeSet::new(), Vec::new());
    for found in found {
        let interface = &found.interface;
        let Some(assigned) = assign(policy, interface) else {
            without.push(interface.name.as_str());
            continue;
        };
        used.insert(&assigned.entry.place);
        if let Some(other) = assigned.passed_over {
            used.insert(&other.place);
            let (entry, place) = (&assigned.entry, &assigned.entry.place);
            notes.push(format!(
                "{} is matched by {} ({place}) and by {} ({}): the first applies",
                interface.name, entry.matcher, other.matcher, other.place
            ));
        }
        if let Some(number) = numbers.get(interface) {
            matched.push(Matched { found, entry: assigned.entry, number });
        }
    }
    let guests = policy.entries.iter().flat_map(|entry| &entry.addresses);
    let gateways = policy.uplinks.values().flat_map(|uplink| &uplink.gateways);
    let listed: BTreeSet<IpAddr> = guests.chain(gateways).copied().collect();
    let (mut pools, mut problems) = (Vec::new(), Vec::new());
    for (uplink, Uplink { gateways, .. }) in &policy.uplinks {
        for direction in Direction::ALL {
            let here = matched.iter().filter(|m| m.entry.uplink == *uplink && m.entry.class_in(direction).is_some());
            let queueless = direction == Direction::GuestTx && is_queueless(policy, uplink, plane);
            let mut plan = held::plan(policy, plane, (uplink.as_str(), direction, queueless), here, strictness);
            problems.append(&mut plan.refused);
            let Some((pool, cards)) = cards::split_off(policy, uplink, direction, &mut plan) else { continue };
            notes.append(&mut plan.notes);
            // No interface has a class for received traffic.
            if direction == Direction::GuestRx && plan.seated.is_empty() && plan.unheld.is_empty() {
                continue;
            }
            let queue = (!queueless).then(|| held::queue(direction, plan.seated.iter().map(|(_, holding)| holding)));
            let mut interfaces = plan.seated.into_iter();
            let seat = |seat: &vmio_model::policy::pool::PoolMember| {
                let found = if seat.who == MemberKind::Interface { interfaces.next() } else { None };
                let (name, who, class) = (seat.name.clone(), seat.who, seat.class.clone());
                let number = if who == MemberKind::Host { HOST_NUMBER } else { DEFAULT_NUMBER };
                let is_bounded = seat.delay.is_some();
                let (interface, holding, pids, local_max, policers, identity) = Default::default();
                let member = DesiredMember {
                    name,
                    who,
                    class,
                    number,
                    interface,
                    holding,
                    pids,
                    is_bounded,
                    local_max,
                    policers,
                    identity,
                };
                let Some((Matched { found, number, entry }, holding)) = found else { return member };
                DesiredMember {
                    number: *number,
                    interface: Some(found.interface.clone()),
                    holding: Some(holding),
                    pids: found.pids.clone(),
                    local_max: self::local_max(policy, uplink, direction, &member.class),
                    policers: vmio_model::policy::compile::policers(seat, plane),
                    identity: self::identity(policy, &listed, entry, found),
                    ..member
                }
            };
            let seats = pool.seats.iter().map(seat).collect();
            match compile(&pool, plane) {
                Ok(mut compiled) => {
                    if queueless {
                        // They are of the program, by which queues share.
                        compiled.notes.clear();
                    }
                    let key = PoolKey { uplink: uplink.clone(), direction };
                    let (unheld, gateways) = (plan.unheld, gateways.clone());
                    pools.push(DesiredPool { key, pool, seats, cards, unheld, gateways, queue, compiled });
                }
                Err(Refusal(reasons)) => problems.extend(reasons),
            }
        }
    }
    notes.append(&mut strays(policy, &used, &without));
    if !problems.is_empty() {
        return Err(Refusal(problems));
    }
    let (on_conflict, measure_delay) = (policy.guard.on_conflict, policy.guard.measure_delay);
    Ok(Desired { pools, notes, on_conflict, measure_delay })
}

impl Desired {
    /// Its notes and those of the compiled programs.
    pub fn all_notes(&self) -> impl Iterator<Item = &String> {
        self.notes.iter().chain(self.pools.iter().flat_map(|pool| &pool.compiled.notes))
    }

    /// What each interface in a pool may claim to be, by the name of the member.
    pub fn identities(&self) -> BTreeMap<String, Identity> {
        let seats = self.pools.iter().flat_map(|pool| &pool.seats).filter(|seat| seat.interface.is_some());
        seats.map(|seat| (seat.name.clone(), seat.identity.clone())).collect()
    }

    /// Classes with a written maximum that interfaces may exceed by local traffic, with the queues where they are here.
    pub fn exceeded_locally<'a>(&self, policy: &'a Policy) -> Vec<&'a str> {
        policy.exceeded_locally(|uplink| self.pools.iter().any(|pool| pool.is_staged() && pool.key.uplink == uplink))
    }
}

/// Whether what guests send to an uplink needs no queues on a plane.
pub fn is_queueless(policy: &Policy, uplink: &str, plane: &Abilities) -> bool {
    // One whose loop sets the limits sets those of queues.
    plane.form == Form::Hierarchy && policy.needs_queues(uplink).is_none()
}

/// Notes on entries that match no interface (the guest may be off, or its name misspelt), and on interfaces that no
/// entry matches.
fn strays(policy: &Policy, used: &BTreeSet<&String>, without: &[&str]) -> Vec<String> {
    let unused = policy.entries.iter().filter(|entry| !used.contains(&entry.place));
    let mut all: Vec<String> = unused
        .map(|entry| format!("{}: no interface that is here now matches {}", entry.place, entry.matcher))
        .collect();
    if !without.is_empty() {
        let names = first_of(without, NAMED);
        let (verb, does, who) = match without.len() {
            1 => ("is", "it sends and receives", "it"),
            _ => ("are", "they send and receive", "they"),
        };
        // Their packets pass no program of the guard.
        let claims = match policy.guard.spoofing {
            Spoofing::Off => String::new(),
            _ => format!("; {who} may claim any address, those of gateways, too"),
        };
        all.push(format!("{names} {verb} in no class: what {does} shares `default`, which comes last{claims}"));
    }
    all
}

/// What a guest may claim to be. Of the addresses that its manager names those are its own that the policy gives to no
/// guest and no gateway (`listed`); none that are in doubt where what claims them would be dropped.
fn identity(policy: &Policy, listed: &BTreeSet<IpAddr>, entry: &Entry, found: &DiscoveredInterface) -> Identity {
    let all_known = !entry.addresses.is_empty();
    let drops = policy.guard.spoofing == Spoofing::Drop;
    let places = found.nic.iter().map(|nic| &nic.place).filter(|place| !(drops && place.addresses_in_doubt));
    let by_manager = places.flat_map(|place| &place.addresses).filter(|address| !listed.contains(*address));
    Identity {
        spoofing: policy.guard.spoofing,
        addresses: if all_known { entry.addresses.clone() } else { by_manager.copied().collect() },
        all_known,
        router: entry.router,
    }
}

/// The rate that a member of this class holds for all that it sends.
fn local_max(policy: &Policy, uplink: &str, direction: Direction, class: &str) -> Option<BitRate> {
    let class = Some(policy.class(class)).filter(|class| class.limit_local && direction == Direction::GuestTx)?;
    Some(class.most_on(policy.uplinks.get(uplink)?.capacity))
}

/// Number of interfaces without a class that a note names.
const NAMED: usize = 8;

/// An interface with its entry in the policy.
struct Matched<'a> {
    found: &'a DiscoveredInterface,
    entry: &'a Entry,
    number: u16,
}

#[cfg(test)]
mod tests;
