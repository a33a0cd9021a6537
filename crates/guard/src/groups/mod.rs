//! Limits on guests' control groups: processor weight, processor time and memory, as computed by
//! [`vmio_model::policy::groups`]. `dial` converts them to the kernel's files, `place` finds a guest's group.
//!
//! A limit is written only where the group is the guest's alone and has another value, and after the value before was
//! recorded in the guard's ledger ([`crate::undo_log`]); then it is read back. The value before is restored when the
//! policy or the guest no longer needs the limit, and by [`Groups::undo`], also from another process after a crash. A
//! value that somebody else has set since is left alone then, and reported; while the limit is in force it is put right
//! at the next look and counted, as with queues.
//!
//! **Nobody is killed**: a memory limit below what is in use, or below the guest's own memory, is not written, neither
//! the policy's nor the one before; it is reported and tried again at each look.

mod dial;
mod hold;
mod host;
mod lacking;
mod place;
mod why_not;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use vmio_model::policy::Policy;
use vmio_model::policy::assign::Interface;
use vmio_model::policy::groups::{GroupKey, Limits, owed};
use vmio_node::linux::cgroup::Hierarchies;

use crate::undo_log::{Entries, EntryId, HOST, UndoLog, UndoLogError};

use dial::Dial;
use hold::{Limit, RestoreOutcome, Slot};
pub use host::{Group, Here, Host};
pub use lacking::{guests, idle, lacking};
use place::GuestCgroup;
pub use why_not::{InUse, WhyNot};

/// Looks after which a guest's groups are searched again: a hypervisor moves its threads after it has started, and
/// other processes may enter a group.
const LOOKS: u64 = 8;

/// A running guest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuestInfo {
    /// Its name, unique among the running guests.
    pub name: String,
    /// Its interfaces; a policy's entries match them.
    pub interfaces: Vec<Interface>,
    /// Its processes; the hypervisor, or the container's first process, comes first. Their children belong to the
    /// guest, and so do all processes in the first one's PID namespace if that is not the host's.
    pub pids: Vec<u32>,
    /// Its memory in bytes, where it is known: no limit below it is written.
    pub memory_bytes: Option<u64>,
}

/// Why control groups cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GroupsError {
    /// The ledger.
    #[error(transparent)]
    UndoLog(#[from] UndoLogError),
    /// The table of mounts.
    #[error("cannot see where control groups are mounted: {0}")]
    Mounts(vmio_node::Error),
}

/// Changes of one look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Limits that were set for the first time, or to another value of the policy.
    pub set: usize,
    /// Limits that somebody else had changed.
    pub put_right: usize,
    /// Limits that were put back to what was there before.
    pub put_back: usize,
    /// What was not put back and why, a sentence each; repeated at each look as long as it is tried again.
    pub notes: Vec<String>,
}

impl Changes {
    /// All changes together.
    pub fn count(&self) -> usize {
        self.set + self.put_right + self.put_back
    }
}

/// A limit of a guest.
#[derive(Debug, Clone)]
pub struct LimitStatus {
    /// Which.
    pub key: GroupKey,
    /// The policy's value; `None` where the guest's classes have different ones.
    pub wanted: Option<String>,
    /// Its state.
    pub state: State,
}

/// State of a limit.
#[derive(Debug, Clone)]
pub enum State {
    /// It is in force.
    InForce {
        /// The file.
        file: PathBuf,
        /// Its value.
        value: String,
        /// The value that will be restored.
        before: String,
    },
    /// It is not in force, and why.
    Not(Arc<WhyNot>),
}

/// Status of a guest with limits.
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
    /// Entries of limits that the kernel refused, which could not be struck out yet.
    unstruck: Vec<(Slot, EntryId)>,
    placed: BTreeMap<String, GuestCgroups>,
    looks: u64,
    status: Vec<GuestStatus>,
}

/// A guest's control group, or why it has none.
type CgroupResult = Result<GuestCgroup, Arc<WhyNot>>;

/// The control groups of a guest, as of the last search.
#[derive(Debug, Clone)]
struct GuestCgroups {
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
    guest: &'a GuestInfo,
    limits: Limits,
    key: GroupKey,
    value: u64,
}

impl Groups<Here> {
    /// Those of this machine, with the limits that the ledger has in force.
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
    /// Those of another machine.
    ///
    /// # Errors
    /// When the ledger's entries make no sense.
    pub fn over(host: H, hierarchies: Hierarchies, log: &UndoLog) -> Result<Self, GroupsError> {
        let entries = Entries::read(log, HOST)?;
        let (unstruck, placed, status) = Default::default();
        Ok(Self { host, hierarchies, entries, unstruck, placed, looks: 0, status })
    }

