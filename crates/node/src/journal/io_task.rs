//! The I/O task of undoing a change of a file or directory, whose storage may never answer
//! ([`io_worker`](crate::io_worker)).

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bounds;
use super::change::{Change, Scope};
use super::error::NotUndone;
use super::held::follow_dir;
use crate::io_worker::{self, Done, IoTask};

/// Undoing a change.
pub(crate) static UNDO: IoTask = IoTask { word: "undo", perform };

#[derive(Serialize, Deserialize)]
struct Undo {
    change: Change,
    cookie: String,
    same_boot: bool,
    /// Directories that its living owner holds, and the paths by which its descriptors are reached.
    held: Vec<(PathBuf, PathBuf)>,
    /// Places that its journal recorded.
    scratch: Vec<PathBuf>,
}

/// Takes a change back in another process.
///
/// # Errors
/// `TimedOut` when its storage gave no answer. What could not be taken back is the inner error.
pub(super) fn undo(
    change: &Change,
    scope: &Scope<'_>,
    scratch: &[PathBuf],
    limit: Duration,
) -> io::Result<Result<(), NotUndone>> {
    let own = std::process::id();
    let by = |fd: i32| PathBuf::from(format!("/proc/{own}/fd/{fd}"));
    let undo = Undo {
        change: change.clone(),
        cookie: scope.cookie.to_owned(),
        same_boot: scope.same_boot,
        held: scope.held.iter().map(|(path, fd)| (path.clone(), by(fd.as_raw_fd()))).collect(),
        scratch: scratch.to_vec(),
    };
    let (done, _): (Result<(), String>, _) = io_worker::send(&UNDO, &undo, Path::new("/"), limit)?;
    Ok(done.map_err(NotUndone::InWorker))
}

fn perform(ask: &str, _: &Path) -> Done {
    let undo: Undo = serde_json::from_str(ask)?;
    // Of one that is gone by now the path is all there is.
    let held = undo.held.into_iter().filter_map(|(path, by)| Some((path, Arc::new(follow_dir(&by).ok()?))));
    let held: Vec<_> = held.collect();
    let scope = Scope { cookie: &undo.cookie, same_boot: undo.same_boot, held: &held };
    let done = bounds::undo(&undo.change, &scope, &undo.scratch).map_err(|e| e.to_string());
    Ok((serde_json::to_string(&done)?, Vec::new()))
}
