//! The plane itself: each pool's program on its uplink, or on an IFB for what guests receive; and the classifier at each
//! member's interface and at the uplink.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vmio_model::control::InForce;
use vmio_model::policy::Direction;
use vmio_model::policy::assign::Interface;
use vmio_model::policy::compile::{self, Abilities};
use vmio_model::policy::program::{Framing, Hierarchy, Program};

use super::book::Book;
use super::classifier::{Classifier, Leave, Tenant};
use super::htb::{self, Numbers};
use super::netlink::events::Events;
use super::{Device, Error, Netlink, links};
use crate::desired::{Desired, DesiredPool, GUESTS_NUMBER, HOST_NUMBER, PoolKey, Seated};
use crate::planes::{Behind, Count, Entry, NotHeld, Options, Plane, PlaneError};

mod cards;
mod flows;
mod hold;
mod purge;
mod receive;
mod rest;
mod stage;
mod sweep;

use cards::Cards;
use flows::{Tally, numbers};
use hold::Taps;
use rest::{Counted, Unsure};
use stage::Stage;
use sweep::{Past, put};

/// Its entry.
pub const ENTRY: Entry = Entry {
    about: "Linux' queues (HTB) and eBPF, on the uplink and on IFBs",
    abilities: Abilities::HTB,
    changes: true,
    open: |options| Ok(Box::new(Linux::with(&options)?)),
};

/// Linux' queues in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Linux {
    netlink: Netlink,
    /// Loaded when the first interface needs it.
    classifier: Option<Classifier>,
    takeover: bool,
    /// Whether the kernel can keep flows apart in a queue, once it was asked.
    flows: Option<bool>,
    past: Past,
    pools: BTreeMap<PoolKey, Told>,
    taps: Taps,
    cards: Cards,
    /// Since the first pool is in force.
    events: Option<Events>,
    unsure: Unsure,
    /// Interfaces that are there, by index, as of this reconciliation; kept by what the kernel tells.
    there: BTreeMap<u32, String>,
    /// Interfaces whose changes matter besides those in pools.
    beside: BTreeSet<u32>,
}

/// A pool that is in force.
#[derive(Debug)]
struct Told {
    uplink: Device,
    /// Where its queues are: the uplink, or an IFB.
    at: Device,
    /// Where that is an IFB before the uplink.
    stage: Option<Stage>,
    /// Its members.
    seats: Vec<Seated>,
    /// Whether each member is held to a limit by itself, instead of by what others leave.
    capped: bool,
    /// As it was compiled.
    compiled: Hierarchy,
    /// As it is in force, with what the loop has set.
    hierarchy: Hierarchy,
    numbers: Numbers,
    /// By member, in the program's order.
    order: Vec<u16>,
    /// Interfaces with the classifier, and what it was told of them.
    tenants: BTreeMap<Device, Tenant>,
    /// By number.
    tallies: BTreeMap<u16, Tally>,
    /// What it counted last, since it was last reconciled.
    counted: Option<Counted>,
}

