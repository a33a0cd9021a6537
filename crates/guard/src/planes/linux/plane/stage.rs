//! Pools of sent traffic whose queues must be before the uplink: the hierarchy is on an IFB through which the members'
//! packets are redirected, where each is still charged to its tap. The uplink has three leaves: `host`, `default`, and
//! one for all packets from the IFB, in which none should wait: the loop keeps the IFB's root rate at what the other
//! two leave (`vmio_model::control`).

use vmio_model::control::AppliedLimits;
use vmio_model::policy::pool::MemberKind;
use vmio_model::policy::program::{Hierarchy, Leaf};
use vmio_model::policy::{Direction, compile};
use vmio_model::rate::BitRate;

use super::super::htb::Cause;
use super::super::{Device, Error, counters, htb, ifb};
use super::{ENTRY, InstalledPool, Linux, flows};
use crate::desired::{DEFAULT_NUMBER, DesiredMember, DesiredPool, GUESTS_NUMBER, HOST_NUMBER, PoolKey};
use crate::planes::{PlaneError, StageBacklog};

/// Name of the uplink's leaf for what comes out of the IFB.
const GUESTS: &str = "guests";
/// Their own rate is at least this part of the uplink's, which is also the loop's least rate of the IFB.
const LEAST_PART: u64 = 50;

/// The stage of a pool that is in force.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    /// Where the pool's queues are.
    pub(super) ifb: Device,
    /// The hierarchy in force at the uplink instead, with one leaf for all guests.
    pub(super) at_uplink: Hierarchy,
    /// Dropped and waiting packets of the guests' leaf at the uplink.
    pub(super) backlog: StageBacklog,
    /// Packets dropped there, as the kernel counted them last.
    last_dropped: u32,
}

impl Linux {
    /// Makes the IFB of a staged pool, with its queues; `None` of others. Redirects nothing yet.
    pub(super) fn stage(
        &mut self,
        pool: &DesiredPool,
        uplink: &Device,
        compiled: &Hierarchy,
        hierarchy: &Hierarchy,
        numbers: &htb::Numbers,
    ) -> Result<(Option<Stage>, usize), PlaneError> {
        if !pool.is_staged() {
            return Ok((None, 0));
        }
        let before = self.pools.get(&pool.key);
        let same =
            before.filter(|installed| installed.compiled == *compiled).and_then(|installed| installed.stage.as_ref());
        let at_uplink = same.map_or_else(|| uplinks(compiled, &pool.seats), |stage| stage.at_uplink.clone());
        let counted = before.and_then(|installed| installed.stage.as_ref());
        let (backlog, last_dropped) = counted.map_or_else(Default::default, |s| (s.backlog, s.last_dropped));
        let (had, takeover) = (counted.is_some(), self.may_take_over(&pool.key));
        let (name, what) = (ifb::name("tx", uplink), format!("what guests send to {uplink}"));
        let (ifb, steps, made) = self.put_on_ifb(&name, &what, hierarchy, numbers, takeover, had)?;
        if let Some(installed) = self.pools.get_mut(&pool.key) {
            flows::begin_anew(&mut installed.tallies, &steps, |number| !flows::behind(number));
        }
        Ok((Some(Stage { ifb, at_uplink, backlog, last_dropped }), made + steps.len()))
    }

    /// Removes the IFB of an uplink, if it exists.
    pub(super) fn remove_stage(&mut self, uplink: &Device) -> Result<(), Error> {
        ifb::remove_ours(&mut self.netlink, &ifb::name("tx", uplink))
    }

