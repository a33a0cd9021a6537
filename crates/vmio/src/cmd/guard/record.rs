//! Which state directory has the record of what the guard of this network namespace changed: a file of root's in
//! `/run/vmio`. By it `guard run`, `status` and `undo` with another state directory name the right one, also after the
//! guard was killed: only what is recorded there can be put back.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use vmio_guard::namespace_lock::{self, NamespaceLock};
use vmio_guard::undo_log::UndoLog;
use vmio_model::failure::{Exit, Failure};

use crate::paths::Paths;

/// Longest path of a directory (PATH_MAX).
const LONGEST: u64 = 4096;

/// The file that names the directory.
#[derive(Debug, Clone)]
pub struct Record {
    path: PathBuf,
}

impl Record {
    /// That of this network namespace.
    pub fn here() -> io::Result<Record> {
        Ok(Record { path: Paths::guard_record(namespace_lock::inode()?) })
    }

    /// The state directory that has the ledger; `None` where none is named, or its ledger is gone.
    pub fn directory(&self) -> Option<PathBuf> {
        let dir = self.read()?;
        // It may be hidden from this user.
        let is_gone = matches!(Paths::guard_ledger(&dir).join("guard.ledger").try_exists(), Ok(false));
        Some(dir).filter(|_| !is_gone)
    }

    /// The same, where it is not this one.
    pub fn elsewhere(&self, state: &Path) -> Option<PathBuf> {
        self.directory().filter(|dir| !is_same(dir, state))
    }

    /// Names the directory. Anybody may read it, as whoever may ask the guard.
    pub fn write(&self, state: &Path) -> io::Result<()> {
        let Some(dir) = self.path.parent() else { return Ok(()) };
        DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
        let fresh = self.path.with_extension("tmp");
        // Left by one that was killed.
        let _ = fs::remove_file(&fresh);
        let mut file = File::options().write(true).create_new(true).mode(0o644).open(&fresh)?;
        file.write_all(state.as_os_str().as_bytes())?;
        file.set_permissions(Permissions::from_mode(0o644))?;
        fs::rename(&fresh, &self.path)
    }

