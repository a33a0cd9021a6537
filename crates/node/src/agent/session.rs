//! One client's session with the agent: its commands, its open files, its samplings, and the
//! journal that undoes what it changed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

use crate::agent::Outlet;
use crate::agent::message::{Failure, INPUT_BYTES, PIECE_BYTES, Reply, Request, encode_samples, unsafe_device};
use crate::device_safety::{self, Pinned};
use crate::helper::proto::Kind;
use crate::journal::held::by_descriptor;
use crate::linux::histogram;
use crate::local::KEEP_BYTES;
use crate::local::child::{Handle, Sink, Stream};
use crate::machine::{DEATH_LIMIT, lock};
use crate::{Change, End, Error, Exec, Journal, Local, Reader, RemoteDevice, Result, Sampling};

pub(crate) struct Session {
    /// The number in the client's hello.
    pub nonce: u64,
    pub out: Arc<Outlet>,
    node: Local,
    journal: Arc<Journal>,
    incoming: HashMap<u32, Incoming>,
    running: Running,
    sampling: HashMap<u32, Box<dyn Sampling>>,
    /// Files that are kept open until the end.
    held: Held,
    devices: HeldDevices,
}

type Held = Arc<Mutex<Vec<File>>>;

/// Devices that are held, by the request that asked for them.
type HeldDevices = Arc<Mutex<HashMap<u32, Arc<Pinned>>>>;

/// Commands by the request that started them.
type Running = Arc<Mutex<HashMap<u32, Arc<Handle>>>>;

/// Where the data of a request goes.
enum Incoming {
    Input(Exec),
    File { path: PathBuf, file: File },
}

impl Session {
    pub fn new(nonce: u64, journal: Arc<Journal>, out: Arc<Outlet>) -> Self {
        let node = Local::owned(Arc::clone(&journal));
        let (incoming, sampling) = (HashMap::new(), HashMap::new());
        let (running, held, devices) = (Running::default(), Held::default(), HeldDevices::default());
        Self { nonce, out, node, journal, incoming, running, sampling, held, devices }
    }

    /// Does a request. Long ones get a thread of their own.
    pub fn request(&mut self, id: u32, request: Request) {
        // Threads that only read do not keep the session's journal alive.
        let node = Local::new();
        match request {
            Request::Exec { cmd } => {
                self.incoming.insert(id, Incoming::Input(cmd));
            }
            Request::Write { path, mode } => match self.create(&path, mode) {
                Ok(file) => {
                    self.incoming.insert(id, Incoming::File { path, file });
                }
                Err(e) => self.answer(id, Err(e)),
            },
            Request::MakeFile { path, bytes } => {
                let made = self.make_file(&path, bytes);
                self.answer(id, made);
            }
            Request::HoldDevice { device, force } => {
                let devices = Arc::clone(&self.devices);
                self.aside(id, move |_| {
                    let device = hold_device(&node, id, &device, force, &devices).map_err(unsafe_device)?;
                    Ok(Reply::DeviceHeld { spare: Box::new(device) })
                });
            }
            Request::OpenHeldDevice { of, force } => match lock(&self.devices).get(&of).cloned() {
                None => self.out.fail(id, "no such device is held"),
                Some(pinned) => {
                    let held = Arc::clone(&self.held);
                    self.aside(id, move |_| hold(&held, open_device(&node, &pinned, force).map_err(unsafe_device)?));
                }
            },
            Request::Kill { of } => {
                let handle = lock(&self.running).get(&of).cloned();
                if let Some(handle) = handle {
                    handle.kill();
                }
                self.answer(id, Ok(Reply::Done));
            }
            Request::Clock => self.answer(id, node.clock_seconds().map(|seconds| Reply::Seconds { seconds })),
            Request::SampleStart { plan } => match node.sample(&plan) {
                Ok(sampling) => {
                    self.sampling.insert(id, sampling);
                    self.answer(id, Ok(Reply::Done));
                }
                Err(e) => self.answer(id, Err(e)),
            },
            Request::SampleStop { of } => match self.sampling.remove(&of) {
                None => self.out.fail(id, "no such sampling; it was stopped already"),
                Some(sampling) => self.aside(id, move |out| {
                    out.send(Kind::Data, id, &encode_samples(&sampling.stop()?));
                    Ok(Reply::Done)
                }),
            },
            Request::Read { path } => self.aside(id, move |out| read(&node, &path, id, out)),
            Request::List { dir } => self.aside(id, move |_| node.list(&dir).map(|names| Reply::Names { names })),
            Request::Stat { path } => self.aside(id, move |_| node.stat(&path).map(|stat| Reply::Stat { stat })),
            Request::Link { path } => self.aside(id, move |_| node.link(&path).map(|to| Reply::Link { to })),
            Request::ReadStart { path, most_bytes } => {
                self.aside(id, move |out| send(&node.read_start(&path, most_bytes)?, id, out))
            }
            Request::ReadForeign { path, most_bytes } => {
                self.aside(id, move |out| send(&node.read_foreign(&path, most_bytes)?, id, out))
            }
            Request::ReadTrusted { path, most_bytes } => {
                self.aside(id, move |out| send(&node.read_trusted(&path, most_bytes)?, id, out))
            }
            Request::ListForeign { dir } => {
                self.aside(id, move |_| node.list_foreign(&dir).map(|names| Reply::Names { names }))
            }
            Request::StatForeign { path } => {
                self.aside(id, move |_| node.stat_foreign(&path).map(|stat| Reply::Stat { stat }))
            }
            Request::LinkForeign { path } => {
                self.aside(id, move |_| node.link_foreign(&path).map(|to| Reply::Link { to }))
            }
            Request::CachedBytes { path } => {
                self.aside(id, move |_| node.cached_bytes(&path).map(|bytes| Reply::Bytes { bytes }))
            }
            Request::Identity { path } => {
                self.aside(id, move |_| node.identity(&path).map(|identity| Reply::Identity { identity }))
            }
            Request::Opened { pid, fd } => {
                self.aside(id, move |_| node.opened(pid, fd).map(|opened| Reply::Opened { opened }))
            }
            // The agent deals with these itself.
            Request::Bye | Request::Poweroff => {}
        }
    }

