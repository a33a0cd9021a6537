//! Files and directories by descriptor. A path names whatever its directories hold at the moment, and
//! who may write one of them may exchange it at any time; a descriptor names one file for good. So what
//! vmio makes is made relative to a directory that it holds, is handed to its programs as the name of
//! a descriptor ([`by_descriptor`]), and is taken away only where it is found to be the same
//! ([`Identity`]).

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::fs::{fstat, mkdirat, openat, openat2, readlinkat, statat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::change::SCRATCH_MARKER;

/// Longest content of a marker that is read.
const MARKER_BYTES: u64 = 4096;
/// Entries of a directory that are looked through for one that was renamed.
const MOST_ENTRIES: usize = 1 << 16;
/// Directories below each other that are emptied.
const DEEPEST: u32 = 64;

/// Which file or directory it is: no other has both numbers while it is there (`st_dev` and `st_ino`
/// of stat(2)). A device may have another number after the next boot.
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

    fn from_stat(stat: &Stat) -> Self {
        Self { dev: stat.st_dev, ino: stat.st_ino }
    }

    /// Whether it is the same, by what still counts after a reboot.
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

fn dir_in(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
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
                "another user put a directory of their own in the place of the new one, or may write it",
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

/// What a directory has under a name, links not followed; `None` for nothing.
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
    // What /proc calls this process: in a container it may be another's /proc.
    let own = fs::read_link("/proc/self")?;
    let path = Path::new("/proc").join(own).join("fd").join(fd.as_fd().as_raw_fd().to_string());
    match Identity::from_stat(&rustix::fs::stat(&path)?) == Identity::of(fd)? {
        true => Ok(path),
        false => Err(io::Error::new(ErrorKind::NotFound, format!("{} is another file", path.display()))),
    }
}

/// For people: the name that the file of such a path has now; any other path as it is.
pub fn shown(path: &Path) -> PathBuf {
    let by_descriptor = path.parent().is_some_and(|p| p.starts_with("/proc") && p.ends_with("fd"));
    match fs::read_link(path) {
        Ok(name) if by_descriptor => name,
        _ => path.to_owned(),
    }
}

/// Whether a path without links still leads to what a descriptor names.
///
/// # Errors
/// In words, what it leads to instead.
pub fn leads_to(path: &Path, fd: impl AsFd) -> Result<(), String> {
    let held = fstat(&fd).map_err(|e| format!("it cannot be looked at: {e}"))?;
    if held.st_nlink == 0 {
        return Err("it was deleted".into());
    }
    let found = openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let now = || place_of(&fd).map_or_else(String::new, |now| format!("; what vmio made is now {}", now.display()));
    match found.map(Identity::of) {
        Ok(Ok(found)) if found == Identity::from_stat(&held) => Ok(()),
        Ok(Ok(_)) => Err(format!("another file stands in its place{}", now())),
        Err(Errno::LOOP) => Err(format!("a link stands in its place, or in that of a directory above it{}", now())),
        Err(Errno::NOENT | Errno::NOTDIR) => Err(format!("its name is gone{}", now())),
        Err(e) => Err(format!("its name cannot be followed: {e}")),
        Ok(Err(e)) => Err(format!("its name cannot be followed: {e}")),
    }
}

/// Where what a descriptor names lies now; `None` where it was deleted.
fn place_of(fd: impl AsFd) -> Option<PathBuf> {
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let target = readlinkat(CWD, link, Vec::new()).ok()?;
    let place = PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes()));
    (fstat(&fd).ok()?.st_nlink > 0 && !place.as_os_str().as_bytes().ends_with(b" (deleted)")).then_some(place)
}

/// Takes a file away, in the directory that `held` names or in that of its path. Where it was noted
/// what was made, another file in its place is left alone, unless only this user can have put it there.
pub(crate) fn remove_file(
    path: &Path,
    made: Option<Identity>,
    same_boot: bool,
    held: Option<&OwnedFd>,
) -> Result<(), String> {
    let here = path.display();
    let failed = |e: io::Error| format!("cannot remove {here}: {e}");
    let Some((parent, name)) = parent_of(path, held).map_err(failed)? else { return Ok(()) };
    let Some(found) = stat_in(&parent, name).map_err(failed)? else { return Ok(()) };
    if made.is_some_and(|made| !made.same(Identity::from_stat(&found), same_boot)) && !only_ours(&parent) {
        return Err(format!("{here} is no longer what vmio made there; it was left alone: see who put it there"));
    }
    match unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(failed(e.into())),
    }
}

