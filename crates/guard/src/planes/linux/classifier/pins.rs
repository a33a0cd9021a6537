//! TCX links that outlive their process: pinned in a bpffs (`Documentation/bpf`, bpf(2) BPF_OBJ_PIN), each at
//! `/sys/fs/bpf/vmio/<inode of the network namespace>/<program>-<index>`. Links keep programs and maps alive. The next
//! guard opens them and replaces the program (BPF_LINK_UPDATE), without a gap, and without the wait of some 15 ms that
//! attaching and detaching take.
//!
//! The file system is never mounted here, and its root may be writable for everybody: so the directories below must be
//! this user's alone, and are opened by descriptors without following links.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libbpf_rs::Link;
use libbpf_sys::{BPF_F_PATH_FD, bpf_obj_pin_opts};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, fstat, fstatfs, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::super::{Error, Result};

/// Where a bpffs is usually mounted.
const ROOT: &str = "/sys/fs/bpf";
/// Directory of vmio's.
const OURS: &str = "vmio";
/// BPF_FS_MAGIC of include/uapi/linux/magic.h.
const MAGIC: u64 = 0xcafe_4a11;
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Permissions of the group and of all others.
const OTHERS: u32 = 0o077;

/// The directory of one network namespace's pins.
#[derive(Debug)]
pub(crate) struct PinDirectory {
    root: OwnedFd,
    namespace: String,
}

/// Why there is no such directory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoPinDirectory {
    #[error("{ROOT} cannot be opened: {0}")]
    NotOpened(Errno),
    #[error("{ROOT}: {0}")]
    NotLookedAt(Errno),
    #[error("bpffs is not mounted at {ROOT}")]
    NotMounted,
    /// It is not trusted.
    #[error(transparent)]
    Home(#[from] Error),
}

/// The pins of a namespace.
#[derive(Debug)]
pub struct Pins {
    pin_directory: PinDirectory,
    /// Made anew after a removal from outside.
    dir: Mutex<OwnedFd>,
}

impl PinDirectory {
    /// Finds the place, if a bpffs is mounted; makes nothing.
    pub(crate) fn find(namespace: u64) -> std::result::Result<PinDirectory, NoPinDirectory> {
        let root = openat(CWD, ROOT, DIRECTORY, Mode::empty()).map_err(NoPinDirectory::NotOpened)?;
        let kind = fstatfs(&root).map_err(NoPinDirectory::NotLookedAt)?.f_type;
        if kind as u64 & 0xffff_ffff != MAGIC {
            return Err(NoPinDirectory::NotMounted);
        }
        let pin_directory = PinDirectory { root, namespace: namespace.to_string() };
        // Checked again when the directory is made.
        pin_directory.home()?;
        Ok(pin_directory)
    }

    /// Its path, for people.
    pub(crate) fn path(&self) -> String {
        format!("{ROOT}/{OURS}/{}", self.namespace)
    }

    /// Whether something is pinned there.
    pub(crate) fn is_used(&self) -> Result<bool> {
        match self.home()? {
            Some((_, home)) => Ok(!names(&home).map_err(|e| self.refused("list", e))?.is_empty()),
            None => Ok(false),
        }
    }

    /// Opens the directory; makes it if it does not exist.
    pub(crate) fn begin(&self) -> Result<Pins> {
        let dir = Mutex::new(self.dir()?);
        let failed = |source| Error::Refused { what: format!("open {ROOT}"), source, said: String::new() };
        let root = self.root.try_clone().map_err(failed)?;
        Ok(Pins { pin_directory: PinDirectory { root, namespace: self.namespace.clone() }, dir })
    }

    fn dir(&self) -> Result<OwnedFd> {
        let failed = |e| self.refused("make", e);
        let ours = made(self.root.as_fd(), OURS).map_err(failed)?;
        made(ours.as_fd(), &self.namespace).map_err(failed)
    }

