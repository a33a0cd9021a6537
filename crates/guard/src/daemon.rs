//! The thread that keeps a policy in force. It runs the control loop, checks some times a second whether something was
//! changed from outside, and answers requests, one after the other. It alone uses the plane.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use vmio_model::policy::Policy;

use crate::core::{Core, CoreError, PoolStatus};
use crate::desired::Identity;
use crate::interface::DiscoveredInterface;
use crate::planes::Plane;

/// How often the plane is asked whether something was changed from outside; that is put right within a second.
const LOOK: Duration = Duration::from_millis(400);
/// Least time between two reads back while changes are reported, as a multiple of what one took; at most [`AT_LEAST`].
const REST_FACTOR: u32 = 10;
/// A reported change, or a failure, is looked at after this time at the latest.
const AT_LEAST: Duration = Duration::from_secs(1);
/// The loop's period, at least, while no packets pass. Minima do not depend on it.
const IDLE: Duration = Duration::from_millis(200);
/// The same, at least, as a multiple of what a period takes; at most [`LONGEST_IDLE`].
const IDLE_FACTOR: u32 = 500;
/// See [`IDLE_FACTOR`].
const LONGEST_IDLE: Duration = Duration::from_secs(1);
/// Time after which the state in force is read back without a reported change.
const BELIEVED: Duration = Duration::from_secs(30);
/// The same, at least, as a multiple of what reading it took.
const BELIEVED_FACTOR: u32 = 500;
/// Length of the queue of requests.
const WAITING: usize = 64;

/// State of the thread.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Status {
    /// Each pool that is in force; `None` where they are as they were and were not wanted then.
    pub pools: Option<Vec<PoolStatus>>,
    /// Whether they stay so as long as [`Daemon::count`] gives none.
    pub still: bool,
    /// What each interface in a pool may claim to be, by the name of the member.
    pub identities: Arc<BTreeMap<String, Identity>>,
    /// Notes: interfaces that two entries match or that cannot be limited, and the plane's own.
    pub notes: Vec<String>,
    /// Periods of the loop so far.
    pub ticks: u64,
    /// Time that the last one took.
    pub tick_time: Duration,
    /// The longest so far.
    pub longest_tick_time: Duration,
    /// Histogram of all.
    pub tick_times: Times,
    /// Changes from outside that were put right: each queue, class and filter is one.
    pub put_right: u64,
    /// The last failure, until the same succeeds.
    pub trouble: Option<String>,
}

/// A histogram of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// Sum of all.
    pub sum: Duration,
    /// By the bounds of [`Times::AT_MOST`]; each time counts in the first bucket that it fits.
    counts: [u64; Times::AT_MOST.len()],
}

impl Times {
    /// Upper bounds of the buckets in seconds, from a period without traffic to the longest period.
    const AT_MOST: [f64; 10] = [20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 5e-3, 20e-3, 100e-3, 1.0];

    fn count(&mut self, time: Duration) {
        self.sum += time;
        let seconds = time.as_secs_f64();
        // A longer one is in the sum alone.
        if let Some(count) = Times::AT_MOST.iter().position(|most| seconds <= *most) {
            self.counts[count] += 1;
        }
    }

    /// How many took at most so many seconds, the shorter ones first.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let so_far = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        Times::AT_MOST.into_iter().zip(so_far)
    }
}

enum Request {
    Reload(Box<Policy>, SyncSender<Result<(), CoreError>>),
    SetInterfaces(Vec<DiscoveredInterface>, SyncSender<Result<(), CoreError>>),
    /// Whether the pools are wanted also where they are as they were.
    Status(bool, SyncSender<Status>),
    Count(SyncSender<Option<Vec<PoolStatus>>>),
    /// Ends the thread; whether the limits are taken off.
    Stop(bool),
}

/// The thread is gone: it was stopped, or it panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the guard's loop has ended")]
pub struct Gone;

