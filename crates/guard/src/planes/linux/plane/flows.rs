//! Which members get fq_codel, in which a flood loses its own packets and TCP keeps its share: senders whose excess
//! waits on this host. Those whose excess waits in the guest do not need it; received traffic has no socket on this
//! host that could wait, and gets a bfifo.

use std::collections::BTreeMap;

use vmio_model::holding::QueueingPoint;
use vmio_model::policy::{Direction, Framing};

use super::super::counters::{ClassCounts, Counts};
use super::super::htb::{self, Numbers, Step};
use super::super::{Device, Error, counters};
use super::{InstalledPool, Linux, Netlink};
use crate::desired::{DEFAULT_NUMBER, DesiredMember, HOST_NUMBER, PoolKey};
use crate::planes::{Count, PlaneError};

/// Note on kernels without fq_codel.
const NO_FLOWS: &str = "a flooding guest can starve its own TCP; others are unaffected (this kernel has no fq_codel, \
                        CONFIG_NET_SCH_FQ_CODEL)";

impl Linux {
    /// Whether the kernel has fq_codel; asks it once.
    pub(super) fn flows(&mut self) -> Result<bool, Error> {
        if self.flows.is_none() {
            self.flows = Some(htb::has_flows(&mut self.netlink)?);
        }
        Ok(self.flows == Some(true))
    }

    /// The note, where fq_codel is missing and needed.
    pub(super) fn no_flows(&self) -> Option<String> {
        let sends =
            self.pools.iter().filter(|(key, installed)| key.direction == Direction::GuestTx && !installed.queueless);
        let mut seats = sends.flat_map(|(_, installed)| &installed.seats);
        let matters = self.flows == Some(false) && seats.any(|seat| waits(seat) == Some(QueueingPoint::Queued));
        matters.then(|| NO_FLOWS.to_owned())
    }

    /// Why one flow may take another's room in a member's queue on this host; `None` where it cannot.
    pub(super) fn crowded(&self, pool: &PoolKey, seat: &DesiredMember) -> Option<&'static str> {
        if self.has_no_queues(pool) {
            return None;
        }
        match (pool.direction, waits(seat)?) {
            (Direction::GuestRx, QueueingPoint::Queued) => Some("incoming floods can starve this guest's own TCP"),
            (Direction::GuestTx, QueueingPoint::Queued) if seat.is_bounded => Some(
                "its own flood can starve its TCP: its class has a target of delay, for which a bfifo is kept short",
            ),
            (Direction::GuestTx, QueueingPoint::Queued) if self.flows == Some(false) => {
                Some("its own flood can starve its TCP: this kernel has no fq_codel")
            }
            (Direction::GuestTx, QueueingPoint::Held) => {
                Some("its own flood can starve its TCP until its tap is limited")
            }
            _ => None,
        }
    }

    /// Drops what waits in a member's queue, and adds it to the drops, which HTB does not count.
    pub(super) fn throw_away(&mut self, pool: &PoolKey, member: usize) -> Result<(), PlaneError> {
        if self.has_no_queues(pool) {
            return Ok(());
        }
        let none = || PlaneError::NoMember { pool: pool.clone(), member };
        let installed = self.pools.get_mut(pool).ok_or_else(none)?;
        let (number, leaf) =
            installed.order.get(member).zip(installed.hierarchy.leaves.get(member)).ok_or_else(none)?;
        let nested = installed.has_flow_classes();
        let counts = counted(&mut self.netlink, &installed.at, &installed.numbers, nested)?;
        let counts = counts.leaves.get(number).copied().unwrap_or_default();
        htb::purge(&mut self.netlink, &installed.at, *number, installed.numbers.queue(*number, leaf.queue_bytes))?;
        let tally = installed.tallies.entry(*number).or_default();
        tally.count(&counts);
        tally.throw_away(counts.waiting_packets);
        installed.counted = None;
        Ok(())
    }
}

fn waits(seat: &DesiredMember) -> Option<QueueingPoint> {
    seat.holding.as_ref().map(|holding| holding.waits)
}

