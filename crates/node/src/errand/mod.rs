//! What storage may hold back for ever, done in a process of its own; and what holds another's descriptor, so that
//! the copy goes with that process ([`crate::tap`]).
//!
//! A call on a file whose server does not answer (NFS that is mounted `hard`, FUSE whose server hangs, RBD of a dead
//! cluster) sleeps in the kernel where no signal reaches it, and a process whose thread sleeps so cannot even end.
//! So a look at a file that others control, and the removal of a file from such storage, is an **errand**: one of a
//! closed list ([`crate::ERRANDS`]), sent by a pipe to another process of this very program. One that does not
//! answer in time is killed and left behind; it ends when its server answers or goes. The caller gets an error of
//! kind `TimedOut`, and goes on.
//!
//! - The other process is this program, started once more by `/proc/self/exe` with a first argument of its own. Its
//!   `main` must call [`serve`] first, which also says that errands may be sent; a program that does not (a test, a
//!   bench, the agent) does the same on a thread that it gives up.
//! - One that has answered is kept for the next errand, so that an errand costs a message and no start.
//! - It says when it is up, and its time begins then: a start is this program's own, and on a host in trouble, or an
//!   emulated one, takes longer than a healthy answer. Counted in, the start alone would be taken for silent storage, and
//!   each errand would need another start, since what is late is killed.
//! - It ends with its owner, by the end of the pipe. No descriptor of a file crosses it: closing one may hang, too.

mod fault;
mod wire;

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::machine::{self, OWNER_VARIABLE, lock};

pub(crate) use fault::Fault;

/// First argument of the process that runs errands.
const WORD: &str = "errands-of-a-vmio";
/// Processes that are kept for the next errand.
const MOST_IDLE: usize = 8;
/// Processes that may wait for silent storage at once; past them nobody is sent there any more.
const MOST_LEFT: usize = 64;
/// How long a process may take to be up: far more than a start needs where nothing is wrong with this program's own file.
const UP: Duration = Duration::from_secs(30);
/// How long a killed process is waited for: one that sleeps where signals reach it is gone at once.
const DEATH: Duration = Duration::from_millis(20);

/// Whether this program's `main` knows [`WORD`].
static KNOWN: AtomicBool = AtomicBool::new(false);
/// Whether this is a process that runs errands: what may hang may hang here.
static SERVANT: AtomicBool = AtomicBool::new(false);
/// Those that wait for an errand.
static IDLE: Mutex<Vec<Runner>> = Mutex::new(Vec::new());
/// Those that were killed and are still there.
static LEFT: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// A kind of errand.
pub(crate) struct Errand {
    /// Its name on the pipe.
    pub word: &'static str,
    /// Does it, in the thread that calls: what is asked as JSON, of this path. Gives the answer as JSON, and bytes
    /// beside it.
    pub perform: fn(&str, &Path) -> Done,
}

/// An answer as JSON, and bytes beside it.
pub(crate) type Done = io::Result<(String, Vec<u8>)>;

/// What is sent; the path goes beside it, since it may be no text.
#[derive(Serialize, Deserialize)]
struct Sent {
    word: String,
    ask: String,
}

/// Where this process was started to run errands: does so until its owner ends, and ends. Else notes that errands
/// may be sent, and returns. To be called by `main` before anything else.
pub fn serve() {
    if std::env::args_os().nth(1).is_some_and(|word| word == WORD) {
        run_errands();
    }
    KNOWN.store(true, Ordering::Relaxed);
}

/// Ends those that wait for errands, at the end of a program in order.
pub fn end() {
    KNOWN.store(false, Ordering::Relaxed);
    let idle = std::mem::take(&mut *lock(&IDLE));
    idle.into_iter().for_each(Runner::end);
}

/// Whether errands are run by other processes; else by threads of this one.
pub(crate) fn are_sent() -> bool {
    KNOWN.load(Ordering::Relaxed)
}

/// Whether this is a process that runs errands.
pub(crate) fn is_servant() -> bool {
    SERVANT.load(Ordering::Relaxed)
}

/// Sends one errand; waits for the answer no longer than `limit` from when somebody is there to do it.
///
/// # Errors
/// That of the call; `TimedOut` when no answer came, which says how long was waited.
pub(crate) fn send<T: DeserializeOwned>(
    errand: &'static Errand,
    ask: &impl Serialize,
    path: &Path,
    limit: Duration,
) -> io::Result<(T, Vec<u8>)> {
    let ask = serde_json::to_string(ask)?;
    let (answer, bytes) = match are_sent() {
        true => sent(Sent { word: errand.word.to_owned(), ask }, path, limit)?,
        false => {
            let path = path.to_owned();
            machine::within(limit, move || (errand.perform)(&ask, &path)).unwrap_or_else(|| Err(silent(limit)))?
        }
    };
    Ok((serde_json::from_str(&answer)?, bytes))
}

fn silent(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("it gave no answer within {} s", limit.as_secs()))
}

fn sent(sent: Sent, path: &Path, limit: Duration) -> Done {
    // One that was kept may have been ended by somebody meanwhile.
    let kept = lock(&IDLE).pop();
    if let Some(mut kept) = kept {
        match kept.run(&sent, path, limit) {
            Ok(done) => return kept.back(done),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => return kept.left(limit),
            Err(_) => kept.end(),
        }
    }
    let mut fresh = Runner::start()?;
    match fresh.run(&sent, path, limit) {
        Ok(done) => fresh.back(done),
        Err(e) if e.kind() == io::ErrorKind::TimedOut => fresh.left(limit),
        Err(e) => {
            fresh.end();
            Err(io::Error::new(e.kind(), format!("the process that was to do it ended: {e}")))
        }
    }
}

