//! The record of a guard that only observes: the traffic of each interface, second by second, what the policy would
//! have limited, and a policy made from it. Uses the same allocation as plan and loop.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmio_model::allocate::{Demand, Member, exact};
use vmio_model::policy::assign::Interface;
use vmio_model::policy::propose::{Need, Needs, from_needs, means};
use vmio_model::policy::text::text;
use vmio_model::policy::{Direction, Matcher, Policy};
use vmio_model::rate::BitRate;
use vmio_node::Local;
use vmio_node::linux::net::Interfaces;

use crate::core::PoolStatus;
use crate::desired::PoolKey;
use crate::interface::DiscoveredInterface;
use crate::planes::PlaneError;
use crate::planes::observe::{Bytes, links, of_guest};

/// Most interfaces on record, including those that are gone.
const MOST: usize = 20_000;
/// Tolerance in percent when rates are compared.
const MORE: u64 = 2;
/// Use in percent from which on an uplink is full.
const FULL: u64 = 95;
/// Seconds from which on a policy is proposed.
const ENOUGH: u64 = 10;
/// A shorter time since the last look is part of the next one's.
const SHORTEST: f64 = 0.5;
/// Ratio of neighbouring bins of the histogram of rates.
const STEP: f64 = 1.02;

/// What was seen so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observed {
    /// Seconds that were looked at.
    pub seconds: u64,
    /// What the policy would have meant, by uplink and direction.
    pub pools: Vec<ObservedPool>,
    /// What each interface of a guest sent and received, whether the policy speaks of it or not.
    pub interfaces: Vec<ObservedInterface>,
    /// A policy made from it, as TOML; `vmio guard check` accepts it. Empty where none is proposed.
    pub proposal: String,
    /// Why no policy is proposed; null where one is.
    #[serde(default)]
    pub not_proposed: Option<String>,
}

/// One direction of an uplink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedPool {
    /// The uplink.
    pub uplink: String,
    /// The direction, seen from the guest.
    pub direction: Direction,
    /// What its members share.
    pub shared_bps: BitRate,
    /// The most that they took together in a second.
    pub peak_bps: BitRate,
    /// Seconds in which they took at least 95 % of it.
    pub full_seconds: u64,
    /// Seconds in which they took more than it, as traffic between guests of this host can.
    pub over_seconds: u64,
    /// Its members.
    pub members: Vec<ObservedMember>,
}

/// A member of a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedMember {
    /// `host`, `default`, or the interface.
    pub name: String,
    /// Its class.
    pub class: String,
    /// The most that it took in a second.
    pub peak_bps: BitRate,
    /// Seconds in which it would have been limited to its maximum.
    pub above_max_seconds: u64,
    /// Seconds in which it would have been held below its maximum, since others were owed the rest.
    pub held_seconds: u64,
    /// Seconds in which it used all of its minimum.
    pub min_used_seconds: u64,
    /// Seconds in which it took something, but less than its minimum, while the uplink was full: it may have been denied it.
    pub short_seconds: u64,
}

/// An interface of a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedInterface {
    /// What it is known by in a policy: `vm:web1`, `mac:52:54:00:12:34:56`, `tap0`.
    pub name: String,
    /// The uplink that it was taken to share; null where the policy has several and it belongs to none.
    pub uplink: Option<String>,
    /// What the guest sent: what it took at most in 95 % of the seconds.
    pub tx_usual_bps: BitRate,
    /// The most that it sent in a second.
    pub tx_peak_bps: BitRate,
    /// What it received at most in 95 % of the seconds.
    pub rx_usual_bps: BitRate,
    /// The most that it received in a second.
    pub rx_peak_bps: BitRate,
}

/// Histogram of the rates of one direction of an interface.
#[derive(Debug, Clone, Default)]
struct Rates {
    peak: BitRate,
    seconds: u64,
    by_step: BTreeMap<u32, u64>,
}

impl Rates {
    fn add(&mut self, rate: BitRate) {
        self.peak = self.peak.max(rate);
        self.seconds += 1;
        if rate > BitRate::ZERO {
            *self.by_step.entry(((rate.bits() as f64).ln() / STEP.ln()).ceil() as u32).or_default() += 1;
        }
    }

    /// The 95th percentile (nearest rank): the upper end of its bin.
    fn usual(&self) -> BitRate {
        let rank = (self.seconds * 95).div_ceil(100);
        let mut counted = self.seconds - self.by_step.values().sum::<u64>();
        for (step, seconds) in &self.by_step {
            if counted >= rank {
                break;
            }
            counted += seconds;
            if counted >= rank {
                let end = STEP.powi(i32::try_from(*step).unwrap_or(i32::MAX));
                return BitRate::new(end as u64).min(self.peak);
            }
        }
        BitRate::ZERO
    }

