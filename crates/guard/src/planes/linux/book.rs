//! What cannot be found by looking, written down before it is done: another's qdisc that is replaced, a clsact qdisc that
//! was made, what a card's virtual function might send, and that something is in force at all, without which nothing of it
//! would be missed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use vmio_model::policy::assign::Interface;
use vmio_node::ledger::EntryId;

use super::functions::Rate;
use super::htb::Foreign;
use super::{Device, Error, Result};
use crate::desired::{Desired, Numbers};
use crate::keep::{Keep, KeepError, Keeper};

/// The part of the guard's ledger.
const PART: &str = "linux";
/// The thread's network namespace (namespaces(7)).
const NAMESPACE: &str = "/proc/thread-self/ns/net";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
    /// Something is in force; where links are pinned, if they are.
    Begun { pins: Option<String> },
    /// Another's qdisc had to go.
    Replaced { device: Device, foreign: Foreign },
    /// There was no clsact qdisc.
    Clsact { device: Device },
    /// A card's function had this limit; these, in Mbit/s, are ours.
    Carded { device: Device, function: u32, before: Rate, ours: Vec<u32> },
    /// Which number each interface with a class has, all of them: programs and classes that outlive the process name it.
    Numbers { given: Vec<(Device, u16)> },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    /// Inode of the network namespace that it speaks of.
    namespace: u64,
    what: What,
}

/// What is known of an interface, and by which entries.
#[derive(Debug)]
struct Known<T> {
    ids: Vec<EntryId>,
    device: Device,
    what: T,
}

/// What a card's function might send before, and what ours is or was about to be, in Mbit/s.
type Limited = (Rate, Vec<u32>);

/// The part of the ledger that speaks of the thread's network namespace. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Book(Arc<Mutex<Pages>>);

#[derive(Debug)]
struct Pages {
    keep: Keep,
    namespace: u64,
    begun: Vec<(EntryId, Option<String>)>,
    /// By the interface's index.
    replaced: BTreeMap<u32, Known<Foreign>>,
    clsacts: BTreeMap<u32, Known<()>>,
    /// By the card's index and the function.
    cards: BTreeMap<(u32, u32), Known<Limited>>,
    numbers: Given,
}

/// Numbers of interfaces by index, and by which entries.
#[derive(Debug, Default)]
struct Given {
    ids: Vec<EntryId>,
    by_index: BTreeMap<u32, (String, u16)>,
}

impl Given {
    fn of(given: impl IntoIterator<Item = (Device, u16)>, ids: Vec<EntryId>) -> Given {
        Given { ids, by_index: given.into_iter().map(|(at, number)| (at.index, (at.name, number))).collect() }
    }
}

