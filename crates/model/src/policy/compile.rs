//! Compiles a pool to a plane's program. The loop does what the plane cannot do by itself ([`Emulated`]), and all that
//! neither can do is refused at once.
//!
//! # How a hierarchy holds a contract
//! A leaf's own rate is the member's effective minimum and its ceiling the maximum; the root has the capacity. Both
//! levels serve by priority. Within one, spare capacity is borrowed in turns of a quantum in proportion to the weights;
//! the least weight's quantum is the largest packet, since a class may send one packet a turn however large it is
//! (net/sched/sch_htb.c, `htb_dequeue_tree`). Two things are beyond it:
//!
//! * **hard reserves**: it lends an idle minimum. The loop subtracts idle hard minima from the root's rate; the
//!   member's own leaf is served whatever the root has, so it gets its minimum at once when it starts to send.
//! * **over_max**: a higher ceiling would let a member borrow by its priority before others have their maxima. The loop
//!   raises ceilings while all maxima are met.
//!
//! A leaf's rate cannot be 0: the plane's least rate replaces a minimum of 0. Where minima fill the capacity, that is
//! subtracted from the least important of them, and a note says how much.

mod flows;
mod policers;
pub mod waits;

use std::time::Duration;

use serde::Serialize;

use super::pool::{MemberKind, Pool, PoolMember};
use super::program::{Framing, Hierarchy, Leaf, Limit, Limits, PoolProgram, Program};
use super::{Abilities, Direction, Form, effective_minima};
use crate::allocate::{Demand, Grant, Member, cap, exact};
use crate::rate::BitRate;

pub use policers::policers;

/// Priorities of a policy, 1 to 8, as many as HTB has (`TC_HTB_NUMPRIO`).
const PRIORITIES: usize = 8;

/// Percentage of the link that is shared in the receive direction: the queue must build up here, not in the switch
/// before, which would drop packets.
const RECEIVE_PERCENT: u64 = 95;

/// A full Ethernet frame as the kernel counts it (header and payload), in bytes.
const FULL_FRAME: u32 = 1514;

/// Length of a queue, at least, where none is written.
const QUEUE: Duration = Duration::from_millis(50);

/// Bytes of the longest queue.
const MOST_QUEUE: u32 = 16 << 20;

/// TCP connections of one sender for which a queue has room where no length is written.
const CONNECTIONS: u32 = 4;

/// Largest ratio of weights within one priority; larger ones are reduced to it, since a quantum delays all others.
const WEIGHTS: u32 = 256;

/// What the loop does in place of the plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Emulated {
    /// Everything but limits: minima, priorities, weights, hard reserves and over_max.
    Sharing,
    /// Reserves idle minima of these.
    Hard {
        /// Their names.
        members: Vec<String>,
    },
    /// Lets these exceed their maximum.
    OverMax {
        /// Their names.
        members: Vec<String>,
    },
}

/// A pool's program, and what the loop must do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Compiled {
    /// The plane's program.
    #[serde(flatten)]
    pub program: PoolProgram,
    /// What the loop must do; empty where the plane needs no loop.
    pub emulated: Vec<Emulated>,
    /// What is less exact than written, and by how much.
    pub notes: Vec<String>,
}

/// What a plane cannot do, one line a reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Refusal(pub Vec<String>);

/// Compiles a pool for a plane.
///
/// # Errors
/// Everything that this plane cannot do, not even with the loop.
pub fn compile(pool: &Pool, plane: &Abilities) -> Result<Compiled, Refusal> {
    let compiler = Compiler::new(pool, plane);
    let problems = compiler.problems();
    if !problems.is_empty() {
        return Err(Refusal(problems));
    }
    let program = match plane.form {
        Form::Hierarchy => Program::Hierarchy(compiler.hierarchy()),
        Form::Limits => Program::Limits(compiler.limits()),
    };
    let program = PoolProgram { uplink: pool.uplink.clone(), direction: pool.direction, program };
    Ok(Compiled { program, emulated: compiler.emulated(), notes: compiler.notes() })
}

/// Limits in a plane with a hierarchy: each leaf's own rate is its ceiling, so that no leaf borrows. Queues and buckets
/// are sized for members at their maximum, since limits change.
pub fn capped(pool: &Pool, plane: &Abilities) -> Hierarchy {
    let compiler = Compiler::new(pool, plane);
    let (mut hierarchy, limits) = (compiler.hierarchy(), compiler.limits());
    for (leaf, limit) in hierarchy.leaves.iter_mut().zip(&limits.limits) {
        leaf.cap(limit.cap_bps, plane);
    }
    hierarchy
}

