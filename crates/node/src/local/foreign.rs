//! Files that others control: those of a container below `/proc/PID/root`, those that a command line
//! names. Whoever controls them may put a pipe, a device, an endless file or a link there, or a file
//! system whose server gives no answer. So:
//! - below `/proc/PID/root` links count from that root (openat2(2), `RESOLVE_IN_ROOT`, Linux 5.6);
//! - a path is opened with `O_PATH`, which opens no device and waits for no writer of a pipe, and for
//!   its content only once it is seen to be a file;
//! - it is done by an [`io_worker`](crate::io_worker), which is given up after [`LIMIT`]. A root directory, or a mount
//!   of this machine, that gave no answer is not tried again for [`REST`], so that a look that is repeated leaves few
//!   processes behind.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat};

use crate::FileStat;
use crate::local::look::{Answer, FileQuery, FileReply, look, no_answer};
use crate::machine::{self, lock};

/// Longest time for one of these calls.
const LIMIT: Duration = Duration::from_secs(1);
/// Time for which a silent root directory is not tried again.
const REST: Duration = Duration::from_secs(600);
/// Entries of a directory that are listed.
const MOST_ENTRIES: usize = 1 << 16;

/// Root directories of processes (number and start) that gave no answer, and when.
static SILENT: Mutex<BTreeMap<(u32, Option<u64>), Instant>> = Mutex::new(BTreeMap::new());

/// The same of mounts of this machine.
static SILENT_MOUNTS: Mutex<BTreeMap<PathBuf, Instant>> = Mutex::new(BTreeMap::new());

/// Whole content of a regular file of at most `most` bytes.
pub fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    Ok(in_time(path, FileQuery::Read { most })?.1)
}

/// Names in a directory, in no order.
pub fn list(dir: &Path) -> io::Result<Vec<String>> {
    match in_time(dir, FileQuery::List)? {
        (FileReply::Names(names), _) => Ok(names),
        other => Err(no_answer(&other.0)),
    }
}

/// What a path is, links followed.
pub fn stat(path: &Path) -> io::Result<FileStat> {
    match in_time(path, FileQuery::Stat)? {
        (FileReply::Stat(stat), _) => Ok(stat),
        other => Err(no_answer(&other.0)),
    }
}

/// Where a link points; `None` for what is none.
pub fn link(path: &Path) -> io::Result<Option<PathBuf>> {
    match in_time(path, FileQuery::Link)? {
        (FileReply::Link(true), to) => Ok(Some(PathBuf::from(OsString::from_vec(to)))),
        _ => Ok(None),
    }
}

/// The first part of a path below `above` that is a link, from 1, and where it points; what is not there is none.
pub fn first_link(above: &Path, path: &Path) -> io::Result<Option<(usize, PathBuf)>> {
    match in_time(path, FileQuery::FirstLink { known: above.components().count() })? {
        (FileReply::FirstLink(part), to) => Ok(part.map(|part| (part, PathBuf::from(OsString::from_vec(to))))),
        other => Err(no_answer(&other.0)),
    }
}

/// Bytes of a regular file or block device that the page cache holds.
pub fn cached_bytes(path: &Path) -> io::Result<Option<u64>> {
    match in_time(path, FileQuery::Cached)? {
        (FileReply::Cached(bytes), _) => Ok(bytes),
        other => Err(no_answer(&other.0)),
    }
}

/// [`read`], in this thread.
pub(crate) fn read_here(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, |kind| kind.is_file())?.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is longer than {most} bytes")));
    }
    Ok(bytes)
}

/// [`list`], in this thread.
pub(crate) fn list_here(dir: &Path) -> io::Result<Vec<String>> {
    let at = path_only(dir, OFlags::DIRECTORY)?;
    let entries = fs::read_dir(shown(&at))?.take(MOST_ENTRIES);
    entries.map(|e| Ok(e?.file_name().to_string_lossy().into_owned())).collect()
}

/// [`stat`], in this thread.
pub(crate) fn stat_here(path: &Path) -> io::Result<FileStat> {
    Ok(FileStat::of(&File::from(path_only(path, OFlags::empty())?).metadata()?))
}

/// [`link`], in this thread.
pub(crate) fn link_here(path: &Path) -> io::Result<Option<PathBuf>> {
    let at = File::from(path_only(path, OFlags::NOFOLLOW)?);
    if !at.metadata()?.is_symlink() {
        return Ok(None);
    }
    let to = readlinkat(&at, "", Vec::new())?;
    Ok(Some(PathBuf::from(OsString::from_vec(to.into_bytes()))))
}

/// [`first_link`], in this thread.
pub(crate) fn first_link_here(known: usize, path: &Path) -> io::Result<Option<(usize, PathBuf)>> {
    crate::node::first_link(known, path, |part| match link_here(part) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        other => other,
    })
}

/// [`cached_bytes`], in this thread.
pub(crate) fn cached_bytes_here(path: &Path) -> io::Result<Option<u64>> {
    machine::cached_bytes(&open(path, |kind| kind.is_file() || kind.is_block_device())?)
}

