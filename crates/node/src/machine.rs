//! This machine: clocks, processes with an owner's mark, and waits.
//!
//! Every child that vmio starts carries `VMIO_OWNER=<cookie>` in its environment, which survives
//! `fork` and `exec` and can be read back from `/proc/PID/environ` (proc_pid_environ(5)): the
//! one mark that also finds a process after its parent was killed with SIGKILL.

use std::ffi::{OsStr, c_long};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};

use crate::Local;
use crate::linux::mounts::{self, Mount, NetworkMount};
use crate::linux::{process, silent, system};

/// Name of the environment variable that marks the children of an owner.
pub const OWNER_VARIABLE: &str = "VMIO_OWNER";
/// Environment variables with a login of the user's, name and password: no program of a run inherits them, since a
/// hypervisor that a guest has broken into would have them, too.
pub const LOGIN_VARIABLES: [&str; 2] = ["VMIO_POWER_USER", "VMIO_POWER_PASSWORD"];

/// How long a killed process may take to go before this is reported as a failure.
pub(crate) const DEATH_LIMIT: Duration = Duration::from_secs(10);

/// A program to start: it inherits the environment but for logins.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in LOGIN_VARIABLES {
        command.env_remove(name);
    }
    command
}

/// Seconds on this machine's `CLOCK_MONOTONIC`.
pub fn monotonic_seconds() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// Identity of this boot, from `/proc/sys/kernel/random/boot_id`; empty where there is none.
pub fn boot_id() -> String {
    system::boot_id(&Local::new()).unwrap_or_default()
}

/// Random bytes of the kernel's (getrandom(2)), 256 at most.
///
/// # Errors
/// The kernel gives none.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut random = [0_u8; N];
    getrandom(&mut random[..], GetRandomFlags::empty())?;
    Ok(random)
}

/// When a process started, in clock ticks since boot (`/proc/PID/stat`, field 22). With the pid
/// it names a process for good, since pids are used again.
pub fn start_ticks(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(process::file(pid, "stat")).ok()?;
    process::Stat::parse(&text)?.start_ticks()
}

/// Whether a thread of a process runs, or waits for nothing but a processor.
pub(crate) fn is_runnable(pid: u32) -> bool {
    let local = Local::new();
    let runs = |tid: u32| {
        let text = fs::read_to_string(process::task_file(pid, tid, "stat")).unwrap_or_default();
        process::Stat::parse(&text).is_some_and(|stat| stat.is_runnable())
    };
    process::threads(&local, pid).unwrap_or_default().into_iter().any(runs)
}

/// Seconds that a process ran so far, with all its threads, in ticks of the kernel.
pub(crate) fn run_seconds(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(process::file(pid, "stat")).ok()?;
    process::Stat::parse(&text)?.run_seconds()
}

