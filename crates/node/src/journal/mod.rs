//! The journal: every change is written down before it is made, so that it can be undone when
//! its owner ends, and by the next start when the owner was killed with SIGKILL.
//!
//! A journal is a file of JSON lines, `<dir>/<owner>.journal`: a head (version, owner, cookie,
//! boot, pid), then `{"do":3,"change":{..}}`, `{"undone":3}`, and `{"scratch":"/srv/images"}` for a
//! directory in which its owner is about to make files: none is removed elsewhere. The living owner
//! holds an exclusive `flock` on it: a journal that can be locked has no owner any more. Lines about
//! files and directories are forced to the disk; all else is gone after a reboot anyway. Only what
//! this user alone can have written is obeyed (see [`crate::journal::trust`], [`crate::journal::bounds`]).

pub mod aoe_disk;
pub mod balloon;
pub(crate) mod bounds;
pub(crate) mod change;
pub(crate) mod error;
pub mod held;
pub mod histograms;
pub(crate) mod io_task;
pub mod loops;
pub mod mapped;
pub mod nvme_export;
pub mod reaper;
pub(crate) mod recover;
pub(crate) mod removal;
pub(crate) mod trust;
pub mod undo_log;
pub(crate) mod volume;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::helper::{Helper, Running};
use crate::journal::change::Change;
use crate::journal::lines::new_head;
pub(crate) use crate::journal::lines::{Head, Line, VERSION, write_line};
use crate::journal::reaper::Reaper;
use crate::journal::recover::{Locked, lock_file, private_dir, read_head, undo_file};
use crate::journal::trust::Home;
use crate::machine::lock;
use crate::{Error, Result};

mod lines;
mod scratch;
mod servers;
mod undo;

/// How long [`Journal::open`] waits for another start that is just recovering the same journal.
const LOCK_LIMIT: Duration = Duration::from_secs(2);

/// How long [`Journal::close`] waits for what is just being made. Storage that is dead holds a
/// system call for ever, and the end of a run must not wait for that.
const MAKING_LIMIT: Duration = Duration::from_secs(20);

/// Names a change within its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChangeId(u64);

/// The journal of one living owner. Dropping it undoes all that is still in force.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    head: Head,
    state: Mutex<State>,
    /// Something has been made or undone, or could not be.
    made: Condvar,
}

#[derive(Debug)]
struct State {
    file: File,
    next: u64,
    live: Vec<(ChangeId, Change)>,
    /// Directories in which files are made.
    scratch: Vec<PathBuf>,
    /// Changes that are just being made.
    making: Vec<ChangeId>,
    /// Scratch directories that are held, by the path that their maker knows them by.
    held: scratch::Held,
    /// When [`Journal::close`] ended it first: since then nothing more is changed.
    closed: Option<Instant>,
    /// Changes that a thread is undoing. Another thread would fail at them, and the journal would stay although nothing
    /// is left.
    in_hand: Vec<ChangeId>,
    /// Who ends this owner's processes should it be killed.
    reaper: Option<Reaper>,
}

