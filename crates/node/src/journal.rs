//! The journal: every change is written down before it is made, so that it can be undone when
//! its owner ends, and by the next start when the owner was killed with SIGKILL.
//!
//! A journal is a file of JSON lines, `<dir>/<owner>.journal`: a head (version, owner, cookie,
//! boot, pid), then `{"do":3,"change":{..}}` and `{"undone":3}`. The living owner holds an
//! exclusive `flock` on it: a journal that can be locked has no owner any more. Lines about files
//! and directories are forced to the disk; all else is gone after a reboot anyway.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::change::{Change, SCRATCH_MARKER, Scope};
use crate::machine::{self, lock};
use crate::recover::{dir_mark, lock_file, read_head, told_by_hand, undo_file};
use crate::{Error, Result};

/// Version of the journal's lines.
pub(crate) const VERSION: u32 = 1;

/// How long [`Journal::open`] waits for another start that is just recovering the same journal.
const LOCK_LIMIT: Duration = Duration::from_secs(2);

/// How long [`Journal::close`] waits for what is just being made. Storage that is dead holds a
/// system call for ever, and the end of a run must not wait for that.
const MAKING_LIMIT: Duration = Duration::from_secs(20);

/// Names a change within its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChangeId(u64);

/// First line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// Version of the lines that follow.
    pub vmio_journal: u32,
    /// Who makes the changes.
    pub owner: String,
    /// Mark of its processes.
    pub cookie: String,
    /// Boot during which it was opened.
    pub boot_id: String,
    /// The owner's process, and when that started.
    pub pid: u32,
    /// Clock ticks since boot at which the owner's process started.
    pub start_ticks: u64,
}

/// A line after the head.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Line {
    Do {
        #[serde(rename = "do")]
        id: ChangeId,
        change: Change,
    },
    Undone {
        undone: ChangeId,
    },
}

/// The journal of one living owner. Dropping it undoes all that is still in force.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    head: Head,
    state: Mutex<State>,
    /// Something has been made, or could not be.
    made: Condvar,
}

#[derive(Debug)]
struct State {
    file: File,
    next: u64,
    live: Vec<(ChangeId, Change)>,
    /// Changes that are just being made.
    making: Vec<ChangeId>,
    /// When [`Journal::close`] ended it first: since then nothing more is changed.
    closed: Option<Instant>,
}

impl Journal {
    /// Opens `<dir>/<owner>.journal` for a new owner; makes `dir` (mode 0700) where it is missing.
    /// What a dead owner of the same name left is undone first. What of it cannot be undone is set
    /// aside as a journal of its own, which every [`crate::recover`] tries and tells again: storage
    /// that is gone must not keep the owner from working elsewhere.
    ///
    /// # Errors
    /// When the directory cannot be used, or another living process has this owner's journal.
    pub fn open(dir: &Path, owner: &str) -> Result<Self> {
        let path = dir.join(format!("{owner}.journal"));
        let fail = |reason: String| Error::Journal { path: path.clone(), reason };
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if owner.is_empty() || owner.starts_with('.') || !owner.chars().all(allowed) {
            return Err(fail(format!("{owner:?} is no name for an owner; use letters, digits, '.', '_' and '-'")));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| {
            fail(format!("cannot make the directory: {e}; choose a state directory that this user may write"))
        })?;
        let mut file = lock_file(&path, LOCK_LIMIT).map_err(|e| fail(e.to_string()))?.ok_or_else(|| {
            let pid = read_head(&path).map_or_else(|| "?".into(), |h| h.pid.to_string());
            fail(format!("in use by process {pid}; wait for it to end, or use another name"))
        })?;
        let old = undo_file(&mut file, &path);
        let head = new_head(dir, owner).map_err(|e| fail(format!("no random number for the cookie: {e}")))?;
        if let Some(failure) = old.failed.first() {
            let aside = dir.join(format!("{}-left.journal", head.cookie));
            fs::rename(&path, &aside)
                .map_err(|e| fail(format!("an earlier owner left something that cannot be undone ({failure}): {e}")))?;
            let again = lock_file(&path, LOCK_LIMIT).map_err(|e| fail(e.to_string()))?;
            file = again.ok_or_else(|| fail("another process has taken it".into()))?;
        }
        let write = |file: &mut File| -> io::Result<()> {
            file.set_len(0)?;
            write_line(file, &head)?;
            file.sync_data()?;
            // The name of the file must outlive a crash as well.
            File::open(dir)?.sync_all()
        };
        write(&mut file).map_err(|e| fail(format!("cannot write: {e}")))?;
        let state = State { file, next: 1, live: Vec::new(), making: Vec::new(), closed: None };
        Ok(Self { path, head, state: Mutex::new(state), made: Condvar::new() })
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
        self.write_down(&mut lock(&self.state), change)
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
        let id = {
            let mut state = lock(&self.state);
            let id = self.write_down(&mut state, change)?;
            state.making.push(id);
            id
        };
        // Without the lock: storage that does not answer would hold whoever ends the owner too.
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

    fn write_down(&self, state: &mut State, change: Change) -> Result<ChangeId> {
        self.check_open(state)?;
        let id = ChangeId(state.next);
        let sync = change.outlives_boot();
        let line = Line::Do { id, change };
        write_line(&mut state.file, &line)
            .and_then(|()| if sync { state.file.sync_data() } else { Ok(()) })
            .map_err(|e| self.error(format!("cannot write down a change: {e}; nothing was changed")))?;
        state.next += 1;
        let Line::Do { change, .. } = line else { unreachable!("built four lines above") };
        state.live.push((id, change));
        Ok(id)
    }

    /// Undoes one change before its turn. A change that was undone already is no error.
    ///
    /// # Errors
    /// When it cannot be undone; it then stays in the journal.
    pub fn undo(&self, id: ChangeId) -> Result<()> {
        let found = lock(&self.state).live.iter().find(|(i, _)| *i == id).map(|(_, c)| c.clone());
        match found {
            None => Ok(()),
            Some(change) => {
                change.undo(&self.scope()).map_err(|e| self.error(e))?;
                self.forget(id)
            }
        }
    }

    /// Strikes out a change that was not made after all, or that its maker took back itself.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn forget(&self, id: ChangeId) -> Result<()> {
        self.strike_out(&mut lock(&self.state), id)
    }

