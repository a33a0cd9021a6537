//! What vmio changes on a machine, and how each change is taken back.
//!
//! Taking back is idempotent: what is gone already is no failure, since nobody knows how far a
//! killed owner came between writing its journal and making the change. It is also shy: it
//! removes only what bears vmio's own mark or was empty.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use crate::machine;
use crate::volume::Volume;

/// File that marks a directory as made by vmio; it holds the cookie of the owner.
pub const SCRATCH_MARKER: &str = ".vmio-scratch";

/// Every trace instance of vmio begins so; no other is ever removed.
pub const TRACE_PREFIX: &str = "vmio-";

/// `LOOP_CLR_FD` of `linux/loop.h`: detach the file from a loop device.
const LOOP_CLR_FD: rustix::ioctl::Opcode = 0x4C01;

/// How long something busy is tried again (a killed process lets go of things a little later).
const BUSY_LIMIT: Duration = Duration::from_secs(1);

/// How long a file server is waited for.
const NETWORK_LIMIT: Duration = Duration::from_secs(15);

/// File servers that gave no answer to this process.
static SILENT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

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
    },
    /// A new directory; undone with all that is in it if it holds the owner's marker, else only
    /// when it is empty.
    Dir {
        /// The directory.
        path: PathBuf,
    },
    /// A loop device; undone by detaching the file.
    Loop {
        /// The file behind it.
        backing: PathBuf,
    },
    /// A mount; undone by a lazy unmount.
    Mount {
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
}

/// Whose change is undone, and when.
pub(crate) struct Scope<'a> {
    /// Cookie of the owner that made the change.
    pub cookie: &'a str,
    /// Whether the machine has not been started anew since.
    pub same_boot: bool,
}

impl Change {
    /// Whether it is still there after a reboot: then its journal line must reach the disk.
    pub(crate) fn outlives_boot(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Dir { .. } | Self::Volume(_))
    }

    /// The first path that is not absolute, if any.
    pub(crate) fn relative_path(&self) -> Option<&Path> {
        let paths: Vec<&Path> = match self {
            Self::Process { .. } | Self::Volume(_) => vec![],
            Self::File { path } | Self::Dir { path } | Self::Sysfs { path, .. } | Self::TraceInstance { path } => {
                vec![path]
            }
            Self::Loop { backing: path } | Self::Mount { target: path } => vec![path],
            Self::Cgroup { paths } => paths.iter().map(PathBuf::as_path).collect(),
        };
        paths.into_iter().find(|p| !p.is_absolute())
    }

    /// Takes the change back.
    pub(crate) fn undo(&self, scope: &Scope<'_>) -> Result<(), String> {
        if !scope.same_boot && !self.outlives_boot() && !matches!(self, Self::Cgroup { .. }) {
            return Ok(());
        }
        match self {
            Self::Process { cookie } => machine::kill_marked(cookie, |_| true),
            Self::File { path } => {
                let file = path.clone();
                answering(path, move || gone(fs::remove_file(file)))?
                    .map_err(|e| format!("cannot remove {}: {e}", path.display()))
            }
            Self::Dir { path } => {
                let (dir, cookie) = (path.clone(), scope.cookie.to_owned());
                answering(path, move || remove_dir(&dir, &cookie))?
            }
            Self::Volume(volume) => volume.undo(),
            Self::Loop { backing } => detach_loops(backing),
            Self::Mount { target } => unmount_one(target),
            Self::Cgroup { paths } => paths.iter().rev().try_for_each(|p| remove_cgroup(p, scope)),
            Self::TraceInstance { path } => remove_trace_instance(path)
                .map_err(|e| format!("cannot remove the trace instance {}: {e}", path.display())),
            Self::Sysfs { path, before } => {
                let written = OpenOptions::new()
                    .write(true)
                    .truncate(true)
                    .open(path)
                    .and_then(|mut f| f.write_all(before.as_bytes()));
                gone(written)
                    .map_err(|e| format!("cannot write {:?} back to {}: {e}", before.trim_end(), path.display()))
            }
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { cookie } => write!(f, "processes of {cookie}"),
            Self::File { path } => write!(f, "file {}", path.display()),
            Self::Dir { path } => write!(f, "directory {}", path.display()),
            Self::Loop { backing } => write!(f, "loop device over {}", backing.display()),
            Self::Mount { target } => write!(f, "mount on {}", target.display()),
            Self::Cgroup { paths } => {
                write!(f, "control group {}", paths.first().map(|p| p.display().to_string()).unwrap_or_default())
            }
            Self::TraceInstance { path } => write!(f, "trace instance {}", path.display()),
            Self::Sysfs { path, .. } => write!(f, "value of {}", path.display()),
            Self::Volume(volume) => volume.fmt(f),
        }
    }
}