/// A lock whose data stays usable when another thread panicked while holding it.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A duration as the kernel wants it.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Waits until one of `fds` has an event or `limit` passed; a signal does not end the wait early
/// but does not prolong it either.
///
/// # Errors
/// When the kernel cannot wait.
pub fn poll_for(fds: &mut [PollFd<'_>], limit: Option<Duration>) -> io::Result<usize> {
    let until = limit.map(|l| Instant::now() + l);
    loop {
        let left = until.map(|u| timespec(u.saturating_duration_since(Instant::now())));
        match poll(fds, left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// A process that carries an owner's mark.
#[derive(Debug)]
pub struct Marked {
    /// Process id.
    pub pid: u32,
    /// Value of its `VMIO_OWNER`.
    pub cookie: String,
    /// Short command name.
    pub name: String,
    handle: OwnedFd,
}

/// All processes (but this one) whose `VMIO_OWNER` satisfies `wanted`. Those that this user may
/// not look into are left out.
pub fn marked_processes(wanted: impl Fn(&str) -> bool) -> Vec<Marked> {
    let local = Local::new();
    let own = std::process::id();
    let pids = process::all(&local).unwrap_or_default().into_iter().filter(|&p| p != own);
    pids.filter_map(|pid| {
        // The handle comes first: what is read next belongs to it or to nobody.
        let handle = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
        let cookie = process::variable_of(&local, pid, OWNER_VARIABLE)?;
        wanted(&cookie).then(|| Marked { pid, cookie, name: process::comm(&local, pid).unwrap_or_default(), handle })
    })
    .collect()
}

/// A process that was killed and does not end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("process {pid} ({name}) does not die; is it stuck in I/O?")]
pub(crate) struct Undying {
    pid: u32,
    name: String,
}

/// Kills every process that carries `cookie` and passes `also`, looking again until none is left.
pub(crate) fn kill_marked(cookie: &str, also: impl Fn(u32) -> bool) -> Result<(), Undying> {
    let until = Instant::now() + DEATH_LIMIT;
    loop {
        let mut found = marked_processes(|c| c == cookie);
        found.retain(|p| also(p.pid));
        if found.is_empty() {
            return Ok(());
        }
        for process in &found {
            // It may have ended by itself meanwhile.
            let _ = pidfd_send_signal(&process.handle, Signal::KILL);
        }
        for process in found {
            // A process gives up its environment before its files: wait for the very end.
            let left = until.saturating_duration_since(Instant::now());
            let ended = poll_for(&mut [PollFd::new(&process.handle, PollFlags::IN)], Some(left));
            if left.is_zero() || ended.is_ok_and(|n| n == 0) {
                return Err(Undying { pid: process.pid, name: process.name });
            }
        }
    }
}

/// Connects to a Unix socket. Where its listener's queue is full this fails (EAGAIN, connect(2))
/// instead of waiting.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Bytes of a file or block device that the page cache holds, counted by cachestat(2) (Linux 6.5),
/// which takes time for what is cached alone; `None` where the kernel does not have it. The file is
/// open for reading, and nothing of it is read.
pub(crate) fn cached_bytes(file: &fs::File) -> io::Result<Option<u64>> {
    use std::os::fd::AsRawFd;
    /// `struct cachestat_range` of include/uapi/linux/mman.h; a length of 0 is all of the file.
    #[repr(C)]
    struct Range {
        offset: u64,
        length: u64,
    }
    /// `struct cachestat` of the same file, in pages.
    #[repr(C)]
    #[derive(Default)]
    struct Counted {
        cache: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    /// Its number on every architecture.
    const CACHESTAT: c_long = 451;
    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }
    let (range, mut counted) = (Range { offset: 0, length: 0 }, Counted::default());
    // SAFETY: both structures are laid out as the kernel has them and outlive the call, the
    // descriptor is open, and no flags are defined.
    let done = unsafe {
        syscall(CACHESTAT, file.as_raw_fd(), std::ptr::from_ref(&range), std::ptr::from_mut(&mut counted), 0u32)
    };
    if done == 0 {
        return Ok(Some(counted.cache * rustix::param::page_size() as u64));
    }
    match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::Unsupported => Ok(None),
        // Seccomp filters of older container engines refuse calls that they do not know.
        e => Err(e),
    }
}

/// Does work that may hang in the kernel (storage that does not answer) on a thread of its own.
/// `None` when it has not ended within the limit: the thread is left to its fate, and ends at the
/// latest with the process.
pub fn within<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (give, given) = std::sync::mpsc::channel();
    let name = "may-hang".to_owned();
    let started = std::thread::Builder::new().name(name).spawn(move || drop(give.send(work())));
    started.ok()?;
    given.recv_timeout(limit).ok()
}

/// The mounts of this process's mount namespace, in the order of their table.
pub(crate) fn own_mounts() -> io::Result<Vec<Mount>> {
    Ok(mounts::parse(&fs::read(mounts::OWN)?))
}

/// The server of a path that may not answer: see [`silent::may_hang`]. Reads only the table of mounts and sysfs.
pub fn may_hang(path: &Path) -> Option<NetworkMount> {
    silent::may_hang(&Local::new(), path)
}

/// The mount point above a path without links.
pub(crate) fn mount_point_of(path: &Path) -> Option<PathBuf> {
    mounts::holding(&own_mounts().ok()?, path).map(|m| m.point.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn kernel_file_systems_cannot_hang() {
        assert_eq!(may_hang(Path::new("/proc")), None);
        assert_eq!(mount_point_of(Path::new("/proc/self")), Some("/proc".into()));
    }

    #[test]
    fn cached_pages_of_a_file_are_counted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), vec![7; 1 << 20]).unwrap();
        // `None` is a kernel before 6.5.
        if let Some(cached) = cached_bytes(&fs::File::open(file.path()).unwrap()).unwrap() {
            assert!((1 << 20..=2 << 20).contains(&cached), "{cached}");
        }
    }

    #[test]
    fn connect_does_not_wait_for_a_full_queue() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let first = connect(&path).unwrap();
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(first);
    }

    #[test]
    fn work_that_hangs_is_given_up() {
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
        let (give, given) = std::sync::mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(20), move || given.recv().is_ok()), None);
        drop(give);
    }

    #[test]
    fn start_time_and_boot_id() {
        assert!(start_ticks(std::process::id()).unwrap() > 0);
        assert_eq!(start_ticks(0), None);
        assert_eq!(boot_id().len(), 36);
    }

    #[test]
    fn who_computes_is_told_from_who_waits() {
        let mut busy = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut idle = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let both = || is_runnable(busy.id()) && !is_runnable(idle.id());
        while !both() && std::time::Instant::now() < limit {
            std::thread::yield_now();
        }
        let told = both();
        for child in [&mut busy, &mut idle] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(told);
    }

    #[test]
    fn a_marked_process_is_found_and_killed() {
        let cookie = format!("test-{}-marked", std::process::id());
        let mut child = std::process::Command::new("sleep").arg("60").env(OWNER_VARIABLE, &cookie).spawn().unwrap();
        // Between its start and its program's first instruction a process has no environment to be read.
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let found = || marked_processes(|c| c == cookie).iter().map(|m| m.pid).collect::<Vec<_>>();
        while found().is_empty() && std::time::Instant::now() < limit {
            std::thread::yield_now();
        }
        assert_eq!(found(), [child.id()]);
        kill_marked(&cookie, |_| true).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(marked_processes(|c| c == cookie).is_empty());
    }
}
