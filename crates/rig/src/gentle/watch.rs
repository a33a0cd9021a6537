//! Watches the other guests' requests at the disk that is measured.
//!
//! It uses a trace instance of its own (Documentation/trace/ftrace.rst of Linux, "Instances"):
//! a directory below tracefs with its own buffer and its own set of events, which disturbs no
//! other user of tracing and goes with one rmdir. A thread reads it four times a second. Which
//! guest a request belongs to follows from the thread that queued it and that thread's process,
//! so that QEMU's workers, its iothreads and io_uring's workers (threads of the process since
//! Linux 5.12) count, also those that start later.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use vmio_look::neighbours::Neighbour;
use vmio_node::linux::{device, process};
use vmio_node::{Change, Journal, Local, remove_trace_instance};

use super::events::{Dev, Event, Matcher, parse_line};
use super::history::{GuestLatency, History, Limits, Verdict};
use super::instance::{EVENTS, Plan, WatchError};

/// Time between two readings of the buffer.
const INTERVAL: Duration = Duration::from_millis(250);
/// Events of different processors can come out of order by less than this, in seconds.
const SETTLE: f64 = 0.01;
/// How long it is remembered whose a thread is, in seconds: numbers are used again.
const REMEMBER: f64 = 10.0;
/// Buffer over all processors; an event takes about 80 bytes, so this holds 100,000 requests.
const BUFFER_KB: usize = 16 * 1024;

/// What the watch saw, and what it did not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests of the other guests whose latency was taken.
    pub requests: u64,
    /// Requests of everybody else on the same disks: our own, the host's, kernel threads'.
    pub foreign: u64,
    /// Events that the kernel dropped because the buffer was full.
    pub lost_events: u64,
    /// Requests of the other guests given up because of such a loss, or because a second one of
    /// the same direction and first sector was queued before their end.
    pub given_up: u64,
    /// Processor time that the reading thread took, in seconds.
    pub cpu_seconds: f64,
}

#[derive(Default)]
struct State {
    guests: Vec<Neighbour>,
    matcher: Matcher,
    history: History,
    counts: Counts,
    /// Events up to this time were seen, in seconds on the monotonic clock.
    until: f64,
    /// Why the thread ended early.
    failed: Option<String>,
    /// Whose a thread is, and until when that is believed.
    threads: HashMap<u32, (Option<u32>, f64)>,
}

impl State {
    /// The guest (its place in `guests`) that a thread belongs to.
    fn owner_of(&mut self, tid: u32, now: f64) -> Option<u32> {
        if let Some(&(owner, until)) = self.threads.get(&tid)
            && now < until
        {
            return owner;
        }
        let process = process_of(tid);
        let owner = (self.guests.iter())
            .position(|g| g.threads.contains(&tid) || process.is_some_and(|p| p == g.pid))
            .and_then(|at| u32::try_from(at).ok());
        if self.threads.len() > 100_000 {
            self.threads.clear();
        }
        self.threads.insert(tid, (owner, now + REMEMBER));
        owner
    }

    fn take(&mut self, event: &Event, limits: &Limits) {
        match *event {
            Event::Queued { seconds, tid, dev, sector, sectors, op } => match self.owner_of(tid, seconds) {
                Some(who) => {
                    let replaced = self.matcher.queued(who, seconds, dev, sector, sectors, op);
                    self.counts.given_up += u64::from(replaced);
                }
                None => self.counts.foreign += 1,
            },
            Event::Completed { seconds, dev, sector, sectors, op } => {
                let (history, counts) = (&mut self.history, &mut self.counts);
                self.matcher.completed(seconds, dev, sector, sectors, op, |done| {
                    history.add(done.who, done.op, done.seconds, done.latency_seconds, limits);
                    counts.requests += 1;
                });
            }
            Event::Lost => self.counts.given_up += self.matcher.forget() as u64,
        }
    }
}

/// `Tgid` of proc(5); `/proc/TID` can be opened though it is not listed.
fn process_of(tid: u32) -> Option<u32> {
    process::Status::of(&Local::new(), tid).ok()?.process()
}

