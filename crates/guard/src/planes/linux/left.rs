//! What a guard without a daemon has left in force: the classes of its hierarchies, whose numbers its ledger gave to
//! interfaces. Reads alone.

use std::collections::BTreeMap;

use vmio_model::policy::Direction;
use vmio_model::rate::BitRate;

use super::htb::{self, Placed, Root};
use super::undo_log::PlaneLog;
use super::{Netlink, Result, ifb, links};
use crate::undo_log::UndoLog;

/// A limit that is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The interface, by its name now.
    pub interface: String,
    /// Its index.
    pub index: u32,
    /// Seen from the guest.
    pub direction: Direction,
    /// The most that its class lets through, as the kernel counts bytes.
    pub ceiling_bps: BitRate,
    /// What its class has for itself.
    pub rate_bps: BitRate,
    /// The interface with the hierarchy: an uplink, or one of the guard's IFBs.
    pub at: String,
}

/// The limits of the interfaces that the ledger numbers, the lowest of each in each direction.
///
/// # Errors
/// When the ledger cannot be parsed, or the kernel refuses.
pub fn left(log: &UndoLog) -> Result<Vec<Left>> {
    let numbered = PlaneLog::here(log)?.numbered();
    let mut netlink = Netlink::open()?;
    let mut lowest: BTreeMap<(u32, Direction), Left> = BTreeMap::new();
    for index in htb::placed(&mut netlink, Placed::Ours)? {
        let Some(link) = links::by_index(&mut netlink, index)? else { continue };
        let Root::Ours(found) = htb::read_classes(&mut netlink, &link.device)? else { continue };
        let direction = if ifb::receives(&link) { Direction::GuestRx } else { Direction::GuestTx };
        for (device, number) in &numbered {
            let Some(class) = found.classes.get(number).map(|found| found.class) else { continue };
            let (ceiling_bps, rate_bps) = (class.ceil.bits(), class.rate.bits());
            if lowest.get(&(device.index, direction)).is_some_and(|known| known.ceiling_bps <= ceiling_bps) {
                continue;
            }
            let (interface, at) = (device.name.clone(), link.device.name.clone());
            let left = Left { interface, index: device.index, direction, ceiling_bps, rate_bps, at };
            lowest.insert((device.index, direction), left);
        }
    }
    let mut there = Vec::new();
    for left in lowest.into_values() {
        // One that is gone has its class until the next daemon; another may have its name by now.
        if let Some(link) = links::by_index(&mut netlink, left.index)? {
            there.push(Left { interface: link.device.name, ..left });
        }
    }
    Ok(there)
}