/// Does something to a path. Where a server holds the path that does not answer, the kernel would
/// wait for it for ever (nfs(5), `hard`); this gives up, and the change stays in the journal.
fn answering<T: Send + 'static>(path: &Path, work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let Some(machine::NetworkMount { server, .. }) = machine::network_mount(path) else { return Ok(work()) };
    // One that was silent is not waited for as long again: a run has many changes to take back.
    let known = machine::lock(&SILENT).contains(&server);
    let limit = if known { BUSY_LIMIT } else { NETWORK_LIMIT };
    machine::within(limit, work).ok_or_else(|| {
        machine::lock(&SILENT).insert(server.clone());
        format!(
            "cannot remove {}: {server} does not answer; it stays in the journal and the next start tries again",
            path.display()
        )
    })
}

/// Takes a trace instance away: events off, then rmdir. One that is gone already is no failure.
///
/// # Errors
/// When it is no instance of vmio's, which is left alone, or when it stays busy.
pub fn remove_trace_instance(path: &Path) -> io::Result<()> {
    let ours = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(TRACE_PREFIX));
    if !ours || path.parent().and_then(Path::file_name).is_none_or(|p| p != "instances") {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no trace instance of vmio and was left alone"));
    }
    // rmdir does this too; it is done first so that no event is written while a reader lets go.
    let _ = fs::write(path.join("events/enable"), "0");
    gone(while_busy(|| fs::remove_dir(path)))
}

/// Success also when the thing is not there.
fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        other => other,
    }
}

/// Tries again while the kernel says that the thing is busy.
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

fn remove_dir(path: &Path, cookie: &str) -> Result<(), String> {
    let here = path.display();
    match fs::symlink_metadata(path) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        Err(e) => return Err(format!("cannot look at {here}: {e}")),
        Ok(meta) if !meta.is_dir() => return Err(format!("{here} is no longer a directory; it was left alone")),
        Ok(_) => {}
    }
    if fs::read_to_string(path.join(SCRATCH_MARKER)).is_ok_and(|owner| owner.trim() == cookie) {
        // What is mounted inside belongs to somebody else.
        let mounts = machine::mount_points().map_err(|e| format!("cannot read the mounts: {e}"))?;
        if let Some(mount) = mounts.iter().find(|m| m.starts_with(path)) {
            return Err(format!("{here} was not removed: {} is mounted in it; unmount that first", mount.display()));
        }
        return gone(fs::remove_dir_all(path)).map_err(|e| format!("cannot remove {here}: {e}"));
    }
    match fs::remove_dir(path) {
        Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => {
            Err(format!("{here} holds files but no {SCRATCH_MARKER} of this owner; it was left alone"))
        }
        other => gone(other).map_err(|e| format!("cannot remove {here}: {e}")),
    }
}

