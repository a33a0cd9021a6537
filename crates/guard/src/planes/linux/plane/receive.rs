//! What guests receive: all that arrives at an uplink is led through an IFB of ours, where the pool's queues are, and
//! goes on from there as it came.

use std::collections::BTreeMap;

use vmio_model::policy::program::Hierarchy;

use super::super::classifier::Receive;
use super::super::{Device, Error, htb, ifb, links};
use super::{InstalledPool, Linux, address, numbers, put};
use crate::desired::{DEFAULT_NUMBER, DesiredPool, HOST_NUMBER, Seated};
use crate::planes::PlaneError;

impl Linux {
    pub(super) fn receive(
        &mut self,
        pool: &DesiredPool,
        capped: bool,
        compiled: &Hierarchy,
    ) -> Result<usize, PlaneError> {
        let (uplink, hierarchy) = self.begin(pool, compiled)?;
        let numbers = numbers(&pool.seats, false)?;
        let sent = self.netlink.changes();
        let what = format!("what guests receive from {uplink}");
        let at = ifb::make(&mut self.netlink, &ifb::name("rx", &uplink), &what, ifb::QUEUE_PACKETS)?;
        let made = usize::from(self.netlink.changes() != sent);
        // What was reached is kept also when something fails: it is what there is to take off.
        let order: Vec<u16> = pool.seats.iter().map(|s| s.number).collect();
        let installed = InstalledPool {
            uplink: uplink.clone(),
            at: at.clone(),
            stage: None,
            seats: pool.seats.clone(),
            capped,
            compiled: compiled.clone(),
            hierarchy: hierarchy.clone(),
            numbers: numbers.clone(),
            tallies: self.pools.get(&pool.key).map(|installed| installed.tallies.clone()).unwrap_or_default(),
            order,
            tenants: BTreeMap::new(),
            counted: None,
        };
        self.pools.insert(pool.key.clone(), installed);
        let applied = put(&mut self.netlink, &self.past.log, &at, &hierarchy, &numbers, self.takeover)?;
        let receive = Receive {
            host: htb::classid(HOST_NUMBER),
            other: htb::classid(DEFAULT_NUMBER),
            through: at.index,
            classes: classes(&pool.seats, &self.own_addresses(&uplink)?),
        };
        let led = self.past.loaded(&mut self.classifier)?.attach_receive(&mut self.netlink, &uplink, &receive)?;
        Ok(made + applied.steps.len() + usize::from(led))
    }

    /// Takes it off; gone with its interface is as good.
    pub(super) fn receive_no_more(&mut self, installed: &InstalledPool) -> Result<(), Error> {
        if let Some(classifier) = &mut self.classifier {
            classifier.detach_receive(&mut self.netlink, &installed.uplink)?;
        }
        // With the IFB goes whatever hung there.
        self.past.log.is_back(installed.at.index)?;
        match ifb::remove(&mut self.netlink, &installed.at.name) {
            // Ours is gone, and another's has its name.
            Ok(_) | Err(Error::Foreign { .. }) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// The uplink's, and that of the bridge, bond or switch that it is a port of.
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

/// Classes by destination. What two claim is the host's own, or the first one's.
fn classes(seats: &[Seated], own: &[[u8; 6]]) -> BTreeMap<[u8; 6], u32> {
    let mut classes: BTreeMap<[u8; 6], u32> = own.iter().map(|mac| (*mac, htb::classid(HOST_NUMBER))).collect();
    for (seat, interface) in seats.iter().filter_map(|s| Some((s, s.interface.as_ref()?))) {
        // Groups are nobody's, whatever a guest calls itself.
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

    fn seat(number: u16, macs: &[&str]) -> Seated {
        let macs = macs.iter().map(|m| (*m).to_owned()).collect();
        let interface = Interface { index: u32::from(number), macs, ..Interface::default() };
        Seated {
            name: format!("t{number}"),
            who: MemberKind::Interface,
            class: "x".into(),
            number,
            interface: Some(interface),
            holding: None,
            pids: Vec::new(),
        }
    }

    #[test]
    fn each_address_has_one_class() {
        let host = Seated { interface: None, who: MemberKind::Host, ..seat(HOST_NUMBER, &[]) };
        let rest = Seated { interface: None, who: MemberKind::Default, ..seat(DEFAULT_NUMBER, &[]) };
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