    /// Removes it, unless it names another directory with a ledger.
    pub fn forget(&self, state: &Path) {
        if self.elsewhere(state).is_none() {
            // On failure it names a ledger without entries, or none, which does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }

    /// What it names, if only root or this user can have written it.
    fn read(&self) -> Option<PathBuf> {
        let trusted =
            |meta: &Metadata| [0, geteuid().as_raw()].contains(&meta.uid()) && meta.permissions().mode() & 0o022 == 0;
        let dir = fs::symlink_metadata(self.path.parent()?).ok().filter(|dir| dir.is_dir() && trusted(dir));
        dir?;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::options().read(true).custom_flags(flags.bits() as i32).open(&self.path).ok()?;
        file.metadata().ok().filter(|meta| meta.is_file() && trusted(meta))?;
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text).ok()?;
        Some(PathBuf::from(OsString::from_vec(text))).filter(|dir| dir.is_absolute())
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other
        || fs::canonicalize(one).ok().is_some_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

/// The state directory with the ledger of this network namespace's guard, as far as it is recorded.
pub fn directory() -> Option<PathBuf> {
    Record::here().ok()?.directory()
}

/// The process id of a guard of this network namespace, whose socket is elsewhere.
pub fn other_guard() -> Option<u32> {
    NamespaceLock::holder().ok().flatten()
}

/// The error of a command that such a guard keeps from its work; `before` says what was not done.
pub fn other_guard_runs(before: &str, pid: u32) -> anyhow::Error {
    let runs = format!("{before}a guard runs in this network namespace (process {pid})");
    let (what, help) = match directory() {
        Some(dir) => (
            format!("{runs}, with the state directory {}", dir.display()),
            format!(
                "ask it by `vmio guard status{}`, or wait a moment where it is just starting or ending",
                Paths::option_of(&dir)
            ),
        ),
        None => (
            format!("{runs}: it is just starting or ending, or has another state directory"),
            "name that directory by --state (it is on the command line of that process, else /var/lib/vmio)".to_owned(),
        ),
    };
    Failure::new(Exit::Precondition, what).help(help).into()
}

/// The error of a command whose state directory is not the one with the record; `before` says what was not done.
pub fn is_elsewhere(before: &str, dir: &Path) -> anyhow::Error {
    if let Some(pid) = other_guard() {
        return other_guard_runs(before, pid);
    }
    let what = format!(
        "{before}what a guard changed in this network namespace is recorded in another state directory: {}",
        dir.display()
    );
    let state = Paths::option_of(dir);
    Failure::new(Exit::Precondition, what)
        .help(format!("`vmio guard undo{state}` removes its limits, `vmio guard run{state}` resumes them"))
        .into()
}

/// Directories of these paths that do not exist yet, the deepest first.
pub fn missing(paths: &[&Path]) -> Vec<PathBuf> {
    let all = paths.iter().flat_map(|path| path.ancestors()).filter(|dir| !dir.exists());
    let mut all: Vec<PathBuf> = all.map(Path::to_owned).collect();
    all.sort_unstable();
    all.dedup();
    all.reverse();
    all
}

/// After a guard's end: where its ledger has no entry, nothing has to be found again. Directories that a refused start
/// `made` are removed then.
pub fn tidy(record: Option<&Record>, state: &Path, made: &[PathBuf]) {
    if record.is_none() && made.is_empty() {
        return;
    }
    let ledger = Paths::guard_ledger(state);
    let Some(log) = UndoLog::open_to_undo(&ledger).ok().filter(UndoLog::is_empty) else { return };
    if let Some(record) = record {
        record.forget(state);
    }
    // On failure an empty directory stays.
    if made.contains(&ledger) {
        let _ = fs::remove_dir_all(&ledger);
    }
    drop(log);
    for dir in made {
        let _ = fs::remove_dir(dir);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::symlink;

    use super::*;

    /// A state directory with a ledger.
    fn state(dir: &Path, name: &str) -> PathBuf {
        let state = dir.join(name);
        fs::create_dir_all(state.join("guard")).unwrap();
        fs::write(state.join("guard/guard.ledger"), "x").unwrap();
        state
    }

    #[test]
    fn another_directory_is_named_while_it_has_a_ledger() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record { path: dir.path().join("run/guard-1.state") };
        let (one, other) = (state(dir.path(), "one"), dir.path().join("other"));
        assert_eq!(record.elsewhere(&other), None);
        record.write(&one).unwrap();
        record.write(&one).unwrap();
        assert_eq!((record.elsewhere(&other), record.elsewhere(&one)), (Some(one.clone()), None));
        symlink(&one, dir.path().join("link")).unwrap();
        assert_eq!(record.elsewhere(&dir.path().join("link")), None);
        record.forget(&other);
        assert_eq!(record.directory(), Some(one.clone()));
        fs::remove_file(one.join("guard/guard.ledger")).unwrap();
        assert_eq!(record.elsewhere(&other), None, "nothing can be put back from there");
        record.forget(&one);
        assert!(!record.path.exists());
    }

    #[test]
    fn what_others_may_have_written_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record { path: dir.path().join("run/guard-1.state") };
        let one = state(dir.path(), "one");
        record.write(&one).unwrap();
        for path in [record.path.as_path(), record.path.parent().unwrap()] {
            let before = fs::metadata(path).unwrap().permissions();
            fs::set_permissions(path, Permissions::from_mode(before.mode() | 0o020)).unwrap();
            assert_eq!(record.directory(), None, "{}", path.display());
            fs::set_permissions(path, before).unwrap();
            assert_eq!(record.directory(), Some(one.clone()));
        }
        fs::rename(&record.path, dir.path().join("run/x")).unwrap();
        symlink(dir.path().join("run/x"), &record.path).unwrap();
        assert_eq!(record.directory(), None);
        fs::remove_file(&record.path).unwrap();
        fs::write(&record.path, "relative").unwrap();
        assert_eq!(record.directory(), None);
    }

    #[test]
    fn a_refused_start_leaves_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/new");
        let (ledger, run) = (state.join("guard"), state.join("run"));
        let made = missing(&[&ledger, &run]);
        assert_eq!(made, [run.clone(), ledger.clone(), state.clone(), dir.path().join("a")]);
        fs::create_dir_all(&run).unwrap();
        let log = UndoLog::open(&ledger).unwrap();
        let entry = log.record("part", &1).unwrap();
        drop(log);
        tidy(None, &state, &made);
        assert!(ledger.exists(), "what is recorded is in force");
        UndoLog::open(&ledger).unwrap().strike(entry).unwrap();
        tidy(None, &state, &made);
        assert!(!dir.path().join("a").exists());
        // What was there before stays.
        fs::create_dir_all(&state).unwrap();
        let made = missing(&[&ledger]);
        drop(UndoLog::open(&ledger).unwrap());
        tidy(None, &state, &made);
        assert!(state.exists() && !ledger.exists());
    }
}