impl Linux {
    /// In the thread's network namespace; nothing is touched yet. With `takeover` another's qdisc on an uplink is
    /// replaced where it can be put back as it was. Its programs end with the process.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub fn open(takeover: bool) -> Result<Linux, PlaneError> {
        Linux::with(&Options { takeover, ..Options::default() })
    }

    /// As [`Linux::open`]; with a ledger that outlives the process what is put in force does, too.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket, or the ledger makes no sense.
    pub fn with(options: &Options) -> Result<Linux, PlaneError> {
        let netlink = Netlink::open()?;
        let past = Past::look(Book::open(&options.keeper)?, options.keeper.outlives());
        let taps = Taps::new(options.keeper.clone(), past.book.namespace());
        let (takeover, flows, pools) = (options.takeover, None, BTreeMap::new());
        let (events, there, beside, cards) = Default::default();
        let unsure = Unsure::new();
        Ok(Linux {
            netlink,
            classifier: None,
            takeover,
            flows,
            past,
            pools,
            taps,
            cards,
            events,
            unsure,
            there,
            beside,
        })
    }

    fn pool(&mut self, pool: &DesiredPool) -> Result<usize, PlaneError> {
        let (capped, compiled) = match &pool.compiled.program.program {
            Program::Hierarchy(told) => (false, told),
            Program::Limits(_) => (true, &compile::capped(&pool.pool, &ENTRY.abilities)),
        };
        if pool.key.direction == Direction::GuestRx {
            return self.receive(pool, capped, compiled);
        }
        let (uplink, hierarchy) = self.begin(pool, compiled)?;
        let flows = self.flows()?;
        let numbers = numbers(&pool.seats, flows)?;
        let (stage, mut changes) = self.stage(pool, &uplink, compiled, &hierarchy, &numbers)?;
        let before = self.pools.remove(&pool.key);
        let (mut tenants, tallies, staged) =
            before.map_or_else(Default::default, |told| (told.tenants, told.tallies, told.stage));
        let put = match &stage {
            Some(stage) => stage::numbers(flows).and_then(|numbers| {
                let (book, told) = (&self.past.book, &stage.at_uplink);
                put(&mut self.netlink, book, &uplink, told, &numbers, self.takeover)
            }),
            None => put(&mut self.netlink, &self.past.book, &uplink, &hierarchy, &numbers, self.takeover),
        };
        let done = put.and_then(|applied| {
            changes += applied.steps.len();
            let through = stage.as_ref().map(|stage| stage.ifb.index);
            let told = Leave {
                host: htb::classid(HOST_NUMBER),
                stage: through.map(|through| (htb::classid(GUESTS_NUMBER), through)),
            };
            let classifier = self.past.loaded(&mut self.classifier)?;
            changes += usize::from(classifier.attach_uplink(&mut self.netlink, &uplink, told)?);
            changes += self.classify(&pool.seats, compiled.framing, through, &mut tenants)?;
            if stage.is_none() && staged.is_some() {
                self.stage_no_more(&uplink)?;
            }
            Ok(())
        });
        let order: Vec<u16> = pool.seats.iter().map(|s| s.number).collect();
        // What was reached is kept also when something failed: it is what there is to take off.
        let stage = if done.is_err() { stage.or(staged) } else { stage };
        let told = Told {
            at: stage.as_ref().map_or_else(|| uplink.clone(), |stage| stage.ifb.clone()),
            uplink,
            stage,
            seats: pool.seats.clone(),
            capped,
            compiled: compiled.clone(),
            hierarchy,
            numbers,
            tallies,
            order,
            tenants,
            counted: None,
        };
        self.pools.insert(pool.key.clone(), told);
        done.map(|()| changes).map_err(PlaneError::from)
    }

    /// The uplink of a pool, and what is to be in force there: as it was compiled, and while that is the same as the loop
    /// has set it. Where the uplink was made anew under its name, or renamed, what was the other's goes first.
    fn begin(&mut self, pool: &DesiredPool, compiled: &Hierarchy) -> Result<(Device, Hierarchy), PlaneError> {
        let key = &pool.key;
        let uplink = links::find(&mut self.netlink, &key.uplink)?;
        if self.pools.get(key).is_some_and(|told| told.uplink != uplink) {
            self.remove(key)?;
        }
        let same = |told: &&Told| told.compiled == *compiled && told.stage.is_some() == pool.is_staged();
        let set = self.pools.get(key).filter(same);
        Ok((uplink, set.map_or_else(|| compiled.clone(), |told| told.hierarchy.clone())))
    }

    /// Has the classifier at the interfaces of these members, and at no others of those it was at; their packets are led
    /// through that IFB.
    fn classify(
        &mut self,
        seats: &[Seated],
        framing: Framing,
        through: Option<u32>,
        tenants: &mut BTreeMap<Device, Tenant>,
    ) -> Result<usize, Error> {
        let mut changes = 0;
        let mut there = BTreeSet::new();
        for (seat, interface) in seats.iter().filter_map(|s| Some((s, s.interface.as_ref()?))) {
            // One that has gone meanwhile sends nothing; the next look leaves it out.
            if self.there.get(&interface.index) != Some(&interface.name) {
                continue;
            }
            let device = Device { index: interface.index, name: interface.name.clone() };
            let tenant = Tenant {
                class: htb::classid(seat.number),
                address: interface.macs.first().and_then(|mac| address(mac)),
                redirect: through,
                framing,
            };
            let classifier = self.past.loaded(&mut self.classifier)?;
            if tenants.get(&device) == Some(&tenant) && classifier.is_kept(&device, !self.unsure.of(device.index)) {
                there.insert(device);
                continue;
            }
            if let Err(error) = classifier.attach(&mut self.netlink, &device, &tenant) {
                // Of many some go while the others are attached.
                if links::look(&mut self.netlink, &device.name)?.is_none_or(|link| link.device != device) {
                    continue;
                }
                return Err(error);
            }
            tenants.insert(device.clone(), tenant);
            there.insert(device);
            changes += 1;
        }
        let gone: Vec<Device> = tenants.keys().filter(|device| !there.contains(device)).cloned().collect();
        for device in gone {
            // One that was renamed has it under its new name.
            let renamed = there.iter().any(|now| now.index == device.index);
            if let Some(classifier) = self.classifier.as_mut().filter(|_| !renamed) {
                classifier.detach(&mut self.netlink, &device)?;
            }
            tenants.remove(&device);
            changes += 1;
        }
        Ok(changes)
    }

    fn remove(&mut self, key: &PoolKey) -> Result<usize, PlaneError> {
        let Some(mut told) = self.pools.remove(key) else { return Ok(0) };
        let done = self.classify(&[], Framing::NONE, None, &mut told.tenants).and_then(|_| {
            if key.direction == Direction::GuestRx {
                return self.receive_no_more(&told);
            }
            if let Some(classifier) = &mut self.classifier {
                classifier.detach_uplink(&mut self.netlink, &told.uplink)?;
            }
            self.take_off(told.uplink.index)?;
            if told.stage.is_some() { self.stage_no_more(&told.uplink) } else { Ok(()) }
        });
        match done {
            Ok(()) => Ok(1),
            Err(error) => {
                self.pools.insert(key.clone(), told);
                Err(error.into())
            }
        }
    }

    /// Bytes that came in at its members' interfaces, by number, where what is asked for are limits alone.
    fn came_in(&self, key: &PoolKey) -> BTreeMap<u16, u64> {
        let (Some(told), Some(classifier)) = (self.pools.get(key).filter(|told| told.capped), &self.classifier) else {
            return BTreeMap::new();
        };
        let count =
            |(device, tenant): (&Device, &Tenant)| Some((tenant.number(), classifier.counts(device)?.wire_bytes));
        told.tenants.iter().filter_map(count).collect()
    }

    fn told(&mut self, key: &PoolKey) -> Result<&mut Told, PlaneError> {
        self.pools.get_mut(key).ok_or_else(|| PlaneError::NoPool(key.clone()))
    }
}

