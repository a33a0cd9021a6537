//! Volumes that are files: a raw one each, in a directory of this user's alone. A file takes its name only when its
//! bytes are reserved and synced, so a crash leaves either the whole volume or none.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FallocateFlags, FileType, Mode, OFlags, RenameFlags, copy_file_range, fallocate, fstat, fstatvfs,
    fsync, ftruncate, openat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::store::Store;
use super::{BLOCK, Error, Name, Result, Volume, file_error};

/// What is behind the name of a volume.
const SUFFIX: &str = ".raw";
/// A volume that is being made; no name of a volume starts with a dot.
const UNFINISHED: &str = ".unfinished";
/// Bytes that the kernel copies in one call.
const AT_ONCE: usize = 64 << 20;

/// The files of a directory.
pub(super) struct Files {
    path: PathBuf,
    directory: OwnedFd,
}

fn file(name: &Name) -> String {
    format!("{name}{SUFFIX}")
}

impl Files {
    /// Those of a directory that is open.
    pub(super) fn new(path: &Path, directory: &OwnedFd) -> Result<Self> {
        let failed = |source| Error::File { what: "open", path: path.into(), source };
        Ok(Files { path: path.into(), directory: directory.try_clone().map_err(failed)? })
    }

    /// A file takes the name of a volume when `fill` is done and its bytes are synced.
    fn make(&self, name: &Name, fill: impl FnOnce(&OwnedFd) -> Result<()>) -> Result<()> {
        // What a crash left of an earlier one goes first.
        match unlinkat(&self.directory, UNFINISHED, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(self.failed("remove", UNFINISHED, e)),
        }
        let made = self.write(name, fill);
        if made.is_err() {
            let _ = unlinkat(&self.directory, UNFINISHED, AtFlags::empty());
        }
        made
    }

    fn write(&self, name: &Name, fill: impl FnOnce(&OwnedFd) -> Result<()>) -> Result<()> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let made = openat(&self.directory, UNFINISHED, flags, mode).map_err(|e| self.failed("make", UNFINISHED, e))?;
        fill(&made)?;
        fsync(&made).map_err(|e| self.failed("sync", &file(name), e))?;
        let flags = RenameFlags::NOREPLACE;
        match renameat_with(&self.directory, UNFINISHED, &self.directory, file(name), flags) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(Error::Exists(name.clone())),
            Err(e) => return Err(self.failed("name", &file(name), e)),
        }
        fsync(&self.directory).map_err(|e| self.failed("sync", "", e))
    }

    /// Reserves the first bytes of a file, of which so many are new.
    fn reserve(&self, file: &OwnedFd, flags: FallocateFlags, bytes: u64, new: u64) -> Result<()> {
        // Some file systems would take all that is left before they refuse.
        let space = fstatvfs(file).map_err(|e| self.failed("see the space of", "", e))?;
        // A tmpfs without a limit has no size.
        if space.f_blocks > 0 && space.f_bavail.saturating_mul(space.f_frsize) < new {
            return Err(Error::NoSpace { path: self.path.clone(), bytes: new });
        }
        fallocate(file, flags, 0, bytes).map_err(|e| match e {
            Errno::NOSPC | Errno::FBIG | Errno::DQUOT => Error::NoSpace { path: self.path.clone(), bytes: new },
            e => self.failed("reserve", "", e),
        })
    }

    fn failed(&self, what: &'static str, file: &str, e: Errno) -> Error {
        file_error(what, self.path.join(file), e)
    }
}

impl Store for Files {
    fn fitted(&self, bytes: u64) -> Result<u64> {
        if bytes == 0 || !bytes.is_multiple_of(BLOCK) { Err(Error::Size(bytes)) } else { Ok(bytes) }
    }

    /// Files that are no volumes are left out.
    fn list(&self) -> Result<Vec<Volume>> {
        let mut volumes = Vec::new();
        for entry in Dir::read_from(&self.directory).map_err(|e| self.failed("read", "", e))? {
            let entry = entry.map_err(|e| self.failed("read", "", e))?;
            let stem = entry.file_name().to_str().ok().and_then(|file| file.strip_suffix(SUFFIX));
            let Some(name) = stem.and_then(|stem| stem.parse::<Name>().ok()) else { continue };
            match self.open(&name) {
                Ok((_, bytes)) => volumes.push(Volume { name, bytes }),
                // It was deleted meanwhile.
                Err(Error::Missing(_)) => {}
                Err(e) => return Err(e),
            }
        }
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(volumes)
    }

    fn open(&self, name: &Name) -> Result<(OwnedFd, u64)> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&self.directory, file(name), flags, Mode::empty()).map_err(|e| match e {
            // Of these the latter are a link and a directory.
            Errno::NOENT | Errno::LOOP | Errno::ISDIR => Error::Missing(name.clone()),
            e => self.failed("open", &file(name), e),
        })?;
        let stat = fstat(&opened).map_err(|e| self.failed("read", &file(name), e))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::Missing(name.clone()));
        }
        Ok((opened, stat.st_size.cast_unsigned()))
    }

    fn size(&self, name: &Name) -> Option<u64> {
        self.open(name).ok().map(|(_, bytes)| bytes)
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.path.join(file(name))
    }

    /// Its bytes are reserved.
    fn create(&self, name: &Name, bytes: u64) -> Result<()> {
        self.make(name, |file| self.reserve(file, FallocateFlags::empty(), bytes, bytes))
    }

    /// File systems that share blocks (XFS, Btrfs) copy none.
    fn copy(&self, (name, source, bytes): (&Name, &OwnedFd, u64), new: &Name) -> Result<()> {
        self.make(new, |to| {
            let (mut read, mut written) = (0, 0);
            while written < bytes {
                let count = usize::try_from(bytes - written).unwrap_or(AT_ONCE).min(AT_ONCE);
                match copy_file_range(source, Some(&mut read), to, Some(&mut written), count) {
                    Ok(0) => return Err(self.failed("copy the whole of", &file(name), Errno::IO)),
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(Errno::NOSPC | Errno::FBIG | Errno::DQUOT) => {
                        return Err(Error::NoSpace { path: self.path.clone(), bytes });
                    }
                    Err(e) => return Err(self.failed("copy", &file(name), e)),
                }
            }
            Ok(())
        })
    }

    /// A file becomes larger in one step, after all of the space is there.
    fn finish_growth(&self, _name: &Name) -> Result<()> {
        Ok(())
    }

    fn grow(&self, name: &Name, opened: &OwnedFd, from: u64, to: u64) -> Result<()> {
        if let Err(why) = self.reserve(opened, FallocateFlags::KEEP_SIZE, to, to - from) {
            // Gives back what was reserved behind the end.
            let _ = ftruncate(opened, from);
            return Err(why);
        }
        ftruncate(opened, to).map_err(|e| self.failed("resize", &file(name), e))?;
        fsync(opened).map_err(|e| self.failed("sync", &file(name), e))
    }

    /// The lock of the file is held until the file is gone.
    fn delete(&self, name: &Name, _file: OwnedFd) -> Result<()> {
        unlinkat(&self.directory, file(name), AtFlags::empty()).map_err(|e| self.failed("delete", &file(name), e))?;
        fsync(&self.directory).map_err(|e| self.failed("sync", "", e))
    }
}
