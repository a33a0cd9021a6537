//! A plane that is a machine made of a map: what is told to it is in force at once, counters are what a test says, and
//! it fails where a test wants it to.

use std::collections::BTreeMap;

use vmio_model::control::AppliedLimits;
use vmio_model::policy::Abilities;
use vmio_model::policy::program::{PoolProgram, Program};

use super::{Count, Entry, Observation, Plane, PlaneError, Scope, Setting};
use crate::desired::{Desired, PoolKey};

/// A pool that is in force, and what the loop has set in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FakePool {
    program: PoolProgram,
    /// By member: its number, and the interface that it is.
    members: Vec<(u16, Option<u32>)>,
    limits: Option<AppliedLimits>,
}

/// Its entry: it holds what Linux' queues hold.
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
    /// How many more changes go well; `None` for all.
    good: Option<usize>,
    /// Whether an earlier one has put something in force.
    pub earlier: bool,
    /// Changes that were made since it is there.
    pub changes: usize,
}

impl Fake {
    /// One on which nothing is in force.
    pub fn new(abilities: Abilities) -> Fake {
        Fake { abilities, pools: BTreeMap::new(), counts: BTreeMap::new(), good: None, earlier: false, changes: 0 }
    }

    /// The change after so many more fails, once.
    pub fn fail_after(&mut self, changes: usize) {
        self.good = Some(changes);
    }

    /// Somebody else takes a pool off.
    pub fn forget(&mut self, key: &PoolKey) {
        self.pools.remove(key);
    }

    /// What a look at the counters shows from now on.
    pub fn count(&mut self, key: &PoolKey, counts: Vec<Count>) {
        self.counts.insert(key.clone(), counts);
    }

    /// What a pool was told.
    pub fn program(&self, key: &PoolKey) -> Option<&Program> {
        Some(&self.pools.get(key)?.program.program)
    }

    /// What the loop has set in it.
    pub fn limits(&self, key: &PoolKey) -> Option<&AppliedLimits> {
        self.pools.get(key)?.limits.as_ref()
    }

    fn change(&mut self, what: &dyn std::fmt::Display) -> Result<(), PlaneError> {
        if self.good == Some(0) {
            self.good = None;
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
                let told = self.pools.get_mut(pool).ok_or_else(|| PlaneError::NoPool(pool.clone()))?;
                told.limits = Some(limits.clone());
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
        let told = self.pools.get(pool).ok_or_else(|| PlaneError::NoPool(pool.clone()))?;
        let counts = self.counts.get(pool).cloned().unwrap_or_else(|| vec![Count::default(); told.members.len()]);
        Ok(Observation { counts, ..Observation::default() })
    }

    fn undo(&mut self) -> Result<(), PlaneError> {
        while let Some(key) = self.pools.keys().next().cloned() {
            self.change(&key)?;
            self.pools.remove(&key);
        }
        Ok(())
    }
}
