//! The contract of a machine: [`Reader`] looks, [`Node`] also acts.

mod error;
pub(crate) mod opened;
pub(crate) mod programs;
pub(crate) mod question;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::RemoteDevice;
use crate::node::question::{NetworkAnswer, NetworkQuestion, Questions, Unanswered};
use crate::opened::{At, FileIdentity, Opened, Peek};

pub use error::{Error, Result};

/// Longest text, in bytes, that is read of files that others control.
pub const FOREIGN_BYTES: usize = 4 << 20;

/// A machine as code that only looks may see it (scan, doctor, probes): nothing here can
/// change anything on it.
pub trait Reader: Send + Sync {
    /// Short name for messages and results: `local`, `guest0`.
    fn name(&self) -> &str;

    /// Whole content of a file. Files under `/proc` and `/sys` are read to their end.
    fn read(&self, path: &Path) -> Result<Vec<u8>>;

    /// The beginning of a file, at most `most_bytes`: for what others can make as long as they like.
    fn read_start(&self, path: &Path, most_bytes: usize) -> Result<Vec<u8>>;

    /// Names of the entries of a directory, sorted.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;

    /// What the path is, links followed; `None` when there is nothing.
    fn stat(&self, path: &Path) -> Result<Option<FileStat>>;

    /// Where a symbolic link points, as it is written (`socket:[123]` for a descriptor in
    /// `/proc/PID/fd`); `None` when there is nothing, or no link.
    fn link(&self, path: &Path) -> Result<Option<PathBuf>>;

    /// Bytes of a file or block device that the page cache holds; `None` where the kernel cannot
    /// count them (before Linux 6.5). The path may be of others, as with [`Reader::read_foreign`].
    fn cached_bytes(&self, path: &Path) -> Result<Option<u64>>;

    /// As [`Reader::read`], for files that others control (a container's, one that a command line
    /// names): regular files of at most `most_bytes`. Never waits long, and below `/proc/PID/root`
    /// follows no link out of that root.
    fn read_foreign(&self, path: &Path, most_bytes: usize) -> Result<Vec<u8>>;

    /// The beginning, at most `most_bytes`, of a file that nobody but root can have written: a regular file of root's,
    /// reached by no link, in a directory of root's. Anybody may have chosen its name.
    fn read_trusted(&self, path: &Path, most_bytes: usize) -> Result<Vec<u8>>;

    /// As [`Reader::list`], for directories that others control; see [`Reader::read_foreign`].
    fn list_foreign(&self, dir: &Path) -> Result<Vec<String>>;

    /// As [`Reader::stat`], for paths that others control; see [`Reader::read_foreign`].
    fn stat_foreign(&self, path: &Path) -> Result<Option<FileStat>>;

    /// As [`Reader::link`], for links that others control; see [`Reader::read_foreign`].
    fn link_foreign(&self, path: &Path) -> Result<Option<PathBuf>>;

    /// The first part of a path below `above` that is a symbolic link, as [`Reader::link_foreign`] finds it: which one
    /// of these parts, from 1, and where it points. Nothing behind it is looked at.
    fn first_link_foreign(&self, above: &Path, path: &Path) -> Result<Option<(usize, PathBuf)>> {
        first_link(above.components().count(), path, |part| self.link_foreign(part))
    }

    /// What a path of others is, known apart from all other files; `None` when there is nothing. Nothing is opened.
    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>>;

    /// What a descriptor of a process is; `None` when it is none, or names nothing. Nothing is opened.
    fn opened(&self, pid: u32, fd: u32) -> Result<Option<Opened>>;

    /// Looks at a file of others: the first `most_bytes` of it, and what the page cache holds. Regular files and
    /// block devices alone, never what the kernel makes up (proc, sysfs, tracing), and where it is one that a
    /// process has open, that very one, which the process may read.
    fn peek(&self, at: &At, most_bytes: usize) -> Result<Peek>;

    /// As [`Reader::read_text`], for files that others control; at most [`FOREIGN_BYTES`].
    fn read_foreign_text(&self, path: &Path) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.read_foreign(path, FOREIGN_BYTES)?).into_owned())
    }

    /// Seconds on this node's `CLOCK_MONOTONIC`.
    fn clock_seconds(&self) -> Result<f64>;

    /// Reads `plan.paths` every `plan.interval` on the node's own schedule until stopped.
    fn sample(&self, plan: &SamplePlan) -> Result<Box<dyn Sampling>>;

    /// Content of a file as text; bytes that are not UTF-8 are replaced.
    fn read_text(&self, path: &Path) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.read(path)?).into_owned())
    }
}