    /// Sets the loop's limits of a pool.
    pub(super) fn adjust(&mut self, pool: &PoolKey, limits: &AppliedLimits) -> Result<(), PlaneError> {
        let installed = self.installed(pool)?;
        let mut hierarchy = installed.hierarchy.clone();
        hierarchy.rate_bps = limits.stage.filter(|_| installed.stage.is_some()).unwrap_or(limits.root);
        for (leaf, cap) in hierarchy.leaves.iter_mut().zip(&limits.caps) {
            if installed.capped { leaf.cap(*cap, &ENTRY.abilities) } else { leaf.ceil_bps = (*cap).max(leaf.rate_bps) }
        }
        if hierarchy != installed.hierarchy {
            let (at, numbers) = (installed.at.clone(), installed.numbers.clone());
            let applied = self.put(&at, &hierarchy, &numbers, Cause::Loop, false)?;
            let installed = self.installed(pool)?;
            let alone = installed.stage.is_none();
            flows::begin_anew(&mut installed.tallies, &applied.steps, |number| alone || !flows::behind(number));
            installed.hierarchy = hierarchy;
        }
        self.adjust_uplink(pool, limits)
    }

    /// Sets them at the uplink of a staged pool.
    fn adjust_uplink(&mut self, key: &PoolKey, limits: &AppliedLimits) -> Result<(), PlaneError> {
        let flows = self.flows()?;
        let installed = self.installed(key)?;
        let Some(stage) = &installed.stage else { return Ok(()) };
        // With the members' current rates, which the loop may have set.
        let now = Hierarchy { rate_bps: installed.compiled.rate_bps, ..installed.hierarchy.clone() };
        let mut hierarchy = uplinks(&now, &installed.seats);
        hierarchy.rate_bps = limits.root;
        // The first member is `host`, the last one `default`.
        let caps = [limits.caps.first(), None, limits.caps.last()];
        for (leaf, cap) in hierarchy.leaves.iter_mut().zip(caps) {
            let set = cap.filter(|_| !installed.capped);
            leaf.ceil_bps = set.map_or(leaf.ceil_bps, |cap| *cap).max(leaf.rate_bps);
        }
        if hierarchy == stage.at_uplink {
            return Ok(());
        }
        let uplink = installed.uplink.clone();
        let applied = self.put(&uplink, &hierarchy, &numbers(flows)?, Cause::Loop, false)?;
        let installed = self.installed(key)?;
        flows::begin_anew(&mut installed.tallies, &applied.steps, flows::behind);
        if let Some(stage) = &mut installed.stage {
            stage.at_uplink = hierarchy;
        }
        Ok(())
    }
}

impl InstalledPool {
    /// Replaces the IFB's counters of `host` and `default` by the uplink's, and updates the backlog.
    pub(super) fn count_backlog(
        &mut self,
        all: &mut std::collections::BTreeMap<u16, counters::Counts>,
        at_uplink: &std::collections::BTreeMap<u16, counters::Counts>,
    ) {
        let Some(stage) = &mut self.stage else { return };
        for number in [HOST_NUMBER, DEFAULT_NUMBER] {
            all.insert(number, at_uplink.get(&number).copied().unwrap_or_default());
        }
        let guests = at_uplink.get(&GUESTS_NUMBER).copied().unwrap_or_default();
        stage.backlog.waiting_bytes = u64::from(guests.waiting_bytes);
        stage.backlog.dropped_packets += u64::from(flows::since(stage.last_dropped, guests.dropped_packets));
        stage.last_dropped = guests.dropped_packets;
    }
}

/// Numbers of the uplink's three leaves.
pub(super) fn numbers(flows: bool) -> Result<htb::Numbers, Error> {
    let three = [(vmio_model::policy::HOST, HOST_NUMBER), (GUESTS, GUESTS_NUMBER), (htb::DEFAULT, DEFAULT_NUMBER)];
    let numbers = htb::Numbers::given(three.map(|(name, number)| (name.to_owned(), number)).into())?;
    Ok(numbers.with_flows_apart(flows::apart_behind(flows)))
}

