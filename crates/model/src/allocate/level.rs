//! Weighted max-min by water level: each member gets `weight x level`, or its demand where that is less; the level is
//! the highest that the pool affords (D. Bertsekas, R. Gallager, *Data Networks*, 2nd edition, section 6.5.2, with
//! weights).
//!
//! The level is a fraction, so that only a member's own share is rounded (down) and the result does not depend on the
//! members' order.

use crate::rate::BitRate;

/// A demand with its weight: one vessel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    /// The demand.
    pub rate: BitRate,
    /// At least 1.
    pub weight: u32,
}

impl Want {
    /// Compares the levels at which two vessels are full, exactly by cross products.
    pub fn by_level(&self, other: &Want) -> std::cmp::Ordering {
        (u128::from(self.rate) * u128::from(other.weight)).cmp(&(u128::from(other.rate) * u128::from(self.weight)))
    }
}

/// Sum of full vessels. It fits 2^32 vessels of 2^64 bit/s with weights of 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sum {
    /// In bit/s.
    pub bits: u128,
    /// Of all vessels.
    pub weight: u64,
}

impl Sum {
    pub fn add(self, want: &Want) -> Sum {
        Sum { bits: self.bits + u128::from(want.rate), weight: self.weight + u64::from(want.weight) }
    }
    pub fn plus(self, other: Sum) -> Sum {
        Sum { bits: self.bits + other.bits, weight: self.weight + other.weight }
    }
    pub fn less(self, want: &Want) -> Sum {
        Sum { bits: self.bits - u128::from(want.rate), weight: self.weight - u64::from(want.weight) }
    }

    /// Whether the pool affords the level at which `last` is full. `self` is the sum of the vessels that are full at
    /// that level (`last` included), `weight` that of all vessels. Below 2^113 for 100,000 members: no overflow.
    pub fn affords(self, last: &Want, weight: u64, pool: BitRate) -> bool {
        let open = u128::from(weight - self.weight);
        self.bits * u128::from(last.weight) + u128::from(last.rate) * open <= u128::from(pool) * u128::from(last.weight)
    }
}

/// A water level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// All demands are met.
    Full,
    /// A rate for a weight.
    At { rate: BitRate, weight: u64 },
}

impl Level {
    /// Level of an empty pool.
    pub const EMPTY: Level = Level::At { rate: BitRate::ZERO, weight: 1 };

    /// The level when the vessels in `full` are full and the others, of `weight` with them, share the rest.
    pub fn above(full: Sum, weight: u64, pool: BitRate) -> Level {
        // `affords` held for the last full vessel, so the sum is within the pool.
        let rest = u128::from(pool).saturating_sub(full.bits);
        Level::At { rate: BitRate::of_sum(rest), weight: (weight - full.weight).max(1) }
    }

    /// A vessel's share at this level.
    pub fn share(self, want: &Want) -> BitRate {
        match self {
            Level::Full => want.rate,
            Level::At { rate, weight } => {
                // A division of 128 bits takes ten times as long as one of 64, which nearly always suffices.
                let share = match rate.bits().checked_mul(u64::from(want.weight)) {
                    Some(product) => BitRate::new(product / weight),
                    None => BitRate::of_sum(u128::from(want.weight) * u128::from(rate) / u128::from(weight)),
                };
                want.rate.min(share)
            }
        }
    }
}

/// Fills the vessels from `pool`; returns the level and the rest. Linear: a quickselect for the last full vessel.
pub(crate) fn fill(wants: &mut [Want], pool: BitRate) -> (Level, BitRate) {
    let all = wants.iter().fold(Sum::default(), |sum, w| sum.add(w));
    if let Some(left) = u128::from(pool).checked_sub(all.bits) {
        return (Level::Full, BitRate::of_sum(left));
    }
    let mut full = Sum::default();
    let mut open = wants;
    while !open.is_empty() {
        let middle = open.len() / 2;
        open.select_nth_unstable_by(middle, Want::by_level);
        let lower = open[..=middle].iter().fold(full, |sum, w| sum.add(w));
        if lower.affords(&open[middle], all.weight, pool) {
            full = lower;
            open = &mut open[middle + 1..];
        } else {
            open = &mut open[..middle];
        }
    }
    (Level::above(full, all.weight, pool), BitRate::ZERO)
}
