//! The plane: each pool's queues on its uplink or on an IFB, and the classifier at each member's interface and at the
//! uplink.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use vmio_model::policy::program::{Framing, Hierarchy, Program};
use vmio_model::policy::{Abilities, Direction, compile};

use super::classifier::{Classifier, Leave, Tenant};
use super::htb::{self, BuiltFlows, Cause, Numbers};
use super::netlink::events::Events;
use super::undo_log::PlaneLog;
use super::{Device, Error, Netlink, links};
use crate::desired::{Desired, DesiredMember, DesiredPool, GUESTS_NUMBER, HOST_NUMBER, PoolKey};
use crate::planes::{Entry, Observation, Options, Plane, PlaneError, Scope, Setting};

mod cards;
mod classify;
mod delay;
mod flows;
mod hold;
mod identity;
mod interrupted;
mod local;
mod moved;
mod observe;
mod others;
mod police;
mod queueless;
mod read_cache;
mod receive;
mod stage;
mod sweep;

use cards::Cards;
use delay::Meter;
use flows::{Tally, numbers};
use hold::Taps;
use interrupted::Interrupted;
use local::Local;
use others::Others;
use read_cache::{Counted, Unsure};
use stage::Stage;
use sweep::Past;

/// The entry of this plane in [`crate::planes::ALL`].
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
    /// Whether the kernel has fq_codel; None before it was asked.
    flows: Option<bool>,
    past: Past,
    pools: BTreeMap<PoolKey, InstalledPool>,
    /// What was built for flow classes, by the index of the interface with the queues.
    built: BTreeMap<u32, BuiltFlows>,
    /// Pools that were in force once.
    interrupted: BTreeMap<PoolKey, Interrupted>,
    /// When nothing was reported as changed last, or all was read back.
    seen: Instant,
    /// Changes of the pool that is being put in force which follow an address of the host: nobody meddled.
    followed: usize,
    taps: Taps,
    cards: Cards,
    /// The kernel's events about interfaces, qdiscs and filters; None before the first pool is in force.
    events: Option<Events>,
    unsure: Unsure,
    /// Names of the host's interfaces by index, as of the last reconciliation; updated by the kernel's events.
    there: BTreeMap<u32, String>,
    /// Indexes of further interfaces whose changes matter: bridges and the like above uplinks.
    beside: BTreeSet<u32>,
    /// Limits of other programs at the members' interfaces.
    others: Others,
    /// What measures how long packets wait.
    meter: Meter,
}

/// A pool that is in force, and what was installed for it.
#[derive(Debug)]
struct InstalledPool {
    uplink: Device,
    /// Where its queues are: the uplink, or an IFB.
    at: Device,
    /// The stage before the uplink, where the queues are on an IFB for what guests send.
    stage: Option<Stage>,
    /// Traffic of its members beside the uplink.
    local: Local,
    /// Whether it has no queues.
    queueless: bool,
    /// Its members.
    seats: Vec<DesiredMember>,
    /// Whether each member is held to a limit by itself, instead of by what others leave.
    capped: bool,
    /// As it was compiled.
    compiled: Hierarchy,
    /// As it is in force, with what the loop has set.
    hierarchy: Hierarchy,
    numbers: Numbers,
    /// Numbers of the members, in the program's order.
    order: Vec<u16>,
    /// Interfaces with the classifier attached, and their entry in it.
    tenants: BTreeMap<Device, Tenant>,
    /// Packets dropped, by the member's number.
    tallies: BTreeMap<u16, Tally>,
    /// Whether these were counted by the programs last, and not by its classes.
    by_programs: bool,
    /// The last counters; None since it was changed.
    counted: Option<Counted>,
}

