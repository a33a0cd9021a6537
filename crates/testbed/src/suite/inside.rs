//! One test in surroundings of its own, and proof that it leaves nothing behind: the process between `suite` and the
//! test.
//!
//! Other programs, another vmio and other tests among them, may be at work on the same machine, so only what the test
//! itself started counts:
//!
//! | kind | told apart by |
//! |---|---|
//! | processes | they descend from this one, which adopts orphans (`PR_SET_CHILD_SUBREAPER`, prctl(2)) |
//! | temporary files | the test's `TMPDIR` is a new directory; so are `/var/tmp` and `/dev/shm` of tests with root |
//! | loop devices, journals | they lie in that directory |
//! | interfaces, mounts, named network namespaces | tests with root have namespaces of their own |
//! | pinned programs and maps | tests with root do not see the machine's `/sys/fs/bpf`; who needs one mounts it |
//! | control groups, trace instances | the process number in their owner's name, looked up while it lives |
//!
//! What is left behind is named in the test's log, processes are ended, and the test has failed.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde::{Deserialize, Serialize};
use vmio_node::linux::process;
use vmio_node::{Local, loops};

/// How often new control groups and trace instances are looked up; their owners live longer.
const TICK: Duration = Duration::from_millis(250);
/// Looks after the end, a [`TICK`] apart: the kernel takes a moment to drop loop devices and groups.
const LOOKS: usize = 24;

/// How a test ended.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It was ended when its time was over.
    TimedOut,
}

/// Result of a test.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// How its process ended.
    pub ended: Ended,
    /// What it left behind, a line each.
    pub left: Vec<String>,
    /// Control groups and trace instances that came meanwhile and whose owner was never seen alive: this test's or
    /// another's. A leak if they are there when all tests are done.
    pub unclaimed: Vec<String>,
    /// Processor time that it and all that it started took, user and system.
    pub cpu_seconds: f64,
}

/// Runs a command so; with `namespaces` as a test with root.
pub fn run(command: &mut Command, namespaces: bool, limit: Duration) -> io::Result<Outcome> {
    let mut tmp = vec![temporary(&std::env::temp_dir())?];
    if !namespaces {
        tmp.push(temporary(Path::new(vmio_testbed::DISK_OF_ALL))?);
    } else {
        // SAFETY: this process has one thread; no memory and no descriptor is unshared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWNET) }?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        let disk = PathBuf::from(vmio_testbed::DISK_OF_ALL);
        mount_bind(temporary(&disk)?, &disk)?;
        mount("suite", "/dev/shm", "tmpfs", MountFlags::empty(), None)?;
        // Names of network namespaces (ip-netns(8)): others on this machine make theirs meanwhile.
        fs::create_dir_all("/run/netns")?;
        mount("suite", "/run/netns", "tmpfs", MountFlags::empty(), None)?;
        // Guards of other tests, and another vmio, pin theirs there meanwhile.
        loop {
            match unmount("/sys/fs/bpf", UnmountFlags::DETACH) {
                Ok(()) => {}
                // It is not mounted, or not there.
                Err(Errno::INVAL | Errno::NOENT) => break,
                Err(e) => return Err(e.into()),
            }
        }
        // The kernel shows what a loop device lies over by its path here: in a directory that no other test has.
        tmp.extend([temporary(&disk)?, disk, "/dev/shm".into()]);
    }
    let scene = Scene { tmp, namespaces };
    // Without namespaces of its own there is nothing before: its directories are new, and it has no children.
    let (before, known): (Vec<String>, BTreeSet<String>) =
        if namespaces { (scene.look(), owned().into_keys().collect()) } else { Default::default() };
    set_child_subreaper(Some(getpid()))?;
    // A shell that starts something in the background has it ignore these, and what it starts, too (POSIX, 2.11).
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: no handler is installed, the default is set.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let child = command.env("TMPDIR", &scene.tmp[0]).env(vmio_testbed::DISK, &scene.tmp[1]).spawn();
    let child =
        child.map_err(|e| io::Error::new(e.kind(), format!("cannot start {:?}: {e}", command.get_program())))?;
    let end = Instant::now() + limit;
    let (status, watched) = std::thread::scope(|threads| {
        let (stop, stopped) = channel::<()>();
        let number = child.id();
        let watcher = threads.spawn(move || {
            let mut watched = Watched::default();
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                if namespaces {
                    note_owners(&mut watched.owners);
                }
                if Instant::now() > end && !watched.timed_out {
                    watched.timed_out = true;
                    let _ = number.try_into().ok().and_then(Pid::from_raw).map(|p| kill_process(p, Signal::KILL));
                }
            }
            watched
        });
        let status = reap_until(child.id());
        drop(stop);
        let mut watched = watcher.join().unwrap_or_default();
        // Of a command that ended before the first look.
        if namespaces {
            note_owners(&mut watched.owners);
        }
        (status, watched)
    });
    let ended = match (watched.timed_out, status?) {
        (true, _) => Ended::TimedOut,
        (false, status) => match status.terminating_signal() {
            Some(signal) => Ended::Signal(signal),
            None => Ended::Code(status.exit_status().unwrap_or(1)),
        },
    };
    let (mut left, mut unclaimed) = (Vec::new(), Vec::new());
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(TICK);
        }
        // Nothing descends from a process without children.
        if !reap() && !namespaces && scene.tmp.iter().all(|dir| entries(dir).is_empty()) {
            left.clear();
            break;
        }
        left = scene.look();
        left.retain(|line| !before.contains(line));
        unclaimed.clear();
        if namespaces {
            for name in owned().into_keys().filter(|name| !known.contains(name)) {
                match watched.owners.get(&name) {
                    Some(true) => left.push(name),
                    Some(false) => {}
                    None => unclaimed.push(name),
                }
            }
        }
        if left.is_empty() {
            break;
        }
    }
    if !left.is_empty() {
        for pid in descendants().into_keys().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    scene.clean();
    Ok(Outcome { ended, left, unclaimed, cpu_seconds: cpu_seconds()? })
}

