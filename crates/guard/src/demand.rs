//! What each member got and wanted in a window of about a second, and whose minimum was not met, from counters at its
//! two ends. Pure.
//!
//! A member is **held back** in a window in which packets of it were dropped, or its queue had packets at both ends. It
//! **wants its minimum** where it got it, or where its queue had packets at both ends: a queue that was empty at one
//! end may have had nothing to send for a part of the window. Packets that are lost before this host cannot be counted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use vmio_model::policy::delay::DelayTarget;
use vmio_model::rate::BitRate;

use crate::core::PoolStatus;
use crate::desired::PoolKey;
use crate::planes::{Count, FlowCount, LocalCount};

mod breach;
mod delay;
pub mod history;

use breach::{BreachChange, LASTS, judge};
pub use delay::{DelayChange, DelayDemand, Waits};

/// Share of a minimum from which on it is met, since windows cut packets.
const MET: f64 = 0.95;
/// Share of a link's capacity from which on it is full. TCP is limited to less, so a full link has a sender that
/// ignores loss.
pub const FULL: f64 = 0.98;
/// Windows of [`MemberDemand::ratio`]: a minute.
const WINDOWS: u32 = 60;

/// Demand of a member since it joined the pool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemberDemand {
    /// Rate that passed in the last window; `None` before there is one.
    pub rate_bps: Option<BitRate>,
    /// Bytes that passed or began to wait; in windows with dropped packets those that came in at its interface, where
    /// they are counted, else without the dropped ones.
    pub offered_bytes: u64,
    /// Offered rate of the last window; `None` as for `rate_bps`.
    pub offered_bps: Option<BitRate>,
    /// Rate of what it sent or received beside the uplink, since its counter was read before; `None` before.
    pub local_bps: Option<BitRate>,
    /// Rate of each of its flow classes in the last window, in their order; `None` as for `rate_bps`.
    pub flow_bps: Vec<Option<BitRate>>,
    /// How long its packets waited.
    pub delay: DelayDemand,
    /// Time in which it was held back.
    pub held: Duration,
    /// Time in which it wanted its minimum.
    pub wanted: Duration,
    /// Part of that time in which it got it.
    pub met: Duration,
    /// Number of breaches of its guarantee.
    pub breaches: u64,
    /// Duration of the current breach.
    pub breached: Option<Duration>,
    /// Time in which it received less than its minimum while its uplink was full, which this host cannot prevent.
    pub flooded: Duration,
    /// The same without interruption until now.
    flooded_now: Duration,
    /// Bits of the last windows, the latest lowest: minimum wanted, and minimum wanted and met.
    windows: (u64, u64),
    /// Time in a row in which windows contradicted `breached`.
    otherwise: Duration,
    /// Whether its pool was not in force in the last window.
    interrupted: bool,
}

impl MemberDemand {
    /// Share of the last minute's windows with demand for the minimum in which it was met, 0 to 1; `None` without
    /// demand.
    pub fn ratio(&self) -> Option<f64> {
        let (wanted, met) = self.windows;
        (wanted > 0).then(|| f64::from(met.count_ones()) / f64::from(wanted.count_ones()))
    }

    /// Whether another window without traffic leaves it as it is.
    fn is_at_rest(&self) -> bool {
        self.windows == (0, 0) && self.breached.is_none() && self.rate_bps == Some(BitRate::ZERO)
    }

    /// Time in a row in which it received less than its minimum from a full link; `None` for less than 2 s.
    pub fn flooded_for(&self) -> Option<Duration> {
        Some(self.flooded_now).filter(|time| *time >= LASTS)
    }

    /// Adds a window in which its pool was not in force: nothing is known of its traffic, and a minimum is not held.
    fn interrupt(&mut self, time: Duration, min: BitRate) {
        (self.rate_bps, self.offered_bps, self.flooded_now, self.otherwise) = Default::default();
        self.interrupted = true;
        self.flow_bps.clear();
        self.delay.interrupt();
        if min == BitRate::ZERO {
            return;
        }
        self.breaches += u64::from(self.breached.is_none());
        self.breached = Some(self.breached.map_or(Duration::ZERO, |so_far| so_far + time));
    }

