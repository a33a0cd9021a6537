//! I/O tasks: calls on storage that may never answer, made in a process of its own; also work on a copy of another
//! process's descriptor, which ends with the worker ([`crate::tap`]).
//!
//! A call on a file whose server does not answer (NFS that is mounted `hard`, FUSE whose server hangs, RBD of a dead
//! cluster) sleeps in the kernel where no signal reaches it, and a process whose thread sleeps so cannot even end.
//! So a look at a file that others control, and the removal of a file from such storage, is an **I/O task**: one of a
//! closed list ([`crate::IO_TASKS`]), sent to a worker, which is a [`helper`](crate::helper). A worker that does not
//! answer in time is killed and left behind; it ends when its server answers or goes. The caller gets an error of kind
//! `TimedOut`, and goes on.
//!
//! - `main` must call [`serve`] first, which also says that tasks may be sent to workers; a program that does not
//!   (a test, a bench, the agent) runs them on a thread of its own, which it abandons at the time limit.
//! - A worker that has answered is kept for the next task, so that a task costs a message and no start.
//! - A worker says when it is up, and the task's time limit begins then: a start is this program's own, and on a host
//!   in trouble, or an emulated one, takes longer than a healthy answer. Counted in, the start alone would be taken for
//!   silent storage, and each task would need another start, since a late worker is killed.
//! - A worker that is late and waits for nothing but a processor is waited for up to [`BUSY`] times as long: then the
//!   host is busy, and the storage is not silent. One that has had a processor for about another limit since is
//!   waited for no longer: the file itself takes too long to read, as a hostile guest may want.
//! - No descriptor of a file crosses the line: closing one may hang, too.

mod fault;

use std::ffi::{CStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::helper::{self, Helper, Line, Running};
use crate::machine::{self, lock};

pub(crate) use fault::Fault;

/// First argument of a worker.
const WORD: &str = "errands-of-a-vmio";
/// Its name in `ps`.
const NAME: &CStr = c"vmio-errand";
/// Idle workers that are kept for the next task.
const MOST_IDLE: usize = 8;
/// Workers that may wait for silent storage at once; with more of them no task is started any more.
const MOST_LEFT: usize = 64;
/// How long a worker may take to be up: far more than a start needs unless this program lies on silent storage.
const UP: Duration = Duration::from_secs(30);
/// How many times its limit a task may take whose worker waits for a processor.
const BUSY: u32 = 10;
/// Of the limit: who ran for so long since the first timeout had a processor for a whole one, up to ticks and wakeups.
const NEARLY: f64 = 0.9;
/// How long a killed process is waited for: one that sleeps where signals reach it is gone at once.
const DEATH: Duration = Duration::from_millis(20);

/// Whether this program's `main` knows [`WORD`].
static KNOWN: AtomicBool = AtomicBool::new(false);
/// Whether this process is a worker.
static IS_WORKER: AtomicBool = AtomicBool::new(false);
/// Workers that wait for a task.
static IDLE: Mutex<Vec<IoWorker>> = Mutex::new(Vec::new());
/// Workers that were killed and have not ended yet.
static LEFT: Mutex<Vec<IoWorker>> = Mutex::new(Vec::new());

/// A kind of task.
pub(crate) struct IoTask {
    /// Its name on the line.
    pub word: &'static str,
    /// Does it, in the thread that calls, and leaves that as it was ([`on_own_thread`]): what is asked as JSON, of this
    /// path. Gives the answer as JSON, and bytes beside it.
    pub perform: fn(&str, &Path) -> Done,
}

/// An answer as JSON, and bytes beside it.
pub(crate) type Done = io::Result<(String, Vec<u8>)>;

/// A task as sent; the path goes beside it, since it need not be UTF-8.
#[derive(Serialize, Deserialize)]
struct Sent {
    word: String,
    ask: String,
}

/// Where this process was started as a worker: runs tasks until its owner ends, and ends. Else notes that tasks may be
/// sent to workers, and returns. To be called by `main` before anything else.
pub fn serve() {
    if helper::own_args(NAME, WORD).is_some() {
        run_tasks();
    }
    KNOWN.store(true, Ordering::Relaxed);
}

/// Ends the idle workers, at the orderly end of a program.
pub fn end() {
    KNOWN.store(false, Ordering::Relaxed);
    let idle = std::mem::take(&mut *lock(&IDLE));
    drop(idle);
}

/// Whether tasks are run by other processes; else by threads of this one.
pub(crate) fn are_sent() -> bool {
    KNOWN.load(Ordering::Relaxed)
}

/// Whether this process is a worker.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.load(Ordering::Relaxed)
}

