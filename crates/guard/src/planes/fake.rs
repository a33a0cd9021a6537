//! A plane in memory for tests: changes are in force at once, and a test sets its counters and failures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vmio_model::control::AppliedLimits;
use vmio_model::policy::Abilities;
use vmio_model::policy::program::{PoolProgram, Program};

use super::{Count, Entry, Observation, Plane, PlaneError, Scope, Setting};
use crate::desired::{Desired, PoolKey};

/// A pool in force, with the loop's limits.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FakePool {
    program: PoolProgram,
    /// Number and interface index of each member.
    members: Vec<(u16, Option<u32>)>,
    limits: Option<AppliedLimits>,
}

/// Its entry, with the abilities of the Linux plane.
pub const ENTRY: Entry = Entry {
    about: "nothing but memory, to try a policy and for tests",
    abilities: Abilities { plane: "fake", ..Abilities::HTB },
    changes: false,
    open: |_| Ok(Box::new(Fake::new(ENTRY.abilities))),
};

/// The plane.
#[derive(Debug, Clone)]
pub struct Fake {
    abilities: Abilities,
    pools: BTreeMap<PoolKey, FakePool>,
    counts: BTreeMap<PoolKey, Vec<Count>>,
    /// How many more changes succeed; `None` for all.
    good: Option<usize>,
    /// Whether all changes fail after the first that does.
    pub stays_broken: bool,
    /// Whether limits of an earlier guard are in force.
    pub earlier: bool,
    /// Number of changes so far.
    pub changes: usize,
    /// Whether counters are told to be as they were.
    pub still: Arc<AtomicBool>,
}

impl Fake {
    /// A plane with nothing in force.
    pub fn new(abilities: Abilities) -> Fake {
        let (pools, counts, still) = Default::default();
        Fake { abilities, pools, counts, good: None, stays_broken: false, earlier: false, changes: 0, still }
    }

    /// The change after this many fails, once or, with `stays_broken`, with all that follow.
    pub fn fail_after(&mut self, changes: usize) {
        self.good = Some(changes);
    }

    /// Removes a pool, as from outside.
    pub fn forget(&mut self, key: &PoolKey) {
        self.pools.remove(key);
    }

    /// Sets the counters of a pool.
    pub fn count(&mut self, key: &PoolKey, counts: Vec<Count>) {
        self.counts.insert(key.clone(), counts);
    }

    /// The program of a pool.
    pub fn program(&self, key: &PoolKey) -> Option<&Program> {
        Some(&self.pools.get(key)?.program.program)
    }

    /// The loop's limits of a pool.
    pub fn limits(&self, key: &PoolKey) -> Option<&AppliedLimits> {
        self.pools.get(key)?.limits.as_ref()
    }

    fn change(&mut self, what: &dyn std::fmt::Display) -> Result<(), PlaneError> {
        if self.good == Some(0) {
            self.good = Some(0).filter(|_| self.stays_broken);
            return Err(PlaneError::ToldToFail(what.to_string()));
        }
        self.good = self.good.map(|left| left - 1);
        self.changes += 1;
        Ok(())
    }
}

impl Plane for Fake {
    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn reconcile(&mut self, desired: &Desired) -> Result<usize, PlaneError> {
        let before = self.changes;
        let gone: Vec<PoolKey> =
            self.pools.keys().filter(|key| !desired.pools.iter().any(|p| p.key == **key)).cloned().collect();
        for key in gone {
            self.change(&key)?;
            self.pools.remove(&key);
        }
        for pool in &desired.pools {
            let members = pool.seats.iter().map(|s| (s.number, s.interface.as_ref().map(|i| i.index))).collect();
            let program = pool.compiled.program.clone();
            let same = self.pools.get(&pool.key).is_some_and(|t| t.program == program && t.members == members);
            if !same {
                self.change(&pool.key)?;
                self.pools.insert(pool.key.clone(), FakePool { program, members, limits: None });
            }
        }
        Ok(self.changes - before)
    }

    fn set(&mut self, pool: &PoolKey, setting: Setting<'_>) -> Result<(), PlaneError> {
        self.change(pool)?;
        match setting {
            Setting::Limits(limits) => {
                let in_force = self.pools.get_mut(pool).ok_or_else(|| PlaneError::NoPool(pool.clone()))?;
                in_force.limits = Some(limits.clone());
            }
            Setting::Emptied(member) => {
                let counts = self.counts.get_mut(pool).and_then(|counts| counts.get_mut(member));
                counts.ok_or_else(|| PlaneError::NoMember { pool: pool.clone(), member })?.waiting_bytes = 0;
            }
        }
        Ok(())
    }

    fn observe(&mut self, scope: Scope<'_>) -> Result<Observation, PlaneError> {
        let (Scope::Counts(pool) | Scope::Pool(pool)) = scope else {
            return Ok(Observation { inherits: self.earlier, ..Observation::default() });
        };
        let in_force = self.pools.get(pool).ok_or_else(|| PlaneError::NoPool(pool.clone()))?;
        let counts = self.counts.get(pool).cloned().unwrap_or_else(|| vec![Count::default(); in_force.members.len()]);
        let still = self.still.load(Ordering::Relaxed);
        Ok(Observation { still, counts: counts.into(), ..Observation::default() })
    }

    fn undo(&mut self) -> Result<(), PlaneError> {
        while let Some(key) = self.pools.keys().next().cloned() {
            self.change(&key)?;
            self.pools.remove(&key);
        }
        Ok(())
    }
}
