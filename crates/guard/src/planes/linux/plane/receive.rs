//! Pools of received traffic: all packets that arrive at the uplink are redirected through an IFB with the pool's
//! queues.

use std::collections::BTreeMap;

use vmio_model::policy::Direction;
use vmio_model::policy::program::Hierarchy;

use super::super::classifier::Receive;
use super::super::htb::Cause;
use super::super::{Device, Error, htb, ifb, links};
use super::identity::address;
use super::{InstalledPool, Linux, flows, numbers};
use crate::desired::{DEFAULT_NUMBER, DesiredMember, DesiredPool, HOST_NUMBER};
use crate::planes::PlaneError;

impl Linux {
    pub(super) fn receive(
        &mut self,
        pool: &DesiredPool,
        capped: bool,
        compiled: &Hierarchy,
    ) -> Result<usize, PlaneError> {
        let (uplink, hierarchy) = self.begin(pool, compiled)?;
        let takeover = self.may_take_over(&pool.key);
        let numbers = numbers(&pool.seats, false)?;
        let sent = self.netlink.changes();
        let what = format!("what guests receive from {uplink}");
        let at = ifb::make(&mut self.netlink, &ifb::name("rx", &uplink), &what, ifb::QUEUE_PACKETS)?;
        let made = usize::from(self.netlink.changes() != sent);
        self.count_before(pool, &hierarchy, &numbers);
        let counted = self.pools.get_mut(&pool.key).and_then(|installed| installed.counted.take());
        // Recorded before the rest, so that it can be removed after a failure.
        let order: Vec<u16> = pool.seats.iter().map(|s| s.number).collect();
        let installed = InstalledPool {
            uplink: uplink.clone(),
            at: at.clone(),
            stage: None,
            local: self
                .pools
                .get_mut(&pool.key)
                .map(|installed| std::mem::take(&mut installed.local))
                .unwrap_or_default(),
            queueless: false,
            seats: pool.seats.clone(),
            capped,
            compiled: compiled.clone(),
            hierarchy: hierarchy.clone(),
            numbers: numbers.clone(),
            tallies: self.pools.get(&pool.key).map(|installed| installed.tallies.clone()).unwrap_or_default(),
            by_programs: false,
            order,
            tenants: BTreeMap::new(),
            counted: None,
        };
        self.pools.insert(pool.key.clone(), installed);
        let applied = self.put(&at, &hierarchy, &numbers, Cause::Policy, takeover)?;
        flows::begin_anew(&mut self.installed(&pool.key)?.tallies, &applied.steps, |_| true);
        let policed = self.police(&pool.seats, Direction::GuestRx, compiled.framing)?;
        let receive = Receive {
            host: htb::classid(HOST_NUMBER),
            other: htb::classid(DEFAULT_NUMBER),
            through: at.index,
            classes: classes(&pool.seats, &self.own_addresses(&uplink)?),
        };
        let classifier = self.past.loaded(&mut self.classifier)?;
        self.followed += usize::from(classifier.receives_otherwise(&uplink, &receive));
        let led = classifier.attach_receive(&mut self.netlink, &uplink, &receive)?;
        let changes = made + applied.steps.len() + policed + usize::from(led);
        if changes == 0 {
            self.installed(&pool.key)?.counted = counted;
        }
        Ok(changes)
    }

    /// Removes the program and the IFB, if they exist.
    pub(super) fn remove_receive(&mut self, installed: &InstalledPool) -> Result<(), Error> {
        if let Some(classifier) = &mut self.classifier {
            classifier.detach_receive(&mut self.netlink, &installed.uplink)?;
        }
        self.past.log.strike_replaced(installed.at.index)?;
        ifb::remove_ours(&mut self.netlink, &installed.at.name)
    }

    /// Addresses of the uplink, and of the bridge, bond or switch that it is a port of.
    fn own_addresses(&mut self, uplink: &Device) -> Result<Vec<[u8; 6]>, Error> {
        let Some(link) = links::look(&mut self.netlink, &uplink.name)? else { return Ok(Vec::new()) };
        self.beside.extend(link.master);
        let master = match link.master {
            Some(index) => links::by_index(&mut self.netlink, index)?,
            None => None,
        };
        Ok(link.address.into_iter().chain(master.and_then(|m| m.address)).collect())
    }
}

/// Class by destination address. Where two members have an address, the host or the first one gets it.
fn classes(seats: &[DesiredMember], own: &[[u8; 6]]) -> BTreeMap<[u8; 6], u32> {
    let mut classes: BTreeMap<[u8; 6], u32> = own.iter().map(|mac| (*mac, htb::classid(HOST_NUMBER))).collect();
    for (seat, interface) in seats.iter().filter_map(|s| Some((s, s.interface.as_ref()?))) {
        // A multicast address is no member's.
        for mac in interface.macs.iter().filter_map(|mac| address(mac)).filter(|mac| mac[0] & 1 == 0) {
            classes.entry(mac).or_insert(htb::classid(seat.number));
        }
    }
    classes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_model::policy::assign::Interface;
    use vmio_model::policy::pool::MemberKind;

    fn seat(number: u16, macs: &[&str]) -> DesiredMember {
        let macs = macs.iter().map(|m| (*m).to_owned()).collect();
        let interface = Interface { index: u32::from(number), macs, ..Interface::default() };
        DesiredMember {
            name: format!("t{number}"),
            who: MemberKind::Interface,
            class: "x".into(),
            number,
            interface: Some(interface),
            holding: None,
            pids: Vec::new(),
            is_bounded: false,
            local_max: None,
            policers: None,
            identity: crate::desired::Identity::default(),
        }
    }

    #[test]
    fn each_address_has_one_class() {
        let host = DesiredMember { interface: None, who: MemberKind::Host, ..seat(HOST_NUMBER, &[]) };
        let rest = DesiredMember { interface: None, who: MemberKind::Default, ..seat(DEFAULT_NUMBER, &[]) };
        let seats = [
            host,
            seat(16, &["02:00:00:00:01:01", "02:00:00:00:01:0A"]),
            // The host's, another's, a group's, and none.
            seat(17, &["02:00:00:00:00:01", "02:00:00:00:01:01", "ff:ff:ff:ff:ff:ff", "nonsense", "02:00:00:00:01:02"]),
            seat(18, &[]),
            rest,
        ];
        let found = classes(&seats, &[[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]]);
        let wanted = [
            ([2, 0, 0, 0, 0, 1], HOST_NUMBER),
            ([2, 0, 0, 0, 0, 2], HOST_NUMBER),
            ([2, 0, 0, 0, 1, 1], 16),
            ([2, 0, 0, 0, 1, 2], 17),
            ([2, 0, 0, 0, 1, 10], 16),
        ];
        assert_eq!(found, wanted.map(|(mac, number)| (mac, htb::classid(number))).into());
    }
}
