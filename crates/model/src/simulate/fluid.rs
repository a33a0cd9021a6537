//! Fluid simulation in steps of a period, for too many members to simulate packets. Rings and host queues hold bits;
//! the wire's capacity is shared max-min, like queues served in turn, or in proportion, like one shared queue.
//! [`Enforcement::Hierarchy`] shares it as `exact` does among the leaves of the compiled program.

use super::htb::Guarded;
use super::outcome::{Outcome, Recorder};
use super::{Enforcement, SECOND, Scenario, Settings, Source, Vif};
use crate::allocate::{Demand, Member, exact};
use crate::control::PeriodSample;
use crate::picos::{bits_of, rate_of};
use crate::policy::compile::Refusal;
use crate::policy::program::Leaf;
use crate::rate::BitRate;

pub fn run(scenario: &Scenario, settings: &Settings) -> Result<Outcome, Refusal> {
    let Guarded { mut control, program } = Guarded::new(scenario, settings)?;
    let mut recorder = Recorder::new(scenario);
    let n = scenario.vifs.len();
    let packet_bits = u64::from(scenario.packet_bytes) * 8;
    let (ring_bits, queue_bits) = (u64::from(settings.ring) * packet_bits, u64::from(settings.queue) * packet_bits);
    let mut flows: Vec<Flow> = scenario.vifs.iter().map(|v| Flow::new(&v.source, packet_bits)).collect();
    let (mut rings, mut queues) = (vec![0u64; n], vec![0u64; n]);
    // How the wire serves members: all alike, or by contract.
    let (min, max) = (BitRate::ZERO, BitRate::MAX);
    let all_alike = Member { priority: 1, min, max, weight: 1, hard: false, over_max: false };
    let mut shares: Vec<Member> = match &program {
        Some(program) => {
            let leaf = |(l, v): (&Leaf, &Vif)| Member {
                priority: l.priority + 1,
                min: l.rate_bps,
                weight: v.contract.weight,
                ..all_alike
            };
            program.leaves.iter().zip(&scenario.vifs).map(leaf).collect()
        }
        None => vec![all_alike; n],
    };
    let mut now = 0;
    while now < scenario.duration {
        let end = (now + settings.period).min(scenario.duration);
        let time = end - now;
        let mut seen = vec![PeriodSample::default(); n];
        for i in 0..n {
            let totals = &mut recorder.totals[i];
            let mut offered = flows[i].bits(&scenario.vifs[i].source, now, end);
            // A scheduler's ceilings apply to its queues, below.
            let cap = if program.is_some() { BitRate::MAX } else { control.in_force().caps[i] };
            let limit = if cap == BitRate::MAX { u64::MAX } else { bits_of(cap, time) };
            if flows[i].rate.is_some() {
                // It waits for room and loses nothing.
                let room = ring_bits.saturating_add(limit) - rings[i];
                seen[i].held_back = offered > room;
                offered = offered.min(room);
            }
            totals.scheduled_bits += offered;
            let there = rings[i] + offered;
            let passed = there.min(limit);
            rings[i] = (there - passed).min(ring_bits);
            let lost = there - passed - rings[i];
            // Behind the host's queue the same excess was copied before it is dropped.
            match settings.enforcement {
                Enforcement::Held => totals.never_sent_bits += lost,
                _ => totals.dropped_bits += lost,
            }
            seen[i].offered = offered;
            seen[i].passed = passed;
            seen[i].held_back |= passed < there;
            queues[i] += passed;
        }
        let demands: Vec<Demand> = queues.iter().map(|q| Demand::Rate(rate_of(*q, time))).collect();
        let wire = bits_of(scenario.capacity, time);
        let fits = queues.iter().map(|q| u128::from(*q)).sum::<u128>() <= u128::from(wire);
        // A hierarchy enforces maxima also on an idle wire.
        let sent: Vec<u64> = if settings.shares_a_queue() {
            in_proportion(&queues, wire)
        } else if fits && settings.enforcement != Enforcement::Hierarchy {
            queues.clone()
        } else {
            let mut capacity = scenario.capacity;
            if program.is_some() {
                let in_force = control.in_force();
                capacity = in_force.root;
                shares.iter_mut().zip(&in_force.caps).for_each(|(share, cap)| share.max = *cap);
            }
            let grants = exact(capacity, &shares, &demands);
            grants.iter().zip(&queues).map(|(g, q)| bits_of(g.rate, time).min(*q)).collect()
        };
        let rests: Vec<u64> = queues.iter().zip(&sent).map(|(q, s)| q - s).collect();
        let kept: Vec<u64> = if settings.shares_a_queue() {
            in_proportion(&rests, queue_bits)
        } else {
            rests.iter().map(|rest| (*rest).min(queue_bits)).collect()
        };
        for i in 0..n {
            let rest = rests[i];
            queues[i] = kept[i];
            let totals = &mut recorder.totals[i];
            totals.received_bits += sent[i];
            totals.dropped_bits += rest - queues[i];
            if program.is_some() {
                seen[i].passed = sent[i];
            }
            // With a scheduler waiting packets are held back; before a wire that serves in turn only lost ones are.
            if rest > queues[i] || (program.is_some() && rest > packet_bits) {
                seen[i].held_back = true;
            }
            flows[i].turn(&scenario.vifs[i].source, rest > queues[i], time, packet_bits, scenario.capacity);
        }
        control.tick(&seen, time);
        recorder.look(end, &control.in_force().caps);
        now = end;
    }
    Ok(recorder.finish(scenario.duration, false))
}