    /// Adds a window: counters at its ends, its length, the minimum, and whether the link was full.
    fn count(&mut self, before: Count, now: Count, time: Duration, min: BitRate, full: bool) -> Option<BreachChange> {
        let seconds = time.as_secs_f64();
        if std::mem::take(&mut self.interrupted) {
            self.breached = None;
        }
        let passed = now.passed_bytes.checked_sub(before.passed_bytes);
        let dropped = now.dropped_packets.checked_sub(before.dropped_packets);
        let (Some(passed), Some(dropped), true) = (passed, dropped, seconds > 0.0) else {
            // Counters started again at zero.
            (self.rate_bps, self.offered_bps, self.flooded_now) = (None, None, Duration::ZERO);
            return None;
        };
        let offered = now.offered_since(&before, 0).unwrap_or(passed);
        let rate = |bytes: u64| Some(BitRate::of_bytes(bytes, seconds));
        self.offered_bytes += offered;
        (self.rate_bps, self.offered_bps) = (rate(passed), rate(offered));
        let waited = before.waiting_bytes > 0 && now.waiting_bytes > 0;
        if waited || dropped > 0 {
            self.held += time;
        }
        let met = passed as f64 * 8.0 >= min.bits() as f64 * seconds * MET;
        // A member that receives nothing may want nothing.
        self.flooded_now =
            if full && min > BitRate::ZERO && passed > 0 && !met { self.flooded_now + time } else { Duration::ZERO };
        if !self.flooded_now.is_zero() {
            self.flooded += time;
        }
        let wanted = min > BitRate::ZERO && (met || waited);
        let bit = |on: bool| u64::from(on);
        let (all, kept) = self.windows;
        let mask = (1 << WINDOWS) - 1;
        self.windows = ((all << 1 | bit(wanted)) & mask, (kept << 1 | bit(wanted && met)) & mask);
        if wanted {
            self.wanted += time;
        }
        if wanted && met {
            self.met += time;
        }
        self.judge(wanted && !met, time)
    }

    /// Adds the counters of traffic beside the uplink, which may be read less often than once a window. `counted`: it
    /// was held back at the uplink, too.
    fn count_local(
        &mut self,
        before: Option<(Instant, LocalCount)>,
        now: Option<(Instant, LocalCount)>,
        counted: bool,
    ) {
        self.local_bps = None;
        let Some(((earlier, before), (at, now))) = before.zip(now) else { return };
        let time = at.saturating_duration_since(earlier);
        let bytes = now.bytes.checked_sub(before.bytes).filter(|_| !time.is_zero());
        self.local_bps = bytes.map(|bytes| BitRate::of_bytes(bytes, time.as_secs_f64()));
        let waited = before.waiting_bytes > 0 && now.waiting_bytes > 0;
        if !counted && (waited || now.dropped_packets > before.dropped_packets) {
            self.held += time;
        }
    }

    /// Adds the counters of its flow classes, which start again at zero where their queues are made anew.
    fn count_flows(&mut self, before: &[FlowCount], now: &[FlowCount], time: Duration) {
        let rate = |(before, now): (&FlowCount, &FlowCount)| {
            let passed = now.passed_bytes.checked_sub(before.passed_bytes)?;
            (before.name == now.name && !time.is_zero()).then(|| BitRate::of_bytes(passed, time.as_secs_f64()))
        };
        self.flow_bps = before.iter().zip(now).map(rate).collect();
    }

    /// Whether a breach begins or ends with this window.
    fn judge(&mut self, missed: bool, time: Duration) -> Option<BreachChange> {
        judge((&mut self.breached, &mut self.otherwise, &mut self.breaches), missed, time)
    }

    /// Duration of the breach up to the last window in which the minimum was not met.
    fn lasted(&self) -> Option<Duration> {
        Some(self.breached?.saturating_sub(self.otherwise))
    }
}

