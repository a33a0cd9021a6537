//! Reads a pool: counters of its members, where their excess waits, and arriving traffic.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vmio_model::policy::Direction;
use vmio_model::policy::program::{FlowLeaf, Hierarchy};

use super::super::classifier::Tenant;
use super::super::counters::{self, ClassCounts, Counts};
use super::super::{Device, links};
use super::flows::framed;
use super::read_cache::Counted;
use super::{InstalledPool, Linux, Numbers, flows, stage};
use crate::desired::{DesiredMember, DesiredPool, PoolKey};
use crate::planes::{Claimed, Count, FlowCount, MemberQueue, Observation, PlaneError};

impl Linux {
    /// Counters of a pool's members, read again if packets passed since.
    pub(super) fn counted(&mut self, pool: &PoolKey) -> Result<Observation, PlaneError> {
        if let Some(interrupted) = self.interrupted_now(pool) {
            return Ok(interrupted);
        }
        let interruptions = self.interruptions(pool);
        let still = self.is_still(pool);
        if !still {
            self.count(pool, false)?;
        }
        let installed = self.installed(pool)?;
        let counts = installed.counted.as_ref().map(|counted| Arc::clone(&counted.counts)).unwrap_or_default();
        let backlog = installed.stage.as_ref().map(|stage| stage.backlog);
        let still = !self.taps.has_news(pool) && still;
        Ok(Observation { still, counts, backlog, interruptions, ..Observation::default() })
    }

    /// Before a pool's queues are changed: classes that are made anew count from 0.
    pub(super) fn count_before(&mut self, pool: &DesiredPool, hierarchy: &Hierarchy, numbers: &Numbers) {
        let changes = |installed: &InstalledPool| {
            let same = installed.hierarchy == *hierarchy && installed.numbers == *numbers;
            !same || installed.queueless != pool.is_queueless()
        };
        if self.pools.get(&pool.key).is_some_and(changes) {
            // Whatever is wrong with what was there, it is replaced.
            let _ = self.count(&pool.key, true);
        }
    }

    /// Reads the counters of those members that may have changed, or of all as a `whole`.
    pub(super) fn count(&mut self, pool: &PoolKey, whole: bool) -> Result<(), PlaneError> {
        let rest = self.begins_to_rest(pool);
        let began = self.clear_traffic_mark(pool)?;
        let none = || PlaneError::NoPool(pool.clone());
        let (mut moved, some) = self.pools.get(pool).ok_or_else(none)?.moved(pool.direction, self.classifier.as_ref());
        let some = some.filter(|_| !whole && rest.is_none());
        let before = self.pools.get(pool).and_then(|installed| installed.counted.as_ref());
        let unclaimed = some.is_some() && before.is_some_and(|before| before.claims() == began.claims);
        let (arrived, policed) = (self.came_in(pool), self.policed(pool, false));
        let claimed = if unclaimed { BTreeMap::new() } else { self.claimed(pool) };
        let all = self.read_classes(pool, some.as_ref()).inspect_err(|_| self.forget(pool))?;
        if some.is_none() {
            moved.all_read(began.at());
        }
        let installed = self.pools.get_mut(pool).ok_or_else(none)?;
        let framing = installed.compiled.framing;
        let ceiled = all.leaves.values().any(|counts| counts.ceiled_bytes > 0);
        let last = installed.counted.take();
        let before = last.as_ref().map(|last| Arc::clone(&last.counts)).unwrap_or_default();
        if before.is_empty() {
            // It was changed, and a reused number starts at zero.
            let there: BTreeSet<u16> = installed.order.iter().copied().collect();
            installed.tallies.retain(|number, _| there.contains(number));
        }
        if std::mem::replace(&mut installed.by_programs, installed.queueless) != installed.queueless {
            for (number, tally) in &mut installed.tallies {
                tally.go_on(all.leaves.get(number).copied().unwrap_or_default());
            }
        }
        let tallies = &mut installed.tallies;
        let count = |(at, number): (usize, &u16)| {
            let known = before.get(at).copied().unwrap_or_default();
            let arrived_bytes = arrived.get(number).copied();
            let claimed = if unclaimed { known.claimed } else { claimed.get(number).copied().unwrap_or_default() };
            if some.as_ref().is_some_and(|some| !some.contains(number)) {
                return Count { arrived_bytes, claimed, ..known };
            }
            let (counts, tally) =
                (all.leaves.get(number).copied().unwrap_or_default(), tallies.entry(*number).or_default());
            let dropped_packets = tally.count(&counts) + policed.get(number).copied().unwrap_or(0);
            Count {
                // The class counts frames without their framing.
                passed_bytes: tally.passed(framing),
                dropped_packets,
                waiting_bytes: u64::from(counts.waiting_bytes.saturating_sub(counts.ceiled_bytes)),
                arrived_bytes,
                claimed,
            }
        };
        let counts: Arc<[Count]> = installed.order.iter().enumerate().map(count).collect();
        if pool.direction == Direction::GuestTx && installed.loses_held(&before, &counts) {
            self.taps.doubt();
        }
        let mut counted = Counted::now(counts, ceiled, moved, began, rest).after(last.as_ref());
        counted.flows = all.flows;
        installed.counted = Some(counted);
        Ok(())
    }

