//! The send buffer of a tap that a running process (a hypervisor) holds: read, and set to another size.
//!
//! A tap's packets are charged to its open `/dev/net/tun` until somebody orphans them. Its send buffer
//! (`TUNSETSNDBUF`, Linux include/uapi/linux/if_tun.h) says how much may be charged; full, the process that writes
//! has to wait. It can be set by an open descriptor of the tap alone, and that is the process's: so it is copied
//! (pidfd_getfd(2)) and closed again at once.
//!
//! This is an **I/O task** ([`crate::io_worker`]), done in a process of its own and within bounds, for three reasons:
//! - As long as a copy is open the tap lives, whatever its owner does. A copy goes with the process that has it, and
//!   nothing else of that process holds it (the copy closes on exec).
//! - Where the owner ends meanwhile, the copy is the tap's last descriptor, and closing it takes the interface down:
//!   that waits for all who refer to it, for seconds or longer. It must not happen in a control loop's process.
//! - A hostile process may hold very many descriptors, and exchange them while they are looked at; what is copied by
//!   mistake may be of a file system that hangs when it is closed.
//!
//! **What is acted on** is told by the copy, never by a path: it is the character device 10:200, is attached to an
//! interface of kind tap, in the network namespace that was asked for, and with the index that was asked for. The
//! process is the one with that number **and** that start, held by a pidfd from before both were compared.

mod calls;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::io_worker::{self, Done, IoTask};
use crate::linux::process;
use crate::machine::poll_for;
use crate::{Error, Local};

/// Reading or setting a tap's send buffer.
pub(crate) static SEND_BUFFER: IoTask = IoTask { word: "send-buffer", perform };

/// How long one look at a process may take; 65,536 descriptors take most of a second.
const LIMIT: Duration = Duration::from_secs(2);
/// Descriptors of one tap that are looked at: as many as it may have queues (MAX_TAP_QUEUES of drivers/net/tap.c).
const MOST_QUEUES: usize = 256;
/// Descriptors of taps that are copied: of the one that is meant and of others.
const MOST_COPIES: usize = 1024;

/// A network namespace, as nsfs numbers it (ioctl_nsfs(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NetworkNamespace {
    device: u64,
    inode: u64,
}

impl NetworkNamespace {
    /// That of the thread that calls.
    ///
    /// # Errors
    /// When `/proc` is not there.
    pub fn own() -> io::Result<Self> {
        Self::of(&File::open("/proc/thread-self/ns/net")?)
    }

    fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self { device: meta.dev(), inode: meta.ino() })
    }
}

/// An interface, by what does not change with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Interface {
    /// Where it is.
    pub namespace: NetworkNamespace,
    /// Its index there.
    pub index: u32,
}

/// A process that is no other: numbers are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it began, in ticks since boot (field 22 of proc_pid_stat(5)).
    pub start_ticks: u64,
}

impl Process {
    /// The one that has this number now; `None` where none has.
    pub fn now(pid: u32) -> Option<Self> {
        crate::machine::start_ticks(pid).map(|start_ticks| Self { pid, start_ticks })
    }
}

/// Another size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Bytes.
    pub to: u32,
    /// What may be there before, beside the new size itself; with anything else nothing is changed.
    pub from: Vec<u32>,
}

/// State of a process as holder of a tap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HolderState {
    /// The process has ended.
    Ended,
    /// The number is another process's by now, which began then.
    Another {
        /// Ticks since boot.
        start_ticks: u64,
    },
    /// It holds no descriptor of that interface.
    Without {
        /// Descriptors that it has, as far as they were looked at; 0 where its first thread has ended and others have
        /// not, so that the kernel tells none.
        descriptors: usize,
        /// Whether these were all.
        all: bool,
    },
    /// It does.
    Held {
        /// Each descriptor, at least one, as they were.
        before: Vec<Queue>,
        /// The same, read back after the change; `None` where there was none, or something else was there than a
        /// change may begin from.
        after: Option<Vec<Queue>>,
    },
}

/// A queue of a tap: an open descriptor of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Its send buffer.
    pub bytes: u32,
    /// Whether it is switched on. The kernel sets no other; those keep what they have.
    pub on: bool,
}

#[derive(Serialize, Deserialize)]
struct Ask {
    interface: Interface,
    process: Process,
    change: Option<Change>,
}

/// Reads the send buffer of a tap that a process holds, and changes it. After an error it is either unchanged or
/// changed completely.
///
/// # Errors
/// When the process may not be looked at (`PermissionDenied`: it needs CAP_SYS_PTRACE, and CAP_NET_ADMIN), the
/// kernel refuses, or it takes too long (`TimedOut`).
pub fn send_buffer(interface: Interface, process: Process, change: Option<Change>) -> io::Result<HolderState> {
    let ask = Ask { interface, process, change };
    Ok(io_worker::send(&SEND_BUFFER, &ask, Path::new("/"), LIMIT)?.0)
}