/// Handle of the thread. Dropping it ends the thread and leaves the limits in force.
#[derive(Debug)]
pub struct Daemon {
    ask: SyncSender<Request>,
    thread: Option<JoinHandle<Result<(), CoreError>>>,
}

impl Daemon {
    /// Starts the thread: `open` is called in it, since planes belong to the network namespace of their thread. Returns
    /// when the policy is in force.
    ///
    /// # Errors
    /// What `open` gives, and when the thread cannot be started.
    pub fn start<P: Plane + 'static>(
        period: Duration,
        open: impl FnOnce() -> Result<Core<P>, CoreError> + Send + 'static,
    ) -> Result<Daemon, StartError> {
        let (ask, requests) = mpsc::sync_channel(WAITING);
        let (started, result) = mpsc::sync_channel(1);
        let run = move || {
            let core = match open() {
                Ok(core) => core,
                Err(error) => {
                    let _ = started.send(Some(error));
                    return Ok(());
                }
            };
            let _ = started.send(None);
            LoopThread { core, status: Status::default(), failed: None }.run(period, &requests)
        };
        let thread = thread::Builder::new().name("guard-loop".into()).spawn(run).map_err(StartError::Thread)?;
        match result.recv() {
            Ok(None) => Ok(Daemon { ask, thread: Some(thread) }),
            Ok(Some(error)) => Err(StartError::Core(error)),
            Err(_) => Err(StartError::Gone(Gone)),
        }
    }

    /// Another policy, whole or not at all.
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn reload(&self, policy: Policy) -> Result<Result<(), CoreError>, Gone> {
        self.ask(|tell| Request::Reload(Box::new(policy), tell))
    }

    /// The interfaces that are there now.
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn set_interfaces(&self, interfaces: Vec<DiscoveredInterface>) -> Result<Result<(), CoreError>, Gone> {
        self.ask(|tell| Request::SetInterfaces(interfaces, tell))
    }

    /// Its state.
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn status(&self) -> Result<Status, Gone> {
        self.ask(|tell| Request::Status(true, tell))
    }

    /// The same, without the pools where they are as they were at the last call of either, if they were `still` then
    /// and [`Daemon::count`] has given none since.
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn status_unless_still(&self) -> Result<Status, Gone> {
        self.ask(|tell| Request::Status(false, tell))
    }

    /// Counters of each pool; `None` where they did not change since the last call and nothing waits.
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn count(&self) -> Result<Option<Vec<PoolStatus>>, Gone> {
        self.ask(Request::Count)
    }

    fn ask<T>(&self, what: impl FnOnce(SyncSender<T>) -> Request) -> Result<T, Gone> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.ask.send(what(reply)).map_err(|_| Gone)?;
        answer.recv().map_err(|_| Gone)
    }

    /// Ends the thread and takes all limits off.
    ///
    /// # Errors
    /// When the plane fails.
    pub fn undo(mut self) -> Result<(), StartError> {
        self.end(true)
    }

    fn end(&mut self, undo: bool) -> Result<(), StartError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // It may have ended already.
        let _ = self.ask.send(Request::Stop(undo));
        thread.join().map_err(|_| StartError::Gone(Gone))?.map_err(StartError::Core)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Limits stay in force, and an error cannot be returned from here.
        let _ = self.end(false);
    }
}

/// Why the thread is not there, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system gave no thread.
    #[error("cannot start the guard's loop: {0}")]
    Thread(std::io::Error),
    /// The plane or the policy.
    #[error(transparent)]
    Core(CoreError),
    /// It panicked.
    #[error(transparent)]
    Gone(Gone),
}

struct LoopThread<P> {
    core: Core<P>,
    status: Status,
    /// Why the state in force could not be read back or put right; tried again within about [`AT_LEAST`].
    failed: Option<CoreError>,
}

