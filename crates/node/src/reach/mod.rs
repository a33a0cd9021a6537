//! Machines that exist already, with an agent on them: what the ways to them ([`crate::ssh`], [`crate::libvirt`])
//! share.
//!
//! A shell over there takes the agent into a directory of its own, in memory where programs may be run from that
//! (`/dev/shm`), and takes the directory away when the agent has ended. The agent ends with the stream, or when it has
//! heard nothing for [`SILENCE`], and undoes what was changed; one that was killed is begun once more to undo it.
//!
//! Nothing that the other machine says is run here, and no more is taken of it than [`MOST_SAID`] before the agent
//! answers; what an agent may answer is bounded by its protocol.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::{Node, Remote};

/// How long it may take until the agent answers, with all that is sent.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// The agent ends when it has heard nothing for so long: the way to it is broken.
pub const SILENCE: Duration = Duration::from_secs(60);
/// How often it hears something.
const PULSE: Duration = Duration::from_secs(15);
/// How long the other side may take to undo what was changed and to end.
pub(crate) const END_LIMIT: Duration = Duration::from_secs(15);
/// Bytes that a shell over there may say before the agent does, and bytes kept of the own words of what leads there.
pub(crate) const MOST_SAID: usize = 64 << 10;
/// What the lines of [`PLACE`] begin with.
pub(crate) const OURS: &str = "vmio-there ";
/// How a shell over there finds a directory for the agent: `$t`.
macro_rules! place {
    () => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/reach/place.sh"))
    };
}
pub(crate) use place;
/// Places that are memory.
const IN_MEMORY: [&str; 2] = ["/dev/shm/", "/run/"];

/// Why a machine cannot be worked on.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {what}")]
pub struct Error {
    /// As the user named it: `ssh://root@host`.
    pub(crate) address: String,
    pub(crate) what: String,
    /// What to do.
    pub help: String,
}

/// The agent for a machine's processor.
#[derive(Debug, Clone)]
pub struct Program {
    /// The processor, as `uname -m` names it: `x86_64`.
    pub machine: String,
    /// The file.
    pub file: PathBuf,
}

impl Program {
    /// The one of these that is for a machine which says of itself that it is this: `Linux x86_64`.
    pub(crate) fn among<'a>(agents: &'a [Program], uname: &str) -> Result<&'a Program, [String; 2]> {
        let found = uname.split_once(' ').filter(|(system, _)| *system == "Linux").map(|(_, machine)| machine);
        agents.iter().find(|program| Some(program.machine.as_str()) == found).ok_or_else(|| {
            let have: Vec<&str> = agents.iter().map(|program| program.machine.as_str()).collect();
            let what = format!("it is {uname}; this vmio-agent is only for Linux {}", have.join(", "));
            [what, "build the agent for that processor (docs/ssh.md)".to_owned()]
        })
    }
}

/// Why no agent can be put on a machine, and what to do.
pub(crate) const NO_PLACE: [&str; 2] = [
    "no directory there allows programs: /dev/shm, /run, /tmp and the home directory were tried",
    "make room, or mount one of them without noexec",
];

/// Why the session with an agent could not begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ungreeted {
    #[error("cannot share a socket: {0}")]
    Socket(io::Error),
    #[error("the agent does not answer: {0}")]
    NoAnswer(crate::Error),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// What carries the stream to an agent.
pub(crate) trait Carrier: Send {
    /// Waits for the end of all that runs for it, here and there, and ends it when that takes too long.
    fn end(&mut self);
}