    /// Takes a piece of the data that belongs to request `id`. Data of a request that failed
    /// already is thrown away.
    pub fn data(&mut self, id: u32, bytes: &[u8]) {
        let failed = match self.incoming.get_mut(&id) {
            None => return,
            Some(Incoming::Input(cmd)) if cmd.stdin.len() + bytes.len() <= INPUT_BYTES => {
                cmd.stdin.extend_from_slice(bytes);
                return;
            }
            Some(Incoming::Input(_)) => {
                Failure::other(format!("more than {INPUT_BYTES} bytes of standard input; copy a file instead"))
            }
            Some(Incoming::File { path, file }) => match file.write_all(bytes) {
                Ok(()) => return,
                Err(e) => self.node.error("write", path, e).into(),
            },
        };
        self.incoming.remove(&id);
        self.out.reply(id, &Reply::Failed { failure: failed });
    }

    /// All data of request `id` is here.
    pub fn end_of_data(&mut self, id: u32) {
        match self.incoming.remove(&id) {
            None => {}
            Some(Incoming::File { .. }) => self.answer(id, Ok(Reply::Done)),
            Some(Incoming::Input(cmd)) => self.start(id, &cmd),
        }
    }

    /// Ends all that runs and undoes all changes; returns what could not be undone.
    pub fn end(self) -> Vec<String> {
        self.out.close();
        let running: Vec<_> = lock(&self.running).values().cloned().collect();
        for handle in &running {
            handle.kill();
        }
        let until = Instant::now() + DEATH_LIMIT;
        for handle in &running {
            handle.wait(Some(until.saturating_duration_since(Instant::now())));
        }
        drop(self.sampling);
        drop(self.incoming);
        self.journal.undo_all()
    }

    fn answer(&self, id: u32, result: Result<Reply>) {
        answer(&self.out, id, result);
    }

    /// Works in a thread of its own, and sends the answer.
    fn aside(&self, id: u32, work: impl FnOnce(&Outlet) -> Result<Reply> + Send + 'static) {
        let out = Arc::clone(&self.out);
        let thread = std::thread::Builder::new().name("request".into());
        if let Err(e) = thread.spawn(move || answer(&out, id, work(&out))) {
            self.out.fail(id, &format!("the agent cannot start a thread: {e}"));
        }
    }

    fn start(&self, id: u32, cmd: &Exec) {
        let (open, gate) = mpsc::channel();
        let keep = if cmd.keep_bytes == 0 { KEEP_BYTES } else { cmd.keep_bytes };
        let sink = Forward {
            id,
            out: Arc::clone(&self.out),
            gate: Some(gate),
            left: [keep; 2],
            truncated: false,
            running: Arc::clone(&self.running),
        };
        match self.node.start(cmd, Box::new(sink)) {
            Ok(handle) => {
                let pid = handle.pid;
                lock(&self.running).insert(id, Arc::new(handle));
                self.answer(id, Ok(Reply::Started { pid }));
                // Fails only if the command's thread has ended.
                let _ = open.send(());
            }
            Err(e) => self.answer(id, Err(e)),
        }
    }

    /// Makes a file that nobody else has, and holds it.
    fn make_file(&mut self, path: &Path, bytes: u64) -> Result<Reply> {
        let (file, _) = self.journal.scratch_file(path)?;
        file.set_len(bytes).map_err(|e| self.node.error("make", path, e))?;
        hold(&self.held, file)
    }

    /// Opens a file for writing, after recording how to undo that.
    fn create(&self, path: &Path, mode: Option<u32>) -> Result<File> {
        if let Some(change) = change_of_writing(path) {
            self.journal.record(change)?;
        }
        self.node.create(path, mode)
    }
}