/// The uplink's hierarchy of a staged pool: `host`, all guests as one, `default`. The guests' rate is their sum, and
/// their priority the highest of theirs, since the IFB passes no more than they are allowed.
fn uplinks(compiled: &Hierarchy, seats: &[DesiredMember]) -> Hierarchy {
    let of = |who: MemberKind| {
        let mut all = compiled.leaves.iter().zip(seats).filter(move |(_, seat)| seat.who == who);
        all.next().map(|(leaf, _)| leaf.clone())
    };
    let guests =
        || compiled.leaves.iter().zip(seats).filter(|(_, s)| s.who == MemberKind::Interface).map(|(leaf, _)| leaf);
    let (host, default) = (of(MemberKind::Host), of(MemberKind::Default));
    let others: BitRate = host.iter().chain(&default).map(|leaf| leaf.rate_bps).sum();
    let own: BitRate = guests().map(|leaf| leaf.rate_bps).sum();
    let least = (compiled.rate_bps / LEAST_PART).min(compiled.rate_bps.saturating_sub(others));
    let priority = guests().map(|leaf| leaf.priority).min().unwrap_or(0);
    let quantum: u64 = guests().filter(|l| l.priority == priority).map(|l| u64::from(l.quantum_bytes)).sum();
    let plane = &ENTRY.abilities;
    let most = guests().map(|leaf| leaf.queue_bytes).max().unwrap_or(0);
    let all = Leaf {
        name: GUESTS.to_owned(),
        rate_bps: own.max(least),
        ceil_bps: compiled.rate_bps.max(own),
        priority,
        // HTB's quantum is an int; larger turns than this have no use.
        quantum_bytes: u32::try_from(quantum).unwrap_or(u32::MAX).clamp(1, 1 << 26),
        burst_bytes: compiled.burst_bytes,
        policed_bytes: 0,
        // Room for what the IFB passes until the loop has noticed the host's demand, also where their queues are short.
        queue_bytes: most.saturating_mul(2).max(compile::queue(None, compiled.rate_bps, Direction::GuestTx, plane)),
        flows: Vec::new(),
    };
    Hierarchy { leaves: host.into_iter().chain([all]).chain(default).collect(), ..compiled.clone() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::desired::{Numbers, Strictness, desired};
    use crate::interface::DiscoveredInterface;
    use crate::testing::policy;
    use vmio_model::policy::Abilities;
    use vmio_model::policy::assign::Interface;
    use vmio_model::policy::program::Program;

    const POLICY: &str = "\
[uplink.eth0]
capacity = \"100Mbit\"
[class.gold]
priority = 2
min = \"30Mbit\"
[class.rest]
priority = 6
[[interface]]
match = { name = \"g*\" }
class = \"gold\"
[[interface]]
match = { name = \"r*\" }
class = \"rest\"
";

    fn at_uplink(names: &[&str]) -> Hierarchy {
        let there: Vec<DiscoveredInterface> = (1..)
            .zip(names)
            .map(|(index, name)| Interface { index, name: (*name).into(), ..Interface::default() }.into())
            .collect();
        let numbers = Numbers::default().of(there.iter().map(|f| &f.interface)).unwrap();
        let desired = desired(&policy(POLICY), &there, &numbers, &Abilities::HTB, Strictness::Policy).unwrap();
        let pool = &desired.pools[0];
        let Program::Hierarchy(compiled) = &pool.compiled.program.program else { panic!("a hierarchy") };
        uplinks(compiled, &pool.seats)
    }

    #[test]
    fn uplink_has_one_leaf_for_all_guests() {
        let uplink = at_uplink(&["g1", "g2", "r1"]);
        let names: Vec<&str> = uplink.leaves.iter().map(|leaf| leaf.name.as_str()).collect();
        assert_eq!(names, ["host", "guests", "default"]);
        let guests = &uplink.leaves[1];
        assert_eq!((guests.rate_bps.bits(), guests.ceil_bps.bits(), guests.priority), (60_008_000, 100_000_000, 1));
        assert_eq!(uplink.rate_bps.bits(), 100_000_000);
        assert!(uplink.leaves.iter().map(|leaf| leaf.rate_bps).sum::<BitRate>() <= uplink.rate_bps);
        // A little also without a minimum.
        assert_eq!(at_uplink(&["r1"]).leaves[1].rate_bps.bits(), 2_000_000);
        assert!(htb::Tree::wanted(&uplink, &numbers(true).unwrap()).is_ok());
    }
}
