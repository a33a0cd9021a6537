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
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::change::{Change, SCRATCH_MARKER, Scope};
use crate::machine::{self, lock};
use crate::recover::{dir_mark, lock_file, read_head, undo_file};
use crate::{Error, Result};

/// Version of the journal's lines.
pub(crate) const VERSION: u32 = 1;

/// How long [`Journal::open`] waits for another start that is just recovering the same journal.
const LOCK_LIMIT: Duration = Duration::from_secs(2);

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
}

#[derive(Debug)]
struct State {
    file: File,
    next: u64,
    live: Vec<(ChangeId, Change)>,
    /// Ended by [`Journal::close`]: nothing more is changed.
    closed: bool,
}

impl Journal {
    /// Opens `<dir>/<owner>.journal` for a new owner; makes `dir` (mode 0700) where it is missing.
    /// What a dead owner of the same name left is undone first.
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
        let old = undo_file(&mut file);
        if let Some(failure) = old.failed.first() {
            return Err(fail(format!("an earlier owner left something that cannot be undone: {failure}")));
        }
        let head = new_head(dir, owner).map_err(|e| fail(format!("no random number for the cookie: {e}")))?;
        let write = |file: &mut File| -> io::Result<()> {
            file.set_len(0)?;
            write_line(file, &head)?;
            file.sync_data()?;
            // The name of the file must outlive a crash as well.
            File::open(dir)?.sync_all()
        };
        write(&mut file).map_err(|e| fail(format!("cannot write: {e}")))?;
        Ok(Self { path, head, state: Mutex::new(State { file, next: 1, live: Vec::new(), closed: false }) })
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

    /// Writes down a change that is made next.
    ///
    /// # Errors
    /// When the line cannot be written (the change must not be made then) or a path in it is not
    /// absolute.
    pub fn record(&self, change: Change) -> Result<ChangeId> {
        if let Some(relative) = change.relative_path() {
            return Err(self.error(format!("{} must be an absolute path", relative.display())));
        }
        let mut state = lock(&self.state);
        self.check_open(&state)?;
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
        let mut state = lock(&self.state);
        state.live.retain(|(i, _)| *i != id);
        write_line(&mut state.file, &Line::Undone { undone: id }).map_err(|e| self.error(format!("cannot write: {e}")))
    }

    /// Undoes everything: first the owner's processes end (nothing may hold what goes next), then
    /// the changes in reverse order. Returns what could not be undone; it stays in the journal.
    #[must_use = "failures are told only here"]
    pub fn undo_all(&self) -> Vec<String> {
        let live = lock(&self.state).live.clone();
        let mut failed: Vec<String> = machine::kill_marked(self.cookie(), |_| true).err().into_iter().collect();
        for (id, change) in live.into_iter().rev() {
            let undone = change.undo(&self.scope());
            if let Err(e) = undone.and_then(|()| self.forget(id).map_err(|e| e.to_string())) {
                failed.push(e);
            }
        }
        failed
    }

    /// Ends the owner's work from any thread: nothing is changed or started any more, all is undone,
    /// and the journal's file goes unless something could not be undone (which is returned).
    #[must_use = "failures are told only here"]
    pub fn close(&self) -> Vec<String> {
        lock(&self.state).closed = true;
        let failed = self.undo_all();
        if failed.is_empty() {
            // Still locked: nobody can have taken the name meanwhile.
            let _ = fs::remove_file(&self.path);
        }
        failed
    }

