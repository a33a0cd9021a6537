//! What must be known to undo a change is written down before it is made: in the guard's own ledger, which outlives the
//! daemon and which no recovery of runs ever looks at. Each part of the guard (a plane, the guests' control groups) keeps
//! entries of its own kind there, and gets back at its next start what was in force.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vmio_node::ledger::{EntryId, Ledger};

/// An entry could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The file.
    #[error(transparent)]
    Ledger(#[from] vmio_node::Error),
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

#[derive(Debug)]
enum Store {
    File(Ledger<Entry>),
    /// Of a test, or of what ends with its process.
    Memory(EntryId, BTreeMap<EntryId, Entry>),
}

/// The ledger of a guard. Its parts share it.
#[derive(Debug, Clone)]
pub struct Keeper(Arc<Mutex<Store>>);

impl Keeper {
    /// Opens the ledger in a directory, which it makes.
    ///
    /// # Errors
    /// When another guard has it, somebody else could have written it, or it cannot be read.
    pub fn open(dir: &Path) -> Result<Keeper, KeepError> {
        Ok(Keeper(Arc::new(Mutex::new(Store::File(Ledger::open(dir, "guard")?)))))
    }

    /// As [`Keeper::open`], for who only undoes: also where a full disk has no room for a first entry.
    ///
    /// # Errors
    /// As [`Keeper::open`].
    pub fn open_to_undo(dir: &Path) -> Result<Keeper, KeepError> {
        Ok(Keeper(Arc::new(Mutex::new(Store::File(Ledger::open_to_undo(dir, "guard")?)))))
    }

    /// One that is gone with its process.
    pub fn memory() -> Keeper {
        Keeper(Arc::new(Mutex::new(Store::Memory(1, BTreeMap::new()))))
    }

    /// Whether what is written there outlives this process.
    pub fn outlives(&self) -> bool {
        matches!(*self.store(), Store::File(_))
    }

    /// Whether nothing is written there.
    pub fn is_empty(&self) -> bool {
        match &*self.store() {
            Store::File(ledger) => ledger.live().is_empty(),
            Store::Memory(_, live) => live.is_empty(),
        }
    }

    /// The entries of one part.
    pub fn part(&self, part: &'static str) -> Keep {
        Keep { keeper: self.clone(), part }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Entries of one part of the guard.
#[derive(Debug, Clone)]
pub struct Keep {
    keeper: Keeper,
    part: &'static str,
}

impl Keep {
    /// Writes down what is about to be done.
    ///
    /// # Errors
    /// When it cannot be written; then it must not be done.
    pub fn record(&self, what: &impl Serialize) -> Result<EntryId, KeepError> {
        let what = serde_json::to_value(what).map_err(|why| self.nonsense(0, why))?;
        let entry = Entry { part: self.part.to_owned(), what };
        match &mut *self.keeper.store() {
            Store::File(ledger) => Ok(ledger.record(entry)?),
            Store::Memory(next, live) => {
                let id = *next;
                *next += 1;
                live.insert(id, entry);
                Ok(id)
            }
        }
    }

    /// Strikes out what has been undone.
    ///
    /// # Errors
    /// When it cannot be written; the entry stays.
    pub fn strike(&self, id: EntryId) -> Result<(), KeepError> {
        match &mut *self.keeper.store() {
            Store::File(ledger) => ledger.strike(id)?,
            Store::Memory(_, live) => drop(live.remove(&id)),
        }
        Ok(())
    }

    /// Strikes all of it out.
    ///
    /// # Errors
    /// As [`Keep::strike`].
    pub fn clear(&self) -> Result<(), KeepError> {
        self.live::<Value>()?.into_iter().try_for_each(|(id, _)| self.strike(id))
    }

    /// What is in force, in the order in which it was done.
    ///
    /// # Errors
    /// When an entry is of another form.
    pub fn live<T: DeserializeOwned>(&self) -> Result<Vec<(EntryId, T)>, KeepError> {
        let store = self.keeper.store();
        let live = match &*store {
            Store::File(ledger) => ledger.live(),
            Store::Memory(_, live) => live,
        };
        let of = live.iter().filter(|(_, entry)| entry.part == self.part);
        of.map(|(id, entry)| Ok((*id, T::deserialize(&entry.what).map_err(|why| self.nonsense(*id, why))?))).collect()
    }

    fn nonsense(&self, id: EntryId, why: serde_json::Error) -> KeepError {
        KeepError::Nonsense { id, part: self.part.to_owned(), why }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_part_gets_back_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = Keeper::open(dir.path()).unwrap();
        let (plane, groups) = (keeper.part("linux"), keeper.part("groups"));
        let first = plane.record(&("eth0", 7)).unwrap();
        groups.record(&"web1").unwrap();
        plane.record(&("eth1", 8)).unwrap();
        plane.strike(first).unwrap();
        assert!(Keeper::open(dir.path()).is_err(), "a second guard");
        drop((keeper, plane, groups));
        let keeper = Keeper::open(dir.path()).unwrap();
        let live: Vec<(EntryId, (String, u32))> = keeper.part("linux").live().unwrap();
        assert_eq!(live.into_iter().map(|(_, what)| what).collect::<Vec<_>>(), [("eth1".to_owned(), 8)]);
        let wrong = keeper.part("groups").live::<u32>().unwrap_err().to_string();
        assert!(wrong.contains("`groups`"), "{wrong}");
    }
}