/// Sends one task; waits for the answer no longer than `limit` from when a worker is up.
///
/// # Errors
/// That of the call; `TimedOut` when no answer came, which says how long was waited.
pub(crate) fn send<T: DeserializeOwned>(
    task: &'static IoTask,
    ask: &impl Serialize,
    path: &Path,
    limit: Duration,
) -> io::Result<(T, Vec<u8>)> {
    let ask = serde_json::to_string(ask)?;
    let (answer, bytes) = if are_sent() {
        sent(Sent { word: task.word.to_owned(), ask }, path, limit)?
    } else {
        let path = path.to_owned();
        machine::within(limit, move || (task.perform)(&ask, &path)).unwrap_or_else(|| Err(silent(limit)))?
    };
    Ok((serde_json::from_str(&answer)?, bytes))
}

fn silent(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("it gave no answer within {} s", limit.as_secs()))
}

fn sent(sent: Sent, path: &Path, limit: Duration) -> Done {
    loop {
        let kept = lock(&IDLE).pop();
        let is_fresh = kept.is_none();
        let mut worker = kept.map_or_else(IoWorker::start, Ok)?;
        match worker.run(&sent, path, limit) {
            Ok(done) => return worker.keep(done),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                worker.leave();
                return Err(silent(limit));
            }
            Err(e) if is_fresh => {
                return Err(io::Error::new(e.kind(), format!("the process that was to do it ended: {e}")));
            }
            // A kept worker may have been killed meanwhile.
            Err(_) => {}
        }
    }
}

/// A process that runs tasks.
struct IoWorker(Running);

impl IoWorker {
    fn start() -> io::Result<Self> {
        let left = reap();
        if left >= MOST_LEFT {
            let words = format!("{left} processes of vmio already wait for storage that does not answer");
            return Err(io::Error::new(io::ErrorKind::TimedOut, words));
        }
        Self::begin(&Helper::new(NAME, &[WORD]), UP)
    }

    /// Starts it and waits until it is up.
    fn begin(helper: &Helper, limit: Duration) -> io::Result<Self> {
        let mut worker = Self(helper.start(None, None)?);
        match worker.0.line.receive::<()>(Some(Instant::now() + limit)) {
            Ok(_) => Ok(worker),
            Err(e) => {
                worker.leave();
                // Not `TimedOut`, which means silent storage.
                let why = match e.kind() {
                    io::ErrorKind::TimedOut => format!("was not up within {} s", limit.as_secs()),
                    _ => format!("ended as it started: {e}"),
                };
                Err(io::Error::other(format!("the process that was to do it {why}")))
            }
        }
    }

    fn run(&mut self, sent: &Sent, path: &Path, limit: Duration) -> io::Result<Done> {
        let mut until = Instant::now() + limit;
        let end = until + limit * (BUSY - 1);
        self.0.line.send(sent, path.as_os_str().as_bytes(), Some(until))?;
        let mut by_first_timeout = None;
        loop {
            match self.0.line.receive::<Result<String, Fault>>(Some(until)) {
                Ok((answer, bytes)) => return Ok(answer.map(|answer| (answer, bytes)).map_err(io::Error::from)),
                Err(e) if e.kind() == io::ErrorKind::TimedOut && until < end && self.is_busy() => {
                    let Some(ran) = machine::run_seconds(self.0.child.id()) else { return Err(e) };
                    if ran - *by_first_timeout.get_or_insert(ran) >= limit.as_secs_f64() * NEARLY {
                        return Err(e);
                    }
                    until += limit;
                }
                Err(e) => return Err(e),
            }
        }
    }

    fn is_busy(&self) -> bool {
        machine::is_runnable(self.0.child.id())
    }

    /// After an answer: keeps the worker for the next task.
    fn keep(self, done: Done) -> Done {
        let mut idle = lock(&IDLE);
        if idle.len() < MOST_IDLE && are_sent() {
            idle.push(self);
        }
        done
    }

