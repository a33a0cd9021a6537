//! The guard's core: a policy, the host's interfaces, a plane, and the control loop. It reads no clock and starts no
//! thread, so it is tested with the fake plane; [`crate::daemon`] runs it.
//!
//! A new policy or list of interfaces is put in force as a whole or not at all: it is compiled first, and refused
//! before anything is changed; when the plane fails on the way, the state before is restored. What an earlier guard
//! left in force stays until the first policy is in force, also where that fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use vmio_model::control::{Allocator, AppliedLimits, Control, PeriodSample};
use vmio_model::policy::compile::{Refusal, shared};
use vmio_model::policy::pool::MemberKind;
use vmio_model::policy::program::Program;
use vmio_model::policy::{Abilities, Policy};

use crate::desired::{Desired, DesiredPool, Identity, Numbers, PoolKey, Strictness, desired};
use crate::interface::DiscoveredInterface;
use crate::planes::{Count, Observation, Plane, PlaneError, Scope, Setting};

mod count;
mod delay;
mod status;

pub use delay::MemberDelay;
pub use status::{HeldStatus, MemberStatus, PoolStatus};

/// Why something is not in force.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// The plane cannot hold it: nothing was changed.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The plane failed; what was in force before is in force again.
    #[error("{0}\n  the previous limits are in force again")]
    PutBack(PlaneError),
    /// The plane failed at the first policy; what it had changed on the way was undone.
    #[error("{0}\n  nothing was changed")]
    Nothing(PlaneError),
    /// The plane failed, and what was in force before could not be put back.
    #[error("{failed}; restoring the previous limits also failed: {back}; `vmio guard undo` removes all limits")]
    Torn {
        /// What failed first.
        failed: Box<PlaneError>,
        /// Why it could not be put back.
        back: Box<PlaneError>,
    },
    /// The plane failed at the first policy, where an earlier guard's was in force.
    #[error(
        "{0}\n  limits of an earlier vmio guard that were not replaced yet stay in force: start again, or `vmio guard \
         undo` removes all limits"
    )]
    Inherited(PlaneError),
    /// The plane failed at what was in force.
    #[error("{0}")]
    Plane(#[from] PlaneError),
}

/// The control loop of a pool in force.
#[derive(Clone)]
struct Running {
    control: Control,
    /// Counters of the last period, by member.
    last: Arc<[Count]>,
    /// Whether `last` is valid.
    has_counts: bool,
    /// Periods in a row without traffic.
    idle: u32,
}

/// A full Ethernet frame: the resolution of a period's counters, since packets are segmented late; also the assumed
/// length of a dropped packet where its length is not known.
const PACKET_BYTES: u64 = 1514;

/// Periods without traffic after which one more changes no limit: the loop's memory of rates falls by a quarter a
/// period.
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
    /// What each interface in a pool may claim to be, by the name of the member.
    identities: Arc<BTreeMap<String, Identity>>,
    running: BTreeMap<PoolKey, Running>,
    /// Whether an earlier guard's limits are in force, and none of this one's.
    inherited: bool,
    /// Whether a change failed on the way, so that the plane may have something else in force than `desired`.
    torn: bool,
    /// Whether packets passed, or something was changed, since [`Core::count`].
    active: bool,
    /// Counters of `default` at the last [`Core::count`], by pool.
    defaults: BTreeMap<PoolKey, Count>,
}