    /// Whether [`Journal::close`] was called: what fails from then on fails for that reason.
    pub fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    /// Starts something that bears the owner's mark; refused once the journal is closed, so that
    /// nothing starts behind the back of [`Journal::close`].
    pub(crate) fn while_open<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        let state = lock(&self.state);
        self.check_open(&state)?;
        start()
    }

    fn check_open(&self, state: &State) -> Result<()> {
        if state.closed { Err(self.error("its owner is ending; nothing was changed".into())) } else { Ok(()) }
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
            fs::write(path.join(SCRATCH_MARKER), format!("{}\n", self.cookie()))
        })?;
        Ok(made.1)
    }

    fn scratch<T>(&self, path: &Path, change: Change, make: impl FnOnce() -> io::Result<T>) -> Result<(T, ChangeId)> {
        let fail = |source| Error::File { node: "local".into(), what: "make", path: path.into(), source };
        // Looked at before it is written down: what was there before is never ours to remove.
        if fs::symlink_metadata(path).is_ok() {
            return Err(fail(io::ErrorKind::AlreadyExists.into()));
        }
        let id = self.record(change)?;
        match make() {
            Ok(made) => Ok((made, id)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.forget(id)?;
                Err(fail(e))
            }
            Err(e) => {
                self.undo(id)?;
                Err(fail(e))
            }
        }
    }

    fn scope(&self) -> Scope<'_> {
        Scope { cookie: &self.head.cookie, same_boot: true }
    }

    fn error(&self, reason: String) -> Error {
        Error::Journal { path: self.path.clone(), reason }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if !lock(&self.state).closed {
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::recover::leftovers;

    #[test]
    fn undone_in_reverse_order_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let work = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let journal = Journal::open(&state, "run-1").unwrap();
        let outer = work.path().join("outer");
        journal.scratch_dir(&outer).unwrap();
        // The inner directory has no marker and so must be empty when its turn comes: it is,
        // if the file that was made last goes first.
        let inner = work.path().join("inner");
        journal.record(Change::Dir { path: inner.clone() }).unwrap();
        fs::create_dir(&inner).unwrap();
        journal.scratch_file(&inner.join("f")).unwrap();
        fs::write(outer.join("content"), "x").unwrap();
        assert!(leftovers(&state).is_empty(), "a living owner leaves nothing behind");
        assert_eq!(journal.undo_all(), Vec::<String>::new());
        assert!(!outer.exists() && !inner.exists());
        drop(journal);
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
    }

    #[test]
    fn after_the_close_nothing_is_changed_or_started() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let journal = std::sync::Arc::new(Journal::open(&state, "run-1").unwrap());
        let node = crate::Local::owned(journal.clone());
        let sleep = crate::Exec::new("sleep").args(["60"]);
        let started = crate::Node::spawn(&node, &sleep).unwrap();
        journal.scratch_file(&dir.path().join("f")).unwrap();
        assert_eq!(journal.close(), Vec::<String>::new());
        assert!(!Path::new(&format!("/proc/{}/exe", started.pid())).exists());
        assert!(journal.scratch_file(&dir.path().join("g")).is_err() && !dir.path().join("g").exists());
        assert!(crate::Node::spawn(&node, &sleep).err().unwrap().to_string().contains("ending"));
        // The file is gone although the journal is still held somewhere.
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
    }

    #[test]
    fn what_was_there_before_is_never_taken() {
        let dir = tempfile::tempdir().unwrap();
        let precious = dir.path().join("precious");
        fs::write(&precious, "x").unwrap();
        let journal = Journal::open(&dir.path().join("state"), "run").unwrap();
        assert!(journal.scratch_file(&precious).is_err());
        assert!(journal.scratch_dir(&precious).is_err());
        drop(journal);
        assert_eq!(fs::read_to_string(&precious).unwrap(), "x");
    }

    #[test]
    fn one_change_can_be_undone_early_or_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path(), "run").unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let (_, first) = journal.scratch_file(&a).unwrap();
        let (_, second) = journal.scratch_file(&b).unwrap();
        journal.undo(first).unwrap();
        journal.undo(first).unwrap();
        assert!(!a.exists());
        journal.forget(second).unwrap();
        drop(journal);
        assert!(b.exists());
    }

    #[test]
    fn an_owner_has_its_journal_for_itself() {
        let dir = tempfile::tempdir().unwrap();
        let first = Journal::open(dir.path(), "run").unwrap();
        let second = Journal::open(dir.path(), "run").unwrap_err().to_string();
        assert!(second.contains(&format!("in use by process {}", std::process::id())), "{second}");
        drop(first);
        Journal::open(dir.path(), "run").unwrap();
        assert!(Journal::open(dir.path(), "../run").is_err());
        assert!(Journal::open(dir.path(), "x").unwrap().record(Change::File { path: "rel".into() }).is_err());
    }

    #[test]
    fn failures_keep_the_journal() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        fs::create_dir(&work).unwrap();
        fs::write(work.join("foreign"), "x").unwrap();
        let journal = Journal::open(&dir.path().join("state"), "run").unwrap();
        journal.record(Change::Dir { path: work.clone() }).unwrap();
        assert!(journal.undo_all()[0].contains("left alone"));
        let path = journal.path().to_owned();
        drop(journal);
        assert!(path.exists());
        fs::remove_file(work.join("foreign")).unwrap();
        Journal::open(&dir.path().join("state"), "run").unwrap();
        assert!(!work.exists() && !path.exists());
    }
}