impl Plane for Linux {
    fn abilities(&self) -> Abilities {
        ENTRY.abilities
    }

    fn reconcile(&mut self, desired: &Desired) -> Result<usize, PlaneError> {
        self.begin_past(!desired.pools.is_empty())?;
        self.past.book.number(desired)?;
        self.listen(desired)?;
        let mut changes = 0;
        let gone: Vec<PoolKey> =
            self.pools.keys().filter(|key| !desired.pools.iter().any(|p| p.key == **key)).cloned().collect();
        for key in gone {
            changes += self.remove(&key)?;
        }
        for pool in &desired.pools {
            changes += self.pool(pool)?;
        }
        changes += self.settle()?;
        changes += self.cards(desired)?;
        self.taps.hold(desired)?;
        self.unsure.end();
        if desired.pools.is_empty() {
            self.past.book.end()?;
        }
        Ok(changes)
    }

    fn adjust(&mut self, pool: &PoolKey, limits: &InForce) -> Result<(), PlaneError> {
        let takeover = self.takeover;
        let told = self.told(pool)?;
        let mut hierarchy = told.hierarchy.clone();
        hierarchy.rate_bps = limits.stage.filter(|_| told.stage.is_some()).unwrap_or(limits.root);
        for (leaf, cap) in hierarchy.leaves.iter_mut().zip(&limits.caps) {
            match told.capped {
                true => leaf.cap(*cap, &ENTRY.abilities),
                false => leaf.ceil_bps = (*cap).max(leaf.rate_bps),
            }
        }
        if hierarchy != told.hierarchy {
            let (at, numbers) = (told.at.clone(), told.numbers.clone());
            put(&mut self.netlink, &self.past.book, &at, &hierarchy, &numbers, takeover)?;
            self.told(pool)?.hierarchy = hierarchy;
        }
        self.adjust_behind(pool, limits)
    }

    fn disturbed(&mut self) -> bool {
        self.is_disturbed()
    }

    fn still(&mut self, pool: &PoolKey) -> bool {
        self.is_still(pool)
    }

