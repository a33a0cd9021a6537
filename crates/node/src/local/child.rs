//! A command as a child of this process: started in a session of its own, fed and drained by one
//! thread that sleeps in poll(2), ended as a whole group.
//!
//! The thread watches the child by a pidfd and reaps it under a lock, so that a signal can never
//! reach a foreign process that got the same pid.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, setsid};

use crate::machine::{self, OWNER_VARIABLE, lock, poll_for};
use crate::{End, Error, Exec, Result};

/// How long the output of a command that has ended is still awaited from children that it left
/// behind, before they are killed; and once more after that.
const GRACE: Duration = Duration::from_millis(250);

/// One of the two outputs of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Where the output of a command goes, piece by piece, and at last its end.
pub(crate) trait Sink: Send {
    fn chunk(&mut self, stream: Stream, bytes: &[u8]);
    fn ended(&mut self, end: End);
}

/// A running child.
pub(crate) struct Handle {
    pub pid: u32,
    shared: Arc<Shared>,
}

struct Shared {
    /// `None` while the child runs and its pid is its own.
    end: Mutex<Option<End>>,
    changed: Condvar,
}

impl Handle {
    /// The end, if it comes within `limit` (`None` waits for ever).
    pub fn wait(&self, limit: Option<Duration>) -> Option<End> {
        let end = lock(&self.shared.end);
        match limit {
            None => *self.shared.changed.wait_while(end, |e| e.is_none()).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let waited = self.shared.changed.wait_timeout_while(end, limit, |e| e.is_none());
                *waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Kills the process group, unless the child was reaped already.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Asks the process group to end (SIGTERM), unless the child was reaped already.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        let end = lock(&self.shared.end);
        if end.is_none() {
            signal_group(self.pid, signal);
        }
    }
}

fn kill_group(pid: u32) {
    signal_group(pid, Signal::KILL);
}

fn signal_group(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // No such group: it ended by itself.
        let _ = kill_process_group(pid, signal);
    }
}

/// `cmd` as a child of this process, marked with `cookie`.
fn command_of(cmd: &Exec, cookie: Option<&str>) -> Command {
    let mut command = machine::command(&cmd.program);
    command.args(&cmd.args).envs(&cmd.env).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if cmd.stdin.is_empty() { Stdio::null() } else { Stdio::piped() });
    if let Some(cookie) = cookie {
        command.env(OWNER_VARIABLE, cookie);
    }
    command
}

/// Starts `cmd` on this machine, named `node` in errors, marked with `cookie`.
pub(crate) fn start(node: &str, cmd: &Exec, cookie: Option<&str>, sink: Box<dyn Sink>) -> Result<Handle> {
    let failed = |source| Error::Spawn { node: node.into(), program: cmd.program.clone(), source };
    let mut command = command_of(cmd, cookie);
    let groups = open_groups(node, cmd)?;
    let oom = cmd.oom_score_adj.map(|n| n.to_string());
    let (told, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
    // SAFETY: between fork and exec the closure makes plain system calls on memory and
    // descriptors that were made before; it neither allocates nor locks.
    unsafe {
        command.pre_exec(move || {
            let failed = |step: u8, e: rustix::io::Errno| {
                let _ = rustix::io::write(&tell, &[step]);
                io::Error::from(e)
            };
            setsid().map_err(|e| failed(OTHER_STEP, e))?;
            if let Some(text) = &oom {
                write_own_oom_score(text.as_bytes()).map_err(|e| failed(OOM_STEP, e))?;
            }
            for (number, file) in (0u8..).zip(&groups) {
                // A pid of 0 means the one who writes.
                rustix::io::write(file, b"0").map_err(|e| failed(number, e))?;
            }
            Ok(())
        });
    }
    let spawned = command.spawn();
    // The command holds the other end of the pipe until it is dropped.
    drop(command);
    let mut child = spawned.map_err(|e| {
        let mut step = [OTHER_STEP];
        let _ = rustix::io::read(&told, &mut step);
        let what = match step[0] {
            OOM_STEP => "cannot set its oom_score_adj".to_owned(),
            n => match cmd.cgroup_procs.get(usize::from(n)) {
                Some(path) => format!("cannot enter {}", path.display()),
                None => return failed(e),
            },
        };
        failed(io::Error::new(e.kind(), format!("{what}: {e}")))
    })?;
    let pid = child.id();
    let shared = Arc::new(Shared { end: Mutex::new(None), changed: Condvar::new() });
    let (give, given) = mpsc::channel::<(Child, Box<dyn Sink>)>();
    let started = Minder::new(&mut child, cmd.stdin.clone()).and_then(|minder| {
        let shared = Arc::clone(&shared);
        let work = move || {
            if let Ok((child, sink)) = given.recv() {
                minder.run(child, sink, &shared);
            }
        };
        std::thread::Builder::new().name("child".into()).spawn(work)
    });
    if let Err(e) = started {
        kill_group(pid);
        let _ = child.wait();
        return Err(failed(e));
    }
    // Cannot fail: the thread receives before it does anything else.
    let _ = give.send((child, sink));
    Ok(Handle { pid, shared })
}

/// What the child reports when a step before exec fails; smaller numbers are control groups.
const OTHER_STEP: u8 = u8::MAX;
const OOM_STEP: u8 = u8::MAX - 1;

/// Opens the control groups that the child enters: here an error can say more than in the child.
fn open_groups(node: &str, cmd: &Exec) -> Result<Vec<File>> {
    let open = |path: &std::path::PathBuf| {
        OpenOptions::new().write(true).open(path).map_err(|source| Error::File {
            node: node.into(),
            what: "open",
            path: path.clone(),
            source,
        })
    };
    cmd.cgroup_procs.iter().map(open).collect()
}

/// Unlike a control group this file can only be opened by the child itself.
fn write_own_oom_score(text: &[u8]) -> rustix::io::Result<()> {
    use rustix::fs::{Mode, OFlags, open};
    let file = open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text).map(|_| ())
}

