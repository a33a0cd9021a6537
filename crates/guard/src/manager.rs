//! Operations on a running guard: a policy from files and from `guard set` is put in force as a whole or not at all,
//! with a time for its confirmation; lists of interfaces; status. Calls wait for each other, but never hold up the
//! control loop, which has a thread of its own ([`crate::daemon`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use vmio_model::control::Allocator;
use vmio_model::policy::assign::{Interface, assign};
use vmio_model::policy::{Direction, Policy};

use crate::core::Core;
use crate::daemon::{Daemon, Gone};
use crate::demand::history::{History, MemberHistory};
use crate::demand::{Breach, Demand};
use crate::desired::PoolKey;
use crate::groups::{self, Groups, GuestInfo};
use crate::interface::DiscoveredInterface;
use crate::memory::{self, SharedMemory};
use crate::observed::Survey;
use crate::planes::{Plane, PlaneError, linux, observe};
use crate::source::Discovery;
use crate::undo_log::{Entries, Entry, HOST, UndoLog};

mod change;
pub mod document;
mod error;
mod key;
mod read;
mod set;
mod status;
mod told;
mod unconfirmed;

pub use error::{FilesError, ManagerError, Senseless};
pub use key::Key;
pub use read::Texts;
use read::{Read, read};
pub use set::Change;
use set::SetOver;
pub use status::StatusText;
use status::StillPools;
use told::Told;
pub use told::{PoolChange, PoolState};
pub use unconfirmed::Unconfirmed;
use unconfirmed::{Files, LastConfirmed, Waiting};

/// Number of kept times from an interface's appearance to its limit.
const APPEARED: usize = 1000;

/// A guard that runs.
#[derive(Debug)]
pub struct Manager {
    texts: TextsBox,
    /// What was set over the files.
    over: Entries<SetOver>,
    unconfirmed: Entries<LastConfirmed>,
    daemon: Option<Daemon>,
    read: Read,
    revision: u64,
    changes: u64,
    waiting: Option<Waiting>,
    /// The unconfirmed change before whose policy it started.
    began_before: Option<Unconfirmed>,
    found: Vec<DiscoveredInterface>,
    demand: Demand,
    told: Told,
    history: History,
    appeared: Vec<Duration>,
    appeared_time: Duration,
    appeared_in_all: u64,
    started: SystemTime,
    plane: &'static str,
    allocator: Allocator,
    groups: Option<Groups>,
    groups_put_right: u64,
    /// Of the last look: control group limits that could not be put back, and classes whose limits hold for nobody.
    group_notes: Vec<String>,
    /// What moves memory of guests, and its state as of the last check.
    mover: Option<SharedMemory>,
    memory: memory::Status,
    trouble: Option<String>,
    refused: Option<String>,
    /// Whether the reason is a link's speed, not the files.
    refused_for_link: bool,
    /// Of the plane that only observes.
    survey: Option<Survey>,
    /// The pools as they were shown last, while they stay so.
    still_pools: Option<StillPools>,
}

struct TextsBox(Box<dyn Texts>);

impl std::fmt::Debug for TextsBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Texts")
    }
}

/// What a guard is started with.
pub struct Start {
    /// Where policies come from.
    pub texts: Box<dyn Texts>,
    /// The guard's ledger.
    pub log: UndoLog,
    /// Opens the plane, in the thread of the loop.
    pub plane: Box<dyn FnOnce() -> Result<Box<dyn Plane>, PlaneError> + Send>,
    /// Its name.
    pub plane_name: &'static str,
    /// Who sets the limits.
    pub allocator: Allocator,
    /// Limits of guests' processors and memory; `None` for none.
    pub groups: Option<Groups>,
    /// Discovers interfaces.
    pub look: LookFirst,
}

/// Discovers interfaces once, given the uplinks of the policy.
pub type LookFirst = Box<dyn FnOnce(&BTreeSet<String>) -> Result<Vec<DiscoveredInterface>, linux::Error>>;

impl Manager {
    /// Its parts of the ledger, which `guard undo` without a daemon clears.
    pub const PARTS: [&str; 2] = [SetOver::PART, LastConfirmed::PART];

