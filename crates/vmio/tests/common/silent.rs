//! A FUSE file system with one file, whose server takes requests and then, for as long as the test wants, answers none
//! of them: who waits for one sleeps in the kernel where no signal reaches it (Linux fs/fuse/dev.c,
//! `request_wait_answer`).
#![allow(clippy::unwrap_used, dead_code)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session, SessionACL,
    WriteFlags,
};

/// The file's name.
pub const DISK: &str = "disk.raw";
/// As the table of mounts and vmio call it.
pub const SERVER: &str = "FUSE server vmio-test";
const FILE: INodeNo = INodeNo(2);
/// How long a name is known without asking.
const TTL: Duration = Duration::ZERO;

#[derive(Default)]
struct State {
    /// How long attributes are known without asking.
    known: Duration,
    /// How long a flush takes.
    flush: Duration,
    silent: bool,
    removed: bool,
    /// What is done about requests that got no answer once the server answers again.
    held: Vec<Box<dyn FnOnce() + Send>>,
    content: Vec<u8>,
}

/// The mount and its server. Whoever still waits when it goes gets an error.
pub struct Silent {
    /// Where it is mounted.
    pub dir: PathBuf,
    state: Arc<Mutex<State>>,
}

impl Silent {
    /// Mounted on a new directory; `None` where there is no FUSE.
    pub fn at(dir: PathBuf, bytes: usize) -> Option<Self> {
        Self::known_for(Duration::ZERO, dir, bytes)
    }

    /// For a loop device over its file: who asks the kernel what each loop device of this machine lies over, as others
    /// do that run at the same time, has an answer without the server.
    pub fn for_a_loop_device(dir: PathBuf, bytes: usize) -> Option<Self> {
        Self::known_for(Duration::from_secs(86_400), dir, bytes)
    }

    fn known_for(known: Duration, dir: PathBuf, bytes: usize) -> Option<Self> {
        let connection = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        fs::create_dir(&dir).unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", connection.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("vmio-test", &dir, "fuse", flags, options.as_c_str()).ok()?;
        let state = Arc::new(Mutex::new(State { known, content: vec![0x5a; bytes], ..State::default() }));
        let served = Served(Arc::clone(&state));
        let session = Session::from_fd(served, connection.into(), SessionACL::All, Config::default()).unwrap();
        // It ends with the mount.
        std::mem::forget(session.spawn().unwrap());
        Some(Self { dir, state })
    }

    pub fn file(&self) -> PathBuf {
        self.dir.join(DISK)
    }

    /// From now on each flush (fsync) takes so long.
    pub fn flushes_in(&self, time: Duration) {
        self.state.lock().unwrap().flush = time;
    }

    /// From now on no request is answered.
    pub fn falls_silent(&self) {
        self.state.lock().unwrap().silent = true;
    }

    /// Answers again; reads and writes are done that waited, all else fails.
    pub fn answers(&self) {
        let held = {
            let mut state = self.state.lock().unwrap();
            state.silent = false;
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(|late| late());
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.state.lock().unwrap().held.len()
    }

    pub fn has_file(&self) -> bool {
        !self.state.lock().unwrap().removed
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.dir, rustix::mount::UnmountFlags::DETACH);
        self.answers();
        let _ = fs::remove_dir(&self.dir);
    }
}

struct Served(Arc<Mutex<State>>);

/// Keeps a request unanswered, where the server is silent; else goes on with what it knows.
macro_rules! unless_silent {
    ($self:ident, $reply:ident, $state:ident) => {
        let mut $state = $self.0.lock().unwrap();
        if $state.silent {
            // Without an answer it fails.
            return $state.held.push(Box::new(move || drop($reply)));
        }
    };
}

fn attributes(state: &State, number: INodeNo) -> Option<FileAttr> {
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
        blksize: 4096,
        flags: 0,
    };
    match number {
        INodeNo::ROOT => Some(of(FileType::Directory, 0o755, 0, 2)),
        FILE => Some(of(FileType::RegularFile, 0o666, state.content.len() as u64, u32::from(!state.removed))),
        _ => None,
    }
}

fn read(state: &State, offset: u64, size: u32, reply: ReplyData) {
    let start = state.content.len().min(offset as usize);
    let end = state.content.len().min(start + size as usize);
    reply.data(&state.content[start..end]);
}

fn write(state: &mut State, offset: u64, data: &[u8], reply: ReplyWrite) {
    match state.content.get_mut(offset as usize..offset as usize + data.len()) {
        Some(there) => {
            there.copy_from_slice(data);
            reply.written(data.len() as u32);
        }
        None => reply.error(Errno::ENOSPC),
    }
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        unless_silent!(self, reply, state);
        let found = attributes(&state, FILE).filter(|_| parent == INodeNo::ROOT && name == DISK && !state.removed);
        match found {
            Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        unless_silent!(self, reply, state);
        match attributes(&state, number) {
            Some(attributes) => reply.attr(&state.known, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        unless_silent!(self, reply, state);
        state.removed = true;
        reply.ok();
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        unless_silent!(self, reply, _state);
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut state = self.0.lock().unwrap();
        if state.silent {
            let of = Arc::clone(&self.0);
            return state.held.push(Box::new(move || read(&of.lock().unwrap(), offset, size, reply)));
        }
        read(&state, offset, size, reply);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.0.lock().unwrap();
        if state.silent {
            let (of, data) = (Arc::clone(&self.0), data.to_vec());
            return state.held.push(Box::new(move || write(&mut of.lock().unwrap(), offset, &data, reply)));
        }
        write(&mut state, offset, data, reply);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut state = self.0.lock().unwrap();
        if state.silent {
            state.held.push(Box::new(move || reply.ok()));
        } else if state.flush > Duration::ZERO {
            let time = state.flush;
            drop(thread::spawn(move || {
                thread::sleep(time);
                reply.ok();
            }));
        } else {
            reply.ok();
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        unless_silent!(self, reply, state);
        let blocks = (state.content.len() / 4096) as u64;
        reply.statfs(blocks, blocks / 2, blocks / 2, 16, 8, 4096, 255, 4096);
    }
}

/// Processes that wait for storage on behalf of a vmio with this state directory in its environment.
pub fn io_workers(of: &Path) -> Vec<u32> {
    let setting = format!("VMIO_STATE={}", of.display());
    let pids = fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let text = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    pids.filter(|pid| {
        let process = Path::new("/proc").join(pid.to_string());
        // Of a process that was killed the thread that waits alone has an environment.
        let mut threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
        text(process.join("comm")).trim() == "vmio-errand"
            && threads.any(|thread| text(thread.path().join("environ")).split('\0').any(|one| one == setting))
    })
    .collect()
}
