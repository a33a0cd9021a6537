//! Reads files at a fixed rate, on an absolute schedule, without drift.
//!
//! A `timerfd` (timerfd_create(2)) gives the ticks: a late reading does not move the next one,
//! and a tick that was missed altogether is left out, not made up. Files stay open: `/proc` and
//! `/sys` make their content anew for each `pread` at offset 0, which saves opening (most of the
//! cost). Memory is bounded: when it is full, every second tick goes and the interval doubles,
//! which counters, the only thing that is sampled, survive.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use crate::machine::{monotonic_seconds, poll_for, timespec};
use crate::{FileSample, SamplePlan};

/// Bound of the memory that the samples of one plan take.
pub(crate) const MEMORY_BYTES: usize = 64 << 20;

/// What is kept of one file at one tick.
const FILE_BYTES: usize = 1 << 20;

/// A running schedule; dropping it ends it.
pub(crate) struct Sampler {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<Vec<FileSample>>>,
}

impl Sampler {
    /// Takes the first sample and starts the schedule; `bound` is in bytes.
    pub fn start(plan: &SamplePlan, bound: usize) -> io::Result<Self> {
        if plan.interval.is_zero() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the interval must be above zero"));
        }
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let every = timespec(plan.interval);
        let schedule = Itimerspec { it_interval: every, it_value: every };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &schedule)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = Arc::clone(&stop);
        let mut ticks = Ticks::new(plan.paths.clone(), bound);
        ticks.take(true);
        let work = move || {
            let mut fds =
                [PollFd::new(&timer, PollFlags::IN), PollFd::from_borrowed_fd(as_fd(&stopped), PollFlags::IN)];
            while poll_for(&mut fds, None).is_ok() && fds[1].revents().is_empty() {
                let mut expired = [0u8; 8];
                if rustix::io::read(&timer, &mut expired).is_ok() {
                    ticks.take(false);
                }
            }
            ticks.take(true);
            ticks.samples
        };
        let thread = std::thread::Builder::new().name("sampler".into()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Takes the last sample and returns all, oldest first.
    pub fn stop(mut self) -> Vec<FileSample> {
        self.end()
    }

    fn end(&mut self) -> Vec<FileSample> {
        let Some(thread) = self.thread.take() else { return Vec::new() };
        // An eventfd takes 8 bytes, native order, and cannot be full here (eventfd(2)).
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        thread.join().unwrap_or_default()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

fn as_fd(fd: &OwnedFd) -> rustix::fd::BorrowedFd<'_> {
    rustix::fd::AsFd::as_fd(fd)
}

/// The samples so far and what is needed to take one more.
struct Ticks {
    files: Vec<Source>,
    samples: Vec<FileSample>,
    buffer: Vec<u8>,
    bytes: usize,
    bound: usize,
    /// Of how many ticks one is kept.
    stride: u64,
    tick: u64,
}

impl Ticks {
    fn new(paths: Vec<PathBuf>, bound: usize) -> Self {
        let files = paths.into_iter().map(|path| Source { path, file: None }).collect();
        Self { files, samples: Vec::new(), buffer: vec![0; 16 << 10], bytes: 0, bound, stride: 1, tick: 0 }
    }

    /// Reads all files, if it is this tick's turn or `always`.
    fn take(&mut self, always: bool) {
        let tick = self.tick;
        self.tick += 1;
        if !always && !tick.is_multiple_of(self.stride) {
            return;
        }
        let begin = monotonic_seconds();
        let buffer = &mut self.buffer;
        let contents: Vec<Vec<u8>> = self.files.iter_mut().map(|f| f.read(buffer).to_vec()).collect();
        let sample = FileSample { seconds: f64::midpoint(begin, monotonic_seconds()), contents };
        let more = size(&sample);
        while self.bytes + more > self.bound && self.samples.len() > 2 {
            self.thin();
        }
        self.bytes += more;
        self.samples.push(sample);
    }

    /// Gives up every second sample, from now on too; the first stays.
    fn thin(&mut self) {
        self.stride *= 2;
        let mut number = 0;
        self.samples.retain(|_| {
            number += 1;
            number % 2 == 1
        });
        self.bytes = self.samples.iter().map(size).sum();
    }
}

/// About how much memory a sample takes, in bytes.
fn size(sample: &FileSample) -> usize {
    64 + sample.contents.iter().map(|c| 24 + c.len()).sum::<usize>()
}

/// One file of the plan.
struct Source {
    path: PathBuf,
    file: Option<File>,
}

impl Source {
    /// The whole content; empty when it cannot be read. A file that was replaced or whose
    /// process ended is opened anew at the next tick.
    fn read<'b>(&mut self, buffer: &'b mut Vec<u8>) -> &'b [u8] {
        for _ in 0..2 {
            let fresh = self.file.is_none();
            if fresh {
                self.file = File::open(&self.path).ok();
            }
            let Some(file) = &self.file else { return &[] };
            match read_at_start(file, buffer) {
                Ok(n) => return &buffer[..n],
                Err(_) => self.file = None,
            }
            if fresh {
                break;
            }
        }
        &[]
    }
}

