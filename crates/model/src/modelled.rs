//! A modelled disk: one actuator that serves one request at a time. Each takes a fixed overhead, a seek where it does
//! not begin at the end of the one before, and its size over the bandwidth, as in the simplest model of a disk
//! (Ruemmler and Wilkes, "An Introduction to Disk Drive Modeling", IEEE Computer 27(3), 1994). Cache, rotation and seek
//! distance are left out on purpose: a modelled disk is to be the same bottleneck for every side.
//!
//! Deadlines are absolute: a late reply does not delay the next one, and idle time is not credited.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A reply is late from this lateness on, in nanoseconds.
const LATE_NS: u64 = 200_000;
/// Share of late replies from which a run reports them.
const LATE_SHARE: f64 = 0.01;
/// Default parameters: a disk with 7,200 rpm.
const OVERHEAD_US: f64 = 150.0;
/// See [`OVERHEAD_US`].
const SEEK_US: f64 = 8_000.0;

/// Parameters of a modelled disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelledDisk {
    /// Bandwidth in bytes a second.
    pub bytes_per_second: f64,
    /// Overhead of each request in microseconds.
    pub overhead_microseconds: f64,
    /// Seek time in microseconds, where a request does not begin at the end of the one before.
    pub seek_microseconds: f64,
    /// Size in bytes; `None` for what the run's targets need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Accuracy of the replies; `None` until the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<ModelAccuracy>,
}

/// Why a modelled disk's description cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum ModelledError {
    #[error("invalid rate {0:?}: write for example 40MB/s")]
    NoRate(String),
    #[error("{text:?} is not from {range}")]
    OutOfRange { text: String, range: &'static str },
    #[error("{0:?} is not NAME=VALUE")]
    NoPair(String),
    #[error("{0} is there twice")]
    Twice(String),
    #[error("{0:?} is not overhead, seek or size")]
    Unknown(String),
}

impl ModelledDisk {
    /// Parses `40MB/s,overhead=150us,seek=8ms,size=4GiB`; only the rate is required.
    ///
    /// # Errors
    /// The first invalid part.
    pub fn parse(text: &str) -> Result<Self, ModelledError> {
        let mut words = text.split(',');
        let rate = words.next().unwrap_or_default();
        let per_second = rate.strip_suffix("/s").ok_or_else(|| ModelledError::NoRate(rate.to_owned()))?;
        let bytes_per_second = within(scaled(per_second, BYTES), rate, 1e5..=1e11, "100kB/s to 100GB/s")?;
        let (overhead_microseconds, seek_microseconds) = (OVERHEAD_US, SEEK_US);
        let mut disk = Self { bytes_per_second, overhead_microseconds, seek_microseconds, bytes: None, kept: None };
        let mut given = Vec::new();
        for word in words {
            let (name, value) = word.split_once('=').ok_or_else(|| ModelledError::NoPair(word.to_owned()))?;
            if given.contains(&name) {
                return Err(ModelledError::Twice(name.to_owned()));
            }
            given.push(name);
            match name {
                "overhead" => {
                    disk.overhead_microseconds = within(scaled(value, TIMES), word, 0.0..=1e6, "0us to 1s")?;
                }
                "seek" => disk.seek_microseconds = within(scaled(value, TIMES), word, 0.0..=1e6, "0us to 1s")?,
                "size" => {
                    let bytes = within(scaled(value, BYTES), word, 67_108_864.0..=1.1e12, "64MiB to 1TiB")?;
                    // Whole pages, as memory is allocated.
                    disk.bytes = Some(bytes as u64 / PAGE * PAGE);
                }
                _ => return Err(ModelledError::Unknown(name.to_owned())),
            }
        }
        Ok(disk)
    }

    /// Seconds of a contiguous request of this size.
    pub fn seconds(&self, bytes: u64) -> f64 {
        self.overhead_microseconds / 1e6 + bytes as f64 / self.bytes_per_second
    }

    /// Name in the headline: `a modelled disk of 40 MB/s`.
    pub fn headline(&self) -> String {
        format!("a modelled disk of {}", rate(self.bytes_per_second))
    }

    /// What may and may not be concluded from measurements on it.
    pub fn statement(&self) -> String {
        format!(
            "The disk was modelled, {self}: one and the same for every side, served by vmio from memory. What may be \
             concluded: which request sizes and depths reach a disk of these properties, and how much of its \
             bandwidth a set-up then gets here. What may not: any figure as that of this host's storage or of a real \
             disk (no \
             cache, no rotation, every seek as long as any other), what a power cut leaves, or CPU costs of the host, \
             which hold the model's own processor time."
        )
    }

