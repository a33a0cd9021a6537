//! Traffic of members that does not pass the uplink: to and from other guests of the host and the host itself, and into
//! tunnels of the host, whose packets are the host's own at the uplink.
//!
//! It is **counted**: what a guest sends by the programs at its interface and at the uplink, what it receives by its
//! interface and its class. Members with `local_max` are **held** at their own interfaces: all that they send is
//! redirected through an IFB, in which each has a class of its own that borrows nothing, and goes on from there to the
//! uplink's queues or anywhere else. While it waits there it is charged to its tap, as in a stage (`stage.rs`), through
//! which all members of a pool pass in any case.

use std::collections::BTreeMap;

use vmio_model::policy::pool::MemberKind;
use vmio_model::policy::program::{Framing, Hierarchy};
use vmio_model::policy::{Direction, compile};
use vmio_node::linux::net;
use vmio_node::{Local as Host, Reader};

use super::super::counters::{ClassCounts, Counts};
use super::super::htb;
use super::super::{Device, Error, ifb};
use super::flows::{self, Tally, framed};
use super::{ENTRY, InstalledPool, Linux};
use crate::desired::{DesiredMember, DesiredPool, PoolKey};
use crate::planes::{Count, LocalCount, PlaneError};

/// Most bytes that count less at the interface than at the uplink and are subtracted later: packets on their way while
/// the counters are read. A lasting difference (a VLAN's tag that is added on the way) is not summed up.
const MOST_AHEAD: u64 = 256 << 10;

/// Local traffic of a pool.
#[derive(Debug, Default)]
pub(super) struct Local {
    /// Queues of the members that are held at their own interfaces.
    pub(super) caps: Option<Caps>,
    /// Counters of the flow classes there.
    pub(super) flows: BTreeMap<(u16, usize), Counts>,
    /// By the index of the interface.
    tallies: BTreeMap<u32, LocalTally>,
    /// Packets dropped at the interfaces' own queues, by number.
    dropped: BTreeMap<u16, Tally>,
}

/// Queues at members' own interfaces.
#[derive(Debug, Clone)]
pub(super) struct Caps {
    pub(super) ifb: Device,
    pub(super) numbers: htb::Numbers,
}

/// What counts all that a member sends or receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CountedBy {
    Interface,
    Caps,
    Stage,
}

/// Local bytes of a member: all less those by the uplink.
#[derive(Debug, Clone, Copy, Default)]
struct LocalTally {
    bytes: u64,
    /// Bytes of the uplink that were not yet counted among all.
    ahead: u64,
    /// The last counters: of what, all, and those by the uplink.
    last: Option<(CountedBy, u64, u64)>,
}

impl LocalTally {
    /// Adds what passed since; nothing where a counter started again.
    fn count(&mut self, by: CountedBy, all: u64, uplink: u64) -> u64 {
        let before = self.last.replace((by, all, uplink)).filter(|(was, ..)| *was == by);
        let passed = before.and_then(|(_, a, u)| all.checked_sub(a).zip(uplink.checked_sub(u)));
        if let Some((all, uplink)) = passed {
            let uplink = uplink.saturating_add(self.ahead);
            self.bytes += all.saturating_sub(uplink);
            self.ahead = uplink.saturating_sub(all).min(MOST_AHEAD);
        }
        self.bytes
    }
}

impl Linux {
    /// Makes the IFB of a pool's members that are held at their own interfaces, with its queues; `None` where there are
    /// none, or where a stage holds all. Redirects nothing yet.
    pub(super) fn caps(
        &mut self,
        pool: &DesiredPool,
        uplink: &Device,
        framing: Framing,
    ) -> Result<(Option<Caps>, usize), PlaneError> {
        if pool.is_staged() || !pool.seats.iter().any(DesiredMember::is_capped) {
            return Ok((None, 0));
        }
        let (seats, hierarchy) = hierarchy(pool, framing);
        let numbers = flows::numbers(&seats, self.flows()?)?;
        let had = self.pools.get(&pool.key).is_some_and(|installed| installed.local.caps.is_some());
        let takeover = self.may_take_over(&pool.key);
        let (name, what) = (ifb::name("lc", uplink), format!("all that guests of {uplink} send"));
        let (ifb, steps, made) = self.put_on_ifb(&name, &what, &hierarchy, &numbers, takeover, had)?;
        if let Some(installed) = self.pools.get_mut(&pool.key) {
            flows::begin_anew(&mut installed.local.dropped, &steps, |_| true);
        }
        Ok((Some(Caps { ifb, numbers }), made + steps.len()))
    }

