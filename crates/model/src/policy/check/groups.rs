//! Checks of limits on control groups and of guests' memory: classes without a guest, and two classes of one interface,
//! hence of one guest.

use std::collections::BTreeMap;

use super::{Check, Class, DEFAULT, HOST};
use crate::policy::groups::{GroupKey, Limits};
use crate::policy::memory::{LEAST_BYTES, Memory};
use crate::policy::parse::{EntryDraft, GroupDraft};
use crate::policy::units::show_bytes;

impl GroupDraft {
    /// The limits.
    pub fn limits(&self) -> Limits {
        Limits {
            cpu_weight: self.cpu_weight.as_ref().map(|w| w.value),
            cpu_max: self.cpu_max.as_ref().map(|m| m.value),
            // With a minimum it is the balloon's.
            memory_max: self.memory_max.as_ref().filter(|_| self.memory_min.is_none()).map(|m| m.value),
        }
    }

    /// What its guests' balloons leave them.
    pub fn memory(&self) -> Option<Memory> {
        Some(Memory {
            min_bytes: self.memory_min.as_ref()?.value,
            max_bytes: self.memory_max.as_ref().map(|m| m.value),
            moves: self.memory_move.as_ref().is_some_and(|m| m.value),
        })
    }
}

impl Check<'_> {
    /// `host` and `default` are no guests.
    pub fn has_a_group(&mut self, name: &str, written: &GroupDraft) {
        let why = match name {
            HOST => "the host's own traffic belongs to no guest: it has no control group to limit",
            DEFAULT => {
                "interfaces that match no entry form one member, not a guest: write a class and an [[interface]] for it"
            }
            _ => return,
        };
        for (key, place) in written.places() {
            self.problem(&place, &format!("class.{name}.{key}"), why);
        }
    }

    /// Memory that no guest can have, or that is not said.
    pub fn has_memory(&mut self, name: &str, written: &GroupDraft) {
        let Some(min) = &written.memory_min else {
            if let Some(moves) = written.memory_move.as_ref().filter(|moves| moves.value) {
                let what = "needs a memory_min: without one nothing says how much a guest keeps";
                self.problem(moves, &format!("class.{name}.memory_move"), what);
            }
            return;
        };
        let key = format!("class.{name}.memory_min");
        if min.value < LEAST_BYTES {
            let what = format!(
                "{} is too little for a guest to work in: at least {}",
                show_bytes(min.value),
                show_bytes(LEAST_BYTES)
            );
            self.problem(min, &key, what);
        }
        if let Some(max) = written.memory_max.as_ref().filter(|max| min.value > max.value) {
            let what = format!(
                "{} is above the maximum of {} ({})",
                show_bytes(min.value),
                show_bytes(max.value),
                self.place(max)
            );
            self.problem(min, &key, what);
        }
    }

    /// Both classes of an entry are of one guest, which has one control group.
    pub fn agree(&mut self, e: &EntryDraft, classes: &BTreeMap<String, Class>) {
        let (Some(tx), Some(rx)) = (&e.class, &e.rx_class) else { return };
        let (Some(here), Some(there)) = (classes.get(&tx.value), classes.get(&rx.value)) else { return };
        if let (Some(one), Some(other)) = (here.memory, there.memory)
            && one != other
        {
            let what = format!(
                "class {} says otherwise of memory than class {}: both are this guest's, which has one balloon",
                rx.value, tx.value
            );
            self.problem(rx, "interface.rx_class", what);
        }
        for key in GroupKey::ALL {
            let (Some(one), Some(other)) = (here.group.shown(key), there.group.shown(key)) else { continue };
            if one == other {
                continue;
            }
            let place = |class: &str| {
                let written = self.draft.classes.get(class)?;
                written.group.places().find(|(k, _)| *k == key.word()).map(|(_, at)| self.place(&at))
            };
            let of = |class: &str, value: &str| {
                let place = place(class).map_or_else(String::new, |place| format!(" ({place})"));
                format!("{value} in class {class}{place}")
            };
            let what = format!(
                "{} is {} and {}: both are this guest's, which has one control group",
                key.word(),
                of(&tx.value, &one),
                of(&rx.value, &other)
            );
            self.problem(rx, "interface.rx_class", what);
        }
    }
}
