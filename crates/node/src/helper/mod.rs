//! A helper: another process of this program, for work that may hang or that must outlive the first one.
//!
//! **How one lives.** It is this very program, started once more with a word as its first argument that `main` asks for
//! before anything else ([`own_args`]): with a name in `ps`, a session of its own (Ctrl-C and the end of a terminal are
//! for its owner), `/` as its directory, and no descriptors of its owner's own but the standard ones. One of these is a
//! [`Line`] to its owner, which the kernel closes however the owner ends: then the helper ends, too. Messages on it
//! have one framing and, for the owner, a deadline ([`Line::receive`]). Its owner kills and reaps it ([`Running`]);
//! what may sleep in the kernel, which ends when that lets it, is waited for within a limit ([`ends_within`]).
//!
//! | helper | what for | bears its owner's mark | when its owner is killed |
//! |---|---|---|---|
//! | `journal/reaper.rs` | what a killed owner leaves running | no: it outlives it | ends all that do, then itself |
//! | `io_worker` (and `tap`) | storage that may not answer | no: it may be stuck, and is left | ends, with its call |
//! | `rig/disks/modelled` | a disk in memory | yes ([`crate::Journal::serve_by`]) | ends, at the latest by the reaper |
//!
//! **What differs, and why.**
//! - A run under `vmio/supervisor.rs` is the same command once more, not a helper with a word: it has the caller's
//!   arguments, terminal and standard streams, so its line is one more descriptor, and it is killed with its
//!   supervisor (its own helpers and journal are there for the rest). Line and limits are from here.
//! - An agent (`agent`) is the same framing ([`proto`]) over a stream that may be a serial line, with many requests at
//!   once. It is started by a machine's own means; its processes there (an init's, a container's) make namespaces or
//!   reap all orphans, and speak with no owner.
//! - Other programs, and those of vmio that run under control groups, are commands: [`crate::Exec`], `local/child.rs`.
//!
//! Adding a helper: a word and a name, a `serve` that vmio's `main` calls, and a row above.

mod line;
pub mod proto;

use std::env::ArgsOs;
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::iter::Skip;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::machine::{self, OWNER_VARIABLE};

pub use line::Line;

/// A helper that is to be started.
#[derive(Debug)]
pub struct Helper {
    /// The program: this one, or what a test has in its place.
    pub program: PathBuf,
    /// Its name in `ps`.
    pub name: &'static CStr,
    /// Its arguments; the first is its word.
    pub args: Vec<OsString>,
}

impl Helper {
    /// This very program, also when its file was replaced meanwhile.
    pub fn new(name: &'static CStr, args: &[&str]) -> Self {
        Self { program: "/proc/self/exe".into(), name, args: args.iter().map(OsString::from).collect() }
    }

    /// Starts it, with this owner's mark or with none. Its line is its standard input, or its output where it is
    /// given another input, which is closed here.
    pub(crate) fn start(&self, owner: Option<&str>, input: Option<OwnedFd>) -> io::Result<Running> {
        let (line, theirs) = Line::pair()?;
        let (input, output): (Stdio, Stdio) = match input {
            Some(input) => (input.into(), theirs.into()),
            None => (theirs.into(), Stdio::null()),
        };
        let mut command = machine::command(&self.program);
        command.arg0(OsStr::from_bytes(self.name.to_bytes())).args(&self.args).current_dir("/");
        command.stdin(input).stdout(output).stderr(Stdio::null());
        match owner {
            Some(cookie) => command.env(OWNER_VARIABLE, cookie),
            None => command.env_remove(OWNER_VARIABLE),
        };
        // SAFETY: between fork and exec the closure makes one plain system call.
        unsafe {
            command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
        }
        Ok(Running { child: command.spawn()?, line })
    }
}

/// A helper that runs. Where this is dropped, it is killed and reaped.
#[derive(Debug)]
pub struct Running {
    /// Its process.
    pub child: Child,
    /// The way to it.
    pub line: Line,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// If this process was started as the helper of this word, sets its name for `ps` (the kernel's is that of the file,
/// `exe`) and returns the arguments after the word.
pub fn own_args(name: &CStr, word: &str) -> Option<Skip<ArgsOs>> {
    let mut args = std::env::args_os().skip(1);
    args.next().filter(|first| first == word)?;
    let _ = rustix::thread::set_name(name);
    Some(args)
}

/// Whether a process ends, and is reaped, within so long.
pub fn ends_within(child: &mut Child, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
