//! The agent in a container: it puts itself into namespaces of its own and serves its client from there.
//!
//! Three processes. The first, on the host, reaches its client by a socket, takes hold of what is to be bound, makes
//! the namespaces (mount, process, host name, IPC, and a network where none was entered before) and waits. The second
//! is the first process of the container: it mounts, and reaps. The third is the agent.
//!
//! There is no image. The host's own files are there and cannot be written to (mount_setattr(2), Linux 5.12); `/tmp`,
//! `/var/tmp`, `/run` and `/dev` are memory of the container's own, and `/proc` and `/sys` show its own processes and
//! network. It is a place to measure in, not a wall: who is root there is root on the host. Mounts of the host that go
//! away go away here too, so nothing of the host's is held.
//!
//! What is done here needs no journal: all of it ends with the processes.

use std::ffi::{CString, OsString, c_long};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change, move_mount, open_tree,
};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::init::{loopback_up, reap_until};

/// First argument of the process on the host; the socket of the client comes next.
pub const WORD: &str = "--container";
/// Before the container's name.
pub const NAME: &str = "--name";
/// Where its network namespace is not one that was entered before.
pub const OWN_NETWORK: &str = "--own-network";
/// Before the MiB that each of its directories in memory may hold: they are charged to its control group.
pub const SCRATCH_MIB: &str = "--scratch-mib";
/// Before a file, directory or device of the host and the path that it has in the container.
pub const BIND: &str = "--bind";
/// As [`BIND`], of what is only read; where the host's own is seen by that path it stays.
pub const SHOW: &str = "--show";
/// First argument of the container's first process.
const FIRST: &str = "--first-of-container";

/// Of memory of its own, with their modes.
const SCRATCH: [(&str, &str); 4] =
    [("/tmp", "mode=1777"), ("/var/tmp", "mode=1777"), ("/run", "mode=755"), ("/dev", "mode=755")];
/// Character devices that programs take for granted (Linux Documentation/admin-guide/devices.txt).
const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

/// What a container is made of.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    name: String,
    own_network: bool,
    scratch_mib: u32,
    binds: Vec<Bound>,
}

/// What has another path in the container, or the same where the host's own is not seen.
#[derive(Debug, PartialEq, Eq)]
struct Bound {
    /// On the host; later the number of a descriptor of what was taken hold of there.
    from: OsString,
    to: PathBuf,
    /// [`BIND`] or [`SHOW`].
    word: &'static str,
}

/// Does the work of a container's process, if the arguments say so, and returns its exit code; else `None`.
pub fn serve(mut args: impl Iterator<Item = OsString>) -> Option<io::Result<ExitCode>> {
    match args.next()?.to_str()? {
        WORD => Some(
            args.next()
                .ok_or_else(|| wrong("it has no socket"))
                .and_then(|socket| on_host(Path::new(&socket), &wanted(args)?)),
        ),
        FIRST => Some(wanted(args).and_then(|wanted| inside(&wanted))),
        _ => None,
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("the container did not get what it needs: {what}"))
}

/// An error with what was done, and to what.
fn doing(what: &str, on: impl AsRef<Path>) -> impl FnOnce(rustix::io::Errno) -> io::Error {
    let what = format!("cannot {what} {}", on.as_ref().display());
    move |e| {
        let e = io::Error::from(e);
        io::Error::new(e.kind(), format!("{what}: {e}"))
    }
}

fn wanted(mut args: impl Iterator<Item = OsString>) -> io::Result<Wanted> {
    let mut all = Wanted::default();
    while let Some(arg) = args.next() {
        let mut next = || args.next().ok_or_else(|| wrong("an argument has no value"));
        match arg.to_str() {
            Some(NAME) => all.name = next()?.into_string().map_err(|_| wrong("its name is not text"))?,
            Some(SCRATCH_MIB) => {
                let text = next()?;
                let number = text.to_str().and_then(|text| text.parse().ok()).filter(|mib| *mib > 0);
                all.scratch_mib = number.ok_or_else(|| wrong("its memory is not a number of MiB"))?;
            }
            Some(OWN_NETWORK) => all.own_network = true,
            Some(word @ (BIND | SHOW)) => {
                let word = if word == BIND { BIND } else { SHOW };
                all.binds.push(Bound { from: next()?, to: next()?.into(), word });
            }
            _ => return Err(wrong(&format!("unknown argument {}", arg.display()))),
        }
    }
    Ok(all)
}