/// Runs a query in a worker.
pub(crate) fn in_time(path: &Path, ask: FileQuery) -> Answer {
    let root = root_of(path).map(|(pid, _)| (pid, machine::start_ticks(pid)));
    let silent = || io::Error::new(ErrorKind::TimedOut, format!("it gave no answer within {} s", LIMIT.as_secs()));
    if root.is_some_and(|root| lock(&SILENT).get(&root).is_some_and(|at| at.elapsed() < REST)) {
        return Err(silent());
    }
    let mount = || machine::may_hang(path).map(|mount| mount.point);
    // Read only where one was silent.
    let resting = !lock(&SILENT_MOUNTS).is_empty() && root.is_none();
    if resting && mount().is_some_and(|at| lock(&SILENT_MOUNTS).get(&at).is_some_and(|at| at.elapsed() < REST)) {
        return Err(silent());
    }
    let answer = look(ask, path, LIMIT);
    if answer.as_ref().is_err_and(|e| e.kind() == ErrorKind::TimedOut) {
        match root {
            Some(root) => drop(lock(&SILENT).insert(root, Instant::now())),
            None => drop(mount().map(|at| lock(&SILENT_MOUNTS).insert(at, Instant::now()))),
        }
    }
    answer
}

/// The process and what comes after it in `/proc/PID/root/…`.
fn root_of(path: &Path) -> Option<(u32, &Path)> {
    let mut parts = path.components();
    let fixed = [Component::RootDir, Component::Normal("proc".as_ref())];
    let begins = fixed.iter().all(|part| parts.next().as_ref() == Some(part));
    let pid = parts.next().filter(|_| begins)?.as_os_str().to_str()?.parse().ok()?;
    (parts.next()?.as_os_str() == "root").then_some((pid, parts.as_path()))
}

/// A descriptor that only names what is there.
pub(crate) fn path_only(path: &Path, more: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let Some((pid, inner)) = root_of(path) else { return Ok(openat(CWD, path, flags | more, Mode::empty())?) };
    let root = openat(CWD, format!("/proc/{pid}/root"), flags | OFlags::DIRECTORY, Mode::empty())?;
    let inner = if inner.as_os_str().is_empty() { Path::new(".") } else { inner };
    Ok(openat2(&root, inner, flags | more, Mode::empty(), ResolveFlags::IN_ROOT)?)
}

/// Opens for reading what is of a kind.
fn open(path: &Path, kind: impl FnOnce(fs::FileType) -> bool) -> io::Result<File> {
    let at = File::from(path_only(path, OFlags::empty())?);
    if !kind(at.metadata()?.file_type()) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(File::from(openat(CWD, shown(&at), flags, Mode::empty())?))
}

/// A descriptor as a path.
pub(crate) fn shown(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn pipes_devices_and_endless_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        rustix::fs::mkfifoat(CWD, at("pipe"), Mode::RWXU).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
        fs::write(at("file"), "1234").unwrap();
        for name in ["pipe", "zero", "."] {
            assert_eq!(read(&at(name), 10).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
        }
        assert_eq!(read(&at("file"), 4).unwrap(), b"1234");
        assert_eq!(read(&at("file"), 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(link(&at("zero")).unwrap(), Some("/dev/zero".into()));
        assert_eq!(link(&at("file")).unwrap(), None);
        assert_eq!(link(&at("none")).unwrap_err().kind(), ErrorKind::NotFound);
        std::os::unix::fs::symlink(".", at("here")).unwrap();
        let first = |path: &str| first_link(dir.path(), &at(path)).unwrap();
        assert_eq!((first("here/zero"), first("zero")), (Some((1, ".".into())), Some((1, "/dev/zero".into()))));
        assert_eq!((first("none/zero"), first("file/zero"), first("")), (None, None, None));
        assert_eq!(first_link(&at("here"), &at("here/zero")).unwrap(), Some((1, "/dev/zero".into())));
        let mut names = list(dir.path()).unwrap();
        names.sort();
        assert_eq!(names, ["file", "here", "pipe", "zero"]);
        assert!(stat(&at("pipe")).unwrap().mode & 0o170000 == 0o010000);
        assert_eq!(cached_bytes(&at("pipe")).unwrap_err().kind(), ErrorKind::InvalidInput);
        // What the kernel writes has a length of 0.
        assert!(!read(Path::new("/proc/self/status"), 1 << 20).unwrap().is_empty());
    }

    #[test]
    fn roots_of_processes_are_known() {
        assert_eq!(root_of(Path::new("/proc/8/root/etc/a")), Some((8, Path::new("etc/a"))));
        assert_eq!(root_of(Path::new("/proc/8/root")), Some((8, Path::new(""))));
        for other in ["/proc/self/root/x", "/proc/8/rootx", "/proc/8/cwd/a", "/a/proc/8/root", "proc/8/root"] {
            assert_eq!(root_of(Path::new(other)), None, "{other}");
        }
        // Our own root.
        let here = PathBuf::from(format!("/proc/{}/root", std::process::id()));
        assert!(stat(&here).unwrap().is_directory());
        assert_eq!(read(&here.join("proc/version"), 1 << 16).unwrap(), fs::read("/proc/version").unwrap());
        assert_eq!(stat(&here.join("nowhere")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