    /// A warning where too many replies were late.
    pub fn not_kept(&self) -> Option<String> {
        let kept = self.kept.filter(ModelAccuracy::too_late)?;
        Some(format!(
            "The modelled disk was not kept: {} of {} requests ({:.1} %) were answered more than {} µs after the \
             model's time ({:.0} µs late on average); on it, shares are too near to each other. A quieter machine or a \
             slower disk keeps it.",
            kept.late_requests,
            kept.requests,
            kept.late_share() * 100.0,
            LATE_NS / 1000,
            kept.mean_lateness_microseconds,
        ))
    }
}

impl fmt::Display for ModelledDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, overhead) = (rate(self.bytes_per_second), time(self.overhead_microseconds));
        write!(f, "{rate}, {overhead} a request, {} a seek", time(self.seek_microseconds))
    }
}

const PAGE: u64 = 4096;
const BYTES: &[(&str, f64)] = &[
    ("GiB", 1_073_741_824.0),
    ("MiB", 1_048_576.0),
    ("TiB", 1_099_511_627_776.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
];
const TIMES: &[(&str, f64)] = &[("us", 1.0), ("ms", 1e3), ("s", 1e6)];

/// A number with a unit.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, factor) = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    plain.then(|| number.parse::<f64>().ok()).flatten().map(|n| n * factor)
}

fn within(
    value: Option<f64>,
    text: &str,
    range: std::ops::RangeInclusive<f64>,
    words: &'static str,
) -> Result<f64, ModelledError> {
    let out_of_range = || ModelledError::OutOfRange { text: text.to_owned(), range: words };
    value.filter(|v| range.contains(v)).ok_or_else(out_of_range)
}

fn rate(bytes_per_second: f64) -> String {
    format!("{} MB/s", (bytes_per_second / 1e4).round() / 100.0)
}

fn time(microseconds: f64) -> String {
    if microseconds >= 1000.0 { format!("{} ms", microseconds / 1000.0) } else { format!("{microseconds} µs") }
}

/// The actuator: computes the time of the reply from a request and its arrival.
#[derive(Debug, Clone)]
pub struct Actuator {
    disk: ModelledDisk,
    /// When all its requests are done, in nanoseconds.
    free_ns: u64,
    /// Where the last request ended, in bytes.
    head: Option<u64>,
}

impl Actuator {
    /// An idle one; without a head position, so that the first request seeks.
    pub fn new(disk: ModelledDisk) -> Self {
        Self { disk, free_ns: 0, head: None }
    }

    /// Time at which a read or write of `bytes` at `offset`, arrived at `now_ns`, is done.
    pub fn moves(&mut self, offset: u64, bytes: u64, now_ns: u64) -> u64 {
        let seek = if self.head == Some(offset) { 0.0 } else { self.disk.seek_microseconds };
        self.head = Some(offset + bytes);
        let cost_ns = self.disk.seconds(bytes) * 1e9 + seek * 1e3;
        self.takes(cost_ns.ceil() as u64, now_ns)
    }

    /// The same for a request without data (a discard), which takes the overhead alone.
    pub fn notes(&mut self, now_ns: u64) -> u64 {
        self.takes((self.disk.overhead_microseconds * 1e3).ceil() as u64, now_ns)
    }

    /// The same for a flush, which is done when all requests before it are.
    pub fn flushes(&mut self, now_ns: u64) -> u64 {
        self.takes(0, now_ns)
    }

    /// Adds a request after all earlier ones.
    fn takes(&mut self, cost_ns: u64, now_ns: u64) -> u64 {
        self.free_ns = self.free_ns.max(now_ns) + cost_ns;
        self.free_ns
    }
}

/// Accuracy of a model's replies.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Kept")]
pub struct ModelAccuracy {
    /// Requests that the model timed.
    pub requests: u64,
    /// Replies more than 200 µs late.
    pub late_requests: u64,
    /// Mean lateness of all replies, in microseconds.
    pub mean_lateness_microseconds: f64,
}

impl ModelAccuracy {
    /// Adds a reply.
    pub fn add(&mut self, late_ns: u64) {
        self.requests += 1;
        self.late_requests += u64::from(late_ns > LATE_NS);
        let mean = self.mean_lateness_microseconds;
        self.mean_lateness_microseconds += (late_ns as f64 / 1e3 - mean) / self.requests as f64;
    }