/// Feeds, drains and reaps one child.
struct Minder {
    pidfd: OwnedFd,
    stdin: Option<OwnedFd>,
    input: Vec<u8>,
    fed: usize,
    out: [Option<OwnedFd>; 2],
}

impl Minder {
    fn new(child: &mut Child, input: Vec<u8>) -> io::Result<Self> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        let this = Self {
            pidfd: pidfd_open(pid, PidfdFlags::empty())?,
            stdin: child.stdin.take().map(OwnedFd::from),
            input,
            fed: 0,
            out: [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)],
        };
        for fd in this.out.iter().chain([&this.stdin]).flatten() {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        Ok(this)
    }

    fn run(mut self, mut child: Child, mut sink: Box<dyn Sink>, shared: &Shared) {
        let mut buffer = vec![0u8; 64 << 10];
        // When the child has ended: until when its output is still awaited.
        let mut until: Option<Instant> = None;
        let mut killed = false;
        while until.is_none() || self.out.iter().any(Option::is_some) {
            let ready = match self.poll(until) {
                Ok(ready) => ready,
                // Nothing sensible is left to do but to end it.
                Err(_) => break,
            };
            if ready.exited && until.is_none() {
                until = Some(Instant::now() + GRACE);
            }
            if ready.stdin {
                self.feed();
            }
            for (stream, ready) in [(Stream::Out, ready.out[0]), (Stream::Err, ready.out[1])] {
                if ready {
                    self.drain(stream, &mut buffer, sink.as_mut());
                }
            }
            if until.is_some_and(|u| Instant::now() >= u) {
                if killed {
                    break;
                }
                kill_group(child.id());
                killed = true;
                until = Some(Instant::now() + GRACE);
            }
        }
        let how = {
            let mut end = lock(&shared.end);
            // What the command left running in its group goes with it. Not reaped yet, its pid
            // still names its own group.
            kill_group(child.id());
            let how = child.wait().map_or(End::Signal(Signal::KILL.as_raw()), end_of);
            *end = Some(how);
            how
        };
        shared.changed.notify_all();
        sink.ended(how);
    }

    fn poll(&self, until: Option<Instant>) -> io::Result<Ready> {
        let wanted = [
            // An ended child stays readable: it is watched until it ends and no longer.
            (until.is_none().then_some(&self.pidfd), PollFlags::IN),
            (self.stdin.as_ref(), PollFlags::OUT),
            (self.out[0].as_ref(), PollFlags::IN),
            (self.out[1].as_ref(), PollFlags::IN),
        ];
        let mut fds: Vec<_> = wanted.iter().filter_map(|(fd, flags)| Some(PollFd::new((*fd)?, *flags))).collect();
        poll_for(&mut fds, until.map(|u| u.saturating_duration_since(Instant::now())))?;
        let mut events = fds.iter().map(|fd| !fd.revents().is_empty());
        let ready = wanted.map(|(fd, _)| fd.is_some() && events.next().unwrap_or(false));
        Ok(Ready { exited: ready[0], stdin: ready[1], out: [ready[2], ready[3]] })
    }

    fn feed(&mut self) {
        let Some(pipe) = &self.stdin else { return };
        match rustix::io::write(pipe, &self.input[self.fed..]) {
            Ok(n) => self.fed += n,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            // The command reads no further.
            Err(_) => self.fed = self.input.len(),
        }
        if self.fed == self.input.len() {
            self.stdin = None;
            self.input = Vec::new();
            self.fed = 0;
        }
    }

    fn drain(&mut self, stream: Stream, buffer: &mut [u8], sink: &mut dyn Sink) {
        let slot = &mut self.out[stream as usize];
        let Some(pipe) = slot else { return };
        match rustix::io::read(pipe, &mut *buffer) {
            Ok(0) => *slot = None,
            Ok(n) => sink.chunk(stream, &buffer[..n]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => *slot = None,
        }
    }
}

/// What poll(2) found.
struct Ready {
    exited: bool,
    stdin: bool,
    out: [bool; 2],
}

fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exit(code),
        (None, Some(signal)) => End::Signal(signal),
        // waitpid without WUNTRACED reports nothing else.
        (None, None) => End::Exit(-1),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::machine::LOGIN_VARIABLES;

    #[test]
    fn no_program_inherits_a_login() {
        let command = command_of(&Exec::new("env"), Some("mark"));
        let of = |name: &str| command.get_envs().find(|(key, _)| *key == name).map(|(_, value)| value);
        assert_eq!(LOGIN_VARIABLES.map(of), [Some(None); 2], "they are removed");
        assert_eq!(of(OWNER_VARIABLE), Some(Some(OsStr::new("mark"))));
    }
}
