//! What each member got and wanted, and who did not get its minimum: from what members have counted at two times. Pure;
//! called once a second.
//!
//! A member is **held back** in a window in which packets of it were dropped, or something of it waits at both ends. It
//! **wants its minimum** where it got it, or where something of it waits at both ends of the window: a queue that was
//! empty at either end may have had nothing to send for a part of it. What never comes to this host (dropped
//! by a switch before it) nobody here can count.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use vmio_model::rate::BitRate;

use crate::core::PoolStatus;
use crate::desired::PoolKey;
use crate::planes::Count;

/// A minimum is met by this share of it: windows and packets have ends.
const MET: f64 = 0.95;
/// A guarantee is breached when it was not met for so long in a row, and kept again when it was for as long.
const LASTS: Duration = Duration::from_secs(2);
/// A link at which so much of its capacity arrives is full: those that give way are held to less than that, so that somebody
/// does not.
pub const FULL: f64 = 0.98;
/// Windows of which [`Demand::ratio`] tells: a minute.
const WINDOWS: u32 = 60;

/// What a window changed.
enum Turn {
    Begins,
    Ends(Duration),
}

/// Demand of a member since it is in the pool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemberDemand {
    /// What passed in the last window; `None` where that is not known yet.
    pub rate_bps: Option<BitRate>,
    /// Bytes that passed, and those that came to wait; in windows in which packets were dropped those that came in at its
    /// interface, where that is counted. Else what was dropped is not among them: nobody counts its length.
    pub offered_bytes: u64,
    /// Those of the last window, as a rate; `None` as of what passed.
    pub offered_bps: Option<BitRate>,
    /// Time in which it was held back.
    pub held: Duration,
    /// Time in which it wanted its minimum.
    pub wanted: Duration,
    /// Time of that in which it got it.
    pub met: Duration,
    /// Breaches of its guarantee so far.
    pub breaches: u64,
    /// How long its guarantee has not been met now, if it is breached.
    pub breached: Option<Duration>,
    /// Time in which it received less than its minimum while its uplink was full: what is lost before this host nobody here
    /// can hold.
    pub flooded: Duration,
    /// How long in a row.
    flooded_now: Duration,
    /// The last windows, the youngest lowest: whether it wanted its minimum, and whether it got it.
    windows: (u64, u64),
    /// How long in a row it has been otherwise than `breached` says.
    otherwise: Duration,
}

impl MemberDemand {
    /// Of the windows of the last minute in which it wanted its minimum, the share in which it got it, 0 to 1; `None`
    /// where it wanted it in none.
    pub fn ratio(&self) -> Option<f64> {
        let (wanted, met) = self.windows;
        (wanted > 0).then(|| f64::from(met.count_ones()) / f64::from(wanted.count_ones()))
    }

    /// How long in a row it has received less than its minimum from a link that is full; `None` for less than 2 s.
    pub fn flooded_for(&self) -> Option<Duration> {
        Some(self.flooded_now).filter(|time| *time >= LASTS)
    }

    /// A window: what it counted, how long it was, its minimum, and whether its link was full.
    fn count(&mut self, before: Count, now: Count, time: Duration, min: BitRate, full: bool) -> Option<Turn> {
        let seconds = time.as_secs_f64();
        let passed = now.passed_bytes.checked_sub(before.passed_bytes);
        let dropped = now.dropped_packets.checked_sub(before.dropped_packets);
        let (Some(passed), Some(dropped), true) = (passed, dropped, seconds > 0.0) else {
            // One that counts anew tells nothing of this window.
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
        // Who gets nothing may well want nothing.
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

    /// Whether a breach begins or ends with this window.
    fn judge(&mut self, missed: bool, time: Duration) -> Option<Turn> {
        if let Some(so_far) = &mut self.breached {
            *so_far += time;
        }
        if missed == self.breached.is_some() {
            self.otherwise = Duration::ZERO;
            return None;
        }
        self.otherwise += time;
        if self.otherwise < LASTS {
            return None;
        }
        let turn = match self.lasted() {
            None => Turn::Begins,
            Some(lasted) => Turn::Ends(lasted),
        };
        self.breached = missed.then_some(self.otherwise);
        self.breaches += u64::from(missed);
        self.otherwise = Duration::ZERO;
        Some(turn)
    }

    /// How long the breach was up to the last window in which the minimum was not met.
    fn lasted(&self) -> Option<Duration> {
        Some(self.breached?.saturating_sub(self.otherwise))
    }
}

/// A guarantee that is not kept any more, or is again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// Where.
    pub pool: PoolKey,
    /// Whose.
    pub member: String,
    /// Its minimum as far as all fit.
    pub min_bps: BitRate,
    /// What passed in the last window.
    pub rate_bps: BitRate,
    /// `None` where it begins; where it ends, how long it was.
    pub ended_after: Option<Duration>,
}

/// A member.
#[derive(Debug, Clone)]
struct Member {
    last: Count,
    known: MemberDemand,
    min: BitRate,
    /// The look at which it was there.
    look: u64,
}

/// What arrives at an uplink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Arriving {
    bytes: u64,
    full: bool,
}

