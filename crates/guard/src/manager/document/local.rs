//! What members send and receive beside the uplink.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmio_model::policy::{Direction, Policy};
use vmio_model::rate::BitRate;
use vmio_model::words::first_of;

use crate::core::{MemberStatus, PoolStatus};

/// Most classes that the note names.
const NAMED: usize = 8;

/// What a member sends or receives that does not pass the uplink: to and from other guests and the host itself, and
/// into tunnels of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LocalDocument {
    /// Whether its maximum holds for that, too.
    pub limited: bool,
    /// Its rate since the counters were read before, 1 to 5 s; null where that is not known yet.
    pub rate_bps: Option<BitRate>,
    /// Bytes since the plane counts.
    pub bytes_total: u64,
    /// Bytes of all that it sends that wait at its own interface, where all of it is limited there.
    pub waiting_bytes: u64,
    /// Packets of all that it sends that were dropped there.
    pub dropped_packets_total: u64,
}

impl LocalDocument {
    pub(super) fn of(member: &MemberStatus, rate_bps: Option<BitRate>) -> Option<LocalDocument> {
        let local = member.local?;
        Some(LocalDocument {
            limited: local.limited,
            rate_bps,
            bytes_total: local.bytes,
            waiting_bytes: local.waiting_bytes,
            dropped_packets_total: local.dropped_packets,
        })
    }
}

/// The note on classes whose maximum holds only for what leaves by the uplink; `None` where there are none.
pub fn local_note(classes: &[&str]) -> Option<String> {
    (!classes.is_empty()).then(|| {
        format!(
            "local traffic is not limited: what members of {} send to other guests, to the host and into its \
             tunnels may exceed their maximum; local = \"limit\" in a class holds that, too",
            first_of(classes, NAMED)
        )
    })
}

/// Classes with a written maximum that members in force may exceed by local traffic.
pub(super) fn exceeded<'a>(pools: &[PoolStatus], policy: &'a Policy) -> Vec<&'a str> {
    let sending = || pools.iter().filter(|pool| pool.key.direction == Direction::GuestTx);
    let open = sending().flat_map(|pool| &pool.members).filter(|m| m.local.is_some_and(|local| !local.limited));
    let open: BTreeSet<&str> = open.map(|m| m.class.as_str()).collect();
    let staged = |uplink: &str| sending().any(|pool| pool.stage.is_some() && pool.key.uplink == uplink);
    policy.exceeded_locally(staged).into_iter().filter(|class| open.contains(class)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_note_names_some_classes() {
        assert_eq!(local_note(&[]), None);
        assert!(local_note(&["gold", "tin"]).unwrap().contains("what members of gold, tin send"));
        assert!(local_note(&["x"; 10]).unwrap().contains("x, x and 2 more send"));
    }
}
