//! Files and directories by descriptor. Whoever may write a directory of a path may exchange the file behind it at any
//! time, while a descriptor stays the same file. So vmio makes files relative to a directory that it holds, hands them
//! to its programs as the name of a descriptor ([`by_descriptor`]), and removes them only if they are the same
//! ([`Identity`]).

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, openat, openat2, readlinkat, statat, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::journal::change::SCRATCH_MARKER;

/// Identity of a file or directory (`st_dev` and `st_ino` of stat(2)), unique while it exists. A device may have
/// another number after the next boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Number of the device that its file system is on.
    pub dev: u64,
    /// Its number there.
    pub ino: u64,
}

impl Identity {
    /// Of what a descriptor names.
    ///
    /// # Errors
    /// Of fstat(2).
    pub fn of(fd: impl AsFd) -> io::Result<Self> {
        Ok(Self::from_stat(&fstat(fd)?))
    }

    pub(crate) fn from_stat(stat: &Stat) -> Self {
        Self { dev: stat.st_dev, ino: stat.st_ino }
    }

    /// Whether it is the same; after a reboot the device number is ignored.
    pub(crate) fn same(self, other: Self, same_boot: bool) -> bool {
        self.ino == other.ino && (self.dev == other.dev || !same_boot)
    }
}

/// Opens a directory whose path has no links in it, at no level. It is held for names below it, not
/// for its list of names.
///
/// # Errors
/// Of openat2(2); `ELOOP` where a part of the path is a link.
pub fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

/// As [`open_dir`] where the path may have links: directories that vmio's own user has chosen.
pub(crate) fn follow_dir(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a directory in one that is held, or makes it. Says whether it was made.
///
/// # Errors
/// Of mkdirat(2) and openat(2); `ENOTDIR` or `ELOOP` where it is something else than a directory.
pub fn make_dir(parent: impl AsFd, name: &OsStr, mode: u32) -> io::Result<(OwnedFd, bool)> {
    let made = match mkdirat(&parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(e) => return Err(e.into()),
    };
    Ok((dir_in(parent.as_fd(), name)?, made))
}

pub(crate) fn dir_in(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Makes a directory of mode 0700 that bears the owner's mark. Between the two calls that make and
/// open it, who owns the directory above may put another in its place: it is ours when a file that
/// is made in it has the same owner, and nobody else may write it. (Who that is depends: a file
/// server may make everything somebody else's.)
pub(crate) fn make_scratch_dir(parent: &OwnedFd, name: &OsStr, cookie: &str) -> io::Result<OwnedFd> {
    mkdirat(parent, name, Mode::RWXU)?;
    let undo = |e: io::Error| {
        let _ = unlinkat(parent, name, AtFlags::REMOVEDIR);
        e
    };
    let dir = dir_in(parent.as_fd(), name).map_err(undo)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let marked = (|| {
        let mut marker = File::from(openat(&dir, SCRATCH_MARKER, flags, Mode::RUSR | Mode::WUSR)?);
        let (ours, made) = (fstat(&marker)?, fstat(&dir)?);
        if ours.st_uid != made.st_uid || made.st_mode & 0o022 != 0 {
            return Err(io::Error::new(
                ErrorKind::PermissionDenied,
                "another user replaced the new directory, or may write it",
            ));
        }
        marker.write_all(format!("{cookie}\n").as_bytes())
    })();
    match marked {
        Ok(()) => Ok(dir),
        Err(e) => {
            let _ = unlinkat(&dir, SCRATCH_MARKER, AtFlags::empty());
            Err(undo(e))
        }
    }
}

/// Makes a new, empty file of mode 0600.
pub(crate) fn make_file(parent: impl AsFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Stat of a name in a directory, links not followed; `None` where it does not exist.
pub(crate) fn stat_in(parent: impl AsFd, name: &OsStr) -> io::Result<Option<Stat>> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// A path that names what a descriptor of this process names, for every program of the same user: it
/// opens the very file, whatever its names say by now (proc_pid_fd(5)). It is good while this process
/// has the descriptor.
///
/// # Errors
/// When /proc is not that of this process.
pub fn by_descriptor(fd: impl AsFd) -> io::Result<PathBuf> {
    // This process's number in /proc, which in a container may be of another PID namespace.
    let own = fs::read_link("/proc/self")?;
    let path = Path::new("/proc").join(own).join("fd").join(fd.as_fd().as_raw_fd().to_string());
    if Identity::from_stat(&rustix::fs::stat(&path)?) == Identity::of(fd)? {
        return Ok(path);
    }
    Err(io::Error::new(ErrorKind::NotFound, format!("{} is another file", path.display())))
}

/// For people: the name that the file of such a path has now; any other path as it is.
pub fn shown(path: &Path) -> PathBuf {
    let by_descriptor = path.parent().is_some_and(|p| p.starts_with("/proc") && p.ends_with("fd"));
    match fs::read_link(path) {
        Ok(name) if by_descriptor => name,
        _ => path.to_owned(),
    }
}

/// What a path leads to instead of the file that was made there; `now` is the path of that file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Astray {
    #[error("it cannot be examined: {0}")]
    Unseen(Errno),
    #[error("it was deleted")]
    Deleted,
    #[error("another file has taken its place{}", lies(now.as_deref()))]
    OtherFile { now: Option<PathBuf> },
    #[error("a link has taken its place, or that of a directory above it{}", lies(now.as_deref()))]
    Link { now: Option<PathBuf> },
    #[error("its name is gone{}", lies(now.as_deref()))]
    Gone { now: Option<PathBuf> },
    #[error("its name cannot be followed: {0}")]
    NotFollowed(Errno),
}

fn lies(now: Option<&Path>) -> String {
    now.map_or_else(String::new, |now| format!("; what vmio made is now {}", now.display()))
}

/// Checks that a path without links still leads to the file of a descriptor.
///
/// # Errors
/// What it leads to instead.
pub fn leads_to(path: &Path, fd: impl AsFd) -> Result<(), Astray> {
    let held = fstat(&fd).map_err(Astray::Unseen)?;
    if held.st_nlink == 0 {
        return Err(Astray::Deleted);
    }
    let found = openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let now = || place_of(&fd);
    match found.and_then(fstat) {
        Ok(found) if Identity::from_stat(&found) == Identity::from_stat(&held) => Ok(()),
        Ok(_) => Err(Astray::OtherFile { now: now() }),
        Err(Errno::LOOP) => Err(Astray::Link { now: now() }),
        Err(Errno::NOENT | Errno::NOTDIR) => Err(Astray::Gone { now: now() }),
        Err(e) => Err(Astray::NotFollowed(e)),
    }
}

/// Current path of a descriptor's file; `None` where it was deleted.
pub(crate) fn place_of(fd: impl AsFd) -> Option<PathBuf> {
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let target = readlinkat(CWD, link, Vec::new()).ok()?;
    let place = PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes()));
    (fstat(&fd).ok()?.st_nlink > 0 && !place.as_os_str().as_bytes().ends_with(b" (deleted)")).then_some(place)
}

#[cfg(test)]
#[path = "held_tests.rs"]
mod tests;
