//! The guard's core: a policy, the interfaces that are there, a plane, and the loop round it. It reads no clock and
//! knows no thread, so that it is tested with the fake plane; [`crate::daemon`] runs it.
//!
//! A new policy, or interfaces that come and go, are put in force as a whole or not at all: what is to be in force is
//! found first, and refused before anything is touched; when the plane fails on the way, what was in force before is
//! put back. What an earlier guard has left in force stays until the first policy is, and also where that fails.

use std::collections::BTreeMap;
use std::time::Duration;

use vmio_model::control::{Allocator, AppliedLimits, Control, PeriodSample};
use vmio_model::policy::compile::{Refusal, shared};
use vmio_model::policy::pool::MemberKind;
use vmio_model::policy::program::Program;
use vmio_model::policy::{Abilities, Policy};

use crate::desired::{Desired, DesiredPool, Numbers, PoolKey, Strictness, desired};
use crate::interface::DiscoveredInterface;
use crate::planes::{Count, Observation, Plane, PlaneError, Scope, Setting};

mod count;
mod status;

pub use status::{HeldStatus, MemberStatus, PoolStatus};

/// Why something is not in force.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// The plane cannot hold it: nothing was changed.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The plane failed; what was in force before is in force again.
    #[error("{0}\n  what was in force before is in force again")]
    PutBack(PlaneError),
    /// The plane failed, and what was in force before could not be put back.
    #[error(
        "{failed}; putting back what was in force before failed, too: {back}; `vmio guard undo` takes all limits off"
    )]
    Torn {
        /// What failed first.
        failed: Box<PlaneError>,
        /// Why it could not be put back.
        back: Box<PlaneError>,
    },
    /// The plane failed at the first policy, where an earlier guard's was in force.
    #[error(
        "{0}\n  what an earlier vmio guard had put in force stays as far as it was not replaced yet: start again, or `vmio guard \
         undo` takes all limits off"
    )]
    Inherited(PlaneError),
    /// The plane failed at what was in force.
    #[error("{0}")]
    Plane(#[from] PlaneError),
}

/// A pool that is in force.
#[derive(Clone)]
struct Running {
    control: Control,
    /// Counters at the last look, by member.
    last: Vec<Count>,
    /// Whether there was one.
    looked: bool,
    /// Looks in a row that have seen nothing.
    idle: u32,
}

/// A full Ethernet frame: a period's measure of packets that are segmented late cannot tell less apart, and one that was
/// dropped counts as this where nobody knows how long it was.
const PACKET_BYTES: u64 = 1514;

/// Looks that see nothing after which one more changes no limit: what the loop remembers of others' rates falls by a quarter
/// a period.
const SETTLED: u32 = 128;

/// The core.
pub struct Core<P> {
    plane: P,
    /// Who sets the limits.
    allocator: Allocator,
    policy: Policy,
    interfaces: Vec<DiscoveredInterface>,
    numbers: Numbers,
    desired: Desired,
    running: BTreeMap<PoolKey, Running>,
    /// Whether an earlier owner's limits are in force, and none of this one's.
    inherited: bool,
    /// Whether anything passed, or was changed, since [`Core::count`].
    stirred: bool,
    /// What `default` had counted at the last [`Core::count`], by pool.
    defaults: BTreeMap<PoolKey, Count>,
}

impl<P: Plane> Core<P> {
    /// One that has put this policy in force for these interfaces.
    ///
    /// # Errors
    /// When the plane cannot hold it, or fails; also when it cannot hold an interface that the policy names.
    pub fn start(plane: P, policy: Policy, interfaces: Vec<DiscoveredInterface>) -> Result<Core<P>, CoreError> {
        Core::start_by(Allocator::Exact, plane, policy, interfaces)
    }

    /// As [`Core::start`], with limits by this allocator.
    ///
    /// # Errors
    /// As [`Core::start`].
    pub fn start_by(
        allocator: Allocator,
        mut plane: P,
        policy: Policy,
        interfaces: Vec<DiscoveredInterface>,
    ) -> Result<Core<P>, CoreError> {
        let Observation { inherits: inherited, numbers, .. } = plane.observe(Scope::Earlier)?;
        let mut core = Core {
            plane,
            allocator,
            policy: policy.clone(),
            interfaces: Vec::new(),
            numbers,
            desired: Desired::default(),
            running: BTreeMap::new(),
            inherited,
            stirred: true,
            defaults: BTreeMap::new(),
        };
        core.change(policy, interfaces, Strictness::Policy)?;
        Ok(core)
    }