/// The demand of each member.
#[derive(Debug, Clone, Default)]
pub struct Demand {
    pools: BTreeMap<PoolKey, BTreeMap<String, Member>>,
    /// Of what guests receive.
    arriving: BTreeMap<PoolKey, Arriving>,
    at: Option<Instant>,
    looks: u64,
}

impl Demand {
    /// What is counted now; which breaches begin and end with it.
    pub fn count(&mut self, pools: &[PoolStatus], at: Instant) -> Vec<Breach> {
        let time = self.at.map_or(Duration::ZERO, |before| at.saturating_duration_since(before));
        self.at = Some(at);
        self.looks += 1;
        let look = self.looks;
        let mut breaches = Vec::new();
        for pool in pools {
            let full = self.arrive(pool, time);
            let members = self.pools.entry(pool.key.clone()).or_default();
            for member in &pool.members {
                // No name is copied for who was there before: there may be thousands.
                let Some(before) = members.get_mut(&member.name) else {
                    members.insert(member.name.clone(), {
                        let (last, min) = (member.count, member.min_effective_bps);
                        Member { last, known: MemberDemand::default(), min, look }
                    });
                    continue;
                };
                if before.look == look {
                    // No two are called the same; if they were, what the first counts is told.
                    continue;
                }
                before.look = look;
                before.min = member.min_effective_bps;
                let last = std::mem::replace(&mut before.last, member.count);
                if let Some(turn) = before.known.count(last, member.count, time, member.min_effective_bps, full) {
                    breaches.push(Breach {
                        pool: pool.key.clone(),
                        member: member.name.clone(),
                        min_bps: member.min_effective_bps,
                        rate_bps: before.known.rate_bps.unwrap_or_default(),
                        ended_after: match turn {
                            Turn::Begins => None,
                            Turn::Ends(lasted) => Some(lasted),
                        },
                    });
                }
            }
        }
        for (key, members) in &mut self.pools {
            members.retain(|name, member| {
                let there = member.look == look;
                if !there {
                    breaches.extend(over(key, name, &member.known));
                }
                there
            });
        }
        self.pools.retain(|_, members| !members.is_empty());
        self.arriving.retain(|key, _| pools.iter().any(|pool| pool.key == *key));
        breaches
    }

    /// What has arrived at a pool's uplink by now; whether that fills it.
    fn arrive(&mut self, pool: &PoolStatus, time: Duration) -> bool {
        let Some(bytes) = pool.arrived_bytes else { return false };
        let before = self.arriving.get(&pool.key);
        let arrived = before.and_then(|before| bytes.checked_sub(before.bytes)).unwrap_or(0);
        let full = arrived > 0 && arrived as f64 * 8.0 >= pool.capacity_bps.bits() as f64 * time.as_secs_f64() * FULL;
        self.arriving.insert(pool.key.clone(), Arriving { bytes, full });
        full
    }

    /// Whether so much arrives at a pool's uplink as it takes; `None` where that is not counted.
    pub fn is_full(&self, pool: &PoolKey) -> Option<bool> {
        Some(self.arriving.get(pool)?.full)
    }

    /// Nothing has passed since the last look, nothing waits, and the same members are there; which breaches end with it.
    pub fn rest(&mut self, at: Instant) -> Vec<Breach> {
        let time = self.at.map_or(Duration::ZERO, |before| at.saturating_duration_since(before));
        self.at = Some(at);
        self.arriving.values_mut().for_each(|arriving| arriving.full = false);
        let mut breaches = Vec::new();
        for (pool, members) in &mut self.pools {
            for (name, Member { last, known, min, .. }) in members {
                let ended_after = match known.count(*last, *last, time, *min, false) {
                    None => continue,
                    Some(Turn::Begins) => None,
                    Some(Turn::Ends(lasted)) => Some(lasted),
                };
                let (pool, member) = (pool.clone(), name.clone());
                breaches.push(Breach { pool, member, min_bps: *min, rate_bps: BitRate::ZERO, ended_after });
            }
        }
        breaches
    }

    /// Of a member; `None` of one that was not there at the last look.
    pub fn of(&self, pool: &PoolKey, member: &str) -> Option<&MemberDemand> {
        Some(&self.pools.get(pool)?.get(member)?.known)
    }
}

/// Who is gone wants nothing any more.
fn over(pool: &PoolKey, member: &str, gone: &MemberDemand) -> Option<Breach> {
    let (min_bps, rate_bps, ended_after) = (BitRate::ZERO, BitRate::ZERO, Some(gone.lasted()?));
    Some(Breach { pool: pool.clone(), member: member.to_owned(), min_bps, rate_bps, ended_after })
}

#[cfg(test)]
mod tests;
