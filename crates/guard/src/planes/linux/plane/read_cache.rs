//! Skips netlink dumps while nothing changed. What is in force is read back when the kernel reports a change near it;
//! it reports nothing of a TCX link that was detached by force, so those few are looked at each time. Class counters
//! are read when the program at the uplink has seen a packet since.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::super::classifier::Classifier;
use super::super::links;
use super::super::netlink::events::Events;
use super::{Device, Error, InstalledPool, Linux};
use crate::desired::{Desired, PoolKey};
use crate::planes::Count;

/// Counters are read again after this time without traffic, since foreign programs may let packets bypass ours.
const FRESH: Duration = Duration::from_secs(5);
/// Least time between two reads, as a multiple of what one took: reading costs at most 1/500 of a processor.
const PART: u32 = 500;

/// The last counters of a pool's members.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) counts: Vec<Count>,
    /// Whether something waits in flow classes that are at their maximum: it passes later, and is in no count.
    ceiled: bool,
    at: Instant,
    took: Duration,
    /// Packets of guests that claimed another's address or were too many; of a staged pool with all that came in at its
    /// members' interfaces, since what passes between guests never reaches the uplink.
    arrived: u64,
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
    pub(super) fn is_still(&self, key: &PoolKey) -> bool {
        let (Some(installed), Some(classifier)) = (self.pools.get(key), &self.classifier) else { return false };
        let Some(counted) = &installed.counted else { return false };
        counted.at.elapsed() < FRESH.max(counted.took.saturating_mul(PART))
            && !counted.ceiled
            && counted.counts.iter().all(|count| count.waiting_bytes == 0)
            && installed.stage.as_ref().is_none_or(|stage| stage.backlog.waiting_bytes == 0)
            && !classifier.has_traffic(&installed.uplink, key.direction)
            && arrived(installed, classifier) == counted.arrived
    }

    /// Before counters are read: clears the uplink program's mark that packets have passed. Gives the time, and the
    /// packets that have arrived so far.
    pub(super) fn clear_traffic_mark(&self, key: &PoolKey) -> Result<(Instant, u64), Error> {
        let at = Instant::now();
        let (Some(installed), Some(classifier)) = (self.pools.get(key), &self.classifier) else { return Ok((at, 0)) };
        if classifier.has_traffic(&installed.uplink, key.direction) {
            classifier.clear_traffic_mark(&installed.uplink, key.direction)?;
        }
        Ok((at, arrived(installed, classifier)))
    }
}

impl Counted {
    /// As it is now, with what [`Linux::clear_traffic_mark`] gave before.
    pub(super) fn now(counts: Vec<Count>, ceiled: bool, (at, arrived): (Instant, u64)) -> Counted {
        Counted { counts, ceiled, at, took: at.elapsed(), arrived }
    }
}

fn arrived(installed: &InstalledPool, classifier: &Classifier) -> u64 {
    if installed.tenants.is_empty() {
        return 0;
    }
    // What is dropped for its address passes no uplink either.
    let claims = classifier.all_claims();
    if installed.stage.is_none() {
        return claims;
    }
    let packets = |device: &Device| classifier.counts(device).map_or(0, |counts| counts.packets);
    installed.tenants.keys().map(packets).fold(claims, u64::wrapping_add)
}
