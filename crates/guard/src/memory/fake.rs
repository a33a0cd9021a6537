//! A machine of the tests, with guests whose balloons obey at once or not at all.

#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use vmio_model::facts::{CachedReads, GuestMemory};
use vmio_node::balloon::Balloon;

use super::{Host, HostNow, Seen};

pub const MIB: u64 = 1 << 20;

/// A guest.
#[derive(Debug, Clone)]
pub struct FakeGuest {
    pub whole_bytes: u64,
    pub actual_bytes: u64,
    /// What its programs use; the rest is free, but for `cache_bytes`.
    pub used_bytes: u64,
    pub cache_bytes: u64,
    /// So much less is free by what its driver reported last, until it reports again: after a pause.
    pub late_bytes: u64,
    pub reads: CachedReads,
    pub major_faults: u64,
    pub polling_seconds: u64,
    /// Its balloon's driver does nothing.
    pub is_stuck: bool,
    pub runs: bool,
    /// Somebody else uses its monitor.
    pub is_busy: bool,
}

impl FakeGuest {
    pub fn of(mib: u64, used_mib: u64) -> Self {
        Self {
            whole_bytes: mib * MIB,
            actual_bytes: mib * MIB,
            used_bytes: used_mib * MIB,
            cache_bytes: 0,
            late_bytes: 0,
            reads: CachedReads { asked_bytes: 0, storage_bytes: 0 },
            major_faults: 0,
            polling_seconds: 0,
            is_stuck: false,
            runs: true,
            is_busy: false,
        }
    }
}

/// The machine; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Fake {
    pub guests: Rc<RefCell<BTreeMap<u32, FakeGuest>>>,
    /// Each aim: process and bytes.
    pub aims: Rc<RefCell<Vec<(u32, u64)>>>,
    pub available_bytes: Rc<RefCell<u64>>,
}

impl Fake {
    pub fn with(guests: &[(u32, FakeGuest)], available_mib: u64) -> Self {
        let fake = Self::default();
        fake.guests.borrow_mut().extend(guests.iter().cloned());
        *fake.available_bytes.borrow_mut() = available_mib * MIB;
        fake
    }

    pub fn change(&self, pid: u32, how: impl FnOnce(&mut FakeGuest)) {
        how(self.guests.borrow_mut().get_mut(&pid).unwrap());
    }

    pub fn actual_mib(&self, pid: u32) -> u64 {
        self.guests.borrow()[&pid].actual_bytes / MIB
    }
}

impl Host for Fake {
    fn look(&self, wanted: &BTreeSet<u32>) -> Result<(HostNow, Vec<Seen>), String> {
        let available_bytes = *self.available_bytes.borrow();
        let host = HostNow { total_bytes: 16 << 30, available_bytes, swapped_pages: 0 };
        let seen = |(pid, guest): (&u32, &FakeGuest)| {
            let free_bytes = guest.actual_bytes.saturating_sub(guest.used_bytes + guest.cache_bytes + guest.late_bytes);
            let told = GuestMemory {
                free_bytes,
                available_bytes: Some(free_bytes + guest.cache_bytes),
                cache_bytes: Some(guest.cache_bytes),
                at_unix_seconds: 1,
                major_faults: Some(guest.major_faults),
                swapped_in_bytes: Some(0),
            };
            let asked = wanted.contains(pid) && !guest.is_busy;
            Seen {
                pid: *pid,
                whole_bytes: guest.whole_bytes,
                actual_bytes: asked.then_some(guest.actual_bytes),
                resident_bytes: guest.actual_bytes,
                told: (asked && guest.polling_seconds > 0).then_some(told),
                reads: (!guest.is_busy).then_some(guest.reads),
                host_cached_bytes: 4 << 30,
                why_not: guest.is_busy.then(|| "it is in use".to_owned()),
            }
        };
        Ok((host, self.guests.borrow().iter().filter(|(_, guest)| guest.runs).map(seen).collect()))
    }

    fn balloon(&self, guest: &str, pid: u32) -> Result<Balloon, String> {
        Ok(Balloon { guest: guest.to_owned(), monitor: format!("/run/{guest}.qmp").into(), pid, start_ticks: 7 })
    }

    fn runs(&self, balloon: &Balloon) -> bool {
        self.guests.borrow().get(&balloon.pid).is_some_and(|guest| guest.runs)
    }

    fn actual_bytes(&self, balloon: &Balloon) -> Result<u64, String> {
        let guests = self.guests.borrow();
        guests.get(&balloon.pid).map(|guest| guest.actual_bytes).ok_or_else(|| "it has ended".to_owned())
    }

    fn aim_at(&self, balloon: &Balloon, bytes: u64) -> Result<(), String> {
        self.aims.borrow_mut().push((balloon.pid, bytes));
        let mut guests = self.guests.borrow_mut();
        let guest = guests.get_mut(&balloon.pid).ok_or_else(|| "it has ended".to_owned())?;
        if !guest.is_stuck {
            let mut available = self.available_bytes.borrow_mut();
            *available = (*available + guest.actual_bytes).saturating_sub(bytes);
            guest.actual_bytes = bytes;
        }
        Ok(())
    }

    fn polling_seconds(&self, balloon: &Balloon) -> Result<u64, String> {
        Ok(self.guests.borrow()[&balloon.pid].polling_seconds)
    }

    fn poll(&self, balloon: &Balloon, seconds: u64) -> Result<(), String> {
        self.change(balloon.pid, |guest| guest.polling_seconds = seconds);
        Ok(())
    }

    fn pause(&self) {
        self.guests.borrow_mut().values_mut().for_each(|guest| guest.late_bytes = 0);
    }
}