/// Processor time of those that this process has waited for, and of theirs (getrusage(2)).
fn cpu_seconds() -> io::Result<f64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills the one structure that it is given, of which all zeros are a value, too.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        usage.assume_init()
    };
    Ok([usage.ru_utime, usage.ru_stime].iter().map(|t| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6).sum())
}

/// What was seen while a test ran.
#[derive(Default)]
struct Watched {
    /// Control groups and trace instances, and whether they are the test's.
    owners: BTreeMap<String, bool>,
    timed_out: bool,
}

/// A new directory with a short name: sockets lie in it, whose paths have 107 bytes at most.
fn temporary(place: &Path) -> io::Result<PathBuf> {
    let dirs = (0..1000).map(|n| place.join(format!("vt{}-{n}", std::process::id())));
    let mut made = dirs.map(|dir| fs::create_dir(&dir).map(|()| dir));
    made.find(|made| made.as_ref().err().is_none_or(|e| e.kind() != io::ErrorKind::AlreadyExists))
        .unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))
}

/// Where the command may leave something.
struct Scene {
    tmp: Vec<PathBuf>,
    namespaces: bool,
}

impl Scene {
    /// What is there, a line each, but for what is told by its owner.
    fn look(&self) -> Vec<String> {
        let paths = |what: &str, paths: Vec<PathBuf>| -> Vec<String> {
            paths.into_iter().map(|p| format!("{what} {}", p.display())).collect()
        };
        let ours = |path: &Path| self.tmp[..2].iter().any(|place| path.starts_with(place));
        let loops = loops::loop_devices().into_iter().filter(|l| ours(&l.backing));
        let journal = |p: &PathBuf| p.extension().is_some_and(|e| e == "journal");
        let mut found: Vec<String> =
            descendants().into_iter().map(|(pid, line)| format!("process {pid} {line}")).collect();
        found.extend(loops.map(|l| format!("loop device {} over {}", l.device.display(), l.backing.display())));
        found.extend(paths("temporary file", self.tmp.iter().flat_map(|tmp| entries(tmp)).collect()));
        found.extend(paths("journal", self.tmp.iter().flat_map(|place| below(place)).filter(journal).collect()));
        if self.namespaces {
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
            found.extend(mounts.lines().map(|line| format!("mount {line}")));
            // /sys/class/net would show the network namespace of whoever mounted /sys.
            let devices = fs::read_to_string("/proc/net/dev").unwrap_or_default();
            found.extend(devices.lines().filter_map(|l| Some(format!("interface {}", l.split_once(':')?.0.trim()))));
            found.extend(paths("namespace", entries(Path::new("/run/netns"))));
        }
        found
    }

