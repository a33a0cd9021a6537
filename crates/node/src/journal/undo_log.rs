//! The undo log of the guard: what stays in force when its owner ends, until somebody undoes it on purpose. A
//! [`crate::Journal`] undoes what a dead owner left; an undo log hands it to the next one, and no recovery of runs ever looks
//! at it.
//!
//! Each part of the guard (a plane, the guests' control groups) keeps entries of its own kind there: it writes one down
//! before it makes a change, strikes it out when that is undone, and reads at its start what is in force. What an entry says
//! is the part's own matter. How the entries lie on the disk is in `file.rs`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine::lock;
use crate::{Error, Result};

mod file;

use file::LogFile;

/// Names an entry within its log.
pub type EntryId = u64;

/// What is in force, in the order in which it was done.
type Live = BTreeMap<EntryId, Entry>;

/// An entry could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum UndoLogError {
    /// The file.
    #[error(transparent)]
    File(#[from] Error),
    /// An entry of another form.
    #[error("the guard's ledger: entry {id} of `{part}` makes no sense: {why}\n  help: use the vmio that wrote it")]
    Nonsense {
        /// Its number.
        id: EntryId,
        /// Whose it is.
        part: String,
        /// What is wrong with it.
        why: serde_json::Error,
    },
}

/// An entry: whose it is, and what it says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Entry {
    part: String,
    what: Value,
}

/// An undo log that this process may write. Clones share it.
#[derive(Debug, Clone)]
pub struct UndoLog(Arc<Mutex<Log>>);

#[derive(Debug)]
struct Log {
    /// `None` of one that is gone with its process.
    file: Option<LogFile>,
    next: EntryId,
    live: Live,
}

impl UndoLog {
    /// Opens the log in a directory, with what earlier owners of this boot have left in force; makes the directory (mode
    /// 0700) and the file where they are missing. A file of this boot is opened on a full disk, too.
    ///
    /// # Errors
    /// [`Error::Journal`] when another process has it open, a line makes no sense, or nothing can be written;
    /// [`Error::Untrusted`] where somebody else could have written it.
    pub fn open(dir: &Path) -> Result<UndoLog, UndoLogError> {
        let (file, live) = LogFile::open(dir)?;
        file.has_head()?;
        Ok(UndoLog::of(Some(file), live))
    }

    /// As [`UndoLog::open`], for who only strikes out: also where a full disk has no room for a first line.
    ///
    /// # Errors
    /// As [`UndoLog::open`], but for that.
    pub fn open_to_undo(dir: &Path) -> Result<UndoLog, UndoLogError> {
        let (file, live) = LogFile::open(dir)?;
        Ok(UndoLog::of(Some(file), live))
    }

    /// One that is gone with its process.
    pub fn memory() -> UndoLog {
        UndoLog::of(None, Live::new())
    }

    fn of(file: Option<LogFile>, live: Live) -> UndoLog {
        let next = live.last_key_value().map_or(1, |(id, _)| id + 1);
        UndoLog(Arc::new(Mutex::new(Log { file, next, live })))
    }

    /// Whether what is written there outlives this process.
    pub fn outlives(&self) -> bool {
        lock(&self.0).file.is_some()
    }

    /// Whether nothing is written there.
    pub fn is_empty(&self) -> bool {
        lock(&self.0).live.is_empty()
    }

    /// Writes down what a part is about to do.
    ///
    /// # Errors
    /// When it cannot be written; then it must not be done.
    pub fn record(&self, part: &str, what: &impl Serialize) -> Result<EntryId, UndoLogError> {
        let what = serde_json::to_value(what).map_err(nonsense(0, part))?;
        Ok(lock(&self.0).record(Entry { part: part.to_owned(), what })?)
    }

    /// Strikes out what has been undone. One that is not there is as good.
    ///
    /// # Errors
    /// When that cannot be written; the entry stays, and undoing it twice must do no harm.
    pub fn strike(&self, id: EntryId) -> Result<(), UndoLogError> {
        Ok(lock(&self.0).strike(id)?)
    }

    /// Strikes out all entries of a part, whatever they say.
    ///
    /// # Errors
    /// As [`UndoLog::strike`].
    pub fn clear(&self, part: &str) -> Result<(), UndoLogError> {
        let mut log = lock(&self.0);
        let all: Vec<EntryId> = log.of_part(part).map(|(id, _)| id).collect();
        Ok(all.into_iter().try_for_each(|id| log.strike(id))?)
    }

    /// The entries of a part that are in force, in the order in which that was done.
    ///
    /// # Errors
    /// When an entry is of another form.
    pub fn live<T: DeserializeOwned>(&self, part: &str) -> Result<Vec<(EntryId, T)>, UndoLogError> {
        let log = lock(&self.0);
        let all = log.of_part(part);
        all.map(|(id, what)| T::deserialize(what).map(|what| (id, what)).map_err(nonsense(id, part))).collect()
    }
}

fn nonsense(id: EntryId, part: &str) -> impl FnOnce(serde_json::Error) -> UndoLogError {
    let part = part.to_owned();
    move |why| UndoLogError::Nonsense { id, part, why }
}

impl Log {
    fn of_part<'a>(&'a self, part: &'a str) -> impl Iterator<Item = (EntryId, &'a Value)> {
        self.live.iter().filter(move |(_, entry)| entry.part == part).map(|(id, entry)| (*id, &entry.what))
    }

    fn record(&mut self, entry: Entry) -> Result<EntryId> {
        let id = self.next;
        if let Some(file) = &mut self.file {
            file.record(id, &entry, &self.live)?;
        }
        self.next += 1;
        self.live.insert(id, entry);
        Ok(id)
    }

    fn strike(&mut self, id: EntryId) -> Result<()> {
        if !self.live.contains_key(&id) {
            return Ok(());
        }
        if let Some(file) = &mut self.file {
            file.strike(id)?;
        }
        self.live.remove(&id);
        if let Some(file) = &mut self.file {
            file.shorten(&self.live);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
