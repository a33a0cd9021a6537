//! The thread that keeps a policy in force: the loop, the look some times a second whether somebody changed something, and what
//! others ask of it, one thing after the other. Whoever asks waits for the answer; nobody else touches the plane.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use vmio_model::policy::Policy;

use crate::core::{Core, CoreError, PoolStatus};
use crate::interface::DiscoveredInterface;
use crate::planes::Plane;

/// How often the plane is asked whether somebody may have changed something: what was is put right within a second.
const LOOK: Duration = Duration::from_millis(400);
/// What is told again and again is read back no more often than costs so much of a processor's time: so many times what
/// reading it back took, up to [`AT_LEAST`].
const TOLD: u32 = 10;
/// What was told, or failed, is looked at after so long at the latest.
const AT_LEAST: Duration = Duration::from_secs(1);
/// How often a loop looks, at least, while nothing passes: what is owed to who begins to send does not wait for it.
const IDLE: Duration = Duration::from_millis(200);
/// How long what is in force is believed without being read back, though nobody seems to have changed it.
const BELIEVED: Duration = Duration::from_secs(30);
/// And no shorter than costs a part of a processor's time: so many times what reading it back took.
const PART: u32 = 500;
/// Questions that may wait.
const WAITING: usize = 64;

/// What the thread knows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Status {
    /// Each pool that is in force.
    pub pools: Vec<PoolStatus>,
    /// What deserves a word: interfaces that two entries mean or that cannot be held, and what the plane has to say.
    pub notes: Vec<String>,
    /// Ends of periods so far.
    pub ticks: u64,
    /// Time that the last one took.
    pub tick_time: Duration,
    /// The longest so far.
    pub longest_tick_time: Duration,
    /// All of them.
    pub tick_times: Times,
    /// Changes of others that were put right.
    pub put_right: u64,
    /// What failed last, and has not gone well since.
    pub trouble: Option<String>,
}

/// Times, counted by how long they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// All together.
    pub sum: Duration,
    /// As [`Times::AT_MOST`] has it; each is counted in the first that it fits.
    counts: [u64; Times::AT_MOST.len()],
}

impl Times {
    /// Ends of what is counted together, in seconds: from what a period takes at rest to the longest period.
    const AT_MOST: [f64; 10] = [20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 5e-3, 20e-3, 100e-3, 1.0];

