//! This machine as a node.
//!
//! Commands run in sessions of their own (see `child.rs`); with an owner they bear its mark, so
//! that its journal ends them even after a SIGKILL of vmio itself.

pub(crate) mod child;
pub(crate) mod foreign;
mod layout;
pub(crate) mod look;
mod network;
pub(crate) mod opened;
pub(crate) mod sampler;
mod trusted;

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::local::child::{Handle, Sink, Stream};
use crate::machine::{self, DEATH_LIMIT, lock};
use crate::{
    At, End, Error, Exec, FileIdentity, FileSample, FileStat, Journal, NetworkAnswer, NetworkQuestion, Node, Opened,
    Output, Peek, Process, Reader, Result, SamplePlan, Sampling, Unanswered,
};

/// Default of `Exec::keep_bytes`.
pub(crate) const KEEP_BYTES: usize = 64 << 20;

/// Room that a file is read into at first: the kernel tells no length of its own, and most are shorter.
const SMALL: usize = 4096;

/// How long a tool that was asked to end may take to put things in order.
const TERM_LIMIT: Duration = Duration::from_secs(10);

/// Name of this machine as a node.
pub const LOCAL: &str = "local";

/// This machine.
#[derive(Debug, Default)]
pub struct Local {
    journal: Option<Arc<Journal>>,
}

impl Local {
    /// This machine, for code that only looks or whose children end with it in any case: they
    /// bear no mark and are not found again after a SIGKILL.
    pub fn new() -> Self {
        Self::default()
    }

    /// This machine for the owner of `journal`: all that it starts ends with the journal.
    pub fn owned(journal: Arc<Journal>) -> Self {
        Self { journal: Some(journal) }
    }

    /// The owner's journal.
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        self.journal.as_ref()
    }

    /// Starts a command whose output goes to `sink` as it comes.
    pub(crate) fn start(&self, cmd: &Exec, sink: Box<dyn Sink>) -> Result<Handle> {
        match &self.journal {
            None => child::start(self.name(), cmd, None, sink),
            Some(journal) => journal.while_open(|| child::start(self.name(), cmd, Some(journal.cookie()), sink)),
        }
    }

    /// As [`Node::exec`], for tools that must not be cut off in the midst of a change (LVM suspends
    /// devices meanwhile, and whoever uses them hangs): past the limit it is asked to end, and killed
    /// only when it has not ended 10 s later.
    ///
    /// # Errors
    /// As [`Node::exec`].
    pub fn exec_gently(&self, cmd: &Exec) -> Result<Output> {
        self.exec_with_grace(cmd, TERM_LIMIT)
    }

    fn exec_with_grace(&self, cmd: &Exec, grace: Duration) -> Result<Output> {
        let mut process = self.process(cmd)?;
        if process.handle.wait(cmd.limit).is_none() {
            process.timed_out = true;
            process.handle.terminate();
        }
        process.wait(Some(grace))
    }

    fn process(&self, cmd: &Exec) -> Result<LocalProcess> {
        let limit = if cmd.keep_bytes == 0 { KEEP_BYTES } else { cmd.keep_bytes };
        let kept = Arc::new(Mutex::new(CapturedOutput { limit, ..CapturedOutput::default() }));
        let handle = self.start(cmd, Box::new(Keeper(Arc::clone(&kept))))?;
        Ok(LocalProcess { program: cmd.program.clone(), handle, kept, timed_out: false })
    }

    /// Opens a file for writing as [`Node::write`] does, and sets its mode.
    pub(crate) fn create(&self, path: &Path, mode: Option<u32>) -> Result<fs::File> {
        let make = || {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true);
            let file = options.mode(mode.unwrap_or(0o644) & 0o7777).open(path)?;
            if let Some(mode) = mode {
                // The umask has no say in an explicit mode.
                file.set_permissions(fs::Permissions::from_mode(mode & 0o7777))?;
            }
            Ok(file)
        };
        make().map_err(|e| self.error("write", path, e))
    }

    /// `None` where the file does not exist.
    fn there<T>(&self, what: &'static str, path: &Path, found: io::Result<T>) -> Result<Option<T>> {
        match found {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            other => other.map(Some).map_err(|e| self.error(what, path, e)),
        }
    }

    pub(crate) fn error(&self, what: &'static str, path: &Path, source: io::Error) -> Error {
        Error::File { node: self.name().into(), what, path: path.into(), source }
    }
}

