//! The guard's loop: from the traffic of each member in a period to the limits of the next. Simulation and daemon run
//! the same code, so that a daemon's record can be replayed.
//!
//! A plane that only sets limits gets one for each member every period. With a plane that shares by itself
//! ([`Hierarchy`]) the loop adds what that cannot do (`crate::policy::compile`): idle hard minima are subtracted from
//! the root's rate, and ceilings rise while all maxima are met. No limit is ever below a member's effective minimum, so
//! that a loop that died breaks no guarantee.

use crate::allocate::dba::{Loop, Measures};
use crate::allocate::{Demand, Member, cap, exact};
use crate::picos::rate_of;
use crate::policy::program::Hierarchy;
use crate::policy::{Abilities, Form};
use crate::rate::BitRate;

mod stage;

use stage::Stage;

/// What sets the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocator {
    /// Nothing: there are no limits, and the host serves its queues in turn.
    None,
    /// The published loop.
    Dba(Measures),
    /// vmio's own.
    Exact,
    /// vmio's own as a loop that only sets limits, where a plane could share by itself.
    ExactLoop,
}

impl Allocator {
    /// The abilities of a plane that it uses: a loop uses limits only.
    pub fn asks_of(self, plane: Abilities) -> Abilities {
        match self {
            Allocator::Dba(_) | Allocator::ExactLoop => Abilities { form: Form::Limits, ..plane },
            Allocator::None | Allocator::Exact => plane,
        }
    }

    /// Name on the command line, in the status and in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Allocator::None => "none",
            Allocator::Dba(_) => "dba",
            Allocator::Exact => "exact",
            Allocator::ExactLoop => "exact-loop",
        }
    }

    /// What it measures as a member's traffic, where it measures.
    pub fn measures(self) -> Option<Measures> {
        match self {
            Allocator::Dba(measures) => Some(measures),
            Allocator::None | Allocator::Exact | Allocator::ExactLoop => None,
        }
    }

    /// Name in reports.
    pub fn label(self) -> &'static str {
        match self {
            Allocator::None => "unshaped",
            Allocator::Dba(Measures::Offered) => "dba, offered measured",
            Allocator::Dba(Measures::Passed) => "dba, passed measured",
            Allocator::Exact => "exact",
            Allocator::ExactLoop => "exact, as a loop",
        }
    }
}

/// A member's traffic in one period of the loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PeriodSample {
    /// Bits that the guest tried to send.
    pub offered: u64,
    /// Bits that passed the limit.
    pub passed: u64,
    /// Something waited for the limit or was dropped at it: the member wants more.
    pub held_back: bool,
}

/// Limits in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedLimits {
    /// Rate of the root, in a plane that shares by itself.
    pub root: BitRate,
    /// Rate of all members in a stage before the uplink; `None` without a stage.
    pub stage: Option<BitRate>,
    /// Limit by member; [`BitRate::MAX`] for none.
    pub caps: Vec<BitRate>,
}

/// The loop and its state.
#[derive(Debug, Clone)]
pub struct Control {
    kind: Kind,
    /// Capacity that the members share.
    capacity: BitRate,
    members: Vec<Member>,
    in_force: AppliedLimits,
    stage: Option<Stage>,
    /// Resolution of a period's measurement, in bits.
    packet_bits: u64,
}

#[derive(Debug, Clone)]
enum Kind {
    /// No loop.
    None,
    Dba(Box<Loop>, Measures),
    /// The demands that gave the limits in force.
    Exact(Vec<Demand>),
    /// With a plane that shares: its hierarchy, and the demands that gave the limits in force.
    Round(Box<Hierarchy>, Vec<Demand>),
}

impl Control {
    /// For a plane that only sets limits. `capacity` is what the members share, with effective minima; packets have
    /// `packet_bits`.
    pub fn of_limits(capacity: BitRate, members: Vec<Member>, allocator: Allocator, packet_bits: u64) -> Control {
        let (kind, caps) = match allocator {
            Allocator::None => (Kind::None, vec![BitRate::MAX; members.len()]),
            Allocator::Dba(measures) => {
                let state = Loop::new(capacity, &members, measures);
                let caps = state.rates().to_vec();
                (Kind::Dba(Box::new(state), measures), caps)
            }
            // Nothing is known yet, so any member may want everything.
            Allocator::Exact | Allocator::ExactLoop => {
                let demands = vec![Demand::Unbounded; members.len()];
                let caps = caps(capacity, &members, &demands);
                (Kind::Exact(demands), caps)
            }
        };
        let in_force = AppliedLimits { root: capacity, stage: None, caps };
        Control { kind, capacity, members, in_force, stage: None, packet_bits }
    }

    /// Marks members that are no guests: the published loop leaves them out of its ranks.
    #[must_use]
    pub fn ranked_without(mut self, apart: &[bool]) -> Control {
        if let Kind::Dba(state, _) = &mut self.kind {
            state.rank_without(apart);
        }
        self
    }

