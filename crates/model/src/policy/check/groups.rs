//! Checks of limits on control groups: classes without a guest, and two classes of one interface, hence of one guest.

use std::collections::BTreeMap;

use super::{Check, Class, DEFAULT, HOST};
use crate::policy::groups::{GroupKey, Limits};
use crate::policy::parse::{EntryDraft, GroupDraft};

impl GroupDraft {
    /// The limits.
    pub fn limits(&self) -> Limits {
        Limits {
            cpu_weight: self.cpu_weight.as_ref().map(|w| w.value),
            cpu_max: self.cpu_max.as_ref().map(|m| m.value),
            memory_max: self.memory_max.as_ref().map(|m| m.value),
        }
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
            self.problem(&place, &format!("class.{name}.{}", key.word()), why);
        }
    }

    /// Both classes of an entry are of one guest, which has one control group.
    pub fn agree(&mut self, e: &EntryDraft, classes: &BTreeMap<String, Class>) {
        let (Some(tx), Some(rx)) = (&e.class, &e.rx_class) else { return };
        let (Some(here), Some(there)) = (classes.get(&tx.value), classes.get(&rx.value)) else { return };
        for key in GroupKey::ALL {
            let (Some(one), Some(other)) = (here.group.shown(key), there.group.shown(key)) else { continue };
            if one == other {
                continue;
            }
            let place = |class: &str| {
                let written = self.draft.classes.get(class)?;
                written.group.places().find(|(k, _)| *k == key).map(|(_, at)| self.place(&at))
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
