//! Memory of guests, moved between them by their balloons. [`vmio_model::memory`] decides; here guests are looked at,
//! and moves are made: only where the class says `memory_move = true`, which is also the consent that another's QEMU is
//! changed. Of the other guests with a `memory_min` it is told what would be moved.
//!
//! Before the first change of a guest its balloon's size, and how often its driver was asked for statistics, go into
//! the guard's ledger ([`crate::undo_log`]); each move is recorded before it is made. When the class no longer asks for
//! it, and on [`Memory::undo`], also from another process after a crash, the guest gets back what it had. What it was
//! given is taken only as far as it does not work in it; the rest is reported and stays in the ledger.

#[cfg(test)]
mod fake;
mod host;
mod moves;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vmio_model::facts::CachedReads;
use vmio_model::memory::{self, Balance, Contract, Guest, Move, Report, Stays};
use vmio_model::policy::Policy;
use vmio_model::policy::memory::{Memory as Asked, owed};
use vmio_node::balloon::Balloon;

use crate::groups::GuestInfo;
use crate::undo_log::{Entries, Entry, HOST, UndoLog, UndoLogError};

pub use host::{Here, Host, HostNow, Seen};

/// Why one whose monitor answers is not moved.
const NO_BALLOON: &str = "it has no balloon that answers";

/// Undo log entry of a guest's balloon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Before {
    balloon: Balloon,
    /// What it left the guest before the first move, or less that somebody else has set since.
    bytes: u64,
    /// How often its driver was asked for statistics before; 0 for never.
    polling_seconds: u64,
    /// The last move.
    to_bytes: u64,
}

impl Entry for Before {
    const PART: &'static str = "memory";
    /// Process, and when it began.
    type Subject = (u32, u64);

    fn subject(&self) -> (u32, u64) {
        (self.balloon.pid, self.balloon.start_ticks)
    }

    fn namespace(&self) -> u64 {
        HOST
    }
}

/// Memory of a guest that the policy names, as of the last check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestStatus {
    /// Its name.
    pub guest: String,
    /// What its class says; `None` where that has left the policy, or classes differ.
    pub asked: Option<Asked>,
    /// What its balloon leaves it.
    pub actual_bytes: Option<u64>,
    /// What it had before the first move; `None` where it was not moved.
    pub before_bytes: Option<u64>,
    /// Percent of its reads since the check before that the host's page cache answered.
    pub hits_percent: Option<u64>,
    /// The move that was made, or is due where the policy has none made.
    pub due: Option<Move>,
    /// Whether the policy has it moved, and not only told of.
    pub is_moved: bool,
    /// What it has free, as its balloon's driver reported within a minute.
    pub free_bytes: Option<u64>,
    /// What it could use without swapping, by the same report.
    pub available_bytes: Option<u64>,
    /// What the host's page cache holds of its disks; `None` where its monitor was not asked.
    pub host_cached_bytes: Option<u64>,
    /// Why it cannot be moved.
    pub why_not: Option<String>,
    /// Why it was not moved at the last check, where it can be.
    pub stays: Option<Stays>,
}

/// State of the guests' memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Each guest that the policy names.
    pub guests: Vec<GuestStatus>,
    /// Moves that were made since the start.
    pub moves: u64,
    /// What deserves a word.
    pub notes: Vec<String>,
}

/// Counters of a guest at the last check that its monitor answered.
#[derive(Debug, Clone, Copy)]
struct Counted {
    at: Duration,
    reads: Option<CachedReads>,
    major_faults: Option<u64>,
    swapped_in_bytes: Option<u64>,
}

/// A guest that is looked at.
#[derive(Debug)]
struct Wanted {
    name: String,
    asked: Option<Asked>,
    why_not: Option<String>,
}

/// The guests' memory.
#[derive(Debug)]
pub struct Memory<H: Host = Here> {
    host: H,
    /// Whether anything may be changed.
    changes: bool,
    entries: Entries<Before>,
    /// Of guests that are moved; by process, since a name changes when another guest of that name comes.
    balance: Balance,
    /// Of guests that are only told of.
    watched: Balance,
    counted: BTreeMap<u32, Counted>,
    swapped_pages: Option<u64>,
    status: Status,
}

/// That of this machine, for the thread that looks and the manager that undoes.
pub type SharedMemory = Arc<Mutex<Memory>>;

/// Locks it.
pub fn lock(memory: &SharedMemory) -> MutexGuard<'_, Memory> {
    // After a panic the ledger has what was changed, and that is what counts.
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory<Here> {
    /// That of this machine's guests, with what the ledger has of them; nothing is changed unless it `changes`.
    ///
    /// # Errors
    /// When the ledger's entries make no sense.
    pub fn open(log: &UndoLog, changes: bool) -> Result<Self, UndoLogError> {
        Self::over(Here, log, changes)
    }
}