/// The process on the host.
fn on_host(socket: &Path, wanted: &Wanted) -> io::Result<ExitCode> {
    let client = UnixStream::connect(socket)
        .map_err(|e| io::Error::new(e.kind(), format!("cannot connect to {}: {e}", socket.display())))?;
    let mut first = Command::new("/proc/self/exe");
    first.args([FIRST, NAME, &wanted.name, SCRATCH_MIB, &wanted.scratch_mib.to_string()]);
    if wanted.own_network {
        first.arg(OWN_NETWORK);
    }
    // Opened here, where the host's own mounts are visible, and inherited.
    let mut held = Vec::new();
    for Bound { from, to, word } in &wanted.binds {
        let tree = open_tree(CWD, from.as_os_str(), OpenTreeFlags::OPEN_TREE_CLONE).map_err(doing("bind", from))?;
        first.arg(word).arg(tree.as_raw_fd().to_string()).arg(to);
        held.push(tree);
    }
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWUTS | UnshareFlags::NEWIPC;
    if wanted.own_network {
        flags |= UnshareFlags::NEWNET;
    }
    // SAFETY: no descriptors are unshared, and this process has one thread.
    unsafe { unshare_unsafe(flags) }.map_err(doing("make namespaces for", &wanted.name))?;
    let output = client.try_clone()?;
    first.stdin(OwnedFd::from(client)).stdout(OwnedFd::from(output)).current_dir("/");
    // SAFETY: between fork and exec the closure makes one plain system call.
    unsafe {
        first.pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from));
    }
    let mut child = first.spawn()?;
    // The container alone holds the way to its client, and what it was given.
    drop(first);
    drop(held);
    let ended = child.wait()?;
    Ok(ended.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The first process of the container.
fn inside(wanted: &Wanted) -> io::Result<ExitCode> {
    rustix::system::sethostname(wanted.name.as_bytes()).map_err(doing("name", &wanted.name))?;
    if wanted.own_network {
        loopback_up()?;
    }
    // What the host unmounts later is not held here.
    let down = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", down).map_err(doing("take apart the mounts of", "/"))?;
    read_only(Path::new("/"))?;
    for (dir, options) in SCRATCH {
        if dir == "/var/tmp" && !fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir()) {
            continue;
        }
        let options = CString::new(format!("{options},size={}m", wanted.scratch_mib.max(1)))?;
        let flags = MountFlags::NOSUID | if dir == "/dev" { MountFlags::empty() } else { MountFlags::NODEV };
        mount("tmpfs", dir, "tmpfs", flags, Some(options.as_c_str())).map_err(doing("mount memory on", dir))?;
    }
    let plain = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    for (kind, dir) in [("proc", "/proc"), ("sysfs", "/sys")] {
        mount(kind, dir, kind, plain, None).map_err(doing("mount", dir))?;
    }
    devices()?;
    wanted.binds.iter().try_for_each(bind)?;
    let child = Command::new("/proc/self/exe").arg("--stdio").stdin(Stdio::inherit()).spawn()?.id();
    reap_until(child);
    Ok(ExitCode::SUCCESS)
}

