//! A machine reached through its agent over a byte stream.
//!
//! One thread reads the stream and hands each frame to the request that waits for it, so that any
//! number of commands, copies and samplings go on at once.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::agent::client::{ANSWER_LIMIT, Call, Client};
use crate::agent::message::{PIECE_BYTES, Reply, Request, decode_samples};
use crate::agent::stream::Halves;
use crate::helper::proto::{Frame, Kind};
use crate::local::child::Stream;
use crate::local::{CapturedOutput, KEEP_BYTES};
use crate::machine::DEATH_LIMIT;
use crate::{
    At, End, Error, Exec, FileIdentity, FileSample, FileStat, Node, Opened, Output, Peek, Process, Reader,
    RemoteDevice, Result, SamplePlan, Sampling,
};

/// A machine behind an agent. When the last use of it is dropped, the session ends and the agent
/// undoes what was changed.
#[derive(Clone)]
pub struct Remote {
    client: Arc<Client>,
}

impl Remote {
    /// Greets the agent at the other end, skipping what earlier users left in the stream.
    ///
    /// # Errors
    /// [`Error::Gone`] when no agent answers within `limit`; [`Error::Protocol`] when it speaks
    /// another version.
    pub fn connect(name: &str, stream: Halves, limit: Duration) -> Result<Self> {
        Ok(Self { client: Client::connect(name, stream, limit)? })
    }

    /// Switches the machine off, if the agent is its init.
    ///
    /// # Errors
    /// When the agent refuses. A stream that ends is success.
    pub fn poweroff(&self) -> Result<()> {
        let call = self.client.call(&Request::Poweroff)?;
        call.done()?;
        match call.frame(Some(DEATH_LIMIT)) {
            Ok(Some(frame)) => self.client.reply(&frame).map(|_| ()),
            // What remains to be seen is its end.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Ends the session now, in place of when the last use is dropped: the agent undoes what was
    /// changed. Returns when that is done.
    ///
    /// # Errors
    /// When the agent is gone or does not answer in time.
    pub fn close(self) -> Result<()> {
        self.client.goodbye()
    }

    /// Takes the agent for gone, for this reason: nothing is asked of it any more, and whoever waits for it learns that.
    pub(crate) fn give_up(&self, why: Error) {
        self.client.give_up(match why {
            Error::Gone { reason, .. } => reason,
            other => other.to_string(),
        });
    }

    fn ask(&self, request: &Request) -> Result<Reply> {
        self.client.call(request)?.answer()
    }

    fn unexpected(&self, reply: &Reply) -> Error {
        self.client.protocol(format!("an unexpected answer: {reply:?}"))
    }

    /// Streams `from` into a file on the node. `local` is named in errors of reading.
    fn upload(&self, local: &Path, from: &mut dyn Read, path: &Path, mode: Option<u32>) -> Result<()> {
        let call = self.client.call(&Request::Write { path: path.into(), mode })?;
        let mut buffer = vec![0u8; PIECE_BYTES];
        loop {
            let n = match from.read(&mut buffer) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other.map_err(|source| file_error(self.name(), "read", local, source))?,
            };
            if n == 0 {
                call.send(Kind::End, &[])?;
                return call.done();
            }
            // A full disk is told while data still goes out.
            if let Some(frame) = call.frame(Some(Duration::ZERO))? {
                let reply = self.client.reply(&frame)?;
                return Err(self.unexpected(&reply));
            }
            call.send(Kind::Data, &buffer[..n])?;
        }
    }
}

fn file_error(node: &str, what: &'static str, path: &Path, source: io::Error) -> Error {
    Error::File { node: node.into(), what, path: path.into(), source }
}

impl Reader for Remote {
    fn name(&self) -> &str {
        self.client.name()
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.client.call(&Request::Read { path: path.into() })?.data()
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        match self.ask(&Request::List { dir: dir.into() })? {
            Reply::Names { names } => Ok(names),
            other => Err(self.unexpected(&other)),
        }
    }

    fn stat(&self, path: &Path) -> Result<Option<FileStat>> {
        match self.ask(&Request::Stat { path: path.into() })? {
            Reply::Stat { stat } => Ok(stat),
            other => Err(self.unexpected(&other)),
        }
    }

    fn link(&self, path: &Path) -> Result<Option<PathBuf>> {
        match self.ask(&Request::Link { path: path.into() })? {
            Reply::Link { to } => Ok(to),
            other => Err(self.unexpected(&other)),
        }
    }