    /// Removes that IFB, if it exists.
    pub(super) fn remove_caps(&mut self, uplink: &Device) -> Result<(), Error> {
        ifb::remove_ours(&mut self.netlink, &ifb::name("lc", uplink))
    }

    /// Local traffic of a pool's members, by the index of their interface; with the pool's counters as just read.
    pub(super) fn local(&mut self, key: &PoolKey, counts: &[Count]) -> Result<BTreeMap<u32, LocalCount>, PlaneError> {
        if key.direction == Direction::GuestRx {
            let text = Host::new().read_text(net::thread_traffic_file())?;
            return Ok(self.installed(key)?.received(&text, counts));
        }
        let installed = self.installed(key)?;
        let (caps, nested) = (installed.local.caps.clone(), installed.has_flow_classes());
        let capped = match &caps {
            Some(caps) => flows::counted(&mut self.netlink, &caps.ifb, &caps.numbers, nested)?,
            None => ClassCounts::default(),
        };
        let (policed, none) = (self.policed(key, true), || PlaneError::NoPool(key.clone()));
        let (installed, classifier) = (self.pools.get_mut(key).ok_or_else(none)?, self.classifier.as_ref());
        let seen = installed.tenants.iter().filter_map(|(device, tenant)| {
            let counts = classifier?.counts(device)?;
            // What is dropped at the uplink is not local either.
            Some((tenant.number(), (counts.wire_bytes, counts.left_bytes + counts.above_bytes)))
        });
        let seen: BTreeMap<u16, (u64, u64)> = seen.collect();
        installed.local.flows = capped.flows;
        Ok(installed.sent(&seen, &capped.leaves, &policed, counts))
    }
}

impl InstalledPool {
    /// What members sent beside the uplink, with what was counted at their interfaces (all, and what reached the
    /// uplink), at their own queues and at their buckets, by number.
    fn sent(
        &mut self,
        seen: &BTreeMap<u16, (u64, u64)>,
        capped: &BTreeMap<u16, Counts>,
        policed: &BTreeMap<u16, u64>,
        counts: &[Count],
    ) -> BTreeMap<u32, LocalCount> {
        let (framing, staged) = (self.compiled.framing, self.stage.is_some());
        let Local { tallies, dropped, .. } = &mut self.local;
        let mut all = BTreeMap::new();
        for (seat, count) in self.seats.iter().zip(counts) {
            let (Some(interface), Some((came, left))) = (&seat.interface, seen.get(&seat.number)) else { continue };
            let own = capped.get(&seat.number).filter(|_| seat.is_capped());
            let (by, passed) = match own {
                _ if staged => (CountedBy::Stage, count.passed_bytes),
                Some(own) => (CountedBy::Caps, framed(framing, own.packets, own.bytes)),
                None => (CountedBy::Interface, *came),
            };
            let policed = policed.get(&seat.number).copied().unwrap_or(0);
            let local = LocalCount {
                bytes: tallies.entry(interface.index).or_default().count(by, passed, *left),
                limited: by != CountedBy::Interface || seat.local_max.is_some(),
                waiting_bytes: own.map_or(0, |own| u64::from(own.waiting_bytes)),
                dropped_packets: own.map_or(0, |own| dropped.entry(seat.number).or_default().count(own)) + policed,
            };
            all.insert(interface.index, local);
        }
        // All of these have a tally, so that as many are the same.
        if tallies.len() != all.len() {
            tallies.retain(|index, _| all.contains_key(index));
        }
        dropped.retain(|number, _| capped.contains_key(number));
        all
    }