/// A machine with an agent on it. When it is dropped, what was changed is undone and the agent is gone.
pub struct Machine {
    /// The session, until it is ended.
    remote: Option<Remote>,
    /// Where the agent's file is there.
    place: PathBuf,
    stream: UnixStream,
    carrier: Box<dyn Carrier>,
    /// Closed when the pulse is to end.
    pulse: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Machine {
    /// Greets the agent at the other end of a stream until this time. With the error the carrier is given back.
    pub(crate) fn greet<C: Carrier + 'static>(
        address: &str,
        place: PathBuf,
        stream: UnixStream,
        carrier: C,
        until: Instant,
    ) -> Result<Self, (C, Ungreeted)> {
        let halves = || -> io::Result<(Box<dyn Read + Send>, Box<dyn Write + Send>)> {
            Ok((Box::new(stream.try_clone()?), Box::new(stream.try_clone()?)))
        };
        let halves = match halves() {
            Ok(halves) => halves,
            Err(e) => return Err((carrier, Ungreeted::Socket(e))),
        };
        let begun = Remote::connect(address, halves, until.saturating_duration_since(Instant::now()))
            .map_err(Ungreeted::NoAnswer)
            .and_then(|remote| {
                let pulse = pulse(remote.clone()).map_err(Ungreeted::Thread)?;
                Ok((remote, pulse))
            });
        match begun {
            Ok((remote, pulse)) => {
                Ok(Self { remote: Some(remote), place, stream, carrier: Box::new(carrier), pulse: Some(pulse) })
            }
            Err(why) => Err((carrier, why)),
        }
    }

    /// The machine.
    ///
    /// # Panics
    /// Never: it is there as long as this is.
    pub fn node(&self) -> &Remote {
        self.remote.as_ref().expect("until it is dropped")
    }

    /// The same to share; what still has it when the machine is dropped gets errors.
    pub fn shared(&self) -> Arc<dyn Node> {
        Arc::new(self.node().clone())
    }

    /// Puts a program beside the agent, where commands over there find it by its name, and others of that name later.
    /// It goes with the agent.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn send(&self, name: &str, file: &Path) -> crate::Result<()> {
        self.node().put(file, &self.place.join(name), Some(0o700))
    }

    /// The directory of the agent over there while it runs, and whether that is memory.
    pub fn place(&self) -> (&Path, bool) {
        (&self.place, IN_MEMORY.iter().any(|dir| self.place.starts_with(dir)))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.pulse.take() {
            drop(stop);
            let _ = thread.join();
        }
        if let Some(remote) = self.remote.take() {
            // The agent says that all is undone; one that is gone has undone it, or will.
            let _ = remote.close();
        }
        let _ = self.stream.shutdown(Shutdown::Both);
        self.carrier.end();
    }
}

/// Sends a request now and then, so that the agent can tell that its client is alive; gives the agent up where no answer
/// comes.
fn pulse(remote: Remote) -> io::Result<(Sender<()>, JoinHandle<()>)> {
    let (stop, stopped) = mpsc::channel();
    let beat = move || {
        while stopped.recv_timeout(PULSE) == Err(RecvTimeoutError::Timeout) {
            // Ends all waiting requests as well, since a command may have no time limit.
            if let Err(e) = crate::Reader::clock_seconds(&remote) {
                return remote.give_up(e);
            }
        }
    };
    Ok((stop, thread::Builder::new().name("pulse".into()).spawn(beat)?))
}

/// What went wrong and what to do, by the words of the program that leads there: the first entry of `mends` (words -> the
/// mend) that fits. `None` for the mend where none does. `why` is what is known beside those words;
/// where that is nothing, all of them are given.
pub(crate) fn explain<'m>(
    program: &str,
    said: &str,
    why: &str,
    mends: &[(&str, &'m str)],
) -> (String, Option<&'m str>) {
    let mend = mends.iter().find(|(words, _)| said.contains(words));
    let line = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    let what = match (mend, line) {
        // The matching line, not the last one of a banner.
        (Some((words, _)), _) => said.lines().find(|line| line.contains(words)).unwrap_or(words).trim().to_owned(),
        (None, Some(_)) if why.is_empty() => {
            said.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
        }
        (None, Some(line)) => format!("{why}; {program} said: {line}"),
        (None, None) => why.to_owned(),
    };
    let what: String = what.chars().filter(|c| !c.is_control()).take(400).collect();
    (what.trim_matches(['@', ' ']).to_owned(), mend.map(|(_, help)| *help))
}
