//! Takes off what an earlier owner has left of programs and filters.

use std::collections::BTreeSet;

use super::super::htb::{self, Placed};
use super::super::undo_log::PlaneLog;
use super::super::{Device, Netlink, Result, links};
use super::attach::{Attached, remove_clsact};
use super::filters::{self, Found, Whose};
use super::{Bond, Classifier, Shelf};

/// What was found.
#[derive(Debug, Default)]
pub(in super::super) struct Swept {
    /// Programs, pins and filters that were taken off.
    pub(in super::super) gone: usize,
    /// clsact qdiscs that are empty now, and nobody knows who made them.
    pub(in super::super) unknown: Vec<Device>,
    /// clsact qdiscs of ours that stay, since others have filters in them.
    pub(in super::super) shared: Vec<Device>,
}

/// Takes off all pins and filters of ours that are not this classifier's, and the clsact qdiscs that were made for
/// them.
pub(in super::super) fn sweep(
    netlink: &mut Netlink,
    shelf: Option<&Shelf>,
    log: &PlaneLog,
    classifier: Option<&Classifier>,
) -> Result<Swept> {
    let mut swept = Swept::default();
    if let Some(shelf) = shelf {
        swept.gone += shelf.clear(&classifier.map(Classifier::pins).unwrap_or_default())?;
    }
    let mut hooked = htb::placed(netlink, Placed::Clsact)?;
    hooked.extend(log.clsacts());
    for index in hooked {
        // Gone meanwhile is as good.
        let Some(link) = links::by_index(netlink, index)? else {
            log.no_clsact(index)?;
            continue;
        };
        let device = link.device;
        let all = filters::all(netlink, &device)?;
        let (ours, rest): (Vec<Found>, Vec<Found>) = all.into_iter().partition(|found| {
            found.whose != Whose::Another && !classifier.is_some_and(|classifier| classifier.has(index, found))
        });
        for found in &ours {
            filters::remove(netlink, &device, found)?;
        }
        swept.gone += ours.len();
        let made = log.made_clsact(index).is_some();
        if made && !rest.is_empty() && rest.iter().all(|found| found.whose == Whose::Another) && classifier.is_none() {
            // Theirs from now on.
            log.no_clsact(index)?;
            swept.shared.push(device);
        } else if made {
            remove_clsact(netlink, &device, log, !ours.is_empty())?;
        } else if !ours.is_empty() && rest.is_empty() {
            swept.unknown.push(device);
        }
    }
    Ok(swept)
}

impl Classifier {
    /// Pins of this.
    fn pins(&self) -> BTreeSet<&str> {
        if !matches!(self.bond, Bond::Pinned(_)) {
            return BTreeSet::new();
        }
        let all = self.uplinks.values().map(|(_, a)| a).chain(self.attached.values().map(|e| &e.attached));
        all.filter_map(|attached| if let Attached::Tcx(_, pin) = attached { Some(pin.as_str()) } else { None })
            .collect()
    }

    /// Whether a filter at an interface is one of this.
    fn has(&self, index: u32, found: &Found) -> bool {
        let uplinks = self.uplinks.range((index, super::Point::ALL[0])..=(index, super::Point::ALL[2]));
        let mut all = uplinks.map(|(_, (_, attached))| attached).chain(self.attached.get(&index).map(|e| &e.attached));
        all.any(|attached| attached.is(found))
    }
}