    /// Puts the policy of the files in force for the host's interfaces; or the last confirmed policy, where an earlier
    /// guard of this boot put these files in force and nobody confirmed them.
    ///
    /// # Errors
    /// When the policy is wrong, or cannot be held.
    pub fn start(start: Start) -> Result<Manager, ManagerError> {
        let Start { texts, log, plane, plane_name, allocator, groups, look } = start;
        let set: Entries<SetOver> = Entries::read(&log, HOST)?;
        let over = set.last(()).map(|SetOver(over)| over).unwrap_or_default();
        let unconfirmed: Entries<LastConfirmed> = Entries::read(&log, HOST)?;
        let files = texts.files()?;
        let before = unconfirmed.before(&files);
        let of = |(confirmed, _): &(Files, String)| {
            if *confirmed == files { Unconfirmed::Set } else { Unconfirmed::Files }
        };
        let began_before = before.as_ref().map(of);
        let (files, over) = before.unwrap_or((files, over));
        let read = read(files, texts.links(None), &over)?;
        let found = look(&read.loaded.policy.uplinks.keys().cloned().collect())?;
        let (policy, interfaces) = (read.loaded.policy.clone(), found.clone());
        let period = policy.guard.period;
        let open = move || Core::start_by(allocator, plane()?, policy, interfaces);
        let daemon = Daemon::start(period, open)?;
        Ok(Manager {
            texts: TextsBox(texts),
            over: set,
            unconfirmed,
            daemon: Some(daemon),
            read,
            revision: 1,
            changes: 0,
            waiting: None,
            began_before,
            found,
            demand: Demand::default(),
            told: Told::default(),
            history: History::new(Instant::now()),
            appeared: Vec::new(),
            appeared_time: Duration::ZERO,
            appeared_in_all: 0,
            started: SystemTime::now(),
            plane: plane_name,
            allocator,
            groups,
            groups_put_right: 0,
            group_notes: Vec::new(),
            mover: None,
            memory: memory::Status::default(),
            trouble: None,
            refused: None,
            refused_for_link: false,
            survey: (plane_name == observe::NAME).then(Survey::default),
            still_pools: None,
        })
    }

    fn daemon(&self) -> Result<&Daemon, ManagerError> {
        self.daemon.as_ref().ok_or(ManagerError::Gone(Gone))
    }

    /// The uplinks of the policy in force.
    pub fn uplinks(&self) -> BTreeSet<String> {
        self.read.loaded.policy.uplinks.keys().cloned().collect()
    }

    /// Replaces the list of interfaces.
    ///
    /// # Errors
    /// When the plane cannot hold it, or fails.
    pub fn set_interfaces(&mut self, discovery: Discovery) -> Result<(), ManagerError> {
        // As nearly always, and there may be thousands.
        if discovery.interfaces == self.found && self.trouble.is_none() {
            return Ok(());
        }
        let before = self.limited();
        // The guard is being stopped.
        let Some(daemon) = &self.daemon else { return Ok(()) };
        let done = daemon.set_interfaces(discovery.interfaces.clone())?;
        self.trouble = done.as_ref().err().map(ToString::to_string);
        done?;
        self.found = discovery.interfaces;
        self.changed();
        self.limit_groups();
        if let Some(reported_at) = discovery.reported_at.filter(|_| !self.limited().is_subset(&before)) {
            self.appeared_in_all += 1;
            let time = reported_at.elapsed();
            self.appeared_time += time;
            self.appeared.push(time);
            if self.appeared.len() > APPEARED {
                self.appeared.remove(0);
            }
        }
        Ok(())
    }

    /// Sets the guests' limits of processors and memory.
    fn limit_groups(&mut self) {
        let Some(groups) = &mut self.groups else { return };
        let guests = groups::guests(&self.found);
        let done = groups.reconcile(&self.read.loaded.policy, &guests);
        self.groups_put_right += done.put_right as u64;
        self.group_notes = done.notes;
        self.group_notes.append(&mut groups::idle(&self.read.loaded.policy, &guests));
    }

    /// The policy and the guests, where it says anything of their memory, or that is `held` by an earlier one.
    pub fn asks_for_memory(&mut self, held: bool) -> Option<(Policy, Vec<GuestInfo>)> {
        let policy = &self.read.loaded.policy;
        if !held && policy.classes.values().all(|class| class.memory.is_none()) {
            self.memory.guests.clear();
            self.memory.notes.clear();
            return None;
        }
        Some((policy.clone(), groups::guests(&self.found)))
    }

    /// Has this give guests back what they had, when all limits are taken off.
    pub fn share_memory(&mut self, memory: SharedMemory) {
        self.mover = Some(memory);
    }

