//! Runs tests, several at a time, each in a process of its own.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::inside::{Ended, Outcome};
use crate::programs::{Kind, Test};

/// The longest test takes a fifth of it on a quiet machine.
const LIMIT: Duration = Duration::from_secs(600);
/// The longest long form takes little more than half of it.
const LONG_LIMIT: Duration = Duration::from_secs(900);
/// Memory that the largest guest takes, the lab host with its disk in memory.
const GUEST_BYTES: u64 = 2 << 30;
/// Failures that are looked into by a second run: more of them have another cause than what ran beside them.
const AGAIN: usize = 3;
/// What counts reads for each guest of the host is disturbed by guests that come and go, and so is what gives guests
/// memory that all others could need.
const ALONE: &[&str] = &[
    "look::machine guest_running::two_hundred_guests",
    "look::machine guest_disks::each_of_two_hundred_guests",
    "vmio::guests guest_guard_memory::",
];

/// Why a test failed.
pub enum Failure {
    /// Its process ended so.
    Ended(Ended),
    /// It left this behind.
    Left(Vec<String>),
    /// It could not be run.
    NotRun(io::Error),
}

/// What came of a test.
pub struct Done {
    pub test: Test,
    pub seconds: f64,
    /// Processor time of it and of all that it started.
    pub cpu_seconds: f64,
    pub failure: Option<Failure>,
    /// What this machine lacks for it, a reason a line.
    pub skipped: Option<String>,
    /// What came meanwhile and may be this test's ([`Outcome::unclaimed`]).
    unclaimed: Vec<String>,
    /// What it printed.
    pub log: PathBuf,
    /// Its run before, which failed beside others; this one was alone.
    pub first: Option<Box<Self>>,
}

/// The queue: tests that run alone first, then the others by kind, those that took longest first.
struct Queue {
    waiting: VecDeque<Test>,
    running: usize,
    /// Of these, with guests.
    guests: usize,
    /// Guests at a time.
    most_guests: usize,
    alone: bool,
}

impl Queue {
    /// The next test that may begin now. A guest keeps a processor busy, where other tests wait for most of their time: half
    /// of the lanes have guests at most, and the other half has what is without meanwhile.
    fn take(&mut self) -> Option<Test> {
        let is_first_alone = self.waiting.front().is_some_and(is_alone);
        if self.alone || is_first_alone && self.running > 0 {
            return None;
        }
        let may_begin = |test: &Test| test.kind != Kind::Guest || self.guests < self.most_guests;
        let at = self.waiting.iter().position(may_begin)?;
        let test = self.waiting.remove(at)?;
        self.running += 1;
        self.guests += usize::from(test.kind == Kind::Guest);
        self.alone = is_first_alone;
        Some(test)
    }

    /// A test is done.
    fn give(&mut self, kind: Kind) {
        self.running -= 1;
        self.guests -= usize::from(kind == Kind::Guest);
        self.alone = false;
    }
}

/// Memory that programs may still take (proc_meminfo(5)).
fn available_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let found =
        text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse().ok());
    let kib: u64 = found.ok_or_else(|| io::Error::other("/proc/meminfo has no MemAvailable"))?;
    Ok(kib << 10)
}

fn is_alone(test: &Test) -> bool {
    ALONE.iter().any(|name| test.name.starts_with(name))
}

