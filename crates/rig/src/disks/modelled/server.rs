//! The server of a modelled disk: a process of vmio's own with two files in memory, which the kernel reads and writes
//! through FUSE (kernel document filesystems/fuse.rst) and whose replies wait for the model's time. Both are parts of one
//! disk with one arm: `disk`, for a file system, and behind it `whole`, for who needs a device with none.
//!
//! One thread takes requests in the order in which they come, another one sends the replies in the same order, each
//! at its absolute deadline. Both have real-time priority where that is allowed, and a timer slack of 1 ns; all memory
//! is there from the start and stays (mlockall(2)): a page fault would look like a slow disk. The process serves the
//! kernel's own writing back, so it says that it is an I/O flusher (PR_SET_IO_FLUSHER of prctl(2)).
//!
//! Its standard input is the FUSE connection, its output the line to its owner ([`vmio_node::helper`]), which says what
//! it is to do ([`super::Word`]).

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::process::exit;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, Session, SessionACL, WriteFlags,
};
use rustix::thread::set_current_timer_slack;
use vmio_model::modelled::{Actuator, ModelAccuracy};
use vmio_node::helper::{self, Line};

use super::replies::{Answer, Due, Pace, lock, now_ns, reply_all};
use super::{DISK, NAME, Order, WHOLE, WORD, Word};

/// Most bytes of one request, and most requests that the kernel sends before it waits.
const MAX_WRITE: u32 = 1 << 20;
/// See [`MAX_WRITE`].
const MAX_BACKGROUND: u16 = 256;
/// How long the kernel may keep what it asked of names and sizes: nothing of it changes.
const TTL: Duration = Duration::from_secs(3600);
/// The files' numbers; 1 is the directory's.
const DISK_NUMBER: INodeNo = INodeNo(2);
/// See [`DISK_NUMBER`].
const WHOLE_NUMBER: INodeNo = INodeNo(3);
const PAGE: usize = 4096;
/// Above every ordinary process, below the kernel's own threads (sched(7)).
const PRIORITY: libc::c_int = 10;

/// Where this process was started as a server: serves until the owner ends, and ends the process. Else returns at
/// once. To be called before anything else.
pub fn serve() {
    if let Some(mut args) = helper::own_args(NAME, WORD) {
        exit(args.next().map_or(2, |order| serve_as(&order.to_string_lossy())));
    }
}

/// Serves as ordered; the exit code. What goes wrong is said to the owner.
pub fn serve_as(order: &str) -> i32 {
    let Ok(mut line) = Line::own(io::stdout()) else { return 2 };
    match serve_until_the_end(order, &mut line) {
        Ok(()) => 0,
        Err(e) => {
            let _ = line.send(&Err::<(), _>(e.to_string()), &[], None);
            1
        }
    }
}

fn serve_until_the_end(order: &str, line: &mut Line) -> io::Result<()> {
    let Order { bytes, whole_bytes, disk } = serde_json::from_str(order)?;
    get_ready();
    let memory = memory(bytes)?;
    let whole_from = bytes.saturating_sub(whole_bytes);
    stay();
    let state = Arc::new(Mutex::new(Pace { paced: false, kept: ModelAccuracy::default() }));
    let (queue, queued) = channel();
    thread::Builder::new().name("replies".into()).spawn({
        let state = state.clone();
        move || reply_all(&queued, &state)
    })?;
    let connection = io::stdin().as_fd().try_clone_to_owned()?;
    let served = Served {
        bytes,
        whole_from,
        inner: Mutex::new(Inner { memory, arm: Actuator::new(disk) }),
        queue,
        state: state.clone(),
    };
    let session = Session::from_fd(served, connection, SessionACL::All, Config::default())?;
    let _serving = session.spawn()?;
    line.send(&Ok::<(), String>(()), &[], None)?;
    while let Ok((word, _)) = line.receive(None) {
        let mut pace = lock(&state);
        match word {
            Word::Pace => *pace = Pace { paced: true, kept: ModelAccuracy::default() },
            Word::Free => pace.paced = false,
            Word::Tell => {}
        }
        line.send(&pace.kept, &[], None)?;
    }
    // The owner has ended: so does the connection, with this process.
    exit(0)
}

/// Priority where it is allowed, timers and what the kernel is told of this process; inherited by the threads started
/// later.
fn get_ready() {
    let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let parameter = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the call reads one `sched_param`, which lives until it returns.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
}

/// Keeps all memory where it is, where that is allowed.
fn stay() {
    // SAFETY: the call takes no pointer.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
}

/// All of the disk's memory, each page of it touched.
fn memory(bytes: u64) -> io::Result<Vec<u8>> {
    let size = usize::try_from(bytes).map_err(io::Error::other)?;
    let mut memory = Vec::new();
    memory.try_reserve_exact(size).map_err(io::Error::other)?;
    memory.resize(size, 0);
    for page in memory.chunks_mut(PAGE) {
        // The kernel's own page of zeros would be there instead until the first write.
        *std::hint::black_box(&mut page[0]) = 0;
    }
    Ok(memory)
}