impl Reader for Local {
    fn name(&self) -> &str {
        LOCAL
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::with_capacity(SMALL);
            fs::File::open(path)?.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|e| self.error("read", path, e))
    }

    fn read_start(&self, path: &Path, most_bytes: usize) -> Result<Vec<u8>> {
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::with_capacity(SMALL.min(most_bytes));
            fs::File::open(path)?.take(most_bytes as u64).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|e| self.error("read", path, e))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let names = || -> io::Result<Vec<String>> {
            fs::read_dir(dir)?.map(|e| Ok(e?.file_name().to_string_lossy().into_owned())).collect()
        };
        let mut names = names().map_err(|e| self.error("list", dir, e))?;
        names.sort();
        Ok(names)
    }

    fn link(&self, path: &Path) -> Result<Option<PathBuf>> {
        match fs::read_link(path) {
            Ok(to) => Ok(Some(to)),
            // InvalidInput: it is no link (readlink(2), EINVAL).
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidInput) => {
                Ok(None)
            }
            Err(e) => Err(self.error("follow", path, e)),
        }
    }

    fn stat(&self, path: &Path) -> Result<Option<FileStat>> {
        self.there("look at", path, fs::metadata(path).map(|meta| FileStat::of(&meta)))
    }

    fn read_foreign(&self, path: &Path, most_bytes: usize) -> Result<Vec<u8>> {
        foreign::read(path, most_bytes).map_err(|e| self.error("read", path, e))
    }

    fn read_trusted(&self, path: &Path, most_bytes: usize) -> Result<Vec<u8>> {
        trusted::read(path, most_bytes).map_err(|e| self.error("read", path, e))
    }

    fn list_foreign(&self, dir: &Path) -> Result<Vec<String>> {
        let mut names = foreign::list(dir).map_err(|e| self.error("list", dir, e))?;
        names.sort();
        Ok(names)
    }

    fn stat_foreign(&self, path: &Path) -> Result<Option<FileStat>> {
        self.there("look at", path, foreign::stat(path))
    }

    fn link_foreign(&self, path: &Path) -> Result<Option<PathBuf>> {
        match foreign::link(path) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            other => other.map_err(|e| self.error("follow", path, e)),
        }
    }

    fn first_link_foreign(&self, above: &Path, path: &Path) -> Result<Option<(usize, PathBuf)>> {
        foreign::first_link(above, path).map_err(|e| self.error("follow", path, e))
    }

    fn cached_bytes(&self, path: &Path) -> Result<Option<u64>> {
        foreign::cached_bytes(path).map_err(|e| self.error("count the cached pages of", path, e))
    }

    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>> {
        self.there("look at", path, opened::identity(path))
    }

    fn opened(&self, pid: u32, fd: u32) -> Result<Option<Opened>> {
        self.there("look at", Path::new(&format!("/proc/{pid}/fd/{fd}")), opened::opened(pid, fd))
    }

    fn peek(&self, at: &At, most_bytes: usize) -> Result<Peek> {
        let path = || match at {
            At::Path(path) => path.clone(),
            At::Open(o) => format!("/proc/{}/fd/{}", o.pid, o.fd).into(),
        };
        opened::peek(at, most_bytes).map_err(|e| self.error("read", &path(), e))
    }

    fn clock_seconds(&self) -> Result<f64> {
        Ok(machine::monotonic_seconds())
    }

    fn sample(&self, plan: &SamplePlan) -> Result<Box<dyn Sampling>> {
        let sampler = sampler::Sampler::start(plan, sampler::MEMORY_BYTES);
        Ok(Box::new(LocalSampling(sampler.map_err(|e| self.error("sample", Path::new("/proc"), e))?)))
    }
}

struct LocalSampling(sampler::Sampler);

impl Sampling for LocalSampling {
    fn stop(self: Box<Self>) -> Result<Vec<FileSample>> {
        Ok(self.0.stop())
    }
}

crate::node::question::questions!(Local);

impl Node for Local {
    fn spawn(&self, cmd: &Exec) -> Result<Box<dyn Process>> {
        Ok(Box::new(self.process(cmd)?))
    }

    fn write(&self, path: &Path, data: &[u8], mode: Option<u32>) -> Result<()> {
        self.create(path, mode)?.write_all(data).map_err(|e| self.error("write", path, e))
    }