impl Linux {
    /// Opens the plane in the thread's network namespace; changes nothing. With `takeover` a foreign qdisc on an uplink
    /// is replaced where it can be restored. Its programs end with the process.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub fn open(takeover: bool) -> Result<Linux, PlaneError> {
        Linux::with(&Options { takeover, ..Options::default() })
    }

    /// As [`Linux::open`]; with a ledger on disk, limits outlive the process.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket, or the ledger cannot be parsed.
    pub fn with(options: &Options) -> Result<Linux, PlaneError> {
        let netlink = Netlink::open()?;
        let past = Past::look(PlaneLog::here(&options.log)?, options.log.outlives());
        let taps = Taps::new(options.log.clone(), past.log.namespace());
        let (takeover, flows, pools) = (options.takeover, None, BTreeMap::new());
        let (built, events, there, beside, cards, interrupted, others, meter) = Default::default();
        let unsure = Unsure::new();
        Ok(Linux {
            netlink,
            classifier: None,
            takeover,
            flows,
            past,
            pools,
            built,
            interrupted,
            seen: Instant::now(),
            followed: 0,
            taps,
            cards,
            events,
            unsure,
            there,
            beside,
            others,
            meter,
        })
    }

    fn pool(&mut self, pool: &DesiredPool) -> Result<usize, PlaneError> {
        let (capped, compiled) = match &pool.compiled.program.program {
            Program::Hierarchy(compiled) => (false, compiled),
            Program::Limits(_) => (true, &compile::capped(&pool.pool, &ENTRY.abilities)),
        };
        if pool.key.direction == Direction::GuestRx {
            return self.receive(pool, capped, compiled);
        }
        let (uplink, hierarchy) = self.begin(pool, compiled)?;
        let takeover = self.may_take_over(&pool.key);
        let flows = self.flows()?;
        let numbers = numbers(&pool.seats, flows)?;
        self.count_before(pool, &hierarchy, &numbers);
        let (stage, mut changes) = self.stage(pool, &uplink, compiled, &hierarchy, &numbers)?;
        let (caps, capping) = self.caps(pool, &uplink, compiled.framing)?;
        changes += capping;
        let before = self.pools.remove(&pool.key);
        let had_none = before.as_ref().is_some_and(|installed| installed.queueless);
        let (mut tenants, mut tallies, by_programs, staged, mut local, counted) = before
            .map_or_else(Default::default, |i| (i.tenants, i.tallies, i.by_programs, i.stage, i.local, i.counted));
        let put = match &stage {
            Some(stage) => stage::numbers(flows)
                .and_then(|numbers| self.put(&uplink, &stage.at_uplink, &numbers, Cause::Policy, takeover)),
            None if pool.is_queueless() => Ok(htb::Applied { steps: Vec::new(), replaced: None }),
            None => self.put(&uplink, &hierarchy, &numbers, Cause::Policy, takeover),
        };
        let done = put.and_then(|applied| {
            changes += applied.steps.len();
            flows::begin_anew(&mut tallies, &applied.steps, |number| stage.is_none() || flows::behind(number));
            let through = stage.as_ref().map(|stage| stage.ifb.index);
            let leave = Leave {
                host: htb::classid(HOST_NUMBER),
                stage: through.map(|through| (htb::classid(GUESTS_NUMBER), through)),
                queueless: pool.is_queueless().then_some(compiled.framing),
            };
            if !pool.is_queueless() {
                changes += self.classify_at(&uplink, leave)?;
            }
            self.past.loaded(&mut self.classifier)?.own(&uplink, &identity::gateways(pool))?;
            let capped = caps.as_ref().map(|caps| caps.ifb.index);
            let lead = |seat: &DesiredMember| through.or(capped.filter(|_| seat.is_capped()));
            changes += self.police(&pool.seats, Direction::GuestTx, compiled.framing)?;
            changes += self.classify(&pool.seats, compiled.framing, &lead, &mut tenants)?;
            if pool.is_queueless() {
                // Each guest's bucket is in force before its class is not.
                changes += self.classify_at(&uplink, leave)? + self.remove_needless(&uplink)?;
            }
            if stage.is_none() && staged.is_some() {
                self.remove_stage(&uplink)?;
            }
            if caps.is_none() && local.caps.is_some() {
                self.remove_caps(&uplink)?;
            }
            Ok(())
        });
        let order: Vec<u16> = pool.seats.iter().map(|s| s.number).collect();
        // Recorded also after a failure, so that it can be removed.
        let stage = if done.is_err() { stage.or(staged) } else { stage };
        local.caps = if done.is_err() { caps.or(local.caps) } else { caps };
        let installed = InstalledPool {
            at: stage.as_ref().map_or_else(|| uplink.clone(), |stage| stage.ifb.clone()),
            uplink,
            stage,
            local,
            queueless: if done.is_ok() { pool.is_queueless() } else { had_none },
            seats: pool.seats.clone(),
            capped,
            compiled: compiled.clone(),
            hierarchy,
            numbers,
            tallies,
            by_programs,
            order,
            tenants,
            counted: counted.filter(|_| done.is_ok() && changes == 0),
        };
        let counts_otherwise = installed.by_programs != installed.queueless;
        self.pools.insert(pool.key.clone(), installed);
        done?;
        if counts_otherwise {
            self.count(&pool.key, true)?;
        }
        Ok(changes)
    }

    /// Finds a pool's uplink and the hierarchy to put in force: the compiled one, with the loop's limits if it is
    /// unchanged. Where another interface has the uplink's name now, the old one's pool is removed first.
    fn begin(&mut self, pool: &DesiredPool, compiled: &Hierarchy) -> Result<(Device, Hierarchy), PlaneError> {
        let key = &pool.key;
        let uplink = links::find(&mut self.netlink, &key.uplink)?;
        if self.pools.get(key).is_some_and(|installed| installed.uplink != uplink) {
            self.remove(key)?;
        }
        let same = |installed: &&InstalledPool| {
            installed.compiled == *compiled && installed.stage.is_some() == pool.is_staged()
        };
        let set = self.pools.get(key).filter(same);
        Ok((uplink, set.map_or_else(|| compiled.clone(), |installed| installed.hierarchy.clone())))
    }

    fn remove(&mut self, key: &PoolKey) -> Result<usize, PlaneError> {
        let Some(mut installed) = self.pools.remove(key) else { return Ok(0) };
        let done = self.classify(&[], Framing::NONE, &|_| None, &mut installed.tenants).and_then(|_| {
            if key.direction == Direction::GuestRx {
                return self.remove_receive(&installed);
            }
            if let Some(classifier) = &mut self.classifier {
                classifier.detach_uplink(&mut self.netlink, &installed.uplink)?;
                classifier.own(&installed.uplink, &BTreeSet::new())?;
            }
            self.remove_queues(installed.uplink.index)?;
            if installed.local.caps.is_some() {
                self.remove_caps(&installed.uplink)?;
            }
            if installed.stage.is_some() { self.remove_stage(&installed.uplink) } else { Ok(()) }
        });
        match done {
            Ok(()) => Ok(1),
            Err(error) => {
                self.pools.insert(key.clone(), installed);
                Err(error.into())
            }
        }
    }

    fn installed(&mut self, key: &PoolKey) -> Result<&mut InstalledPool, PlaneError> {
        self.pools.get_mut(key).ok_or_else(|| PlaneError::NoPool(key.clone()))
    }
}

