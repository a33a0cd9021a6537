//! What a guest is owed besides the wire, on its control group: weight and most time of processors, most memory
//! ([`vmio_model::policy::groups`] says how much, pure). `dial` has the kernel's terms, `place` which group is a guest's.
//!
//! A limit is written only where the group is the guest's alone, only where something else is there than is to be, and only
//! after what was there stands in the guard's ledger ([`crate::undo_log`]); it is read back. What the policy no longer says, or a
//! guest leaves, is put back; so is all by [`Groups::undo`], also by another process that opens the ledger after a crash. What
//! somebody else has set since is left alone then, and told. While a limit is in force, what somebody else sets over it is put
//! right at the next look and counted, as with queues.
//!
//! **Nobody is killed**: a limit of memory below what is in use, or below the guest's own memory, is not written, neither the
//! policy's nor what was there before; it is told, and tried again at each look.

mod dial;
mod hold;
mod host;
mod place;
mod why_not;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use vmio_model::policy::Policy;
use vmio_model::policy::assign::Interface;
use vmio_model::policy::groups::{GroupKey, Limits, owed};
use vmio_node::linux::cgroup::Hierarchies;

use crate::undo_log::{Entries, HOST, UndoLog, UndoLogError};

use dial::Dial;
use hold::{Limit, RestoreOutcome, Slot};
pub use host::{Group, Here, Host};
use place::GuestCgroup;
pub use why_not::{InUse, WhyNot};

/// Looks after which a guest's groups are found anew, though nothing seems to have changed: a hypervisor moves its threads
/// after it has started, and others come into a group.
const LOOKS: u64 = 8;

/// A guest that is there, as far as this needs to know it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuestSeen {
    /// Its name, which no other guest has at the same time.
    pub name: String,
    /// Its interfaces; a policy's entries match them.
    pub interfaces: Vec<Interface>,
    /// Its processes, the hypervisor's or container's first one foremost. What they started, and what is in the PID
    /// namespace of the first if that is its own, is the guest's without being named.
    pub pids: Vec<u32>,
    /// Bytes of memory that it was given, where it is known: no limit below it is written.
    pub memory_bytes: Option<u64>,
}

/// Why groups cannot be looked after.
#[derive(Debug, thiserror::Error)]
pub enum GroupsError {
    /// The ledger.
    #[error(transparent)]
    UndoLog(#[from] UndoLogError),
    /// The table of mounts.
    #[error("cannot see where control groups are mounted: {0}")]
    Mounts(vmio_node::Error),
}

/// What a look changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Limits that were set for the first time, or to another value of the policy.
    pub set: usize,
    /// Limits that somebody else had changed.
    pub put_right: usize,
    /// Limits that were put back to what was there before.
    pub put_back: usize,
    /// What was not put back and why, a sentence each; what is tried again is told at each look.
    pub notes: Vec<String>,
}

impl Changes {
    /// Changes in all.
    pub fn count(&self) -> usize {
        self.set + self.put_right + self.put_back
    }
}

/// A limit of a guest.
#[derive(Debug, Clone)]
pub struct LimitStatus {
    /// Which.
    pub key: GroupKey,
    /// As the policy has it; `None` where classes of the guest dispute it.
    pub wanted: Option<String>,
    /// What became of it.
    pub state: State,
}

/// What became of a limit.
#[derive(Debug, Clone)]
pub enum State {
    /// It is in force.
    InForce {
        /// The file.
        file: PathBuf,
        /// What is there.
        value: String,
        /// What comes back; the same where it was there without us.
        before: String,
    },
    /// It is not, and why.
    Not(Arc<WhyNot>),
}

/// What is known of a guest that is owed something.
#[derive(Debug, Clone)]
pub struct GuestStatus {
    /// Its name.
    pub guest: String,
    /// Its limits.
    pub limits: Vec<LimitStatus>,
}

/// The guests' control groups.
#[derive(Debug)]
pub struct Groups<H: Host = Here> {
    host: H,
    hierarchies: Hierarchies,
    entries: Entries<Limit>,
    placed: BTreeMap<String, Placed>,
    looks: u64,
    status: Vec<GuestStatus>,
}

/// A guest's control group, or why it has none.
type CgroupResult = Result<GuestCgroup, Arc<WhyNot>>;

/// The control groups of a guest as they were found last.
#[derive(Debug, Clone)]
struct Placed {
    /// The guest's processes then.
    pids: Vec<u32>,
    /// Content of `/proc/PID/cgroup` of the first process then.
    cgroup_file: String,
    look: u64,
    /// One of the groups is no longer there.
    gone: bool,
    /// By controller.
    cgroups: BTreeMap<&'static str, CgroupResult>,
}

/// A limit that is to be in force.
#[derive(Debug)]
struct Wanted<'a> {
    guest: &'a GuestSeen,
    limits: Limits,
    key: GroupKey,
    value: u64,
}

