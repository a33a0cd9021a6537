//! Memory of a session: how fast each disk is under little load, and how each guest fared while another was quiet. Its
//! size is limited: when it is full, every second interval is dropped, so a long session keeps its beginning.

use std::collections::BTreeMap;

use super::journal::Writer;
use super::latency::{BUCKETS, Latency};
use super::load::{Device, DeviceLoad, HostCpu, Interval, JournalLoad, Requests};
use super::rows::per_second;
use super::share::{self, Actor, Identity};

/// A disk is quiet with at most this many requests at once, on average: a program that waits for each of its requests
/// makes no others wait.
const QUIET_DEPTH: f64 = 1.5;
/// Fewest requests of a direction with a meaningful latency.
const LEAST_REQUESTS: u64 = 10;
/// Requests of one direction from which it alone can show waiting.
const SLOWED_REQUESTS: u64 = 100;
/// Share of the disk's time below which a guest is quiet.
const QUIET_SHARE: f64 = 0.10;
/// Intervals kept.
const KEPT: usize = 512;
/// Seconds after which what was dirtied counts half: the kernel writes pages after 5 to 30 s
/// (`dirty_expire_centisecs`).
const HALF_SECONDS: f64 = 5.0;
/// Bytes below which it is forgotten.
const LEAST_BYTES: f64 = 1e6;

/// A session.
#[derive(Debug, Clone)]
pub struct History {
    fastest: BTreeMap<Device, [BTreeMap<u32, Fastest>; 2]>,
    past: Vec<PastInterval>,
    /// One of this many intervals is kept.
    stride: usize,
    seen: usize,
    /// Most disks of an interval.
    widest: usize,
    /// Whether the processors were full in the last interval.
    full: bool,
    /// Who dirtied pages of which file system, less and less.
    writers: BTreeMap<Device, BTreeMap<Identity, Writer>>,
}

impl Default for History {
    fn default() -> Self {
        History {
            fastest: BTreeMap::new(),
            past: Vec::new(),
            stride: 1,
            seen: 0,
            widest: 1,
            full: false,
            writers: BTreeMap::new(),
        }
    }
}

/// Lowest mean latency of requests of about one size in a quiet interval.
#[derive(Debug, Clone, Copy)]
struct Fastest {
    bytes: f64,
    seconds: f64,
}

/// Latency of a direction's requests now, and at most at a quiet disk.
struct Pace {
    direction: &'static str,
    requests: u64,
    seconds: f64,
    quiet_seconds: Option<f64>,
}

#[derive(Debug, Clone)]
struct PastInterval {
    number: usize,
    device: Device,
    shares: BTreeMap<Identity, f64>,
    latencies: BTreeMap<Identity, Vec<(u8, u32)>>,
}

impl History {
    /// Remembers an interval, after its verdicts.
    pub fn remember(&mut self, interval: &Interval) {
        if interval.seconds <= 0.0 {
            return;
        }
        self.full = interval.host_cpu.busy_ratio(interval.seconds).is_some_and(|busy| busy >= HostCpu::FULL);
        for load in &interval.devices {
            self.fastest(load, interval.seconds);
        }
        self.age(interval);
        let number = self.seen;
        self.seen += 1;
        if !interval.traced || !number.is_multiple_of(self.stride) {
            return;
        }
        self.past.extend(interval.devices.iter().filter_map(|load| past(interval, load.device, number)));
        self.widest = self.widest.max(interval.devices.len());
        // Once for each interval is enough: none adds more than it may have.
        if self.past.len() > KEPT * self.widest {
            self.stride *= 2;
            self.past.retain(|p| p.number.is_multiple_of(self.stride));
        }
    }

    /// Who dirtied pages of a file system in this interval and, counting less, before, the most first.
    pub fn writers(&self, load: &JournalLoad) -> Vec<Writer> {
        let mut all = self.writers.get(&load.device).cloned().unwrap_or_default();
        add(&mut all, load.writers());
        let mut all: Vec<Writer> = all.into_values().collect();
        all.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
        all
    }

    /// Adds what was dirtied in an interval to what was before, which becomes less.
    fn age(&mut self, interval: &Interval) {
        let kept = 0.5f64.powf(interval.seconds / HALF_SECONDS);
        for past in self.writers.values_mut() {
            past.values_mut().for_each(|writer| writer.bytes *= kept);
        }
        for load in &interval.journals {
            add(self.writers.entry(load.device).or_default(), load.writers());
        }
        for past in self.writers.values_mut() {
            past.retain(|_, writer| writer.bytes >= LEAST_BYTES);
        }
        self.writers.retain(|_, past| !past.is_empty());
    }

    /// Whether the processors were full in the last interval.
    pub fn was_full(&self) -> bool {
        self.full
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

    /// Mean time that this interval's requests would take at most at a quiet disk. `None` without a quiet moment.
    pub fn quiet_seconds(&self, load: &DeviceLoad) -> Option<f64> {
        let (mut requests, mut sum) = (0.0, 0.0);
        for pace in self.paces(load) {
            requests += pace.requests as f64;
            sum += pace.quiet_seconds? * pace.requests as f64;
        }
        (requests > 0.0).then(|| sum / requests)
    }

    /// The direction with the largest slowdown: with at least [`SLOWED_REQUESTS`], and at least `times` the latency at
    /// a quiet disk. Its name, the mean now, and then.
    pub fn slowed(&self, load: &DeviceLoad, times: f64) -> Option<(&'static str, f64, f64)> {
        self.paces(load)
            .filter(|pace| pace.requests >= SLOWED_REQUESTS)
            .filter_map(|pace| Some((pace.direction, pace.seconds, pace.quiet_seconds?)))
            .filter(|(_, now, quiet)| *now >= quiet * times)
            .max_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2)))
    }

    /// The directions with requests in this interval. Their latency at a quiet disk is the lowest of this session at
    /// that size; else derived from another size: a larger request takes at most as much longer as it is larger, and a
    /// smaller one no longer.
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

    /// Latencies of a guest at a disk in the intervals in which `hogs` together were quiet there. Empty without
    /// requests in such intervals.
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

fn add(all: &mut BTreeMap<Identity, Writer>, more: Vec<Writer>) {
    for writer in more {
        let bytes = writer.bytes;
        all.entry(writer.who.clone()).and_modify(|known| known.bytes += bytes).or_insert(writer);
    }
}

fn mean(side: &Requests) -> Option<(f64, f64)> {
    let n = side.requests as f64;
    (n > 0.0).then(|| (side.bytes as f64 / n, side.request_seconds / n))
}

/// Power of two of the size.
fn class(bytes: f64) -> u32 {
    (bytes as u64).max(1).ilog2()
}

fn past(interval: &Interval, device: Device, number: usize) -> Option<PastInterval> {
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
    Some(PastInterval { number, device, shares, latencies })
}
