//! What the core knows of what is in force.

use vmio_model::holding::{Queue, QueueingPoint};
use vmio_model::rate::BitRate;

use crate::desired::{Carded, PoolKey, Seated};
use crate::planes::{Count, Observation, StageBacklog};

/// What is known of a pool that is in force.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolStatus {
    /// Which.
    pub key: PoolKey,
    /// What its members share now.
    pub root_bps: BitRate,
    /// Where the queues of its interfaces stand.
    pub queue: Queue,
    /// Of a staged pool: the rate that the members share on the IFB, and their backlog at the uplink.
    pub stage: Option<(BitRate, StageBacklog)>,
    /// Of what guests receive: bytes that have arrived at the uplink, where they are counted.
    pub arrived_bytes: Option<u64>,
    /// What the link takes.
    pub capacity_bps: BitRate,
    /// Its members; then interfaces that have a class here and cannot be held.
    pub members: Vec<MemberStatus>,
}

/// What is known of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: String,
    /// Its minimum as far as all fit.
    pub min_effective_bps: BitRate,
    /// Its limit now; `None` for none.
    pub limit_bps: Option<BitRate>,
    /// What went through it since it is there.
    pub count: Count,
    /// Where its excess waits; `None` of `host` and `default`.
    pub held: Option<HeldStatus>,
}

/// Where a member's excess waits, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldStatus {
    /// Where.
    pub waits: QueueingPoint,
    /// The send buffer that its tap has, in bytes; `None` where it is left alone, or not in force.
    pub send_buffer_bytes: Option<u32>,
    /// Why, in a sentence.
    pub reason: String,
}

impl MemberStatus {
    /// Of one that the uplink's card limits, as far as it does.
    pub(super) fn of_card(card: &Carded, seen: &Observation) -> MemberStatus {
        let in_force = seen.cards.get(&card.function).cloned().unwrap_or(Ok(Count::default()));
        let (waits, reason) = match &in_force {
            Ok(_) => (QueueingPoint::Nic, card.reason.clone()),
            Err(why) => (QueueingPoint::None, why.to_string()),
        };
        MemberStatus {
            name: card.name.clone(),
            class: card.class.clone(),
            min_effective_bps: card.min,
            limit_bps: in_force.is_ok().then(|| card.limit()),
            count: in_force.unwrap_or_default(),
            held: Some(HeldStatus { waits, send_buffer_bytes: None, reason }),
        }
    }
}

impl HeldStatus {
    /// As it was found, and as far as the plane has it in force.
    pub(super) fn of(seat: &Seated, seen: &Observation) -> Option<HeldStatus> {
        let (holding, interface) = (seat.holding.as_ref()?, seat.interface.as_ref()?);
        let queue = seen.queues.get(&interface.index);
        let as_found = HeldStatus {
            waits: holding.waits,
            send_buffer_bytes: holding.send_buffer_bytes,
            reason: holding.reason.clone(),
        };
        let crowds = queue.and_then(|queue| queue.crowds);
        if holding.send_buffer_bytes.is_none() {
            return Some(match crowds {
                Some(why) => HeldStatus { reason: format!("{}; {why}", as_found.reason), ..as_found },
                None => as_found,
            });
        }
        Some(match queue.and_then(|queue| queue.held.as_ref()) {
            Some(Ok(bytes)) => HeldStatus { send_buffer_bytes: Some(*bytes), ..as_found },
            Some(Err(why)) => {
                let reason = crowds.map_or_else(|| why.to_string(), |crowds| format!("{crowds}: {why}"));
                HeldStatus { waits: QueueingPoint::Queued, send_buffer_bytes: None, reason }
            }
            None => as_found,
        })
    }
}