    /// Takes the directories away, with what was left in them: it has been told.
    fn clean(&self) {
        for own in &self.tmp[..2] {
            let _ = fs::remove_dir_all(own);
        }
        let Some(disk) = self.tmp.get(2).filter(|_| self.namespaces) else { return };
        let Ok(mounted) = fs::metadata(disk) else { return };
        let same = |p: &PathBuf| fs::metadata(p).is_ok_and(|m| (m.dev(), m.ino()) == (mounted.dev(), mounted.ino()));
        // Below it lies the one of all.
        if unmount(disk, UnmountFlags::DETACH).is_ok()
            && let Some(own) = entries(disk).into_iter().find(same)
        {
            let _ = fs::remove_dir_all(own);
        }
    }
}

/// Paths of what a directory holds; none where it is not there.
fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect()
}

/// All files below a directory; links are not followed.
fn below(dir: &Path) -> Vec<PathBuf> {
    let is_dir = |p: &PathBuf| fs::symlink_metadata(p).is_ok_and(|m| m.is_dir());
    let (dirs, mut files): (Vec<_>, Vec<_>) = entries(dir).into_iter().partition(is_dir);
    files.extend(dirs.iter().flat_map(|d| below(d)));
    files
}

/// Parent of a process, unless that is dead and waits to be reaped.
fn parent(pid: i32) -> Option<i32> {
    let text = fs::read_to_string(process::file(pid, "stat")).ok()?;
    let stat = process::Stat::parse(&text).filter(|stat| !stat.is_dead())?;
    stat.parent()?.try_into().ok()
}

fn descends(pid: i32) -> bool {
    let own = getpid().as_raw_nonzero().get();
    // Bounded, since it may change while it is followed.
    std::iter::successors(parent(pid), |p| parent(*p)).take(1000).any(|p| p == own)
}

/// Living processes that descend from this one, with the beginning of their command lines.
fn descendants() -> BTreeMap<i32, String> {
    let local = Local::new();
    let pids = process::all(&local).unwrap_or_default().into_iter().filter_map(|pid| i32::try_from(pid).ok());
    let line = |pid: i32| {
        let line = process::command_line(&local, pid.cast_unsigned()).unwrap_or_default();
        line.join(" ").chars().take(150).collect()
    };
    pids.filter(|pid| descends(*pid)).map(|pid| (pid, line(pid))).collect()
}

/// Control groups and trace instances that bear an owner's name, with the process number in it: they end in
/// OWNER-PID-16 hexadecimal digits (`vmio_node::Journal::cookie`).
pub fn owned() -> BTreeMap<String, i32> {
    let groups = entries(Path::new("/sys/fs/cgroup")).into_iter().flat_map(|h| [entries(&h), vec![h]].concat());
    let tracing = ["/sys/kernel/tracing/instances", "/sys/kernel/debug/tracing/instances"];
    let instances = tracing.iter().flat_map(|dir| entries(Path::new(dir)));
    let named = |kind: &str, path: PathBuf| {
        let (rest, random) = path.to_str()?.rsplit_once('-')?;
        let hex = random.len() == 16 && random.bytes().all(|b| b.is_ascii_hexdigit());
        let pid = rest.rsplit_once('-')?.1.parse().ok().filter(|_| hex)?;
        Some((format!("{kind} {}", path.display()), pid))
    };
    let groups = groups.filter_map(|path| named("control group", path));
    groups.chain(instances.filter_map(|path| named("trace instance", path))).collect()
}

/// Whether what is there now is the command's, as far as its owner lives. Once known it stays.
fn note_owners(owners: &mut BTreeMap<String, bool>) {
    for (name, pid) in owned() {
        if !owners.contains_key(&name) && parent(pid).is_some() {
            owners.insert(name, descends(pid));
        }
    }
}

/// Reaps whatever ends, orphans too, until the command does.
fn reap_until(child: u32) -> io::Result<WaitStatus> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if u32::try_from(pid.as_raw_nonzero().get()) == Ok(child) => return Ok(status),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Reaps what has ended; whether children are left.
fn reap() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
