//! What vmio changes on a machine, and how each change is undone.
//!
//! Undoing is idempotent: an object that is gone is no failure, since a killed owner may have recorded a change without
//! making it. It removes only objects with vmio's mark and empty ones.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, fs};

use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use crate::journal::aoe_disk::AoeDisk;
use crate::journal::error::NotUndone;
use crate::journal::held::Identity;
use crate::journal::histograms::Histograms;
use crate::journal::loops;
use crate::journal::mapped::Mapped;
use crate::journal::nvme_export::NvmeExport;
use crate::journal::removal::{self, OurDir};
use crate::journal::servers::answering;
use crate::journal::volume::Volume;
use crate::machine;

/// File that marks a directory as made by vmio; it holds the cookie of the owner.
pub const SCRATCH_MARKER: &str = ".vmio-scratch";

/// Prefix of vmio's trace instances; no other is removed.
pub const TRACE_PREFIX: &str = "vmio-";

/// How long a busy object is tried again, since a killed process takes a moment to release it.
const BUSY_LIMIT: Duration = Duration::from_secs(1);

/// The same for a loop device: the thread that measures has it open, and on a busy machine notices late that a signal
/// has ended what it waits for.
const OPEN_LIMIT: Duration = Duration::from_secs(15);

/// One change to a machine. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Processes marked with this cookie; undone by SIGKILL.
    Process {
        /// Value of their `VMIO_OWNER`.
        cookie: String,
    },
    /// A new file; undone by unlinking it.
    File {
        /// The file.
        path: PathBuf,
        /// Which file it is, noted once it is made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        made: Option<Identity>,
    },
    /// A new directory; undone with all that is in it if it holds the owner's marker, else only
    /// when it is empty.
    Dir {
        /// The directory.
        path: PathBuf,
        /// Which directory it is, noted once it is made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        made: Option<Identity>,
    },
    /// A loop device; undone by detaching the file.
    Loop {
        /// The file behind it.
        backing: PathBuf,
        /// Which file that is: it may be renamed meanwhile.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<Identity>,
    },
    /// A mount; undone by a lazy unmount.
    Mount {
        /// Where it is mounted.
        target: PathBuf,
    },
    /// A mount of a disk that its owner made and that ends with it: what lies on it goes with it, and no file or
    /// directory there is removed one by one. Undone by a lazy unmount.
    OwnDisk {
        /// Where it is mounted.
        target: PathBuf,
    },
    /// One control group, in all the hierarchies where it was made.
    Cgroup {
        /// Its directories.
        paths: Vec<PathBuf>,
    },
    /// A trace instance of our own below tracefs; undone by rmdir, its events off first.
    TraceInstance {
        /// Its directory.
        path: PathBuf,
    },
    /// A value written to a file of `/proc`, `/sys` or a control group; undone by writing the
    /// old one.
    Sysfs {
        /// The file.
        path: PathBuf,
        /// Its content before.
        before: String,
    },
    /// A volume in a volume group or pool; undone by its system's own tools when it bears the
    /// owner's mark.
    Volume(Volume),
    /// Latency histograms of a QEMU that is not vmio's own; undone by switching them off.
    Histograms(Histograms),
    /// A file that this kernel serves by NVMe over TCP, and its own connections to that; undone by ending both.
    NvmeExport(NvmeExport),
    /// Devices of the device mapper that bear the owner's mark; undone by removing them, the upper ones first.
    Mapped(Mapped),
    /// A disk that this kernel has by ATA over Ethernet; undone by having the kernel let go of it.
    AoeDisk(AoeDisk),
}

/// The owner of a change, and the circumstances of its undo.
pub(crate) struct Scope<'a> {
    /// Cookie of the owner that made the change.
    pub cookie: &'a str,
    /// Whether the machine has not been started anew since.
    pub same_boot: bool,
    /// Directories that the living owner holds, by the path that it knows them by.
    pub held: &'a [(PathBuf, Arc<OwnedFd>)],
}