impl Plane for Linux {
    fn abilities(&self) -> Abilities {
        ENTRY.abilities
    }

    fn reconcile(&mut self, desired: &Desired) -> Result<usize, PlaneError> {
        self.begin_past(!desired.pools.is_empty())?;
        self.past.log.number(desired)?;
        let began = Instant::now();
        self.listen(desired)?;
        let mut changes = 0;
        let gone: Vec<PoolKey> =
            self.pools.keys().filter(|key| !desired.pools.iter().any(|p| p.key == **key)).cloned().collect();
        for key in gone {
            changes += self.remove(&key)?;
        }
        self.interrupted.retain(|key, _| desired.pools.iter().any(|p| p.key == *key));
        for pool in &desired.pools {
            changes += self.put_in_force(pool, desired.on_conflict)?;
        }
        changes += self.settle()?;
        self.forget_built();
        changes += self.cards(desired)?;
        self.taps.hold(desired)?;
        self.measure(desired);
        self.look_for_others(desired);
        self.unsure.end();
        if desired.pools.is_empty() {
            self.past.log.end()?;
        }
        self.seen = began;
        Ok(changes)
    }

    fn set(&mut self, pool: &PoolKey, setting: Setting<'_>) -> Result<(), PlaneError> {
        if self.is_interrupted(pool) {
            return Ok(());
        }
        match setting {
            Setting::Limits(limits) => self.adjust(pool, limits),
            Setting::Emptied(member) => self.throw_away(pool, member),
        }
    }

    fn observe(&mut self, scope: Scope<'_>) -> Result<Observation, PlaneError> {
        match scope {
            Scope::Earlier => Ok(Observation {
                inherits: self.pools.is_empty() && self.finds()?,
                numbers: self.past.log.numbers(),
                ..Observation::default()
            }),
            Scope::Plane => {
                let past = self.past.held_by.iter().chain(&self.past.notes).cloned();
                let notes = past.chain(self.no_flows()).chain(self.others.notes()).chain(self.not_measured()).collect();
                Ok(Observation { notes, ..Observation::default() })
            }
            Scope::Disturbed => {
                let began = Instant::now();
                let undisturbed = !self.is_disturbed();
                if undisturbed {
                    self.seen = began;
                }
                Ok(Observation { undisturbed, ..Observation::default() })
            }
            Scope::Counts(pool) => self.counted(pool),
            Scope::Pool(pool) => {
                if let Some(interrupted) = self.interrupted_now(pool) {
                    // Limits in cards stay in force.
                    let cards = self.cards.counted(&mut self.netlink, pool);
                    return Ok(Observation { cards, ..interrupted });
                }
                let counted = self.counted(pool)?;
                Ok(Observation {
                    queues: self.queues(pool),
                    local: self.local(pool, &counted.counts)?,
                    flows: self.flow_counts(pool)?,
                    delays: self.delays(pool, &counted.counts),
                    arrived_bytes: self.arrived(pool)?,
                    cards: self.cards.counted(&mut self.netlink, pool),
                    ..counted
                })
            }
        }
    }

    fn undo(&mut self) -> Result<(), PlaneError> {
        self.past.held_by = None;
        self.begin_past(false)?;
        let taps = self.taps.undo();
        let mut done = Ok(0);
        while let (Ok(_), Some(key)) = (&done, self.pools.keys().next().cloned()) {
            done = self.remove(&key);
        }
        // Also after a failure: the sweep finds what is left.
        (self.classifier, self.meter) = (None, Meter::Off);
        self.pools.clear();
        let (swept, cards) = (self.sweep(), self.cards_undo());
        done.and(swept.map_err(PlaneError::from)).and(cards.map(|()| 0).map_err(PlaneError::from))?;
        self.past.log.end()?;
        taps
    }
}