    /// Sets the policy's limits for these guests, and restores values that are no longer limited. Calling it twice
    /// changes nothing. [`Groups::status`] has what failed; no failure ends the guard.
    pub fn reconcile(&mut self, policy: &Policy, guests: &[GuestInfo]) -> Changes {
        self.looks += 1;
        let entries = &self.entries;
        self.unstruck.retain(|(slot, id)| entries.strike_where(*slot, |other, _| other == *id).is_err());
        let mut changes = Changes::default();
        let mut statuses: BTreeMap<&str, Vec<LimitStatus>> = BTreeMap::new();
        let mut wanted: Vec<(CgroupResult, Wanted<'_>)> = Vec::new();
        for guest in guests {
            let owed = owed(policy, &guest.interfaces);
            let limits = statuses.entry(&guest.name).or_default();
            for (key, why) in owed.disputed {
                limits.push(LimitStatus { key, wanted: None, state: State::Not(Arc::new(WhyNot::Disputed(why))) });
            }
            self.place(guest, owed.limits.keys().map(Dial::controller).collect());
            for key in GroupKey::ALL {
                let Some(value) = owed.limits.value(key) else { continue };
                wanted.push((self.cgroup(guest, key), Wanted { guest, limits: owed.limits, key, value }));
            }
        }
        self.placed.retain(|name, _| statuses.contains_key(name.as_str()));
        // Limits are removed first: one on a group can be in the way of another.
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

    /// Status as of the last look, by guest.
    pub fn status(&self) -> &[GuestStatus] {
        &self.status
    }

    /// Limits of the ledger that are not put back yet.
    pub fn held(&self) -> usize {
        self.entries.subjects().len()
    }

    /// Restores all values. What could not be restored stays in the ledger and is in the notes.
    pub fn undo(&mut self) -> Changes {
        let mut changes = Changes::default();
        for slot in self.entries.subjects() {
            self.put_back(slot, &mut changes);
        }
        self.status.clear();
        changes
    }

    /// Searches a guest's groups with these controllers, unless a recent search found all and nothing changed since.
    fn place(&mut self, guest: &GuestInfo, controllers: BTreeSet<&'static str>) {
        if controllers.is_empty() {
            return;
        }
        let first = guest.pids.first().map(|pid| vmio_node::linux::process::file(*pid, "cgroup"));
        let cgroup_file = first.and_then(|file| self.host.reader().read_text(&file).ok()).unwrap_or_default();
        let current = self.placed.get(&guest.name).is_some_and(|placed| {
            let found = |controller| placed.cgroups.get(controller).is_some_and(Result::is_ok);
            !placed.gone
                && placed.pids == guest.pids
                && placed.cgroup_file == cgroup_file
                && self.looks - placed.look < LOOKS
                && controllers.iter().all(found)
        });
        if current {
            return;
        }
        let find = |controller| place::find(&self.host, &self.hierarchies, guest, controller).map_err(Arc::new);
        let cgroups = controllers.into_iter().map(|controller| (controller, find(controller))).collect();
        let placed = GuestCgroups { pids: guest.pids.clone(), cgroup_file, look: self.looks, gone: false, cgroups };
        self.placed.insert(guest.name.clone(), placed);
    }

    fn cgroup(&self, guest: &GuestInfo, key: GroupKey) -> CgroupResult {
        let placed = self.placed.get(&guest.name).and_then(|placed| placed.cgroups.get(Dial::controller(key)));
        placed.cloned().unwrap_or_else(|| Err(Arc::new(WhyNot::NotLookedFor)))
    }

    /// Sets a limit and reads it back. `opened` is the group that was opened last, often the same one.
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
        // The group (version 1) or the guest may have been renamed.
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
        let last_id = self.entries.all(slot).last().map(|(id, _)| *id);
        let unstruck = self.unstruck.iter().position(|(_, id)| Some(*id) == last_id);
        let recorded = match (again, unstruck) {
            // It is needed now.
            (true, Some(at)) => Some(self.unstruck.swap_remove(at).1),
            (true, None) => None,
            (false, _) => Some(self.entries.record(limit).map_err(WhyNot::Unwritten)?),
        };
        let refused = |source| WhyNot::Refused { key: dial.key, file: dial.file(), value: value.clone(), source };
        let unread = |source| WhyNot::Io { path: file.clone(), done: "read back", source };
        let found = dial.write(group, &value).map_err(refused).and_then(|()| dial.read(group).map_err(unread));
        let found = match (found, recorded) {
            (Err(why), Some(id)) if dial.read(group).is_ok_and(|still| still == now) => {
                // Nothing was changed, so there is nothing to undo.
                if self.entries.strike_where(slot, |other, _| other == id).is_err() {
                    self.unstruck.push((slot, id));
                }
                return Err(why);
            }
            (found, _) => found,
        };
        if let Some(id) = recorded {
            // An older entry that stays does no harm: the last one counts.
            let _ = self.entries.strike_where(slot, |other, _| other != id);
        }
        match found? {
            found if found != value => Err(WhyNot::Differs { file, value, found }),
            _ if recorded.is_none() => {
                changes.put_right += 1;
                Ok(State::InForce { file, value, before })
            }
            _ => {
                changes.set += 1;
                Ok(State::InForce { file, value, before })
            }
        }
    }

    /// Restores the value before a limit.
    fn put_back(&mut self, slot: Slot, changes: &mut Changes) {
        let entries = self.entries.all(slot);
        let Some((_, last)) = entries.last() else { return };
        let what = format!("{} of {}", slot.key().word(), last.guest);
        match last.put_back(&self.host, entries.iter().map(|(_, limit)| limit.value.as_str())) {
            RestoreOutcome::Left(why) => return changes.notes.push(format!("{what} is not put back: {why}")),
            RestoreOutcome::Others(now) => {
                changes.notes.push(format!("{what} stays at {now}, which another program has set since"));
            }
            RestoreOutcome::Restored => changes.put_back += 1,
            RestoreOutcome::Nothing => {}
        }
        if let Err(e) = self.entries.strike(slot) {
            // It must not be used again.
            self.entries.forget(slot);
            changes.notes.push(format!("{what} is put back, but stays in the ledger: {e}"));
        }
    }
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
