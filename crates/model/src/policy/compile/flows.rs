//! Flow classes of a member, for the queue inside its leaf.

use super::{Direction, burst, priority};
use crate::policy::flow::{Flow, FlowMatch, REST};
use crate::policy::pool::PoolMember;
use crate::policy::program::FlowLeaf;
use crate::policy::{Abilities, DEFAULT_PRIORITY};
use crate::rate::BitRate;

/// Members with maxima of flow classes that are not worth a note.
const FEW: usize = 8;

/// What maxima of flow classes cost other members: a leaf in which all waits for one is asked in vain before each packet
/// of another (`htb_dequeue_tree` of net/sched/sch_htb.c).
pub(super) fn cost(members: &[PoolMember]) -> Option<String> {
    let limited = members
        .iter()
        .filter(|member| member.flows.iter().any(|flow| flow.max.is_some() && !flow.excess.drops()))
        .count();
    (limited > FEW).then(|| {
        format!(
            "{limited} members have flow classes with a maximum: each that waits for it adds up to half a microsecond \
             to every other packet of the uplink"
        )
    })
}

/// One for each flow class, in order, and one for the rest; none without flow classes. One without a maximum, or with a
/// bucket before the queue, has the plane's highest rate: its member's leaf limits it.
pub(super) fn flows(flows: &[Flow], direction: Direction, plane: &Abilities) -> Vec<FlowLeaf> {
    if flows.is_empty() {
        return Vec::new();
    }
    let leaf = |name: &str, matcher: FlowMatch, rank: u8, min: BitRate, max: Option<BitRate>| {
        let rate_bps = min.rounded_up(plane.step_bps).clamp(plane.least_bps, plane.most_bps);
        let ceil_bps = max.unwrap_or(plane.most_bps).min(plane.most_bps).rounded_down(plane.step_bps).max(rate_bps);
        FlowLeaf {
            name: name.to_owned(),
            matcher,
            direction,
            rate_bps,
            ceil_bps,
            priority: priority(rank),
            quantum_bytes: plane.packet_bytes,
            burst_bytes: burst(max.unwrap_or(min), plane),
        }
    };
    let ceiling = |flow: &Flow| flow.max.filter(|_| !flow.excess.drops());
    let each = flows.iter().map(|f| leaf(&f.name, f.matcher.clone(), f.priority, f.min, ceiling(f)));
    each.chain([leaf(REST, FlowMatch::default(), DEFAULT_PRIORITY, BitRate::ZERO, None)]).collect()
}
