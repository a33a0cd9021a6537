//! Removes programs and filters that an earlier guard left.

use std::collections::BTreeSet;

use super::super::htb::{self, Placed};
use super::super::undo_log::PlaneLog;
use super::super::{Device, Netlink, Result, links};
use super::attach::{Attached, remove_clsact};
use super::filters::{self, FilterOwner, ListedFilter};
use super::{Bond, Classifier, PinDirectory};

/// Result of a sweep.
#[derive(Debug, Default)]
pub(in super::super) struct Swept {
    /// Number of removed programs, pins and filters.
    pub(in super::super) gone: usize,
    /// Empty clsact qdiscs of unknown origin, which stay.
    pub(in super::super) unknown: Vec<Device>,
    /// clsact qdiscs of the guard's that stay, since they have foreign filters.
    pub(in super::super) shared: Vec<Device>,
}

/// Removes all pins and filters of guards except this classifier's, and the clsact qdiscs that were made for them.
pub(in super::super) fn sweep(
    netlink: &mut Netlink,
    pin_directory: Option<&PinDirectory>,
    log: &PlaneLog,
    classifier: Option<&Classifier>,
) -> Result<Swept> {
    let mut swept = Swept::default();
    if let Some(pin_directory) = pin_directory {
        swept.gone += pin_directory.clear(&classifier.map(Classifier::pins).unwrap_or_default())?;
    }
    let mut hooked = htb::placed(netlink, Placed::Clsact)?;
    hooked.extend(log.clsacts());
    for index in hooked {
        // The interface may be gone.
        let Some(link) = links::by_index(netlink, index)? else {
            log.strike_clsact(index)?;
            continue;
        };
        let device = link.device;
        let all = filters::all(netlink, &device)?;
        let (ours, rest): (Vec<ListedFilter>, Vec<ListedFilter>) = all.into_iter().partition(|filter| {
            filter.owner != FilterOwner::Other && !classifier.is_some_and(|classifier| classifier.has(index, filter))
        });
        for filter in &ours {
            filters::remove(netlink, &device, filter)?;
        }
        swept.gone += ours.len();
        let made = log.made_clsact(index).is_some();
        if made
            && !rest.is_empty()
            && rest.iter().all(|filter| filter.owner == FilterOwner::Other)
            && classifier.is_none()
        {
            // From now on it is theirs.
            log.strike_clsact(index)?;
            swept.shared.push(device);
        } else if made {
            remove_clsact(netlink, &device, log, !ours.is_empty())?;
        } else if !ours.is_empty() && rest.is_empty() {
            swept.unknown.push(device);
        }
    }
    Ok(swept)
}

/// Whether filters of a guard are at any interface.
pub(in super::super) fn has_filters(netlink: &mut Netlink) -> Result<bool> {
    for index in htb::placed(netlink, Placed::Clsact)? {
        // The interface may be gone.
        let Some(link) = links::by_index(netlink, index)? else { continue };
        if filters::all(netlink, &link.device)?.iter().any(|filter| filter.owner != FilterOwner::Other) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Classifier {
    /// Names of its pins.
    fn pins(&self) -> BTreeSet<&str> {
        if !matches!(self.bond, Bond::Pinned(_)) {
            return BTreeSet::new();
        }
        let all = self.uplinks.values().map(|(_, a)| a).chain(self.attached.values().map(|e| &e.attached));
        all.filter_map(|attached| if let Attached::Tcx(_, pin) = attached { Some(pin.as_str()) } else { None })
            .collect()
    }

    /// Whether a filter at an interface is its own.
    fn has(&self, index: u32, filter: &ListedFilter) -> bool {
        let uplinks = self.uplinks.range((index, super::Point::ALL[0])..=(index, super::Point::ALL[2]));
        let mut all = uplinks.map(|(_, (_, attached))| attached).chain(self.attached.get(&index).map(|e| &e.attached));
        all.any(|attached| attached.is(filter))
    }
}
