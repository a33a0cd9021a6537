//! Volumes: disks that outlive their guests. A pool is a directory of this user's alone, with the lock, the records of
//! who has a volume and the sockets of servers, and a store, which keeps the bytes. The directory is resolved once; all
//! that is done in it goes by its descriptor.

mod attachment;
mod copy;
mod files;
mod hotplug;
mod key;
mod listen;
mod lvm;
mod remote;
mod server;
mod store;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, fcntl_lock, flock, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

pub use attachment::{Attachment, Holder, Reach, State};
pub use hotplug::{Driver, Running, attach, check, detach, resize, serial};
pub use key::{Key, Unfit};
pub use listen::Listener;
pub use lvm::{LvmError, lvm_pool};
pub use remote::{Origin, attach_from, check_from, detach_from};
pub use server::{Event, Server};

use files::Files;
use store::Store;

/// Bits of a mode that let others in.
const OTHERS: u32 = 0o077;
/// Longest name of a volume.
const MOST_CHARS: usize = 64;
/// Bytes of a volume are a multiple of this: the largest block of a disk.
const BLOCK: u64 = 4096;

/// Result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something was not done to a volume.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Error {
    #[error("{0:?} names no volume: it has 1 to 64 letters, digits, - and _, the first a letter or a digit")]
    Name(String),
    #[error("a volume of {0} bytes cannot be made: it has a multiple of 4096, at least that")]
    Size(u64),
    #[error(
        "volume {name} has {bytes} bytes, and a smaller one would lose data: make another one, and copy what it needs"
    )]
    Smaller { name: Name, bytes: u64 },
    #[error("{}: it belongs to user {owner}; help: name a directory of your own", path.display())]
    Owner { path: PathBuf, owner: u32 },
    #[error("{}: others may use it; help: chmod 700 it", path.display())]
    Mode { path: PathBuf },
    #[error("there is a volume {0} already")]
    Exists(Name),
    #[error("there is no volume {0}")]
    Missing(Name),
    #[error("volume {0} is open in a program that uses it as a disk")]
    InUse(Name),
    #[error("volume {name} is attached to guest {guest}: detach it first")]
    Attached { name: Name, guest: String },
    #[error("volume {name} is attached to guest {guest} of another host: detach it there")]
    Elsewhere { name: Name, guest: String },
    #[error("volume {name} is served to host {host} at {at}: end that `vmio volume serve` first")]
    Served { name: Name, host: String, at: SocketAddr },
    #[error("volume {name} is host {host}'s, whose guest may have it: detach it there, and then here")]
    OfHost { name: Name, host: String },
    #[error("volume {name} is on the host at {at}: do that there")]
    Afar { name: Name, at: SocketAddr },
    #[error("the server of volume {name} at {at} does not greet: it serves one client at a time, and has another one")]
    Taken { name: Name, at: SocketAddr },
    #[error("{at} is reached by others, so what is sent has to be encrypted; help: --tls-key FILE")]
    Clear { at: SocketAddr },
    #[error("the key {} cannot be used: {why}", path.display())]
    Key { path: PathBuf, why: Unfit },
    #[error("volume {0} is attached to no guest")]
    Detached(Name),
    #[error(
        "guest {guest} has not let go of volume {name} in {seconds} s: it is still attached; help: unmount it in the \
             guest, and detach it again"
    )]
    Kept { name: Name, guest: String, seconds: u64 },
    #[error("volume {name} has its new size, but guest {guest} does not see it yet: {why}; help: repeat the command")]
    Unseen { name: Name, guest: String, why: Box<Error> },
    #[error("guest {guest} has ended")]
    Ended { guest: String },
    #[error("another process listens on the path of the monitor of guest {guest}")]
    NotItsMonitor { guest: String },
    #[error(transparent)]
    Node(Box<vmio_node::Error>),
    #[error(transparent)]
    Monitor(#[from] vmio_node::qmp::Error),
    #[error("nobody serves the volumes in {}: run `vmio volume serve`", path.display())]
    NotServed { path: PathBuf },
    #[error("another vmio serves the volumes in {}", path.display())]
    Serving { path: PathBuf },
    #[error("the server of volume {name} does not answer ({why}); `vmio volume serve` says why")]
    Silent { name: Name, why: io::Error },
    #[error("no program qemu-nbd in PATH: apt install qemu-utils")]
    NoProgram,
    #[error("{}: its path is too long for a socket in it (84 bytes at most)", path.display())]
    TooLong { path: PathBuf },
    #[error("no space for {bytes} bytes in {}", path.display())]
    NoSpace { path: PathBuf, bytes: u64 },
    #[error(transparent)]
    Lvm(#[from] LvmError),
    #[error("cannot {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
}

impl Error {
    /// Whether it is about what was asked for.
    pub fn is_usage(&self) -> bool {
        use Error::{Clear, Detached, Exists, Lvm, Missing, Name, Size, Smaller};
        let is_named = matches!(self, Name(_) | Exists(_) | Missing(_) | Detached(_) | Clear { .. });
        is_named || matches!(self, Size(_) | Smaller { .. }) || matches!(self, Lvm(why) if why.is_usage())
    }

    /// Whether something has to be done first.
    pub fn is_precondition(&self) -> bool {
        use Error::{Afar, Attached, Elsewhere, InUse, Key, Lvm, Mode, NoProgram, NotServed, OfHost, Owner};
        use Error::{Served, Serving, Taken, TooLong};
        let is_first = matches!(self, Owner { .. } | Mode { .. } | Key { .. } | NoProgram | TooLong { .. });
        let is_taken = matches!(self, InUse(_) | Attached { .. } | Elsewhere { .. } | Taken { .. });
        let is_of_host = matches!(self, Served { .. } | OfHost { .. } | Afar { .. });
        let is_first = is_first || matches!(self, Lvm(why) if why.is_precondition());
        is_first || is_taken || is_of_host || matches!(self, Serving { .. } | NotServed { .. })
    }
}

/// The name of a volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl std::str::FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_one = text.len() <= MOST_CHARS
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if is_one { Ok(Name(text.to_owned())) } else { Err(Error::Name(text.to_owned())) }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A volume as it lies in its pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: Name,
    /// Its size.
    pub bytes: u64,
}