/// Runs them in so many lanes; each is told of when it is done. With `again` tests with root and guests that failed run
/// once more, alone.
pub fn run(
    mut tests: Vec<Test>,
    lanes: usize,
    again: bool,
    dir: &Path,
    told: impl Fn(&Done) + Sync,
) -> io::Result<Vec<Done>> {
    let known = crate::times::load(dir);
    let time = |test: &Test| known.get(&test.name).copied().unwrap_or(0.0);
    tests.sort_by(|a, b| {
        (!is_alone(a), a.kind).cmp(&(!is_alone(b), b.kind)).then(time(b).total_cmp(&time(a))).then(a.name.cmp(&b.name))
    });
    let room = usize::try_from(available_bytes()? / GUEST_BYTES).unwrap_or(usize::MAX);
    let most_guests = lanes.div_ceil(2).min(room).max(1);
    let queue = Mutex::new(Queue { waiting: tests.into(), running: 0, guests: 0, most_guests, alone: false });
    let (free, done) = (Condvar::new(), Mutex::new(Vec::new()));
    let take = || {
        let mut queue = queue.lock().ok()?;
        while !queue.waiting.is_empty() {
            if let Some(test) = queue.take() {
                return Some(test);
            }
            queue = free.wait(queue).ok()?;
        }
        None
    };
    let give = |kind| {
        if let Ok(mut queue) = queue.lock() {
            queue.give(kind);
        }
        free.notify_all();
    };
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                while let Some(test) = take() {
                    let kind = test.kind;
                    let one = one(test, dir);
                    give(kind);
                    told(&one);
                    if let Ok(mut done) = done.lock() {
                        done.push(one);
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    claim(&mut done);
    if again {
        run_again(&mut done, dir, &told)?;
    }
    crate::times::store(dir, known, &done)?;
    Ok(done)
}

/// What nobody was seen to own and is still there was left behind by one of those that ran meanwhile.
fn claim(done: &mut [Done]) {
    let still = crate::inside::owned();
    for one in done.iter_mut().filter(|one| one.failure.is_none()) {
        one.unclaimed.retain(|name| still.contains_key(name));
        if !one.unclaimed.is_empty() {
            one.failure = Some(Failure::Left(std::mem::take(&mut one.unclaimed)));
        }
    }
}

/// Those that may have failed by what ran beside them. (Another vmio's load, a processor that is stolen: what they measure
/// is of the machine. A test that has nothing but itself has no such excuse.)
fn run_again(done: &mut [Done], dir: &Path, told: impl Fn(&Done)) -> io::Result<()> {
    if done.iter().filter(|one| one.failure.is_some()).count() > AGAIN {
        return Ok(());
    }
    for failed in done.iter_mut().filter(|one| one.failure.is_some() && one.test.kind != Kind::Plain) {
        let kept = failed.log.with_extension("first.log");
        fs::rename(&failed.log, &kept)?;
        failed.log = kept;
        let second = one(failed.test.clone(), dir);
        failed.first = Some(Box::new(std::mem::replace(failed, second)));
        claim(std::slice::from_mut(failed));
        told(failed);
    }
    Ok(())
}

fn one(test: Test, dir: &Path) -> Done {
    let begin = Instant::now();
    let file = |suffix: &str| dir.join(format!("{}.{suffix}", test.name.replace([':', ' ', '/'], "-")));
    let (log, result, lacks) = (file("log"), file("json"), file("skipped"));
    let outcome = outcome(&test, &log, &result, &lacks);
    let seconds = begin.elapsed().as_secs_f64();
    let skipped = fs::read_to_string(&lacks).ok();
    for done in [&result, &lacks] {
        let _ = fs::remove_file(done);
    }
    let mut unclaimed = Vec::new();
    let cpu_seconds = outcome.as_ref().map_or(0.0, |outcome| outcome.cpu_seconds);
    let failure = match outcome {
        Err(e) => Some(Failure::NotRun(e)),
        // One that fails may leave something: that is not why.
        Ok(Outcome { ended, .. }) if ended != Ended::Code(0) => Some(Failure::Ended(ended)),
        Ok(Outcome { left, .. }) if !left.is_empty() => Some(Failure::Left(left)),
        Ok(Outcome { unclaimed: names, .. }) => {
            unclaimed = names;
            None
        }
    };
    if failure.is_none() {
        let _ = fs::remove_file(&log);
    }
    Done { test, seconds, cpu_seconds, failure, skipped, unclaimed, log, first: None }
}

fn outcome(test: &Test, log: &Path, result: &Path, lacks: &Path) -> io::Result<Outcome> {
    let output = File::create(log)?;
    let limit = if test.long { LONG_LIMIT } else { LIMIT }.mul_f64(vmio_testbed::slowness());
    let limit = limit + Duration::from_secs(vmio_testbed::churn_seconds().unwrap_or_default());
    let mut command = Command::new("/proc/self/exe");
    command.arg("inside").arg(result).arg("--limit").arg(limit.as_secs().to_string());
    if test.kind != Kind::Plain {
        command.arg("--namespaces");
    }
    command.arg("--").arg(&test.program).args(["--exact", &test.path, "--nocapture", "--test-threads=1"]);
    if test.ignored {
        command.arg("--ignored");
    }
    command.env(vmio_testbed::SKIPPED, lacks).env(vmio_testbed::SLOWNESS, vmio_testbed::slowness().to_string());
    command.current_dir(&test.dir).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let status = command.status()?;
    let text = fs::read_to_string(result)
        .map_err(|e| io::Error::new(e.kind(), format!("the process around it ended with {status}: {e}")))?;
    Ok(serde_json::from_str(&text)?)
}