/// Checks whether a device may be overwritten, and holds it for request `held`.
fn hold_device(
    node: &Local,
    held: u32,
    asked: &Path,
    force: bool,
    devices: &HeldDevices,
) -> device_safety::Result<RemoteDevice> {
    let pinned = Pinned::of(node, asked)?;
    let told = device_safety::check(node, &pinned, force)?;
    let device = RemoteDevice {
        held,
        asked: asked.into(),
        node: pinned.node.clone(),
        name: pinned.name.clone(),
        identity: pinned.identity.clone(),
        told,
    };
    lock(devices).insert(held, Arc::new(pinned));
    Ok(device)
}

/// Checks a held device again, and opens it for writing.
fn open_device(node: &Local, pinned: &Pinned, force: bool) -> device_safety::Result<File> {
    pinned.same(node)?;
    device_safety::check(node, pinned, force)?;
    pinned.open_alone(node)
}

/// Holds a file until the end, and says how programs open it.
fn hold(held: &Held, file: File) -> Result<Reply> {
    let node = Local::new();
    let at = by_descriptor(&file).map_err(|e| node.error("open", Path::new("/proc/self/fd"), e))?;
    let pid = at.iter().nth(2).and_then(|pid| pid.to_str()?.parse().ok());
    let fd = u32::try_from(file.as_raw_fd()).ok();
    let opened = pid.zip(fd).map(|(pid, fd)| node.opened(pid, fd)).transpose()?.flatten();
    lock(held).push(file);
    Ok(Reply::Opened { opened })
}

/// What writing to `path` changes, if that can be undone: a new file, or a value of the kernel's.
fn change_of_writing(path: &Path) -> Option<Change> {
    // A trigger of an event is no value that could be written back. Who sets one takes it away.
    if path.starts_with(histogram::TRACEFS) {
        return None;
    }
    if fs::symlink_metadata(path).is_err() {
        return Some(Change::file(path));
    }
    // Only these are read: anything else may be as large as a disk.
    let kernels = path.starts_with("/proc") || path.starts_with("/sys");
    // Moving a process is no value that could be written back.
    let moves = path.ends_with("cgroup.procs") || path.ends_with("tasks");
    if !kernels || moves {
        return None;
    }
    let before = fs::read_to_string(path).ok()?;
    // Where the kernel offers a choice, the one in force stands in brackets.
    let chosen = before.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen.to_owned());
    Some(Change::Sysfs { path: path.into(), before: chosen.unwrap_or(before) })
}

fn answer(out: &Outlet, id: u32, result: Result<Reply>) {
    out.reply(id, &result.unwrap_or_else(|e| Reply::Failed { failure: e.into() }));
}

fn read(node: &Local, path: &Path, id: u32, out: &Outlet) -> Result<Reply> {
    let fail = |e: io::Error| -> Error { node.error("read", path, e) };
    let mut file = File::open(path).map_err(fail)?;
    let mut buffer = vec![0u8; PIECE_BYTES];
    while !out.closed() {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => out.send(Kind::Data, id, &buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(fail(e)),
        }
    }
    Ok(Reply::Done)
}

/// Sends bytes to the client.
fn send(bytes: &[u8], id: u32, out: &Outlet) -> Result<Reply> {
    for piece in bytes.chunks(PIECE_BYTES).take_while(|_| !out.closed()) {
        out.send(Kind::Data, id, piece);
    }
    Ok(Reply::Done)
}

/// Sends the output of a command to the client as it comes.
struct Forward {
    id: u32,
    out: Arc<Outlet>,
    /// Open once the client was told that the command has started.
    gate: Option<mpsc::Receiver<()>>,
    /// Bytes of each output that may still be sent.
    left: [usize; 2],
    truncated: bool,
    running: Running,
}

impl Forward {
    fn pass_gate(&mut self) {
        if let Some(gate) = self.gate.take() {
            let _ = gate.recv();
        }
    }
}

impl Sink for Forward {
    fn chunk(&mut self, stream: Stream, bytes: &[u8]) {
        self.pass_gate();
        let left = &mut self.left[stream as usize];
        let sent = bytes.len().min(*left);
        *left -= sent;
        self.truncated |= sent < bytes.len();
        let kind = if stream == Stream::Out { Kind::Stdout } else { Kind::Stderr };
        self.out.send(kind, self.id, &bytes[..sent]);
    }

    fn ended(&mut self, end: End) {
        self.pass_gate();
        lock(&self.running).remove(&self.id);
        self.out.reply(self.id, &Reply::Ended { end, truncated: self.truncated });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_value_of_the_kernels_is_not_read_before_it_is_written() {
        // It has no end.
        assert!(change_of_writing(Path::new("/dev/zero")).is_none());
        assert!(change_of_writing(&histogram::block_file("block_rq_issue", "trigger")).is_none());
        assert!(matches!(change_of_writing(Path::new("/proc/sys/kernel/ostype")), Some(Change::Sysfs { .. })));
    }
}