/// A breach that begins or ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// The pool.
    pub pool: PoolKey,
    /// The member.
    pub member: String,
    /// Its minimum, reduced where not all minima fit.
    pub min_bps: BitRate,
    /// Rate that passed in the last window.
    pub rate_bps: BitRate,
    /// `None` at its begin; its duration at its end.
    pub ended_after: Option<Duration>,
}

/// A member.
#[derive(Debug, Clone)]
struct Member {
    last: Count,
    /// The last counters of traffic beside the uplink, and when they were read.
    local: Option<(Instant, LocalCount)>,
    /// The last counters of its flow classes.
    flows: Vec<FlowCount>,
    demand: MemberDemand,
    min: BitRate,
    target: DelayTarget,
    /// The look that saw it last.
    look_number: u64,
}

/// Traffic that arrives at an uplink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Arriving {
    bytes: u64,
    full: bool,
}

/// The demand of each member.
#[derive(Debug, Clone, Default)]
pub struct Demand {
    pools: BTreeMap<PoolKey, BTreeMap<String, Member>>,
    /// By pool of received traffic.
    arriving: BTreeMap<PoolKey, Arriving>,
    at: Option<Instant>,
    looks: u64,
    /// Whether another look with unchanged counters changes nothing but the time.
    rested: bool,
    /// Targets of delay that began to be missed or were met again, since they were asked for.
    delays: Vec<DelayChange>,
}

impl Demand {
    /// Adds the counters of a look; returns the breaches that begin and end.
    pub fn count(&mut self, pools: &[PoolStatus], at: Instant) -> Vec<Breach> {
        let time = self.at.map_or(Duration::ZERO, |before| at.saturating_duration_since(before));
        self.at = Some(at);
        self.rested = false;
        self.looks += 1;
        let look_number = self.looks;
        let mut breaches = Vec::new();
        for pool in pools {
            let full = self.arrive(pool, time);
            let members = self.pools.entry(pool.key.clone()).or_default();
            for member in &pool.members {
                let local = member.local.map(|local| (at, local));
                // Copies no name of a known member: there may be thousands.
                let Some(before) = members.get_mut(&member.name) else {
                    members.insert(member.name.clone(), {
                        let (last, min, flows) = (member.count, member.min_effective_bps, member.flows.clone());
                        let mut demand = MemberDemand::default();
                        // From here on.
                        demand.delay.count(&member.delay, Duration::ZERO);
                        let target = member.delay.target;
                        Member { last, local, flows, demand, min, target, look_number }
                    });
                    continue;
                };
                if before.look_number == look_number {
                    // Names are unique; else the first one counts.
                    continue;
                }
                before.look_number = look_number;
                (before.min, before.target) = (member.min_effective_bps, member.delay.target);
                let last = std::mem::replace(&mut before.last, member.count);
                let last_local = std::mem::replace(&mut before.local, local);
                let last_flows = std::mem::replace(&mut before.flows, member.flows.clone());
                if pool.interruptions.now.is_some() {
                    before.demand.interrupt(time, before.min);
                    continue;
                }
                let held = before.demand.held;
                let change = before.demand.count(last, member.count, time, member.min_effective_bps, full);
                before.demand.count_local(last_local, local, before.demand.held > held);
                before.demand.count_flows(&last_flows, &member.flows, time);
                let stands = last.waiting_bytes > 0
                    && member.count.waiting_bytes > 0
                    && member.count.passed_bytes == last.passed_bytes;
                let delay = &mut before.demand.delay;
                let delayed =
                    if stands { delay.stand_still(&member.delay, time) } else { delay.count(&member.delay, time) };
                if let Some(ended_after) = delayed {
                    self.delays.push(DelayChange {
                        pool: pool.key.clone(),
                        member: member.name.clone(),
                        target: member.delay.target,
                        waits: before.demand.delay.waits,
                        ended_after,
                    });
                }
                if let Some(change) = change {
                    breaches.push(Breach {
                        pool: pool.key.clone(),
                        member: member.name.clone(),
                        min_bps: member.min_effective_bps,
                        rate_bps: before.demand.rate_bps.unwrap_or_default(),
                        ended_after: match change {
                            BreachChange::Begins => None,
                            BreachChange::Ends(lasted) => Some(lasted),
                        },
                    });
                }
            }
        }
        for (key, members) in &mut self.pools {
            members.retain(|name, member| {
                let there = member.look_number == look_number;
                if !there {
                    breaches.extend(end_of_breach(key, name, &member.demand));
                }
                there
            });
        }
        self.pools.retain(|_, members| !members.is_empty());
        self.arriving.retain(|key, _| pools.iter().any(|pool| pool.key == *key));
        breaches
    }