impl<H: Host> Memory<H> {
    /// That of another machine.
    ///
    /// # Errors
    /// When the ledger's entries make no sense.
    pub fn over(host: H, log: &UndoLog, changes: bool) -> Result<Self, UndoLogError> {
        let entries: Entries<Before> = Entries::read(log, HOST)?;
        let held: Vec<Before> = entries.subjects().into_iter().filter_map(|subject| entries.last(subject)).collect();
        let balance = Balance::resumed(held.iter().map(|before| (key(before.balloon.pid), before.bytes)));
        Ok(Self {
            host,
            changes,
            entries,
            balance,
            watched: Balance::default(),
            counted: BTreeMap::new(),
            swapped_pages: None,
            status: Status::default(),
        })
    }

    /// Whether the ledger has anything of guests.
    pub fn holds(&self) -> bool {
        !self.entries.is_empty()
    }

    /// State as of the last check.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Looks at the guests, and moves their memory as far as the policy says so; `now` is since any fixed moment.
    pub fn check(&mut self, policy: &Policy, guests: &[GuestInfo], now: Duration) {
        self.status = Status { moves: self.status.moves, ..Status::default() };
        self.drop_ended();
        let mut wanted = self.wanted(policy, guests);
        if wanted.is_empty() {
            return;
        }
        let (host, seen) = match self.look(wanted.keys().copied().collect()) {
            Ok(found) => found,
            Err(why) => return self.status.notes.push(left(&why)),
        };
        for (pid, one) in &mut wanted {
            let found = seen.get(pid);
            one.why_not = one.why_not.take().or_else(|| unmovable(found));
            if let Some(found) = found.filter(|_| one.why_not.is_none() && self.moves(one)) {
                one.why_not = self.adopt(&one.name, found).err();
            }
        }
        let contracts = wanted.iter().filter_map(|(pid, one)| Some((one.name.clone(), contract(one, seen.get(pid)?)?)));
        let refused = memory::check(&contracts.collect(), host.total_bytes);
        self.status.notes.extend(refused.iter().map(|why| left(&why.to_string())));
        let refusals = refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let due = if refused.is_empty() { self.moves_due(now, &host, &wanted, &seen) } else { Vec::new() };
        let of = |(pid, one): (u32, Wanted)| {
            let found = seen.get(&pid);
            let planned = due.iter().find(|planned| planned.guest == key(pid));
            let told = found.and_then(|found| found.told);
            let stays = self.balance.stays(&key(pid)).or_else(|| self.watched.stays(&key(pid)));
            GuestStatus {
                actual_bytes: found.and_then(|found| found.actual_bytes),
                before_bytes: self.entry(pid).map(|before| before.bytes),
                hits_percent: found.and_then(|found| self.reads(found)?.hits_percent()),
                due: planned.map(|planned| Move { guest: one.name.clone(), ..planned.clone() }),
                is_moved: self.moves(&one),
                free_bytes: told.map(|told| told.free_bytes),
                available_bytes: told.and_then(|told| told.available_bytes),
                host_cached_bytes: found.filter(|found| found.reads.is_some()).map(|found| found.host_cached_bytes),
                stays: stays.filter(|_| refusals.is_empty() && one.why_not.is_none()),
                asked: one.asked,
                why_not: one.why_not.or_else(|| Some(refusals.clone()).filter(|why| !why.is_empty())),
                guest: one.name,
            }
        };
        let all: Vec<GuestStatus> = wanted.into_iter().map(of).collect();
        self.status.guests = all;
        let before = std::mem::take(&mut self.counted);
        let counted = |found: Seen| (found.pid, counts(&found, before.get(&found.pid), now));
        self.counted = seen.into_values().map(counted).collect();
    }

    /// The guests of which the policy says something, and those that the ledger has something of, by process.
    fn wanted(&self, policy: &Policy, guests: &[GuestInfo]) -> BTreeMap<u32, Wanted> {
        let mut wanted = BTreeMap::new();
        for before in self.held() {
            let name = before.balloon.guest;
            wanted.insert(before.balloon.pid, Wanted { name, asked: None, why_not: None });
        }
        // Most policies have none, and the entries of all interfaces take time to find.
        if policy.classes.values().all(|class| class.memory.is_none()) {
            return wanted;
        }
        for guest in guests {
            let Some(pid) = guest.pids.first().copied() else { continue };
            let (asked, why_not) = match owed(policy, &guest.interfaces) {
                Ok(asked) => (asked, None),
                Err(why) => (None, Some(why)),
            };
            if asked.is_some() || why_not.is_some() || wanted.contains_key(&pid) {
                wanted.insert(pid, Wanted { name: guest.name.clone(), asked, why_not });
            }
        }
        wanted
    }