impl Groups<Here> {
    /// Those of this machine. What the ledger says is in force is taken over.
    ///
    /// # Errors
    /// When the ledger's entries make no sense, or the mounts cannot be read.
    pub fn open(log: &UndoLog) -> Result<Self, GroupsError> {
        let host = Here::new();
        let hierarchies = Hierarchies::of(host.reader()).map_err(GroupsError::Mounts)?;
        Self::over(host, hierarchies, log)
    }
}

impl<H: Host> Groups<H> {
    /// Those of a machine whose groups are mounted there.
    ///
    /// # Errors
    /// When the ledger's entries make no sense.
    pub fn over(host: H, hierarchies: Hierarchies, log: &UndoLog) -> Result<Self, GroupsError> {
        let entries = Entries::read(log, HOST)?;
        Ok(Self { host, hierarchies, entries, placed: BTreeMap::new(), looks: 0, status: Vec::new() })
    }

    /// Has in force what the policy says for these guests, and puts back what it no longer does. Doing it twice changes
    /// nothing. What cannot be is in [`Groups::status`], and nothing of it ends the guard.
    pub fn reconcile(&mut self, policy: &Policy, guests: &[GuestSeen]) -> Changes {
        self.looks += 1;
        let mut changes = Changes::default();
        let mut statuses: BTreeMap<&str, Vec<LimitStatus>> = BTreeMap::new();
        let mut wanted: Vec<(CgroupResult, Wanted<'_>)> = Vec::new();
        for guest in guests {
            let owed = owed(policy, &guest.interfaces);
            let limits = statuses.entry(&guest.name).or_default();
            for (key, why) in owed.disputed {
                limits.push(LimitStatus { key, wanted: None, state: State::Not(Arc::new(WhyNot::Disputed(why))) });
            }
            let keys = GroupKey::ALL.into_iter().filter(|key| owed.limits.value(*key).is_some());
            self.place(guest, keys.map(Dial::controller).collect());
            for key in GroupKey::ALL {
                let Some(value) = owed.limits.value(key) else { continue };
                wanted.push((self.cgroup(guest, key), Wanted { guest, limits: owed.limits, key, value }));
            }
        }
        self.placed.retain(|name, _| statuses.contains_key(name.as_str()));
        // First what is to go: a group that had a limit may be in the way of another.
        let slot =
            |(cgroup, wanted): &(CgroupResult, Wanted<'_>)| Some(Slot::of(cgroup.as_ref().ok()?.group, wanted.key));
        let stay: BTreeSet<Slot> = wanted.iter().filter_map(slot).collect();
        for slot in self.entries.subjects().into_iter().filter(|slot| !stay.contains(slot)) {
            self.put_back(slot, &mut changes);
        }
        let mut taken: BTreeMap<Slot, &str> = BTreeMap::new();
        let mut opened = None;
        for (cgroup, wanted) in wanted {
            let state = cgroup.and_then(|cgroup| {
                let done = match taken.insert(Slot::of(cgroup.group, wanted.key), &wanted.guest.name) {
                    Some(other) => Err(WhyNot::SharedWith(other.to_owned())),
                    None => self.set(&cgroup, &wanted, &mut opened, &mut changes),
                };
                done.map_err(Arc::new)
            });
            let state = state.unwrap_or_else(State::Not);
            let status = LimitStatus { key: wanted.key, wanted: wanted.limits.shown(wanted.key), state };
            statuses.entry(&wanted.guest.name).or_default().push(status);
        }
        self.status = statuses
            .into_iter()
            .filter(|(_, limits)| !limits.is_empty())
            .map(|(guest, limits)| GuestStatus { guest: guest.to_owned(), limits })
            .collect();
        changes
    }

    /// What the last look showed, by guest.
    pub fn status(&self) -> &[GuestStatus] {
        &self.status
    }

    /// Limits of the ledger that are not put back yet.
    pub fn held(&self) -> usize {
        self.entries.subjects().len()
    }

    /// Puts back all that was there before. What could not be stays in the ledger and is told in the notes.
    pub fn undo(&mut self) -> Changes {
        let mut changes = Changes::default();
        for slot in self.entries.subjects() {
            self.put_back(slot, &mut changes);
        }
        self.status.clear();
        changes
    }

    /// Finds a guest's groups with these controllers, unless nothing speaks for a change. What was not found is looked for
    /// each time. Whether it is still there shows when it is opened.
    fn place(&mut self, guest: &GuestSeen, controllers: BTreeSet<&'static str>) {
        if controllers.is_empty() {
            return;
        }
        let first = guest.pids.first().map(|pid| vmio_node::linux::process::file(*pid, "cgroup"));
        let cgroup_file = first.and_then(|file| self.host.reader().read_text(&file).ok()).unwrap_or_default();
        let known = self.placed.get(&guest.name).is_some_and(|placed| {
            let found = |controller| placed.cgroups.get(controller).is_some_and(Result::is_ok);
            !placed.gone
                && placed.pids == guest.pids
                && placed.cgroup_file == cgroup_file
                && self.looks - placed.look < LOOKS
                && controllers.iter().all(found)
        });
        if known {
            return;
        }
        let find = |controller| place::find(&self.host, &self.hierarchies, guest, controller).map_err(Arc::new);
        let cgroups = controllers.into_iter().map(|controller| (controller, find(controller))).collect();
        let placed = Placed { pids: guest.pids.clone(), cgroup_file, look: self.looks, gone: false, cgroups };
        self.placed.insert(guest.name.clone(), placed);
    }

    fn cgroup(&self, guest: &GuestSeen, key: GroupKey) -> CgroupResult {
        let placed = self.placed.get(&guest.name).and_then(|placed| placed.cgroups.get(Dial::controller(key)));
        placed.cloned().unwrap_or_else(|| Err(Arc::new(WhyNot::NotLookedFor)))
    }

    /// Has a limit in force. The group that was opened last is often the one.
    fn set(
        &mut self,
        cgroup: &GuestCgroup,
        wanted: &Wanted<'_>,
        opened: &mut Option<H::Group>,
        changes: &mut Changes,
    ) -> Result<State, WhyNot> {
        let (slot, dial) = (Slot::of(cgroup.group, wanted.key), Dial { key: wanted.key, v2: cgroup.v2 });
        let file = cgroup.dir.join(dial.file());
        if opened.as_ref().is_none_or(|group| group.identity() != cgroup.group) {
            *opened = self.host.open(&cgroup.dir).ok().filter(|group| group.identity() == cgroup.group);
        }
        let Some(group) = opened.as_ref() else {
            if let Some(placed) = self.placed.get_mut(&wanted.guest.name) {
                placed.gone = true;
            }
            return Err(WhyNot::Gone(cgroup.dir.clone()));
        };
        let now = dial.read(group).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                WhyNot::SwitchedOff { file: dial.file(), controller: Dial::controller(wanted.key) }
            }
            _ => WhyNot::Io { path: file.clone(), done: "read", source },
        })?;
        let value = dial.wanted(wanted.value, &now, self.host.page_bytes())?;
        // Its owner may have renamed it (version 1), or the guest.
        self.entries.amend(slot, |limit| (limit.dir, limit.guest) = (cgroup.dir.clone(), wanted.guest.name.clone()));
        let last = self.entries.last(slot);
        let before = last.as_ref().map_or(now.clone(), |limit| dial.carried(&limit.before, &now));
        if now == value {
            return Ok(State::InForce { file, value, before });
        }
        if let Some(bytes) =
            wanted.guest.memory_bytes.filter(|m| wanted.key == GroupKey::MemoryMax && wanted.value < *m)
        {
            return Err(WhyNot::GuestsMemory { bytes });
        }
        if let Some(in_use) = dial.kills(group, &value).map_err(WhyNot::UnknownUse)? {
            return Err(WhyNot::InUse(in_use));
        }
        let again = last.is_some_and(|limit| limit.value == value && limit.before == before);
        let limit = Limit::new(wanted.guest, cgroup, wanted.key, before.clone(), value.clone());
        let recorded = if again { None } else { Some(self.entries.record(limit).map_err(WhyNot::Unwritten)?) };
        let refused = |source| WhyNot::Refused { key: dial.key, file: dial.file(), value: value.clone(), source };
        let unread = |source| WhyNot::Io { path: file.clone(), done: "read back", source };
        let found = dial.write(group, &value).map_err(refused).and_then(|()| dial.read(group).map_err(unread));
        let found = match (found, recorded) {
            (Err(why), Some(id)) if dial.read(group).is_ok_and(|still| still == now) => {
                // Nothing was changed. An entry that stays by a full disk speaks of nothing either.
                let _ = self.entries.strike_where(slot, |other, _| other == id);
                return Err(why);
            }
            (found, _) => found,
        };
        if let Some(id) = recorded {
            // Those before stay at worst, and say what this one says.
            let _ = self.entries.strike_where(slot, |other, _| other != id);
        }
        match found? {
            found if found != value => Err(WhyNot::Differs { file, value, found }),
            _ if again => {
                changes.put_right += 1;
                Ok(State::InForce { file, value, before })
            }
            _ => {
                changes.set += 1;
                Ok(State::InForce { file, value, before })
            }
        }
    }

    /// Puts back what was there before a limit.
    fn put_back(&mut self, slot: Slot, changes: &mut Changes) {
        let entries = self.entries.all(slot);
        let Some((_, last)) = entries.last() else { return };
        let what = format!("{} of {}", slot.key().word(), last.guest);
        match last.put_back(&self.host, entries.iter().map(|(_, limit)| limit.value.as_str())) {
            RestoreOutcome::Left(why) => return changes.notes.push(format!("{what} is not put back: {why}")),
            RestoreOutcome::Others(now) => {
                changes.notes.push(format!("{what} is left at {now}, which somebody else has set since"));
            }
            RestoreOutcome::Restored => changes.put_back += 1,
            RestoreOutcome::Nothing => {}
        }
        if let Err(e) = self.entries.strike(slot) {
            // It speaks of nothing any more: nothing is to be put back by it again.
            self.entries.forget(slot);
            changes.notes.push(format!("{what} is put back, but stays in the ledger: {e}"));
        }
    }
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
