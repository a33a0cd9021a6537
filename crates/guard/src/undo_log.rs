//! Typed access to the guard's undo log, which records how to undo each change before it is made. Its file is the
//! ledger ([`vmio_node::undo_log`]) and outlives the daemon. Each part of the guard has [`Entries`] of its own type,
//! grouped by subject: read at its start, recorded before a change, struck out after its undo. `vmio guard undo`
//! without a daemon clears whole parts ([`UndoLog::clear`]).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
pub use vmio_node::undo_log::{EntryId, UndoLog, UndoLogError};

/// Namespace of entries about the whole host.
pub const HOST: u64 = 0;

/// What is needed to undo a change.
pub trait Entry: Debug + Clone + Serialize + DeserializeOwned {
    /// Name of its part of the log.
    const PART: &'static str;
    /// Identifies what is changed: an interface, a limit of a group.
    type Subject: Debug + Copy + Ord;

    /// The last entry of a subject is in force or was about to be; older ones remain after an interrupted change.
    fn subject(&self) -> Self::Subject;

    /// Inode of the network namespace that it is about, or [`HOST`].
    fn namespace(&self) -> u64;
}

type Live<E> = BTreeMap<<E as Entry>::Subject, Vec<(EntryId, E)>>;

/// The entries of one type that are in force in one namespace. Clones share them.
#[derive(Debug, Clone)]
pub struct Entries<E: Entry> {
    log: UndoLog,
    namespace: u64,
    live: Arc<Mutex<Live<E>>>,
    /// Makes each strike fail.
    #[cfg(test)]
    pub strikes_fail: Arc<std::sync::atomic::AtomicBool>,
}

