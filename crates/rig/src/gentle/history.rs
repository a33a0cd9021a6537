//! When do the other guests suffer? Pure: latencies in, verdict out, times are passed in.
//!
//! Compared is the **median** of a guest's requests of one direction, guest by guest: the mean
//! moves with one slow request, and a pool of guests or directions moves with its mixture. The
//! median has to be doubled in **two windows in a row** against the minute before them.
//!
//! A window is one second, or as much longer (up to five) as 50 requests take. Why 50: let
//! latencies be log-normal with sigma 1.5, a very long tail; then 32 % of requests take twice
//! the median anyway. That more than half of 50 do by chance has a probability of 0.3 %, twice in
//! a row of 1 in 100,000. With fewer requests (at least 5) ten times the median is asked for, which
//! 6 % of requests exceed: 3 of 5 by chance 0.2 %, twice in a row 1 in 200,000. A request that
//! has waited for five seconds counts by itself: a guest that gets nothing completes nothing.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use super::events::Op;

/// When latency counts as doubled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Ratio of medians that ends a run.
    pub factor: f64,
    /// Length of the time compared with, in seconds.
    pub before_seconds: u64,
    /// Requests that the time compared with must hold.
    pub before_requests: u64,
    /// Requests that close a window.
    pub window_requests: u64,
    /// Longest window, in whole seconds.
    pub window_seconds: u64,
    /// Fewest requests of a window that says anything.
    pub few_requests: u64,
    /// Ratio asked of a window with fewer than `window_requests`.
    pub few_factor: f64,
    /// A request pending for so many seconds ends a run.
    pub stall_seconds: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            factor: 2.0,
            before_seconds: 60,
            before_requests: 100,
            window_requests: 50,
            window_seconds: 5,
            few_requests: 5,
            few_factor: 10.0,
            stall_seconds: 5.0,
        }
    }
}

/// Eight buckets an octave from 1 microsecond to 134 seconds: a value is known to 4.5 %.
const PER_OCTAVE: f64 = 8.0;
const BUCKETS: usize = 27 * 8;

/// Latencies as counts in logarithmic buckets.
#[derive(Clone)]
struct Latencies {
    counts: Box<[u32; BUCKETS]>,
    total: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), total: 0 }
    }
}

impl Latencies {
    fn add(&mut self, seconds: f64) {
        let octave = (seconds * 1e6).max(1.0).log2();
        let bucket = ((octave * PER_OCTAVE) as usize).min(BUCKETS - 1);
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
        self.total += 1;
    }

    fn merge(&mut self, other: &Self) {
        for (a, b) in self.counts.iter_mut().zip(other.counts.iter()) {
            *a = a.saturating_add(*b);
        }
        self.total += other.total;
    }

    /// Middle of the bucket that holds the median, in seconds.
    fn median(&self) -> Option<f64> {
        let half = self.total.div_ceil(2);
        let mut sum = 0;
        let at = self.counts.iter().position(|&c| {
            sum += u64::from(c);
            sum >= half && sum > 0
        })?;
        Some(2f64.powf((at as f64 + 0.5) / PER_OCTAVE) * 1e-6)
    }
}

/// Median and number of requests of a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Median latency in seconds, known to 4.5 %.
    pub median_seconds: f64,
    /// Number of requests.
    pub requests: u64,
}

/// What the present is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// The minute before the two windows.
    MinuteBefore,
    /// The minute before the measurement's own load began: a slow rise cannot hide in it.
    BeforeLoad,
}

/// How the present was seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Now {
    /// Median of the last window.
    Median(Summary),
    /// A request that still waits, for so many seconds.
    Waiting(f64),
}

/// A guest that became slower.
#[derive(Debug, Clone, PartialEq)]
pub struct Slower {
    /// Number of the guest, as given to [`History::add`].
    pub who: u32,
    /// Direction.
    pub op: Op,
    /// Before.
    pub before: Summary,
    /// What `before` is.
    pub against: Against,
    /// Now.
    pub now: Now,
}

impl fmt::Display for Slower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = if self.op == Op::Read { "reads" } else { "writes" };
        let against = match self.against {
            Against::MinuteBefore => "the minute before",
            Against::BeforeLoad => "before this measurement began",
        };
        let before = self.before.median_seconds * 1e6;
        match self.now {
            Now::Median(now) => {
                write!(
                    f,
                    "its {op} took {before:.0} us {against} and take {:.0} us now (medians)",
                    now.median_seconds * 1e6
                )
            }
            Now::Waiting(seconds) => {
                write!(f, "its {op} took {before:.0} us {against}; one has now waited for {seconds:.1} s")
            }
        }
    }
}

/// What the latencies of the other guests say.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// None of the guests that could be compared is twice as slow.
    Fine {
        /// Guests and directions that could be compared.
        compared: usize,
    },
    /// A guest is: the measurement has to end.
    Doubled(Slower),
    /// Nothing can be said. The cap and the one core still hold; the end by latency does not.
    NotVisible {
        /// Why, for the user.
        why: String,
    },
}

/// Latency of a guest's requests of one direction, over the last minute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GuestLatency {
    /// Number of the guest.
    pub who: u32,
    /// Direction.
    pub op: Op,
    /// Median and number.
    pub summary: Summary,
}