    /// Without an answer: kills the worker; one that does not end at once is reaped later.
    fn leave(mut self) {
        let _ = self.0.child.kill();
        if !helper::ends_within(&mut self.0.child, DEATH) {
            lock(&LEFT).push(self);
        }
    }
}

fn failed() -> io::Error {
    io::Error::other("it failed without a word")
}

/// Does in a thread of its own, and waits for it, what changes its thread for good (its user, its network namespace):
/// a worker does its next task where it did the last one.
pub(crate) fn on_own_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|_| Err(failed()))
    })
}

/// Reaps the killed workers that have ended; how many have not.
fn reap() -> usize {
    let mut left = lock(&LEFT);
    left.retain_mut(|worker| !helper::ends_within(&mut worker.0.child, Duration::ZERO));
    left.len()
}

/// The main loop of a worker.
fn run_tasks() -> ! {
    IS_WORKER.store(true, Ordering::Relaxed);
    let Ok(mut line) = Line::own(io::stdin()) else { std::process::exit(2) };
    if line.send(&(), &[], None).is_err() {
        std::process::exit(0);
    }
    while let Ok((Sent { word, ask }, path)) = line.receive(None) {
        let path = PathBuf::from(OsString::from_vec(path));
        let Some(task) = crate::IO_TASKS.iter().find(|task| task.word == word) else { break };
        // In this thread: to start one for each task took longer than most tasks.
        let done = std::panic::catch_unwind(|| (task.perform)(&ask, &path));
        let done = done.unwrap_or_else(|_| Err(failed()));
        let (answer, bytes) = match done {
            Ok((answer, bytes)) => (Ok(answer), bytes),
            Err(e) => (Err(Fault::from(&e)), Vec::new()),
        };
        if line.send(&answer, &bytes, None).is_err() {
            break;
        }
    }
    std::process::exit(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::helper::proto::{Hello, Kind, READY, VERSION, encode};

    /// A process that says these messages, and then stays until its owner ends.
    fn begun(before: &str, messages: &[&str], limit: Duration) -> io::Result<IoWorker> {
        let mut said = Hello { version: VERSION, nonce: READY }.encode().to_vec();
        for message in messages {
            encode(Kind::Data, 0, message.as_bytes(), &mut said).unwrap();
            encode(Kind::End, 0, &[], &mut said).unwrap();
        }
        let said: String = said.iter().map(|byte| format!("\\{byte:03o}")).collect();
        let script = format!("{before}printf '{said}' >&0; exec cat");
        let helper = Helper { program: "sh".into(), name: c"sh", args: vec!["-c".into(), script.into()] };
        IoWorker::begin(&helper, limit)
    }

    #[test]
    fn time_limit_begins_when_the_worker_is_up() {
        let sent = Sent { word: "look".to_owned(), ask: String::new() };
        // It is up after more than the task may take, and with its answer ready.
        let limit = Duration::from_millis(250);
        let mut slow = begun("sleep 0.5; ", &["null", r#"{"Ok":"7"}"#], UP).unwrap();
        assert_eq!(slow.run(&sent, Path::new("/"), limit).unwrap().unwrap(), ("7".to_owned(), Vec::new()));
        // No further answer.
        assert_eq!(slow.run(&sent, Path::new("/"), limit).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn who_computes_on_and_on_is_cut() {
        let sent = Sent { word: "look".to_owned(), ask: String::new() };
        let limit = Duration::from_millis(250);
        let computes = r#"printf() { command printf "$@"; while :; do :; done; }; "#;
        let mut worker = begun(computes, &["null"], UP).unwrap();
        let at = Instant::now();
        let cut = worker.run(&sent, Path::new("/"), limit).unwrap_err();
        let took = at.elapsed();
        worker.leave();
        assert_eq!(cut.kind(), io::ErrorKind::TimedOut);
        // Twice the limit where it has a processor for itself, and far from all that a busy host is given.
        assert!(took >= limit && took < limit * (BUSY - 1), "{took:?}");
    }

    #[test]
    fn failed_start_is_not_silent_storage() {
        for (before, limit, why) in
            [("exit 1; ", UP, "ended as it started"), ("", Duration::ZERO, "was not up within 0 s")]
        {
            let refused = begun(before, &[], limit).map(drop).unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
            assert_ne!(refused.kind(), io::ErrorKind::TimedOut);
        }
    }
}