    /// Another policy.
    ///
    /// # Errors
    /// As [`Core::start`]; the policy before stays in force.
    pub fn reload(&mut self, policy: Policy) -> Result<(), CoreError> {
        self.change(policy, self.interfaces.clone(), Strictness::Policy)
    }

    /// The interfaces that are there now. Those that nothing matches are `default`'s, and so are those that cannot be
    /// held: they are noted, never refused.
    ///
    /// # Errors
    /// As [`Core::start`].
    pub fn see(&mut self, interfaces: Vec<DiscoveredInterface>) -> Result<(), CoreError> {
        self.change(self.policy.clone(), interfaces, Strictness::Interfaces)
    }

    fn change(
        &mut self,
        policy: Policy,
        mut there: Vec<DiscoveredInterface>,
        strictness: Strictness,
    ) -> Result<(), CoreError> {
        there.sort_by(|one, other| one.interface.cmp(&other.interface));
        if strictness == Strictness::Interfaces && there == self.interfaces {
            return Ok(());
        }
        let numbers = self.numbers.of(there.iter().map(|found| &found.interface))?;
        let abilities = self.allocator.asks_of(self.plane.abilities());
        let next = desired(&policy, &there, &numbers, &abilities, strictness)?;
        let mut running = BTreeMap::new();
        for pool in &next.pools {
            let same = self.desired.pools.iter().any(|p| p == pool);
            let kept = self.running.get(&pool.key).filter(|_| same).cloned();
            running.insert(pool.key.clone(), kept.unwrap_or_else(|| Running::new(pool, &abilities, self.allocator)));
        }
        if let Err(failed) = put(&mut self.plane, &next, &running) {
            if self.inherited {
                return Err(CoreError::Inherited(failed));
            }
            return Err(match put(&mut self.plane, &self.desired, &self.running) {
                Ok(_) => {
                    self.running.values_mut().for_each(Running::begin_anew);
                    CoreError::PutBack(failed)
                }
                Err(back) => CoreError::Torn { failed: Box::new(failed), back: Box::new(back) },
            });
        }
        (self.inherited, self.stirred) = (false, true);
        self.running = running;
        (self.policy, self.interfaces, self.numbers, self.desired) = (policy, there, numbers, next);
        Ok(())
    }

    /// Puts back what somebody else took off or changed; how many changes that took.
    ///
    /// # Errors
    /// When the plane fails.
    pub fn reconcile(&mut self) -> Result<usize, CoreError> {
        let changes = put(&mut self.plane, &self.desired, &self.running)?;
        if changes > 0 {
            // Counters may have begun anew.
            self.running.values_mut().for_each(Running::begin_anew);
            self.stirred = true;
        }
        Ok(changes)
    }

    /// Whether somebody else may have changed something since.
    pub fn disturbed(&mut self) -> bool {
        !self.plane.observe(Scope::Disturbed).is_ok_and(|seen| seen.undisturbed)
    }

    /// Whether something is left to the loop.
    pub fn is_looped(&self) -> bool {
        self.desired.pools.iter().any(DesiredPool::is_looped)
    }

    /// Whether nothing has passed for so long that another period changes no limit.
    pub fn is_settled(&self) -> bool {
        let looped = self.desired.pools.iter().filter(|pool| pool.is_looped());
        looped.filter_map(|pool| self.running.get(&pool.key)).all(|running| running.idle >= SETTLED)
    }