impl<E: Entry> Entries<E> {
    /// Reads those of a namespace from the log.
    ///
    /// # Errors
    /// When one does not parse.
    pub fn read(log: &UndoLog, namespace: u64) -> Result<Entries<E>, UndoLogError> {
        let mut live: Live<E> = BTreeMap::new();
        for (id, entry) in log.live::<E>(E::PART)? {
            if entry.namespace() == namespace {
                live.entry(entry.subject()).or_default().push((id, entry));
            }
        }
        Ok(Entries {
            log: log.clone(),
            namespace,
            live: Arc::new(Mutex::new(live)),
            #[cfg(test)]
            strikes_fail: Arc::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Live<E>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Their namespace.
    pub fn namespace(&self) -> u64 {
        self.namespace
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// All subjects.
    pub fn subjects(&self) -> Vec<E::Subject> {
        self.lock().keys().copied().collect()
    }

    /// All of a subject, the oldest first.
    pub fn all(&self, subject: E::Subject) -> Vec<(EntryId, E)> {
        self.lock().get(&subject).cloned().unwrap_or_default()
    }

    /// The last one of a subject.
    pub fn last(&self, subject: E::Subject) -> Option<E> {
        Some(self.lock().get(&subject)?.last()?.1.clone())
    }

    /// Changes the last one of a subject in memory; the log keeps what it has.
    pub fn amend(&self, subject: E::Subject, change: impl FnOnce(&mut E)) {
        if let Some((_, last)) = self.lock().get_mut(&subject).and_then(|all| all.last_mut()) {
            change(last);
        }
    }

    /// Drops those of a subject in memory; the log keeps them.
    pub fn forget(&self, subject: E::Subject) {
        self.lock().remove(&subject);
    }

    /// Adds an entry. To be called before the change.
    ///
    /// # Errors
    /// When it cannot be written; then the change must not be made.
    pub fn record(&self, entry: E) -> Result<EntryId, UndoLogError> {
        let mut live = self.lock();
        let id = self.log.record(E::PART, &entry)?;
        live.entry(entry.subject()).or_default().push((id, entry));
        Ok(id)
    }

    /// As [`Entries::record`], and strikes out the older ones of the subject.
    ///
    /// # Errors
    /// As [`Entries::record`]; also when an older one cannot be struck out.
    pub fn replace(&self, entry: E) -> Result<(), UndoLogError> {
        let subject = entry.subject();
        let id = self.record(entry)?;
        self.strike_where(subject, |other, _| other != id)
    }

    /// Strikes out all of a subject.
    ///
    /// # Errors
    /// When one cannot be struck out: it stays, and undoing it twice must do no harm.
    pub fn strike(&self, subject: E::Subject) -> Result<(), UndoLogError> {
        self.strike_where(subject, |_, _| true)
    }

    /// Strikes out those of a subject for which `is_so` holds.
    ///
    /// # Errors
    /// As [`Entries::strike`].
    pub fn strike_where(&self, subject: E::Subject, is_so: impl Fn(EntryId, &E) -> bool) -> Result<(), UndoLogError> {
        let mut live = self.lock();
        let Some(all) = live.get_mut(&subject) else { return Ok(()) };
        let mut done = Ok(());
        all.retain(|(id, entry)| {
            if !is_so(*id, entry) {
                return true;
            }
            let struck = self.strike_id(*id);
            let stays = struck.is_err();
            if done.is_ok() {
                done = struck;
            }
            stays
        });
        if all.is_empty() {
            live.remove(&subject);
        }
        done
    }

    fn strike_id(&self, id: EntryId) -> Result<(), UndoLogError> {
        #[cfg(test)]
        if self.strikes_fail.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(vmio_node::Error::Journal { path: "ledger".into(), reason: "disk full".into() }.into());
        }
        self.log.strike(id)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Limit {
        namespace: u64,
        index: u32,
        bytes: u32,
    }

    impl Entry for Limit {
        const PART: &'static str = "limits";
        type Subject = u32;

        fn subject(&self) -> u32 {
            self.index
        }
        fn namespace(&self) -> u64 {
            self.namespace
        }
    }

    fn limit(namespace: u64, index: u32, bytes: u32) -> Limit {
        Limit { namespace, index, bytes }
    }

    fn read(log: &UndoLog, namespace: u64) -> Entries<Limit> {
        Entries::read(log, namespace).unwrap()
    }

    #[test]
    fn last_entry_counts_until_replaced() {
        let log = UndoLog::memory();
        let entries = read(&log, 1);
        let first = entries.record(limit(1, 7, 10)).unwrap();
        let second = entries.clone().record(limit(1, 7, 20)).unwrap();
        let again = read(&log, 1);
        for entries in [&entries, &again] {
            assert_eq!(entries.all(7), [(first, limit(1, 7, 10)), (second, limit(1, 7, 20))]);
            assert_eq!((entries.last(7), entries.subjects()), (Some(limit(1, 7, 20)), vec![7]));
        }
        again.replace(limit(1, 7, 30)).unwrap();
        again.amend(7, |last| last.bytes = 31);
        assert_eq!(again.last(7), Some(limit(1, 7, 31)));
        assert_eq!(read(&log, 1).all(7).into_iter().map(|(_, entry)| entry).collect::<Vec<_>>(), [limit(1, 7, 30)]);
        again.strike(7).unwrap();
        again.strike(7).unwrap();
        assert!(again.is_empty() && log.is_empty());
    }

    #[test]
    fn other_namespaces_entries_stay() {
        let log = UndoLog::memory();
        let (here, there) = (read(&log, 1), read(&log, 2));
        here.record(limit(1, 7, 10)).unwrap();
        there.record(limit(2, 7, 20)).unwrap();
        read(&log, 1).strike(7).unwrap();
        assert_eq!((read(&log, 1).is_empty(), read(&log, 2).last(7)), (true, Some(limit(2, 7, 20))));
        assert_eq!(read(&log, 2).namespace(), 2);
    }

    #[test]
    fn each_type_has_its_own_part() {
        let (mut dirs, mut parts) = (vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")], Vec::new());
        while let Some(dir) = dirs.pop() {
            for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    dirs.push(path);
                    continue;
                }
                let text = fs::read_to_string(path).unwrap();
                let words = text.split("const PART: &'static str = \"").skip(1);
                parts.extend(words.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
            }
        }
        let different: BTreeSet<&String> = parts.iter().collect();
        assert!(parts.len() > 5 && different.len() == parts.len(), "{parts:?}");
    }
}
