//! Counters and status of each pool, and the purge of packets that wait too long in `default`.

use std::collections::BTreeMap;
use std::sync::Arc;

use vmio_model::holding::QueueingPoint;
use vmio_model::policy::pool::MemberKind;
use vmio_model::rate::BitRate;

use super::{Core, CoreError, HeldStatus, MemberDelay, MemberStatus, PoolStatus};
use crate::desired::{DesiredMember, DesiredPool, Identity};
use crate::planes::{Count, Observation, Plane, Scope, Setting};

impl<P: Plane> Core<P> {
    /// As [`Core::status`]; `None` where nothing changed since the last call. Called once a second: what has waited in
    /// `default` that long is dropped.
    ///
    /// # Errors
    /// When the plane fails.
    pub fn count(&mut self) -> Result<Option<Vec<PoolStatus>>, CoreError> {
        if self.is_still() {
            self.defaults.clear();
            return Ok(None);
        }
        let all = self.status()?;
        self.active = false;
        self.purge_default(&all)?;
        Ok(Some(all))
    }

    /// Whether nothing passed and nothing was changed since the last [`Core::count`].
    pub fn is_still(&mut self) -> bool {
        let plane = &mut self.plane;
        // Traffic of a card's virtual functions passes no queue here.
        let still = |pool: &DesiredPool| {
            pool.cards.is_empty() && plane.observe(Scope::Counts(&pool.key)).is_ok_and(|observed| observed.still)
        };
        // Seen once, it is remembered: the plane tells it no second time.
        self.active = self.active || !self.desired.pools.iter().all(still);
        !self.active
    }

    /// Drops what has waited in `default` since the last call. Packets that a guest sent before its class was in force
    /// are there, charged to its tap: where minima take the whole link they would never leave, and block the guest.
    fn purge_default(&mut self, all: &[PoolStatus]) -> Result<(), CoreError> {
        let before = std::mem::take(&mut self.defaults);
        for pool in &self.desired.pools {
            let Some(at) = pool.seats.iter().position(|seat| seat.who == MemberKind::Default) else { continue };
            let Some(status) = all.iter().find(|status| status.key == pool.key) else { continue };
            let Some(mut now) = status.members.get(at).map(|member| member.count) else { continue };
            let stays = |before: &Count| {
                // Where counters started again the queue was made anew, without what waited.
                now.passed_bytes.checked_sub(before.passed_bytes).is_some_and(|passed| passed < before.waiting_bytes)
            };
            if before.get(&pool.key).is_some_and(stays) {
                self.plane.set(&pool.key, Setting::Emptied(at))?;
                (now.waiting_bytes, self.active) = (0, true);
            }
            self.defaults.insert(pool.key.clone(), now);
        }
        Ok(())
    }

    /// Status of each pool.
    ///
    /// # Errors
    /// When the plane fails.
    pub fn status(&mut self) -> Result<Vec<PoolStatus>, CoreError> {
        let observed = self.observe_pools()?;
        Ok(self.statuses(observed))
    }

    /// What each interface in a pool may claim to be, by the name of the member.
    pub fn identities(&self) -> Arc<BTreeMap<String, Identity>> {
        Arc::clone(&self.identities)
    }

    /// Reads each pool, in the order of the desired state.
    fn observe_pools(&mut self) -> Result<Vec<Observation>, CoreError> {
        let mut all = Vec::new();
        for pool in &self.desired.pools {
            let observed = self.plane.observe(Scope::Pool(&pool.key)).inspect_err(|_| self.active = true)?;
            self.active |= !observed.still;
            all.push(observed);
        }
        Ok(all)
    }

    fn statuses(&self, observed: Vec<Observation>) -> Vec<PoolStatus> {
        let of = |(pool, observed): (&DesiredPool, Observation)| {
            let in_force = self.running.get(&pool.key)?.control.in_force();
            let seats = pool.seats.iter().zip(pool.pool.members()).zip(&in_force.caps).zip(observed.counts.iter());
            let delays = observed.delays.iter().cloned().chain(std::iter::repeat(None));
            let seated = seats.zip(delays).map(|((((seat, member), cap), count), delay)| MemberStatus {
                name: seat.name.clone(),
                class: seat.class.clone(),
                min_effective_bps: member.min,
                limit_bps: limit(pool, seat, *cap),
                count: *count,
                held: HeldStatus::of(seat, &observed),
                local: seat.interface.as_ref().and_then(|i| observed.local.get(&i.index).copied()),
                flows: seat.interface.as_ref().and_then(|i| observed.flows.get(&i.index)).cloned().unwrap_or_default(),
                other_limit: seat.interface.as_ref().and_then(|i| observed.queues.get(&i.index)?.other.clone()),
                delay: MemberDelay { count: delay, target: self.policy.class(&seat.class).delay.unwrap_or_default() },
            });
            let mut members: Vec<MemberStatus> = seated.collect();
            members.extend(pool.cards.iter().map(|card| MemberStatus::of_card(card, &observed)));
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
                local: None,
                flows: Vec::new(),
                other_limit: None,
                delay: MemberDelay::default(),
            }));
            Some(PoolStatus {
                key: pool.key.clone(),
                root_bps: if pool.is_queueless() { pool.pool.capacity } else { in_force.root },
                queue: pool.queue,
                stage: in_force.stage.map(|rate| (rate, observed.backlog.unwrap_or_default())),
                arrived_bytes: observed.arrived_bytes,
                capacity_bps: pool.pool.capacity,
                interruptions: observed.interruptions,
                members,
            })
        };
        self.desired.pools.iter().zip(observed).filter_map(of).collect()
    }
}

/// The limit of a member now, with what its queue is limited to where it has one; `None` for none.
fn limit(pool: &DesiredPool, seat: &DesiredMember, cap: BitRate) -> Option<BitRate> {
    if pool.is_queueless() {
        return Some(seat.policers.as_ref()?.own?.rate_bps);
    }
    Some(cap).filter(|cap| *cap != BitRate::MAX)
}
