//! Token buckets before a member's queue, of maxima above which is dropped.

use super::{burst, bytes_in};
use crate::policy::Abilities;
use crate::policy::excess::Excess;
use crate::policy::policer::{Policer, Policers};
use crate::policy::pool::PoolMember;
use crate::rate::BitRate;

/// Those of a member; `None` where it has none.
pub fn policers(member: &PoolMember, plane: &Abilities) -> Option<Policers> {
    let own = policer(member.excess, member.contract.max, plane);
    let mut flows: Vec<_> = member
        .flows
        .iter()
        .map(|f| (f.matcher.clone(), policer(f.excess, f.max.unwrap_or(BitRate::MAX), plane)))
        .collect();
    let last = flows.iter().rposition(|(_, policer)| policer.is_some()).map_or(0, |at| at + 1);
    flows.truncate(last);
    (own.is_some() || !flows.is_empty()).then_some(Policers { own, flows })
}

/// In the plane's units, as the ceiling of a queue: so the queue behind never waits for its own.
pub(super) fn policer(excess: Excess, max: BitRate, plane: &Abilities) -> Option<Policer> {
    let Excess::Drop(written) = excess else { return None };
    let rate_bps = max.min(plane.most_bps).rounded_down(plane.step_bps).max(plane.least_bps);
    let burst_bytes = written.map_or_else(|| burst(rate_bps, plane), |time| bytes_in(time, rate_bps).max(1));
    Some(Policer { rate_bps, burst_bytes })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::policy::compile::{compile, policers};
    use crate::policy::pool::Pool;
    use crate::policy::program::Program;
    use crate::policy::{Abilities, Direction, Kind, Links, Policy};
    use crate::rate::MBIT as M;

    const TEXT: &str = "\
[uplink.eth0]
capacity = \"1Gbit\"
[class.gold]
min = \"20Mbit\"
max = \"40Mbit\"
excess = \"drop\"
burst = \"100ms\"
[[class.gold.flow]]
name = \"web\"
match = { ports = [80] }
max = \"9Mbit\"
[[class.gold.flow]]
name = \"dns\"
match = { ports = [53] }
max = \"8Mbit\"
excess = \"drop\"
[[class.gold.flow]]
name = \"last\"
match = { dscp = 1 }
[[interface]]
match = { name = \"tap1\" }
class = \"gold\"
";

    #[test]
    fn a_bucket_is_before_a_queue_that_never_waits_for_its_own_ceiling() {
        let policy = Policy::read(&[("guard.toml", TEXT)], &Links::default()).unwrap().policy;
        let entry = policy.find(Kind::Name, "tap1").unwrap();
        let pool = Pool::of(&policy, "eth0", Direction::GuestTx, [("tap1", entry)]).unwrap();
        let all = policers(&pool.seats[1], &Abilities::HTB).unwrap();
        let own = all.own.unwrap();
        assert_eq!((own.rate_bps, own.burst_bytes), (40 * M, 500_000));
        // Those that come first count, too: a packet belongs to the first that it matches.
        let flows: Vec<_> = all.flows.iter().map(|(_, policer)| policer.map(|p| (p.rate_bps, p.burst_bytes))).collect();
        assert_eq!(flows, [None, Some((8 * M, 131_072))]);
        assert_eq!(policers(&pool.seats[0], &Abilities::HTB), None, "the host has none");
        let Program::Hierarchy(hierarchy) = compile(&pool, &Abilities::HTB).unwrap().program.program else { panic!() };
        let leaf = &hierarchy.leaves[1];
        assert_eq!((leaf.ceil_bps, leaf.burst_bytes, leaf.policed_bytes), (40 * M, 131_072, 500_000));
        let ceilings: Vec<_> = leaf.flows.iter().map(|flow| flow.ceil_bps).collect();
        let open = Abilities::HTB.most_bps;
        assert_eq!(ceilings, [9 * M, open, open, open]);
    }
}
