//! Time in picoseconds: a 64-byte frame at 800 Gbit/s takes 640 of them.

use crate::rate::BitRate;

/// Picoseconds in a second.
pub const SECOND: u64 = 1_000_000_000_000;
/// Picoseconds in a millisecond.
pub const MILLISECOND: u64 = SECOND / 1000;

/// Time of `bits` at a rate, in picoseconds; the maximum at rate 0.
pub fn time_of(bits: u64, rate: BitRate) -> u64 {
    (u128::from(bits) * u128::from(SECOND))
        .checked_div(u128::from(rate))
        .map_or(u64::MAX, |t| u64::try_from(t).unwrap_or(u64::MAX))
}

/// Rate of `bits` in `time` picoseconds.
pub fn rate_of(bits: u64, time: u64) -> BitRate {
    BitRate::of_sum(u128::from(bits) * u128::from(SECOND) / u128::from(time.max(1)))
}

/// Bits at a rate in `time` picoseconds.
pub fn bits_of(rate: BitRate, time: u64) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(time) / u128::from(SECOND)).unwrap_or(u64::MAX)
}
