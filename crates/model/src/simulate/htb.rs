//! A program as Linux's HTB runs it (net/sched/sch_htb.c), for packets of one size: two levels of token buckets,
//! priorities, and turns of a quantum within one.
//!
//! A leaf with tokens is served first, by priority, whatever the root has. Without tokens it borrows from the root
//! while that has some, again by priority. No leaf exceeds its ceiling. Every packet is charged to all buckets above
//! it; a borrowed one is not charged to the leaf's own.

use super::bucket::Bucket;
use super::{Enforcement, Scenario, Settings};
use crate::control::{AppliedLimits, Control};
use crate::picos::time_of;
use crate::policy::compile::{Refusal, compile};
use crate::policy::pool::{MemberKind, Pool, PoolMember};
use crate::policy::program::{Framing, Hierarchy, Leaf as Told, Program};
use crate::policy::{Direction, Excess};

/// Number of the scheduler's priorities (`TC_HTB_NUMPRIO`).
const PRIORITIES: usize = 8;

/// The loop with its program.
pub struct Guarded {
    pub control: Control,
    /// The scheduler's program, where it enforces limits.
    pub program: Option<Hierarchy>,
}

impl Guarded {
    pub fn new(scenario: &Scenario, settings: &Settings) -> Result<Guarded, Refusal> {
        let packet_bits = u64::from(scenario.packet_bytes) * 8;
        let seat = |vif: &super::Vif| PoolMember {
            name: vif.name.clone(),
            who: MemberKind::Interface,
            class: vif.name.clone(),
            contract: vif.contract,
            queue: None,
            delay: None,
            excess: Excess::default(),
            flows: Vec::new(),
        };
        let seats: Vec<PoolMember> = scenario.vifs.iter().map(seat).collect();
        if settings.enforcement != Enforcement::Hierarchy {
            let members = seats.iter().map(|s| s.contract).collect();
            let control = Control::of_limits(scenario.capacity, members, settings.allocator, packet_bits);
            return Ok(Guarded { control, program: None });
        }
        let pool = Pool {
            uplink: "uplink".into(),
            direction: Direction::GuestTx,
            capacity: scenario.capacity,
            // A packet's size is that on the wire.
            framing: Framing::NONE,
            seats,
        };
        let compiled = compile(&pool, &settings.plane)?;
        let Program::Hierarchy(program) = compiled.program.program else {
            return Err(Refusal(vec![format!("plane {} has no scheduler to simulate", settings.plane.plane)]));
        };
        let control = Control::round(scenario.capacity, pool.members(), &program, packet_bits);
        Ok(Guarded { control, program: Some(program) })
    }
}

pub struct Scheduler {
    root: Bucket,
    leaves: Vec<Leaf>,
    packet_bytes: i64,
    /// By level (own, borrowed) and priority: the leaf whose turn it is.
    turns: [[usize; PRIORITIES]; 2],
}

struct Leaf {
    own: Bucket,
    ceiling: Bucket,
    priority: usize,
    quantum: i64,
    /// By level.
    deficit: [i64; 2],
}

/// Levels of [`Scheduler::turns`].
const OWN: usize = 0;
const BORROWED: usize = 1;

impl Scheduler {
    pub fn new(program: &Hierarchy, packet_bytes: u32) -> Scheduler {
        let packet_bits = u64::from(packet_bytes) * 8;
        let bucket = |rate, burst: u32| Bucket::with_burst(packet_bits, rate, time_of(u64::from(burst) * 8, rate));
        let leaf = |l: &Told| Leaf {
            own: bucket(l.rate_bps, l.burst_bytes),
            ceiling: bucket(l.ceil_bps, l.burst_bytes.max(l.policed_bytes)),
            priority: usize::from(l.priority).min(PRIORITIES - 1),
            quantum: i64::from(l.quantum_bytes),
            deficit: [0; 2],
        };
        Scheduler {
            root: bucket(program.rate_bps, program.burst_bytes),
            leaves: program.leaves.iter().map(leaf).collect(),
            packet_bytes: i64::from(packet_bytes),
            turns: [[0; PRIORITIES]; 2],
        }
    }

    /// Applies the loop's limits.
    pub fn set(&mut self, in_force: &AppliedLimits, now: u64) {
        self.root.set_rate(now, in_force.root);
        for (leaf, cap) in self.leaves.iter_mut().zip(&in_force.caps) {
            leaf.ceiling.set_rate(now, *cap);
        }
    }

    /// The leaf with packets that is served now, or the time to ask again (`u64::MAX` without packets).
    pub fn next(&mut self, now: u64, has_packets: impl Fn(usize) -> bool) -> Result<usize, u64> {
        let opens = |bucket: &Bucket| bucket.next(now);
        let (mut best, mut retry) = (None, u64::MAX);
        for level in [OWN, BORROWED] {
            for (index, leaf) in self.leaves.iter().enumerate().filter(|(i, _)| has_packets(*i)) {
                let pays = if level == OWN { opens(&leaf.own) } else { opens(&self.root) };
                let at = opens(&leaf.ceiling).max(pays);
                if at > now {
                    retry = retry.min(at);
                    continue;
                }
                // The first from the one whose turn it is.
                let n = self.leaves.len();
                let turn = (index + n - self.turns[level][leaf.priority]) % n;
                let key = (leaf.priority, turn);
                if best.is_none_or(|(known, _)| key < known) {
                    best = Some((key, index));
                }
            }
            if let Some((_, index)) = best {
                self.serve(index, level, now);
                return Ok(index);
            }
        }
        Err(retry)
    }

    fn serve(&mut self, index: usize, level: usize, now: u64) {
        let next = (index + 1) % self.leaves.len();
        let leaf = &mut self.leaves[index];
        if level == OWN {
            leaf.own.take(now);
        }
        leaf.ceiling.take(now);
        self.root.take(now);
        let deficit = &mut leaf.deficit[level];
        *deficit -= self.packet_bytes;
        self.turns[level][leaf.priority] = index;
        if *deficit < 0 {
            *deficit += leaf.quantum;
            self.turns[level][leaf.priority] = next;
        }
    }
}