impl<P: Plane> LoopThread<P> {
    /// The time until the loop's next period.
    fn pace(&self, period: Duration) -> Duration {
        if !self.core.is_settled() {
            return period;
        }
        period.max(IDLE).max(self.status.tick_time.saturating_mul(IDLE_FACTOR).min(LONGEST_IDLE))
    }

    /// Whether the pools stay as they are until something passes or is changed.
    fn is_still(&mut self) -> bool {
        // The loop may change limits for a while after the last packet.
        self.core.is_settled() && self.core.is_still()
    }

    /// Its state; with the pools `always`, or where they may be different from what they were.
    fn answer(&mut self, always: bool) -> Status {
        let pools = if !always && self.is_still() { Ok(None) } else { self.core.status().map(Some) };
        // What has passed meanwhile is not in them.
        let still = pools.is_ok() && self.is_still();
        let (notes, last) = (self.core.notes(), self.status.clone());
        let trouble = last.trouble.clone().or_else(|| self.failed.as_ref().map(ToString::to_string));
        match pools {
            Ok(pools) => Status { pools, still, identities: self.core.identities(), notes, trouble, ..last },
            Err(e) => Status { pools: Some(Vec::new()), notes, trouble: Some(e.to_string()), ..last },
        }
    }

    fn run(mut self, period: Duration, requests: &Receiver<Request>) -> Result<(), CoreError> {
        let mut ticked = Instant::now();
        let mut last_look = Instant::now();
        let (mut read_back, mut believed, mut rested) = (Instant::now(), BELIEVED, Duration::ZERO);
        let mut disturbed = false;
        loop {
            let now = Instant::now();
            // There are no periods where the plane needs no loop.
            let looped = self.core.is_looped();
            if !looped {
                self.status.trouble = None;
            }
            if looped && now.duration_since(ticked) >= self.pace(period) {
                let time = now.duration_since(ticked);
                // From now, not from when it was due: periods that were missed are not made up for.
                ticked = now;
                let done = self.core.tick(time);
                self.status.trouble = done.err().map(|e| e.to_string());
                self.status.ticks += 1;
                self.status.tick_time = now.elapsed();
                self.status.tick_times.count(self.status.tick_time);
                self.status.longest_tick_time = self.status.longest_tick_time.max(self.status.tick_time);
            }
            if now.duration_since(last_look) >= LOOK {
                last_look = now;
                disturbed |= self.core.disturbed();
                let since = now.duration_since(read_back);
                let failed = self.failed.is_some() && since >= AT_LEAST;
                if (disturbed && since >= rested) || failed || since >= believed {
                    disturbed = false;
                    let began = Instant::now();
                    let done = self.core.reconcile();
                    self.status.put_right += *done.as_ref().unwrap_or(&0) as u64;
                    self.failed = done.err();
                    read_back = Instant::now();
                    believed = BELIEVED.max(began.elapsed().saturating_mul(BELIEVED_FACTOR));
                    rested = AT_LEAST.min(began.elapsed().saturating_mul(REST_FACTOR));
                }
            }
            let rest = LOOK.saturating_sub(last_look.elapsed());
            let rest = if looped { rest.min(self.pace(period).saturating_sub(ticked.elapsed())) } else { rest };
            match requests.recv_timeout(rest) {
                Ok(Request::Reload(policy, tell)) => {
                    let _ = tell.send(self.core.reload(*policy));
                }
                Ok(Request::SetInterfaces(interfaces, tell)) => {
                    let _ = tell.send(self.core.set_interfaces(interfaces));
                }
                Ok(Request::Status(always, tell)) => {
                    let _ = tell.send(self.answer(always));
                }
                Ok(Request::Count(tell)) => {
                    // The status has the error.
                    let _ = tell.send(self.core.count().unwrap_or_else(|_| Some(Vec::new())));
                }
                Ok(Request::Stop(true)) => return self.core.undo(),
                Ok(Request::Stop(false)) | Err(RecvTimeoutError::Disconnected) => {
                    self.core.leave();
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