    /// Adds another part of the same run.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let requests = self.requests + other.requests;
        let sum = |k: &Self| k.mean_lateness_microseconds * k.requests as f64;
        let mean = if requests == 0 { 0.0 } else { (sum(&self) + sum(&other)) / requests as f64 };
        let late_requests = self.late_requests + other.late_requests;
        Self { requests, late_requests, mean_lateness_microseconds: mean }
    }

    fn late_share(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.late_requests as f64 / self.requests as f64 }
    }

    /// Whether too many replies were late to go unmentioned.
    fn too_late(&self) -> bool {
        self.late_share() > LATE_SHARE
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn disk(text: &str) -> ModelledDisk {
        ModelledDisk::parse(text).unwrap()
    }

    #[test]
    fn what_is_left_out_has_a_default_and_what_is_senseless_is_told() {
        let whole = disk("40MB/s,overhead=150us,seek=8ms,size=4GiB");
        assert_eq!(whole.bytes, Some(4 << 30));
        assert_eq!(ModelledDisk { bytes: None, ..whole.clone() }, disk("40MB/s"));
        assert_eq!(whole.to_string(), "40 MB/s, 150 µs a request, 8 ms a seek");
        assert_eq!(disk("0.5GB/s,seek=0us").to_string(), "500 MB/s, 150 µs a request, 0 µs a seek");
        assert_eq!(disk("112.5MB/s").headline(), "a modelled disk of 112.5 MB/s");
        for (wrong, word) in [
            ("", "invalid rate"),
            ("40", "invalid rate"),
            ("40MB", "invalid rate"),
            ("0MB/s", "100kB/s"),
            ("-1MB/s", "100kB/s"),
            ("infMB/s", "100kB/s"),
            ("1e3MB/s", "100kB/s"),
            ("40MB/s,seek", "NAME=VALUE"),
            ("40MB/s,seek=8", "0us to 1s"),
            ("40MB/s,seek=9s", "0us to 1s"),
            ("40MB/s,size=1MiB", "64MiB"),
            ("40MB/s,spin=1ms", "overhead, seek or size"),
            ("40MB/s,seek=1ms,seek=2ms", "twice"),
        ] {
            let text = ModelledDisk::parse(wrong).unwrap_err().to_string();
            assert!(text.contains(word), "{wrong}: {text}");
        }
    }

    #[test]
    fn a_request_costs_overhead_seek_and_size_over_bandwidth() {
        // 1 MB at 40 MB/s is 25 ms.
        let mut arm = Actuator::new(disk("40MB/s,overhead=100us,seek=8ms"));
        let at = 1_000_000_000;
        assert_eq!(arm.moves(0, 1_000_000, at), at + 8_000_000 + 100_000 + 25_000_000, "it begins with a seek");
        let free = at + 33_100_000;
        assert_eq!(arm.moves(1_000_000, 1_000_000, at), free + 25_100_000, "contiguous, and after the one before");
        assert_eq!(arm.moves(0, 0, at), free + 25_100_000 + 8_100_000, "back again");
        assert_eq!(arm.flushes(at), free + 25_100_000 + 8_100_000, "a flush waits for what is before it");
        assert_eq!(arm.notes(at), free + 25_100_000 + 8_200_000);
        // Idle time is not credited.
        assert_eq!(arm.flushes(2 * at), 2 * at);
        assert_eq!(arm.moves(0, 1_000_000, 2 * at), 2 * at + 25_100_000);
    }

    proptest! {
        /// In any order of arrivals, replies are in order and take at least the sum of their parts.
        #[test]
        fn never_faster_than_its_parts(
            requests in proptest::collection::vec((0u64..1 << 40, 0u64..1 << 20, 0u64..50_000_000), 1..100),
        ) {
            let model = disk("40MB/s");
            let mut arm = Actuator::new(model.clone());
            let (mut now, mut last, mut parts) = (1, 0, 0.0);
            let mut head = None;
            for (offset, bytes, pause) in requests {
                now += pause;
                let due = arm.moves(offset, bytes, now);
                let seek = if head == Some(offset) { 0.0 } else { 8e6 };
                head = Some(offset + bytes);
                let cost = model.seconds(bytes) * 1e9 + seek;
                parts += cost;
                prop_assert!(due as f64 + 1.0 >= now as f64 + cost && due >= last);
                last = due;
            }
            prop_assert!(last as f64 + 1.0 >= parts);
        }
    }

    #[test]
    fn lateness_is_told_from_one_in_a_hundred_on() {
        let mut kept = ModelAccuracy::default();
        assert!(!kept.too_late());
        (0..99).for_each(|_| kept.add(0));
        kept.add(LATE_NS + 1);
        assert!(!kept.too_late() && kept.late_requests == 1, "{kept:?}");
        kept.add(400_000);
        assert!(kept.too_late(), "{kept:?}");
        let of = |kept| ModelledDisk { kept, ..disk("40MB/s") };
        let text = of(Some(kept)).not_kept().unwrap();
        assert!(text.contains("2 of 101 requests (2.0 %)") && text.contains("200 µs"), "{text}");
        assert_eq!((of(None).not_kept(), of(Some(ModelAccuracy::default())).not_kept()), (None, None));
        let both = kept.with(ModelAccuracy { requests: 101, late_requests: 0, mean_lateness_microseconds: 0.0 });
        assert_eq!((both.requests, both.late_requests), (202, 2));
        assert!((both.mean_lateness_microseconds * 2.0 - kept.mean_lateness_microseconds).abs() < 1e-9);
    }
}
