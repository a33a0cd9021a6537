//! A control group that is written to, held by a descriptor: the owner of a group may rename or replace it (delegation;
//! cgroups(7)), but the descriptor stays the same group. It must be on a control group file system, and no path leaves
//! it. Only limits can be written, never the members of a group ([`WRITTEN`]).
//!
//! What the files mean is [`crate::linux::cgroup`]'s.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fstatfs, openat2};

use crate::journal::bounds::{CGROUP, CGROUP2};
use crate::journal::held::{self, Identity};

/// Files that may be written: limits of processors and memory, of version 2 and 1.
pub const WRITTEN: [&str; 6] =
    ["cpu.weight", "cpu.max", "memory.max", "cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes"];

/// Bytes of a file that are read: a group of 10,000 processes has a list of 80 KB.
const MOST_BYTES: u64 = 1 << 20;
/// Groups below one that are listed.
const MOST_CHILDREN: usize = 4096;

/// A control group.
#[derive(Debug)]
pub struct ControlGroup {
    dir: OwnedFd,
    identity: Identity,
}

impl ControlGroup {
    /// The group of a directory, whose path has no links in it.
    ///
    /// # Errors
    /// Of openat2(2); `InvalidInput` where it is on no control group file system.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of(held::open_dir(path)?)
    }

    fn of(dir: OwnedFd) -> io::Result<Self> {
        if ![CGROUP, CGROUP2].contains(&fstatfs(&dir)?.f_type) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a control group"));
        }
        Ok(Self { identity: Identity::of(&dir)?, dir })
    }

    /// Its identity, unique since the boot: kernfs does not reuse numbers.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Content of one of its files.
    ///
    /// # Errors
    /// `NotFound` where it has none, or the group is gone; `FileTooLarge` beyond 1 MiB.
    pub fn read(&self, file: &str) -> io::Result<String> {
        let mut text = String::new();
        self.file(file, OFlags::RDONLY)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MOST_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
    }

    /// Writes a limit, in one call, as the kernel wants it.
    ///
    /// # Errors
    /// `InvalidInput` of a file that is none of [`WRITTEN`]; what the kernel says.
    pub fn write(&self, file: &str, value: &str) -> io::Result<()> {
        if !WRITTEN.contains(&file) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{file} is not a limit")));
        }
        self.file(file, OFlags::WRONLY)?.write_all(value.as_bytes())
    }

    /// Names of the groups in it.
    ///
    /// # Errors
    /// When it is gone.
    pub fn children(&self) -> io::Result<Vec<String>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let list = Dir::new(openat2(&self.dir, ".", flags, Mode::empty(), ResolveFlags::BENEATH)?)?;
        let mut names = Vec::new();
        for entry in list {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type() == FileType::Directory && name != "." && name != ".." {
                names.push(name);
            }
            if names.len() > MOST_CHILDREN {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 4096 groups are in it"));
            }
        }
        Ok(names)
    }

    /// One of the groups in it.
    ///
    /// # Errors
    /// When there is none of the name.
    pub fn child(&self, name: &str) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self::of(openat2(&self.dir, name, flags, Mode::empty(), Self::beneath())?)
    }

    fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        Ok(openat2(&self.dir, name, flags | OFlags::CLOEXEC, Mode::empty(), Self::beneath())?.into())
    }

    fn beneath() -> ResolveFlags {
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A directory of another file system is none, whatever files it has; and a link to one is not followed.
    #[test]
    fn only_control_groups_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cpu.max"), "max 100000\n").unwrap();
        assert_eq!(ControlGroup::open(dir.path()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/sys/fs/cgroup", &link).unwrap();
        assert_eq!(ControlGroup::open(&link).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert_eq!(ControlGroup::open(&dir.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn only_limits_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let group = ControlGroup { dir: held::open_dir(dir.path()).unwrap(), identity: Identity { dev: 0, ino: 0 } };
        std::fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        assert_eq!(group.write("cgroup.procs", "1").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        // None is made.
        assert_eq!(group.write("cpu.max", "max").unwrap_err().kind(), io::ErrorKind::NotFound);
        let outside = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("memory.max")).unwrap();
        assert!(group.write("memory.max", "1").is_err() && group.read("../etc/passwd").is_err());
        assert_eq!(std::fs::read(outside.path()).unwrap(), b"");
        std::fs::create_dir(dir.path().join("libvirt")).unwrap();
        assert_eq!(group.children().unwrap(), ["libvirt"]);
    }
}