fn read_at_start(file: &File, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let mut filled = 0;
    loop {
        if filled == buffer.len() {
            if filled >= FILE_BYTES {
                return Ok(filled);
            }
            buffer.resize(filled * 2, 0);
        }
        match rustix::io::pread(file, &mut buffer[filled..], filled as u64) {
            Ok(0) => return Ok(filled),
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    fn plan(paths: &[&str], millis: u64) -> SamplePlan {
        SamplePlan { paths: paths.iter().map(PathBuf::from).collect(), interval: Duration::from_millis(millis) }
    }

    #[test]
    fn first_and_last_sample() {
        let before = monotonic_seconds();
        let sampler =
            Sampler::start(&plan(&["/proc/uptime", "/proc/self/stat", "/missing"], 10), MEMORY_BYTES).unwrap();
        let started = monotonic_seconds();
        std::thread::sleep(Duration::from_secs(1));
        let stopping = monotonic_seconds();
        let samples = sampler.stop();
        assert!(samples.len() >= 3, "{}", samples.len());
        assert!(samples[0].seconds >= before && samples[0].seconds <= started);
        assert!(samples.last().unwrap().seconds >= stopping);
        assert!(samples.is_sorted_by(|a, b| a.seconds < b.seconds));
        let uptime = |s: &FileSample| {
            let text = String::from_utf8(s.contents[0].clone()).unwrap();
            text.split(' ').next().unwrap().parse::<f64>().unwrap()
        };
        let passed = uptime(samples.last().unwrap()) - uptime(&samples[0]);
        assert!(passed > 0.05, "the content must be read anew: {passed}");
        assert!(samples.iter().all(|s| s.contents.len() == 3 && s.contents[2].is_empty() && !s.contents[1].is_empty()));
    }

    #[test]
    fn late_readers_do_not_shift_ticks() {
        let before = monotonic_seconds();
        let sampler = Sampler::start(&plan(&["/proc/stat"], 20), MEMORY_BYTES).unwrap();
        std::thread::sleep(Duration::from_millis(410));
        let samples = sampler.stop();
        let passed = monotonic_seconds() - before;
        // Without a drift the ticks fit into the time that passed; a busy machine may miss some.
        assert!(samples.len() as f64 <= 1.0 + passed / 0.02 + 1.0, "{} in {passed} s", samples.len());
    }

    #[test]
    fn full_memory_halves_the_samples() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![b'x'; 1000]).unwrap();
        let mut ticks = Ticks::new(vec![path.clone(), dir.path().join("later")], 20_000);
        for _ in 0..500 {
            ticks.take(false);
        }
        let first = ticks.samples[0].seconds;
        std::fs::write(dir.path().join("later"), "here").unwrap();
        ticks.take(true);
        assert!(ticks.bytes <= 20_000 && ticks.samples.len() >= 8, "{}", ticks.samples.len());
        assert_eq!(ticks.samples[0].seconds, first);
        assert_eq!(ticks.samples.last().unwrap().contents[1], b"here");
        assert!(ticks.stride >= 32);
    }

    #[test]
    fn large_files_and_zero_intervals() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1u8; 3 << 20]).unwrap();
        let mut ticks = Ticks::new(vec![path], MEMORY_BYTES);
        ticks.take(true);
        assert_eq!(ticks.samples[0].contents[0].len(), FILE_BYTES);
        assert!(Sampler::start(&plan(&[], 0), MEMORY_BYTES).is_err());
    }
}