/// Numbers of a pool's members; with `flows`, those whose excess waits on this host get fq_codel, and so do `host` and
/// `default`; but not those with a target of delay, since fq_codel's limit is one of memory.
pub(super) fn numbers(seats: &[DesiredMember], flows: bool) -> Result<Numbers, Error> {
    let numbers = Numbers::given(seats.iter().map(|s| (s.name.clone(), s.number)).collect())?;
    let queued = |seat: &&DesiredMember| {
        flows && !seat.is_bounded && waits(seat).is_none_or(|waits| waits == QueueingPoint::Queued)
    };
    Ok(numbers.with_flows_apart(seats.iter().filter(queued).map(|seat| seat.number)))
}

impl InstalledPool {
    /// Whether any of its members has flow classes.
    pub(super) fn has_flow_classes(&self) -> bool {
        self.compiled.leaves.iter().any(|leaf| !leaf.flows.is_empty())
    }
}

/// Counters of a hierarchy's classes; `nested`: of flow classes, too.
pub(super) fn counted(
    netlink: &mut Netlink,
    at: &Device,
    numbers: &Numbers,
    nested: bool,
) -> Result<ClassCounts, Error> {
    counters::read_with_flows(netlink, at, numbers.apart(), nested)
}

/// Of the uplink's three classes behind a stage, those with fq_codel: nothing should wait in that of the guests.
pub(super) fn apart_behind(flows: bool) -> impl Iterator<Item = u16> {
    [HOST_NUMBER, DEFAULT_NUMBER].into_iter().filter(move |_| flows)
}

/// Of an uplink behind a stage: whose class is there, and not on the IFB.
pub(super) fn behind(number: u16) -> bool {
    number == HOST_NUMBER || number == DEFAULT_NUMBER
}

/// After steps at an interface where the classes of `there` are: those that were made anew count from 0, and what
/// waited in them, and in queues that were removed, is dropped.
pub(super) fn begin_anew(tallies: &mut BTreeMap<u16, Tally>, steps: &[Step], there: impl Fn(u16) -> bool) {
    for step in steps {
        let (Step::AddClass { minor, .. } | Step::RemoveQueue { minor, .. }) = step else { continue };
        let Some(tally) = tallies.get_mut(minor).filter(|_| there(*minor)) else { continue };
        tally.throw_away(tally.last.waiting_packets);
        if matches!(step, Step::AddClass { .. }) {
            tally.last = Counts::default();
        }
    }
}

/// What a member's classes have counted, one after the other; of dropped packets beyond the kernel's 32 bits.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    bytes: u64,
    packets: u64,
    dropped: u64,
    /// Last counters of the class.
    last: Counts,
    /// Last counter of the queue.
    queue: u32,
}

impl Tally {
    /// Adds the difference of the counters (of drops fq_codel's own, else the class's); returns all drops.
    pub(super) fn count(&mut self, counts: &Counts) -> u64 {
        let class = since(self.last.dropped_packets, counts.dropped_packets);
        let queue = counts.flows_dropped.map(|dropped| since(self.queue, dropped));
        let passed = |last: u64, now: u64| now.checked_sub(last).unwrap_or(now);
        self.bytes += passed(self.last.bytes, counts.bytes);
        self.packets += passed(self.last.packets, counts.packets);
        (self.last, self.queue) = (*counts, counts.flows_dropped.unwrap_or(0));
        self.dropped += u64::from(queue.unwrap_or(class));
        self.dropped
    }

    /// What was counted until now, while nothing waits.
    pub(super) fn so_far(&self, framing: Framing) -> Count {
        Count { passed_bytes: self.passed(framing), dropped_packets: self.dropped, ..Count::default() }
    }

    /// Bytes that passed, with their framing.
    pub(super) fn passed(&self, framing: Framing) -> u64 {
        framed(framing, self.packets, self.bytes)
    }

