//! The Linux plane's entries in the guard's undo log: what the kernel does not show. These are a replaced foreign
//! qdisc, a clsact qdisc that was made, the limit of a card's virtual function before, the numbers of interfaces, and
//! the fact that limits are in force.

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
pub(super) enum PlaneChange {
    /// Limits are in force; `pins` is the directory of pinned links.
    Begun { pins: Option<String> },
    /// A foreign qdisc was replaced.
    Replaced { device: Device, foreign: Foreign },
    /// A clsact qdisc was made.
    Clsact { device: Device },
    /// Limit of a card's function before, and the guard's last limits in Mbit/s: after a crash either may be in force.
    Carded { device: Device, function: u32, before: Rate, ours: Vec<u32> },
    /// Number of each interface with a class, since programs and classes that outlive the process use it.
    Numbers { given: Vec<(Device, u16)> },
}

/// Subject of an entry; interfaces by their indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Begun,
    Replaced(u32),
    Clsact(u32),
    /// The card and the function.
    Carded(u32, u32),
    Numbers,
}

/// An entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PlaneEntry {
    namespace: u64,
    what: PlaneChange,
}

impl Entry for PlaneEntry {
    const PART: &'static str = "linux";
    type Subject = Subject;

    fn subject(&self) -> Subject {
        match &self.what {
            PlaneChange::Begun { .. } => Subject::Begun,
            PlaneChange::Replaced { device, .. } => Subject::Replaced(device.index),
            PlaneChange::Clsact { device } => Subject::Clsact(device.index),
            PlaneChange::Carded { device, function, .. } => Subject::Carded(device.index, *function),
            PlaneChange::Numbers { .. } => Subject::Numbers,
        }
    }

    fn namespace(&self) -> u64 {
        self.namespace
    }
}

/// The plane's entries of the thread's network namespace.
pub(super) type PlaneLog = Entries<PlaneEntry>;

impl PlaneLog {
    /// # Errors
    /// When the log cannot be parsed.
    pub(super) fn here(log: &UndoLog) -> Result<PlaneLog> {
        let stat = rustix::fs::stat(NAMESPACE).map_err(|e| Error::Refused {
            what: format!("look at {NAMESPACE}"),
            source: e.into(),
            said: String::new(),
        })?;
        Ok(Entries::read(log, stat.st_ino)?)
    }

    fn written(&self, what: PlaneChange) -> PlaneEntry {
        PlaneEntry { namespace: self.namespace(), what }
    }

    fn what(&self, subject: Subject) -> Option<PlaneChange> {
        Some(self.last(subject)?.what)
    }

    /// Whether limits are recorded as in force.
    pub(super) fn has_begun(&self) -> bool {
        self.what(Subject::Begun).is_some()
    }

    /// The directory of pinned links.
    pub(super) fn pins(&self) -> Option<String> {
        self.all(Subject::Begun).into_iter().rev().find_map(|(_, written)| match written.what {
            PlaneChange::Begun { pins } => pins,
            _ => None,
        })
    }

    /// Records the begin, before the first change. An earlier directory of pins stays on record.
    pub(super) fn begin(&self, pins: Option<String>) -> Result<()> {
        if matches!(self.what(Subject::Begun), Some(PlaneChange::Begun { pins: before }) if before == pins) {
            return Ok(());
        }
        self.record(self.written(PlaneChange::Begun { pins }))?;
        Ok(())
    }

    /// Records that no limits are in force.
    pub(super) fn end(&self) -> Result<()> {
        self.strike(Subject::Begun)?;
        Ok(self.strike(Subject::Numbers)?)
    }

