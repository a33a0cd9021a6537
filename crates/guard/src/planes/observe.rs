//! A plane that enforces nothing: it reads the counters of links, to show what a policy would have to limit before it
//! is put in force. It changes nothing and needs no privilege.
//!
//! What a guest sends is what its interface receives. Traffic of an uplink that is in no class counts as `host`'s.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use vmio_model::policy::{Abilities, Direction};
use vmio_node::linux::net;
use vmio_node::{Local, Reader};

use super::linux::Linux;
use super::{Count, Entry, Observation, Options, Plane, PlaneError, Scope, Setting};
use crate::desired::{Desired, HOST_NUMBER, PoolKey};

/// Its name.
pub const NAME: &str = "observe";
/// How long counters that were read serve for all pools.
const FRESH: Duration = Duration::from_millis(20);

/// Its entry. Its abilities are such that no pool needs the control loop.
pub const ENTRY: Entry = Entry {
    about: "nothing: it reads the counters of links and changes nothing",
    abilities: Abilities { plane: NAME, hard: true, over_max: true, ..Abilities::HTB },
    changes: false,
    open: |options| Ok(Box::new(Observe::open(options))),
};

/// Counters of a link: received and sent bytes.
pub type Bytes = (u64, u64);

/// Counters of all links of the thread's network namespace, by name.
///
/// # Errors
/// When the file cannot be read.
pub fn links() -> Result<BTreeMap<String, Bytes>, PlaneError> {
    let text = Local::new().read_text(net::thread_traffic_file())?;
    Ok(net::traffic(&text).map(|(name, received, sent)| (name.to_owned(), (received.bytes, sent.bytes))).collect())
}

/// Bytes of an uplink in a direction as seen from the guests.
fn of_uplink((received, sent): Bytes, direction: Direction) -> u64 {
    match direction {
        Direction::GuestTx => sent,
        Direction::GuestRx => received,
    }
}

/// As [`of_uplink`], of a guest's interface: the host receives what the guest sends.
pub fn of_guest((received, sent): Bytes, direction: Direction) -> u64 {
    of_uplink((sent, received), direction)
}

/// The plane.
#[derive(Debug)]
pub struct Observe {
    options: Options,
    pools: BTreeMap<PoolKey, Watched>,
    read: Option<(Instant, BTreeMap<String, Bytes>)>,
    /// Whether an earlier guard's limits are in force; they stay.
    limited: bool,
}

/// A pool that is watched.
#[derive(Debug, Default)]
struct Watched {
    /// Number and interface of each member, in the program's order.
    members: Vec<(u16, Option<String>)>,
    /// Last counters of the uplink, and of each interface by name.
    last: Option<(u64, BTreeMap<String, u64>)>,
    /// Bytes of each interface, and of the rest, since the start.
    counted: BTreeMap<String, u64>,
    rest: u64,
}

impl Observe {
    fn open(options: Options) -> Observe {
        // Without a ledger on disk there was no earlier guard.
        let earlier_limits = || Linux::with(&options).and_then(|mut linux| linux.observe(Scope::Earlier));
        let limited = options.log.outlives() && earlier_limits().is_ok_and(|earlier| earlier.inherits);
        Observe { options, pools: BTreeMap::new(), read: None, limited }
    }

    fn read(&mut self) -> Result<&BTreeMap<String, Bytes>, PlaneError> {
        let fresh = self.read.take().filter(|(at, _)| at.elapsed() < FRESH);
        let read = match fresh {
            Some(read) => read,
            None => (Instant::now(), links()?),
        };
        Ok(&self.read.insert(read).1)
    }

    /// Explains the counters.
    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "nothing is enforced: these are counters of links. `host` is all traffic of an uplink that is in no \
             class; traffic between guests of this host counts at their interfaces"
                .to_owned(),
        ];
        let uplinks: BTreeSet<&String> = self.pools.keys().map(|key| &key.uplink).collect();
        if let Some((_, links)) = &self.read {
            let gone = uplinks.into_iter().filter(|uplink| !links.contains_key(*uplink));
            notes.extend(gone.map(|uplink| format!("{uplink}: no such interface; see: ip link")));
        }
        if self.limited {
            notes.push(
                "limits of an earlier guard are in force: guests show only what those let pass; `vmio guard undo` \
                 removes them"
                    .to_owned(),
            );
        }
        notes
    }
}

