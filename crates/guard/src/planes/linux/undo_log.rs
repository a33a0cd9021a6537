//! What of the guard's undo log speaks of this network namespace: what cannot be found by looking. That is another's qdisc
//! that is replaced, a clsact qdisc that was made, what a card's virtual function might send, which number each interface
//! has, and that something is in force at all, without which nothing of it would be missed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vmio_model::policy::assign::Interface;

use super::functions::Rate;
use super::htb::Foreign;
use super::{Device, Error, Result};
use crate::desired::{Desired, Numbers};
use crate::undo_log::{Entries, Entry, UndoLog};

/// The thread's network namespace (namespaces(7)).
const NAMESPACE: &str = "/proc/thread-self/ns/net";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    /// Something is in force; where links are pinned, if they are.
    Begun { pins: Option<String> },
    /// Another's qdisc had to go.
    Replaced { device: Device, foreign: Foreign },
    /// There was no clsact qdisc.
    Clsact { device: Device },
    /// A card's function had this limit; these, in Mbit/s, are ours: after a crash either of the last two may be in force.
    Carded { device: Device, function: u32, before: Rate, ours: Vec<u32> },
    /// Which number each interface with a class has, all of them: programs and classes that outlive the process name it.
    Numbers { given: Vec<(Device, u16)> },
}

/// What an entry speaks of: interfaces by their indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Begun,
    Replaced(u32),
    Clsact(u32),
    /// With the function.
    Carded(u32, u32),
    Numbers,
}

/// As it is written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Written {
    namespace: u64,
    what: What,
}

impl Entry for Written {
    const PART: &'static str = "linux";
    type Subject = Subject;

    fn subject(&self) -> Subject {
        match &self.what {
            What::Begun { .. } => Subject::Begun,
            What::Replaced { device, .. } => Subject::Replaced(device.index),
            What::Clsact { device } => Subject::Clsact(device.index),
            What::Carded { device, function, .. } => Subject::Carded(device.index, *function),
            What::Numbers { .. } => Subject::Numbers,
        }
    }

    fn namespace(&self) -> u64 {
        self.namespace
    }
}

/// What the plane has written down of the thread's network namespace.
pub(super) type PlaneLog = Entries<Written>;

impl PlaneLog {
    /// # Errors
    /// When the log makes no sense.
    pub(super) fn here(log: &UndoLog) -> Result<PlaneLog> {
        let stat = rustix::fs::stat(NAMESPACE).map_err(|e| Error::Refused {
            what: format!("look at {NAMESPACE}"),
            source: e.into(),
            said: String::new(),
        })?;
        Ok(Entries::read(log, stat.st_ino)?)
    }

    fn written(&self, what: What) -> Written {
        Written { namespace: self.namespace(), what }
    }

    fn what(&self, subject: Subject) -> Option<What> {
        Some(self.last(subject)?.what)
    }

    /// Whether something is in force, as far as it was written down.
    pub(super) fn has_begun(&self) -> bool {
        self.what(Subject::Begun).is_some()
    }

    /// Where links were pinned.
    pub(super) fn pins(&self) -> Option<String> {
        self.all(Subject::Begun).into_iter().rev().find_map(|(_, written)| match written.what {
            What::Begun { pins } => pins,
            _ => None,
        })
    }

    /// Before the first change. Where links were pinned before is kept, too.
    pub(super) fn begin(&self, pins: Option<String>) -> Result<()> {
        if matches!(self.what(Subject::Begun), Some(What::Begun { pins: before }) if before == pins) {
            return Ok(());
        }
        self.record(self.written(What::Begun { pins }))?;
        Ok(())
    }

    /// Nothing is in force any more.
    pub(super) fn end(&self) -> Result<()> {
        self.strike(Subject::Begun)?;
        Ok(self.strike(Subject::Numbers)?)
    }

    /// Before interfaces are told by these numbers. Those of interfaces that are gone stay until others come: they are nobody's.
    pub(super) fn number(&self, desired: &Desired) -> Result<()> {
        let seats = desired.pools.iter().flat_map(|pool| &pool.seats);
        let device = |interface: &Interface| Device { index: interface.index, name: interface.name.clone() };
        // An interface may be in two pools, by one number.
        let all: BTreeMap<Device, u16> =
            seats.filter_map(|seat| Some((device(seat.interface.as_ref()?), seat.number))).collect();
        let known: BTreeMap<Device, u16> = match self.what(Subject::Numbers) {
            Some(What::Numbers { given }) => given.into_iter().collect(),
            _ => BTreeMap::new(),
        };
        if all.iter().all(|(device, number)| known.get(device) == Some(number)) {
            return Ok(());
        }
        Ok(self.replace(self.written(What::Numbers { given: all.into_iter().collect() }))?)
    }

