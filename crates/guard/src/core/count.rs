//! What is counted: of each member for whoever asks, and once a second, when what waits too long in `default` goes.

use vmio_model::allocate::Member;
use vmio_model::holding::Waits;
use vmio_model::policy::pool::Who;
use vmio_model::rate::BitRate;

use super::{Core, CoreError, HeldStatus, MemberStatus, PoolStatus};
use crate::desired::{DesiredPool, Seated};
use crate::planes::{Count, Plane};

impl<P: Plane> Core<P> {
    /// As [`Core::status`]; `None` where nothing has passed, and nothing else is there, since it was called last. Called
    /// once a second: what has waited in `default` that long is thrown away.
    ///
    /// # Errors
    /// When the plane fails.
    pub fn count(&mut self) -> Result<Option<Vec<PoolStatus>>, CoreError> {
        let plane = &mut self.plane;
        // What a card lets pass stirs nothing here.
        let mut still = |pool: &DesiredPool| pool.cards.is_empty() && plane.still(&pool.key);
        if !self.stirred && self.desired.pools.iter().all(&mut still) {
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
            let Some(at) = pool.seats.iter().position(|seat| seat.who == Who::Default) else { continue };
            let Some(status) = all.iter().find(|status| status.key == pool.key) else { continue };
            let mut now = status.members[at].count;
            let stays = |before: &Count| {
                // One that counts anew has let go of what waited.
                now.passed_bytes.checked_sub(before.passed_bytes).is_some_and(|passed| passed < before.waiting_bytes)
            };
            if before.get(&pool.key).is_some_and(stays) {
                self.plane.purge(&pool.key, at)?;
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
        let mut all = Vec::new();
        for pool in &self.desired.pools {
            self.stirred |= !self.plane.still(&pool.key);
            let counts = self.plane.counts(&pool.key)?;
            let Some(in_force) = self.running.get(&pool.key).map(|r| r.control.in_force()) else { continue };
            let seats = pool.seats.iter().zip(pool.pool.members()).zip(&in_force.caps).zip(counts);
            let plane = &mut self.plane;
            let member = |(((seat, member), cap), count): (((&Seated, Member), &BitRate), Count)| MemberStatus {
                name: seat.name.clone(),
                class: seat.class.clone(),
                min_effective_bps: member.min,
                limit_bps: Some(*cap).filter(|cap| *cap != BitRate::MAX),
                count,
                held: HeldStatus::of(seat, &pool.key, plane),
            };
            let mut members: Vec<MemberStatus> = seats.map(member).collect();
            members.extend(pool.cards.iter().map(|card| MemberStatus::of_card(card, &pool.key, plane)));
            members.extend(pool.unheld.iter().map(|unheld| MemberStatus {
                name: unheld.name.clone(),
                class: unheld.class.clone(),
                min_effective_bps: BitRate::ZERO,
                limit_bps: None,
                count: Count::default(),
                held: Some(HeldStatus { waits: Waits::None, send_buffer_bytes: None, reason: unheld.reason.clone() }),
            }));
            let arrived_bytes = plane.arrived(&pool.key)?;
            let behind = plane.behind(&pool.key).unwrap_or_default();
            let capacity_bps = pool.pool.capacity;
            let (root_bps, stage) = (in_force.root, in_force.stage.map(|rate| (rate, behind)));
            let (key, queue) = (pool.key.clone(), pool.queue);
            all.push(PoolStatus { key, root_bps, queue, stage, arrived_bytes, capacity_bps, members });
        }
        Ok(all)
    }
}