/// The first link among the parts of a path after the `known` ones.
pub(crate) fn first_link<E>(
    known: usize,
    path: &Path,
    link: impl Fn(&Path) -> std::result::Result<Option<PathBuf>, E>,
) -> std::result::Result<Option<(usize, PathBuf)>, E> {
    let mut at = PathBuf::new();
    for (n, part) in path.components().enumerate() {
        at.push(part);
        if n >= known
            && let Some(to) = link(&at)?
        {
            return Ok(Some((n + 1 - known, to)));
        }
    }
    Ok(None)
}

/// A machine on which commands run and files are written.
pub trait Node: Questions {
    /// Starts a command. The process belongs to the node's owner: it dies with it.
    fn spawn(&self, cmd: &Exec) -> Result<Box<dyn Process>>;

    /// Writes a whole file, replacing it. With `mode`, sets its permission bits.
    fn write(&self, path: &Path, data: &[u8], mode: Option<u32>) -> Result<()>;

    /// Copies a local file onto the node, in pieces (large files do not pass through memory).
    fn put(&self, local: &Path, path: &Path, mode: Option<u32>) -> Result<()>;

    /// Makes a new file of mode 0600 with so many bytes, all of them holes, which goes with the node's owner. It is
    /// made by nobody else and through no link, and stays open: [`Opened::path`] is that file, whatever its name leads
    /// to by then.
    fn make_file(&self, path: &Path, bytes: u64) -> Result<Opened> {
        let _ = bytes;
        Err(self.cannot("make", path))
    }

    /// Checks whether a whole device may be overwritten (see [`crate::device_safety`]), and holds it until the node's
    /// owner ends. Writes nothing.
    ///
    /// # Errors
    /// [`Error::Refused`] with all reasons. `force` changes nothing for one that is in use.
    fn hold_device(&self, device: &Path, force: bool) -> Result<RemoteDevice> {
        let _ = force;
        Err(self.cannot("open", device))
    }

    /// Checks it once more, and opens it for writing, alone, as what was held: [`Opened::path`] is that one.
    ///
    /// # Errors
    /// As [`Node::hold_device`]; also where it is another device by now.
    fn open_held_device(&self, device: &RemoteDevice, force: bool) -> Result<Opened> {
        let _ = force;
        Err(self.cannot("open", &device.asked))
    }

    /// Asks the kernel about the network, behind [`Questions::network`].
    ///
    /// # Errors
    /// [`Unanswered::NotHere`] of a machine whose kernel cannot be asked from here.
    fn ask_kernel(&self, question: &NetworkQuestion) -> std::result::Result<NetworkAnswer, Unanswered> {
        let _ = question;
        Err(Unanswered::NotHere)
    }

    /// What a node cannot do that has no need of it.
    fn cannot(&self, what: &'static str, path: &Path) -> Error {
        Error::File {
            node: self.name().into(),
            what,
            path: path.into(),
            source: std::io::ErrorKind::Unsupported.into(),
        }
    }

    /// Connects to a Unix socket; never waits for the other side.
    fn connect(&self, socket: &Path) -> Result<UnixStream> {
        Err(self.cannot("connect to", socket))
    }

    /// This node as a reader.
    fn reader(&self) -> &dyn Reader;

    /// Runs a command to its end or to its time limit (then it is killed, with its children).
    fn exec(&self, cmd: &Exec) -> Result<Output> {
        let mut process = self.spawn(cmd)?;
        process.wait(cmd.limit)
    }
}

/// A command with its limits. `program` is looked up in `PATH` of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// Program name or path.
    pub program: String,
    /// Arguments, without the program.
    pub args: Vec<String>,
    /// Environment added to the node's own.
    pub env: BTreeMap<String, String>,
    /// Bytes for standard input (else it is /dev/null).
    pub stdin: Vec<u8>,
    /// Time limit for [`Node::exec`]; `None` is no limit.
    pub limit: Option<Duration>,
    /// `cgroup.procs`-like files that the child writes itself into before it executes.
    pub cgroup_procs: Vec<PathBuf>,
    /// `oom_score_adj` of the child, -1000 to 1000.
    pub oom_score_adj: Option<i32>,
    /// Largest number of bytes kept of each of stdout and stderr; 0 is the default of 64 MiB.
    /// More is dropped and `Output::truncated` is set.
    pub keep_bytes: usize,
}

