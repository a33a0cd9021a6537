//! What arrives of each guest at the sink, by the sink's own socket, and what of its minimum that is. The guard's
//! counters have no part in it.
#![allow(clippy::unwrap_used, dead_code)]

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::frames::set;

/// Where it listens, in the sink.
pub const AT: (&str, u16) = ("10.9.0.9", 5401);
/// Those that are watched.
pub const GUESTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 9, 0, 101), Ipv4Addr::new(10, 9, 0, 102)];
/// Of Ethernet, IPv4 and UDP: the guard counts frames.
const HEADERS: u64 = 14 + 20 + 8;
/// Packets that wait until the watcher has a processor have room in the socket: some seconds of them.
const ROOM_BYTES: i32 = 8 << 20;
/// Time that a bucket is for.
const BUCKET: Duration = Duration::from_millis(100);
/// Buckets of a second.
const SECOND: usize = 10;
/// Buckets of the shortest window by which a minimum is said to be there again.
const WINDOW: usize = 2;
/// Part of a minimum that counts as it.
const ENOUGH: f64 = 0.9;
/// A second is judged where no step was in it, nor in so long before it.
const SETTLED: Duration = Duration::from_secs(1);

/// What arrived in a bucket's time.
#[derive(Debug, Clone, Default)]
pub struct Bucket {
    /// Bytes of frames, by guest.
    pub bytes: [u64; 2],
    /// How often the watcher looked: never, where it had no processor.
    pub looks: u32,
}

/// The sink's socket.
pub struct Watch {
    socket: UdpSocket,
    began: Instant,
    /// Packets of each guest.
    arrived: [AtomicUsize; 2],
}

impl Watch {
    /// In the thread's namespace.
    pub fn new() -> Watch {
        let socket = UdpSocket::bind(AT).unwrap();
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, ROOM_BYTES);
        socket.set_read_timeout(Some(BUCKET / 5)).unwrap();
        Watch { socket, began: Instant::now(), arrived: Default::default() }
    }

    /// Time since it began, which steps are told in.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Packets that have arrived of each guest.
    pub fn arrived(&self) -> [usize; 2] {
        self.arrived.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Counts until told to end.
    pub fn count(&self, end: &AtomicBool) -> Vec<Bucket> {
        let (mut buckets, mut packet) = (Vec::new(), [0; 2048]);
        while !end.load(Ordering::Relaxed) {
            let came = self.socket.recv_from(&mut packet);
            let at = (self.now().as_millis() / BUCKET.as_millis()) as usize;
            if buckets.len() <= at {
                buckets.resize(at + 1, Bucket::default());
            }
            buckets[at].looks += 1;
            let Ok((bytes, from)) = came else { continue };
            if let Some(guest) = GUESTS.iter().position(|guest| from.ip() == IpAddr::V4(*guest)) {
                buckets[at].bytes[guest] += bytes as u64 + HEADERS;
                self.arrived[guest].fetch_add(1, Ordering::Relaxed);
            }
        }
        buckets
    }
}

/// What was done to the guard or around it.
#[derive(Debug, Clone)]
pub struct Step {
    pub kind: &'static str,
    /// Nothing can pass while it lasts.
    pub cuts: bool,
    pub began: Duration,
    pub ended: Duration,
    /// Each guest's minimum from its end on, in bytes a second.
    pub minima: [f64; 2],
}

/// What a watcher's buckets say, given what was done when.
#[derive(Debug, Default)]
pub struct Judged {
    /// In each second that was judged, by guest: what part of its minimum it had.
    pub shares: [Vec<f64>; 2],
    /// Longest time in which a guest had nothing, though the watcher looked and nothing was cut.
    pub silent: Duration,
    /// Longest time from the end of a step until both guests had their minimum in a window, and the step's kind.
    pub restored: (Duration, &'static str),
}

impl Judged {
    /// Steps are in their order, and no two at one time.
    pub fn of(buckets: &[Bucket], steps: &[Step]) -> Judged {
        Judged { shares: shares(buckets, steps), silent: silent(buckets, steps), restored: restored(buckets, steps) }
    }

    /// Seconds that were judged.
    pub fn seconds(&self) -> usize {
        self.shares[0].len()
    }

    /// The smallest part of its minimum that a guest had in a second.
    pub fn worst(&self) -> Option<f64> {
        self.shares.iter().flatten().copied().min_by(f64::total_cmp)
    }

    /// The smaller of both guests' medians.
    pub fn median(&self) -> Option<f64> {
        let median = |shares: &Vec<f64>| {
            let mut sorted = shares.clone();
            sorted.sort_by(f64::total_cmp);
            sorted.get(sorted.len() / 2).copied()
        };
        self.shares.iter().filter_map(median).min_by(f64::total_cmp)
    }
}

/// When a bucket begins.
fn at(bucket: usize) -> Duration {
    BUCKET * bucket as u32
}

fn sum(buckets: &[Bucket], guest: usize) -> f64 {
    buckets.iter().map(|bucket| bucket.bytes[guest] as f64).sum()
}

fn shares(buckets: &[Bucket], steps: &[Step]) -> [Vec<f64>; 2] {
    let mut shares: [Vec<f64>; 2] = Default::default();
    for (number, second) in buckets.chunks_exact(SECOND).enumerate() {
        let (from, to) = (at(number * SECOND), at((number + 1) * SECOND));
        let last = steps.iter().rev().find(|step| step.began < to);
        let Some(last) = last.filter(|step| step.ended + SETTLED <= from) else { continue };
        if second.iter().all(|bucket| bucket.looks > 0) {
            for (guest, shares) in shares.iter_mut().enumerate() {
                shares.push(sum(second, guest) / last.minima[guest]);
            }
        }
    }
    shares
}

fn silent(buckets: &[Bucket], steps: &[Step]) -> Duration {
    let mut cut = vec![false; buckets.len()];
    for step in steps.iter().filter(|step| step.cuts) {
        let from = (step.began.as_millis() / BUCKET.as_millis()) as usize;
        let to = (step.ended.as_millis() / BUCKET.as_millis()) as usize;
        cut.iter_mut().take(to + 1).skip(from).for_each(|cut| *cut = true);
    }
    let (mut longest, mut run) = (0, [0; 2]);
    for (bucket, cut) in buckets.iter().zip(cut) {
        for (guest, run) in run.iter_mut().enumerate() {
            if cut || bucket.bytes[guest] > 0 {
                *run = 0;
            } else if bucket.looks > 0 {
                *run += 1;
                longest = longest.max(*run);
            }
        }
    }
    at(longest)
}

fn restored(buckets: &[Bucket], steps: &[Step]) -> (Duration, &'static str) {
    let mut longest = (Duration::ZERO, "none");
    let wanted = WINDOW as f64 * BUCKET.as_secs_f64() * ENOUGH;
    for (step, next) in steps.iter().zip(steps.iter().skip(1)) {
        let first = step.ended.as_micros().div_ceil(BUCKET.as_micros()) as usize;
        let after = buckets.windows(WINDOW).enumerate().skip(first);
        let mut within = after.take_while(|(bucket, _)| at(bucket + WINDOW) <= next.began);
        let enough = |window: &[Bucket]| (0..2).all(|guest| sum(window, guest) >= wanted * step.minima[guest]);
        let time = match within.find(|(_, window)| enough(window)) {
            Some((bucket, _)) => at(bucket).saturating_sub(step.ended),
            // Too soon to tell, or not for so long.
            None if next.began - step.ended < SETTLED => continue,
            None => next.began - step.ended,
        };
        longest = longest.max((time, step.kind));
    }
    longest
}
