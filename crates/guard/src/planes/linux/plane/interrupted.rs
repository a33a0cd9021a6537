//! Pools that were in force and are not any more, or not wholly: another program has put its queue in place of ours or
//! changed ours, or the uplink is gone. The other pools stay in force meanwhile.

use std::time::{Duration, Instant};

use vmio_model::policy::{Direction, OnConflict};

use super::super::{Error, htb, links};
use super::Linux;
use crate::desired::{DesiredPool, PoolKey};
use crate::planes::{Count, Interruptions, Observation, PlaneError, StageBacklog};

/// A pool that was put in force once.
#[derive(Debug, Default)]
pub(super) struct Interrupted {
    interruptions: Interruptions,
    /// When it was seen in force last, before the interruption that goes on.
    since: Option<Instant>,
    /// As it was put in force last; `None` where that failed half-way.
    wanted: Option<DesiredPool>,
    /// Numbers of its members, whose counters stand still meanwhile.
    members: Vec<u16>,
}

impl Interrupted {
    fn of(pool: &DesiredPool) -> Interrupted {
        Interrupted { wanted: Some(pool.clone()), ..Interrupted::default() }
    }

    /// Until now.
    fn so_far(&self) -> Interruptions {
        let lasts = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        Interruptions { time: self.interruptions.time + lasts, ..self.interruptions.clone() }
    }
}

impl Linux {
    /// Puts a pool in force. What is in the way of one that was in force is noted instead of returned; with
    /// [`OnConflict::Restore`] another's queue is removed.
    pub(super) fn put_in_force(&mut self, pool: &DesiredPool, on_conflict: OnConflict) -> Result<usize, PlaneError> {
        self.followed = 0;
        // What stands where queues of ours never stood does not interrupt them.
        let first = self.has_no_queues(&pool.key) && !pool.is_queueless();
        let mut done = self.pool(pool);
        let Some(known) = self.interrupted.get(&pool.key).filter(|_| !first || done.is_ok()) else {
            if done.is_ok() {
                self.interrupted.insert(pool.key.clone(), Interrupted::of(pool));
            } else if let Some(known) = self.interrupted.get_mut(&pool.key) {
                known.wanted = None;
            }
            return done;
        };
        // What differs from a pool that is wanted as before, others have changed.
        let as_before = known.wanted.as_ref() == Some(pool);
        if !as_before || known.interruptions.now.is_some() {
            self.forget(&pool.key);
        }
        let changed = match &done {
            Ok(changes) if as_before => changes.saturating_sub(self.followed),
            _ => 0,
        };
        let mut put_right = (changed > 0).then(|| {
            format!("another program had changed {changed} of the guard's queues, classes and filters: corrected")
        });
        if let Err(PlaneError::Linux(Error::Foreign { place, what, .. })) = &done {
            let was = format!("{what} of another program was in place of the queues at {place}: removed");
            if on_conflict == OnConflict::Restore && self.evict(&pool.key)? {
                put_right = Some(was);
                done = self.pool(pool);
            }
        }
        let now = match &done {
            Err(PlaneError::Linux(error)) => self.in_the_way(&pool.key, error)?,
            _ => None,
        };
        let seen = self.seen;
        let known = self.interrupted.entry(pool.key.clone()).or_default();
        if done.is_err() && now.is_none() {
            known.wanted = None;
        } else if !as_before {
            known.wanted = Some(pool.clone());
        }
        let of = &mut known.interruptions;
        if of.now.is_none() && (put_right.is_some() || now.is_some()) {
            of.total += 1;
            of.put_right = put_right;
            known.since = known.since.or(Some(seen));
        }
        known.members = pool.seats.iter().map(|seat| seat.number).collect();
        match (done, now) {
            (Err(_), Some(why)) => {
                of.now = Some(why);
                Ok(0)
            }
            (done, _) => {
                if done.is_ok() {
                    of.now = None;
                    of.time += known.since.take().map_or(Duration::ZERO, |since| since.elapsed());
                }
                done
            }
        }
    }

    /// Whether another's qdisc may be taken over for a pool: not where the pool's own queues stood already, since `undo`
    /// puts back what was there before them.
    pub(super) fn may_take_over(&self, pool: &PoolKey) -> bool {
        let stood = self.pools.get(pool).is_some_and(|installed| !installed.queueless);
        self.takeover && !(stood && self.interrupted.contains_key(pool))
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
            interruptions: known.so_far(),
            ..Observation::default()
        })
    }

    /// How often a pool was interrupted.
    pub(super) fn interruptions(&self, pool: &PoolKey) -> Interruptions {
        self.interrupted.get(pool).map(Interrupted::so_far).unwrap_or_default()
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
                    Some(now) => format!(
                        "{name} is called {now} now: its limits are no longer kept in force; name {now} in the policy, or \
                         rename it: `ip link set {now} name {name}`"
                    ),
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
            if matches!(htb::read_leaves(&mut self.netlink, &device)?, htb::Root::Foreign(_)) {
                htb::evict(&mut self.netlink, &device)?;
                any = true;
            }
        }
        Ok(any)
    }
}
