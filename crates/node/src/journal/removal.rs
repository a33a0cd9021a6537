//! Removes files and directories that vmio made, in directories whose owner may have replaced them: only the same inode
//! is removed, through descriptors. A renamed one is searched, and one that cannot be found is reported.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, unlinkat};
use rustix::io::Errno;

use crate::journal::change::SCRATCH_MARKER;
use crate::journal::error::NotUndone;
use crate::journal::held::{Identity, dir_in, follow_dir, open_dir, place_of, stat_in};

/// Longest content of a marker that is read.
const MARKER_BYTES: u64 = 4096;
/// Entries of a directory that are looked through for one that was renamed.
const MOST_ENTRIES: usize = 1 << 16;
/// Directories below each other that are emptied.
const DEEPEST: u32 = 64;

/// Removes a file, in the directory `held` or in that of its path. If the identity was recorded, another file in its
/// place is left alone, unless only this user can have put it there.
pub(crate) fn remove_file(
    path: &Path,
    made: Option<Identity>,
    same_boot: bool,
    held: Option<&OwnedFd>,
) -> Result<(), NotUndone> {
    let failed = NotUndone::cannot("remove", path);
    let Some((parent, name)) = parent_of(path, held).map_err(failed)? else { return Ok(()) };
    let Some(found) = stat_in(&parent, name).map_err(failed)? else { return Ok(()) };
    if made.is_some_and(|made| !made.same(Identity::from_stat(&found), same_boot)) && !only_ours(&parent) {
        return Err(NotUndone::OtherFile(path.to_owned()));
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
    /// Its identity, if it was recorded.
    pub made: Option<Identity>,
    /// Whether that was in this boot.
    pub same_boot: bool,
    /// It, while the owner lives.
    pub held: Option<&'a OwnedFd>,
}

impl OurDir<'_> {
    /// Removes it with its content; without the owner's mark only when it is empty. Searches it if it was renamed.
    pub(crate) fn remove(&self) -> Result<(), NotUndone> {
        let failed = NotUndone::cannot("remove", self.path);
        let here = || self.path.to_owned();
        // Without a note of which it is, the path is all there is: one that leads over a link now is not
        // followed.
        let held = match (self.made, self.path.parent()) {
            (None, Some(above)) => match open_dir(above) {
                Err(e) if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => return Err(failed(e)),
                other => other.ok(),
            },
            _ => None,
        };
        let Some((parent, name)) = parent_of(self.path, held.as_ref()).map_err(failed)? else {
            return self.find(None, None);
        };
        let found = stat_in(&parent, name).map_err(failed)?;
        let Some(found) = found else { return self.find(Some(&parent), None) };
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            return self.find(Some(&parent), Some(NotUndone::NoDirectory(here())));
        }
        let dir = dir_in(parent.as_fd(), name).map_err(failed)?;
        match self.is_ours(&dir) {
            Ok(true) => self.take(&parent, name, &dir),
            Ok(false) if self.made.is_some() && !self.is_made(&found) => {
                self.find(Some(&parent), Some(NotUndone::OtherDirectory(here())))
            }
            Ok(false) => {
                if is_begun(&dir, &found).map_err(failed)? {
                    unlinkat(&dir, SCRATCH_MARKER, AtFlags::empty()).map_err(|e| failed(e.into()))?;
                }
                match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => Ok(()),
                    Err(Errno::NOTEMPTY | Errno::EXIST) => Err(NotUndone::Unmarked(here())),
                    Err(e) => Err(failed(e.into())),
                }
            }
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
    fn take(&self, parent: &OwnedFd, name: &OsStr, dir: &OwnedFd) -> Result<(), NotUndone> {
        let failed = NotUndone::cannot("remove", self.path);
        // What is mounted inside belongs to somebody else.
        let mounts = crate::machine::own_mounts().map_err(NotUndone::Mounts)?;
        if let Some(mount) = mounts.into_iter().map(|m| m.point).find(|point| point.starts_with(self.path)) {
            return Err(NotUndone::MountedInside { path: self.path.to_owned(), mount });
        }
        empty(dir.as_fd(), DEEPEST).map_err(failed)?;
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(failed(e.into())),
        }
    }

    /// Searches a directory that is not at its path; an error if it was made and cannot be found. `instead` is what is
    /// at its path.
    fn find(&self, parent: Option<&OwnedFd>, instead: Option<NotUndone>) -> Result<(), NotUndone> {
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
                // The one in its place is foreign; reporting it at each start would not help.
                return Ok(());
            }
            return Err(NotUndone::Moved { path: self.path.to_owned(), to: place, emptied });
        }
        let top = self.path.ancestors().skip(1).find(|p| p.exists()).unwrap_or(Path::new("/"));
        let look = crate::machine::mount_point_of(top).unwrap_or_else(|| top.to_owned());
        Err(NotUndone::Lost { path: self.path.to_owned(), replaced: instead.is_some(), top: look, inode: made.ino })
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

/// Whether the owner was killed between making the mark and writing it: an empty mark is all there is in it.
fn is_begun(dir: &OwnedFd, found: &Stat) -> io::Result<bool> {
    for entry in list(dir.as_fd())? {
        if ![b".".as_slice(), b"..", SCRATCH_MARKER.as_bytes()].contains(&entry?.file_name().to_bytes()) {
            return Ok(false);
        }
    }
    let own = found.st_uid == rustix::process::geteuid().as_raw();
    let mark = stat_in(dir, OsStr::new(SCRATCH_MARKER))?;
    let is_empty = |m: &Stat| m.st_size == 0 && FileType::from_raw_mode(m.st_mode) == FileType::RegularFile;
    Ok(own && mark.is_some_and(|mark| mark.st_uid == found.st_uid && is_empty(&mark)))
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
