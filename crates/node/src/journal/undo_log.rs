//! The undo log of the guard, for changes that stay in force when their owner ends. While a [`crate::Journal`] of a
//! dead owner is undone, an undo log is taken over by the next owner; the recovery of runs does not read it.
//!
//! Each part of the guard (a plane, the guests' control groups) has entries of its own type: it records one before a
//! change, strikes it out after its undo, and reads those in force at its start. The format on disk is in `file.rs`.

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

/// Entries in force, the oldest first.
type Live = BTreeMap<EntryId, Entry>;

/// An entry could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum UndoLogError {
    /// The file.
    #[error(transparent)]
    File(#[from] Error),
    /// An entry that does not parse.
    #[error("the guard's ledger: entry {id} of `{part}` is invalid: {why}\n  help: use the vmio that wrote it")]
    Nonsense {
        /// Its number.
        id: EntryId,
        /// Its part of the log.
        part: String,
        /// What is wrong with it.
        why: serde_json::Error,
    },
}

/// An entry: its part of the log, and its content.
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
    /// `None` of a log in memory.
    file: Option<LogFile>,
    next: EntryId,
    live: Live,
}

impl UndoLog {
    /// Opens the log in a directory, with the entries of earlier owners of this boot; makes the directory (mode 0700)
    /// and the file if they are missing. A file of this boot can be opened on a full disk.
    ///
    /// # Errors
    /// [`Error::Journal`] when another process has it open, a line makes no sense, or nothing can be written;
    /// [`Error::Untrusted`] where somebody else could have written it.
    pub fn open(dir: &Path) -> Result<UndoLog, UndoLogError> {
        let (file, live) = LogFile::open(dir)?;
        file.has_head()?;
        Ok(UndoLog::of(Some(file), live))
    }

    /// As [`UndoLog::open`], for striking out only: also where a full disk has no room for a first line.
    ///
    /// # Errors
    /// As [`UndoLog::open`], but for that.
    pub fn open_to_undo(dir: &Path) -> Result<UndoLog, UndoLogError> {
        let (file, live) = LogFile::open(dir)?;
        Ok(UndoLog::of(Some(file), live))
    }

    /// Reads the log in a directory, whoever owns it, and makes and locks nothing: a log in memory with the entries of
    /// this boot that are in force now.
    ///
    /// # Errors
    /// [`Error::File`] where there is none; [`Error::Untrusted`] where somebody else could have written it;
    /// [`Error::Journal`] where it cannot be read.
    pub fn look(dir: &Path) -> Result<UndoLog, UndoLogError> {
        Ok(UndoLog::of(None, LogFile::look(dir)?))
    }

    /// A log in memory.
    pub fn memory() -> UndoLog {
        UndoLog::of(None, Live::new())
    }

    fn of(file: Option<LogFile>, live: Live) -> UndoLog {
        let next = live.last_key_value().map_or(1, |(id, _)| id + 1);
        UndoLog(Arc::new(Mutex::new(Log { file, next, live })))
    }

    /// Whether it is on disk, so that it outlives this process.
    pub fn outlives(&self) -> bool {
        lock(&self.0).file.is_some()
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        lock(&self.0).live.is_empty()
    }

    /// Records a change that a part is about to make.
    ///
    /// # Errors
    /// When it cannot be written; then the change must not be made.
    pub fn record(&self, part: &str, what: &impl Serialize) -> Result<EntryId, UndoLogError> {
        let what = serde_json::to_value(what).map_err(nonsense(0, part))?;
        Ok(lock(&self.0).record(Entry { part: part.to_owned(), what })?)
    }

    /// Strikes out an entry, if it exists.
    ///
    /// # Errors
    /// When that cannot be written: the entry stays, and undoing it twice must do no harm.
    pub fn strike(&self, id: EntryId) -> Result<(), UndoLogError> {
        Ok(lock(&self.0).strike(id)?)
    }

    /// Strikes out all entries of a part.
    ///
    /// # Errors
    /// As [`UndoLog::strike`].
    pub fn clear(&self, part: &str) -> Result<(), UndoLogError> {
        let mut log = lock(&self.0);
        let all: Vec<EntryId> = log.of_part(part).map(|(id, _)| id).collect();
        let tried: Vec<Result<()>> = all.into_iter().map(|id| log.strike(id)).collect();
        Ok(tried.into_iter().collect::<Result<()>>()?)
    }

    /// The entries of a part in force, the oldest first.
    ///
    /// # Errors
    /// When an entry does not parse.
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