    /// Records the interfaces' numbers before they are used. Numbers of interfaces that are gone stay until the next
    /// change.
    pub(super) fn number(&self, desired: &Desired) -> Result<()> {
        let seats = desired.pools.iter().flat_map(|pool| &pool.seats);
        let device = |interface: &Interface| Device { index: interface.index, name: interface.name.clone() };
        // An interface may be in two pools, by one number.
        let all: BTreeMap<Device, u16> =
            seats.filter_map(|seat| Some((device(seat.interface.as_ref()?), seat.number))).collect();
        let recorded: BTreeMap<Device, u16> = self.numbered().into_iter().collect();
        if all.iter().all(|(device, number)| recorded.get(device) == Some(number)) {
            return Ok(());
        }
        Ok(self.replace(self.written(PlaneChange::Numbers { given: all.into_iter().collect() }))?)
    }

    /// The recorded numbers.
    pub(super) fn numbers(&self) -> Numbers {
        let given = self.numbered().into_iter();
        Numbers::handed_on(given.map(|(device, number)| (device.index, device.name, number)))
    }

    /// The interfaces that have a number, with it.
    pub(super) fn numbered(&self) -> Vec<(Device, u16)> {
        match self.what(Subject::Numbers) {
            Some(PlaneChange::Numbers { given }) => given,
            _ => Vec::new(),
        }
    }

    /// Records a foreign qdisc before it is replaced.
    pub(super) fn begin_replacing(&self, device: &Device, foreign: &Foreign) -> Result<()> {
        let what = PlaneChange::Replaced { device: device.clone(), foreign: foreign.clone() };
        Ok(self.replace(self.written(what))?)
    }

    /// The qdisc that was replaced at an interface, with the interface's name then.
    pub(super) fn replaced(&self, index: u32) -> Option<(Device, Foreign)> {
        match self.what(Subject::Replaced(index))? {
            PlaneChange::Replaced { device, foreign } => Some((device, foreign)),
            _ => None,
        }
    }

    /// Indexes of interfaces at which a qdisc was replaced.
    pub(super) fn replaced_at(&self) -> Vec<u32> {
        let index = |subject| if let Subject::Replaced(index) = subject { Some(index) } else { None };
        self.subjects().into_iter().filter_map(index).collect()
    }

    /// Strikes out a replaced qdisc: it is restored, or its interface is gone.
    pub(super) fn strike_replaced(&self, index: u32) -> Result<()> {
        Ok(self.strike(Subject::Replaced(index))?)
    }

    /// Records a clsact qdisc before it is made.
    pub(super) fn begin_clsact(&self, device: &Device) -> Result<()> {
        if self.made_clsact(device.index).as_ref() == Some(device) {
            return Ok(());
        }
        Ok(self.replace(self.written(PlaneChange::Clsact { device: device.clone() }))?)
    }

    /// The interface at which a clsact qdisc was made, with its name then.
    pub(super) fn made_clsact(&self, index: u32) -> Option<Device> {
        match self.what(Subject::Clsact(index))? {
            PlaneChange::Clsact { device } => Some(device),
            _ => None,
        }
    }

    /// Indexes of interfaces at which a clsact qdisc was made.
    pub(super) fn clsacts(&self) -> Vec<u32> {
        let index = |subject| if let Subject::Clsact(index) = subject { Some(index) } else { None };
        self.subjects().into_iter().filter_map(index).collect()
    }

    /// Strikes out a clsact qdisc: it is removed, gone with its interface, or used by others.
    pub(super) fn strike_clsact(&self, index: u32) -> Result<()> {
        Ok(self.strike(Subject::Clsact(index))?)
    }

    /// Records a card's limit for a function, which is `now`, before it is set to `mbit`.
    pub(super) fn begin_limiting(&self, device: &Device, function: u32, now: Rate, mbit: u32) -> Result<()> {
        let recorded = self.card_limit_at(device.index, function).filter(|(at, _, _)| at == device);
        // If the current limit is not the guard's, it is the one to restore.
        let is_ours = recorded.as_ref().filter(|(_, _, ours)| ours.contains(&now.max_mbit));
        let before = is_ours.map_or(now, |(_, before, _)| *before);
        let ours: Vec<u32> = is_ours.map(|_| now.max_mbit).into_iter().chain([mbit]).collect();
        if is_ours.is_none() && recorded.as_ref().is_some_and(|(_, was, recorded)| *was == before && *recorded == ours)
        {
            // The card refused it before.
            return Ok(());
        }
        Ok(self.replace(self.written(PlaneChange::Carded { device: device.clone(), function, before, ours }))?)
    }

