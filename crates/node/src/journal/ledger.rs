//! A ledger: what stays in force when its owner ends, until somebody undoes it on purpose (the guard's limits). A
//! [`crate::Journal`] undoes what a dead owner left; a ledger hands it to the next one.
//!
//! `<dir>/<name>.ledger` holds JSON lines: a head (version, boot), then `{"do":3,"what":{..}}` and `{"undone":3}`.
//! Beside it `<name>.lock` is locked (flock(2)) by the one that may write. A line is written before the change that it
//! speaks of; nothing is forced to the disk, since what it speaks of is the running kernel's and gone after a reboot:
//! lines of another boot are dropped. Only what this user alone can have written is obeyed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::lines::write_line;
use super::recover::{Locked, lock_file, private_dir};
use super::trust::Home;
use crate::machine;
use crate::{Error, Result};

/// Version of the lines.
const VERSION: u32 = 1;
/// How long an owner that is just ending is waited for.
const LOCK_LIMIT: Duration = Duration::from_millis(500);
/// Lines that speak of nothing in force any more, before the file is written anew.
const STALE: usize = 4096;

/// Names an entry within its ledger.
pub type EntryId = u64;

/// A ledger that this process may write.
#[derive(Debug)]
pub struct Ledger<T> {
    path: PathBuf,
    home: Home,
    name: OsString,
    file: File,
    /// Held as long as this is.
    _lock: File,
    next: EntryId,
    live: BTreeMap<EntryId, T>,
    lines: usize,
}

#[derive(Serialize, Deserialize)]
struct Head {
    vmio_ledger: u32,
    boot_id: String,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line<T> {
    Do {
        #[serde(rename = "do")]
        id: EntryId,
        what: T,
    },
    Undone {
        undone: EntryId,
    },
}

impl<T: Serialize + DeserializeOwned> Ledger<T> {
    /// Opens `<dir>/<name>.ledger`, with what earlier owners of this boot have left in force; makes `dir` (mode 0700) and
    /// the file where they are missing.
    ///
    /// # Errors
    /// [`Error::Journal`] when another process has it open, or a line makes no sense; [`Error::Untrusted`] where
    /// somebody else could have written it.
    pub fn open(dir: &Path, name: &str) -> Result<Self> {
        private_dir(dir)?;
        let home = Home::open(dir)?;
        let path = home.path.join(format!("{name}.ledger"));
        let fail = |reason: String| Error::Journal { path: path.clone(), reason };
        let lock = format!("{name}.lock");
        let mut lock = match lock_file(&home, lock.as_ref(), LOCK_LIMIT).map_err(|e| fail(e.to_string()))? {
            Locked::Ours(file) => file,
            Locked::Living => {
                let pid = fs::read_to_string(home.path.join(&lock)).unwrap_or_default();
                let pid = if pid.trim().is_empty() { "?" } else { pid.trim() };
                return Err(fail(format!("in use by process {pid}")));
            }
            Locked::Planted(why) => return Err(planted(&home.path.join(&lock), &why)),
        };
        let say = |lock: &mut File| -> io::Result<()> {
            lock.set_len(0)?;
            writeln!(lock, "{}", std::process::id())
        };
        say(&mut lock).map_err(|e| fail(format!("cannot write its lock: {e}")))?;
        let name = OsString::from(format!("{name}.ledger"));
        let mut file = match home.file(&name, true).map_err(|e| fail(e.to_string()))? {
            Ok(file) => file,
            Err(why) => return Err(planted(&path, &why)),
        };
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|e| fail(format!("cannot be read: {e}")))?;
        let live = read(&text).map_err(fail)?;
        let next = live.last_key_value().map_or(1, |(id, _)| id + 1);
        let mut ledger = Self { path, home, name, file, _lock: lock, next, live, lines: 0 };
        ledger.write_anew()?;
        Ok(ledger)
    }