    fn strike_out(&self, state: &mut State, id: ChangeId) -> Result<()> {
        state.live.retain(|(i, _)| *i != id);
        write_line(&mut state.file, &Line::Undone { undone: id }).map_err(|e| self.error(format!("cannot write: {e}")))
    }

    /// Undoes everything: first the owner's processes end (nothing may hold what goes next), then
    /// the changes in reverse order. Returns what could not be undone; it stays in the journal, as
    /// does what is just being made.
    #[must_use = "failures are told only here"]
    pub fn undo_all(&self) -> Vec<String> {
        let (live, making) = {
            let state = lock(&self.state);
            (state.live.clone(), state.making.clone())
        };
        let mut failed: Vec<String> = machine::kill_marked(self.cookie(), |_| true).err().into_iter().collect();
        for (id, change) in live.into_iter().rev() {
            if making.contains(&id) {
                failed.push(format!(
                    "{change} is still being made; it stays in the journal and the next start undoes it"
                ));
                continue;
            }
            let undone = change.undo(&self.scope());
            if let Err(e) = undone.and_then(|()| self.forget(id).map_err(|e| e.to_string())) {
                failed.push(told_by_hand(&change, e, &self.path));
            }
        }
        failed
    }

    /// Ends the owner's work from any thread: nothing is changed or started any more, what is just
    /// being made is waited for (at most 20 s), all is undone, and the journal's file goes unless
    /// something could not be undone (which is returned).
    #[must_use = "failures are told only here"]
    pub fn close(&self) -> Vec<String> {
        self.close_within(MAKING_LIMIT)
    }

    fn close_within(&self, limit: Duration) -> Vec<String> {
        let mut state = lock(&self.state);
        // What was waited for once is not waited for again.
        let left = limit.saturating_sub(state.closed.get_or_insert_with(Instant::now).elapsed());
        let waited = self.made.wait_timeout_while(state, left, |s| !s.making.is_empty());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        let failed = self.undo_all();
        if failed.is_empty() {
            // Still locked: nobody can have taken the name meanwhile.
            let _ = fs::remove_file(&self.path);
        }
        failed
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

    /// Makes a new, empty file of mode 0600 that is removed at the end.
    ///
    /// # Errors
    /// When something is at the path already, or it cannot be made.
    pub fn scratch_file(&self, path: &Path) -> Result<(File, ChangeId)> {
        self.scratch(path, Change::File { path: path.into() }, || {
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
        })
    }

    /// Makes a new directory of mode 0700 that is removed at the end, with all that is in it.
    ///
    /// # Errors
    /// When something is at the path already, or it cannot be made.
    pub fn scratch_dir(&self, path: &Path) -> Result<ChangeId> {
        let made = self.scratch(path, Change::Dir { path: path.into() }, || {
            DirBuilder::new().mode(0o700).create(path)?;
            let marker = path.join(SCRATCH_MARKER);
            fs::write(&marker, format!("{}\n", self.cookie())).inspect_err(|_| {
                let _ = fs::remove_file(&marker);
                let _ = fs::remove_dir(path);
            })
        })?;
        Ok(made.1)
    }

    fn scratch<T>(&self, path: &Path, change: Change, make: impl FnOnce() -> io::Result<T>) -> Result<(T, ChangeId)> {
        let fail = |source| Error::File { node: "local".into(), what: "make", path: path.into(), source };
        // Looked at before it is written down: what was there before is never ours to remove.
        if fs::symlink_metadata(path).is_ok() {
            return Err(fail(io::ErrorKind::AlreadyExists.into()));
        }
        self.make(change, make)?.map_err(fail)
    }

    fn scope(&self) -> Scope<'_> {
        Scope { cookie: &self.head.cookie, same_boot: true }
    }

    fn error(&self, reason: String) -> Error {
        Error::Journal { path: self.path.clone(), reason }
    }
}

/// A change that is just being made, however that ends.
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

/// Appends one line with a single write; takes back half a line (full disk), which would spoil
/// the next one.
pub(crate) fn write_line(file: &mut File, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    let end = file.metadata()?.len();
    file.write_all(text.as_bytes()).inspect_err(|_| {
        let _ = file.set_len(end);
    })
}

fn new_head(dir: &Path, owner: &str) -> io::Result<Head> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
    let pid = std::process::id();
    Ok(Head {
        vmio_journal: VERSION,
        owner: owner.to_owned(),
        cookie: format!("{}{owner}-{pid}-{:016x}", dir_mark(dir), u64::from_le_bytes(random)),
        boot_id: machine::boot_id(),
        pid,
        start_ticks: machine::start_ticks(pid).unwrap_or(0),
    })
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