    fn count(&mut self, time: Duration) {
        self.sum += time;
        let seconds = time.as_secs_f64();
        // What is longer than all is in the sum alone.
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

enum Asked {
    Reload(Box<Policy>, SyncSender<Result<(), CoreError>>),
    See(Vec<DiscoveredInterface>, SyncSender<Result<(), CoreError>>),
    Status(SyncSender<Status>),
    Count(SyncSender<Option<Vec<PoolStatus>>>),
    /// Ends the thread; whether the limits are taken off.
    Stop(bool),
}

/// The thread is gone: it was stopped, or it panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the guard's loop has ended")]
pub struct Gone;

/// A hold on the thread. Dropped, it ends the thread and leaves the limits in force.
#[derive(Debug)]
pub struct Daemon {
    ask: SyncSender<Asked>,
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
        let (ask, asked) = mpsc::sync_channel(WAITING);
        let (tell, told) = mpsc::sync_channel(1);
        let run = move || {
            let core = match open() {
                Ok(core) => core,
                Err(error) => {
                    // Nobody listens any more only when the starter is gone, too.
                    let _ = tell.send(Some(error));
                    return Ok(());
                }
            };
            let _ = tell.send(None);
            Turn { core, status: Status::default(), failed: None }.run(period, &asked)
        };
        let thread = thread::Builder::new().name("guard-loop".into()).spawn(run).map_err(StartError::Thread)?;
        match told.recv() {
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
        self.ask(|tell| Asked::Reload(Box::new(policy), tell))
    }

    /// The interfaces that are there now.
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn see(&self, interfaces: Vec<DiscoveredInterface>) -> Result<Result<(), CoreError>, Gone> {
        self.ask(|tell| Asked::See(interfaces, tell))
    }

    /// What it knows.
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn status(&self) -> Result<Status, Gone> {
        self.ask(Asked::Status)
    }

    /// What each pool has counted; `None` where that is what it was the last time, with nothing that waits.
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn count(&self) -> Result<Option<Vec<PoolStatus>>, Gone> {
        self.ask(Asked::Count)
    }

    fn ask<T>(&self, what: impl FnOnce(SyncSender<T>) -> Asked) -> Result<T, Gone> {
        let (tell, told) = mpsc::sync_channel(1);
        self.ask.send(what(tell)).map_err(|_| Gone)?;
        told.recv().map_err(|_| Gone)
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
        // One that has ended needs no word.
        let _ = self.ask.send(Asked::Stop(undo));
        thread.join().map_err(|_| StartError::Gone(Gone))?.map_err(StartError::Core)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Limits stay: nothing of this can fail in a way that somebody could mend here.
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

struct Turn<P> {
    core: Core<P>,
    status: Status,
    /// Why what is in force could not be read back, or put right; it is tried again at each look.
    failed: Option<CoreError>,
}

impl<P: Plane> Turn<P> {
    /// The time until the next look of the loop.
    fn pace(&self, period: Duration) -> Duration {
        if self.core.is_settled() { period.max(IDLE) } else { period }
    }

    fn run(mut self, period: Duration, asked: &Receiver<Asked>) -> Result<(), CoreError> {
        let mut ticked = Instant::now();
        let mut looked = Instant::now();
        let (mut read_back, mut believed, mut rested) = (Instant::now(), BELIEVED, Duration::ZERO);
        let mut told = false;
        loop {
            let now = Instant::now();
            // Where nothing is left to the loop there are no periods.
            let looped = self.core.is_looped();
            if !looped {
                self.status.trouble = None;
            }
            if looped && now.duration_since(ticked) >= period {
                let time = now.duration_since(ticked);
                // From now, not from when it was due: after a pause there are no periods to make up for.
                ticked = now;
                let done = self.core.tick(time);
                self.status.trouble = done.err().map(|e| e.to_string());
                self.status.ticks += 1;
                self.status.tick_time = now.elapsed();
                self.status.tick_times.count(self.status.tick_time);
                self.status.longest_tick_time = self.status.longest_tick_time.max(self.status.tick_time);
            }
            if now.duration_since(looked) >= LOOK {
                looked = now;
                told |= self.core.disturbed();
                let since = now.duration_since(read_back);
                let failed = self.failed.is_some() && since >= AT_LEAST;
                if (told && since >= rested) || failed || since >= believed {
                    told = false;
                    let began = Instant::now();
                    let done = self.core.reconcile();
                    self.status.put_right += *done.as_ref().unwrap_or(&0) as u64;
                    self.failed = done.err();
                    read_back = Instant::now();
                    believed = BELIEVED.max(began.elapsed().saturating_mul(PART));
                    rested = AT_LEAST.min(began.elapsed().saturating_mul(TOLD));
                }
            }
            let rest = LOOK.saturating_sub(looked.elapsed());
            let rest = if looped { rest.min(self.pace(period).saturating_sub(ticked.elapsed())) } else { rest };
            match asked.recv_timeout(rest) {
                Ok(Asked::Reload(policy, tell)) => {
                    let _ = tell.send(self.core.reload(*policy));
                }
                Ok(Asked::See(interfaces, tell)) => {
                    let _ = tell.send(self.core.see(interfaces));
                }
                Ok(Asked::Status(tell)) => {
                    let pools = self.core.status();
                    let (notes, known) = (self.core.notes(), self.status.clone());
                    let trouble = known.trouble.clone().or_else(|| self.failed.as_ref().map(ToString::to_string));
                    let status = match pools {
                        Ok(pools) => Status { pools, notes, trouble, ..known },
                        Err(e) => Status { notes, trouble: Some(e.to_string()), ..known },
                    };
                    let _ = tell.send(status);
                }
                Ok(Asked::Count(tell)) => {
                    // What cannot be counted is told by whoever asks for the status.
                    let _ = tell.send(self.core.count().unwrap_or_else(|_| Some(Vec::new())));
                }
                Ok(Asked::Stop(true)) => return self.core.undo(),
                Ok(Asked::Stop(false)) | Err(RecvTimeoutError::Disconnected) => {
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
