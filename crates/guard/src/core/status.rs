//! Status of the pools in force.

use vmio_model::holding::{Queue, QueueingPoint};
use vmio_model::rate::BitRate;

use super::MemberDelay;
use crate::desired::{CardLimit, DesiredMember, PoolKey};
use crate::planes::{Count, FlowCount, Interruptions, LocalCount, Observation, OtherLimit, StageBacklog};

/// Status of a pool in force.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolStatus {
    /// Which.
    pub key: PoolKey,
    /// Rate that its members share now.
    pub root_bps: BitRate,
    /// Where the queues of its interfaces stand; `None` where it has none.
    pub queue: Option<Queue>,
    /// Of a staged pool: the rate that the members share on the IFB, and their backlog at the uplink.
    pub stage: Option<(BitRate, StageBacklog)>,
    /// Bytes that arrived at the uplink, of a pool of received traffic, where they are counted.
    pub arrived_bytes: Option<u64>,
    /// Rate of the link.
    pub capacity_bps: BitRate,
    /// How often it was not in force any more, and why now.
    pub interruptions: Interruptions,
    /// Its members; then interfaces that have a class here and cannot be limited.
    pub members: Vec<MemberStatus>,
}

/// Status of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: String,
    /// Its minimum, reduced where not all minima fit.
    pub min_effective_bps: BitRate,
    /// Its limit now; `None` for none.
    pub limit_bps: Option<BitRate>,
    /// Its counters since it exists.
    pub count: Count,
    /// Where its excess waits; `None` of `host` and `default`.
    pub held: Option<HeldStatus>,
    /// What it sends or receives beside the uplink; `None` where that is not counted.
    pub local: Option<LocalCount>,
    /// Counters of its flow classes, the rest last; empty where it has none.
    pub flows: Vec<FlowCount>,
    /// What another program limits the same traffic to at its interface.
    pub other_limit: Option<OtherLimit>,
    /// How long its packets have waited.
    pub delay: MemberDelay,
}

/// Where a member's excess waits, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldStatus {
    /// Where.
    pub waits: QueueingPoint,
    /// Send buffer of its tap in bytes; `None` where it is not limited.
    pub send_buffer_bytes: Option<u32>,
    /// Why, in a sentence.
    pub reason: String,
}

impl MemberStatus {
    /// Of a member that the uplink's card limits.
    pub(super) fn of_card(card: &CardLimit, observed: &Observation) -> MemberStatus {
        let in_force = observed.cards.get(&card.function).cloned().unwrap_or(Ok(Count::default()));
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
            local: None,
            flows: Vec::new(),
            other_limit: None,
            delay: MemberDelay::default(),
        }
    }
}

impl HeldStatus {
    /// As planned, corrected by what the plane has in force.
    pub(super) fn of(seat: &DesiredMember, observed: &Observation) -> Option<HeldStatus> {
        let (holding, interface) = (seat.holding.as_ref()?, seat.interface.as_ref()?);
        let queue = observed.queues.get(&interface.index);
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
