//! A file in the making, beside the one that it becomes. It is this user's alone, and is kept when a transfer is cut
//! off. It gets its name only when it is whole and on the disk.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, flock, fstat, fsync, linkat, open, openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::{Error, Result, file_error};

/// What its name adds to that of the file.
const END: &str = ".vmio-partial";
/// Bits of a mode that let others in.
const OTHERS: u32 = 0o077;

/// The file.
pub(super) struct Partial {
    dir: OwnedFd,
    target: PathBuf,
    /// Its name in the directory.
    name: OsString,
    /// That of the target.
    target_name: OsString,
    pub file: File,
    pub path: PathBuf,
    /// How long it was found; bytes behind were never written.
    pub known_bytes: u64,
}

impl Partial {
    /// Opens the one that an earlier try left, or makes it.
    pub(super) fn open(target: &Path) -> Result<Self> {
        let unnamed = || file_error("make", target)(io::ErrorKind::IsADirectory.into());
        let target_name = target.file_name().ok_or_else(unnamed)?;
        let parent = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = open(parent, flags, Mode::empty()).map_err(|e| file_error("open", parent)(e.into()))?;
        if statat(&dir, target_name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(Error::Exists { path: target.into() });
        }
        let mut name = OsString::from(".");
        name.push(target_name);
        name.push(END);
        let path = parent.join(&name);
        let failed = |e: Errno| file_error("open", &path)(e.into());
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(openat(&dir, &name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?);
        let stat = fstat(&file).map_err(failed)?;
        let foreign = |why| Err(Error::Foreign { path: path.clone(), why });
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return foreign("it is no file");
        }
        if stat.st_uid != geteuid().as_raw() {
            return foreign("it belongs to another");
        }
        if stat.st_mode & OTHERS != 0 {
            return foreign("others may read or write it");
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(Error::Busy { path: target.into() }),
            locked => locked.map_err(failed)?,
        }
        // Who had the lock may have given it its name meanwhile.
        let named = statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        let stat = fstat(&file).map_err(failed)?;
        if (named.st_dev, named.st_ino) != (stat.st_dev, stat.st_ino) {
            return Err(Error::Busy { path: target.into() });
        }
        if stat.st_nlink != 1 {
            return foreign("it has a second name");
        }
        let known_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        let (target, target_name) = (target.to_owned(), target_name.to_owned());
        Ok(Partial { dir, target, name, target_name, file, path, known_bytes })
    }

    /// Gives it its size and its name, once all of it is on the disk.
    pub(super) fn publish(self, size_bytes: u64) -> Result<()> {
        let Partial { dir, target, name, target_name, file, path, .. } = self;
        file.set_len(size_bytes).map_err(file_error("write", &path))?;
        file.sync_all().map_err(file_error("write", &path))?;
        // By the descriptor: whoever may write the directory could have exchanged the name.
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        match linkat(CWD, &*own, &dir, &target_name, AtFlags::SYMLINK_FOLLOW) {
            Err(Errno::EXIST) => return Err(Error::Exists { path: target }),
            linked => linked.map_err(|e| file_error("make", &target)(e.into()))?,
        }
        unlinkat(&dir, &name, AtFlags::empty()).map_err(|e| file_error("remove", &path)(e.into()))?;
        fsync(&dir).map_err(|e| file_error("write", &target)(e.into()))
    }
}