    fn read_start(&self, path: &Path, most_bytes: usize) -> Result<Vec<u8>> {
        self.client.call(&Request::ReadStart { path: path.into(), most_bytes })?.data()
    }

    fn cached_bytes(&self, path: &Path) -> Result<Option<u64>> {
        match self.ask(&Request::CachedBytes { path: path.into() })? {
            Reply::Bytes { bytes } => Ok(bytes),
            other => Err(self.unexpected(&other)),
        }
    }

    fn read_foreign(&self, path: &Path, most_bytes: usize) -> Result<Vec<u8>> {
        self.client.call(&Request::ReadForeign { path: path.into(), most_bytes })?.data()
    }

    fn read_trusted(&self, path: &Path, most_bytes: usize) -> Result<Vec<u8>> {
        self.client.call(&Request::ReadTrusted { path: path.into(), most_bytes })?.data()
    }

    fn list_foreign(&self, dir: &Path) -> Result<Vec<String>> {
        match self.ask(&Request::ListForeign { dir: dir.into() })? {
            Reply::Names { names } => Ok(names),
            other => Err(self.unexpected(&other)),
        }
    }

    fn stat_foreign(&self, path: &Path) -> Result<Option<FileStat>> {
        match self.ask(&Request::StatForeign { path: path.into() })? {
            Reply::Stat { stat } => Ok(stat),
            other => Err(self.unexpected(&other)),
        }
    }

    fn link_foreign(&self, path: &Path) -> Result<Option<PathBuf>> {
        match self.ask(&Request::LinkForeign { path: path.into() })? {
            Reply::Link { to } => Ok(to),
            other => Err(self.unexpected(&other)),
        }
    }

    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>> {
        match self.ask(&Request::Identity { path: path.into() })? {
            Reply::Identity { identity } => Ok(identity),
            other => Err(self.unexpected(&other)),
        }
    }