impl Scope<'_> {
    fn held(&self, dir: &Path) -> Option<Arc<OwnedFd>> {
        self.held.iter().find(|(path, _)| path == dir).map(|(_, fd)| Arc::clone(fd))
    }
}

impl Change {
    /// A new file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File { path: path.into(), made: None }
    }

    /// A new directory.
    pub fn dir(path: impl Into<PathBuf>) -> Self {
        Self::Dir { path: path.into(), made: None }
    }

    /// A loop device over a file, known by its path alone.
    pub fn loop_over(backing: impl Into<PathBuf>) -> Self {
        Self::Loop { backing: backing.into(), file: None }
    }

    /// The same change with the identity of what was made.
    pub(crate) fn with_identity(self, identity: Identity) -> Self {
        match self {
            Self::File { path, .. } => Self::File { path, made: Some(identity) },
            Self::Dir { path, .. } => Self::Dir { path, made: Some(identity) },
            other => other,
        }
    }

    /// Whether it is still there after a reboot: then its journal line must reach the disk.
    pub(crate) fn outlives_boot(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Dir { .. } | Self::Volume(_))
    }

    /// The first path that is not absolute, if any.
    pub(crate) fn relative_path(&self) -> Option<&Path> {
        let paths: Vec<&Path> = match self {
            Self::Process { .. } | Self::Volume(_) | Self::NvmeExport(_) | Self::Mapped(_) | Self::AoeDisk(_) => vec![],
            Self::File { path, .. }
            | Self::Dir { path, .. }
            | Self::Sysfs { path, .. }
            | Self::TraceInstance { path }
            | Self::Loop { backing: path, .. }
            | Self::Mount { target: path }
            | Self::OwnDisk { target: path } => vec![path],
            Self::Histograms(Histograms { monitor, .. }) => vec![monitor],
            Self::Cgroup { paths } => paths.iter().map(PathBuf::as_path).collect(),
        };
        paths.into_iter().find(|p| !p.is_absolute())
    }

    /// Whether it lies on a disk of another change that is unmounted later, so that it need not be removed: on a dead
    /// disk that would fail.
    pub(crate) fn goes_with_a_disk<'a>(&self, others: impl IntoIterator<Item = &'a Change>) -> bool {
        let (Self::File { path, .. } | Self::Dir { path, .. }) = self else { return false };
        let straight = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
        let on =
            |change: &Change| matches!(change, Self::OwnDisk { target } if path != target && path.starts_with(target));
        straight && others.into_iter().any(on)
    }

    /// Undoes the change.
    pub(crate) fn undo(&self, scope: &Scope<'_>) -> Result<(), NotUndone> {
        if !scope.same_boot && !self.outlives_boot() && !matches!(self, Self::Cgroup { .. }) {
            return Ok(());
        }
        match self {
            Self::Process { cookie } => Ok(machine::kill_marked(cookie, |_| true)?),
            Self::File { path, made } => {
                let (file, made, same_boot) = (path.clone(), *made, scope.same_boot);
                let held = path.parent().and_then(|dir| scope.held(dir));
                answering(path, move || removal::remove_file(&file, made, same_boot, held.as_deref()))?
            }
            Self::Dir { path, made } => {
                let (path, made, same_boot) = (path.clone(), *made, scope.same_boot);
                let (cookie, held) = (scope.cookie.to_owned(), scope.held(&path));
                let remove = {
                    let path = path.clone();
                    move || {
                        let dir = OurDir { path: &path, cookie: &cookie, made, same_boot, held: held.as_deref() };
                        dir.remove()
                    }
                };
                answering(&path, remove)?
            }
            Self::Volume(volume) => volume.undo(),
            Self::Histograms(histograms) => histograms.undo(),
            Self::NvmeExport(export) => export.undo(),
            Self::Mapped(mapped) => mapped.undo(),
            Self::AoeDisk(disk) => disk.undo(),
            Self::Loop { backing, file } => loops::detach(backing, *file, OPEN_LIMIT),
            Self::Mount { target } | Self::OwnDisk { target } => unmount_one(target),
            Self::Cgroup { paths } => paths.iter().rev().try_for_each(|p| remove_cgroup(p, scope)),
            Self::TraceInstance { path } => {
                remove_trace_instance(path).map_err(NotUndone::cannot("remove the trace instance", path))
            }
            Self::Sysfs { path, before } => gone(crate::journal::bounds::write_back(path, before)).map_err(|source| {
                NotUndone::WriteBack { value: before.trim_end().to_owned(), path: path.clone(), source }
            }),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { cookie } => write!(f, "processes of {cookie}"),
            Self::File { path, .. } => write!(f, "file {}", path.display()),
            Self::Dir { path, .. } => write!(f, "directory {}", path.display()),
            Self::Loop { backing, .. } => write!(f, "loop device over {}", backing.display()),
            Self::Mount { target } => write!(f, "mount on {}", target.display()),
            Self::OwnDisk { target } => write!(f, "disk of vmio's own on {}", target.display()),
            Self::Cgroup { paths } => {
                write!(f, "control group {}", paths.first().map(|p| p.display().to_string()).unwrap_or_default())
            }
            Self::TraceInstance { path } => write!(f, "trace instance {}", path.display()),
            Self::Sysfs { path, .. } => write!(f, "value of {}", path.display()),
            Self::Volume(volume) => volume.fmt(f),
            Self::Histograms(histograms) => write!(f, "{histograms}"),
            Self::NvmeExport(export) => write!(f, "{export}"),
            Self::Mapped(mapped) => write!(f, "{mapped}"),
            Self::AoeDisk(disk) => write!(f, "{disk}"),
        }
    }
}