    /// What was written so.
    pub(super) fn numbers(&self) -> Numbers {
        match self.what(Subject::Numbers) {
            Some(What::Numbers { given }) => {
                Numbers::handed_on(given.into_iter().map(|(device, number)| (device.index, device.name, number)))
            }
            _ => Numbers::default(),
        }
    }

    /// Before another's qdisc is replaced.
    pub(super) fn begin_replacing(&self, device: &Device, foreign: &Foreign) -> Result<()> {
        let what = What::Replaced { device: device.clone(), foreign: foreign.clone() };
        Ok(self.replace(self.written(what))?)
    }

    /// What was replaced at the interface of that index, and what that was called then.
    pub(super) fn replaced(&self, index: u32) -> Option<(Device, Foreign)> {
        match self.what(Subject::Replaced(index))? {
            What::Replaced { device, foreign } => Some((device, foreign)),
            _ => None,
        }
    }

    /// Interfaces at which something was replaced, by index.
    pub(super) fn replaced_at(&self) -> Vec<u32> {
        let index = |subject| if let Subject::Replaced(index) = subject { Some(index) } else { None };
        self.subjects().into_iter().filter_map(index).collect()
    }

    /// It is back, or its interface is gone.
    pub(super) fn is_back(&self, index: u32) -> Result<()> {
        Ok(self.strike(Subject::Replaced(index))?)
    }

    /// Before a clsact qdisc is made.
    pub(super) fn begin_clsact(&self, device: &Device) -> Result<()> {
        if self.made_clsact(device.index).as_ref() == Some(device) {
            return Ok(());
        }
        Ok(self.replace(self.written(What::Clsact { device: device.clone() }))?)
    }

    /// What the interface was called whose clsact qdisc was made, where it was.
    pub(super) fn made_clsact(&self, index: u32) -> Option<Device> {
        match self.what(Subject::Clsact(index))? {
            What::Clsact { device } => Some(device),
            _ => None,
        }
    }

    /// Interfaces whose clsact qdisc was made, by index.
    pub(super) fn clsacts(&self) -> Vec<u32> {
        let index = |subject| if let Subject::Clsact(index) = subject { Some(index) } else { None };
        self.subjects().into_iter().filter_map(index).collect()
    }

    /// It is off, gone with its interface, or others' by now.
    pub(super) fn no_clsact(&self, index: u32) -> Result<()> {
        Ok(self.strike(Subject::Clsact(index))?)
    }

    /// Before a card limits a function to so many Mbit/s that may send `now`.
    pub(super) fn begin_limiting(&self, device: &Device, function: u32, now: Rate, mbit: u32) -> Result<()> {
        let known = self.carded_at(device.index, function).filter(|(at, _, _)| at == device);
        // What it sends now is ours, or somebody else's that comes back.
        let is_ours = known.as_ref().filter(|(_, _, ours)| ours.contains(&now.max_mbit));
        let before = is_ours.map_or(now, |(_, before, _)| *before);
        let ours: Vec<u32> = is_ours.map(|_| now.max_mbit).into_iter().chain([mbit]).collect();
        if is_ours.is_none() && known.as_ref().is_some_and(|(_, was, known)| *was == before && *known == ours) {
            // It was tried before, and the card refused.
            return Ok(());
        }
        Ok(self.replace(self.written(What::Carded { device: device.clone(), function, before, ours }))?)
    }

    /// The card of a function as it was called then, what the function might send before, and what ours is or was about to
    /// be, in Mbit/s.
    pub(super) fn carded_at(&self, index: u32, function: u32) -> Option<(Device, Rate, Vec<u32>)> {
        match self.what(Subject::Carded(index, function))? {
            What::Carded { device, before, ours, .. } => Some((device, before, ours)),
            _ => None,
        }
    }

    /// Functions that have a limit of ours, by their cards.
    pub(super) fn carded(&self) -> Vec<(Device, u32)> {
        let card = |subject| match subject {
            Subject::Carded(index, function) => Some((self.carded_at(index, function)?.0, function)),
            _ => None,
        };
        self.subjects().into_iter().filter_map(card).collect()
    }