    /// Records what arrived at a pool's uplink; returns whether the link was full.
    fn arrive(&mut self, pool: &PoolStatus, time: Duration) -> bool {
        let Some(bytes) = pool.arrived_bytes else {
            // After a pause all at once would look like a full link.
            self.arriving.remove(&pool.key);
            return false;
        };
        let before = self.arriving.get(&pool.key);
        let arrived = before.and_then(|before| bytes.checked_sub(before.bytes)).unwrap_or(0);
        let full = arrived > 0 && arrived as f64 * 8.0 >= pool.capacity_bps.bits() as f64 * time.as_secs_f64() * FULL;
        self.arriving.insert(pool.key.clone(), Arriving { bytes, full });
        full
    }

    /// Whether a pool's uplink is full; `None` where its arriving traffic is not counted.
    pub fn is_full(&self, pool: &PoolKey) -> Option<bool> {
        Some(self.arriving.get(pool)?.full)
    }

    /// Whether [`Demand::rest`] changes nothing but the time.
    pub fn is_rested(&self) -> bool {
        self.rested
    }

    /// Adds a look with unchanged members and counters and empty queues; returns the breaches that begin and end.
    pub fn rest(&mut self, at: Instant) -> Vec<Breach> {
        let time = self.at.map_or(Duration::ZERO, |before| at.saturating_duration_since(before));
        self.at = Some(at);
        if self.rested {
            return Vec::new();
        }
        self.arriving.values_mut().for_each(|arriving| arriving.full = false);
        self.rested = true;
        let mut breaches = Vec::new();
        for (pool, members) in &mut self.pools {
            for (name, Member { last, demand, min, target, .. }) in members {
                demand.flow_bps.fill(Some(BitRate::ZERO));
                if let Some(ended_after) = demand.delay.rest(time) {
                    let (pool, member) = (pool.clone(), name.clone());
                    self.delays.push(DelayChange { pool, member, target: *target, waits: None, ended_after });
                }
                let change = demand.count(*last, *last, time, *min, false);
                self.rested &= last.waiting_bytes == 0 && demand.is_at_rest() && demand.delay.is_at_rest();
                let ended_after = match change {
                    None => continue,
                    Some(BreachChange::Begins) => None,
                    Some(BreachChange::Ends(lasted)) => Some(lasted),
                };
                let (pool, member) = (pool.clone(), name.clone());
                breaches.push(Breach { pool, member, min_bps: *min, rate_bps: BitRate::ZERO, ended_after });
            }
        }
        breaches
    }

    /// Targets of delay that began to be missed or were met again, since the last call.
    pub fn take_delays(&mut self) -> Vec<DelayChange> {
        std::mem::take(&mut self.delays)
    }

    /// Demand of a member; `None` of one that the last look did not see.
    pub fn of(&self, pool: &PoolKey, member: &str) -> Option<&MemberDemand> {
        Some(&self.pools.get(pool)?.get(member)?.demand)
    }
}

/// The end of the breach of a member that is gone.
fn end_of_breach(pool: &PoolKey, member: &str, gone: &MemberDemand) -> Option<Breach> {
    let (min_bps, rate_bps, ended_after) = (BitRate::ZERO, BitRate::ZERO, Some(gone.lasted()?));
    Some(Breach { pool: pool.clone(), member: member.to_owned(), min_bps, rate_bps, ended_after })
}

#[cfg(test)]
mod tests;
