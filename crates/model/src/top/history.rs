//! What this session saw before: how fast each disk is when little is asked of it, and how each
//! guest fared while another was quiet. Bounded: when it is full, every second interval goes, so a
//! long session keeps its beginning.

use std::collections::BTreeMap;

use super::latency::{BUCKETS, Latency};
use super::load::{Device, DeviceLoad, Interval, Requests};
use super::rows::per_second;
use super::share::{self, Actor, Identity};

/// A disk is quiet when no more requests than this are at it at once, on average: one program that
/// waits for each of its requests is no load that others wait for.
const QUIET_DEPTH: f64 = 1.5;
/// Fewer requests than this in a direction say nothing of its latency.
const LEAST_REQUESTS: u64 = 10;
/// From so many requests on, a direction alone tells whether requests wait.
const SLOWED_REQUESTS: u64 = 100;
/// A guest is quiet when it has less than this share of the disk's time.
const QUIET_SHARE: f64 = 0.10;
/// Intervals kept.
const KEPT: usize = 512;

/// A session so far.
#[derive(Debug, Clone)]
pub struct History {
    fastest: BTreeMap<Device, [BTreeMap<u32, Fastest>; 2]>,
    past: Vec<Past>,
    /// Of how many intervals one is kept.
    stride: usize,
    seen: usize,
    /// Most disks that an interval had.
    widest: usize,
}

impl Default for History {
    fn default() -> Self {
        History { fastest: BTreeMap::new(), past: Vec::new(), stride: 1, seen: 0, widest: 1 }
    }
}

/// The lowest mean latency that requests of about one size had in a quiet interval.
#[derive(Debug, Clone, Copy)]
struct Fastest {
    bytes: f64,
    seconds: f64,
}

/// How fast the requests of a direction are now, and at a quiet disk at most.
struct Pace {
    direction: &'static str,
    requests: u64,
    seconds: f64,
    quiet_seconds: Option<f64>,
}

#[derive(Debug, Clone)]
struct Past {
    number: usize,
    device: Device,
    shares: BTreeMap<Identity, f64>,
    latencies: BTreeMap<Identity, Vec<(u8, u32)>>,
}

impl History {
    /// Remembers an interval. To be called after its verdicts were drawn.
    pub fn remember(&mut self, interval: &Interval) {
        if interval.seconds <= 0.0 {
            return;
        }
        for load in &interval.devices {
            self.fastest(load, interval.seconds);
        }
        let number = self.seen;
        self.seen += 1;
        if !interval.traced || !number.is_multiple_of(self.stride) {
            return;
        }
        self.past.extend(interval.devices.iter().filter_map(|load| past(interval, load.device, number)));
        self.widest = self.widest.max(interval.devices.len());
        // Once an interval is enough: none adds more than it may have.
        if self.past.len() > KEPT * self.widest {
            self.stride *= 2;
            self.past.retain(|p| p.number.is_multiple_of(self.stride));
        }
    }

    fn fastest(&mut self, load: &DeviceLoad, seconds: f64) {
        let sides = [load.reads, load.writes, load.others];
        let depth = per_second(sides.iter().map(|side| side.request_seconds).sum(), seconds);
        if depth > QUIET_DEPTH {
            return;
        }
        let sizes = self.fastest.entry(load.device).or_default();
        for (sizes, side) in sizes.iter_mut().zip([load.reads, load.writes]) {
            let Some((bytes, seconds)) = mean(&side).filter(|_| side.requests >= LEAST_REQUESTS) else { continue };
            let now = Fastest { bytes, seconds };
            let best = sizes.entry(class(bytes)).or_insert(now);
            if seconds < best.seconds {
                *best = now;
            }
        }
    }

    /// The mean time that the requests of this interval would take at a quiet disk, at most. `None`
    /// when no quiet moment was seen.
    pub fn quiet_seconds(&self, load: &DeviceLoad) -> Option<f64> {
        let (mut requests, mut sum) = (0.0, 0.0);
        for pace in self.paces(load) {
            requests += pace.requests as f64;
            sum += pace.quiet_seconds? * pace.requests as f64;
        }
        (requests > 0.0).then(|| sum / requests)
    }