/// The directory that holds a path, and the name in it; `None` where that directory is not there.
fn parent_of<'a>(path: &'a Path, held: Option<&OwnedFd>) -> io::Result<Option<(OwnedFd, &'a OsStr)>> {
    let invalid = || io::Error::from(ErrorKind::InvalidInput);
    let (above, name) = (path.parent().ok_or_else(invalid)?, path.file_name().ok_or_else(invalid)?);
    let opened = held.map_or_else(|| follow_dir(above), |held| held.try_clone());
    match opened {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        other => Ok(Some((other?, name))),
    }
}

/// Whether nobody but this user can make names in a directory.
fn only_ours(dir: &OwnedFd) -> bool {
    fstat(dir).is_ok_and(|s| s.st_uid == rustix::process::geteuid().as_raw() && s.st_mode & 0o022 == 0)
}

/// A directory that was made for an owner.
pub(crate) struct OurDir<'a> {
    /// Where.
    pub path: &'a Path,
    /// Cookie of the owner, which its marker holds.
    pub cookie: &'a str,
    /// Which it is, where that was noted.
    pub made: Option<Identity>,
    /// Whether that was in this boot.
    pub same_boot: bool,
    /// It, while the owner lives.
    pub held: Option<&'a OwnedFd>,
}

impl OurDir<'_> {
    /// Takes it away with all that is in it; where it does not bear the owner's mark, only when it is
    /// empty. One that was renamed is looked for.
    pub(crate) fn remove(&self) -> Result<(), String> {
        let here = self.path.display();
        let failed = |e: io::Error| format!("cannot remove {here}: {e}");
        let Some((parent, name)) = parent_of(self.path, None).map_err(failed)? else { return self.find(None, None) };
        let found = stat_in(&parent, name).map_err(failed)?;
        let Some(found) = found else { return self.find(Some(&parent), None) };
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            return self.find(Some(&parent), Some(format!("{here} is no longer a directory; it was left alone")));
        }
        let dir = dir_in(parent.as_fd(), name).map_err(failed)?;
        match self.is_ours(&dir) {
            Ok(true) => self.take(&parent, name, &dir),
            Ok(false) => match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
                // An empty one of the same name is no loss, but may not be the one that was made.
                Ok(()) if self.made.is_none() || self.is_made(&found) => Ok(()),
                Ok(()) => self.find(Some(&parent), None),
                Err(Errno::NOTEMPTY | Errno::EXIST) => self.find(
                    Some(&parent),
                    Some(format!("{here} holds files but no {SCRATCH_MARKER} of this owner; it was left alone")),
                ),
                Err(Errno::NOENT) => Ok(()),
                Err(e) => Err(failed(e.into())),
            },
            Err(e) => Err(failed(e)),
        }
    }

    fn is_made(&self, stat: &Stat) -> bool {
        self.made.is_some_and(|made| made.same(Identity::from_stat(stat), self.same_boot))
    }

    /// Whether it bears the mark, and nobody else can have set that.
    fn is_ours(&self, dir: &OwnedFd) -> io::Result<bool> {
        let stat = fstat(dir)?;
        let own = stat.st_uid == rustix::process::geteuid().as_raw();
        if !own && self.made.is_some() && !self.is_made(&stat) {
            return Ok(false);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let marker = match openat(dir, SCRATCH_MARKER, flags, Mode::empty()) {
            Ok(marker) => File::from(marker),
            Err(Errno::NOENT | Errno::LOOP | Errno::ACCESS | Errno::NXIO) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        let seen = fstat(&marker)?;
        if FileType::from_raw_mode(seen.st_mode) != FileType::RegularFile || seen.st_uid != stat.st_uid {
            return Ok(false);
        }
        let mut text = String::new();
        Ok(marker.take(MARKER_BYTES).read_to_string(&mut text).is_ok() && text.trim() == self.cookie)
    }

    /// Empties it and removes its name.
    fn take(&self, parent: &OwnedFd, name: &OsStr, dir: &OwnedFd) -> Result<(), String> {
        let here = self.path.display();
        let failed = |e: io::Error| format!("cannot remove {here}: {e}");
        // What is mounted inside belongs to somebody else.
        let mounts = crate::machine::mount_points().map_err(|e| format!("cannot read the mounts: {e}"))?;
        if let Some(mount) = mounts.iter().find(|m| m.starts_with(self.path)) {
            return Err(format!("{here} was not removed: {} is mounted in it; unmount that first", mount.display()));
        }
        empty(dir.as_fd(), DEEPEST).map_err(failed)?;
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(failed(e.into())),
        }
    }

    /// It is not where it was made: looks for it, and says so where it cannot be found. What an owner
    /// never came to make is no loss. `instead` is what was found in its place.
    fn find(&self, parent: Option<&OwnedFd>, instead: Option<String>) -> Result<(), String> {
        let Some(made) = self.made else { return instead.map_or(Ok(()), Err) };
        let elsewhere = match self.held {
            Some(held) => match place_of(held) {
                Some(place) => Some((held.try_clone(), place)),
                // Deleted: nothing is left of it.
                None => return Ok(()),
            },
            None => parent.and_then(|parent| self.beside(parent)).map(|(dir, place)| (Ok(dir), place)),
        };
        if let Some((Ok(dir), place)) = elsewhere {
            let emptied = empty(dir.as_fd(), DEEPEST).is_ok();
            let above = place.parent().and_then(|p| follow_dir(p).ok());
            let name = place.file_name().unwrap_or_default();
            let there = above.as_ref().and_then(|above| stat_in(above, name).ok().flatten());
            if let (Some(above), Some(_)) = (&above, there.filter(|s| self.is_made(s)))
                && unlinkat(above, name, AtFlags::REMOVEDIR).is_ok()
            {
                // What stands in its place is none of ours to tell again at each start.
                return Ok(());
            }
            let left = if emptied { "it was emptied; " } else { "" };
            return Err(format!(
                "{} was moved to {}: {left}remove it there with `rm -r`",
                self.path.display(),
                place.display()
            ));
        }
        let top = self.path.ancestors().skip(1).find(|p| p.exists()).unwrap_or(Path::new("/"));
        let look = crate::machine::mount_point_of(top).unwrap_or_else(|| top.to_owned());
        Err(format!(
            "{} is {}: look for what vmio made there with `find {} -xdev -inum {}` and remove it",
            self.path.display(),
            if instead.is_some() { "not what vmio made" } else { "not there any more" },
            look.display(),
            made.ino,
        ))
    }

    /// A directory beside its place that is the one, under another name.
    fn beside(&self, parent: &OwnedFd) -> Option<(OwnedFd, PathBuf)> {
        let entries = list(parent.as_fd()).ok()?.flatten().take(MOST_ENTRIES);
        for entry in entries {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if entry.file_type() != FileType::Directory || name == "." || name == ".." {
                continue;
            }
            let Ok(dir) = dir_in(parent.as_fd(), name) else { continue };
            if fstat(&dir).is_ok_and(|s| self.is_made(&s)) && self.is_ours(&dir).unwrap_or(false) {
                return Some((dir, self.path.parent()?.join(name)));
            }
        }
        None
    }
}

/// What is in a directory that is held by name only.
fn list(dir: BorrowedFd<'_>) -> io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(Dir::new(openat(dir, ".", flags, Mode::empty())?)?)
}

/// Removes all that is in a directory, links not followed and no other file system entered. The mark
/// goes last, so that a removal that breaks off can be taken up again.
fn empty(dir: BorrowedFd<'_>, levels: u32) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in list(dir)? {
        let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    names.sort_by_key(|n| n == SCRATCH_MARKER);
    for name in names {
        match unlinkat(dir, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            // POSIX has EPERM where Linux has EISDIR.
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(e) => return Err(e.into()),
        }
        if levels == 0 {
            return Err(io::Error::other(format!("it holds more than {DEEPEST} directories below each other")));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
        let inner = openat2(dir, &name, flags, Mode::empty(), resolve)?;
        empty(inner.as_fd(), levels - 1)?;
        unlinkat(dir, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "held_tests.rs"]
mod tests;