    fn need(&self) -> Need {
        Need { usual: self.usual(), peak: self.peak }
    }
}

#[derive(Debug, Clone)]
struct Guest {
    matcher: Matcher,
    uplink: Option<String>,
    /// In the order of [`Direction::ALL`].
    rates: [Rates; 2],
}

#[derive(Debug, Clone, Default)]
struct Pool {
    shared: BitRate,
    peak: BitRate,
    full: u64,
    over: u64,
    members: BTreeMap<String, ObservedMember>,
}

/// The record.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    seconds: u64,
    last: Option<(Instant, BTreeMap<String, Bytes>)>,
    passed: BTreeMap<(PoolKey, String), u64>,
    /// By matcher, so that a restarted guest is the same one.
    guests: BTreeMap<String, Guest>,
    pools: BTreeMap<PoolKey, Pool>,
    /// Interfaces of the last look, with the matcher of each.
    matchers: (Vec<Interface>, Vec<Option<Matcher>>),
    /// Whether an interface has hardware behind it, so that it is no guest's.
    hardware: BTreeMap<String, bool>,
}

impl Survey {
    /// Reads the counters of links, and records the traffic since the last call.
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub fn look(
        &mut self,
        found: &[DiscoveredInterface],
        pools: &[PoolStatus],
        policy: &Policy,
    ) -> Result<(), PlaneError> {
        self.second(Instant::now(), links()?, found, pools, policy);
        Ok(())
    }

    fn second(
        &mut self,
        at: Instant,
        links: BTreeMap<String, Bytes>,
        found: &[DiscoveredInterface],
        pools: &[PoolStatus],
        policy: &Policy,
    ) {
        let counted = |pool: &PoolStatus| {
            let key = pool.key.clone();
            pool.members.iter().map(move |m| ((key.clone(), m.name.clone()), m.count.passed_bytes)).collect::<Vec<_>>()
        };
        let passed: BTreeMap<_, u64> = pools.iter().flat_map(counted).collect();
        let seconds = self.last.as_ref().map(|(before, _)| at.saturating_duration_since(*before).as_secs_f64());
        if seconds.is_some_and(|seconds| seconds < SHORTEST) {
            return;
        }
        if let Some(seconds) = seconds {
            self.seconds += 1;
            self.interfaces(seconds, &links, found, policy);
            for pool in pools {
                self.pool(pool, seconds, policy);
            }
        }
        (self.last, self.passed) = (Some((at, links)), passed);
    }

    fn interfaces(
        &mut self,
        seconds: f64,
        links: &BTreeMap<String, Bytes>,
        found: &[DiscoveredInterface],
        policy: &Policy,
    ) {
        let names: BTreeSet<&String> = found.iter().map(|f| &f.interface.name).collect();
        self.hardware.retain(|name, _| names.contains(name));
        let node = Local::new();
        let among: Vec<Interface> = found.iter().map(|f| f.interface.clone()).collect();
        if self.matchers.0 != among {
            let means = means(&among);
            self.matchers = (among, means);
        }
        let here = Interfaces::here(&node);
        let Some((_, last)) = &self.last else { return };
        for (found, matcher) in found.iter().zip(&self.matchers.1) {
            let name = &found.interface.name;
            let hardware = self.hardware.entry(name.clone()).or_insert_with(|| here.is_device(name));
            let (Some(now), Some(before)) = (links.get(name), last.get(name)) else { continue };
            let Some(matcher) = matcher.as_ref().filter(|_| !*hardware) else { continue };
            if self.guests.len() >= MOST && !self.guests.contains_key(&matcher.label()) {
                continue;
            }
            let new = || Guest { matcher: matcher.clone(), uplink: None, rates: Default::default() };
            let guest = self.guests.entry(matcher.label()).or_insert_with(new);
            guest.uplink = uplink(found, policy);
            for (direction, rates) in Direction::ALL.into_iter().zip(&mut guest.rates) {
                // `None` where counters started again at zero.
                if let Some(bytes) = of_guest(*now, direction).checked_sub(of_guest(*before, direction)) {
                    rates.add(BitRate::of_bytes(bytes, seconds));
                }
            }
        }
    }