    /// Of a function: its card with the name then, the limit before, and the guard's limits in Mbit/s.
    pub(super) fn card_limit_at(&self, index: u32, function: u32) -> Option<(Device, Rate, Vec<u32>)> {
        match self.what(Subject::Carded(index, function))? {
            PlaneChange::Carded { device, before, ours, .. } => Some((device, before, ours)),
            _ => None,
        }
    }

    /// Cards and functions with a limit of the guard's.
    pub(super) fn card_limits(&self) -> Vec<(Device, u32)> {
        let card = |subject| match subject {
            Subject::Carded(index, function) => Some((self.card_limit_at(index, function)?.0, function)),
            _ => None,
        };
        self.subjects().into_iter().filter_map(card).collect()
    }

    /// Strikes out a function's limit: it is restored, gone with its card, or others' by now.
    pub(super) fn strike_card_limit(&self, index: u32, function: u32) -> Result<()> {
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
    fn entries_last_until_undone() {
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
            log.strike_replaced(2).unwrap();
        }
        let all = UndoLog::open(dir.path()).unwrap();
        let log = here(&all);
        assert!(log.has_begun());
        assert_eq!(log.pins().as_deref(), Some("/pins"));
        assert_eq!(log.replaced(1), Some((device(1), foreign(2))));
        assert_eq!((log.replaced(2), log.made_clsact(1)), (None, Some(device(1))));
        assert_eq!(all.live::<PlaneEntry>(PlaneEntry::PART).unwrap().len(), 4);
        log.end().unwrap();
        log.strike_replaced(1).unwrap();
        log.strike_clsact(1).unwrap();
        assert_eq!(all.live::<PlaneEntry>(PlaneEntry::PART).unwrap().len(), 0);
    }

    /// The limit to restore is the one before vmio, or one that somebody else has set meanwhile.
    #[test]
    fn limit_before_survives_changes_and_crashes() {
        let dir = tempfile::tempdir().unwrap();
        let rate = |max_mbit| Rate { min_mbit: 0, max_mbit };
        {
            let log = here(&UndoLog::open(dir.path()).unwrap());
            log.begin_limiting(&device(1), 3, rate(900), 500).unwrap();
            log.begin_limiting(&device(1), 3, rate(500), 400).unwrap();
            log.begin_limiting(&device(1), 4, rate(0), 100).unwrap();
            log.begin_limiting(&device(1), 4, rate(77), 100).unwrap();
            log.begin_limiting(&device(2), 3, rate(0), 5).unwrap();
            log.strike_card_limit(2, 3).unwrap();
        }
        let log = here(&UndoLog::open(dir.path()).unwrap());
        assert_eq!(log.card_limit_at(1, 3), Some((device(1), rate(900), vec![500, 400])), "either may be in force");
        assert_eq!(log.card_limit_at(1, 4), Some((device(1), rate(77), vec![100])));
        assert_eq!(log.card_limits(), [(device(1), 3), (device(1), 4)]);
    }

    #[test]
    fn other_namespaces_entries_stay() {
        let all = UndoLog::memory();
        let written = PlaneEntry { namespace: 1, what: PlaneChange::Clsact { device: device(1) } };
        all.record(PlaneEntry::PART, &written).unwrap();
        let log = here(&all);
        assert_eq!(log.made_clsact(1), None);
        log.strike_clsact(1).unwrap();
        log.end().unwrap();
        assert_eq!(all.live::<PlaneEntry>(PlaneEntry::PART).unwrap().len(), 1);
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
            form_stays::<PlaneEntry>("linux", &text);
        }
    }
}