impl Exec {
    /// A command without limits, input or environment.
    pub fn new(program: impl Into<String>) -> Self {
        Self { program: program.into(), ..Self::default() }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// The command behind others that take it as their arguments, such as what enters a namespace (nsenter(1)) and
    /// then becomes it; with none it is as it was.
    #[must_use]
    pub fn behind(mut self, words: &[String]) -> Self {
        if let [first, rest @ ..] = words {
            let own = std::mem::replace(&mut self.program, first.clone());
            self.args.splice(..0, rest.iter().cloned().chain([own]));
        }
        self
    }

    /// Sets the time limit.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The command as a person would type it.
    pub fn shown(&self) -> String {
        std::iter::once(&self.program)
            .chain(&self.args)
            .map(|a| {
                if a.is_empty() || a.contains([' ', '"', '\'', '$', '*']) {
                    format!("'{}'", a.replace('\'', "'\\''"))
                } else {
                    a.clone()
                }
            })
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// A running command.
pub trait Process: Send {
    /// Process id on the node.
    fn pid(&self) -> u32;
    /// Waits for the end; after `limit` kills the process group and returns [`End::TimedOut`].
    fn wait(&mut self, limit: Option<Duration>) -> Result<Output>;
    /// The output if the process has ended.
    fn try_wait(&mut self) -> Result<Option<Output>>;
    /// What it has said since the last time, standard output and standard error, so that it can be
    /// shown as it comes. What is taken is in no [`Output`] later.
    fn take_said(&mut self) -> Result<[Vec<u8>; 2]>;
    /// Kills the process group with SIGKILL. Ending an ended process is no error.
    fn kill(&mut self) -> Result<()>;
    /// Asks the process group to end (SIGTERM). A node that can only kill does that.
    fn terminate(&mut self) -> Result<()> {
        self.kill()
    }
}

/// How a command ended and what it said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// How it ended.
    pub end: End,
    /// Standard output, kept apart from standard error.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Whether bytes beyond `keep_bytes` were dropped.
    pub truncated: bool,
}

impl Output {
    /// Exit code 0?
    pub fn ok(&self) -> bool {
        self.end == End::Exit(0)
    }
    /// Standard output as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
    /// Standard error as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Exit code.
    Exit(i32),
    /// Ended by this signal.
    Signal(i32),
    /// Killed because its time limit passed.
    TimedOut,
}

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// `st_mode` with type bits.
    pub mode: u32,
    /// Apparent size in bytes.
    pub size: u64,
    /// Allocated bytes (`st_blocks` × 512).
    pub allocated: u64,
    /// Device that holds the file, as (major, minor).
    pub dev: (u32, u32),
    /// For device nodes: the device itself.
    pub rdev: (u32, u32),
}

/// Which files to read how often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplePlan {
    /// Files to read at each tick. A file that cannot be read gives an empty content.
    pub paths: Vec<PathBuf>,
    /// Time between ticks. A first sample is taken at once, a last one at the stop.
    pub interval: Duration,
}

/// One tick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileSample {
    /// Seconds on the node's `CLOCK_MONOTONIC`, in the middle of the reading.
    pub seconds: f64,
    /// Contents in the order of `SamplePlan::paths`.
    pub contents: Vec<Vec<u8>>,
}

/// A running schedule of reads.
pub trait Sampling: Send {
    /// Ends the schedule and returns all ticks, oldest first.
    fn stop(self: Box<Self>) -> Result<Vec<FileSample>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_behind_a_wrapper() {
        let command = Exec { oom_score_adj: Some(7), ..Exec::new("ip").args(["link"]) };
        assert_eq!(command.clone().behind(&[]), command);
        let inside = command.behind(&["nsenter", "--net=/n", "--"].map(str::to_owned)).args(["show"]);
        assert_eq!((inside.shown().as_str(), inside.oom_score_adj), ("nsenter --net=/n -- ip link show", Some(7)));
    }
}
