//! Limits of other programs at members' interfaces, by the interface's own qdisc (`tc qdisc add dev tap7 root tbf …`):
//! it limits what the guest receives, behind the guard's queues, which see nothing of it. The kernel names the kind
//! with each interface (IFLA_QDISC), so the qdiscs are listed only where one of a kind that limits appears or may have
//! changed.

use std::collections::{BTreeMap, BTreeSet};

use vmio_model::policy::Direction;
use vmio_model::rate::ByteRate;
use vmio_model::words::first_of;
use vmio_node::netlink::tc::{self, Limit};

use super::super::links::Link;
use super::super::{Error, htb};
use super::Linux;
use crate::desired::Desired;
use crate::planes::OtherLimit;

/// Kinds of qdiscs that may limit all of an interface's packets.
const KINDS: &[&str] = &["tbf", "cake", "netem", "htb", "hfsc"];
/// Interfaces that a note names.
const NAMED: usize = 8;

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// Interfaces with a qdisc of such a kind, by index.
    suspects: BTreeSet<u32>,
    /// Those that were read, and cannot have changed since.
    read: BTreeSet<u32>,
    limits: BTreeMap<u32, OtherLimit>,
    /// Members that are limited in a direction in which the policy has no class for them.
    beside: Vec<String>,
}

impl Others {
    /// All interfaces, as they were listed.
    pub(super) fn listed(&mut self, all: &[Link]) {
        self.suspects = all.iter().filter(|link| may_limit(link)).map(|link| link.device.index).collect();
        self.read.clear();
    }

    /// An interface that was reported as changed, as it is now; `None` of one that is gone.
    pub(super) fn changed(&mut self, index: u32, link: Option<&Link>) {
        self.read.remove(&index);
        if link.is_some_and(may_limit) {
            self.suspects.insert(index);
        } else {
            self.suspects.remove(&index);
        }
    }

    /// The limit at an interface, by its index.
    pub(super) fn at(&self, index: u32) -> Option<&OtherLimit> {
        self.limits.get(&index)
    }

    /// A note on those beside which the guard holds nothing.
    pub(super) fn notes(&self) -> Option<String> {
        (!self.beside.is_empty()).then(|| {
            format!(
                "limits of other programs on what guests receive, for which the policy has no class for them: {}",
                first_of(&self.beside, NAMED)
            )
        })
    }
}

fn may_limit(link: &Link) -> bool {
    KINDS.contains(&link.qdisc.as_str())
}

impl Linux {
    /// Reads the limits of others, where there may be some. Where they are not as before, pools are not either.
    pub(super) fn look_for_others(&mut self, desired: &Desired) {
        let before = self.others.limits.clone();
        // They are only told.
        let _ = self.read_others(desired);
        if self.others.limits != before {
            self.pools.values_mut().for_each(|installed| installed.counted = None);
        }
    }

    fn read_others(&mut self, desired: &Desired) -> Result<(), Error> {
        let seats = |received: bool| {
            let pools = desired.pools.iter().filter(move |p| !received || p.key.direction == Direction::GuestRx);
            pools.flat_map(|pool| &pool.seats).filter_map(|seat| seat.interface.as_ref())
        };
        let others = &mut self.others;
        let suspected = seats(false).filter(|i| others.suspects.contains(&i.index));
        let members: BTreeMap<u32, &String> = suspected.map(|i| (i.index, &i.name)).collect();
        let again: BTreeSet<u32> = members.keys().copied().filter(|index| !others.read.contains(index)).collect();
        others.limits.retain(|index, _| members.contains_key(index) && !again.contains(index));
        if !again.is_empty() {
            let limits = self.limits_at(&again)?;
            self.others.limits.extend(limits);
        }
        let others = &mut self.others;
        others.read = members.keys().copied().collect();
        let limits = &others.limits;
        let received: BTreeSet<u32> = seats(true).map(|i| i.index).filter(|index| limits.contains_key(index)).collect();
        let beside = limits.iter().filter(|(index, _)| !received.contains(*index));
        let shown = |(index, limit): (&u32, &OtherLimit)| {
            Some(format!("{} of {} at {}", limit.kind, limit.rate_bps, members.get(index)?))
        };
        others.beside = beside.filter_map(shown).collect();
        Ok(())
    }

    /// The limits at these interfaces. A list that the kernel cuts short (`htb::read`) lacks some until all
    /// interfaces are listed again.
    fn limits_at(&mut self, at: &BTreeSet<u32>) -> Result<BTreeMap<u32, OtherLimit>, Error> {
        let all = self.netlink.dump("list qdiscs", &tc::all_qdiscs(), |m| tc::qdisc(m).map(Some))?;
        let is_others = |q: &tc::Qdisc| q.parent == tc::AT_ROOT && !htb::is_ours(q.handle, &q.kind);
        let mut limits = BTreeMap::new();
        for root in all.into_iter().filter(|q| at.contains(&q.index) && is_others(q)) {
            let limit = match (root.limit, root.default_class) {
                (None, default) if default != 0 => self.class_limit(root.index, default)?,
                (limit, _) => limit,
            };
            if let Some(limit) = limit {
                let rate_bps = ByteRate::new(limit.bytes_per_second).bits();
                limits.insert(root.index, OtherLimit { kind: root.kind, rate_bps });
            }
        }
        Ok(limits)
    }

    /// What the class of unclassified packets lets through.
    fn class_limit(&mut self, index: u32, class: u32) -> Result<Option<Limit>, Error> {
        let classes = self.netlink.dump("list classes", &tc::classes_of(index), tc::class)?;
        Ok(tc::least(&classes, class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planes::linux::Device;

    #[test]
    fn qdiscs_are_listed_only_where_one_may_limit() {
        let link = |index: u32, qdisc: &str| Link {
            device: Device { index, name: format!("tap{index}") },
            qdisc: qdisc.to_owned(),
            ..Link::default()
        };
        let mut others = Others::default();
        others.listed(&[link(1, "noqueue"), link(2, "tbf"), link(3, "fq_codel")]);
        let stale = |others: &mut Others| {
            let unread = others.suspects.difference(&others.read).copied().collect::<Vec<_>>();
            others.read.clone_from(&others.suspects);
            unread
        };
        assert_eq!(stale(&mut others), [2]);
        others.changed(3, Some(&link(3, "fq_codel")));
        assert!(stale(&mut others).is_empty());
        others.changed(3, Some(&link(3, "htb")));
        assert_eq!(stale(&mut others), [3]);
        // Its rate may be another now.
        others.changed(3, Some(&link(3, "htb")));
        others.changed(2, None);
        assert_eq!((stale(&mut others), others.suspects), (vec![3], BTreeSet::from([3])));
    }
}
