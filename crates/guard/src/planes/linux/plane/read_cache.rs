//! Skips netlink dumps while nothing changed. What is in force is read back when the kernel reports a change near it;
//! it reports nothing of a TCX link that was detached by force, so those few are looked at each time. Class counters
//! are read when the program at the uplink has seen a packet since; of packets that pass it by, the interfaces' own
//! counters tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use vmio_model::policy::Direction;
use vmio_node::linux::net;
use vmio_node::{Local as Host, Reader};

use super::super::classifier::Classifier;
use super::super::counters::Counts;
use super::super::links;
use super::super::netlink::events::Events;
use super::moved::{FRESH, Moved, PART};
use super::{Device, Error, InstalledPool, Linux};
use crate::desired::{Desired, PoolKey};
use crate::planes::{Count, PlaneError};

/// The last counters of a pool's members.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) counts: Arc<[Count]>,
    /// Those of flow classes, by the member's number and their place in it.
    pub(super) flows: BTreeMap<(u16, usize), Counts>,
    /// What had come in at the members' interfaces, or for them at the uplink.
    pub(super) moved: Moved,
    /// Whether something waits, also in flow classes that are at their maximum: it passes later, and is in no count.
    waits: bool,
    /// When they were known to be valid last, and how long it took to find that out.
    at: Instant,
    took: Duration,
    began: Began,
    /// What shows that nothing has passed since; `None` in a pool with traffic.
    rest: Option<AtRest>,
    /// Whether the counters before showed the same, so that all rates are those of a pool without traffic.
    rested: bool,
}

/// A pool before its counters are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Began {
    at: Instant,
    /// Packets of guests that claimed another's address or were too many.
    pub(super) claims: u64,
    /// With all that came in at the interfaces of a staged pool's members, since what passes between guests never
    /// reaches the uplink.
    arrived: u64,
}

/// What interfaces have counted, of a pool without traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AtRest {
    /// Packets and bytes that left the interfaces with the pool's queues.
    sent: [Option<(u64, u64)>; 2],
    /// Packets of members, whether or not they pass the uplink.
    members: u64,
}

/// Up to this many interfaces are asked for one by one; more by a dump of all.
const ONE_BY_ONE: usize = 64;

/// How long filters of clsact are taken to be there without being read.
const BELIEVED: Duration = Duration::from_secs(30);

/// What others may have changed since all was read back: it has to be read again.
#[derive(Debug)]
pub(super) struct Unsure {
    /// Guests' interfaces, by index.
    at: BTreeSet<u32>,
    /// Interfaces of any kind, by index.
    links: BTreeSet<u32>,
    /// Anything anywhere.
    all: bool,
    /// Whether something near what is in force was changed since reading back began.
    near: bool,
    /// When all was read last, and how long that is valid.
    asked: Instant,
    believed: Duration,
}

impl Unsure {
    pub(super) fn new() -> Unsure {
        let (at, links, asked) = (BTreeSet::new(), BTreeSet::new(), Instant::now());
        Unsure { at, links, all: true, near: false, asked, believed: BELIEVED }
    }

    pub(super) fn of(&self, index: u32) -> bool {
        self.all || self.at.contains(&index)
    }

    /// All that was unsure has been read.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.all) {
            self.believed = BELIEVED.max(self.asked.elapsed().saturating_mul(PART));
            self.asked = Instant::now();
        }
        self.at.clear();
        self.links.clear();
    }
}

impl Linux {
    /// Begins a reconciliation: takes the kernel's events so far, and updates the list of interfaces. Events from here
    /// on may be of changes after what is read next.
    pub(super) fn listen(&mut self, desired: &Desired) -> Result<(), Error> {
        self.read_events();
        self.unsure.near = false;
        if self.events.is_none() && !desired.pools.is_empty() {
            // Without it all is read back each time.
            self.events = Events::of_others(&self.netlink).ok();
            self.unsure.all = true;
        }
        if self.unsure.all || self.unsure.asked.elapsed() >= self.unsure.believed {
            (self.unsure.all, self.unsure.asked) = (true, Instant::now());
        }
        self.beside.clear();
        self.find(desired)
    }