/// Volumes with their records.
pub struct Pool {
    path: PathBuf,
    directory: OwnedFd,
    store: Box<dyn Store>,
}

impl Pool {
    /// The pool in a directory that is there, of this user's, and closed to others.
    ///
    /// # Errors
    /// It is none of these.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let failed = |e: Errno| Error::File { what: "open", path: path.into(), source: e.into() };
        let directory = openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        let stat = fstat(&directory).map_err(failed)?;
        if stat.st_uid != geteuid().as_raw() {
            return Err(Error::Owner { path: path.into(), owner: stat.st_uid });
        }
        if stat.st_mode & OTHERS != 0 {
            return Err(Error::Mode { path: path.into() });
        }
        let store = Box::new(Files::new(path, &directory)?);
        Ok(Pool { path: path.into(), directory, store })
    }

    /// Makes a volume of zeros.
    ///
    /// # Errors
    /// There is one of this name, no space, or no such size.
    pub fn create(&self, name: &Name, bytes: u64) -> Result<Volume> {
        let bytes = self.store.fitted(bytes)?;
        self.make(name, || self.store.create(name, bytes))?;
        Ok(Volume { name: name.clone(), bytes })
    }

    /// Has a volume made, unless there is one of this name.
    fn make(&self, name: &Name, made: impl FnOnce() -> Result<()>) -> Result<()> {
        let _changing = self.lock()?;
        if self.is_there(name)? {
            return Err(Error::Exists(name.clone()));
        }
        // A guest may have one of this name from another host.
        if let Some(there) = self.attachment(name)? {
            self.refuse_held(name, &there)?;
            self.forget(name)?;
        }
        made()
    }

    /// Its volumes, by name.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn list(&self) -> Result<Vec<Volume>> {
        self.store.list()
    }

    /// Deletes a volume that no program uses.
    ///
    /// # Errors
    /// There is none, or it is in use.
    pub fn delete(&self, name: &Name) -> Result<()> {
        let _changing = self.lock()?;
        let (unused, _) = self.unused(name)?;
        // That of a guest that has ended.
        self.forget(name)?;
        self.store.delete(name, unused)
    }

    /// A volume that no guest has and no program uses, and its size.
    fn unused(&self, name: &Name) -> Result<(OwnedFd, u64)> {
        if let Some(attachment) = self.attachment(name)? {
            self.refuse_held(name, &attachment)?;
        }
        self.unlocked(name)
    }

    /// A volume that no program uses, and its size. As long as it is open none can begin to: QEMU and its servers lock
    /// an image that they have open (unless told `locking=off`), and the lock that is taken here conflicts with theirs.
    fn unlocked(&self, name: &Name) -> Result<(OwnedFd, u64)> {
        let (file, bytes) = self.volume(name)?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok((file, bytes)),
            Err(Errno::AGAIN | Errno::ACCESS) => Err(Error::InUse(name.clone())),
            Err(e) => Err(file_error("lock", self.store.path(name), e)),
        }
    }

    /// A volume, open for writing, and its size.
    fn volume(&self, name: &Name) -> Result<(OwnedFd, u64)> {
        self.store.open(name)
    }

    fn is_there(&self, name: &Name) -> Result<bool> {
        match self.volume(name) {
            Ok(_) | Err(Error::InUse(_)) => Ok(true),
            Err(Error::Missing(_)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Held by who changes which volumes there are.
    fn lock(&self) -> Result<OwnedFd> {
        // A descriptor of its own, so that two threads of one process exclude each other, too.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let own = openat(&self.directory, ".", flags, Mode::empty()).map_err(|e| self.failed("open", "", e))?;
        flock(&own, FlockOperation::LockExclusive).map_err(|e| self.failed("lock", "", e))?;
        Ok(own)
    }

    fn failed(&self, what: &'static str, file: &str, e: Errno) -> Error {
        file_error(what, self.path.join(file), e)
    }
}

fn file_error(what: &'static str, path: PathBuf, e: Errno) -> Error {
    Error::File { what, path, source: e.into() }
}

#[cfg(test)]
mod hotplug_tests;
#[cfg(test)]
mod lvm_tests;
#[cfg(test)]
mod remote_tests;
#[cfg(test)]
mod tests;
