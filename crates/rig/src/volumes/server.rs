//! The servers of volumes that guests have: a `qemu-nbd` (its man page) for each, started again where it has ended. One
//! process serves a pool, by a lock that also holds between the clients of an NFS server.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use vmio_look::require::find_program;
use vmio_node::{End, Exec, Node, Process};

use super::attachment::{Attachment, Reach, State};
use super::{Error, Name, Pool, Result};
use crate::https::shown;

/// The program.
const PROGRAM: &str = "qemu-nbd";
/// Locked by who serves.
const SERVED: &str = ".served";
/// What is kept of a server's messages.
const KEPT_BYTES: usize = 64 << 10;
/// How long a server may take to write all that it was sent and to end.
const END: Duration = Duration::from_secs(20);
/// How soon one that has ended is started again, at first and at last.
const WAITS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];
/// How long the lock is waited for: whether somebody serves is found out by it, too ([`is_served`]).
const LOCKED: Duration = Duration::from_secs(1);
/// How often it is asked whether all of a volume of another size may be read: for one in LVM a program is run.
const ASKED: Duration = Duration::from_secs(1);
/// One that ran so long is started again at once.
const STABLE: Duration = Duration::from_secs(60);

/// Serves a pool. Where this goes out of scope the servers are ended.
pub struct Server<'a> {
    node: &'a dyn Node,
    pool: &'a Pool,
    program: PathBuf,
    exports: BTreeMap<Name, Export>,
    _lock: OwnedFd,
}

/// A volume that is served.
pub(super) struct Export {
    pub(super) attachment: Attachment,
    /// By which arguments the server is told where.
    listen: Vec<String>,
    /// What it leaves behind.
    socket: Option<PathBuf>,
    process: Option<Box<dyn Process>>,
    /// Size of the volume when its server was started: the server goes on with it.
    bytes: u64,
    /// When it was last asked whether its volume has grown.
    asked: Option<Instant>,
    tried: Option<Instant>,
    wait: Duration,
}

/// What happened to a volume.
#[derive(Debug)]
pub enum Event {
    /// A server was started.
    Served {
        /// The volume.
        name: Name,
        /// Its guest.
        guest: String,
    },
    /// It is served no more: its guest has ended, or it was detached.
    Stopped {
        /// The volume.
        name: Name,
    },
    /// Its server has ended, or cannot be started.
    Failed {
        /// The volume.
        name: Name,
        /// Why.
        why: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Served { name, guest } => write!(f, "volume {name} is served to {guest}"),
            Event::Stopped { name } => write!(f, "volume {name} is no longer served"),
            Event::Failed { name, why } => write!(f, "warning: volume {name} is not served: {why}"),
        }
    }
}

impl<'a> Server<'a> {
    /// Becomes the one that serves a pool.
    ///
    /// # Errors
    /// Another one does, or the program is missing.
    pub fn start(node: &'a dyn Node, pool: &'a Pool) -> Result<Self> {
        let program = program(node)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&pool.directory, SERVED, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| pool.failed("open", SERVED, e))?;
        let until = Instant::now() + LOCKED;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(WAITS[0]),
                Err(Errno::WOULDBLOCK) => return Err(Error::Serving { path: pool.path.clone() }),
                Err(e) => return Err(pool.failed("lock", SERVED, e)),
            }
        }
        Ok(Server { node, pool, program, exports: BTreeMap::new(), _lock: lock })
    }

    /// Serves what guests have by now, and what is no longer served it ends.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn tick(&mut self) -> Result<Vec<Event>> {
        let mut wanted: BTreeMap<Name, Attachment> = self.pool.attached()?.into_iter().collect();
        wanted.retain(|_, attachment| attachment.reach == Reach::Here && attachment.holder.state() == State::Runs);
        let mut events = Vec::new();
        let is_over =
            |(name, export): (&Name, &Export)| (wanted.get(name) != Some(&export.attachment)).then(|| name.clone());
        let over: Vec<Name> = self.exports.iter().filter_map(is_over).collect();
        for name in over {
            self.exports.remove(&name);
            events.push(Event::Stopped { name });
        }
        for (name, attachment) in wanted {
            let export = match self.exports.entry(name.clone()) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(free) => {
                    let socket = self.pool.socket(&attachment)?;
                    let listen = by_socket(&attachment.export, &socket.to_string_lossy());
                    free.insert(Export::new(attachment, listen, Some(socket)))
                }
            };
            match export.advance(self.node, self.pool, &self.program, &name) {
                Ok(true) => events.push(Event::Served { name, guest: export.attachment.holder.guest.clone() }),
                Ok(false) => {}
                Err(why) => events.push(Event::Failed { name, why }),
            }
        }
        Ok(events)
    }
}

