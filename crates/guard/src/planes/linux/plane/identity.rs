//! What a guest may claim to be, as the classifier checks it.

use std::collections::BTreeSet;

use vmio_model::policy::Spoofing;

use super::super::classifier::{Checks, as_compared};
use crate::desired::{DesiredMember, DesiredPool};

/// The only Ethernet address that a member may use; `None` where it is not known or not checked.
pub(super) fn only_address(seat: &DesiredMember) -> Option<[u8; 6]> {
    let mac = seat.interface.as_ref()?.macs.first()?;
    if seat.identity.spoofing == Spoofing::Off { None } else { address(mac) }
}

/// How its claims are checked; `None` where they are not.
pub(super) fn checks(seat: &DesiredMember) -> Option<Checks> {
    let identity = &seat.identity;
    (identity.spoofing != Spoofing::Off).then_some(Checks {
        addresses: identity.all_known,
        drop: identity.spoofing == Spoofing::Drop,
        router: identity.router,
    })
}

/// The IP addresses that it may claim, and others without them may not; none where none is known.
pub(super) fn owned(seat: &DesiredMember) -> BTreeSet<[u8; 16]> {
    seat.identity.addresses.iter().copied().map(as_compared).collect()
}

/// The IP addresses that nobody behind a pool's uplink may claim: owned by the uplink, behind which no guest is.
pub(super) fn gateways(pool: &DesiredPool) -> BTreeSet<[u8; 16]> {
    pool.gateways.iter().copied().map(as_compared).collect()
}

/// The bytes of `aa:bb:cc:dd:ee:ff`.
pub(super) fn address(mac: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = mac.split(':');
    for byte in &mut bytes {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}