    fn counts(&mut self, pool: &PoolKey) -> Result<Vec<Count>, PlaneError> {
        if self.is_still(pool)
            && let Some(counted) = &self.told(pool)?.counted
        {
            return Ok(counted.counts.clone());
        }
        let began = self.hush(pool)?;
        let arrived = self.came_in(pool);
        let (flows, none) = (self.flows == Some(true), || PlaneError::NoPool(pool.clone()));
        let told = self.pools.get_mut(pool).ok_or_else(none)?;
        let mut all = flows::counted(&mut self.netlink, &told.at, &told.numbers)?;
        let at_uplink = match &told.stage {
            Some(_) => Some(flows::counted(&mut self.netlink, &told.uplink, &stage::numbers(flows)?)?),
            None => None,
        };
        if let Some(at_uplink) = at_uplink {
            told.count_behind(&mut all, &at_uplink);
        }
        let framing = told.compiled.framing;
        // A number that is given again counts anew.
        told.tallies.retain(|number, _| told.order.contains(number));
        let tallies = &mut told.tallies;
        let count = |number: &u16| {
            let (counts, tally) = (all.get(number).copied().unwrap_or_default(), tallies.entry(*number).or_default());
            Count {
                // The class counts frames without their framing.
                passed_bytes: framed(framing, counts.packets, counts.bytes),
                dropped_packets: tally.count(&counts),
                waiting_bytes: u64::from(counts.waiting_bytes),
                arrived_bytes: arrived.get(number).copied(),
            }
        };
        let counts: Vec<Count> = told.order.iter().map(count).collect();
        told.counted = Some(Counted::now(counts.clone(), began));
        Ok(counts)
    }

    fn purge(&mut self, pool: &PoolKey, member: usize) -> Result<(), PlaneError> {
        self.throw_away(pool, member)
    }

    fn behind(&mut self, pool: &PoolKey) -> Option<Behind> {
        Some(self.pools.get(pool)?.stage.as_ref()?.behind)
    }

    fn arrived(&mut self, pool: &PoolKey) -> Result<Option<u64>, PlaneError> {
        if pool.direction != Direction::GuestRx {
            return Ok(None);
        }
        let told = self.told(pool)?;
        let (index, framing) = (told.uplink.index, told.compiled.framing);
        let counted = links::received(&mut self.netlink, index)?;
        Ok(counted.map(|(packets, bytes)| framed(framing, packets, bytes)))
    }

    fn held(&mut self, interface: &Interface) -> Option<Result<u32, Arc<NotHeld>>> {
        Some(self.taps.seen(interface.index))
    }

    fn crowds(&self, pool: &PoolKey, seat: &Seated) -> Option<&'static str> {
        self.crowded(pool, seat)
    }

    fn carded(&mut self, pool: &PoolKey, function: u32) -> Option<Result<Count, Arc<NotHeld>>> {
        self.cards.carded(&mut self.netlink, pool, function)
    }

    fn undo(&mut self) -> Result<(), PlaneError> {
        // Nothing is held any more, in whatever way.
        self.past.held_by = None;
        self.begin_past(false)?;
        let taps = self.taps.undo();
        let mut done = Ok(0);
        while let (Ok(_), Some(key)) = (&done, self.pools.keys().next().cloned()) {
            done = self.remove(&key);
        }
        // Whatever that came to: what is left is found by looking.
        self.classifier = None;
        self.pools.clear();
        let (swept, cards) = (self.sweep(), self.cards_undo());
        done.and(swept.map_err(PlaneError::from)).and(cards.map(|()| 0).map_err(PlaneError::from))?;
        self.past.book.end()?;
        taps
    }

    fn inherits(&mut self) -> Result<bool, PlaneError> {
        Ok(self.pools.is_empty() && self.finds()?)
    }

    fn numbers(&self) -> crate::desired::Numbers {
        self.past.book.numbers()
    }

    fn notes(&self) -> Vec<String> {
        self.past.held_by.iter().chain(&self.past.notes).cloned().chain(self.no_flows()).collect()
    }
}

/// What frames that were counted without it take on the wire.
fn framed(framing: Framing, packets: u64, bytes: u64) -> u64 {
    let framed = bytes + packets * u64::from(framing.overhead_bytes);
    framed.max(packets * u64::from(framing.least_bytes))
}

/// The bytes of `aa:bb:cc:dd:ee:ff`.
fn address(mac: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = mac.split(':');
    for byte in &mut bytes {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}
