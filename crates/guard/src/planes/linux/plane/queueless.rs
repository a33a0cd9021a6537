//! Pools of sent traffic without queues: all that their policy asks for are maxima, by token buckets (`police.rs`). At
//! the uplink is no more than the program, which counts what leaves; its root qdisc is the kernel's or another
//! program's, as it was found.

use super::super::classifier::Tenant;
use super::super::counters::{ClassCounts, Counts};
use super::super::{Device, Error, htb};
use super::Linux;
use crate::desired::{DEFAULT_NUMBER, HOST_NUMBER, PoolKey};

impl Linux {
    /// Whether the pool in force has no queues.
    pub(super) fn has_no_queues(&self, key: &PoolKey) -> bool {
        self.pools.get(key).is_some_and(|installed| installed.queueless)
    }

    /// Removes queues of ours from an uplink that needs none, and puts back what was replaced for them; returns the
    /// number of changes.
    pub(super) fn remove_needless(&mut self, uplink: &Device) -> Result<usize, Error> {
        let ours = matches!(htb::read_leaves(&mut self.netlink, uplink)?, htb::Root::Ours(_));
        if !ours && self.past.log.replaced(uplink.index).is_none() {
            return Ok(0);
        }
        self.remove_queues(uplink.index).map(|_| 1)
    }

    /// What the programs have counted of a pool without queues, in place of its classes: bytes as the wire has them.
    pub(super) fn left(&self, key: &PoolKey) -> ClassCounts {
        let (Some(installed), Some(classifier)) = (self.pools.get(key), &self.classifier) else {
            return ClassCounts::default();
        };
        let sent =
            |(device, tenant): (&Device, &Tenant)| Some((tenant.number(), classifier.counts(device)?.left_bytes));
        let [host, others] = classifier.left(&installed.uplink).unwrap_or_default();
        let all = installed.tenants.iter().filter_map(sent).chain([(HOST_NUMBER, host), (DEFAULT_NUMBER, others)]);
        let leaves = all.map(|(number, bytes)| (number, Counts { bytes, ..Counts::default() })).collect();
        ClassCounts { leaves, ..ClassCounts::default() }
    }
}
