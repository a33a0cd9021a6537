//! Whose counters may have changed since they were read: what a guest sends is counted at its interface first, and what
//! it receives at the uplink, by programs whose counters are in this process's memory. Where few of many members have
//! sent or received something, these alone are asked for. All are read from time to time, since foreign programs may
//! let packets bypass ours.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use vmio_model::policy::Direction;

use super::super::classifier::Classifier;
use super::InstalledPool;
use crate::desired::{DEFAULT_NUMBER, HOST_NUMBER};

/// After this time without traffic counters are looked at again, since foreign programs may let packets bypass ours.
pub(super) const FRESH: Duration = Duration::from_secs(5);
/// The same, at least, as a multiple of what reading them took: without traffic that costs at most 1/500 of a processor.
pub(super) const PART: u32 = 500;
/// Pools of fewer members are read as a whole.
const MANY: usize = 32;
/// Most members that are asked for one by one, as a part of all.
const FEW: usize = 8;
/// Time that packets of a member may take from its interface to its queue: counters are read until then at least.
const ON_THEIR_WAY: Duration = Duration::from_secs(2);

/// What had come in at the members' interfaces, or for them at the uplink, when a pool's counters were read.
#[derive(Debug, Clone)]
pub(super) struct Moved {
    /// Packets by member, always in the same order.
    packets: Vec<u64>,
    /// When that was.
    at: Instant,
    /// When packets of a member came in last, by its number; of those whose packets may have been on their way then.
    recent: BTreeMap<u16, Instant>,
    /// When all were read last, and how long that is enough.
    whole: Instant,
    enough: Duration,
}

impl Moved {
    /// All were read, from this time on.
    pub(super) fn all_read(&mut self, began: Instant) {
        (self.whole, self.enough) = (began, FRESH.max(began.elapsed().saturating_mul(PART)));
    }

    /// Notes whose packets have come in since; gives their numbers, and those of members whose packets may have been on
    /// their way when counters were read last, however long ago that was.
    fn since(&self, now: &mut Moved, numbers: impl Iterator<Item = u16>, at: Instant) -> BTreeSet<u16> {
        let recent = self.recent.iter().filter(|(_, came)| self.at.saturating_duration_since(**came) < ON_THEIR_WAY);
        now.recent = recent.map(|(number, came)| (*number, *came)).collect();
        let counted = self.packets.iter().zip(&now.packets);
        let came = numbers.zip(counted).filter(|(_, (before, now))| before != now);
        now.recent.extend(came.map(|(number, _)| (number, at)));
        (now.at, now.whole, now.enough) = (at, self.whole, self.enough);
        now.recent.keys().copied().collect()
    }
}

impl InstalledPool {
    /// What has come in until now, and whose counters are to be read; `None`: all members'.
    pub(super) fn moved(
        &self,
        direction: Direction,
        classifier: Option<&Classifier>,
    ) -> (Moved, Option<BTreeSet<u16>>) {
        let at = Instant::now();
        // What waits at a member's own interface comes later; flow classes have counters of their own; and what a
        // bucket drops of what a guest sends is not counted as come in.
        let can_tell = self.order.len() >= MANY
            && self.local.caps.is_none()
            && self.seats.iter().all(|seat| seat.policers.is_none())
            && !self.has_flow_classes();
        let came = classifier.filter(|_| can_tell).map(|classifier| self.came(direction, classifier));
        let (numbers, packets): (Vec<u16>, Vec<u64>) = came.unwrap_or_default().into_iter().unzip();
        let mut now = Moved { packets, at, recent: BTreeMap::new(), whole: at, enough: Duration::ZERO };
        if numbers.is_empty() {
            return (now, None);
        }
        let numbers = numbers.into_iter();
        let before = self.counted.as_ref().filter(|before| before.moved.packets.len() == now.packets.len());
        let Some(before) = before else {
            // Whatever came in before may be on its way.
            let came = numbers.zip(&now.packets).filter(|(_, packets)| **packets > 0);
            now.recent = came.map(|(number, _)| (number, at)).collect();
            return (now, None);
        };
        let mut some = before.moved.since(&mut now, numbers, at);
        let waiting = self.order.iter().zip(before.counts.iter()).filter(|(_, count)| count.waiting_bytes > 0);
        some.extend(waiting.map(|(number, _)| *number).chain([HOST_NUMBER, DEFAULT_NUMBER]));
        let is_due = before.moved.whole.elapsed() >= before.moved.enough;
        if is_due || some.len() * FEW > self.order.len() { (now, None) } else { (now, Some(some)) }
    }

    /// Packets that came in until now, by the members' numbers.
    fn came(&self, direction: Direction, classifier: &Classifier) -> Vec<(u16, u64)> {
        match direction {
            Direction::GuestTx => {
                let tenants = self.tenants.iter();
                let counts = tenants.map(|(device, tenant)| (tenant.number(), classifier.counts(device)));
                counts.map(|(number, counts)| (number, counts.map_or(0, |counts| counts.packets))).collect()
            }
            Direction::GuestRx => {
                let seats = self.seats.iter().filter(|seat| seat.interface.is_some());
                seats.map(|seat| (seat.number, classifier.arrived(seat.number))).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds, and packets of three members with the numbers 16 to 18 -> those to be read.
    #[test]
    fn members_are_read_while_their_packets_may_be_on_their_way() {
        let (at, enough) = (Instant::now(), FRESH);
        let of = |packets: &[u64]| Moved { packets: packets.to_vec(), at, recent: BTreeMap::new(), whole: at, enough };
        let mut last = of(&[5, 0, 7]);
        let mut read = |second: u64, packets: &[u64]| {
            let mut now = of(packets);
            let some = last.since(&mut now, 16.., at + Duration::from_secs(second));
            last = now;
            some.into_iter().collect::<Vec<u16>>()
        };
        assert_eq!(read(1, &[5, 0, 7]), [0; 0]);
        assert_eq!(read(2, &[5, 1, 7]), [17]);
        assert_eq!(read(3, &[6, 1, 7]), [16, 17], "those of the second, too");
        assert_eq!(read(4, &[6, 1, 7]), [16, 17]);
        // A counter that begins again, and one that was not read since its packets may have arrived.
        assert_eq!(read(9, &[6, 1, 0]), [16, 18]);
        assert_eq!(read(10, &[6, 1, 0]), [18]);
    }
}