/// A process that runs errands.
struct Runner {
    child: Child,
    line: UnixStream,
}

impl Runner {
    fn start() -> io::Result<Self> {
        let left = reap();
        if left >= MOST_LEFT {
            let words = format!("{left} processes of vmio already wait for storage that does not answer");
            return Err(io::Error::new(io::ErrorKind::TimedOut, words));
        }
        let mut command = Command::new("/proc/self/exe");
        command.arg0("vmio-errand").arg(WORD).current_dir("/").env_remove(OWNER_VARIABLE);
        // A group of its own: Ctrl-C is for the owner.
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
        Self::begin(command, UP)
    }

    /// Starts it and waits until it is up.
    fn begin(mut command: Command, limit: Duration) -> io::Result<Self> {
        // Both ends close on exec; the child gets its own as standard input.
        let (line, theirs) = UnixStream::pair()?;
        line.set_nonblocking(true)?;
        command.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
        let mut runner = Self { child: command.spawn()?, line };
        // The command has its own copy of their end, which would hide that the process has ended.
        drop(command);
        match wire::receive::<()>(&mut runner.line, Some(Instant::now() + limit)) {
            Ok(_) => Ok(runner),
            Err(e) => {
                runner.leave();
                // Not `TimedOut`: it is no storage that was silent.
                let why = match e.kind() {
                    io::ErrorKind::TimedOut => format!("was not up within {} s", limit.as_secs()),
                    _ => format!("ended as it started: {e}"),
                };
                Err(io::Error::other(format!("the process that was to do it {why}")))
            }
        }
    }

    fn run(&mut self, sent: &Sent, path: &Path, limit: Duration) -> io::Result<Done> {
        let until = Instant::now() + limit;
        wire::send(&mut self.line, sent, path.as_os_str().as_bytes(), Some(until))?;
        let (answer, bytes) = wire::receive::<Result<String, Fault>>(&mut self.line, Some(until))?;
        Ok(answer.map(|answer| (answer, bytes)).map_err(io::Error::from))
    }

    /// With an answer: it is kept for the next errand.
    fn back(self, done: Done) -> Done {
        let mut idle = lock(&IDLE);
        if idle.len() < MOST_IDLE && are_sent() {
            idle.push(self);
        } else {
            drop(idle);
            self.end();
        }
        done
    }

    /// Ends one that waits for an errand, or has ended.
    fn end(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Without an answer: it is killed, and looked after later.
    fn left(self, limit: Duration) -> Done {
        self.leave();
        Err(silent(limit))
    }

    /// Kills it; where it does not end at once it is looked after later.
    fn leave(mut self) {
        let _ = self.child.kill();
        let until = Instant::now() + DEATH;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= until {
                lock(&LEFT).push(self.child);
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Takes notice of those that have ended; how many have not.
fn reap() -> usize {
    let mut left = lock(&LEFT);
    left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    left.len()
}

/// The life of a process that runs errands.
fn run_errands() -> ! {
    SERVANT.store(true, Ordering::Relaxed);
    // As `ps` shows it; the kernel takes the name of the file, `exe`.
    let _ = rustix::thread::set_name(c"vmio-errand");
    let Ok(line) = io::stdin().as_fd().try_clone_to_owned() else { std::process::exit(2) };
    let mut line = UnixStream::from(line);
    if wire::send(&mut line, &(), &[], None).is_err() {
        std::process::exit(0);
    }
    while let Ok((Sent { word, ask }, path)) = wire::receive::<Sent>(&mut line, None) {
        let path = PathBuf::from(OsString::from_vec(path));
        let Some(errand) = crate::ERRANDS.iter().find(|errand| errand.word == word) else { break };
        // A thread for each: one takes another user's rights for good.
        let done = std::thread::spawn(move || (errand.perform)(&ask, &path)).join();
        let done = done.unwrap_or_else(|_| Err(io::Error::other("it failed without a word")));
        let (answer, bytes) = match done {
            Ok((answer, bytes)) => (Ok(answer), bytes),
            Err(e) => (Err(Fault::from(&e)), Vec::new()),
        };
        if wire::send(&mut line, &answer, &bytes, None).is_err() {
            break;
        }
    }
    std::process::exit(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A process that says these messages, and then stays until its owner ends.
    fn begun(before: &str, messages: &[&str], limit: Duration) -> io::Result<Runner> {
        let say = |said: &&str| format!("printf '\\{:o}\\0\\0\\0\\0\\0\\0\\0%s' '{said}' >&0; ", said.len());
        let said: String = messages.iter().map(say).collect();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{before}{said}exec cat")]).stdout(Stdio::null());
        Runner::begin(command, limit)
    }

    #[test]
    fn an_errand_has_its_time_from_when_somebody_is_up_to_do_it() {
        let sent = Sent { word: "look".to_owned(), ask: String::new() };
        // It is up after more than the errand may take, and with its answer ready.
        let limit = Duration::from_millis(250);
        let mut slow = begun("sleep 0.5; ", &["null", r#"{"Ok":"7"}"#], UP).unwrap();
        assert_eq!(slow.run(&sent, Path::new("/"), limit).unwrap().unwrap(), ("7".to_owned(), Vec::new()));
        // No further answer.
        assert_eq!(slow.run(&sent, Path::new("/"), limit).unwrap_err().kind(), io::ErrorKind::TimedOut);
        slow.end();
    }

    #[test]
    fn a_process_that_does_not_come_up_is_not_taken_for_silent_storage() {
        for (before, limit, why) in
            [("exit 1; ", UP, "ended as it started"), ("", Duration::ZERO, "was not up within 0 s")]
        {
            let refused = begun(before, &[], limit).map(Runner::end).unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
            assert_ne!(refused.kind(), io::ErrorKind::TimedOut);
        }
    }
}