    /// What members received beside the uplink, with the content of `net/dev`. Without a known address what arrives for
    /// a member at the uplink is not counted as its own.
    fn received(&mut self, text: &str, counts: &[Count]) -> BTreeMap<u32, LocalCount> {
        let framing = self.compiled.framing;
        // To a guest its host's side sends.
        let sent: BTreeMap<&str, u64> =
            net::traffic(text).map(|(name, _, sent)| (name, framed(framing, sent.packets, sent.bytes))).collect();
        let mut all = BTreeMap::new();
        for (seat, count) in self.seats.iter().zip(counts) {
            let Some(interface) = seat.interface.as_ref().filter(|i| !i.macs.is_empty()) else { continue };
            let Some(sent) = sent.get(interface.name.as_str()) else { continue };
            let tally = self.local.tallies.entry(interface.index).or_default();
            let bytes = tally.count(CountedBy::Interface, *sent, count.passed_bytes);
            all.insert(interface.index, LocalCount { bytes, ..LocalCount::default() });
        }
        let tallies = &mut self.local.tallies;
        // As above.
        if tallies.len() != all.len() {
            tallies.retain(|index, _| all.contains_key(index));
        }
        all
    }
}

/// The members that are held at their own interfaces, with `default`, which each hierarchy has; and their queues.
fn hierarchy(pool: &DesiredPool, framing: Framing) -> (Vec<DesiredMember>, Hierarchy) {
    let all = pool.seats.iter().zip(&pool.pool.seats);
    let held = all.filter(|(seat, _)| seat.is_capped() || seat.who == MemberKind::Default);
    let (seats, members): (Vec<DesiredMember>, Vec<_>) =
        held.map(|(seat, member)| (seat.clone(), (member, seat.local_max.unwrap_or(pool.pool.capacity)))).unzip();
    (seats, compile::apart(framing, members, &ENTRY.abilities))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::desired::{Numbers, Strictness, desired};
    use crate::testing::{policy, tap};
    use vmio_model::policy::Abilities;

    #[test]
    fn local_is_what_did_not_reach_the_uplink() {
        use CountedBy::{Caps, Interface};
        let mut tally = LocalTally::default();
        assert_eq!(tally.count(Interface, 5000, 4000), 0, "what was before is not known");
        assert_eq!(tally.count(Interface, 9000, 5000), 3000);
        // A packet was seen at the uplink first.
        assert_eq!(tally.count(Interface, 9000, 6500), 3000);
        assert_eq!(tally.count(Interface, 11_000, 6500), 3500);
        // A tag that is added on the way hides no more than a little of what is local later.
        assert_eq!(tally.count(Interface, 1 << 30, (1 << 30) + (9 << 20)), 3500);
        let after = tally.count(Interface, (1 << 30) + (1 << 20), (1 << 30) + (9 << 20));
        assert_eq!(after, 3500 + (1 << 20) - MOST_AHEAD);
        // Counters of something else, and those that start again.
        assert_eq!(tally.count(Caps, 1 << 40, 10), after);
        assert_eq!(tally.count(Caps, (1 << 40) + 300, 10), after + 300);
        assert_eq!(tally.count(Caps, 7, 0), after + 300);
    }

    #[test]
    fn each_held_member_has_a_class_of_its_own() {
        let text = "[uplink.eth0]\ncapacity = \"100Mbit\"\n\
                    [class.gold]\nmax = \"2Mbit\"\nlocal = \"limit\"\n[class.tin]\nmax = \"3Mbit\"\nlocal = \"count\"\n\
                    [[interface]]\nmatch = { name = \"tap[12]\" }\nclass = \"gold\"\nrx_class = \"gold\"\n\
                    [[interface]]\nmatch = { name = \"tap3\" }\nclass = \"tin\"\n";
        let there = [tap(1), tap(2), tap(3)];
        let numbers = Numbers::default().of(there.iter().map(|f| &f.interface)).unwrap();
        let desired = desired(&policy(text), &there, &numbers, &Abilities::HTB, Strictness::Policy).unwrap();
        let (seats, hierarchy) = hierarchy(&desired.pools[0], Framing::ETHERNET);
        let leaves: Vec<_> =
            hierarchy.leaves.iter().map(|l| (l.name.as_str(), l.rate_bps.bits(), l.ceil_bps.bits())).collect();
        let mbit = 1_000_000;
        let wanted = [("tap1", 2, 2), ("tap2", 2, 2), ("default", 100, 100)];
        assert_eq!(leaves, wanted.map(|(name, rate, ceil)| (name, rate * mbit, ceil * mbit)));
        assert_eq!(hierarchy.rate_bps.bits(), 104 * mbit, "each has its own, whatever the others use");
        assert!(htb::Tree::wanted(&hierarchy, &flows::numbers(&seats, true).unwrap()).is_ok());
        assert!(desired.pools[1].seats.iter().all(|seat| seat.local_max.is_none()), "what is received is counted only");
    }
}
