//! Throwing away what waits at a member.

use super::super::htb;
use super::{Linux, flows};
use crate::desired::PoolKey;
use crate::planes::PlaneError;

impl Linux {
    /// What waits at a member goes, and counts as dropped: HTB itself counts only what it had no room for.
    pub(super) fn throw_away(&mut self, pool: &PoolKey, member: usize) -> Result<(), PlaneError> {
        let none = || PlaneError::NoMember { pool: pool.clone(), member };
        let told = self.pools.get_mut(pool).ok_or_else(none)?;
        let (number, leaf) = told.order.get(member).zip(told.hierarchy.leaves.get(member)).ok_or_else(none)?;
        let counts = flows::counted(&mut self.netlink, &told.at, &told.numbers)?;
        let counts = counts.get(number).copied().unwrap_or_default();
        htb::purge(&mut self.netlink, &told.at, *number, told.numbers.queue(*number, leaf.queue_bytes))?;
        let tally = told.tallies.entry(*number).or_default();
        tally.count(&counts);
        tally.throw_away(counts.waiting_packets);
        told.counted = None;
        Ok(())
    }
}
