//! A store that is not this user's alone, read as a copy. SQLite opens, makes and changes the owner of what lies beside
//! a store (`-wal`, `-shm`) by name, and whoever owns the directory can exchange each name for a link or a pipe
//! meanwhile. So nothing is opened there but the file and its log, through descriptors, and SQLite gets to see a
//! copy in a directory of this user's alone.
//!
//! The directory's names are gone as soon as SQLite has taken in the log: it goes on with what it has open. What a
//! killed vmio left is removed by the next one: who makes a copy holds a lock (flock) on its directory.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{
    Access, AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat, access, flock, fstat, openat,
    openat2, statat, unlinkat,
};
use rustix::io::Errno;

use super::StoreError;
use super::guard::{self, Limit};

/// Largest store of another user's that is read, with its log, in bytes.
const MOST: u64 = 4 << 30;
/// How often a copy is begun, where somebody writes meanwhile.
const TRIES: usize = 3;
/// How long to wait before it is begun again.
const PAUSE: Duration = Duration::from_millis(200);
/// How the directories of copies are called.
const PREFIX: &str = "vmio-store-";
/// The copy's name in its directory.
const NAME: &str = "vmio.db";
/// All that can lie in such a directory.
const NAMES: [&str; 4] = [NAME, "vmio.db-wal", "vmio.db-shm", "vmio.db-journal"];

/// Opens a copy of the store `real`, a path without links, for reading alone; it is gone when the connection is
/// closed. Errors name the store as `path`.
pub(super) fn opened(path: &Path, real: &Path) -> Result<(Connection, Limit), StoreError> {
    let copy = Copy::of(path, real)?;
    let fail = |e| without_room(StoreError::of(path, e));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(copy.path.join(NAME), flags).map_err(fail)?;
    let limit = guard::harden(&connection).map_err(fail)?;
    let take_in = || {
        let _asking = limit.asking();
        // Held from the first question on: nothing is looked for by name again.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.query_row("PRAGMA schema_version", [], |row| row.get::<_, i64>(0))?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        connection.pragma_update(None, "journal_mode", "DELETE")?;
        // What is written to a copy would seem to be written.
        connection.pragma_update(None, "query_only", true)
    };
    take_in().map_err(fail)?;
    Ok((connection, limit))
}

/// It is not the disk that the store lies on which is full.
pub(super) fn without_room(e: StoreError) -> StoreError {
    match e {
        StoreError::Full { path, .. } => {
            let source = io::Error::other("the disk for temporary files is full; SQLITE_TMPDIR names another");
            StoreError::Io { what: "make a copy of", path, source }
        }
        other => other,
    }
}

/// A directory with a copy; it goes with this.
struct Copy {
    path: PathBuf,
    /// The directory, locked.
    held: OwnedFd,
}

impl Copy {
    fn of(path: &Path, real: &Path) -> Result<Copy, StoreError> {
        let io = |what: &'static str| move |source: io::Error| StoreError::Io { what, path: path.into(), source };
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(StoreError::Corrupt { path: path.into(), source: None });
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let there = openat2(CWD, parent, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
            .map_err(|e| io("look at")(e.into()))?;
        let copy = Copy::empty().map_err(io("make a copy of"))?;
        for _ in 0..TRIES {
            if copy.takes(path, &there, name)? {
                return Ok(copy);
            }
            sleep(PAUSE);
        }
        Err(StoreError::Restless { path: path.into() })
    }

    /// Makes the directory, and removes those that nobody uses any more.
    fn empty() -> io::Result<Copy> {
        let place = place()?;
        sweep(&place);
        for _ in 0..20 {
            let mut random = [0; 8];
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
            let path = place.join(format!("{PREFIX}{:016x}", u64::from_ne_bytes(random)));
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            }
            // Another vmio may have swept it away before it was locked.
            if let Some(held) = locked(&path) {
                return Ok(Copy { path, held });
            }
        }
        Err(io::Error::other("no directory for it stayed in place"))
    }

