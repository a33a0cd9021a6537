//! The owner of a run that is being measured: an flock(2) on a small file beside the store. The kernel drops it with
//! the owner, however the owner ends, which process ids, reused and different between containers, would not show.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

/// Held while a run is being measured.
#[derive(Debug)]
pub(super) struct Owner {
    path: PathBuf,
    _file: File,
}

/// Lock file of a run, beside the store after links are resolved.
fn file_of(store: &Path, run: i64) -> PathBuf {
    let real = fs::canonicalize(store).unwrap_or_else(|_| store.to_owned());
    real.with_file_name(format!("run-{run}.lock"))
}

/// Opens a lock file; does not block on a pipe, and follows no link.
fn open(path: &Path) -> io::Result<File> {
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW).bits();
    OpenOptions::new().read(true).custom_flags(flags as i32).open(path)
}

fn is_at(file: &File, path: &Path) -> bool {
    matches!((file.metadata(), fs::metadata(path)), (Ok(a), Ok(b)) if (a.dev(), a.ino()) == (b.dev(), b.ino()))
}

impl Owner {
    /// Locks the run; `None` when another process has it.
    pub(super) fn take(store: &Path, run: i64) -> io::Result<Option<Owner>> {
        let path = file_of(store, run);
        // A process that lists runs holds a shared lock for a moment, so this is tried several times.
        for _ in 0..20 {
            let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // The last owner may have removed the file between our open and our lock.
                Ok(()) if is_at(&file, &path) => return Ok(Some(Owner { path, _file: file })),
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => sleep(Duration::from_millis(10)),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(None)
    }

    /// Whether the run is being measured now.
    pub(super) fn is_alive(store: &Path, run: i64) -> bool {
        let Ok(file) = open(&file_of(store, run)) else { return false };
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
    }

    /// Removes the lock files of owners that are dead: one that was killed after its run was done leaves its file.
    pub(super) fn remove_dead(store: &Path) {
        let of_run = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let run = name.strip_prefix("run-").and_then(|rest| rest.strip_suffix(".lock"));
            run.is_some_and(|run| run.parse::<i64>().is_ok())
        };
        let beside = file_of(store, 0);
        let all = beside.parent().and_then(|dir| fs::read_dir(dir).ok()).into_iter().flatten();
        for path in all.filter_map(|entry| Some(entry.ok()?.path())).filter(of_run) {
            // A process that has opened the file and not locked it yet sees that it is gone, and starts again.
            if let Ok(file) = open(&path)
                && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
                && is_at(&file, &path)
                && file.metadata().is_ok_and(|meta| meta.is_file())
            {
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// Removes the lock file of a dead owner.
    pub(super) fn forget(store: &Path, run: i64) {
        let _ = fs::remove_file(file_of(store, run));
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
