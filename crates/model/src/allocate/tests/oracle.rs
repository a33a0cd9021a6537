//! [`exact`](crate::allocate::exact) computed another way: no sorting, no prefix sums, no shared code. Each step's
//! water level is found by bisection over fractions of one fixed denominator.

use crate::allocate::{Demand, Member};

/// Finer than the difference of any two levels of the small test cases.
const UNIT: u128 = 1 << 40;

/// Weighted max-min of `pool` among (limit, weight): the highest affordable level without rounding, then each share
/// rounded down.
fn water(pool: u64, limits: &[(u64, u32)]) -> Vec<u64> {
    // Shares in UNITs of a bit/s; level in UNITs by weight.
    let share = |level: u128, (limit, weight): (u64, u32)| (level * u128::from(weight)).min(u128::from(limit) * UNIT);
    let used = |level: u128| limits.iter().map(|l| share(level, *l)).sum::<u128>();
    let (mut low, mut high) = (0u128, UNIT << 64);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if used(middle) <= u128::from(pool) * UNIT { low = middle } else { high = middle }
    }
    // The true level lies in [low, high): a share just below a whole number is that number.
    limits.iter().map(|l| u64::try_from((share(high, *l)) / UNIT).unwrap()).collect()
}

/// Rates by the definition, in bit/s.
pub fn rates(capacity: u64, members: &[Member], demands: &[Demand]) -> Vec<u64> {
    let n = members.len();
    let asks = |i: usize, limit: u64| match demands[i] {
        Demand::Unbounded => limit,
        Demand::Rate(r) if r.bits() < limit => r.bits(),
        Demand::Rate(_) => limit,
    };
    let mut rate: Vec<u64> = (0..n).map(|i| asks(i, members[i].min.bits())).collect();
    let kept: u64 = (0..n).map(|i| if members[i].hard { members[i].min.bits() } else { rate[i] }).sum();
    let mut left = capacity - kept;
    for priority in 1..=8 {
        let who: Vec<usize> = (0..n).filter(|i| members[*i].priority == priority).collect();
        let left_to = |i: usize| asks(i, members[i].max.bits()) - rate[i];
        let limits: Vec<_> = who.iter().map(|i| (left_to(*i), members[*i].weight)).collect();
        let add = water(left, &limits);
        let wanting = limits.iter().map(|l| u128::from(l.0)).sum::<u128>() > u128::from(left);
        for (i, add) in who.iter().zip(&add) {
            rate[*i] += add;
        }
        if wanting {
            return rate;
        }
        left -= add.iter().sum::<u64>();
    }
    let who: Vec<usize> = (0..n).filter(|i| members[*i].over_max).collect();
    let limits: Vec<_> = who.iter().map(|i| (asks(*i, 1 << 62) - rate[*i], members[*i].weight)).collect();
    for (i, add) in who.iter().zip(water(left, &limits)) {
        rate[*i] += add;
    }
    rate
}