    fn opened(&self, pid: u32, fd: u32) -> Result<Option<Opened>> {
        match self.ask(&Request::Opened { pid, fd })? {
            Reply::Opened { opened } => Ok(opened),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Refused: what is looked at is held open meanwhile, which an agent does for nobody.
    fn peek(&self, at: &At, _most_bytes: usize) -> Result<Peek> {
        let path = match at {
            At::Path(path) => path.clone(),
            At::Open(o) => format!("/proc/{}/fd/{}", o.pid, o.fd).into(),
        };
        Err(file_error(self.name(), "look at", &path, io::ErrorKind::Unsupported.into()))
    }

    fn clock_seconds(&self) -> Result<f64> {
        match self.ask(&Request::Clock)? {
            Reply::Seconds { seconds } => Ok(seconds),
            other => Err(self.unexpected(&other)),
        }
    }

    fn sample(&self, plan: &SamplePlan) -> Result<Box<dyn Sampling>> {
        let call = self.client.call(&Request::SampleStart { plan: plan.clone() })?;
        call.done()?;
        Ok(Box::new(RemoteSampling { call, stopped: false }))
    }
}

crate::node::question::questions!(Remote);

impl Node for Remote {
    fn spawn(&self, cmd: &Exec) -> Result<Box<dyn Process>> {
        let bare = Exec { stdin: Vec::new(), ..cmd.clone() };
        let call = self.client.call(&Request::Exec { cmd: bare })?;
        for piece in cmd.stdin.chunks(PIECE_BYTES) {
            call.send(Kind::Data, piece)?;
        }
        call.send(Kind::End, &[])?;
        match call.answer()? {
            Reply::Started { pid } => {
                let limit = if cmd.keep_bytes == 0 { KEEP_BYTES } else { cmd.keep_bytes };
                let kept = CapturedOutput { limit, ..CapturedOutput::default() };
                Ok(Box::new(RemoteProcess {
                    call,
                    program: cmd.program.clone(),
                    pid,
                    kept,
                    end: None,
                    timed_out: false,
                }))
            }
            other => Err(self.unexpected(&other)),
        }
    }

    fn write(&self, path: &Path, mut data: &[u8], mode: Option<u32>) -> Result<()> {
        self.upload(path, &mut data, path, mode)
    }

    fn put(&self, local: &Path, path: &Path, mode: Option<u32>) -> Result<()> {
        let mut from = File::open(local).map_err(|e| file_error("local", "read", local, e))?;
        self.upload(local, &mut from, path, mode)
    }

    fn make_file(&self, path: &Path, bytes: u64) -> Result<Opened> {
        match self.ask(&Request::MakeFile { path: path.into(), bytes })? {
            Reply::Opened { opened: Some(opened) } => Ok(opened),
            other => Err(self.unexpected(&other)),
        }
    }

    fn hold_device(&self, device: &Path, force: bool) -> Result<RemoteDevice> {
        match self.ask(&Request::HoldDevice { device: device.into(), force })? {
            Reply::DeviceHeld { spare } => Ok(*spare),
            other => Err(self.unexpected(&other)),
        }
    }

    fn open_held_device(&self, device: &RemoteDevice, force: bool) -> Result<Opened> {
        match self.ask(&Request::OpenHeldDevice { of: device.held, force })? {
            Reply::Opened { opened: Some(opened) } => Ok(opened),
            other => Err(self.unexpected(&other)),
        }
    }

    fn reader(&self) -> &dyn Reader {
        self
    }
}

/// A schedule that runs on the other machine.
struct RemoteSampling {
    call: Call,
    stopped: bool,
}

impl Sampling for RemoteSampling {
    fn stop(mut self: Box<Self>) -> Result<Vec<FileSample>> {
        self.stopped = true;
        let client = self.call.client();
        let bytes = client.call(&Request::SampleStop { of: self.call.id() })?.data()?;
        decode_samples(&bytes).ok_or_else(|| client.protocol("samples that cannot be read".into()))
    }
}

impl Drop for RemoteSampling {
    fn drop(&mut self) {
        if !self.stopped {
            // Its answer finds nobody; if the agent is gone, so is the schedule.
            let _ = self.call.client().call(&Request::SampleStop { of: self.call.id() });
        }
    }
}

/// A command that runs on the other machine.
struct RemoteProcess {
    call: Call,
    program: String,
    pid: u32,
    kept: CapturedOutput,
    end: Option<End>,
    timed_out: bool,
}

impl RemoteProcess {
    /// Takes frames until the command has ended or `limit` has passed.
    fn follow(&mut self, limit: Option<Duration>) -> Result<Option<End>> {
        let until = limit.map(|l| std::time::Instant::now() + l);
        while self.end.is_none() {
            let left = until.map(|u| u.saturating_duration_since(std::time::Instant::now()));
            let Some(frame) = self.call.frame(left)? else { return Ok(None) };
            self.take(&frame)?;
        }
        Ok(self.end)
    }

    fn take(&mut self, frame: &Frame) -> Result<()> {
        match frame.kind {
            Kind::Stdout => self.kept.add(Stream::Out, &frame.payload),
            Kind::Stderr => self.kept.add(Stream::Err, &frame.payload),
            _ => {
                if let Reply::Ended { end, truncated } = self.call.client().reply(frame)? {
                    self.kept.truncated |= truncated;
                    self.end = Some(end);
                }
            }
        }
        Ok(())
    }

    fn output(&self, end: End) -> Output {
        self.kept.output(if self.timed_out { End::TimedOut } else { end })
    }
}

impl Process for RemoteProcess {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn wait(&mut self, limit: Option<Duration>) -> Result<Output> {
        if let Some(end) = self.follow(limit)? {
            return Ok(self.output(end));
        }
        self.timed_out = true;
        self.kill()?;
        match self.follow(Some(DEATH_LIMIT))? {
            Some(end) => Ok(self.output(end)),
            None => Err(Error::Stuck {
                node: self.call.client().name().into(),
                program: self.program.clone(),
                pid: self.pid,
            }),
        }
    }

    fn try_wait(&mut self) -> Result<Option<Output>> {
        Ok(self.follow(Some(Duration::ZERO))?.map(|end| self.output(end)))
    }

    fn take_said(&mut self) -> Result<[Vec<u8>; 2]> {
        self.follow(Some(Duration::ZERO))?;
        Ok(self.kept.take())
    }

    fn kill(&mut self) -> Result<()> {
        if self.end.is_none() {
            self.call.client().call(&Request::Kill { of: self.call.id() })?.done()?;
        }
        Ok(())
    }
}

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        // When the agent is gone it has killed the command itself.
        if self.end.is_none() && self.kill().is_ok() {
            let _ = self.follow(Some(DEATH_LIMIT.min(ANSWER_LIMIT)));
        }
    }
}