    fn pool(&mut self, pool: &PoolStatus, seconds: f64, policy: &Policy) {
        let Some(uplink) = policy.uplinks.get(&pool.key.uplink) else { return };
        let rates: Vec<BitRate> = pool
            .members
            .iter()
            .map(|m| {
                let before = self.passed.get(&(pool.key.clone(), m.name.clone())).copied();
                let passed = before.and_then(|before| m.count.passed_bytes.checked_sub(before));
                BitRate::of_bytes(passed.unwrap_or(0), seconds)
            })
            .collect();
        let contract = |m: &crate::core::MemberStatus| Member {
            min: m.min_effective_bps,
            ..policy.class(&m.class).member(uplink.capacity)
        };
        let members: Vec<Member> = pool.members.iter().map(contract).collect();
        let demands: Vec<Demand> = rates.iter().map(|rate| Demand::Rate(*rate)).collect();
        let grants = exact(pool.root_bps, &members, &demands);
        let (sum, shared) = (rates.iter().copied().sum::<BitRate>(), pool.root_bps);
        let pool_record = self.pools.entry(pool.key.clone()).or_default();
        let full = sum >= FULL * (shared / 100);
        (pool_record.shared, pool_record.peak) = (shared, pool_record.peak.max(sum));
        pool_record.full += u64::from(full);
        pool_record.over += u64::from(more(sum, shared));
        for (((status, member), grant), rate) in pool.members.iter().zip(&members).zip(&grants).zip(rates) {
            let new = || ObservedMember {
                name: status.name.clone(),
                class: String::new(),
                peak_bps: BitRate::ZERO,
                above_max_seconds: 0,
                held_seconds: 0,
                min_used_seconds: 0,
                short_seconds: 0,
            };
            let record = pool_record.members.entry(status.name.clone()).or_insert_with(new);
            record.class.clone_from(&status.class);
            record.peak_bps = record.peak_bps.max(rate);
            let held = more(rate, grant.rate);
            record.above_max_seconds += u64::from(held && more(rate, member.max));
            record.held_seconds += u64::from(held && !more(rate, member.max));
            record.min_used_seconds += u64::from(member.min > BitRate::ZERO && !more(member.min, rate));
            record.short_seconds += u64::from(full && rate > BitRate::ZERO && more(member.min, rate));
        }
    }

    /// The record as a document, with a proposal based on a policy.
    pub fn document(&self, policy: &Policy) -> Observed {
        let pool = |(key, pool): (&PoolKey, &Pool)| ObservedPool {
            uplink: key.uplink.clone(),
            direction: key.direction,
            shared_bps: pool.shared,
            peak_bps: pool.peak,
            full_seconds: pool.full,
            over_seconds: pool.over,
            members: pool.members.values().cloned().collect(),
        };
        let interface = |(name, guest): (&String, &Guest)| {
            let [sent, received] = guest.rates.each_ref().map(Rates::need);
            ObservedInterface {
                name: name.clone(),
                uplink: guest.uplink.clone(),
                tx_usual_bps: sent.usual,
                tx_peak_bps: sent.peak,
                rx_usual_bps: received.usual,
                rx_peak_bps: received.peak,
            }
        };
        let needs = |guest: &Guest| {
            let needs = guest.rates.each_ref().map(Rates::need);
            Some(Needs { matcher: guest.matcher.clone(), uplink: guest.uplink.clone()?, needs })
        };
        let needs: Vec<Needs> = self.guests.values().filter_map(needs).collect();
        let not_proposed = self.not_proposed();
        let proposal = if not_proposed.is_some() { String::new() } else { text(&from_needs(policy, &needs)) };
        Observed {
            seconds: self.seconds,
            pools: self.pools.iter().map(pool).collect(),
            interfaces: self.guests.iter().map(interface).collect(),
            proposal,
            not_proposed,
        }
    }

    /// Why a policy would be made from too little; `None` where it would not.
    fn not_proposed(&self) -> Option<String> {
        if self.seconds < ENOUGH {
            return Some(format!(
                "what a guest needs shows after {ENOUGH} seconds at the earliest; better observe a day"
            ));
        }
        let quiet = self.guests.values().flat_map(|guest| &guest.rates).all(|rates| rates.peak == BitRate::ZERO);
        quiet.then(|| "no guest sent or received anything".to_owned())
    }
}

/// The uplink of an interface: that of its entry, the only one, or the one that it is bridged to.
pub fn uplink(found: &DiscoveredInterface, policy: &Policy) -> Option<String> {
    let entry = vmio_model::policy::assign::assign(policy, &found.interface).map(|a| a.entry.uplink.clone());
    let only = || policy.uplinks.keys().next().filter(|_| policy.uplinks.len() == 1).cloned();
    let bridged = || found.paths.iter().find(|(_, path)| path.routed == Some(false)).map(|(name, _)| name.clone());
    entry.or_else(only).or_else(bridged)
}

/// Whether a rate is above another by more than the tolerance.
fn more(rate: BitRate, than: BitRate) -> bool {
    rate > than.saturating_add(MORE * (than / 100))
}

#[cfg(test)]
mod tests;