    /// Goes on from these counters of something else; what waited in a queue is dropped.
    pub(super) fn go_on(&mut self, counts: Counts) {
        self.throw_away(self.last.waiting_packets);
        self.last = counts;
    }

    /// Adds packets that were dropped with a replaced queue, which the kernel does not count.
    pub(super) fn throw_away(&mut self, packets: u32) {
        self.dropped += u64::from(packets);
        (self.last.waiting_packets, self.queue) = (0, 0);
    }
}

/// Bytes on the wire of frames that were counted without framing.
pub(super) fn framed(framing: Framing, packets: u64, bytes: u64) -> u64 {
    let framed = bytes + packets * u64::from(framing.overhead_bytes);
    framed.max(packets * u64::from(framing.least_bytes))
}

/// Difference of a 32-bit counter, which wraps, and starts again at 0 when its class was made anew.
pub(super) fn since(last: u32, now: u32) -> u32 {
    if now >= last || last > u32::MAX / 2 { now.wrapping_sub(last) } else { now }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn drops_count_once_with_any_queue() {
        let counts = |class, queue| Counts { dropped_packets: class, flows_dropped: queue, ..Counts::default() };
        let mut tally = Tally::default();
        assert_eq!(tally.count(&counts(5, None)), 5);
        // The queue is another one now: the class goes on, and misses some.
        assert_eq!(tally.count(&counts(6, Some(40))), 45);
        assert_eq!(tally.count(&counts(9, Some(90))), 95);
        // Thrown away with what waited: it begins anew.
        tally.throw_away(7);
        assert_eq!(tally.count(&counts(9, Some(95))), 95 + 7 + 95);
        // And back: what the class counted meanwhile was counted.
        assert_eq!(tally.count(&counts(11, None)), 199);
        assert_eq!(tally.count(&counts(12, Some(3))), 202);
        // Full.
        tally.queue = u32::MAX - 1;
        assert_eq!(tally.count(&counts(12, Some(2))), 206);
    }

    /// Of a class that is made anew, what waited is dropped, and what it counted stays.
    #[test]
    fn counters_go_on_in_a_class_that_is_made_anew() {
        let (number, class) = (16, htb_class());
        let counts = |bytes, dropped_packets, waiting_packets| Counts {
            bytes,
            packets: bytes / 100,
            dropped_packets,
            waiting_packets,
            ..Counts::default()
        };
        let mut tallies = BTreeMap::from([(number, Tally::default())]);
        assert_eq!(tallies.get_mut(&number).unwrap().count(&counts(1000, 5, 4)), 5);
        let steps = [Step::RemoveClass { minor: number }, Step::AddClass { minor: number, class }];
        begin_anew(&mut tallies, &steps, |_| false);
        assert_eq!(tallies[&number].dropped, 5, "it is elsewhere");
        begin_anew(&mut tallies, &steps, |_| true);
        // More than before, and less.
        let tally = tallies.get_mut(&number).unwrap();
        assert_eq!(tally.count(&counts(1500, 1, 0)), 10);
        assert_eq!(tally.passed(Framing::NONE), 2500);
        assert_eq!((tally.count(&counts(200, 1, 0)), tally.passed(Framing::NONE)), (10, 2700));
        assert_eq!(tally.passed(Framing { overhead_bytes: 4, least_bytes: 0 }), 2700 + 27 * 4);
        let mut other = *tally;
        other.count(&counts(300, 1, 3));
        other.go_on(counts(50_000, 0, 0));
        assert_eq!((other.count(&counts(50_700, 0, 0)), other.passed(Framing::NONE)), (13, 2800 + 700));
        let so_far = Count { passed_bytes: 2700, dropped_packets: 10, ..Count::default() };
        assert_eq!(tally.so_far(Framing::NONE), so_far);
    }

    fn htb_class() -> htb::Class {
        let rate = vmio_model::rate::ByteRate::new(1);
        htb::Class { rate, ceil: rate, burst: 1, cburst: 1, quantum: 1, prio: 0, overhead: 0, mpu: 0 }
    }
}