    /// Reads the interfaces of members anew that had an event since, or that have another name or index than expected.
    fn find(&mut self, desired: &Desired) -> Result<(), Error> {
        let seats = desired.pools.iter().flat_map(|pool| &pool.seats).filter_map(|seat| seat.interface.as_ref());
        let mut unknown = self.unsure.links.clone();
        unknown.extend(seats.filter(|i| self.there.get(&i.index) != Some(&i.name)).map(|i| i.index));
        if self.unsure.all || unknown.len() > ONE_BY_ONE {
            let all = links::all(&mut self.netlink)?;
            self.others.listed(&all);
            self.there = all.into_iter().map(|link| (link.device.index, link.device.name)).collect();
            return Ok(());
        }
        for index in unknown {
            self.there.remove(&index);
            let link = links::by_index(&mut self.netlink, index)?;
            self.others.changed(index, link.as_ref());
            self.there.extend(link.map(|link| (index, link.device.name)));
        }
        Ok(())
    }

    /// Whether what is in force may have been changed by others.
    pub(super) fn is_disturbed(&mut self) -> bool {
        self.read_events() || self.awaits() || !self.classifier.as_ref().is_none_or(Classifier::links_hold)
    }

    /// Takes the kernel's events since reading back began; whether one of them matters here.
    fn read_events(&mut self) -> bool {
        let Some(events) = &mut self.events else {
            self.unsure.all = true;
            return !self.pools.is_empty();
        };
        let (pools, beside, classifier) = (&self.pools, &self.beside, self.classifier.as_ref());
        let (unsure, mut near) = (&mut self.unsure, false);
        let lost = events.any(|index| {
            unsure.links.insert(index);
            let guests = classifier.is_some_and(|classifier| classifier.is_at(index));
            if guests {
                unsure.at.insert(index);
            }
            let pool = |installed: &InstalledPool| {
                let caps = installed.local.caps.as_ref().map(|caps| caps.ifb.index);
                [Some(installed.uplink.index), Some(installed.at.index), caps].contains(&Some(index))
            };
            near |= guests || beside.contains(&index) || pools.values().any(pool);
            false
        });
        unsure.all |= lost.unwrap_or(true);
        unsure.near |= near;
        unsure.all || unsure.near
    }

    /// Whether counting would give what it gave last.
    pub(super) fn is_still(&mut self, key: &PoolKey) -> bool {
        let (Some(installed), Some(classifier)) = (self.pools.get(key), &self.classifier) else { return false };
        let Some(counted) = &installed.counted else { return false };
        let still = !counted.waits
            && installed.stage.as_ref().is_none_or(|stage| stage.backlog.waiting_bytes == 0)
            && !classifier.has_traffic(&installed.uplink, key.direction)
            && arrived(installed, classifier, classifier.all_claims()) == counted.began.arrived;
        still && (!counted.is_old() || self.rests(key))
    }

    /// Whether the interfaces, too, have counted nothing since the pool's counters were read; these are valid for some
    /// time again then. Not so the first time: what was read last may tell of traffic until then.
    fn rests(&mut self, key: &PoolKey) -> bool {
        let began = Instant::now();
        let rested = |installed: &InstalledPool| installed.counted.as_ref().is_some_and(|counted| counted.rested);
        if !self.pools.get(key).is_some_and(rested) {
            return false;
        }
        let Ok(now) = self.at_rest(key) else { return false };
        let counted = self.pools.get_mut(key).and_then(|installed| installed.counted.as_mut());
        let Some(counted) = counted.filter(|counted| counted.rest.as_ref() == Some(&now)) else { return false };
        (counted.at, counted.took) = (began, began.elapsed());
        true
    }