    /// The host and all guests on it by process; these are asked.
    fn look(&mut self, wanted: BTreeSet<u32>) -> Result<(memory::Host, BTreeMap<u32, Seen>), String> {
        let (now, seen) = self.host.look(&wanted)?;
        let before = self.swapped_pages.replace(now.swapped_pages);
        let host = memory::Host {
            total_bytes: now.total_bytes,
            available_bytes: now.available_bytes,
            swaps: before.is_some_and(|before| now.swapped_pages > before),
        };
        Ok((host, seen.into_iter().map(|found| (found.pid, found)).collect()))
    }

    /// Whether a guest is moved, and not only told of.
    fn moves(&self, one: &Wanted) -> bool {
        self.changes && one.asked.is_some_and(|asked| asked.moves)
    }

    /// The moves that were made, and those that are due of guests that are only told of.
    fn moves_due(
        &mut self,
        now: Duration,
        host: &memory::Host,
        wanted: &BTreeMap<u32, Wanted>,
        seen: &BTreeMap<u32, Seen>,
    ) -> Vec<Move> {
        let of = |moved: bool| {
            let guest = |found: &Seen| {
                // One that was not adopted cannot be undone.
                let is_of = |one: &&Wanted| self.moves(one) == moved && (!moved || self.entry(found.pid).is_some());
                let own = wanted.get(&found.pid).filter(is_of).and_then(|one| contract(one, found));
                // One whose size is not known now would seem to have been set by somebody else.
                let known = found.actual_bytes.map_or_else(|| format!("{} unasked", found.pid), |_| key(found.pid));
                (known, self.guest(found, own))
            };
            seen.values().map(guest).collect::<BTreeMap<String, Guest>>()
        };
        let (moved, told) = (of(true), of(false));
        let mut due = self.watched.due(now, host, &told);
        if self.changes {
            self.hold_all();
            let made = self.balance.check(now, host, &moved);
            made.iter().for_each(|planned| self.make(planned));
            self.keep_bases();
            self.release(wanted, seen);
            due.extend(made);
        }
        due
    }

    /// A guest as the decision has it.
    fn guest(&self, found: &Seen, contract: Option<Contract>) -> Guest {
        let last = self.counted.get(&found.pid);
        let since = |now: Option<u64>, before: Option<u64>| now.zip(before).map_or(0, |(n, b)| n.saturating_sub(b));
        let report = found.told.map(|told| Report {
            free_bytes: told.free_bytes,
            available_bytes: told.available_bytes.unwrap_or(told.free_bytes),
            major_faults: since(told.major_faults, last.and_then(|last| last.major_faults)),
            swapped_in_bytes: since(told.swapped_in_bytes, last.and_then(|last| last.swapped_in_bytes)),
        });
        Guest {
            contract,
            actual_bytes: found.actual_bytes.unwrap_or(found.whole_bytes),
            whole_bytes: found.whole_bytes,
            resident_bytes: found.resident_bytes,
            report,
            reads: self.reads(found),
            host_cached_bytes: found.host_cached_bytes,
        }
    }

    /// Its reads since the check before.
    fn reads(&self, found: &Seen) -> Option<CachedReads> {
        let (now, before) = (found.reads?, self.counted.get(&found.pid)?.reads?);
        Some(CachedReads {
            asked_bytes: now.asked_bytes.saturating_sub(before.asked_bytes),
            storage_bytes: now.storage_bytes.saturating_sub(before.storage_bytes),
        })
    }
}

/// A guest in the balances.
fn key(pid: u32) -> String {
    pid.to_string()
}

/// Why a guest cannot be moved, whatever its class says.
fn unmovable(found: Option<&Seen>) -> Option<String> {
    match found {
        None => Some("what it was started with, or what of that is in the host's memory, is not known".to_owned()),
        Some(Seen { why_not: Some(why), .. }) => Some(why.clone()),
        Some(found) if found.actual_bytes.is_none() => Some(NO_BALLOON.to_owned()),
        Some(_) => None,
    }
}

/// What a guest's class says, where it has a balloon.
fn contract(one: &Wanted, found: &Seen) -> Option<Contract> {
    found.actual_bytes?;
    let Asked { min_bytes, max_bytes, .. } = one.asked?;
    Some(Contract { min_bytes, max_bytes: max_bytes.unwrap_or(found.whole_bytes).max(min_bytes) })
}

/// What is counted of a guest, to be compared at the next check: what was counted `before`, where its monitor did not
/// answer once.
fn counts(found: &Seen, before: Option<&Counted>, now: Duration) -> Counted {
    let is_kept = |before: &&Counted| found.why_not.is_some() && now.saturating_sub(before.at) < memory::PATIENCE;
    if let Some(before) = before.filter(is_kept) {
        return *before;
    }
    let told = found.told;
    Counted {
        at: now,
        reads: found.reads,
        major_faults: told.and_then(|told| told.major_faults),
        swapped_in_bytes: told.and_then(|told| told.swapped_in_bytes),
    }
}

fn left(why: &str) -> String {
    format!("memory of guests is left as it is: {why}")
}