    /// Copies file and log; whether both stayed as they were meanwhile.
    fn takes(&self, path: &Path, there: &OwnedFd, name: &OsStr) -> Result<bool, StoreError> {
        let look = |source: io::Error| StoreError::Io { what: "read", path: path.into(), source };
        let names = [name.to_owned(), with(name, "-wal")];
        let (mut originals, mut before) = (Vec::new(), Vec::new());
        for name in &names {
            let stamp = Stamp::at(there, name).map_err(look)?;
            before.push(stamp);
            match stamp {
                None => originals.push(None),
                Some(stamp) if !stamp.plain => {
                    return Err(StoreError::Foreign {
                        path: path.into(),
                        what: format!("{} is no plain file", name.to_string_lossy()),
                    });
                }
                Some(stamp) => {
                    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                    let original = match openat(there, name, flags, Mode::empty()) {
                        Ok(file) => file,
                        // Exchanged since.
                        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(false),
                        Err(e) => return Err(look(e.into())),
                    };
                    if Stamp::of(&fstat(&original).map_err(|e| look(e.into()))?) != stamp {
                        return Ok(false);
                    }
                    originals.push(Some(File::from(original)));
                }
            }
        }
        if originals[0].is_none() {
            return Err(StoreError::Missing { path: path.into() });
        }
        let bytes = before.iter().flatten().fold(0u64, |sum, stamp| sum.saturating_add(stamp.size));
        if bytes > MOST {
            let what =
                format!("it is another user's and has {} MiB with its log, of at most {}", bytes >> 20, MOST >> 20);
            return Err(StoreError::TooMuch { path: path.into(), what });
        }
        for ((original, stamp), name) in originals.into_iter().zip(&before).zip(NAMES) {
            let (Some(original), Some(stamp)) = (original, stamp) else { continue };
            if !self.put(name, original, stamp.size).map_err(|e| unwritten(path, e))? {
                return Ok(false);
            }
        }
        let after: Vec<_> = names.iter().map(|name| Stamp::at(there, name)).collect::<io::Result<_>>().map_err(look)?;
        Ok(before == after)
    }

    /// Writes so many bytes of a file under a name of its own; whether there were as many.
    fn put(&self, name: &str, original: File, bytes: u64) -> io::Result<bool> {
        // An earlier try may have left a log that is gone there.
        for name in NAMES.iter().filter(|other| other.starts_with(name)) {
            let _ = unlinkat(&self.held, *name, AtFlags::empty());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut to = File::from(openat(&self.held, name, flags, Mode::RUSR | Mode::WUSR)?);
        Ok(io::copy(&mut original.take(bytes), &mut to)? == bytes)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        remove(&self.path, &self.held);
    }
}

/// What tells that a file is the same and was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    plain: bool,
    file: (u64, u64),
    size: u64,
    changed: [i64; 4],
}