#[derive(Default)]
struct Line {
    /// Whole seconds with requests, oldest first.
    slots: VecDeque<(u64, Latencies)>,
    before_load: Option<Summary>,
}

impl Line {
    fn between(&self, from: u64, to: u64) -> Latencies {
        let mut sum = Latencies::default();
        self.slots.iter().filter(|(s, _)| (from..to).contains(s)).for_each(|(_, l)| sum.merge(l));
        sum
    }

    /// The window that ends before second `end`, and where it starts.
    fn window(&self, end: u64, limits: &Limits) -> (u64, Latencies) {
        let mut start = end;
        let mut sum = Latencies::default();
        while start > 0 && end - start < limits.window_seconds && sum.total < limits.window_requests {
            start -= 1;
            if let Some((_, l)) = self.slots.iter().rev().find(|(s, _)| *s == start) {
                sum.merge(l);
            }
        }
        (start, sum)
    }
}

/// Latencies of the last minute and a bit, by guest and direction.
#[derive(Default)]
pub struct History {
    lines: BTreeMap<(u32, Op), Line>,
}

impl History {
    /// A request of guest `who` ended at `seconds` on a monotonic clock after `latency_seconds`.
    pub fn add(&mut self, who: u32, op: Op, seconds: f64, latency_seconds: f64, limits: &Limits) {
        let second = seconds.max(0.0) as u64;
        let slots = &mut self.lines.entry((who, op)).or_default().slots;
        // Events come in order of time; one that does not counts for the newest second.
        if slots.back().is_none_or(|(s, _)| *s < second) {
            slots.push_back((second, Latencies::default()));
            let keep = limits.before_seconds + 2 * limits.window_seconds + 2;
            while slots.front().is_some_and(|(s, _)| s + keep < second) {
                slots.pop_front();
            }
        }
        if let Some((_, latencies)) = slots.back_mut() {
            latencies.add(latency_seconds);
        }
    }

    /// The measurement's own load begins at `now`: keeps the minute before it to compare with.
    pub fn mark_load(&mut self, now: f64, limits: &Limits) {
        let end = now.max(0.0) as u64;
        for line in self.lines.values_mut() {
            line.before_load =
                summary(&line.between(end.saturating_sub(limits.before_seconds), end), limits.before_requests);
        }
    }

    /// The minute before `now` by guest and direction, where there was a request.
    pub fn latencies(&self, now: f64, limits: &Limits) -> Vec<GuestLatency> {
        let end = now.max(0.0) as u64 + 1;
        let from = end.saturating_sub(limits.before_seconds);
        let of = |(&(who, op), line): (&(u32, Op), &Line)| {
            Some(GuestLatency { who, op, summary: summary(&line.between(from, end), 1)? })
        };
        self.lines.iter().filter_map(of).collect()
    }

    /// Judges at `now`, which must not be later than the events that were added: the second that
    /// `now` lies in does not count yet. `waiting` says since when the oldest pending request of
    /// a guest and direction waits.
    pub fn verdict(&self, now: f64, waiting: impl Fn(u32, Op) -> Option<f64>, limits: &Limits) -> Verdict {
        let mut compared = 0;
        let mut requests = 0;
        for (&(who, op), line) in &self.lines {
            let end = now.max(0.0) as u64;
            let (middle, last) = line.window(end, limits);
            let (start, earlier) = line.window(middle, limits);
            let minute = line.between(start.saturating_sub(limits.before_seconds), start);
            requests += minute.total + earlier.total + last.total;
            let befores = [
                (summary(&minute, limits.before_requests), Against::MinuteBefore),
                (line.before_load, Against::BeforeLoad),
            ];
            let mut comparable = false;
            for (before, against) in befores {
                let Some(before) = before else { continue };
                comparable = true;
                let waits = waiting(who, op).map_or(0.0, |since| now - since);
                if waits >= limits.stall_seconds && waits >= before.median_seconds * limits.few_factor {
                    return Verdict::Doubled(Slower { who, op, before, against, now: Now::Waiting(waits) });
                }
                if let Some(now) = slower(&last, &before, limits)
                    && slower(&earlier, &before, limits).is_some()
                {
                    return Verdict::Doubled(Slower { who, op, before, against, now: Now::Median(now) });
                }
            }
            compared += usize::from(comparable);
        }
        if compared > 0 {
            return Verdict::Fine { compared };
        }
        let why = format!(
            "the other guests' latency cannot be judged: {requests} requests of theirs were seen in the last minute, \
             but {} per guest and direction are needed. They are idle, have their disks elsewhere, were not watched \
             for long enough, or the host does their I/O in kernel threads (page cache, ZFS, dm-crypt, network storage)",
            limits.before_requests
        );
        Verdict::NotVisible { why }
    }
}

fn summary(latencies: &Latencies, at_least: u64) -> Option<Summary> {
    let median_seconds = latencies.median()?;
    (latencies.total >= at_least).then_some(Summary { median_seconds, requests: latencies.total })
}

/// The window's summary if it is slower than `before` by the factor that its size asks for.
fn slower(window: &Latencies, before: &Summary, limits: &Limits) -> Option<Summary> {
    let now = summary(window, limits.few_requests)?;
    let factor = if now.requests < limits.window_requests { limits.few_factor } else { limits.factor };
    (now.median_seconds >= before.median_seconds * factor).then_some(now)
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