    /// With a plane that shares by itself and runs `program`, which has a leaf for each member.
    ///
    /// # Panics
    /// When there are not as many leaves as members.
    pub fn round(capacity: BitRate, members: Vec<Member>, program: &Hierarchy, packet_bits: u64) -> Control {
        assert_eq!(members.len(), program.leaves.len(), "one leaf a member");
        let demands = vec![Demand::Unbounded; members.len()];
        let in_force = round(capacity, &members, program, &demands, &demands);
        let kind = Kind::Round(Box::new(program.clone()), demands);
        Control { kind, capacity, members, in_force, stage: None, packet_bits }
    }

    /// As [`Control::round`], with the leaves of all members that are not `apart` in a stage before the uplink, whose
    /// rate the loop sets.
    ///
    /// # Panics
    /// When there are not as many leaves, or not as many of `apart`, as members.
    pub fn staged(
        capacity: BitRate,
        members: Vec<Member>,
        program: &Hierarchy,
        packet_bits: u64,
        apart: Vec<bool>,
    ) -> Control {
        assert_eq!(members.len(), apart.len(), "one word a member");
        let mut control = Control::round(capacity, members, program, packet_bits);
        let stage = Stage::new(apart, program);
        // No traffic of others is known yet; they get their own minima at the uplink.
        control.in_force.stage = Some(stage.rest(control.in_force.root, BitRate::ZERO));
        control.stage = Some(stage);
        control
    }

    /// Limits in force.
    pub fn in_force(&self) -> &AppliedLimits {
        &self.in_force
    }

    /// The end of a period of `time` picoseconds, with one entry of `seen` for each member. `waiting` bits from the
    /// stage wait at the uplink. Returns whether a limit changed.
    pub fn tick_staged(&mut self, seen: &[PeriodSample], waiting: u64, time: u64) -> bool {
        let changed = self.tick(seen, time);
        let (Some(stage), Kind::Round(_, demands)) = (&mut self.stage, &self.kind) else { return changed };
        let rest = Some(stage.tick(self.in_force.root, &self.members, demands, seen, waiting, time));
        std::mem::replace(&mut self.in_force.stage, rest) != rest || changed
    }

    /// The end of a period of `time` picoseconds, with one entry of `seen` for each member. Returns whether a limit
    /// changed.
    pub fn tick(&mut self, seen: &[PeriodSample], time: u64) -> bool {
        match &mut self.kind {
            Kind::None => false,
            Kind::Dba(state, measures) => {
                let measured = |(s, cap): (&PeriodSample, &BitRate)| match measures {
                    Measures::Offered => rate_of(s.offered, time),
                    // A member that was held back used all its rate, whatever the rounding to packets says.
                    Measures::Passed if s.held_back => *cap,
                    Measures::Passed => rate_of(s.passed, time).min(*cap),
                };
                let measured: Vec<BitRate> = seen.iter().zip(&self.in_force.caps).map(measured).collect();
                let rates = state.step(&measured);
                let changed = self.in_force.caps != rates;
                self.in_force.caps.copy_from_slice(rates);
                changed
            }
            Kind::Exact(demands) => {
                let now = observed(seen, time, self.packet_bits);
                if now == *demands {
                    return false;
                }
                let caps = caps(self.capacity, &self.members, &now);
                *demands = now;
                let changed = self.in_force.caps != caps;
                self.in_force.caps = caps;
                changed
            }
            Kind::Round(program, demands) => {
                let now = observed(seen, time, self.packet_bits);
                if now == *demands {
                    return false;
                }
                let stage = self.in_force.stage;
                let used = demands_of(seen, time, |bits| bits);
                let limits = AppliedLimits { stage, ..round(self.capacity, &self.members, program, &now, &used) };
                *demands = now;
                let changed = self.in_force != limits;
                self.in_force = limits;
                changed
            }
        }
    }
}

/// Each member's demand, by the traffic of a period, as a limit allows it: one at exactly the measured rate would hold
/// back a packet that comes early.
fn observed(seen: &[PeriodSample], time: u64, packet_bits: u64) -> Vec<Demand> {
    demands_of(seen, time, |bits| bits.saturating_add(bits / 32).saturating_add(packet_bits))
}

/// Each member's demand, by the traffic of a period: `room` gives the bits for what passed.
fn demands_of(seen: &[PeriodSample], time: u64, room: impl Fn(u64) -> u64) -> Vec<Demand> {
    let demand = |s: &PeriodSample| match (s.held_back, s.passed) {
        (true, _) => Demand::Unbounded,
        (false, 0) => Demand::Rate(BitRate::ZERO),
        (false, passed) => Demand::Rate(rate_of(room(passed), time)),
    };
    seen.iter().map(demand).collect()
}

fn caps(capacity: BitRate, members: &[Member], demands: &[Demand]) -> Vec<BitRate> {
    let grants = exact(capacity, members, demands);
    // An idle member without a minimum must be able to show demand: a thousandth of the capacity is shared for that,
    // independent of the number of members.
    let least = (capacity / 1000 / members.len().max(1) as u64).max(BitRate::ONE);
    members.iter().zip(&grants).map(|(m, g)| cap(m, g).max(least)).collect()
}