fn detach_loops(backing: &Path) -> Result<(), String> {
    let until = Instant::now() + BUSY_LIMIT;
    loop {
        let Some(found) = machine::loop_devices().into_iter().find(|l| l.backing == backing) else { return Ok(()) };
        let device = found.device.display();
        let file = match OpenOptions::new().read(true).open(&found.device) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(format!("cannot open {device} to detach {}: {e}", backing.display())),
        };
        // SAFETY: LOOP_CLR_FD takes no argument and touches no memory of ours.
        let done = unsafe { rustix::ioctl::ioctl(&file, rustix::ioctl::NoArg::<LOOP_CLR_FD>::new()) };
        drop(file);
        match done {
            Ok(()) | Err(rustix::io::Errno::NXIO | rustix::io::Errno::BUSY) => {}
            Err(e) => return Err(format!("cannot detach {} from {device}: {e}", backing.display())),
        }
        if Instant::now() >= until {
            return Err(format!("{device} over {} is still in use; end what uses it", backing.display()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn unmount_one(target: &Path) -> Result<(), String> {
    let mounts = machine::mount_points().map_err(|e| format!("cannot read the mounts: {e}"))?;
    if !mounts.iter().any(|m| m == target) {
        return Ok(());
    }
    unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
        .map_err(|e| format!("cannot unmount {}: {e}", target.display()))
}

/// Removes one control group. Processes of the owner in it are killed, others (it may hold the
/// owner itself) go up to the parent.
fn remove_cgroup(path: &Path, scope: &Scope<'_>) -> Result<(), String> {
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
    gone(while_busy(|| fs::remove_dir(path)))
        .map_err(|e| format!("cannot remove control group {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SCOPE: Scope<'_> = Scope { cookie: "me", same_boot: true };

    #[test]
    fn what_is_gone_is_undone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("never");
        for change in [
            Change::Process { cookie: "nobody-has-this".into() },
            Change::File { path: path.clone() },
            Change::Dir { path: path.clone() },
            Change::Loop { backing: path.clone() },
            Change::Mount { target: path.clone() },
            Change::Cgroup { paths: vec![path.clone()] },
            Change::TraceInstance { path: dir.path().join("instances/vmio-never") },
            Change::Sysfs { path: path.clone(), before: "1".into() },
        ] {
            change.undo(&SCOPE).unwrap();
        }
    }

    #[test]
    fn only_the_owners_own_directory_is_removed_with_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("precious"), "x").unwrap();
        let change = Change::Dir { path: path.clone() };
        assert!(change.undo(&SCOPE).unwrap_err().contains("left alone"));
        fs::write(path.join(SCRATCH_MARKER), "another\n").unwrap();
        assert!(change.undo(&SCOPE).unwrap_err().contains("left alone"));
        assert!(path.join("precious").exists());
        fs::write(path.join(SCRATCH_MARKER), "me\n").unwrap();
        change.undo(&SCOPE).unwrap();
        assert!(!path.exists());
        // A link put in its place is never followed.
        let target = dir.path().join("target");
        fs::create_dir(&target).unwrap();
        fs::write(target.join(SCRATCH_MARKER), "me\n").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(change.undo(&SCOPE).unwrap_err().contains("no longer a directory"));
        assert!(target.join(SCRATCH_MARKER).exists());
    }

    #[test]
    fn only_instances_of_vmio_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for wrong in ["instances/other", "vmio-x", "elsewhere/vmio-x"] {
            let path = dir.path().join(wrong);
            fs::create_dir_all(&path).unwrap();
            let change = Change::TraceInstance { path: path.clone() };
            assert!(change.undo(&SCOPE).unwrap_err().contains("left alone"));
            assert!(path.exists());
        }
        let path = dir.path().join("instances/vmio-x");
        fs::create_dir(&path).unwrap();
        Change::TraceInstance { path: path.clone() }.undo(&SCOPE).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_value_is_written_back_but_not_after_a_reboot() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("value");
        fs::write(&path, "2").unwrap();
        let change = Change::Sysfs { path: path.clone(), before: "1".into() };
        change.undo(&Scope { cookie: "me", same_boot: false }).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "2");
        change.undo(&SCOPE).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1");
    }

    #[test]
    fn changes_are_shown_and_paths_must_be_absolute() {
        let change = Change::Cgroup { paths: vec!["/sys/fs/cgroup/x".into(), "y".into()] };
        assert_eq!(change.to_string(), "control group /sys/fs/cgroup/x");
        assert_eq!(change.relative_path(), Some(Path::new("y")));
    }
}