impl Watched {
    /// Adds the traffic since the last call, where counters did not start again at zero; returns the sums by member.
    fn count(&mut self, key: &PoolKey, links: &BTreeMap<String, Bytes>) -> Vec<Count> {
        let uplink = links.get(&key.uplink).map_or(0, |bytes| of_uplink(*bytes, key.direction));
        let of = |name: &String| Some((name.clone(), of_guest(*links.get(name)?, key.direction)));
        let now: BTreeMap<String, u64> = self.members.iter().filter_map(|(_, name)| of(name.as_ref()?)).collect();
        if let Some((before, all)) = &self.last {
            let mut guests = 0u64;
            for (name, bytes) in &now {
                let passed = all.get(name).and_then(|before| bytes.checked_sub(*before)).unwrap_or(0);
                *self.counted.entry(name.clone()).or_default() += passed;
                guests += passed;
            }
            self.rest += uplink.saturating_sub(*before).saturating_sub(guests);
        }
        self.counted.retain(|name, _| now.contains_key(name));
        self.last = Some((uplink, now));
        let bytes = |(number, name): &(u16, Option<String>)| match name {
            Some(name) => self.counted.get(name).copied().unwrap_or(0),
            None if *number == HOST_NUMBER => self.rest,
            None => 0,
        };
        self.members.iter().map(|member| Count { passed_bytes: bytes(member), ..Count::default() }).collect()
    }
}

impl Plane for Observe {
    fn abilities(&self) -> Abilities {
        ENTRY.abilities
    }

    fn reconcile(&mut self, desired: &Desired) -> Result<usize, PlaneError> {
        self.pools.retain(|key, _| desired.pools.iter().any(|pool| pool.key == *key));
        for pool in &desired.pools {
            let name = |seat: &crate::desired::DesiredMember| Some(seat.interface.as_ref()?.name.clone());
            let members = pool.seats.iter().map(|seat| (seat.number, name(seat))).collect();
            self.pools.entry(pool.key.clone()).or_default().members = members;
        }
        Ok(0)
    }

    fn set(&mut self, pool: &PoolKey, setting: Setting<'_>) -> Result<(), PlaneError> {
        match setting {
            Setting::Limits(_) => Err(PlaneError::HoldsNothing(pool.clone())),
            Setting::Emptied(_) => Ok(()),
        }
    }

    fn observe(&mut self, scope: Scope<'_>) -> Result<Observation, PlaneError> {
        let (Scope::Counts(pool) | Scope::Pool(pool)) = scope else {
            return Ok(Observation { notes: self.notes(), ..Observation::default() });
        };
        self.read()?;
        let links = self.read.as_ref().map(|(_, links)| links);
        match (self.pools.get_mut(pool), links) {
            (Some(watched), Some(links)) => {
                Ok(Observation { counts: watched.count(pool, links).into(), ..Observation::default() })
            }
            _ => Err(PlaneError::NoPool(pool.clone())),
        }
    }

    fn undo(&mut self) -> Result<(), PlaneError> {
        // It has no limits of its own; an earlier guard's are removed.
        if self.limited { Linux::with(&self.options)?.undo() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn links(all: &[(&str, Bytes)]) -> BTreeMap<String, Bytes> {
        all.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect()
    }

    #[test]
    fn counters_by_member() {
        let key = |direction| PoolKey { uplink: "eth0".into(), direction };
        let members =
            vec![(HOST_NUMBER, None), (16, Some("tap1".to_owned())), (17, Some("tap2".to_owned())), (3, None)];
        let (mut sent, mut received) = (Watched { members, ..Watched::default() }, Watched::default());
        received.members.clone_from(&sent.members);
        let mut count = |all: &[(&str, Bytes)]| {
            let bytes = |counts: Vec<Count>| counts.iter().map(|c| c.passed_bytes).collect::<Vec<u64>>();
            let links = links(all);
            (
                bytes(sent.count(&key(Direction::GuestTx), &links)),
                bytes(received.count(&key(Direction::GuestRx), &links)),
            )
        };
        let first = count(&[("eth0", (1000, 5000)), ("tap1", (70, 80)), ("tap2", (0, 0))]);
        assert_eq!(first, (vec![0; 4], vec![0; 4]), "what passed before is not known");
        let second = count(&[("eth0", (1300, 5900)), ("tap1", (570, 180)), ("tap2", (100, 0))]);
        assert_eq!(second, (vec![300, 500, 100, 0], vec![200, 100, 0, 0]));
        // tap1 was made anew and counts from 0; tap2 is gone.
        let third = count(&[("eth0", (1300, 6000)), ("tap1", (10, 0))]);
        assert_eq!(third, (vec![400, 500, 0, 0], vec![200, 100, 0, 0]));
        let fourth = count(&[("eth0", (1300, 6000)), ("tap1", (60, 0))]);
        assert_eq!(fourth.0, [400, 550, 0, 0], "between guests: nothing of it leaves by the uplink");
    }
}