/// The program with what the loop changes. A hard minimum needs no room: it is its leaf's own, whatever the root's rate,
/// and with room in it that room would be lent to the others.
fn round(
    capacity: BitRate,
    members: &[Member],
    program: &Hierarchy,
    demands: &[Demand],
    used: &[Demand],
) -> AppliedLimits {
    let idle = |(m, d): (&Member, &Demand)| if m.hard { m.min - d.up_to(m.min) } else { BitRate::ZERO };
    let reserved = members.iter().zip(used).map(idle).fold(BitRate::ZERO, BitRate::saturating_add);
    let root = program.rate_bps.saturating_sub(reserved).max(BitRate::ONE);
    let mut caps: Vec<BitRate> = program.leaves.iter().map(|leaf| leaf.ceil_bps).collect();
    // Only these are granted more than their ceiling.
    if members.iter().any(|member| member.over_max) {
        let grants = exact(capacity, members, demands);
        for ((cap, member), grant) in caps.iter_mut().zip(members).zip(&grants) {
            if member.over_max {
                *cap = (*cap).max(grant.rate);
            }
        }
    }
    AppliedLimits { root, stage: None, caps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picos::{MILLISECOND, bits_of};
    use crate::policy::compile::compile;
    use crate::policy::pool::{MemberKind, Pool, PoolMember};
    use crate::policy::program::{Framing, Program};
    use crate::policy::{Direction, Excess};
    use crate::rate::MBIT as M;

    const PERIOD: u64 = 10 * MILLISECOND;

    fn contract(min: u64, max: u64) -> Member {
        Member { priority: 4, min: min * M, max: max * M, weight: 1, hard: false, over_max: false }
    }

    fn round(contracts: &[Member]) -> Control {
        let seat = |contract: &Member| PoolMember {
            name: "x".into(),
            who: MemberKind::Interface,
            class: "x".into(),
            contract: *contract,
            queue: None,
            delay: None,
            excess: Excess::default(),
            flows: Vec::new(),
        };
        let seats = contracts.iter().map(seat).collect();
        let (direction, framing) = (Direction::GuestTx, Framing::NONE);
        let pool = Pool { uplink: "eth0".into(), direction, capacity: 100 * M, framing, seats };
        let compiled = compile(&pool, &Abilities::HTB).expect("it can be held");
        let Program::Hierarchy(program) = compiled.program.program else { panic!("a hierarchy") };
        Control::round(100 * M, pool.members(), &program, 12_000)
    }

    fn seen(mbit: u64, held_back: bool) -> PeriodSample {
        let bits = bits_of(mbit * M, PERIOD);
        PeriodSample { offered: bits, passed: bits, held_back }
    }

    #[test]
    fn an_idle_hard_minimum_is_taken_off_the_root_and_comes_back_at_once() {
        let hard = Member { hard: true, ..contract(40, 100) };
        let mut control = round(&[hard, contract(0, 100)]);
        assert_eq!(control.in_force().root, 100 * M, "nothing is known yet");
        control.tick(&[seen(0, false), seen(100, true)], PERIOD);
        assert_eq!(*control.in_force(), AppliedLimits { root: 60 * M, stage: None, caps: vec![100 * M; 2] });
        // It starts to send: it is served from its own rate whatever the root has, and the root gets its full rate
        // back.
        control.tick(&[seen(40, true), seen(60, true)], PERIOD);
        assert_eq!(control.in_force().root, 100 * M);
        // Half of it is used: the others get no more than what is left of the capacity.
        control.tick(&[seen(20, false), seen(60, true)], PERIOD);
        assert_eq!(control.in_force().root, 80 * M);
    }

    #[test]
    fn a_ceiling_rises_only_while_all_maxima_are_met() {
        let over = Member { over_max: true, ..contract(0, 30) };
        let mut control = round(&[contract(20, 60), over]);
        control.tick(&[seen(0, false), seen(30, true)], PERIOD);
        assert_eq!(control.in_force().caps, [60 * M, 100 * M]);
        control.tick(&[seen(60, true), seen(40, true)], PERIOD);
        assert_eq!(control.in_force().caps, [60 * M, 40 * M], "what the first leaves at its maximum");
        let mut control = round(&[contract(20, 90), over]);
        control.tick(&[seen(90, true), seen(10, true)], PERIOD);
        assert_eq!(control.in_force().caps, [90 * M, 30 * M], "not all maxima are met");
    }

    #[test]
    fn limits_are_never_below_minima() {
        let members = vec![contract(50, 100), contract(0, 100)];
        let mut control = Control::of_limits(100 * M, members, Allocator::Exact, 12_000);
        control.tick(&[seen(0, false), seen(100, true)], PERIOD);
        assert_eq!(control.in_force().caps, [50 * M, 100 * M]);
    }
}
