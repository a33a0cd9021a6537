//! Pools that were in force and are not any more: another program has put its queue in place of ours, or the uplink is
//! gone. The other pools stay in force meanwhile.

use vmio_model::policy::{Direction, OnConflict};

use super::super::{Error, htb, links};
use super::Linux;
use crate::desired::{DesiredPool, PoolKey};
use crate::planes::{Count, Interruptions, Observation, PlaneError, StageBacklog};

/// A pool that was put in force once.
#[derive(Debug, Default)]
pub(super) struct Interrupted {
    interruptions: Interruptions,
    /// Numbers of its members, whose counters stand still meanwhile.
    members: Vec<u16>,
}

impl Linux {
    /// Puts a pool in force. What is in the way of one that was in force is noted instead of returned; with
    /// [`OnConflict::Restore`] another's queue is removed.
    pub(super) fn put_in_force(&mut self, pool: &DesiredPool, on_conflict: OnConflict) -> Result<usize, PlaneError> {
        let mut done = self.pool(pool);
        if !self.interrupted.contains_key(&pool.key) {
            if done.is_ok() {
                self.interrupted.insert(pool.key.clone(), Interrupted::default());
            }
            return done;
        }
        let mut removed = None;
        if let Err(PlaneError::Linux(Error::Foreign { place, what, .. })) = &done {
            let was = format!("{what} of another program was in place of the queues at {place}: removed");
            if on_conflict == OnConflict::Restore && self.evict(&pool.key)? {
                removed = Some(was);
                done = self.pool(pool);
            }
        }
        let now = match &done {
            Err(PlaneError::Linux(error)) => self.in_the_way(&pool.key, error)?,
            _ => None,
        };
        let known = self.interrupted.entry(pool.key.clone()).or_default();
        let Interruptions { total, now: before, put_right } = &mut known.interruptions;
        if before.is_none() && (removed.is_some() || now.is_some()) {
            *total += 1;
            *put_right = removed;
        }
        known.members = pool.seats.iter().map(|seat| seat.number).collect();
        match (done, now) {
            (Err(_), Some(why)) => {
                *before = Some(why);
                Ok(0)
            }
            (done, _) => {
                if done.is_ok() {
                    *before = None;
                }
                done
            }
        }
    }

    /// Whether another's qdisc may be taken over for a pool: not where the pool's own queues stood already, since `undo`
    /// puts back what was there before them.
    pub(super) fn may_take_over(&self, pool: &PoolKey) -> bool {
        self.takeover && !(self.pools.contains_key(pool) && self.interrupted.contains_key(pool))
    }

    /// Whether a pool is not in force now.
    pub(super) fn is_interrupted(&self, pool: &PoolKey) -> bool {
        self.interrupted.get(pool).is_some_and(|known| known.interruptions.now.is_some())
    }

    /// The state of a pool that is not in force now, with its counters as they were last; `None` of others.
    pub(super) fn interrupted_now(&self, pool: &PoolKey) -> Option<Observation> {
        let known = self.interrupted.get(pool).filter(|known| known.interruptions.now.is_some())?;
        let (installed, came_in, claimed) = (self.pools.get(pool), self.came_in(pool), self.claimed(pool));
        let count = |number: &u16| {
            let tallied = installed.and_then(|i| Some(i.tallies.get(number)?.so_far(i.compiled.framing)));
            Count {
                arrived_bytes: came_in.get(number).copied(),
                claimed: claimed.get(number).copied().unwrap_or_default(),
                ..tallied.unwrap_or_default()
            }
        };
        Some(Observation {
            counts: known.members.iter().map(count).collect(),
            backlog: installed.and_then(|i| Some(StageBacklog { waiting_bytes: 0, ..i.stage.as_ref()?.backlog })),
            interruptions: known.interruptions.clone(),
            ..Observation::default()
        })
    }

    /// How often a pool was not in force.
    pub(super) fn interruptions(&self, pool: &PoolKey) -> Interruptions {
        self.interrupted.get(pool).map(|known| known.interruptions.clone()).unwrap_or_default()
    }

    /// Whether a pool waits for what is in its way to go.
    pub(super) fn awaits(&self) -> bool {
        self.interrupted.values().any(|known| known.interruptions.now.is_some())
    }

    /// Why a pool is not in force, where the error is of something in its way.
    fn in_the_way(&mut self, pool: &PoolKey, error: &Error) -> Result<Option<String>, PlaneError> {
        Ok(match error {
            Error::Foreign { place, what, .. } => Some(format!(
                "{what} of another program is in place of the queues at {place}; remove it: tc qdisc del dev {place} \
                 root; or let the guard do that: guard.on_conflict = \"restore\""
            )),
            Error::NoInterface(name) => {
                let index = self.pools.get(pool).map(|installed| installed.uplink.index);
                let link = index.map(|index| links::by_index(&mut self.netlink, index)).transpose()?.flatten();
                Some(match link.map(|link| link.device.name).filter(|now| now != name) {
                    Some(now) => format!("{name} is called {now} now, and keeps the limits that it had"),
                    None => format!("{name} is gone; see: ip link"),
                })
            }
            _ => None,
        })
    }

    /// Removes others' qdiscs where a pool's queues were.
    fn evict(&mut self, pool: &PoolKey) -> Result<bool, PlaneError> {
        let Some(installed) = self.pools.get(pool) else { return Ok(false) };
        let mut places = vec![installed.at.clone()];
        places.extend(installed.local.caps.as_ref().map(|caps| caps.ifb.clone()));
        if pool.direction == Direction::GuestTx && installed.uplink != installed.at {
            places.push(installed.uplink.clone());
        }
        let mut any = false;
        for device in places {
            if matches!(htb::read(&mut self.netlink, &device)?, htb::Root::Foreign(_)) {
                htb::evict(&mut self.netlink, &device)?;
                any = true;
            }
        }
        Ok(any)
    }
}