    /// What is in force, in the order in which it was done.
    pub fn live(&self) -> &BTreeMap<EntryId, T> {
        &self.live
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down what is about to be done.
    ///
    /// # Errors
    /// When the line cannot be written; then it must not be done.
    pub fn record(&mut self, what: T) -> Result<EntryId> {
        let id = self.next;
        let line = Line::Do { id, what };
        self.line(&line)?;
        self.next += 1;
        if let Line::Do { what, .. } = line {
            self.live.insert(id, what);
        }
        Ok(id)
    }

    /// Strikes out what has been undone. One that is not there is as good.
    ///
    /// # Errors
    /// When the line cannot be written; the entry stays, and undoing it twice must do no harm.
    pub fn strike(&mut self, id: EntryId) -> Result<()> {
        if !self.live.contains_key(&id) {
            return Ok(());
        }
        self.line(&Line::<T>::Undone { undone: id })?;
        self.live.remove(&id);
        if self.lines > self.live.len() + STALE {
            self.write_anew()?;
        }
        Ok(())
    }

    fn line(&mut self, line: &Line<T>) -> Result<()> {
        write_line(&mut self.file, line)
            .map_err(|e| self.fail(format!("cannot write it down: {e}; nothing was done")))?;
        self.lines += 1;
        Ok(())
    }

    /// With the lines alone that speak of what is in force: beside the old one, then in its place at once.
    fn write_anew(&mut self) -> Result<()> {
        let fresh = OsString::from("fresh.tmp");
        let written = || -> io::Result<File> {
            let mut file = self.home.file(&fresh, true)?.map_err(io::Error::other)?;
            file.set_len(0)?;
            write_line(&mut file, &Head { vmio_ledger: VERSION, boot_id: machine::boot_id() })?;
            for (id, what) in &self.live {
                write_line(&mut file, &Line::Do { id: *id, what })?;
            }
            fs::rename(self.home.path.join(&fresh), self.home.path.join(&self.name))?;
            Ok(file)
        };
        self.file = written().map_err(|e| self.fail(format!("cannot be written anew: {e}")))?;
        self.lines = self.live.len();
        Ok(())
    }

    fn fail(&self, reason: String) -> Error {
        Error::Journal { path: self.path.clone(), reason }
    }
}

fn planted(path: &Path, why: &str) -> Error {
    Error::Untrusted {
        path: path.to_owned(),
        why: format!("{why}, so it may be somebody else's and nothing in it was obeyed"),
        mend: "look at it, then delete it".into(),
    }
}

/// Entries in force. Of another boot there are none; a last line without an end was never finished.
fn read<T: DeserializeOwned>(text: &[u8]) -> std::result::Result<BTreeMap<EntryId, T>, String> {
    let mut live = BTreeMap::new();
    let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    let lines = String::from_utf8_lossy(&text[..whole]);
    let mut lines = lines.lines().enumerate();
    let Some((_, head)) = lines.next() else { return Ok(live) };
    let head: Head = serde_json::from_str(head).map_err(|e| nonsense(1, &e))?;
    if head.vmio_ledger != VERSION {
        return Err(format!("version {} is not known; use the vmio that wrote it", head.vmio_ledger));
    }
    if head.boot_id != machine::boot_id() {
        return Ok(live);
    }
    for (number, line) in lines {
        match serde_json::from_str(line).map_err(|e| nonsense(number + 1, &e))? {
            Line::Do { id, what } => live.insert(id, what),
            Line::Undone { undone } => live.remove(&undone),
        };
    }
    Ok(live)
}

fn nonsense(line: usize, error: &serde_json::Error) -> String {
    format!("line {line} makes no sense ({error}); look at it: what it spoke of can only be undone by hand")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn open(dir: &Path) -> Ledger<String> {
        Ledger::open(dir, "guard").unwrap()
    }

    fn whats(ledger: &Ledger<String>) -> Vec<&str> {
        ledger.live().values().map(String::as_str).collect()
    }

    #[test]
    fn what_is_in_force_is_handed_to_the_next_owner() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = open(dir.path());
        let ids: Vec<EntryId> = ["a", "b", "c"].iter().map(|w| first.record((*w).to_owned()).unwrap()).collect();
        first.strike(ids[1]).unwrap();
        first.strike(99).unwrap();
        assert!(matches!(
            Ledger::<String>::open(dir.path(), "guard"),
            Err(Error::Journal { reason, .. }) if reason.contains(&std::process::id().to_string())
        ));
        drop(first);
        let mut second = open(dir.path());
        assert_eq!(whats(&second), ["a", "c"]);
        let id = second.record("d".into()).unwrap();
        assert!(!ids.contains(&id));
        drop(second);
        assert_eq!(whats(&open(dir.path())), ["a", "c", "d"]);
    }

    #[test]
    fn half_a_line_was_never_finished_and_others_that_make_no_sense_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut ledger = open(dir.path());
        ledger.record("a".into()).unwrap();
        let path = ledger.path().to_owned();
        drop(ledger);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}{{\"do\":2,\"wh")).unwrap();
        assert_eq!(whats(&open(dir.path())), ["a"]);
        fs::write(&path, format!("{text}{{\"do\":2}}\n")).unwrap();
        let error = Ledger::<String>::open(dir.path(), "guard").unwrap_err().to_string();
        assert!(error.contains("line 3"), "{error}");
        // Of another boot nothing is in force.
        fs::write(&path, text.replace(&machine::boot_id(), "other")).unwrap();
        assert_eq!(whats(&open(dir.path())), [""; 0]);
        fs::write(&path, text.replace("\"vmio_ledger\":1", "\"vmio_ledger\":2")).unwrap();
        assert!(Ledger::<String>::open(dir.path(), "guard").unwrap_err().to_string().contains("version 2"));
    }

    #[test]
    fn a_ledger_that_others_may_have_written_is_not_obeyed() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = open(dir.path()).path().to_owned();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(Ledger::<String>::open(dir.path(), "guard"), Err(Error::Untrusted { .. })));
    }

    #[test]
    fn it_does_not_grow_without_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut ledger = open(dir.path());
        let kept = ledger.record("kept".into()).unwrap();
        let mut longest = 0;
        for _ in 0..2 * STALE {
            let id = ledger.record("gone".into()).unwrap();
            ledger.strike(id).unwrap();
            longest = longest.max(ledger.lines);
        }
        assert!(longest <= STALE + 2, "{longest}");
        drop(ledger);
        assert_eq!(open(dir.path()).live().keys().copied().collect::<Vec<_>>(), [kept]);
    }
}
