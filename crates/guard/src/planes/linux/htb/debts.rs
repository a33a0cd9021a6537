//! What a class owes, and when it may not take that along.
//!
//! HTB counts what a class may send as time, not as bytes. A packet costs what it takes at the rate of that moment,
//! down to a minute below zero (`htb_accnt_tokens` and `mbuffer` of net/sched/sch_htb.c), and a class that is changed
//! in place keeps that time at its new rate (`htb_change_class`). One packet of 64 KiB at 8 kbit/s is a minute, in
//! which any minimum is void. A class that is made anew owes nothing.

use vmio_model::rate::ByteRate;

use super::encode::Class;
use super::read::{Debt, FoundClass, InForce};
use super::tree::Tree;
use super::{ROOT_CLASS, TICK_NS};

/// The longest time for which a class may owe more than its new rate has made: 50 ms.
const BEARABLE: u32 = 50_000_000 / TICK_NS as u32;
/// That of the root, 250 ms: meanwhile each leaf still has its own rate, and all that waits has to go for it.
const BEARABLE_ROOT: u32 = 5 * BEARABLE;
/// More of it for each leaf, 1 ms: it takes about as long to make one anew, and until then it has no rate of its own.
const BEARABLE_LEAF: u32 = BEARABLE / 50;
/// The deepest debt of HTB: a minute.
const DEEPEST: u32 = (60_000_000_000 / TICK_NS) as u32;
/// Bytes of a packet of 64 KiB, with the headers of its segments.
const LARGE_PACKET: u32 = 80_000;
/// Bytes of the largest packet that the kernel knows (GSO_MAX_SIZE of include/linux/netdevice.h), likewise.
const LARGEST_PACKET: u32 = 600_000;

/// What a tree is changed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A policy, or members: no class brings a debt along.
    Policy,
    /// The loop's limits, which change all the time. The root's debt stays, since only a new tree is without one, and a
    /// leaf is made anew only if it has a debt.
    Loop,
}

impl Debt {
    /// Whether a class that owes this is made anew instead of changed.
    pub(super) fn is_void(self, found: &Class, wanted: &Class) -> bool {
        is_void(self.rate, found.rate, wanted.rate) || is_void(self.ceil, found.ceil, wanted.ceil)
    }
}

/// Whether a class would go on for long with a turn that it has begun by a larger quantum (`htb_dequeue_tree`).
pub(super) fn has_long_turn(found: &Class, wanted: &Class, root: &Class) -> bool {
    wanted.quantum < found.quantum && cost(found.quantum, root.rate) > BEARABLE_ROOT
}

/// Where too much of it is void, and where no packet at the present rate can have cost as much. Less than a third of it
/// (the rate rises by less than half) is borne: what waits would be lost, which takes longer.
fn is_void(debt: u32, found: ByteRate, wanted: ByteRate) -> bool {
    let void = void(debt, found, wanted);
    let unbearable = void > u128::from(BEARABLE) && 3 * void > u128::from(debt);
    unbearable || debt > cost(LARGEST_PACKET, found).max(BEARABLE)
}

/// At a higher rate as many bytes are less time: ticks that are owed for nothing.
fn void(debt: u32, found: ByteRate, wanted: ByteRate) -> u128 {
    let still = u128::from(debt) * u128::from(found.bytes()) / u128::from(wanted.bytes().max(1));
    u128::from(debt).saturating_sub(still)
}

/// Ticks that a packet costs at a rate.
fn cost(bytes: u32, rate: ByteRate) -> u32 {
    let ticks = u128::from(bytes) * 1_000_000_000 / (u128::from(rate.bytes().max(1)) * TICK_NS);
    u32::try_from(ticks).unwrap_or(DEEPEST).min(DEEPEST)
}

impl InForce {
    /// With what classes may owe when they are changed for a cause. For a policy that includes a large packet that each
    /// leaf sends after it was read.
    pub(super) fn owing(mut self, cause: Cause) -> InForce {
        for (minor, FoundClass { class, debt, .. }) in &mut self.classes {
            match cause {
                Cause::Policy if *minor != ROOT_CLASS => {
                    debt.rate = debt.rate.max(cost(LARGE_PACKET, class.rate));
                    debt.ceil = debt.ceil.max(cost(LARGE_PACKET, class.ceil));
                }
                Cause::Loop if *minor == ROOT_CLASS => *debt = Debt::default(),
                Cause::Policy | Cause::Loop => {}
            }
        }
        self
    }

    /// Without debts: as settings alone.
    pub(super) fn settled(mut self) -> InForce {
        self.classes.values_mut().for_each(|found| found.debt = Debt::default());
        self
    }

    /// Whether the root owes too much at its new rate. It may owe more than a packet costs, since leaves send on their
    /// own rates whatever it has.
    pub(super) fn root_is_void(&self, wanted: &Tree) -> bool {
        let void = |root: &FoundClass| void(root.debt.rate, root.class.rate, wanted.root.rate);
        let bearable = u128::from(BEARABLE_ROOT) + u128::from(BEARABLE_LEAF) * wanted.leaves.len() as u128;
        self.classes.get(&ROOT_CLASS).is_some_and(|root| void(root) > bearable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u32 = 15_625_000;

    #[test]
    fn debt_at_a_higher_rate_is_void() {
        let rate = |kbit: u64| ByteRate::new(kbit * 125);
        // A packet of 64 KiB at 8 kbit/s.
        assert!(is_void(44 * SECOND, rate(8), rate(60_000)));
        assert!(is_void(44 * SECOND, rate(8), rate(16)));
        assert!(!is_void(44 * SECOND, rate(8), rate(8)), "it is its own");
        assert!(!is_void(44 * SECOND, rate(60), rate(8)) && !is_void(0, rate(8), rate(60_000)));
        // Changed in place by another guard.
        assert!(is_void(44 * SECOND, rate(60_000), rate(60_000)));
        // Little more than before, and nothing to speak of.
        assert!(!is_void(SECOND, rate(1000), rate(1400)) && is_void(SECOND, rate(1000), rate(1600)));
        assert!(!is_void(SECOND / 25, rate(20_000), rate(60_000)));
        assert_eq!((cost(1000, rate(8)), cost(u32::MAX, rate(8))), (SECOND, DEEPEST));
        assert_eq!(cost(1, ByteRate::new(u64::MAX)), 0);
    }
}