    fn put(&self, local: &Path, path: &Path, mode: Option<u32>) -> Result<()> {
        let mut from = fs::File::open(local).map_err(|e| self.error("read", local, e))?;
        let mut to = self.create(path, mode)?;
        io::copy(&mut from, &mut to).map_err(|e| self.error("write", path, e))?;
        Ok(())
    }

    fn ask_kernel(&self, question: &NetworkQuestion) -> std::result::Result<NetworkAnswer, Unanswered> {
        network::answer(question)
    }

    fn connect(&self, socket: &Path) -> Result<UnixStream> {
        machine::connect(socket).map_err(|e| self.error("connect to", socket, e))
    }

    fn reader(&self) -> &dyn Reader {
        self
    }
}

/// Output of a command so far, up to `limit` bytes of each stream.
#[derive(Debug, Default)]
pub(crate) struct CapturedOutput {
    pub limit: usize,
    pub bytes: [Vec<u8>; 2],
    pub truncated: bool,
}

impl CapturedOutput {
    pub fn add(&mut self, stream: Stream, chunk: &[u8]) {
        let bytes = &mut self.bytes[stream as usize];
        let room = self.limit.saturating_sub(bytes.len()).min(chunk.len());
        bytes.extend_from_slice(&chunk[..room]);
        self.truncated |= room < chunk.len();
    }

    pub fn take(&mut self) -> [Vec<u8>; 2] {
        std::mem::take(&mut self.bytes)
    }

    pub fn output(&self, end: End) -> Output {
        let [stdout, stderr] = self.bytes.clone();
        Output { end, stdout, stderr, truncated: self.truncated }
    }
}

struct Keeper(Arc<Mutex<CapturedOutput>>);

impl Sink for Keeper {
    fn chunk(&mut self, stream: Stream, bytes: &[u8]) {
        lock(&self.0).add(stream, bytes);
    }
    fn ended(&mut self, _: End) {}
}

struct LocalProcess {
    program: String,
    handle: Handle,
    kept: Arc<Mutex<CapturedOutput>>,
    timed_out: bool,
}

impl LocalProcess {
    fn output(&self, end: End) -> Output {
        lock(&self.kept).output(if self.timed_out { End::TimedOut } else { end })
    }
}

impl Process for LocalProcess {
    fn pid(&self) -> u32 {
        self.handle.pid
    }

    fn wait(&mut self, limit: Option<Duration>) -> Result<Output> {
        if let Some(end) = self.handle.wait(limit) {
            return Ok(self.output(end));
        }
        self.timed_out = true;
        self.handle.kill();
        match self.handle.wait(Some(DEATH_LIMIT)) {
            Some(end) => Ok(self.output(end)),
            None => Err(Error::Stuck { node: "local".into(), program: self.program.clone(), pid: self.handle.pid }),
        }
    }

    fn try_wait(&mut self) -> Result<Option<Output>> {
        Ok(self.handle.wait(Some(Duration::ZERO)).map(|end| self.output(end)))
    }

    fn take_said(&mut self) -> Result<[Vec<u8>; 2]> {
        Ok(lock(&self.kept).take())
    }

    fn kill(&mut self) -> Result<()> {
        self.handle.kill();
        Ok(())
    }

    fn terminate(&mut self) -> Result<()> {
        self.handle.terminate();
        Ok(())
    }
}

impl Drop for LocalProcess {
    fn drop(&mut self) {
        self.handle.kill();
        self.handle.wait(Some(DEATH_LIMIT));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn gentle_time_limit() {
        let run = |script: &str| {
            let limit = Duration::from_millis(200);
            let exec = Exec::new("sh").args(["-c", script]).limit(limit);
            Local::new().exec_with_grace(&exec, Duration::from_secs(2)).unwrap()
        };
        let heeds = run("trap 'echo in order; exit 0' TERM; echo begun; while :; do sleep 0.05; done");
        assert_eq!((heeds.end, heeds.out().as_str()), (End::TimedOut, "begun\nin order\n"));
        let deaf = run("trap '' TERM; echo begun; while :; do sleep 0.05; done");
        assert_eq!((deaf.end, deaf.out().as_str()), (End::TimedOut, "begun\n"));
        assert_eq!(run("exit 3").end, End::Exit(3));
    }

    #[test]
    fn no_owner_means_no_mark() {
        let output = Local::new().exec_gently(&Exec::new("env")).unwrap();
        assert!(output.ok() && !output.out().contains(machine::OWNER_VARIABLE), "{}", output.out());
    }
}