impl Export {
    pub(super) fn new(attachment: Attachment, listen: Vec<String>, socket: Option<PathBuf>) -> Self {
        Export { attachment, listen, socket, process: None, bytes: 0, asked: None, tried: None, wait: Duration::ZERO }
    }

    /// Starts the server where none runs and it is time to; whether it did. An error is why none runs.
    pub(super) fn advance(
        &mut self,
        node: &dyn Node,
        pool: &Pool,
        program: &Path,
        name: &Name,
    ) -> Result<bool, String> {
        // What its guest asks for waits for the next one.
        if self.process.is_some() && self.has_grown(pool, name) {
            self.end();
            (self.asked, self.tried, self.wait) = (None, None, Duration::ZERO);
        }
        if let Some(process) = &mut self.process {
            let Some(output) = process.try_wait().map_err(|e| e.to_string())? else { return Ok(false) };
            self.process = None;
            let ran = self.tried.map_or(Duration::ZERO, |tried| tried.elapsed());
            self.wait = if ran >= STABLE { WAITS[0] } else { next(self.wait) };
            let said = output.err();
            let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("without a word");
            return Err(match output.end {
                End::Signal(signal) => format!("its server was killed by signal {signal}"),
                _ => format!("its server ended: {}", shown(last.trim(), 200)),
            });
        }
        if self.tried.is_some_and(|tried| tried.elapsed() < self.wait) {
            return Ok(false);
        }
        self.tried = Some(Instant::now());
        let started = pool.unlocked(name).map_err(|why| why.to_string()).and_then(|(unlocked, bytes)| {
            // Now it is the server's to lock.
            drop(unlocked);
            let command = Exec { keep_bytes: KEPT_BYTES, ..Exec::new(program.display().to_string()) };
            let args = arguments(&self.listen, &pool.store.path(name).to_string_lossy());
            node.spawn(&command.args(args)).map(|process| (process, bytes)).map_err(|e| e.to_string())
        });
        match started {
            Ok((process, bytes)) => {
                (self.process, self.bytes) = (Some(process), bytes);
                Ok(true)
            }
            Err(why) => {
                self.wait = next(self.wait);
                Err(why)
            }
        }
    }

    /// Whether a server that is started now has more bytes.
    fn has_grown(&mut self, pool: &Pool, name: &Name) -> bool {
        let is_other = pool.store.size(name).is_some_and(|now| now != self.bytes);
        if !is_other || self.asked.is_some_and(|asked| asked.elapsed() < ASKED) {
            return false;
        }
        self.asked = Some(Instant::now());
        pool.has_changed(name, self.bytes)
    }

    /// Ends the server, if one runs, when it has written all that it was sent.
    fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.terminate();
            let _ = process.wait(Some(END));
        }
    }
}

/// The wait after one of that length that was in vain.
fn next(wait: Duration) -> Duration {
    (wait * 2).clamp(WAITS[0], WAITS[1])
}

/// The command line. One guest is connected at a time; a flush of the guest is an fdatasync(2) here. What a guest
/// discards stays reserved.
fn arguments(listen: &[String], file: &str) -> Vec<String> {
    let fixed = ["--persistent", "--shared=1", "--format=raw", "--cache=writeback", "--discard=ignore"];
    fixed.map(str::to_owned).into_iter().chain(listen.iter().cloned()).chain([file.to_owned()]).collect()
}

fn by_socket(export: &str, socket: &str) -> Vec<String> {
    vec![format!("--export-name={export}"), format!("--socket={socket}")]
}