impl Stamp {
    /// Of what lies there under that name now, no link followed.
    fn at(there: &OwnedFd, name: &OsStr) -> io::Result<Option<Stamp>> {
        match statat(there, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Stamp::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    #[allow(clippy::unnecessary_cast, reason = "the types of a stat differ between machines")]
    fn of(stat: &Stat) -> Stamp {
        Stamp {
            plain: FileType::from_raw_mode(stat.st_mode).is_file(),
            file: (stat.st_dev as u64, stat.st_ino as u64),
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            changed: [stat.st_mtime as i64, stat.st_mtime_nsec as i64, stat.st_ctime as i64, stat.st_ctime_nsec as i64],
        }
    }
}

/// The directory for temporary files that SQLite would take, if nobody else can exchange what lies in it.
fn place() -> io::Result<PathBuf> {
    let named = ["SQLITE_TMPDIR", "TMPDIR"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let usual = ["/var/tmp", "/tmp"].map(PathBuf::from);
    let trusted = |path: &PathBuf| {
        let Ok(found) = fs::metadata(path) else { return false };
        let of = [0, rustix::process::geteuid().as_raw()].contains(&found.uid());
        let sticky = found.mode() & 0o1000 != 0;
        let usable = access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok();
        found.is_dir() && of && usable && (sticky || found.mode() & 0o022 == 0)
    };
    let all = named.chain(usual).filter_map(|path| fs::canonicalize(path).ok());
    all.into_iter().find(trusted).ok_or_else(|| io::Error::other("no directory for temporary files can be used"))
}

/// Removes what killed ones left.
fn sweep(place: &Path) {
    let Ok(all) = fs::read_dir(place) else { return };
    let copies = all.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    for path in copies.map(|entry| entry.path()) {
        if let Some(held) = locked(&path) {
            remove(&path, &held);
        }
    }
}

/// A directory of this user's alone that nobody uses, locked; `None` for any other.
fn locked(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = openat(CWD, path, flags, Mode::empty()).ok()?;
    let found = fstat(&held).ok()?;
    let ours = found.st_uid == rustix::process::geteuid().as_raw() && found.st_mode & 0o077 == 0;
    if !ours || flock(&held, FlockOperation::NonBlockingLockExclusive).is_err() {
        return None;
    }
    let now = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    ((now.st_dev, now.st_ino) == (found.st_dev, found.st_ino)).then_some(held)
}

/// Removes the files by the directory itself, and its name where nothing else is in it.
fn remove(path: &Path, held: impl AsFd) {
    for name in NAMES {
        let _ = unlinkat(held.as_fd(), name, AtFlags::empty());
    }
    let _ = fs::remove_dir(path);
}

fn with(name: &OsStr, end: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(end);
    name
}

fn unwritten(path: &Path, source: io::Error) -> StoreError {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].contains(&source.kind());
    let source = match full {
        true => io::Error::other("the disk for temporary files is full; SQLITE_TMPDIR names another"),
        false => source,
    };
    StoreError::Io { what: "make a copy of", path: path.into(), source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn copy_in(place: &Path) -> Copy {
        let path = place.join(format!("{PREFIX}test"));
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        let held = locked(&path).unwrap();
        Copy { path, held }
    }

    fn there(dir: &Path) -> OwnedFd {
        openat(CWD, dir, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn a_copy_that_nobody_uses_is_swept_away_and_no_other() {
        let place = tempfile::tempdir().unwrap();
        let used = copy_in(place.path());
        fs::write(used.path.join(NAME), "x").unwrap();
        let left = place.path().join(format!("{PREFIX}left"));
        let open = place.path().join(format!("{PREFIX}open"));
        let other = place.path().join(format!("{PREFIX}other"));
        for (dir, mode, name) in [(&left, 0o700, "vmio.db-wal"), (&open, 0o755, NAME), (&other, 0o700, "other")] {
            DirBuilder::new().mode(mode).create(dir).unwrap();
            fs::write(dir.join(name), "x").unwrap();
        }
        std::os::unix::fs::symlink(place.path(), place.path().join(format!("{PREFIX}link"))).unwrap();
        sweep(place.path());
        assert!(used.path.join(NAME).exists() && open.join(NAME).exists() && other.join("other").exists());
        assert!(!left.exists());
        let path = used.path.clone();
        drop(used);
        assert!(!path.exists());
    }

    #[test]
    fn links_and_pipes_are_not_opened_and_sizes_have_an_end() {
        let (place, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let copy = copy_in(place.path());
        let (file, log) = (dir.path().join("x.db"), dir.path().join("x.db-wal"));
        let takes = || copy.takes(&file, &there(dir.path()), OsStr::new("x.db"));
        assert!(matches!(takes().unwrap_err(), StoreError::Missing { .. }));
        fs::write(&file, "store").unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &log).unwrap();
        assert!(takes().unwrap_err().to_string().contains("x.db-wal is no plain file"));
        fs::remove_file(&log).unwrap();
        rustix::fs::mkfifoat(CWD, &log, Mode::RUSR).unwrap();
        assert!(takes().unwrap_err().to_string().contains("x.db-wal is no plain file"));
        fs::remove_file(&log).unwrap();
        fs::write(&log, "log").unwrap();
        assert!(takes().unwrap());
        assert_eq!(fs::read(copy.path.join(NAME)).unwrap(), b"store");
        assert_eq!(fs::read(copy.path.join("vmio.db-wal")).unwrap(), b"log");
        // A log that is gone at the next try is not left over from this one.
        fs::remove_file(&log).unwrap();
        assert!(takes().unwrap() && !copy.path.join("vmio.db-wal").exists());
        File::create(&log).unwrap().set_len(MOST).unwrap();
        let e = takes().unwrap_err();
        assert!(matches!(e, StoreError::TooMuch { .. }) && e.to_string().contains("4096 MiB with its log"), "{e}");
    }

    #[test]
    fn what_is_written_meanwhile_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let (held, name) = (there(dir.path()), OsStr::new("x.db"));
        let file = dir.path().join("x.db");
        fs::write(&file, "store").unwrap();
        let before = Stamp::at(&held, name).unwrap();
        assert_eq!(Stamp::at(&held, name).unwrap(), before);
        sleep(Duration::from_millis(20));
        fs::write(&file, "other").unwrap();
        assert_ne!(Stamp::at(&held, name).unwrap(), before);
        let before = Stamp::at(&held, name).unwrap();
        fs::write(dir.path().join("new"), "other").unwrap();
        fs::rename(dir.path().join("new"), &file).unwrap();
        assert_ne!(Stamp::at(&held, name).unwrap(), before);
    }
}