/// A limit of its own for each of these members, of which none borrows, on what they send.
pub fn apart<'a>(
    framing: Framing,
    limits: impl IntoIterator<Item = (&'a PoolMember, BitRate)>,
    plane: &Abilities,
) -> Hierarchy {
    let leaf = |(seat, limit): (&PoolMember, BitRate)| {
        let mut leaf = Leaf {
            name: seat.name.clone(),
            rate_bps: limit,
            ceil_bps: limit,
            priority: 0,
            quantum_bytes: plane.packet_bytes,
            burst_bytes: burst(limit, plane),
            policed_bytes: 0,
            queue_bytes: queue(seat.queue, limit, Direction::GuestTx, plane),
            flows: flows::flows(&seat.flows, Direction::GuestTx, plane),
        };
        leaf.cap(limit, plane);
        leaf
    };
    let leaves: Vec<Leaf> = limits.into_iter().map(leaf).collect();
    let rate_bps = leaves.iter().map(|leaf| leaf.rate_bps).sum::<BitRate>().min(plane.most_bps);
    Hierarchy { rate_bps, burst_bytes: burst(rate_bps, plane), framing, leaves }
}

/// The capacity that the members share: a receiving pool leaves a part free, and a sending one what [`unframed`]
/// returns.
pub fn shared(pool: &Pool, plane: &Abilities) -> BitRate {
    let shared = match pool.direction {
        Direction::GuestTx => pool.capacity.saturating_sub(unframed(pool, plane)),
        Direction::GuestRx => BitRate::of_sum(u128::from(pool.capacity) * u128::from(RECEIVE_PERCENT) / 100),
    };
    shared.max(BitRate::ONE)
}

/// Capacity for framing that a plane does not count: a packet that is segmented behind the queues counts one frame's
/// framing, so each further full frame takes that much more.
fn unframed(pool: &Pool, plane: &Abilities) -> BitRate {
    if pool.direction != Direction::GuestTx || plane.packet_bytes < 2 * FULL_FRAME {
        return BitRate::ZERO;
    }
    let more = u128::from(pool.framing.overhead_bytes);
    BitRate::of_sum((u128::from(pool.capacity) * more).div_ceil(u128::from(FULL_FRAME) + more))
}

/// Burst in bytes: a millisecond's worth, and two of the largest packets. With less, classes with ceilings below the
/// link's rate get wrong shares of packets that are segmented late.
fn burst(rate: BitRate, plane: &Abilities) -> u32 {
    let millisecond = rate.bytes().bytes() / 1000;
    u32::try_from(millisecond).unwrap_or(u32::MAX / 2).max(plane.packet_bytes.saturating_mul(2))
}

/// Queue length: as many bytes as the ceiling passes in the class's `queue`, else in 50 ms; at least two of the largest
/// packets, else 20 of what is sent and 4 of what is received, and at most 16 MiB.
pub fn queue(written: Option<Duration>, ceiling: BitRate, direction: Direction, plane: &Abilities) -> u32 {
    let least = plane.packet_bytes.saturating_mul(least_packets(written, direction)).min(MOST_QUEUE);
    bytes_in(written.unwrap_or(QUEUE), ceiling).clamp(least, MOST_QUEUE)
}

/// Bytes that pass in a time at a rate.
fn bytes_in(time: Duration, rate: BitRate) -> u32 {
    let bytes = u128::from(rate.bytes().bytes()) * time.as_nanos() / 1_000_000_000;
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Least room of a queue in packets. A TCP connection of this host waits with up to four large packets in it
/// (`tcp_small_queue_check` of net/ipv4/tcp_output.c; 256 KiB seen with Linux 6.18) and takes a packet that finds
/// no room for congestion, so a queue with less room than that for each loses packets, however long it is.
fn least_packets(written: Option<Duration>, direction: Direction) -> u32 {
    match (written, direction) {
        (Some(_), _) => 2,
        (None, Direction::GuestTx) => 5 * CONNECTIONS,
        // Their senders are elsewhere.
        (None, Direction::GuestRx) => 4,
    }
}

struct Compiler<'a> {
    pool: &'a Pool,
    plane: &'a Abilities,
    members: Vec<Member>,
    /// See [`shared`](fn@shared).
    shared: BitRate,
    /// The members' own rates, see [`own`].
    own: Vec<BitRate>,
    /// Least and largest weight by priority, from 0.
    weights: [Option<(u32, u32)>; PRIORITIES],
}

/// A priority as an index.
fn priority(written: u8) -> u8 {
    written.clamp(1, PRIORITIES as u8) - 1
}

fn rank(member: &Member) -> u8 {
    priority(member.priority)
}