impl Drop for Export {
    fn drop(&mut self) {
        self.end();
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}

impl Pool {
    /// Whether a volume has another size than this one, and all of it may be read.
    pub(super) fn has_changed(&self, name: &Name, bytes: u64) -> bool {
        self.volume(name).is_ok_and(|(_, now)| now != bytes)
    }
}

/// The program that serves.
pub(super) fn program(node: &dyn Node) -> Result<PathBuf> {
    find_program(node.reader(), PROGRAM).ok_or(Error::NoProgram)
}

/// Whether somebody serves a pool now.
pub(super) fn is_served(pool: &Pool) -> Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(&pool.directory, SERVED, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(false),
        opened => opened.map_err(|e| pool.failed("open", SERVED, e))?,
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(e) => Err(pool.failed("lock", SERVED, e)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::Local;

    use super::super::attachment::Holder;
    use super::super::tests::{name, pool};
    use super::*;

    /// The program refuses the options.
    #[test]
    fn a_server_that_ends_is_told_and_started_again_until_its_volume_is_released() {
        let (dir, pool) = pool();
        let (data, node) = (name("data"), Local::new());
        pool.create(&data, 4096).unwrap();
        let claimed = pool.claim(&data, &Holder::of("web1", std::process::id()).unwrap()).unwrap();
        let lock = std::fs::File::open(dir.path()).unwrap().into();
        let (program, exports) = (PathBuf::from("/bin/sleep"), BTreeMap::new());
        let mut server = Server { node: &node, pool: &pool, program, exports, _lock: lock };
        let mut told: Vec<String> = Vec::new();
        let until = Instant::now() + vmio_testbed::limit();
        while told.len() < 3 && Instant::now() < until {
            told.extend(server.tick().unwrap().iter().map(ToString::to_string));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(told[1].starts_with("warning: volume data is not served: its server ended: "), "{told:?}");
        assert_eq!((&*told[0], &told[2]), ("volume data is served to web1", &told[0]));
        pool.release(&data, &claimed).unwrap();
        assert_eq!(server.tick().unwrap()[0].to_string(), "volume data is no longer served");
        assert!(server.tick().unwrap().is_empty());
    }

    #[test]
    fn a_volume_that_has_grown_is_served_anew() {
        let (dir, pool) = pool();
        let (data, node) = (name("data"), Local::new());
        pool.create(&data, 4096).unwrap();
        let attachment = pool.claim(&data, &Holder::of("web1", std::process::id()).unwrap()).unwrap();
        let (socket, claimed) = (pool.socket(&attachment).unwrap(), attachment.clone());
        let mut export = Export::new(attachment, Vec::new(), Some(socket));
        export.process = Some(node.spawn(&Exec::new("sleep").args(["60"])).unwrap());
        export.bytes = 4096;
        let lock = std::fs::File::open(dir.path()).unwrap().into();
        let (program, exports) = (PathBuf::from("/bin/sleep"), BTreeMap::from([(data.clone(), export)]));
        let mut server = Server { node: &node, pool: &pool, program, exports, _lock: lock };
        assert!(server.tick().unwrap().is_empty(), "the one that runs stays");
        pool.grow_attached(&data, &claimed, 8192).unwrap();
        assert_eq!(server.tick().unwrap()[0].to_string(), "volume data is served to web1");
        assert_eq!(server.exports[&data].bytes, 8192);
    }

    #[test]
    fn a_server_that_fails_is_tried_less_and_less_often() {
        let mut waits = vec![Duration::ZERO];
        for _ in 0..12 {
            waits.push(next(waits[waits.len() - 1]));
        }
        assert_eq!(waits[1..4], [100, 200, 400].map(Duration::from_millis));
        assert_eq!(waits[12], WAITS[1]);
    }

    #[test]
    fn one_guest_at_a_time_is_served_with_flushes() {
        let line = arguments(&by_socket("00ff", "/pool/.00ff.sock"), "/pool/data.raw").join(" ");
        for part in
            ["--shared=1", "--cache=writeback", "--format=raw", "--export-name=00ff", "--socket=/pool/.00ff.sock"]
        {
            assert!(line.contains(part), "no {part} in {line}");
        }
        assert!(line.ends_with(" /pool/data.raw"), "{line}");
    }
}