/// Shares of one queue, first in, first out: all that is wanted, or in proportion.
fn in_proportion(wanted: &[u64], room: u64) -> Vec<u64> {
    let sum: u128 = wanted.iter().map(|w| u128::from(*w)).sum();
    let part = |w: &u64| u64::try_from(u128::from(*w) * u128::from(room) / sum.max(1)).unwrap_or(*w);
    wanted.iter().map(|w| if sum <= u128::from(room) { *w } else { part(w) }).collect()
}

/// A source's state.
struct Flow {
    /// Rate of a TCP-like source.
    rate: Option<BitRate>,
    /// Index in the schedule.
    place: usize,
}

impl Flow {
    fn new(source: &Source, packet_bits: u64) -> Flow {
        let rate = match source {
            Source::OpenLoop(_) => None,
            Source::Aimd { rtt } => Some(10 * rate_of(packet_bits, *rtt)),
        };
        Flow { rate, place: 0 }
    }

    /// Bits that it offers from `now` to `end`.
    fn bits(&mut self, source: &Source, now: u64, end: u64) -> u64 {
        let Source::OpenLoop(schedule) = source else { return bits_of(self.rate.unwrap_or_default(), end - now) };
        let mut bits = 0;
        let mut at = now;
        while let Some((from, rate)) = schedule.get(self.place) {
            let until = schedule.get(self.place + 1).map_or(u64::MAX, |s| s.0);
            let (from, to) = (at.max(*from), end.min(until));
            if from < to {
                bits += bits_of(*rate, to - from);
                at = to;
            }
            if until > end {
                break;
            }
            self.place += 1;
        }
        bits
    }

    /// After a step: half the rate when something was dropped, else a packet more each round trip.
    fn turn(&mut self, source: &Source, dropped: bool, time: u64, packet_bits: u64, limit: BitRate) {
        if let (Some(rate), Source::Aimd { rtt }) = (&mut self.rate, source) {
            let packet = rate_of(packet_bits, *rtt);
            let trips = u128::from(time) * u128::from(SECOND) / u128::from((*rtt).max(1));
            let more = BitRate::of_sum(u128::from(packet) * trips / u128::from(SECOND));
            *rate = if dropped { (*rate / 2).max(packet) } else { rate.saturating_add(more).min(limit) };
        }
    }
}