impl Book {
    /// # Errors
    /// When the ledger makes no sense.
    pub(super) fn open(keeper: &Keeper) -> Result<Book> {
        let keep = keeper.part(PART);
        let stat = rustix::fs::stat(NAMESPACE).map_err(|e| Error::Refused {
            what: format!("look at {NAMESPACE}"),
            source: e.into(),
            said: String::new(),
        })?;
        let (begun, replaced, clsacts, cards, numbers) = Default::default();
        let mut pages = Pages { keep, namespace: stat.st_ino, begun, replaced, clsacts, cards, numbers };
        let live: Vec<(EntryId, Entry)> = pages.keep.live()?;
        for (id, entry) in live.into_iter().filter(|(_, entry)| entry.namespace == stat.st_ino) {
            match entry.what {
                What::Begun { pins } => pages.begun.push((id, pins)),
                What::Replaced { device, foreign } => enter(&mut pages.replaced, device.index, id, device, foreign),
                What::Clsact { device } => enter(&mut pages.clsacts, device.index, id, device, ()),
                What::Carded { device, function, before, ours } => {
                    enter(&mut pages.cards, (device.index, function), id, device, (before, ours));
                }
                // The last one counts; a crash may have left more.
                What::Numbers { given } => {
                    let ids = pages.numbers.ids.iter().copied().chain([id]).collect();
                    pages.numbers = Given::of(given, ids);
                }
            }
        }
        Ok(Book(Arc::new(Mutex::new(pages))))
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn namespace(&self) -> u64 {
        self.pages().namespace
    }

    /// Whether something is in force, as far as it was written down.
    pub(super) fn has_begun(&self) -> bool {
        !self.pages().begun.is_empty()
    }

    /// Where links were pinned.
    pub(super) fn pins(&self) -> Option<String> {
        self.pages().begun.iter().rev().find_map(|(_, pins)| pins.clone())
    }

    /// Before the first change.
    pub(super) fn begin(&self, pins: Option<String>) -> Result<()> {
        let mut pages = self.pages();
        if pages.begun.last().is_some_and(|(_, before)| *before == pins) {
            return Ok(());
        }
        let id = pages.record(What::Begun { pins: pins.clone() })?;
        pages.begun.push((id, pins));
        Ok(())
    }

    /// Before interfaces are told by these numbers. Those of interfaces that are gone stay until others come: they are nobody's.
    pub(super) fn number(&self, desired: &Desired) -> Result<()> {
        let mut pages = self.pages();
        let seats = || desired.pools.iter().flat_map(|pool| &pool.seats);
        let there = || seats().filter_map(|seat| Some((seat.interface.as_ref()?, seat.number)));
        let known = &pages.numbers.by_index;
        let is_known = |(interface, number): (&Interface, u16)| {
            known.get(&interface.index).is_some_and(|(name, given)| *name == interface.name && *given == number)
        };
        if there().all(is_known) {
            return Ok(());
        }
        // An interface may be in two pools, by one number.
        let device = |interface: &Interface| Device { index: interface.index, name: interface.name.clone() };
        let all: BTreeMap<Device, u16> = there().map(|(interface, number)| (device(interface), number)).collect();
        let given: Vec<(Device, u16)> = all.into_iter().collect();
        let id = pages.record(What::Numbers { given: given.clone() })?;
        let before = std::mem::replace(&mut pages.numbers, Given::of(given, vec![id]));
        pages.strike(before.ids)
    }

    /// What was written so.
    pub(super) fn numbers(&self) -> Numbers {
        let given = self.pages().numbers.by_index.clone();
        Numbers::handed_on(given.into_iter().map(|(index, (name, number))| (index, name, number)))
    }

    /// Nothing is in force any more.
    pub(super) fn end(&self) -> Result<()> {
        let mut pages = self.pages();
        let ids = pages.begun.iter().map(|(id, _)| *id).chain(pages.numbers.ids.iter().copied()).collect();
        pages.strike(ids)?;
        pages.begun.clear();
        pages.numbers = Given::default();
        Ok(())
    }

    /// Before another's qdisc is replaced.
    pub(super) fn replace(&self, device: &Device, foreign: &Foreign) -> Result<()> {
        let mut pages = self.pages();
        let id = pages.record(What::Replaced { device: device.clone(), foreign: foreign.clone() })?;
        let before = pages.replaced.remove(&device.index).map(|known| known.ids).unwrap_or_default();
        enter(&mut pages.replaced, device.index, id, device.clone(), foreign.clone());
        pages.strike(before)
    }

    /// What was replaced at the interface of that index, and what that was called then.
    pub(super) fn replaced(&self, index: u32) -> Option<(Device, Foreign)> {
        self.pages().replaced.get(&index).map(|known| (known.device.clone(), known.what.clone()))
    }

    /// Interfaces at which something was replaced.
    pub(super) fn replaced_at(&self) -> Vec<Device> {
        self.pages().replaced.values().map(|known| known.device.clone()).collect()
    }

    /// It is back, or its interface is gone.
    pub(super) fn is_back(&self, index: u32) -> Result<()> {
        let mut pages = self.pages();
        let ids = pages.replaced.get(&index).map(|known| known.ids.clone()).unwrap_or_default();
        pages.strike(ids)?;
        pages.replaced.remove(&index);
        Ok(())
    }

    /// Before a clsact qdisc is made.
    pub(super) fn make_clsact(&self, device: &Device) -> Result<()> {
        let mut pages = self.pages();
        if pages.clsacts.get(&device.index).is_some_and(|known| known.device == *device) {
            return Ok(());
        }
        let id = pages.record(What::Clsact { device: device.clone() })?;
        let before = pages.clsacts.remove(&device.index).map(|known| known.ids).unwrap_or_default();
        enter(&mut pages.clsacts, device.index, id, device.clone(), ());
        pages.strike(before)
    }

    /// What the interface was called whose clsact qdisc was made, where it was.
    pub(super) fn made_clsact(&self, index: u32) -> Option<Device> {
        self.pages().clsacts.get(&index).map(|known| known.device.clone())
    }

    /// Interfaces whose clsact qdisc was made.
    pub(super) fn clsacts(&self) -> Vec<Device> {
        self.pages().clsacts.values().map(|known| known.device.clone()).collect()
    }

    /// It is off, gone with its interface, or others' by now.
    pub(super) fn no_clsact(&self, index: u32) -> Result<()> {
        let mut pages = self.pages();
        let ids = pages.clsacts.get(&index).map(|known| known.ids.clone()).unwrap_or_default();
        pages.strike(ids)?;
        pages.clsacts.remove(&index);
        Ok(())
    }

    /// Before a card limits a function to so many Mbit/s that may send `now`.
    pub(super) fn limit_card(&self, device: &Device, function: u32, now: Rate, mbit: u32) -> Result<()> {
        let mut pages = self.pages();
        let key = (device.index, function);
        let known =
            pages.cards.get(&key).filter(|known| known.device == *device && known.what.1.contains(&now.max_mbit));
        // After a crash either of the last two may be in force.
        let (before, was_ours) = known.map_or((now, None), |known| (known.what.0, Some(now.max_mbit)));
        let ours: Vec<u32> = was_ours.into_iter().chain([mbit]).collect();
        if known.is_none()
            && pages
                .cards
                .get(&key)
                .is_some_and(|known| known.device == *device && known.what == (before, ours.clone()))
        {
            // It was tried before, and the card refused.
            return Ok(());
        }
        let what = What::Carded { device: device.clone(), function, before, ours: ours.clone() };
        let id = pages.record(what)?;
        let old = pages.cards.remove(&key).map(|known| known.ids).unwrap_or_default();
        enter(&mut pages.cards, key, id, device.clone(), (before, ours));
        pages.strike(old)
    }

    /// The limits of a function.
    pub(super) fn carded_at(&self, index: u32, function: u32) -> Option<Limited> {
        self.pages().cards.get(&(index, function)).map(|known| known.what.clone())
    }

    /// Functions that have a limit of ours, by their cards.
    pub(super) fn carded(&self) -> Vec<(Device, u32)> {
        self.pages().cards.iter().map(|((_, function), known)| (known.device.clone(), *function)).collect()
    }

    /// It is back, gone with its card, or others' by now.
    pub(super) fn card_is_back(&self, index: u32, function: u32) -> Result<()> {
        let mut pages = self.pages();
        let ids = pages.cards.get(&(index, function)).map(|known| known.ids.clone()).unwrap_or_default();
        pages.strike(ids)?;
        pages.cards.remove(&(index, function));
        Ok(())
    }
}

impl Pages {
    fn record(&self, what: What) -> std::result::Result<EntryId, KeepError> {
        self.keep.record(&Entry { namespace: self.namespace, what })
    }