    /// It is back, gone with its card, or others' by now.
    pub(super) fn card_is_back(&self, index: u32, function: u32) -> Result<()> {
        Ok(self.strike(Subject::Carded(index, function))?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::form_stays;

    fn device(index: u32) -> Device {
        Device { index, name: format!("e{index}") }
    }

    fn here(log: &UndoLog) -> PlaneLog {
        PlaneLog::here(log).unwrap()
    }

    #[test]
    fn what_was_written_is_handed_on_until_it_is_undone() {
        let dir = tempfile::tempdir().unwrap();
        let foreign = |handle| Foreign { kind: "fq".into(), handle, options: None, sizes: None, lost: None };
        {
            let log = here(&UndoLog::open(dir.path()).unwrap());
            assert!(!log.has_begun());
            log.begin(None).unwrap();
            log.begin(Some("/pins".into())).unwrap();
            log.begin_replacing(&device(1), &foreign(1)).unwrap();
            log.begin_replacing(&device(1), &foreign(2)).unwrap();
            log.begin_replacing(&device(2), &foreign(3)).unwrap();
            log.begin_clsact(&device(1)).unwrap();
            log.begin_clsact(&device(1)).unwrap();
            log.is_back(2).unwrap();
        }
        let all = UndoLog::open(dir.path()).unwrap();
        let log = here(&all);
        assert!(log.has_begun());
        assert_eq!(log.pins().as_deref(), Some("/pins"));
        assert_eq!(log.replaced(1), Some((device(1), foreign(2))));
        assert_eq!((log.replaced(2), log.made_clsact(1)), (None, Some(device(1))));
        assert_eq!(all.live::<Written>(Written::PART).unwrap().len(), 4);
        log.end().unwrap();
        log.is_back(1).unwrap();
        log.no_clsact(1).unwrap();
        assert_eq!(all.live::<Written>(Written::PART).unwrap().len(), 0);
    }

    /// What a function had before vmio is what comes back, whatever vmio has set in turn; what somebody else has set
    /// meanwhile is what it had.
    #[test]
    fn a_cards_limit_is_known_through_changes_and_crashes() {
        let dir = tempfile::tempdir().unwrap();
        let rate = |max_mbit| Rate { min_mbit: 0, max_mbit };
        {
            let log = here(&UndoLog::open(dir.path()).unwrap());
            log.begin_limiting(&device(1), 3, rate(900), 500).unwrap();
            log.begin_limiting(&device(1), 3, rate(500), 400).unwrap();
            log.begin_limiting(&device(1), 4, rate(0), 100).unwrap();
            log.begin_limiting(&device(1), 4, rate(77), 100).unwrap();
            log.begin_limiting(&device(2), 3, rate(0), 5).unwrap();
            log.card_is_back(2, 3).unwrap();
        }
        let log = here(&UndoLog::open(dir.path()).unwrap());
        assert_eq!(log.carded_at(1, 3), Some((device(1), rate(900), vec![500, 400])), "either may be in force");
        assert_eq!(log.carded_at(1, 4), Some((device(1), rate(77), vec![100])));
        assert_eq!(log.carded(), [(device(1), 3), (device(1), 4)]);
    }

    /// What stands in the ledger of another namespace says nothing of interfaces of the same index here.
    #[test]
    fn another_namespaces_entries_are_left_alone() {
        let all = UndoLog::memory();
        let written = Written { namespace: 1, what: What::Clsact { device: device(1) } };
        all.record(Written::PART, &written).unwrap();
        let log = here(&all);
        assert_eq!(log.made_clsact(1), None);
        log.no_clsact(1).unwrap();
        log.end().unwrap();
        assert_eq!(all.live::<Written>(Written::PART).unwrap().len(), 1);
    }

    #[test]
    fn the_form_of_entries_stays() {
        let whats = [
            r#"{"begun":{"pins":"/pins"}}"#,
            r#"{"replaced":{"device":E2,"foreign":{"kind":"fq","handle":1,"options":null,"sizes":null,"lost":null}}}"#,
            r#"{"clsact":{"device":E2}}"#,
            r#"{"carded":{"device":E2,"function":3,"before":{"min_mbit":0,"max_mbit":9},"ours":[5]}}"#,
            r#"{"numbers":{"given":[[E2,16]]}}"#,
        ];
        for what in whats {
            let text = format!(r#"{{"namespace":1,"what":{what}}}"#).replace("E2", r#"{"index":2,"name":"e2"}"#);
            form_stays::<Written>("linux", &text);
        }
    }
}
