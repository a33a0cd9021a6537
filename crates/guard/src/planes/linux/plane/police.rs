//! Members whose excess is dropped: a token bucket in the program that runs for their packets anyway, in place of a
//! queue that they wait in. It is at the uplink, or at a guest's own interface where its maximum holds for all that it
//! sends.

use std::collections::BTreeMap;

use vmio_model::policy::Direction;
use vmio_model::policy::program::Framing;

use super::super::classifier::PolicedAt;
use super::super::{Device, Error};
use super::Linux;
use crate::desired::{DesiredMember, PoolKey};

/// Where what a member sends meets its bucket. Whatever is led through an IFB behind the interface waits there.
pub(super) fn place(seat: &DesiredMember, led: bool) -> Option<PolicedAt> {
    let at_interface = led || seat.local_max.is_some();
    seat.policers.as_ref().map(|_| if at_interface { PolicedAt::Interface } else { PolicedAt::Uplink })
}

impl Linux {
    /// Sets the buckets of a pool's members, before the first packet meets them. Returns the number of changes.
    pub(super) fn police(
        &mut self,
        seats: &[DesiredMember],
        direction: Direction,
        framing: Framing,
    ) -> Result<usize, Error> {
        let mut changes = 0;
        for (seat, interface) in seats.iter().filter_map(|seat| Some((seat, seat.interface.as_ref()?))) {
            let device = Device { index: interface.index, name: interface.name.clone() };
            let classifier = self.past.loaded(&mut self.classifier)?;
            let set = classifier.police(&device, (direction, seat.number), seat.policers.as_ref(), framing)?;
            changes += usize::from(set);
        }
        Ok(changes)
    }

    /// Packets that were dropped at the members' buckets, by number; of none where no bucket is. `local`: of members
    /// whose maximum holds for all that they send, which are counted with their local traffic; else of all others.
    pub(super) fn policed(&self, key: &PoolKey, local: bool) -> BTreeMap<u16, u64> {
        let classifier = self.classifier.as_ref().filter(|classifier| classifier.has_buckets());
        let (Some(installed), Some(classifier)) = (self.pools.get(key), classifier) else { return BTreeMap::new() };
        let is_local = |seat: &DesiredMember| installed.stage.is_none() && seat.local_max.is_some();
        let seats = installed.seats.iter().filter(|seat| seat.interface.is_some() && is_local(seat) == local);
        seats.map(|seat| (seat.number, classifier.dropped_above(key.direction, seat.number))).collect()
    }
}
