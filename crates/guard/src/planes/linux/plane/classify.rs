//! Keeps the classifier attached at the members' interfaces and at the uplink.

use std::collections::{BTreeMap, BTreeSet};

use vmio_model::policy::program::Framing;

use super::super::classifier::{Leave, Tenant};
use super::super::{Device, Error, htb, links};
use super::{Linux, identity, police};
use crate::desired::DesiredMember;

impl Linux {
    /// Attaches the classifier at the members' interfaces, with a redirect through its IFB, if any, and detaches
    /// it from the other interfaces in `tenants`. Returns the number of changes.
    pub(super) fn classify(
        &mut self,
        seats: &[DesiredMember],
        framing: Framing,
        through: &dyn Fn(&DesiredMember) -> Option<u32>,
        tenants: &mut BTreeMap<Device, Tenant>,
    ) -> Result<usize, Error> {
        let mut changes = 0;
        let mut there = BTreeSet::new();
        for (seat, interface) in seats.iter().filter_map(|s| Some((s, s.interface.as_ref()?))) {
            // It is gone; the next list of interfaces will lack it.
            if self.there.get(&interface.index) != Some(&interface.name) {
                continue;
            }
            let device = Device { index: interface.index, name: interface.name.clone() };
            let tenant = Tenant {
                class: htb::classid(seat.number),
                address: identity::only_address(seat),
                redirect: through(seat),
                framing,
                checks: identity::checks(seat),
                policed: police::place(seat, through(seat).is_some()),
            };
            let (classifier, owned) = (self.past.loaded(&mut self.classifier)?, identity::owned(seat));
            // Where these were all its addresses, the tenant that says so is replaced first.
            if !owned.is_empty() || tenants.get(&device) == Some(&tenant) {
                classifier.own(&device, &owned)?;
            }
            if tenants.get(&device) == Some(&tenant) && classifier.is_kept(&device, !self.unsure.of(device.index)) {
                there.insert(device);
                continue;
            }
            if let Err(error) = classifier.attach(&mut self.netlink, &device, &tenant) {
                // The interface may be gone.
                if links::look(&mut self.netlink, &device.name)?.is_none_or(|link| link.device != device) {
                    classifier.own(&device, &BTreeSet::new())?;
                    self.there.remove(&device.index);
                    continue;
                }
                return Err(error);
            }
            classifier.own(&device, &owned)?;
            tenants.insert(device.clone(), tenant);
            there.insert(device);
            changes += 1;
        }
        let gone: Vec<Device> = tenants.keys().filter(|device| !there.contains(device)).cloned().collect();
        for device in gone {
            // A renamed interface keeps its classifier.
            let renamed = there.iter().any(|now| now.index == device.index);
            if let Some(classifier) = self.classifier.as_mut().filter(|_| !renamed) {
                classifier.detach(&mut self.netlink, &device)?;
                classifier.own(&device, &BTreeSet::new())?;
            }
            tenants.remove(&device);
            // That an interface is gone is no change of what is in force.
            changes += usize::from(self.there.get(&device.index) == Some(&device.name));
        }
        Ok(changes)
    }

    /// Sets the classes of packets that leave by an uplink. Returns the number of changes.
    pub(super) fn classify_at(&mut self, uplink: &Device, leave: Leave) -> Result<usize, Error> {
        let classifier = self.past.loaded(&mut self.classifier)?;
        Ok(usize::from(classifier.attach_uplink(&mut self.netlink, uplink, leave)?))
    }
}