/// What the kernel is served with.
struct Served {
    bytes: u64,
    /// Where the second file begins.
    whole_from: u64,
    inner: Mutex<Inner>,
    queue: Sender<Due>,
    state: Arc<Mutex<Pace>>,
}

struct Inner {
    memory: Vec<u8>,
    arm: Actuator,
}

impl Served {
    /// Where a file lies on the disk.
    fn part(&self, number: INodeNo) -> std::ops::Range<u64> {
        match number {
            WHOLE_NUMBER => self.whole_from..self.bytes,
            _ => 0..self.whole_from,
        }
    }

    /// Where a request of a file lies in the memory, as far as it lies in it.
    fn range(&self, number: INodeNo, offset: u64, bytes: u64) -> std::ops::Range<usize> {
        let part = self.part(number);
        let start = part.start.saturating_add(offset).min(part.end);
        let end = start.saturating_add(bytes).min(part.end);
        // Both are at most the size of a vector.
        start as usize..end as usize
    }

    /// Does a request's work, and has it answered when the model has done it.
    fn work(&self, time: impl FnOnce(&mut Actuator, u64) -> u64, counts: bool, work: impl FnOnce(&mut [u8]) -> Answer) {
        let now = now_ns();
        let paced = lock(&self.state).paced;
        let mut inner = lock(&self.inner);
        let Inner { memory, arm } = &mut *inner;
        let at_ns = if paced { time(arm, now) } else { now };
        let reply = work(memory);
        // The thread that answers ends with the process alone.
        let _ = self.queue.send(Due { at_ns, counts: counts && paced, reply });
    }

    fn attributes(&self, number: INodeNo) -> Option<FileAttr> {
        let of = |kind, perm, size: u64, nlink| FileAttr {
            ino: number,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: PAGE as u32,
            flags: 0,
        };
        match number {
            INodeNo::ROOT => Some(of(FileType::Directory, 0o700, 0, 2)),
            DISK_NUMBER | WHOLE_NUMBER => {
                let part = self.part(number);
                Some(of(FileType::RegularFile, 0o600, part.end - part.start, 1))
            }
            _ => None,
        }
    }

    fn answer(&self, number: INodeNo, reply: ReplyAttr) {
        match self.attributes(number) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What a kernel does not know it is not asked for.
        let wanted = InitFlags::FUSE_ASYNC_READ | InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_MAX_PAGES;
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(MAX_WRITE);
        let _ = config.set_max_background(MAX_BACKGROUND);
        let _ = config.set_congestion_threshold(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let files = [(DISK, DISK_NUMBER), (WHOLE, WHOLE_NUMBER)];
        let found = files.into_iter().find(|(file, _)| parent == INodeNo::ROOT && name == *file);
        match found.and_then(|(_, number)| self.attributes(number)) {
            Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.answer(number, reply);
    }

    /// Times alone are ever set; nobody asks for them.
    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<fuser::TimeOrNow>,
        _mtime: Option<fuser::TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match size {
            Some(size) if self.attributes(number).is_some_and(|a| a.size != size) => reply.error(Errno::EPERM),
            _ => self.answer(number, reply),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // No page cache of its own, and no lock between requests.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let range = self.range(number, offset, u64::from(size));
        let (start, bytes) = (range.start as u64, range.len() as u64);
        self.work(|arm, now| arm.moves(start, bytes, now), true, |memory| Answer::Read(reply, memory[range].to_vec()));
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let range = self.range(number, offset, data.len() as u64);
        if range.len() < data.len() {
            return reply.error(Errno::ENOSPC);
        }
        let (start, bytes) = (range.start as u64, data.len() as u32);
        self.work(
            |arm, now| arm.moves(start, u64::from(bytes), now),
            true,
            |memory| {
                memory[range].copy_from_slice(data);
                Answer::Written(reply, bytes)
            },
        );
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.work(Actuator::flushes, true, |_| Answer::Done(reply));
    }

    /// Discards and zeroes: the memory stays, so that a later write does not wait for the kernel to find some.
    fn fallocate(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let empties = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        if mode & !(empties | libc::FALLOC_FL_KEEP_SIZE) != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let range = self.range(number, offset, length);
        // Filling memory with zeros takes as long as it takes.
        self.work(Actuator::notes, false, |memory| {
            if mode & empties != 0 {
                memory[range].fill(0);
            }
            Answer::Done(reply)
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        // The block size is the granularity of a loop device's discards.
        reply.statfs(self.bytes / PAGE as u64, 0, 0, 1, 0, PAGE as u32, 255, PAGE as u32);
    }
}
