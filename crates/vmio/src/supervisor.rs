//! A supervisor for a run on storage that may hang: the run is a child process, so that the `vmio` which a person or a
//! script waits for always ends.
//!
//! A run opens, fills, flushes and closes files for minutes. On storage for which somebody else has to answer (a file
//! server, a FUSE server, RBD; [`vmio_node::linux::silent`]) each of these calls may sleep in the kernel where not even
//! SIGKILL reaches it, and the process can then not end. So there, and only there, the whole run is done by this
//! program started once more, with the same arguments, standard input and outputs. The supervisor passes signals on and
//! waits: for the end of the run; or, after a signal or once the run has said its exit code, no longer than the limits
//! below. Then it kills the run, says what stays in the kernel and why, and ends.
//!
//! If the supervisor is killed, so is the run (PR_SET_PDEATHSIG of prctl(2): the thread that starts it lives as long as
//! the supervisor).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::FileType;
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use vmio_node::helper::{Line, ends_within};
use vmio_node::machine;
use vmio_rig::disks::{places, space};

use crate::term;

/// Environment variable with the number of the descriptor that the run writes to its supervisor by.
const VARIABLE: &str = "VMIO_SUPERVISOR";
/// How long a run may take to undo all and end after a signal; its own limits are below this.
const UNDOING: Duration = Duration::from_secs(90);
/// How long a process may take to end when it has nothing left to undo.
const ENDING: Duration = Duration::from_secs(3);
/// Exit code of a run that was ended before it reported its own.
const INTERRUPTED: u8 = 4;

/// What a run tells its supervisor.
#[derive(Serialize, Deserialize)]
enum Message {
    /// The run handles signals from now on.
    HandlesSignals,
    /// The exit code of the run, which is about to end.
    ExitCode(u8),
}

/// The run's end of the socket to its supervisor.
static LINE: OnceLock<Mutex<Line>> = OnceLock::new();

/// Takes over the socket to a supervisor, if this process has one. To be called by `main` before any thread is started.
pub fn adopt() {
    let Some(number) = std::env::var(VARIABLE).ok().and_then(|n| n.parse::<i32>().ok()).filter(|n| *n > 2) else {
        return;
    };
    // SAFETY: no other thread is there yet.
    unsafe { std::env::remove_var(VARIABLE) };
    let socket = std::fs::read_link(format!("/proc/self/fd/{number}"));
    if socket.is_ok_and(|to| to.to_string_lossy().starts_with("socket:")) {
        // SAFETY: it is open, was made for this process alone, and nothing else here has it.
        let end = unsafe { OwnedFd::from_raw_fd(number) };
        if let Ok(line) = Line::own(end) {
            let _ = LINE.set(Mutex::new(line));
        }
    }
}

/// Whether this process is a run under a supervisor.
pub fn is_present() -> bool {
    LINE.get().is_some()
}

/// Tells the supervisor that signals are handled here from now on.
pub fn tell_signals_handled() {
    tell(&Message::HandlesSignals);
}

/// Tells the supervisor with which code this process is about to end.
pub fn tell_exit_code(code: u8) {
    tell(&Message::ExitCode(code));
}

fn tell(message: &Message) {
    if let Some(line) = LINE.get() {
        // Without a supervisor this process is killed anyway.
        let _ = line.lock().unwrap_or_else(PoisonError::into_inner).send(message, &[], None);
    }
}

/// Where the storage of a run may not answer, starts the run as a child of this process, supervises it, and ends with
/// its code. Else, or in the supervised run itself, returns at once.
pub fn supervise(on: Option<&str>, device: Option<&Path>, state: &Path) {
    if is_present() {
        return;
    }
    if let Some(who) = storage_server(on, device, state) {
        let code = start(&who).unwrap_or_else(|e| {
            term::note(&format!("error: cannot start the process for storage that may not answer: {e}"));
            1
        });
        vmio_node::io_worker::end();
        std::process::exit(code.into());
    }
}

/// The server of a run's storage, found without any call that it would have to answer.
fn storage_server(on: Option<&str>, device: Option<&Path>, state: &Path) -> Option<String> {
    let of = |path: &Path| {
        let path = std::path::absolute(path).ok()?;
        Some(machine::may_hang(&path)?.server)
    };
    match (device, on) {
        (Some(device), _) => of(device).or_else(|| places::answered_by(on?)),
        (None, Some(on)) => places::answered_by(on),
        (None, None) => space::places_of_images(&vmio_node::Local::new(), state).iter().find_map(|dir| of(dir)),
    }
}