    /// The end of a period: looks at the counters and corrects the limits of pools of which something is left to the
    /// loop.
    ///
    /// # Errors
    /// When the plane fails.
    pub fn tick(&mut self, period: Duration) -> Result<(), CoreError> {
        let picoseconds = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000);
        for pool in self.desired.pools.iter().filter(|p| p.is_looped()) {
            let Some(running) = self.running.get_mut(&pool.key) else { continue };
            let seen = self.plane.observe(Scope::Counts(&pool.key)).inspect_err(|_| self.stirred = true)?;
            if seen.still && running.idle >= SETTLED {
                continue;
            }
            self.stirred |= !seen.still;
            let waiting = seen.backlog.unwrap_or_default().waiting_bytes.saturating_mul(8);
            if let Some(seen) = running.look(seen.counts) {
                let before = running.control.in_force().clone();
                running.control.tick_staged(&seen, waiting, picoseconds);
                if *running.control.in_force() != before {
                    self.plane.set(&pool.key, Setting::Limits(running.control.in_force()))?;
                }
            }
        }
        Ok(())
    }

    /// What is to be in force.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// What deserves a word: interfaces that two entries mean, and what the plane has to say.
    pub fn notes(&mut self) -> Vec<String> {
        let of_plane = self.plane.observe(Scope::Plane).map_or_else(|e| vec![e.to_string()], |seen| seen.notes);
        self.desired.all_notes().cloned().chain(of_plane).collect()
    }

    /// Limits that the loop has set in a pool.
    pub fn in_force(&self, key: &PoolKey) -> Option<&AppliedLimits> {
        Some(self.running.get(key)?.control.in_force())
    }

    /// The plane.
    pub fn plane(&mut self) -> &mut P {
        &mut self.plane
    }

    /// Ends the core and leaves all limits in force, as far as the plane outlives its process.
    pub fn leave(self) {
        drop(self);
    }

    /// Takes all limits off.
    ///
    /// # Errors
    /// When the plane fails.
    pub fn undo(mut self) -> Result<(), CoreError> {
        Ok(self.plane.undo()?)
    }
}

/// Has the plane hold what is desired, with what the loop has set; how many changes the first took.
fn put(plane: &mut impl Plane, desired: &Desired, running: &BTreeMap<PoolKey, Running>) -> Result<usize, PlaneError> {
    let changes = plane.reconcile(desired)?;
    if changes == 0 {
        return Ok(0);
    }
    // A plane that made something anew has it as it was compiled.
    for pool in desired.pools.iter().filter(|p| p.is_looped()) {
        if let Some(running) = running.get(&pool.key) {
            plane.set(&pool.key, Setting::Limits(running.control.in_force()))?;
        }
    }
    Ok(changes)
}

impl Running {
    fn new(pool: &DesiredPool, plane: &Abilities, allocator: Allocator) -> Running {
        let packet_bits = PACKET_BYTES * 8;
        let apart: Vec<bool> = pool.seats.iter().map(|seat| seat.who != MemberKind::Interface).collect();
        let (shared, members) = (shared(&pool.pool, plane), pool.pool.members());
        let control = match &pool.compiled.program.program {
            Program::Hierarchy(told) if pool.is_staged() => Control::staged(shared, members, told, packet_bits, apart),
            Program::Hierarchy(told) => Control::round(shared, members, told, packet_bits),
            Program::Limits(_) => Control::of_limits(shared, members, allocator, packet_bits).ranked_without(&apart),
        };
        Running { control, last: Vec::new(), looked: false, idle: 0 }
    }

    /// Counters may begin anew.
    fn begin_anew(&mut self) {
        (self.looked, self.idle) = (false, 0);
    }

    /// What a look shows of the time since the one before; `None` of the first, and where counters began anew.
    fn look(&mut self, counts: Vec<Count>) -> Option<Vec<PeriodSample>> {
        let before = std::mem::replace(&mut self.last, counts);
        let known = std::mem::replace(&mut self.looked, true) && before.len() == self.last.len();
        let moved = before.iter().zip(&self.last).any(|(b, n)| b != n || n.waiting_bytes > 0);
        self.idle = if known && !moved { self.idle.saturating_add(1) } else { 0 };
        if !known {
            return None;
        }
        let seen = |(now, before): (&Count, &Count)| {
            let passed = now.passed_bytes.checked_sub(before.passed_bytes)?.saturating_mul(8);
            let dropped = now.dropped_packets.checked_sub(before.dropped_packets)?;
            let held_back = dropped > 0 || (before.waiting_bytes > 0 && now.waiting_bytes > 0);
            let offered = now.offered_since(before, PACKET_BYTES)?.saturating_mul(8);
            Some(PeriodSample { offered, passed, held_back })
        };
        self.last.iter().zip(&before).map(seen).collect()
    }
}

#[cfg(test)]
mod tests;