/// The members' own rates in a plane: their minima, rounded up, and at least the least rate. Where the sum exceeds the
/// capacity, the least rates of members without a minimum are subtracted from the minima of the last priority, as for a
/// member of a pattern.
fn own(members: &[Member], shared: BitRate, plane: &Abilities) -> Vec<BitRate> {
    let (step, least) = (plane.step_bps, plane.least_bps);
    let rates: Vec<BitRate> = members.iter().map(|m| m.min.rounded_up(step).max(least)).collect();
    let sum: u128 = rates.iter().map(|r| u128::from(*r)).sum();
    if sum <= u128::from(shared) {
        return rates;
    }
    let left = shared.saturating_sub(BitRate::of_sum(u128::from(least) * rates.len() as u128));
    let beyond: Vec<(u8, BitRate)> = members.iter().map(|m| (m.priority, m.min.saturating_sub(least))).collect();
    effective_minima(left, &beyond).into_iter().map(|more| least + more.rounded_down(step)).collect()
}

impl<'a> Compiler<'a> {
    fn new(pool: &'a Pool, plane: &'a Abilities) -> Compiler<'a> {
        let (members, shared) = (pool.members(), shared(pool, plane));
        let mut weights = [None; PRIORITIES];
        for member in &members {
            let weight = member.weight.max(1);
            let (least, most) = weights[usize::from(rank(member))].unwrap_or((weight, weight));
            weights[usize::from(rank(member))] = Some((weight.min(least), weight.max(most)));
        }
        Compiler { pool, plane, shared, own: own(&members, shared, plane), weights, members }
    }

    fn where_it_is(&self) -> String {
        format!("{} {}", self.pool.uplink, self.pool.direction.word())
    }

    fn problems(&self) -> Vec<String> {
        let (plane, at) = (self.plane, self.where_it_is());
        let mut problems = Vec::new();
        let limited = self.pool.seats.iter().any(|seat| seat.who == MemberKind::Interface);
        if self.pool.direction == Direction::GuestRx && !plane.receive && limited {
            problems.push(format!(
                "{at}: plane {} cannot limit what guests receive; leave rx_class out, or use another plane",
                plane.plane
            ));
        }
        if self.members.len() > plane.members {
            problems.push(format!(
                "{at}: {} members, and plane {} has at most {}; let fewer interfaces match, the rest share `default`",
                self.members.len(),
                plane.plane,
                plane.members
            ));
        }
        if self.shared < plane.least_bps || self.shared > plane.most_bps {
            problems.push(format!(
                "{at}: {} are shared, and plane {} takes {} to {}",
                self.shared, plane.plane, plane.least_bps, plane.most_bps
            ));
        }
        for (seat, member) in self.pool.seats.iter().zip(&self.members) {
            if member.max < plane.least_bps {
                problems.push(format!(
                    "{at}: {} has a maximum of {} (class {}), below the least of plane {}, {}; raise it",
                    seat.name, member.max, seat.class, plane.plane, plane.least_bps
                ));
            }
        }
        let least = u128::from(plane.least_bps) * self.members.len() as u128;
        if plane.form == Form::Hierarchy && least > u128::from(self.shared) {
            problems.push(format!(
                "{at}: {} members at the least rate of plane {}, {}, are more than {}; raise the capacity, or let fewer \
                 interfaces match",
                self.members.len(),
                plane.plane,
                plane.least_bps,
                self.shared
            ));
        }
        problems
    }

    /// A ceiling in this plane: rounded down, and at least the member's own rate.
    fn ceiling(&self, member: &Member, own: BitRate) -> BitRate {
        member.max.min(self.shared).min(self.plane.most_bps).rounded_down(self.plane.step_bps).max(own)
    }

    fn hierarchy(&self) -> Hierarchy {
        let leaf = |((seat, member), own): ((&PoolMember, &Member), &BitRate)| {
            let ceil_bps = self.ceiling(member, *own);
            let policed = policers::policer(seat.excess, member.max, self.plane).map_or(0, |p| p.burst_bytes);
            Leaf {
                name: seat.name.clone(),
                rate_bps: *own,
                ceil_bps,
                priority: rank(member),
                quantum_bytes: self.quantum(member),
                burst_bytes: burst(ceil_bps, self.plane),
                policed_bytes: policed,
                queue_bytes: queue(seat.queue, ceil_bps, self.pool.direction, self.plane),
                flows: flows::flows(&seat.flows, self.pool.direction, self.plane),
            }
        };
        Hierarchy {
            rate_bps: self.shared.rounded_down(self.plane.step_bps).max(self.plane.least_bps),
            burst_bytes: burst(self.shared, self.plane),
            framing: self.pool.framing,
            leaves: self.pool.seats.iter().zip(&self.members).zip(&self.own).map(leaf).collect(),
        }
    }

    /// Quantum of a member: in proportion to its weight, the largest packet for the least weight of its priority.
    fn quantum(&self, member: &Member) -> u32 {
        let least = self.weights[usize::from(rank(member))].map_or(1, |(least, _)| least);
        let bytes = u64::from(self.plane.packet_bytes) * u64::from(member.weight.max(1)) / u64::from(least);
        u32::try_from(bytes).unwrap_or(u32::MAX).min(self.plane.packet_bytes.saturating_mul(WEIGHTS))
    }

    fn notes(&self) -> Vec<String> {
        let at = self.where_it_is();
        let mut notes = Vec::new();
        if self.plane.form == Form::Hierarchy {
            for (priority, weights) in (1..).zip(self.weights) {
                let Some((least, most)) = weights else { continue };
                if u64::from(most) > u64::from(least) * u64::from(WEIGHTS) {
                    notes.push(format!(
                        "{at}: weights {least} and {most} of priority {priority} are held as 1 to {WEIGHTS}"
                    ));
                }
            }
            notes.extend(flows::cost(&self.pool.seats).map(|cost| format!("{at}: {cost}")));
        }
        let minima: u128 = self.members.iter().map(|m| u128::from(m.min)).sum();
        if self.plane.form == Form::Hierarchy && minima <= u128::from(self.shared) {
            let short: u128 =
                self.members.iter().zip(&self.own).map(|(m, own)| u128::from(m.min.saturating_sub(*own))).sum();
            if short > 0 {
                let short = BitRate::of_sum(short);
                notes.push(format!(
                    "{at}: minima are held {short} short in all: members without one get {} each, the least of plane {}",
                    self.plane.least_bps, self.plane.plane
                ));
            }
        }
        if unframed(self.pool, self.plane) > BitRate::ZERO {
            notes.push(format!(
                "{at}: {} of {} are shared: a packet that is cut into segments behind the queues counts the framing of \
                 one frame, and that of the others, {} bytes each, is left free",
                self.shared, self.pool.capacity, self.pool.framing.overhead_bytes
            ));
        }
        if minima > u128::from(self.shared) {
            let minima = BitRate::of_sum(minima);
            let why = match self.pool.direction {
                Direction::GuestTx => "the rest is left free for framing".to_owned(),
                Direction::GuestRx => {
                    format!("{RECEIVE_PERCENT} % of the capacity, so that the queue is on this host")
                }
            };
            notes.push(format!("{at}: minima of {minima} are more than the {} that are shared ({why})", self.shared));
        }
        let has_minima = || self.named(|m| m.min > BitRate::ZERO).iter().any(|name| name != super::HOST);
        if self.pool.direction == Direction::GuestRx && has_minima() {
            notes.push(format!(
                "{at}: minima hold against senders that slow down (TCP); other floods are lost on the link before \
                 this host"
            ));
        }
        notes.extend(self.delay_notes());
        notes
    }

    fn limits(&self) -> Limits {
        let demands = vec![Demand::Unbounded; self.members.len()];
        let grants = exact(self.shared, &self.members, &demands);
        let limit = |((seat, member), grant): ((&PoolMember, &Member), &Grant)| {
            let cap_bps = cap(member, grant).max(self.plane.least_bps);
            Limit { name: seat.name.clone(), cap_bps, burst_bytes: burst(cap_bps, self.plane) }
        };
        Limits { limits: self.pool.seats.iter().zip(&self.members).zip(&grants).map(limit).collect() }
    }

    fn named(&self, which: impl Fn(&Member) -> bool) -> Vec<String> {
        let all = self.pool.seats.iter().zip(&self.members);
        all.filter(|(_, m)| which(m)).map(|(s, _)| s.name.clone()).collect()
    }

    fn emulated(&self) -> Vec<Emulated> {
        if self.plane.form == Form::Limits {
            return vec![Emulated::Sharing];
        }
        let hard = self.named(|m| m.hard && m.min > BitRate::ZERO && !self.plane.hard);
        // A maximum of the whole capacity cannot be exceeded.
        let over = self.named(|m| m.over_max && m.max < self.shared && !self.plane.over_max);
        let mut emulated = Vec::new();
        if !hard.is_empty() {
            emulated.push(Emulated::Hard { members: hard });
        }
        if !over.is_empty() {
            emulated.push(Emulated::OverMax { members: over });
        }
        emulated
    }
}

#[cfg(test)]
mod tests;