    fn at_rest(&mut self, key: &PoolKey) -> Result<AtRest, PlaneError> {
        let none = || PlaneError::NoPool(key.clone());
        let installed = self.pools.get(key).ok_or_else(none)?;
        let uplink = installed.stage.as_ref().map(|_| installed.uplink.index);
        let members = match (key.direction, &self.classifier) {
            (Direction::GuestTx, Some(classifier)) => packets(installed, classifier),
            // To a guest its host's side sends.
            (Direction::GuestRx, _) => installed.sent_to(&Host::new().read_text(net::thread_traffic_file())?),
            (Direction::GuestTx, None) => 0,
        };
        let at = links::sent(&mut self.netlink, installed.at.index)?;
        let behind = uplink.map(|index| links::sent(&mut self.netlink, index)).transpose()?.flatten();
        Ok(AtRest { sent: [at, behind], members })
    }

    /// Before counters are read: clears the uplink program's mark that packets have passed.
    pub(super) fn clear_traffic_mark(&self, key: &PoolKey) -> Result<Began, Error> {
        let at = Instant::now();
        let (Some(installed), Some(classifier)) = (self.pools.get(key), &self.classifier) else {
            return Ok(Began { at, claims: 0, arrived: 0 });
        };
        if classifier.has_traffic(&installed.uplink, key.direction) {
            classifier.clear_traffic_mark(&installed.uplink, key.direction)?;
        }
        let claims = classifier.all_claims();
        Ok(Began { at, claims, arrived: arrived(installed, classifier, claims) })
    }

    /// The same, where nothing but the time is a reason to read: what interfaces have counted.
    pub(super) fn begins_to_rest(&mut self, key: &PoolKey) -> Option<AtRest> {
        let counted = self.pools.get(key).and_then(|installed| installed.counted.as_ref());
        if counted.is_some_and(Counted::is_old) { self.at_rest(key).ok() } else { None }
    }
}

impl Began {
    /// When that was.
    pub(super) fn at(&self) -> Instant {
        self.at
    }
}

impl Counted {
    /// As it is now, with what [`Linux::begins_to_rest`] and [`Linux::clear_traffic_mark`] gave before.
    pub(super) fn now(counts: Arc<[Count]>, ceiled: bool, moved: Moved, began: Began, rest: Option<AtRest>) -> Counted {
        let waits = ceiled || counts.iter().any(|count| count.waiting_bytes > 0);
        let (flows, rested, at, took) = (BTreeMap::new(), false, began.at, began.at.elapsed());
        Counted { counts, flows, moved, waits, at, took, began, rest, rested }
    }

    /// With those that were read before, if any.
    pub(super) fn after(self, before: Option<&Counted>) -> Counted {
        let rested = self.rest.is_some() && before.is_some_and(|before| before.rest == self.rest);
        Counted { rested, ..self }
    }

    fn is_old(&self) -> bool {
        self.at.elapsed() >= FRESH.max(self.took.saturating_mul(PART))
    }

    /// Packets that claimed an address, as of then.
    pub(super) fn claims(&self) -> u64 {
        self.began.claims
    }
}

impl InstalledPool {
    /// Packets that were sent to the members, with the content of `net/dev`.
    fn sent_to(&self, text: &str) -> u64 {
        let names = self.seats.iter().filter_map(|seat| Some(seat.interface.as_ref()?.name.as_str()));
        let names: BTreeSet<&str> = names.collect();
        let sent = net::traffic(text).filter(|(name, ..)| names.contains(name)).map(|(_, _, sent)| sent.packets);
        sent.fold(0, u64::wrapping_add)
    }
}

fn arrived(installed: &InstalledPool, classifier: &Classifier, claims: u64) -> u64 {
    match &installed.stage {
        _ if installed.tenants.is_empty() => 0,
        // What is dropped for its address passes no uplink either.
        None => claims,
        Some(_) => packets(installed, classifier).wrapping_add(claims),
    }
}

/// All packets that came in at the members' interfaces.
fn packets(installed: &InstalledPool, classifier: &Classifier) -> u64 {
    let packets = |device: &Device| classifier.counts(device).map_or(0, |counts| counts.packets);
    installed.tenants.keys().map(packets).fold(0, u64::wrapping_add)
}