    /// Removes all pins but those in `kept`, and empty directories; returns the number of removed pins.
    pub(crate) fn clear(&self, kept: &BTreeSet<&str>) -> Result<usize> {
        let failed = |e| self.refused("clear", e);
        let Some((ours, home)) = self.home()? else { return Ok(0) };
        let mut gone = 0;
        for name in names(&home).map_err(failed)?.iter().filter(|name| !kept.contains(name.as_str())) {
            unlinkat(&home, name, AtFlags::empty()).map_err(failed)?;
            gone += 1;
        }
        // Directories with kept pins or of other namespaces are not empty and stay.
        if unlinkat(&ours, &self.namespace, AtFlags::REMOVEDIR).is_ok() {
            let _ = unlinkat(&self.root, OURS, AtFlags::REMOVEDIR);
        }
        Ok(gone)
    }

    /// vmio's directory, and this namespace's in it, if they exist.
    fn home(&self) -> Result<Option<(OwnedFd, OwnedFd)>> {
        let ours = match trusted(self.root.as_fd(), OURS) {
            Err(Errno::NOENT) => return Ok(None),
            ours => ours.map_err(|e| self.refused("open", e))?,
        };
        match trusted(ours.as_fd(), &self.namespace) {
            Err(Errno::NOENT) => Ok(None),
            home => Ok(Some((ours, home.map_err(|e| self.refused("open", e))?))),
        }
    }

    fn refused(&self, what: &str, e: Errno) -> Error {
        let said = match e {
            Errno::PERM | Errno::NOTDIR | Errno::LOOP => "it must be a directory of this user's with mode 0700",
            _ => "",
        };
        Error::Refused { what: format!("{what} {}", self.path()), source: e.into(), said: said.to_owned() }
    }
}

impl Pins {
    /// Pins a link, so that it stays when its descriptors are closed.
    pub(super) fn pin(&self, link: BorrowedFd<'_>, name: &str) -> Result<()> {
        let failed = |source| Error::Refused {
            what: format!("pin {}/{name}", self.pin_directory.path()),
            source,
            said: "it needs CAP_BPF".to_owned(),
        };
        let mut dir = self.hold();
        if fstat(&*dir).map_err(|e| failed(e.into()))?.st_nlink == 0 {
            *dir = self.pin_directory.dir()?;
        }
        let path = CString::new(name).map_err(|e| failed(e.into()))?;
        // An interface that is gone may have left its pin.
        let _ = unlinkat(&*dir, name, AtFlags::empty());
        let options = bpf_obj_pin_opts {
            sz: size_of::<bpf_obj_pin_opts>() as _,
            file_flags: BPF_F_PATH_FD,
            path_fd: dir.as_raw_fd(),
        };
        // SAFETY: descriptors, path and options outlive the call.
        let done = unsafe { libbpf_sys::bpf_obj_pin_opts(link.as_raw_fd(), path.as_ptr(), &raw const options) };
        if done < 0 { Err(failed(io::Error::from_raw_os_error(-done))) } else { Ok(()) }
    }

    /// The link pinned under that name.
    pub(super) fn open(&self, name: &str) -> Option<Link> {
        let dir = self.hold();
        statat(&*dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        // By descriptor: the directory's name may lead elsewhere by now.
        Link::open(format!("/proc/thread-self/fd/{}/{name}", dir.as_raw_fd())).ok()
    }

    /// Removes a pin, if it exists.
    pub(super) fn unpin(&self, name: &str) -> Result<()> {
        match unlinkat(&*self.hold(), name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(Error::Refused {
                what: format!("remove {}/{name}", self.pin_directory.path()),
                source: e.into(),
                said: String::new(),
            }),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        statat(&*self.hold(), name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn hold(&self) -> MutexGuard<'_, OwnedFd> {
        self.dir.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a directory that must be this user's alone; `EPERM` where it is not.
fn trusted(at: BorrowedFd<'_>, name: &str) -> rustix::io::Result<OwnedFd> {
    let dir = openat(at, name, DIRECTORY, Mode::empty())?;
    let stat = fstat(&dir)?;
    if stat.st_uid != geteuid().as_raw() || stat.st_mode & OTHERS != 0 { Err(Errno::PERM) } else { Ok(dir) }
}

fn made(at: BorrowedFd<'_>, name: &str) -> rustix::io::Result<OwnedFd> {
    match mkdirat(at, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => trusted(at, name),
        Err(e) => Err(e),
    }
}

fn names(dir: &OwnedFd) -> rustix::io::Result<Vec<String>> {
    let mut all = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            all.push(name);
        }
    }
    all.sort();
    Ok(all)
}