/// Starts this program once more and waits for it; its exit code.
fn start(who: &str) -> io::Result<u8> {
    let (line, theirs) = Line::pair()?;
    let (signals, signalled) = UnixStream::pair()?;
    signals.set_nonblocking(true)?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, signalled.try_clone()?)?;
    }
    let mut args = std::env::args_os();
    let own: OsString = args.next().unwrap_or_else(|| "vmio".into());
    let mut command = Command::new("/proc/self/exe");
    command.arg0(own).args(args).env(VARIABLE, theirs.as_raw_fd().to_string());
    let parent = getpid();
    // SAFETY: between fork and exec the closure makes three plain system calls on what was made before.
    unsafe {
        command.pre_exec(move || {
            rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The supervisor may have gone before that.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        });
    }
    if is_pipe(&io::stdout()) {
        command.stdout(Stdio::piped());
    }
    if is_pipe(&io::stderr()) {
        command.stderr(Stdio::piped());
    }
    let mut child = command.spawn()?;
    // Closes this process's copies of the child's descriptors.
    drop(command);
    let mut relays = Vec::new();
    if let Some(out) = child.stdout.take() {
        relays.push(relay(File::from(OwnedFd::from(out)), io::stdout().as_fd().try_clone_to_owned()?.into())?);
    }
    if let Some(err) = child.stderr.take() {
        relays.push(relay(File::from(OwnedFd::from(err)), io::stderr().as_fd().try_clone_to_owned()?.into())?);
    }
    Supervisor { who, child, relays, line, signals, handles_signals: false, code: None }.wait()
}

/// Whether the reader of an output waits for its end, as that of a pipe does: it must not wait for a process that never
/// ends.
fn is_pipe(output: &impl AsFd) -> bool {
    let kind = rustix::fs::fstat(output).map(|stat| FileType::from_raw_mode(stat.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::Socket))
}

fn relay(mut from: File, mut to: File) -> io::Result<JoinHandle<()>> {
    // A reader that has gone away closes this pipe, too, so the run gets the same error as without a supervisor.
    std::thread::Builder::new().name("relay".into()).spawn(move || drop(io::copy(&mut from, &mut to)))
}

/// The supervisor of a run.
struct Supervisor<'a> {
    who: &'a str,
    child: Child,
    relays: Vec<JoinHandle<()>>,
    line: Line,
    signals: UnixStream,
    /// Whether the run undoes what it made when a signal comes.
    handles_signals: bool,
    code: Option<u8>,
}

impl Supervisor<'_> {
    fn wait(mut self) -> io::Result<u8> {
        let (mut until, mut asked) = (None::<Instant>, 0u32);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(self.leave());
            }
            let mut fds = [PollFd::new(&self.line, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
            machine::poll_for(&mut fds, left)?;
            let [said, signal] = fds.map(|fd| !fd.revents().is_empty());
            if signal {
                let _ = self.signals.read(&mut [0; 16]);
                // A terminal also sends the signal to the run, which treats two that come together as one.
                self.pass_on(Signal::TERM);
                asked += 1;
                let limit = if self.handles_signals && asked == 1 { UNDOING } else { ENDING };
                until = Some(Instant::now() + limit);
            }
            if said {
                if !self.receive()? {
                    return self.ended();
                }
                if self.code.is_some() {
                    until = Some(Instant::now() + ENDING);
                }
            }
        }
    }

    /// Reads the messages of the run; `false` once it has ended.
    fn receive(&mut self) -> io::Result<bool> {
        loop {
            match self.line.receive(Some(Instant::now())) {
                Ok((Message::HandlesSignals, _)) => self.handles_signals = true,
                Ok((Message::ExitCode(code), _)) => self.code = Some(code),
                Err(e) => match e.kind() {
                    io::ErrorKind::TimedOut => return Ok(true),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => return Ok(false),
                    _ => return Err(e),
                },
            }
        }
    }

    fn pass_on(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It is not reaped yet, so the process id is still its own.
            let _ = kill_process(pid, signal);
        }
    }

    /// The run has ended: its exit code, or 128 and the number of the signal that ended it.
    fn ended(mut self) -> io::Result<u8> {
        let status = self.child.wait()?;
        for relay in self.relays {
            let _ = relay.join();
        }
        let by_signal = || status.signal().and_then(|n| u8::try_from(128 + n).ok());
        Ok(status.code().and_then(|code| u8::try_from(code).ok()).or_else(by_signal).unwrap_or(INTERRUPTED))
    }

    /// Kills a run that does not end, and does not wait for it.
    fn leave(mut self) -> u8 {
        let _ = self.child.kill();
        if !ends_within(&mut self.child, ENDING / 3) {
            let pid = self.child.id();
            term::note(&format!(
                "warning: the storage does not answer: {} blocks process {pid} of vmio in the kernel. It ends when \
                 the storage answers or is unmounted; the next start of vmio undoes what it left",
                self.who
            ));
        }
        self.code.unwrap_or(INTERRUPTED)
    }
}