fn perform(ask: &str, _: &Path) -> Done {
    let ask: Ask = serde_json::from_str(ask)?;
    // It may enter the interface's namespace.
    let found = io_worker::on_own_thread(|| holder_state(&ask, process::MOST_DESCRIPTORS))?;
    Ok((serde_json::to_string(&found)?, Vec::new()))
}

fn holder_state(ask: &Ask, most_descriptors: usize) -> io::Result<HolderState> {
    let until = Instant::now() + LIMIT;
    let pid = ask.process.pid;
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(HolderState::Ended) };
    // The pidfd first: after that the process behind the number cannot change.
    let holder = match pidfd_open(number, PidfdFlags::empty()) {
        Ok(holder) => holder,
        Err(Errno::SRCH) => return Ok(HolderState::Ended),
        Err(e) => return Err(e.into()),
    };
    match Process::now(pid) {
        None => return Ok(HolderState::Ended),
        Some(Process { start_ticks, .. }) if start_ticks != ask.process.start_ticks => {
            return Ok(HolderState::Another { start_ticks });
        }
        Some(_) => {}
    }
    let numbers = match process::descriptor_numbers(&Local::new(), pid) {
        Ok(numbers) => numbers,
        Err(e) => return gone(source(e)),
    };
    let mut queues: Vec<(File, bool)> = Vec::new();
    let (mut looked, mut copies) = (0, 0);
    for &fd in numbers.iter().take(most_descriptors) {
        if queues.len() >= MOST_QUEUES || copies >= MOST_COPIES {
            break;
        }
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        looked += 1;
        // What is no tap is never copied.
        if !process::is_of_tun(&Local::new(), pid, fd) {
            continue;
        }
        copies += 1;
        let Ok(number) = i32::try_from(fd) else { continue };
        match pidfd_getfd(holder.as_fd(), number, PidfdGetfdFlags::empty()) {
            Ok(copy) => queues.extend(of_interface(copy.into(), ask.interface)?),
            // Closed meanwhile.
            Err(Errno::BADF) => {}
            Err(e) => return gone(e.into()),
        }
    }
    if queues.is_empty() {
        // Of one that waits to be reaped, as of one whose first thread alone has ended, none are told.
        if poll_for(&mut [PollFd::new(&holder, PollFlags::IN)], Some(Duration::ZERO))? > 0 {
            return Ok(HolderState::Ended);
        }
        let all = looked > 0 && looked == numbers.len() && looked < most_descriptors;
        return Ok(HolderState::Without { descriptors: looked, all });
    }
    let read_queues = |(tun, on): &(File, bool)| Ok(Queue { bytes: calls::send_buffer(tun)?, on: *on });
    let read_queues = || queues.iter().map(read_queues).collect::<io::Result<Vec<Queue>>>();
    let before = read_queues()?;
    let Some(change) = &ask.change else { return Ok(HolderState::Held { before, after: None }) };
    let mut to_set = before.iter().filter(|queue| queue.on && queue.bytes != change.to).peekable();
    let is_to_set = to_set.peek().is_some();
    if to_set.any(|queue| !change.from.contains(&queue.bytes)) {
        return Ok(HolderState::Held { before, after: None });
    }
    if is_to_set {
        // The caller has given up by then.
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // By one for all that are switched on (tun_set_sndbuf of drivers/net/tun.c).
        calls::set_send_buffer(&queues[0].0, change.to)?;
    }
    let after = Some(read_queues()?);
    Ok(HolderState::Held { before, after })
}

/// The copy, if it is a queue of that interface, and whether that is switched on.
fn of_interface(copy: File, interface: Interface) -> io::Result<Option<(File, bool)>> {
    if !calls::is_tun(&copy)? {
        return Ok(None);
    }
    let Some((name, on)) = calls::tap(&copy)? else { return Ok(None) };
    let there = calls::namespace(&copy)?;
    if NetworkNamespace::of(&there)? != interface.namespace {
        return Ok(None);
    }
    if NetworkNamespace::own()? != interface.namespace {
        // Of this thread, which ends with its task.
        calls::enter(&there)?;
    }
    Ok((calls::index(&name)? == Some(interface.index)).then_some((copy, on)))
}

/// `Ended`, if the error means that.
fn gone(e: io::Error) -> io::Result<HolderState> {
    match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::SRCH | Errno::NOENT) => Ok(HolderState::Ended),
        _ => Err(e),
    }
}

fn source(e: Error) -> io::Error {
    match e {
        Error::File { source, .. } => source,
        other => io::Error::other(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