    /// Takes note of the guests' memory.
    pub fn set_memory(&mut self, memory: memory::Status) {
        self.memory = memory;
    }

    /// Interfaces that are in a class, by index.
    fn limited(&self) -> BTreeSet<u32> {
        let policy = &self.read.loaded.policy;
        let all = self.found.iter().map(|found| &found.interface);
        all.filter(|interface| assign(policy, interface).is_some()).map(|interface| interface.index).collect()
    }

    /// Records that interfaces could not be discovered.
    pub fn discovery_failed(&mut self, why: &linux::Error) {
        self.trouble = Some(why.to_string());
    }

    /// Reads the counters, once a second; rates are of the time since the last call. Returns the pools that are
    /// not in force any more or are again, and the breaches of guarantees that begin and end.
    ///
    /// # Errors
    /// When the loop has ended.
    pub fn count(&mut self) -> Result<(Vec<PoolChange>, Vec<Breach>), ManagerError> {
        let counted = self.daemon()?.count()?;
        // Changes from outside are put right also where no interface changed.
        if self.groups.as_ref().is_some_and(|groups| groups.held() > 0 || !groups.status().is_empty()) {
            self.limit_groups();
        }
        let now = Instant::now();
        if counted.is_some() || !self.demand.is_rested() {
            self.still_pools = None;
        }
        let Some(pools) = counted else {
            self.history.rest(now);
            let breaches = self.demand.rest(now);
            return Ok((told::delays(self.demand.take_delays()).collect(), breaches));
        };
        if let Some(survey) = &mut self.survey {
            let looked = survey.look(&self.found, &pools, &self.read.loaded.policy);
            self.trouble = looked.err().map(|e| e.to_string()).or(self.trouble.take());
        }
        let breaches = self.demand.count(&pools, now);
        self.history.count(&pools, &self.demand, now);
        let delays = told::delays(self.demand.take_delays());
        Ok((self.told.news(&pools, now).into_iter().chain(delays).collect(), breaches))
    }

    /// Reads the counters at the begin and the end of what is observed; does nothing in a guard that enforces.
    pub fn observe(&mut self) {
        if self.survey.is_some() {
            // A failure is in the status.
            let _ = self.count();
        }
    }

    /// The last ten minutes of a member; `None` where none are kept of it.
    pub fn history(&self, pool: &PoolKey, member: &str) -> Option<MemberHistory> {
        self.history.of(pool, member)
    }

    /// The policy or the interfaces are others.
    fn changed(&mut self) {
        self.changes += 1;
        self.still_pools = None;
    }

    /// Number of changes of the policy or the interfaces since the start: while it is the same, [`Manager::classes`] are.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Number of policy changes since the start.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Class by interface: of what it sends, or else of what it receives.
    pub fn classes(&self) -> BTreeMap<String, String> {
        let policy = &self.read.loaded.policy;
        let class = |interface: &Interface| {
            let entry = assign(policy, interface)?.entry;
            Direction::ALL.into_iter().find_map(|direction| entry.class_in(direction)).map(str::to_owned)
        };
        let all = self.found.iter().map(|found| &found.interface);
        all.filter_map(|interface| Some((interface.name.clone(), class(interface)?))).collect()
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.read.loaded.policy
    }

    /// Ends the loop. With `undo` all limits are taken off; else they stay, except those of an unconfirmed change.
    ///
    /// # Errors
    /// When the plane fails.
    pub fn stop(&mut self, undo: bool) -> Result<(), ManagerError> {
        // Nobody would take an unconfirmed change back later.
        let given_up = if undo { Ok(false) } else { self.give_up() };
        let Some(daemon) = self.daemon.take() else { return Ok(()) };
        self.waiting = None;
        if !undo {
            drop(daemon);
            return given_up.map(drop);
        }
        // A tap that cannot be put back does not keep the other limits in force.
        let off = daemon.undo();
        let mut left = self.groups.as_mut().map(|groups| groups.undo().notes).unwrap_or_default();
        left.extend(self.mover.iter().flat_map(|mover| memory::lock(mover).undo()));
        // Also after a failure the next start begins from the files.
        self.over.strike(())?;
        self.unconfirmed.strike(())?;
        match (off, left.is_empty()) {
            (off, true) => Ok(off?),
            (Ok(()), false) => Err(ManagerError::Left(left)),
            (Err(plane), false) => Err(ManagerError::BothLeft(Box::new(plane), left)),
        }
    }
}

#[cfg(test)]
mod tests;