    /// After a read that failed: the mark is cleared, so that what was counted last would be taken for valid. And of a
    /// pool that is wanted otherwise, whose members may be others, or was not in force, which is news.
    pub(super) fn forget(&mut self, pool: &PoolKey) {
        if let Some(installed) = self.pools.get_mut(pool) {
            installed.counted = None;
        }
    }

    /// The counters of the members' classes, of all or of some; those of the programs where there are no classes.
    fn read_classes(&mut self, pool: &PoolKey, some: Option<&BTreeSet<u16>>) -> Result<ClassCounts, PlaneError> {
        if self.has_no_queues(pool) {
            return Ok(self.left(pool));
        }
        let flows = self.flows == Some(true);
        let installed = self.pools.get_mut(pool).ok_or_else(|| PlaneError::NoPool(pool.clone()))?;
        let nested = installed.has_flow_classes();
        let mut all = match some {
            Some(some) => {
                let leaves = counters::read_some(&mut self.netlink, &installed.at, installed.numbers.apart(), some)?;
                ClassCounts { leaves, ..ClassCounts::default() }
            }
            None => flows::counted(&mut self.netlink, &installed.at, &installed.numbers, nested)?,
        };
        if installed.stage.is_some() {
            // Its three classes have no flow classes.
            let at_uplink = flows::counted(&mut self.netlink, &installed.uplink, &stage::numbers(flows)?, false)?;
            installed.count_backlog(&mut all.leaves, &at_uplink.leaves);
        }
        Ok(all)
    }

    /// Bytes that came in at the members' interfaces, by number; only where each member has a limit of its own.
    pub(super) fn came_in(&self, key: &PoolKey) -> BTreeMap<u16, u64> {
        let (Some(installed), Some(classifier)) =
            (self.pools.get(key).filter(|installed| installed.capped), &self.classifier)
        else {
            return BTreeMap::new();
        };
        let count =
            |(device, tenant): (&Device, &Tenant)| Some((tenant.number(), classifier.counts(device)?.wire_bytes));
        installed.tenants.iter().filter_map(count).collect()
    }

    /// What the members claimed to be and are not, by number.
    pub(super) fn claimed(&self, key: &PoolKey) -> BTreeMap<u16, Claimed> {
        let (Some(installed), Some(classifier)) = (self.pools.get(key), &self.classifier) else {
            return BTreeMap::new();
        };
        let claimed = |(device, tenant): (&Device, &Tenant)| Some((tenant.number(), classifier.claimed(device)?));
        installed.tenants.iter().filter_map(claimed).collect()
    }

