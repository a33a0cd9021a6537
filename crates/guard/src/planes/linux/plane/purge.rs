//! Throwing away what waits at a member.

use super::super::{counters, htb};
use super::Linux;
use crate::desired::PoolKey;
use crate::planes::PlaneError;

impl Linux {
    /// What waits at a member goes, and counts as dropped: HTB itself counts only what it had no room for.
    pub(super) fn throw_away(&mut self, pool: &PoolKey, member: usize) -> Result<(), PlaneError> {
        let told = self.told(pool)?;
        let none = || PlaneError(format!("{pool}: it has no member {member}"));
        let (number, leaf) = told.order.get(member).zip(told.hierarchy.leaves.get(member)).ok_or_else(none)?;
        let (number, bytes, at) = (*number, leaf.queue_bytes, told.at.clone());
        let waiting = counters::read(&mut self.netlink, &at)?.get(&number).map_or(0, |counts| counts.waiting_packets);
        htb::purge(&mut self.netlink, &at, number, bytes)?;
        let told = self.told(pool)?;
        told.tallies.entry(number).or_default().dropped += u64::from(waiting);
        told.counted = None;
        Ok(())
    }
}