/// Makes a mount and all below it read-only, in this namespace alone.
fn read_only(at: &Path) -> io::Result<()> {
    /// `struct mount_attr` of include/uapi/linux/mount.h.
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    /// Its number on every architecture.
    const MOUNT_SETATTR: c_long = 442;
    const AT_RECURSIVE: u32 = 0x8000;
    const READ_ONLY: u64 = 1;
    let path = CString::new(at.as_os_str().as_encoded_bytes())?;
    let attributes = Attributes { set: READ_ONLY, clear: 0, propagation: 0, user_namespace: 0 };
    // SAFETY: the path ends with a zero, the structure is laid out as the kernel has it and has the size that is told,
    // and both outlive the call.
    let done = unsafe {
        libc::syscall(
            MOUNT_SETATTR,
            libc::AT_FDCWD,
            path.as_ptr(),
            AT_RECURSIVE,
            std::ptr::from_ref(&attributes),
            size_of::<Attributes>(),
        )
    };
    if done == 0 {
        return Ok(());
    }
    let e = io::Error::last_os_error();
    let mend = if e.kind() == io::ErrorKind::Unsupported { " (Linux 5.12 has it)" } else { "" };
    Err(io::Error::new(e.kind(), format!("cannot keep the host's files from being written to: {e}{mend}")))
}

fn devices() -> io::Result<()> {
    for (name, major, minor) in DEVICES {
        let (path, all) = (Path::new("/dev").join(name), Mode::from_raw_mode(0o666));
        mknodat(CWD, &path, FileType::CharacterDevice, all, rustix::fs::makedev(major, minor))
            .and_then(|()| rustix::fs::chmod(&path, all))
            .map_err(doing("make", &path))?;
    }
    fs::create_dir("/dev/shm")?;
    for (name, to) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        symlink(Path::new("/proc/self").join(to), Path::new("/dev").join(name))?;
    }
    Ok(())
}

/// Mounts a file, directory or device of the host at its place.
fn bind(Bound { from, to, word }: &Bound) -> io::Result<()> {
    let number: i32 =
        from.to_str().and_then(|n| n.parse().ok()).ok_or_else(|| wrong("a descriptor is not a number"))?;
    // SAFETY: the process that started this one left it open for this, and told its number to nobody else.
    let tree = unsafe { OwnedFd::from_raw_fd(number) };
    if *word == SHOW && fs::symlink_metadata(to).is_ok() {
        return Ok(());
    }
    fs::create_dir_all(to.parent().unwrap_or(Path::new("/")))?;
    let is_dir = FileType::from_raw_mode(rustix::fs::fstat(&tree)?.st_mode) == FileType::Directory;
    if is_dir {
        fs::create_dir(to)?;
    } else {
        File::create(to).map(drop)?;
    }
    move_mount(tree.as_fd(), "", CWD, to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(doing("bind", to))?;
    if *word == SHOW { read_only(to) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(words: &[&str]) -> io::Result<Wanted> {
        wanted(words.iter().map(OsString::from))
    }

    #[test]
    fn arguments_of_a_container() {
        let words = [
            NAME,
            "container-1",
            SCRATCH_MIB,
            "64",
            OWN_NETWORK,
            BIND,
            "/dev/vdb",
            "/run/vmio/d0",
            SHOW,
            "--name",
            "/b",
        ];
        let all = of(&words).unwrap();
        assert_eq!((all.name.as_str(), all.scratch_mib, all.own_network), ("container-1", 64, true));
        let bound = |from: &str, to: &str, word| Bound { from: from.into(), to: to.into(), word };
        let binds = [bound("/dev/vdb", "/run/vmio/d0", BIND), bound("--name", "/b", SHOW)];
        assert_eq!(all.binds, binds, "what stands for a path is one");
        for bad in [&[NAME][..], &[BIND, "/a"], &[SHOW], &[SCRATCH_MIB, "0"], &["--else"]] {
            assert_eq!(of(bad).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{bad:?}");
        }
    }

    #[test]
    fn other_arguments_are_no_container() {
        for words in [&[][..], &["--stdio"], &["--port", WORD]] {
            assert!(serve(words.iter().map(OsString::from)).is_none(), "{words:?}");
        }
        assert!(serve([OsString::from(WORD)].into_iter()).unwrap().is_err());
    }
}
