//! Guests by their interfaces, and limits of theirs that have no control group to be written to. Changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use vmio_model::policy::assign::assign;
use vmio_model::policy::groups::{GroupKey, owed};
use vmio_model::policy::{Class, Direction, Policy};

use super::dial::Dial;
use super::{Groups, GroupsError, GuestInfo, Host};
use crate::interface::DiscoveredInterface;
use crate::undo_log::UndoLog;

/// The guests whose processes are known, each with its interfaces.
pub fn guests(found: &[DiscoveredInterface]) -> Vec<GuestInfo> {
    let mut guests: BTreeMap<&[u32], GuestInfo> = BTreeMap::new();
    for found in found.iter().filter(|found| !found.pids.is_empty()) {
        let name = found.interface.vms.first().unwrap_or(&found.interface.name);
        let guest = guests.entry(&found.pids).or_insert_with(|| GuestInfo {
            name: name.clone(),
            interfaces: Vec::new(),
            pids: found.pids.clone(),
            memory_bytes: found.memory_bytes,
        });
        guest.interfaces.push(found.interface.clone());
    }
    guests.into_values().collect()
}

/// Classes with limits of processors and memory.
fn limited(policy: &Policy) -> impl Iterator<Item = (&String, &Class)> {
    policy.classes.iter().filter(|(_, class)| !class.group.is_empty())
}

/// Classes whose limits of processors and memory hold for nobody, a sentence each.
pub fn idle(policy: &Policy, guests: &[GuestInfo]) -> Vec<String> {
    // Most policies have none, and the entries of all interfaces take time to find.
    if limited(policy).next().is_none() {
        return Vec::new();
    }
    let entries = guests.iter().flat_map(|guest| &guest.interfaces).filter_map(|i| Some(assign(policy, i)?.entry));
    let classes = entries.flat_map(|entry| Direction::ALL.into_iter().filter_map(move |way| entry.class_in(way)));
    let used: BTreeSet<&str> = classes.collect();
    let idle = limited(policy).filter(|(name, _)| !used.contains(name.as_str()));
    idle.map(|(name, class)| {
        let keys: Vec<&str> = class.group.keys().map(GroupKey::word).collect();
        format!("no guest of class {name} has a control group here: {} limit nothing", keys.join(" and "))
    })
    .collect()
}

/// What of a policy's limits of processors and memory would not be in force on this machine, a sentence each.
///
/// # Errors
/// When the mounts cannot be read.
pub fn lacking(policy: &Policy, found: &[DiscoveredInterface]) -> Result<Vec<String>, GroupsError> {
    if limited(policy).next().is_none() {
        return Ok(Vec::new());
    }
    let guests = guests(found);
    let mut notes = idle(policy, &guests);
    notes.append(&mut Groups::open(&UndoLog::memory())?.unplaced(policy, &guests));
    Ok(notes)
}

impl<H: Host> Groups<H> {
    /// Limits of these guests that have no control group.
    fn unplaced(&mut self, policy: &Policy, guests: &[GuestInfo]) -> Vec<String> {
        let mut notes = Vec::new();
        for guest in guests {
            let owed = owed(policy, &guest.interfaces);
            notes.extend(owed.disputed.into_iter().map(|(_, why)| format!("{}: {why}", guest.name)));
            self.place(guest, owed.limits.keys().map(Dial::controller).collect());
            for key in owed.limits.keys() {
                if let Err(why) = self.cgroup(guest, key) {
                    notes.push(format!("{}: {} would not be in force: {why}", guest.name, key.word()));
                }
            }
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use vmio_model::policy::assign::Interface;

    use super::*;
    use crate::testing::policy;

    #[test]
    fn a_class_of_which_no_guest_has_a_process_limits_nobody() {
        let text = "[uplink.eth0]\ncapacity = \"100Mbit\"\n[class.gold]\ncpu_max = \"150%\"\nmemory_max = \"1GiB\"\n\
                    [class.tin]\n[[interface]]\nmatch = { name = \"tap*\" }\nclass = \"gold\"\n";
        let policy = policy(text);
        let tap = |index, pids| DiscoveredInterface {
            pids,
            ..Interface { index, name: format!("tap{index}"), ..Interface::default() }.into()
        };
        let none = idle(&policy, &guests(&[tap(1, Vec::new())]));
        assert_eq!(none, ["no guest of class gold has a control group here: cpu_max and memory_max limit nothing"]);
        let both = guests(&[tap(1, vec![7]), tap(2, vec![7]), tap(3, Vec::new())]);
        assert_eq!((both.len(), both[0].interfaces.len()), (1, 2));
        assert!(idle(&policy, &both).is_empty());
    }
}