impl<P: Plane> Core<P> {
    /// Puts a policy in force for these interfaces.
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
            identities: Arc::default(),
            running: BTreeMap::new(),
            inherited,
            torn: false,
            active: true,
            defaults: BTreeMap::new(),
        };
        core.change(policy, interfaces, Strictness::Policy)?;
        Ok(core)
    }

    /// Replaces the policy.
    ///
    /// # Errors
    /// As [`Core::start`]; the policy before stays in force.
    pub fn reload(&mut self, policy: Policy) -> Result<(), CoreError> {
        self.change(policy, self.interfaces.clone(), Strictness::Policy)
    }

    /// Replaces the list of interfaces. Those that no entry matches share `default`, and so do those that cannot be
    /// limited: these are noted, never refused.
    ///
    /// # Errors
    /// As [`Core::start`].
    pub fn set_interfaces(&mut self, interfaces: Vec<DiscoveredInterface>) -> Result<(), CoreError> {
        self.change(self.policy.clone(), interfaces, Strictness::Interfaces)
    }

    fn change(
        &mut self,
        policy: Policy,
        mut there: Vec<DiscoveredInterface>,
        strictness: Strictness,
    ) -> Result<(), CoreError> {
        there.sort_by(|one, other| one.interface.cmp(&other.interface));
        if strictness == Strictness::Interfaces && there == self.interfaces && !self.torn {
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
        if let Err(failed) = put(&mut self.plane, &next, &running, self.torn) {
            if self.inherited {
                return Err(CoreError::Inherited(failed));
            }
            self.torn = true;
            return Err(match self.reconcile() {
                Ok(_) if self.desired == Desired::default() => CoreError::Nothing(failed),
                Ok(_) => CoreError::PutBack(failed),
                Err(CoreError::Plane(back)) => CoreError::Torn { failed: Box::new(failed), back: Box::new(back) },
                Err(other) => other,
            });
        }
        (self.inherited, self.torn, self.active) = (false, false, true);
        (self.running, self.identities) = (running, Arc::new(next.identities()));
        (self.policy, self.interfaces, self.numbers, self.desired) = (policy, there, numbers, next);
        Ok(())
    }

    /// Restores the desired state after changes from outside, whose number it returns, or after a failed change of its
    /// own (0).
    ///
    /// # Errors
    /// When the plane fails.
    pub fn reconcile(&mut self) -> Result<usize, CoreError> {
        let torn = std::mem::replace(&mut self.torn, true);
        let changes = put(&mut self.plane, &self.desired, &self.running, torn)?;
        self.torn = false;
        if torn || changes > 0 {
            // Counters may start again at zero.
            self.running.values_mut().for_each(Running::begin_anew);
            self.active = true;
        }
        Ok(if torn { 0 } else { changes })
    }

    /// Whether something else than `desired` may be in force.
    pub fn disturbed(&mut self) -> bool {
        self.torn || !self.plane.observe(Scope::Disturbed).is_ok_and(|observed| observed.undisturbed)
    }

    /// Whether a pool needs the control loop.
    pub fn is_looped(&self) -> bool {
        self.desired.pools.iter().any(DesiredPool::is_looped)
    }

    /// Whether no packets passed for so long that another period changes no limit.
    pub fn is_settled(&self) -> bool {
        let looped = self.desired.pools.iter().filter(|pool| pool.is_looped());
        looped.filter_map(|pool| self.running.get(&pool.key)).all(|running| running.idle >= SETTLED)
    }

    /// The end of a period: reads the counters and corrects the limits of pools that need the loop.
    ///
    /// # Errors
    /// When the plane fails.
    pub fn tick(&mut self, period: Duration) -> Result<(), CoreError> {
        let picoseconds = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000);
        for pool in self.desired.pools.iter().filter(|p| p.is_looped()) {
            let Some(running) = self.running.get_mut(&pool.key) else { continue };
            let observed = self.plane.observe(Scope::Counts(&pool.key)).inspect_err(|_| self.active = true)?;
            if observed.still && running.idle >= SETTLED {
                continue;
            }
            self.active |= !observed.still;
            let waiting = observed.backlog.unwrap_or_default().waiting_bytes.saturating_mul(8);
            if let Some(samples) = running.sample(observed.counts)
                && running.control.tick_staged(&samples, waiting, picoseconds)
            {
                let set = self.plane.set(&pool.key, Setting::Limits(running.control.in_force()));
                set.inspect_err(|_| self.torn = true)?;
            }
        }
        Ok(())
    }

    /// The desired state.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// Notes of the policy, such as interfaces that two entries match, and of the plane.
    pub fn notes(&mut self) -> Vec<String> {
        let of_plane = self.plane.observe(Scope::Plane).map_or_else(|e| vec![e.to_string()], |observed| observed.notes);
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

/// Puts the desired state in force; returns the number of changes. The loop's limits are set again where the plane
/// changed something, since it makes pools with the limits that they were compiled with; and where they are `unsure`.
fn put(
    plane: &mut impl Plane,
    desired: &Desired,
    running: &BTreeMap<PoolKey, Running>,
    unsure: bool,
) -> Result<usize, PlaneError> {
    let changes = plane.reconcile(desired)?;
    if changes == 0 && !unsure {
        return Ok(0);
    }
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
            Program::Hierarchy(hierarchy) if pool.is_staged() => {
                Control::staged(shared, members, hierarchy, packet_bits, apart)
            }
            Program::Hierarchy(hierarchy) => Control::round(shared, members, hierarchy, packet_bits),
            Program::Limits(_) => Control::of_limits(shared, members, allocator, packet_bits).ranked_without(&apart),
        };
        Running { control, last: Arc::default(), has_counts: false, idle: 0 }
    }

    /// Ignores the next difference of counters, which may have started again at zero.
    fn begin_anew(&mut self) {
        (self.has_counts, self.idle) = (false, 0);
    }

    /// Traffic since the last call; `None` at the first one, and where counters started again at zero.
    fn sample(&mut self, counts: Arc<[Count]>) -> Option<Vec<PeriodSample>> {
        let before = std::mem::replace(&mut self.last, counts);
        let comparable = std::mem::replace(&mut self.has_counts, true) && before.len() == self.last.len();
        let moved = before.iter().zip(self.last.iter()).any(|(b, n)| b != n || n.waiting_bytes > 0);
        self.idle = if comparable && !moved { self.idle.saturating_add(1) } else { 0 };
        if !comparable {
            return None;
        }
        let sample = |(now, before): (&Count, &Count)| {
            let passed = now.passed_bytes.checked_sub(before.passed_bytes)?.saturating_mul(8);
            let dropped = now.dropped_packets.checked_sub(before.dropped_packets)?;
            let held_back = dropped > 0 || (before.waiting_bytes > 0 && now.waiting_bytes > 0);
            let offered = now.offered_since(before, PACKET_BYTES)?.saturating_mul(8);
            Some(PeriodSample { offered, passed, held_back })
        };
        self.last.iter().zip(before.iter()).map(sample).collect()
    }
}

#[cfg(test)]
mod tests;