fn seconds(clock: ClockId) -> f64 {
    let t = clock_gettime(clock);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// A running watch. Dropping it ends it and removes its trace instance.
pub struct LatencyWatch {
    instance: PathBuf,
    limits: Limits,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LatencyWatch {
    /// Makes the trace instance, which is undone with the journal at the latest, and begins.
    pub fn start(plan: &Plan, guests: Vec<Neighbour>, limits: Limits, journal: &Journal) -> Result<Self, WatchError> {
        let instance = plan.instance.clone();
        let change = Change::TraceInstance { path: instance.clone() };
        let made = journal.make(change, || fs::create_dir(&instance));
        made.map_err(WatchError::Journal)?.map_err(|source| WatchError::File {
            what: "create",
            path: instance.clone(),
            source,
        })?;
        // From here on dropping `watch` takes the instance away.
        let state = Arc::new(Mutex::new(State { guests, until: seconds(ClockId::Monotonic), ..State::default() }));
        let mut watch = Self { instance, limits, state, stop: Arc::default(), thread: None };
        let pipe = watch.set_up(&plan.disks)?;
        let (state, stop, instance) = (Arc::clone(&watch.state), Arc::clone(&watch.stop), watch.instance.clone());
        let thread = thread::Builder::new().name("vmio-watch".into()).spawn(move || {
            if let Err(e) = read_events(pipe, &instance, &state, &stop, &limits) {
                locked(&state).failed = Some(format!("reading {} failed: {e}", instance.display()));
            }
        });
        let spawned = |source| WatchError::File { what: "start the reader of", path: watch.instance.clone(), source };
        watch.thread = Some(thread.map_err(spawned)?);
        Ok(watch)
    }

    fn set_up(&self, disks: &[Dev]) -> Result<File, WatchError> {
        let write = |file: &str, value: &str| {
            let path = self.instance.join(file);
            fs::write(&path, value).map_err(|source| WatchError::File { what: "write", path, source })
        };
        let processors = thread::available_parallelism().map_or(1, usize::from);
        write("buffer_size_kb", &(BUFFER_KB / processors).clamp(128, 2048).to_string())?;
        // The clock of our own times, and the same on all processors.
        write("trace_clock", "mono")?;
        let filter: Vec<String> = disks.iter().map(|disk| format!("dev == {}", device::kernel_dev(*disk))).collect();
        for event in EVENTS {
            write(&format!("events/block/{event}/filter"), &filter.join(" || "))?;
        }
        let path = self.instance.join("trace_pipe");
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let pipe = OpenOptions::new().read(true).custom_flags(nonblock).open(&path);
        let pipe = pipe.map_err(|source| WatchError::File { what: "open", path, source })?;
        // The completions first, so that no request is seen to begin without being seen to end.
        for event in EVENTS.iter().rev() {
            write(&format!("events/block/{event}/enable"), "1")?;
        }
        Ok(pipe)
    }

    /// Watches these guests from now on (some may have been started or ended meanwhile). What is
    /// known of those that were watched before is kept; a guest is known by its process.
    pub fn follow(&self, guests: Vec<Neighbour>) {
        let mut state = locked(&self.state);
        for guest in guests {
            match state.guests.iter_mut().find(|g| g.pid == guest.pid && g.name == guest.name) {
                Some(known) => *known = guest,
                None => state.guests.push(guest),
            }
        }
        state.threads.clear();
    }

    /// The measurement's own load begins now: the minute before it is kept to compare with, so
    /// that a rise too slow for the minute before now is seen too.
    pub fn mark_load(&self) {
        let mut state = locked(&self.state);
        let until = state.until;
        state.history.mark_load(until, &self.limits);
    }

    /// Judges what was seen up to a moment ago.
    pub fn verdict(&self) -> Verdict {
        let state = locked(&self.state);
        if let Some(why) = &state.failed {
            return Verdict::NotVisible { why: why.clone() };
        }
        if state.guests.is_empty() {
            return Verdict::NotVisible { why: "no other guest is known".into() };
        }
        let oldest = state.matcher.oldest();
        state.history.verdict(state.until, |who, op| oldest.get(&(who, op)).copied(), &self.limits)
    }

    /// Name of the guest that a verdict numbers.
    pub fn label(&self, who: u32) -> String {
        let state = locked(&self.state);
        state.guests.get(who as usize).map_or_else(|| format!("guest {who}"), Neighbour::label)
    }

    /// The latency of each guest's requests of the last minute, by direction.
    pub fn latencies(&self) -> Vec<GuestLatency> {
        let state = locked(&self.state);
        state.history.latencies(state.until, &self.limits)
    }

    /// What was seen so far.
    pub fn counts(&self) -> Counts {
        locked(&self.state).counts
    }

    /// Ends the watch and removes its trace instance.
    pub fn stop(mut self) -> Result<Counts, WatchError> {
        self.end_thread();
        remove_trace_instance(&self.instance).map_err(|source| WatchError::File {
            what: "remove",
            path: self.instance.clone(),
            source,
        })?;
        Ok(self.counts())
    }

    fn end_thread(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the reader has been shown already; the instance is removed all the same.
            let _ = thread.join();
        }
    }
}

impl Drop for LatencyWatch {
    fn drop(&mut self) {
        self.end_thread();
        // A failure stays in the journal, which tries again.
        let _ = remove_trace_instance(&self.instance);
    }
}

fn locked(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reading thread: empties the buffer, puts the events in order, and takes what has settled.
fn read_events(
    mut pipe: File,
    instance: &Path,
    state: &Mutex<State>,
    stop: &AtomicBool,
    limits: &Limits,
) -> io::Result<()> {
    let mut held: Vec<(f64, Event)> = Vec::new();
    let mut text = Vec::new();
    let mut turn = 0u32;
    loop {
        let stopping = stop.load(Ordering::Relaxed);
        let settled = seconds(ClockId::Monotonic) - SETTLE;
        let mut buffer = [0; 16384];
        // A flood must not keep the thread from ending: it reads on, but no longer than a turn.
        let until = Instant::now() + INTERVAL;
        loop {
            let n = match pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            text.extend_from_slice(&buffer[..n]);
            let whole = text.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
            for line in text[..whole].split(|&b| b == b'\n') {
                match parse_line(&String::from_utf8_lossy(line)) {
                    // What was read before the loss is older than it.
                    Some(Event::Lost) => {
                        settle(&mut held, f64::INFINITY, state, limits);
                        locked(state).take(&Event::Lost, limits);
                    }
                    Some(event) => held.push((event.seconds().unwrap_or_default(), event)),
                    None => {}
                }
            }
            text.drain(..whole);
            if Instant::now() > until {
                break;
            }
        }
        settle(&mut held, if stopping { f64::INFINITY } else { settled }, state, limits);
        let lost = if turn.is_multiple_of(4) || stopping { Some(lost_events(instance)?) } else { None };
        turn = turn.wrapping_add(1);
        let mut state = locked(state);
        state.until = settled;
        state.counts.lost_events = lost.unwrap_or(state.counts.lost_events);
        state.counts.cpu_seconds = seconds(ClockId::ThreadCPUTime);
        drop(state);
        if stopping {
            return Ok(());
        }
        thread::park_timeout(INTERVAL);
    }
}

/// Takes the events up to `until` in order of time.
fn settle(held: &mut Vec<(f64, Event)>, until: f64, state: &Mutex<State>, limits: &Limits) {
    held.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count = held.partition_point(|(t, _)| *t <= until);
    let mut state = locked(state);
    for (_, event) in held.drain(..count) {
        state.take(&event, limits);
    }
}

/// Overwritten and dropped events of all processors (`per_cpu/cpuN/stats`).
fn lost_events(instance: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for cpu in fs::read_dir(instance.join("per_cpu"))? {
        let stats = fs::read_to_string(cpu?.path().join("stats"))?;
        let lost = |l: &str| {
            l.strip_prefix("overrun: ").or_else(|| l.strip_prefix("dropped events: "))?.trim().parse::<u64>().ok()
        };
        sum += stats.lines().filter_map(lost).sum::<u64>();
    }
    Ok(sum)
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