    fn strike(&self, ids: Vec<EntryId>) -> Result<()> {
        ids.into_iter().try_for_each(|id| self.keep.strike(id)).map_err(Error::from)
    }
}

/// The last that was said of a thing counts; a crash may have left more.
fn enter<K: Ord, T>(all: &mut BTreeMap<K, Known<T>>, key: K, id: EntryId, device: Device, what: T) {
    let mut ids = all.remove(&key).map(|known| known.ids).unwrap_or_default();
    ids.push(id);
    all.insert(key, Known { ids, device, what });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn device(index: u32) -> Device {
        Device { index, name: format!("e{index}") }
    }

    #[test]
    fn what_was_written_is_handed_on_until_it_is_undone() {
        let dir = tempfile::tempdir().unwrap();
        let foreign = |handle| Foreign { kind: "fq".into(), handle, options: None, sizes: None, lost: None };
        {
            let book = Book::open(&Keeper::open(dir.path()).unwrap()).unwrap();
            assert!(!book.has_begun());
            book.begin(None).unwrap();
            book.begin(Some("/pins".into())).unwrap();
            book.replace(&device(1), &foreign(1)).unwrap();
            book.replace(&device(1), &foreign(2)).unwrap();
            book.replace(&device(2), &foreign(3)).unwrap();
            book.make_clsact(&device(1)).unwrap();
            book.make_clsact(&device(1)).unwrap();
            book.is_back(2).unwrap();
        }
        let keeper = Keeper::open(dir.path()).unwrap();
        let book = Book::open(&keeper).unwrap();
        assert!(book.has_begun());
        assert_eq!(book.pins().as_deref(), Some("/pins"));
        assert_eq!(book.replaced(1), Some((device(1), foreign(2))));
        assert_eq!((book.replaced(2), book.made_clsact(1)), (None, Some(device(1))));
        assert_eq!(keeper.part(PART).live::<Entry>().unwrap().len(), 4);
        book.end().unwrap();
        book.is_back(1).unwrap();
        book.no_clsact(1).unwrap();
        assert_eq!(keeper.part(PART).live::<Entry>().unwrap().len(), 0);
    }

    /// What a function had before vmio is what comes back, whatever vmio has set in turn; what somebody else has set
    /// meanwhile is what it had.
    #[test]
    fn a_cards_limit_is_known_through_changes_and_crashes() {
        let dir = tempfile::tempdir().unwrap();
        let rate = |max_mbit| Rate { min_mbit: 0, max_mbit };
        {
            let book = Book::open(&Keeper::open(dir.path()).unwrap()).unwrap();
            book.limit_card(&device(1), 3, rate(900), 500).unwrap();
            book.limit_card(&device(1), 3, rate(500), 400).unwrap();
            book.limit_card(&device(1), 4, rate(0), 100).unwrap();
            book.limit_card(&device(1), 4, rate(77), 100).unwrap();
            book.limit_card(&device(2), 3, rate(0), 5).unwrap();
            book.card_is_back(2, 3).unwrap();
        }
        let book = Book::open(&Keeper::open(dir.path()).unwrap()).unwrap();
        assert_eq!(book.carded_at(1, 3), Some((rate(900), vec![500, 400])), "either may be in force");
        assert_eq!(book.carded_at(1, 4), Some((rate(77), vec![100])));
        assert_eq!(book.carded(), [(device(1), 3), (device(1), 4)]);
    }

    /// What stands in the ledger of another namespace says nothing of interfaces of the same index here.
    #[test]
    fn another_namespaces_entries_are_left_alone() {
        let keeper = Keeper::memory();
        let entry = Entry { namespace: 1, what: What::Clsact { device: device(1) } };
        keeper.part(PART).record(&entry).unwrap();
        let book = Book::open(&keeper).unwrap();
        assert_eq!(book.made_clsact(1), None);
        book.no_clsact(1).unwrap();
        book.end().unwrap();
        assert_eq!(keeper.part(PART).live::<Entry>().unwrap().len(), 1);
    }
}