    /// The direction that is most slowed down: with at least [`SLOWED_REQUESTS`], which take at least
    /// so many times what they take at a quiet disk. Its name, the mean now, and then.
    pub fn slowed(&self, load: &DeviceLoad, times: f64) -> Option<(&'static str, f64, f64)> {
        self.paces(load)
            .filter(|pace| pace.requests >= SLOWED_REQUESTS)
            .filter_map(|pace| Some((pace.direction, pace.seconds, pace.quiet_seconds?)))
            .filter(|(_, now, quiet)| *now >= quiet * times)
            .max_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2)))
    }

    /// The directions that have requests in this interval. What they would take at a quiet disk is
    /// the lowest seen in this session at that size; else from another size: a larger request takes
    /// at most as much longer as it is larger, and a smaller one no longer.
    fn paces(&self, load: &DeviceLoad) -> impl Iterator<Item = Pace> {
        let sizes = self.fastest.get(&load.device);
        let sides = [("reads", load.reads), ("writes", load.writes)];
        sides.into_iter().enumerate().filter_map(move |(i, (direction, side))| {
            let (bytes, seconds) = mean(&side)?;
            let bound = |f: &Fastest| f.seconds * (bytes / f.bytes.max(1.0)).max(1.0);
            let quiet_seconds = sizes.and_then(|s| s[i].values().map(bound).min_by(f64::total_cmp));
            Some(Pace { direction, requests: side.requests, seconds, quiet_seconds })
        })
    }

    /// Latencies of a guest at a disk in those intervals in which `hogs` together were quiet there.
    /// Without requests in such intervals it is empty.
    pub fn without(&self, device: Device, guest: &Identity, hogs: &[Identity]) -> Latency {
        let mut sum = Latency::default();
        for past in self.past.iter().filter(|p| p.device == device) {
            let share: f64 = hogs.iter().filter_map(|hog| past.shares.get(hog)).sum();
            if share < QUIET_SHARE
                && let Some(counts) = past.latencies.get(guest)
            {
                counts.iter().for_each(|(bucket, n)| sum.counts[usize::from(*bucket)] += u64::from(*n));
            }
        }
        sum
    }
}

#[cfg(test)]
impl History {
    pub(super) fn kept(&self) -> usize {
        self.past.len()
    }
}

fn mean(side: &Requests) -> Option<(f64, f64)> {
    let n = side.requests as f64;
    (n > 0.0).then(|| (side.bytes as f64 / n, side.request_seconds / n))
}

/// Powers of two of the size.
fn class(bytes: f64) -> u32 {
    (bytes as u64).max(1).ilog2()
}

fn past(interval: &Interval, device: Device, number: usize) -> Option<Past> {
    const { assert!(BUCKETS <= 256) };
    let parts = share::parts(interval, Some(device), share::Basis::DeviceTime);
    let all: f64 = parts.iter().map(|(_, part)| part).sum();
    let mut latencies = BTreeMap::new();
    for (i, guest) in interval.guests.iter().enumerate() {
        let mut counts = Latency::default();
        for disk in guest.disks.iter().filter(|d| d.device == Some(device)) {
            [&disk.reads, &disk.writes].iter().filter_map(|t| t.latency.as_ref()).for_each(|l| counts.merge(l));
        }
        let sparse: Vec<(u8, u32)> = counts
            .counts
            .iter()
            .enumerate()
            .filter(|(_, n)| **n > 0)
            .map(|(bucket, n)| (bucket as u8, u32::try_from(*n).unwrap_or(u32::MAX)))
            .collect();
        if !sparse.is_empty() {
            latencies.insert(Actor::Guest(i).identity(interval), sparse);
        }
    }
    if latencies.is_empty() {
        return None;
    }
    let mut shares = BTreeMap::new();
    for (who, part) in parts.into_iter().filter(|_| all > 0.0) {
        *shares.entry(who.identity(interval)).or_default() += part / all;
    }
    Some(Past { number, device, shares, latencies })
}
