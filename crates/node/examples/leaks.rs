//! Proves that a command leaves nothing behind: `leaks [--own-namespaces] COMMAND [ARG...]`.
//!
//! Other programs, another vmio among them, may be at work on the same machine, so only what the command
//! itself started counts:
//!
//! | kind | told apart by |
//! |---|---|
//! | processes | they descend from this one, which adopts orphans (`PR_SET_CHILD_SUBREAPER`, prctl(2)) |
//! | temporary files | the command's `TMPDIR` is a new directory; so are `/var/tmp` and `/dev/shm` with `--own-namespaces` |
//! | loop devices, journals | they lie in that directory or, unless with `--own-namespaces`, in the build's own (`target/tmp`) |
//! | interfaces, mounts, named network namespaces | `--own-namespaces`: nobody else is in there |
//! | control groups, trace instances | the process number in their owner's name, looked up while it lives |
//!
//! What is left behind is named, processes are ended, and the exit code is 1; else it is the command's.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use std::{fs, io};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait};
use vmio_node::linux::process;
use vmio_node::{Local, loops};

/// How often new control groups and trace instances are looked up; their owners live longer.
const TICK: Duration = Duration::from_millis(250);
/// Looks after the end, a [`TICK`] apart: the kernel takes a moment to drop loop devices and groups.
const LOOKS: usize = 16;

fn main() -> ExitCode {
    let mut args: Vec<_> = std::env::args_os().skip(1).collect();
    let own_namespaces = args.first().is_some_and(|a| a == "--own-namespaces");
    if own_namespaces {
        args.remove(0);
    }
    match args.split_first().map(|(program, args)| run(Command::new(program).args(args), own_namespaces)) {
        Some(Ok(code)) => ExitCode::from(code),
        Some(Err(e)) => {
            eprintln!("leaks: {e}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("use: leaks [--own-namespaces] COMMAND [ARG...]");
            ExitCode::from(2)
        }
    }
}

fn run(command: &mut Command, own_namespaces: bool) -> io::Result<u8> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let mut tmp = vec![temporary(&std::env::temp_dir())?];
    if own_namespaces {
        let dir = temporary(Path::new("/var/tmp"))?;
        rustix::mount::mount_bind(&dir, "/var/tmp")?;
        rustix::mount::mount("leaks", "/dev/shm", "tmpfs", rustix::mount::MountFlags::empty(), None)?;
        tmp.extend(["/var/tmp".into(), "/dev/shm".into()]);
    }
    // Another command may be at work in other namespaces, from the same build.
    let build = if own_namespaces { None } else { Some(std::path::absolute(target.join("tmp"))?) };
    let scene = Scene { tmp, build, own_namespaces };
    let before = scene.look();
    let known: BTreeSet<String> = owned().into_keys().collect();
    set_child_subreaper(Some(getpid()))?;
    let child = command.env("TMPDIR", &scene.tmp[0]).spawn();
    let child =
        child.map_err(|e| io::Error::new(e.kind(), format!("cannot start {:?}: {e}", command.get_program())))?;
    let (code, owners) = std::thread::scope(|threads| {
        let (stop, stopped) = channel::<()>();
        let watcher = threads.spawn(move || {
            let mut owners = BTreeMap::new();
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                note_owners(&mut owners);
            }
            owners
        });
        let code = reap_until(child.id());
        drop(stop);
        (code, watcher.join().unwrap_or_default())
    });
    let mut left = Vec::new();
    for _ in 0..LOOKS {
        std::thread::sleep(TICK);
        reap();
        left = scene.look();
        left.retain(|line| !before.contains(line));
        // One whose owner nobody saw alive is told too: better a line too many than a leak not seen.
        left.extend(owned().into_keys().filter(|name| !known.contains(name) && owners.get(name) != Some(&false)));
        if left.is_empty() {
            scene.clean()?;
            println!("nothing left behind by: {:?}", command.get_program());
            return Ok(code);
        }
    }
    eprintln!("left behind by {:?}:\n{}", command.get_program(), left.join("\n"));
    for pid in descendants().into_keys().filter_map(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
    Ok(1)
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
    build: Option<PathBuf>,
    own_namespaces: bool,
}

impl Scene {
    /// What is there, a line each, but for what is told by its owner.
    fn look(&self) -> Vec<String> {
        let paths = |what: &str, paths: Vec<PathBuf>| -> Vec<String> {
            paths.into_iter().map(|p| format!("{what} {}", p.display())).collect()
        };
        let places = || self.tmp.iter().chain(&self.build);
        let ours = |path: &Path| places().any(|place| path.starts_with(place));
        let loops = loops::loop_devices().into_iter().filter(|l| ours(&l.backing));
        let journal = |p: &PathBuf| p.extension().is_some_and(|e| e == "journal");
        let mut found: Vec<String> =
            descendants().into_iter().map(|(pid, line)| format!("process {pid} {line}")).collect();
        found.extend(loops.map(|l| format!("loop device {} over {}", l.device.display(), l.backing.display())));
        found.extend(paths("temporary file", self.tmp.iter().flat_map(|tmp| entries(tmp)).collect()));
        found.extend(paths("journal", places().flat_map(|place| below(place)).filter(journal).collect()));
        if self.own_namespaces {
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
            found.extend(mounts.lines().map(|line| format!("mount {line}")));
            // /sys/class/net would show the network namespace of whoever mounted /sys.
            let devices = fs::read_to_string("/proc/net/dev").unwrap_or_default();
            found.extend(devices.lines().filter_map(|l| Some(format!("interface {}", l.split_once(':')?.0.trim()))));
            found.extend(paths("namespace", entries(Path::new("/run/netns"))));
        }
        found
    }

    /// Takes the empty directories away.
    fn clean(&self) -> io::Result<()> {
        fs::remove_dir(&self.tmp[0])?;
        if self.own_namespaces {
            let mounted = fs::metadata("/var/tmp")?;
            rustix::mount::unmount("/var/tmp", rustix::mount::UnmountFlags::DETACH)?;
            let same =
                |p: &PathBuf| fs::metadata(p).is_ok_and(|m| (m.dev(), m.ino()) == (mounted.dev(), mounted.ino()));
            entries(Path::new("/var/tmp")).iter().find(|p| same(p)).map_or(Ok(()), fs::remove_dir)?;
        }
        Ok(())
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
fn owned() -> BTreeMap<String, i32> {
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

/// Reaps whatever ends, orphans too, until the command does; its exit code, or 128 and the signal.
fn reap_until(child: u32) -> u8 {
    let code = |status: WaitStatus| status.exit_status().or(status.terminating_signal().map(|s| 128 + s));
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if u32::try_from(pid.as_raw_nonzero().get()) == Ok(child) => {
                return code(status).and_then(|c| u8::try_from(c).ok()).unwrap_or(1);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return 1,
        }
    }
}

/// Reaps what has ended.
fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}