    /// Bytes that arrived at the uplink of a pool of received traffic.
    pub(super) fn arrived(&mut self, pool: &PoolKey) -> Result<Option<u64>, PlaneError> {
        if pool.direction != Direction::GuestRx {
            return Ok(None);
        }
        let installed = self.installed(pool)?;
        let (index, framing) = (installed.uplink.index, installed.compiled.framing);
        let counted = links::received(&mut self.netlink, index)?;
        Ok(counted.map(|(packets, bytes)| framed(framing, packets, bytes)))
    }

    /// Counters of the members' flow classes, by the index of the interface, as they were read with those of the members.
    pub(super) fn flow_counts(&self, pool: &PoolKey) -> Result<BTreeMap<u32, Vec<FlowCount>>, PlaneError> {
        let none = || PlaneError::NoPool(pool.clone());
        let installed = self.pools.get(pool).ok_or_else(none)?;
        let leaves = &installed.compiled.leaves;
        if !installed.has_flow_classes() {
            return Ok(BTreeMap::new());
        }
        let none = BTreeMap::new();
        let counts = installed.counted.as_ref().map_or(&none, |counted| &counted.flows);
        // Where all that a member sends is limited, what is too much waits there.
        let before = &installed.local.flows;
        let framing = installed.compiled.framing;
        let dropped = |counts: &Counts| u64::from(counts.flows_dropped.unwrap_or(counts.dropped_packets));
        let mut all = BTreeMap::new();
        for (seat, leaf) in installed.seats.iter().zip(leaves).filter(|(_, leaf)| !leaf.flows.is_empty()) {
            let Some(interface) = &seat.interface else { continue };
            let classifier = self.classifier.as_ref();
            let policed = classifier.map(|c| c.flows_dropped_above(pool.direction, seat.number)).unwrap_or_default();
            let flow = |(at, flow): (usize, &FlowLeaf)| {
                let of =
                    |all: &BTreeMap<(u16, usize), Counts>| all.get(&(seat.number, at)).copied().unwrap_or_default();
                let (counts, before) = (of(counts), of(before));
                FlowCount {
                    name: flow.name.clone(),
                    passed_bytes: framed(framing, counts.packets, counts.bytes),
                    dropped_packets: dropped(&counts) + dropped(&before) + policed.get(at).copied().unwrap_or(0),
                    waiting_bytes: u64::from(counts.waiting_bytes) + u64::from(before.waiting_bytes),
                }
            };
            all.insert(interface.index, leaf.flows.iter().enumerate().map(flow).collect());
        }
        Ok(all)
    }

    /// Where the excess of each interface waits, by its index.
    pub(super) fn queues(&self, pool: &PoolKey) -> BTreeMap<u32, MemberQueue> {
        let seats = self.pools.get(pool).into_iter().flat_map(|installed| &installed.seats);
        let queue = |seat: &DesiredMember| {
            let (index, holding) = (seat.interface.as_ref()?.index, seat.holding.as_ref()?);
            let held = holding.send_buffer_bytes.map(|_| self.taps.state(index));
            // What the interface sends is what the guest receives.
            let other = self.others.at(index).filter(|_| pool.direction == Direction::GuestRx).cloned();
            Some((index, MemberQueue { held, crowds: self.crowded(pool, seat), other }))
        };
        seats.filter_map(queue).collect()
    }
}

impl InstalledPool {
    /// Whether packets of a guest were dropped that keeps its excess itself where its tap's send buffer is in force.
    fn loses_held(&self, before: &[Count], now: &[Count]) -> bool {
        let loses = |((seat, before), now): ((&DesiredMember, &Count), &Count)| {
            now.dropped_packets > before.dropped_packets
                // What a bucket drops does not wait.
                && seat.policers.is_none()
                && seat.holding.as_ref().is_some_and(|holding| holding.send_buffer_bytes.is_some())
        };
        self.seats.iter().zip(before).zip(now).any(loses)
    }
}