/// Removes a trace instance, if it exists: events off, then rmdir.
///
/// # Errors
/// When it is no instance of vmio's, which is left alone, or when it stays busy.
pub fn remove_trace_instance(path: &Path) -> io::Result<()> {
    let ours = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(TRACE_PREFIX));
    if !ours || path.parent().and_then(Path::file_name).is_none_or(|p| p != "instances") {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a trace instance of vmio and was not touched"));
    }
    // rmdir does this too; it is done first so that no event is written while a reader lets go.
    let _ = fs::write(path.join("events/enable"), "0");
    gone(while_busy(|| fs::remove_dir(path)))
}

/// Success also when the object does not exist.
fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        other => other,
    }
}

/// Tries again while the object is busy.
fn while_busy(mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let until = Instant::now() + BUSY_LIMIT;
    loop {
        match attempt() {
            Err(e) if e.kind() == ErrorKind::ResourceBusy && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

fn unmount_one(target: &Path) -> Result<(), NotUndone> {
    let mounts = machine::own_mounts().map_err(NotUndone::Mounts)?;
    if !mounts.iter().any(|m| m.point == *target) {
        return Ok(());
    }
    unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
        .map_err(|e| NotUndone::cannot("unmount", target)(e.into()))
}

/// Removes one control group. Processes of the owner in it are killed, others (it may hold the
/// owner itself) go up to the parent.
fn remove_cgroup(path: &Path, scope: &Scope<'_>) -> Result<(), NotUndone> {
    let procs = path.join("cgroup.procs");
    let members = || -> Vec<u32> {
        fs::read_to_string(&procs).unwrap_or_default().lines().filter_map(|l| l.parse().ok()).collect()
    };
    if scope.same_boot && !members().is_empty() {
        machine::kill_marked(scope.cookie, |pid| members().contains(&pid))?;
        if let Some(parent) = path.parent() {
            for pid in members() {
                // One that ended meanwhile need not move; a failure shows as EBUSY below.
                let _ = fs::write(parent.join("cgroup.procs"), pid.to_string());
            }
        }
    }
    gone(while_busy(|| fs::remove_dir(path))).map_err(NotUndone::cannot("remove control group", path))
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
