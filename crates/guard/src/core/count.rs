//! What is counted: of each member for whoever asks, and once a second, when what waits too long in `default` goes.

use vmio_model::holding::QueueingPoint;
use vmio_model::policy::pool::MemberKind;
use vmio_model::rate::BitRate;

use super::{Core, CoreError, HeldStatus, MemberStatus, PoolStatus};
use crate::desired::DesiredPool;
use crate::planes::{Count, Observation, Plane, Scope, Setting};

impl<P: Plane> Core<P> {
    /// As [`Core::status`]; `None` where nothing has passed, and nothing else is there, since it was called last. Called
    /// once a second: what has waited in `default` that long is thrown away.
    ///
    /// # Errors
    /// When the plane fails.
    pub fn count(&mut self) -> Result<Option<Vec<PoolStatus>>, CoreError> {
        let plane = &mut self.plane;
        // What a card lets pass stirs nothing here.
        let still = |pool: &DesiredPool| {
            pool.cards.is_empty() && plane.observe(Scope::Counts(&pool.key)).is_ok_and(|seen| seen.still)
        };
        if !self.stirred && self.desired.pools.iter().all(still) {
            self.defaults.clear();
            return Ok(None);
        }
        let all = self.status()?;
        self.stirred = false;
        self.freshen(&all)?;
        Ok(Some(all))
    }

    /// Throws away what has waited in `default` since the last look. What a guest sent before its class was in force is
    /// there, and is charged to its tap: where all that leaves is somebody's own, it would stay, and hold the guest.
    fn freshen(&mut self, all: &[PoolStatus]) -> Result<(), CoreError> {
        let before = std::mem::take(&mut self.defaults);
        for pool in &self.desired.pools {
            let Some(at) = pool.seats.iter().position(|seat| seat.who == MemberKind::Default) else { continue };
            let Some(status) = all.iter().find(|status| status.key == pool.key) else { continue };
            let mut now = status.members[at].count;
            let stays = |before: &Count| {
                // One that counts anew has let go of what waited.
                now.passed_bytes.checked_sub(before.passed_bytes).is_some_and(|passed| passed < before.waiting_bytes)
            };
            if before.get(&pool.key).is_some_and(stays) {
                self.plane.set(&pool.key, Setting::Emptied(at))?;
                (now.waiting_bytes, self.stirred) = (0, true);
            }
            self.defaults.insert(pool.key.clone(), now);
        }
        Ok(())
    }

    /// What is known of each pool.
    ///
    /// # Errors
    /// When the plane fails.
    pub fn status(&mut self) -> Result<Vec<PoolStatus>, CoreError> {
        let seen = self.look()?;
        Ok(self.statuses(seen))
    }

    /// All that the plane shows of each pool, in their order.
    fn look(&mut self) -> Result<Vec<Observation>, CoreError> {
        let mut all = Vec::new();
        for pool in &self.desired.pools {
            let seen = self.plane.observe(Scope::Pool(&pool.key)).inspect_err(|_| self.stirred = true)?;
            self.stirred |= !seen.still;
            all.push(seen);
        }
        Ok(all)
    }

    fn statuses(&self, seen: Vec<Observation>) -> Vec<PoolStatus> {
        let of = |(pool, seen): (&DesiredPool, Observation)| {
            let in_force = self.running.get(&pool.key)?.control.in_force();
            let seats = pool.seats.iter().zip(pool.pool.members()).zip(&in_force.caps).zip(&seen.counts);
            let seated = seats.map(|(((seat, member), cap), count)| MemberStatus {
                name: seat.name.clone(),
                class: seat.class.clone(),
                min_effective_bps: member.min,
                limit_bps: Some(*cap).filter(|cap| *cap != BitRate::MAX),
                count: *count,
                held: HeldStatus::of(seat, &seen),
            });
            let mut members: Vec<MemberStatus> = seated.collect();
            members.extend(pool.cards.iter().map(|card| MemberStatus::of_card(card, &seen)));
            members.extend(pool.unheld.iter().map(|unheld| MemberStatus {
                name: unheld.name.clone(),
                class: unheld.class.clone(),
                min_effective_bps: BitRate::ZERO,
                limit_bps: None,
                count: Count::default(),
                held: Some(HeldStatus {
                    waits: QueueingPoint::None,
                    send_buffer_bytes: None,
                    reason: unheld.reason.clone(),
                }),
            }));
            Some(PoolStatus {
                key: pool.key.clone(),
                root_bps: in_force.root,
                queue: pool.queue,
                stage: in_force.stage.map(|rate| (rate, seen.backlog.unwrap_or_default())),
                arrived_bytes: seen.arrived_bytes,
                capacity_bps: pool.pool.capacity,
                members,
            })
        };
        self.desired.pools.iter().zip(seen).filter_map(of).collect()
    }
}