impl Journal {
    /// Opens `<dir>/<owner>.journal` for a new owner; makes `dir` (mode 0700) where it is missing.
    /// What a dead owner of the same name left is undone first. What of it cannot be undone is set
    /// aside as a journal of its own, which every [`crate::recover`] tries and tells again: storage
    /// that is gone must not keep the owner from working elsewhere.
    ///
    /// # Errors
    /// When the directory cannot be used, or another living process has this owner's journal;
    /// [`Error::Untrusted`] where others could have written either.
    pub fn open(dir: &Path, owner: &str) -> Result<Self> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if owner.is_empty() || owner.starts_with('.') || !owner.chars().all(allowed) {
            let reason = format!("{owner:?} is not a valid owner name; use letters, digits, '.', '_' and '-'");
            return Err(Error::Journal { path: dir.join(format!("{owner}.journal")), reason });
        }
        private_dir(dir)?;
        let home = Home::open(dir)?;
        let name = OsString::from(format!("{owner}.journal"));
        let path = home.path.join(&name);
        let fail = |reason: String| Error::Journal { path: path.clone(), reason };
        let locked = || match lock_file(&home, &name, LOCK_LIMIT).map_err(|e| fail(e.to_string()))? {
            Locked::Ours(file) => Ok(file),
            Locked::Living => {
                let pid = read_head(&path).map_or_else(|| "?".into(), |h| h.pid.to_string());
                Err(fail(format!("in use by process {pid}; wait for it to end, or use another name")))
            }
            Locked::Planted(why) => Err(Error::Untrusted {
                path: path.clone(),
                why: format!("{why}, so it may be someone else's: it was ignored"),
                mend: "check it, then delete it".into(),
            }),
        };
        let mut file = locked()?;
        let old = undo_file(&mut file, &path);
        let head = new_head(dir, owner).map_err(|e| fail(format!("no random number for the cookie: {e}")))?;
        if let Some(failure) = old.failed.first() {
            let aside = home.path.join(format!("{}-left.journal", head.cookie));
            fs::rename(&path, &aside)
                .map_err(|e| fail(format!("an earlier owner left something that cannot be undone ({failure}): {e}")))?;
            file = locked()?;
        }
        let write = |file: &mut File| -> io::Result<()> {
            file.set_len(0)?;
            write_line(file, &head)?;
            file.sync_data()?;
            // The name of the file must outlive a crash as well.
            File::open(dir)?.sync_all()
        };
        write(&mut file).map_err(|e| fail(unwritten(&e, &home.path)))?;
        let state = State {
            file,
            next: 1,
            live: Vec::new(),
            scratch: Vec::new(),
            making: Vec::new(),
            held: Vec::new(),
            closed: None,
            in_hand: Vec::new(),
            reaper: None,
        };
        Ok(Self { path, head, state: Mutex::new(state), made: Condvar::new() })
    }

    /// Has the owner's processes ended at once, should the owner be killed with SIGKILL: by a second
    /// process of this program ([`crate::journal::reaper`]), whose number this returns. The rest is left to the
    /// next start.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_reaper(&self) -> Result<u32> {
        let reaper = Reaper::start(self.cookie())
            .map_err(|e| self.error(format!("cannot start the process that cleans up after a kill: {e}")))?;
        let pid = reaper.pid();
        lock(&self.state).reaper = Some(reaper);
        Ok(pid)
    }

    /// Starts a helper that bears this owner's mark; its standard input is this, and its output its line.
    ///
    /// # Errors
    /// When it cannot be started, or the owner is ending.
    pub fn serve_by(&self, helper: &Helper, input: OwnedFd) -> Result<Running> {
        let failed = |source| Error::File { node: "local".into(), what: "start", path: helper.program.clone(), source };
        self.while_open(|| helper.start(Some(self.cookie()), Some(input)).map_err(failed))
    }

    /// Value of `VMIO_OWNER` in the processes of this owner.
    pub fn cookie(&self) -> &str {
        &self.head.cookie
    }

    /// Name of the owner.
    pub fn owner(&self) -> &str {
        &self.head.owner
    }

    /// The journal's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down a change that is made next. Where [`Journal::close`] may come from another
    /// thread, [`Journal::make`] is the safe way.
    ///
    /// # Errors
    /// When the line cannot be written (the change must not be made then) or a path in it is not
    /// absolute.
    pub fn record(&self, change: Change) -> Result<ChangeId> {
        self.check_paths(&change)?;
        let place = bounds::place_of(&change);
        self.write_down(&mut lock(&self.state), change, place)
    }

    /// Writes down a change and makes it. [`Journal::close`] from another thread comes before both,
    /// and then nothing is made, or waits for both, and then it is undone. The inner result is
    /// `make`'s: where it fails the change is struck out, so it must leave nothing half made behind.
    /// What is still being made when the close has waited long enough stays in the journal, and the
    /// next start undoes it.
    ///
    /// # Errors
    /// As [`Journal::record`]; also when a failed change cannot be struck out.
    pub fn make<T, E>(
        &self,
        change: Change,
        make: impl FnOnce() -> std::result::Result<T, E>,
    ) -> Result<std::result::Result<(T, ChangeId), E>> {
        self.check_paths(&change)?;
        let place = bounds::place_of(&change);
        let id = {
            let mut state = lock(&self.state);
            let id = self.write_down(&mut state, change, place)?;
            state.making.push(id);
            id
        };
        // Without the lock, so that silent storage does not block the end of the owner.
        let _making = Making { journal: self, id };
        match make() {
            Ok(made) => Ok(Ok((made, id))),
            Err(e) => self.forget(id).map(|()| Err(e)),
        }
    }

    fn check_paths(&self, change: &Change) -> Result<()> {
        match change.relative_path() {
            Some(relative) => Err(self.error(format!("{} must be an absolute path", relative.display()))),
            None => Ok(()),
        }
    }

    fn write_down(&self, state: &mut State, change: Change, place: Option<PathBuf>) -> Result<ChangeId> {
        self.check_open(state)?;
        let id = ChangeId(state.next);
        let sync = change.outlives_boot();
        // Recorded once, before its first use; the change's own line forces both to the disk.
        if let Some(scratch) = place.filter(|p| !state.scratch.iter().any(|s| p.starts_with(s))) {
            let line = Line::Scratch { scratch };
            write_line(&mut state.file, &line)
                .map_err(|e| self.error(format!("{}; nothing was changed", self.unwritten(&e))))?;
            let Line::Scratch { scratch } = line else { unreachable!("built three lines above") };
            state.scratch.push(scratch);
        }
        let line = Line::Do { id, change };
        write_line(&mut state.file, &line)
            .and_then(|()| if sync { state.file.sync_data() } else { Ok(()) })
            .map_err(|e| self.error(format!("{}; nothing was changed", self.unwritten(&e))))?;
        state.next += 1;
        let Line::Do { change, .. } = line else { unreachable!("built four lines above") };
        state.live.push((id, change));
        Ok(id)
    }

    /// Whether [`Journal::close`] was called: what fails from then on fails for that reason.
    pub fn is_closed(&self) -> bool {
        lock(&self.state).closed.is_some()
    }

    /// Starts something that bears the owner's mark; refused once the journal is closed, so that
    /// nothing starts behind the back of [`Journal::close`].
    pub(crate) fn while_open<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        let state = lock(&self.state);
        self.check_open(&state)?;
        start()
    }

    fn check_open(&self, state: &State) -> Result<()> {
        if state.closed.is_some() { Err(self.error("its owner is ending; nothing was changed".into())) } else { Ok(()) }
    }

    fn unwritten(&self, e: &io::Error) -> String {
        unwritten(e, self.path.parent().unwrap_or(&self.path))
    }

    fn error(&self, reason: String) -> Error {
        Error::Journal { path: self.path.clone(), reason }
    }
}

/// Guard of a change that is being made.
struct Making<'a> {
    journal: &'a Journal,
    id: ChangeId,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        lock(&self.journal.state).making.retain(|id| *id != self.id);
        self.journal.made.notify_all();
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if !self.is_closed() {
            let _ = self.close();
        }
    }
}

/// Why a line could not be written, and what to do.
fn unwritten(e: &io::Error, dir: &Path) -> String {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!(
                "the disk of {} is full; free some space there, or keep the state elsewhere: --state DIR",
                dir.display()
            )
        }
        _ => format!("cannot write it: {e}"),
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
