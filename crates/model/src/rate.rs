//! Types for rates, so that bits and bytes are not confused: networks and policies use bits a second ([`BitRate`]),
//! disks and the kernel's queues bytes a second ([`ByteRate`]).
//!
//! In JSON both are bare numbers; the field's name has the unit (`…_bps` is bit/s).

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Div, Mul, Sub};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whole bits a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, title = "", description = "")] // a bare number, as if it were no type of its own
pub struct BitRate(u64);

/// Whole bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, title = "", description = "")] // a bare number, as if it were no type of its own
pub struct ByteRate(u64);

/// 1 Mbit/s.
pub const MBIT: BitRate = BitRate(1_000_000);

impl BitRate {
    /// Nothing.
    pub const ZERO: BitRate = BitRate(0);
    /// The smallest rate above 0.
    pub const ONE: BitRate = BitRate(1);
    /// No limit.
    pub const MAX: BitRate = BitRate(u64::MAX);

    /// From bit/s.
    pub const fn new(bits: u64) -> BitRate {
        BitRate(bits)
    }
    /// In bit/s.
    pub const fn bits(self) -> u64 {
        self.0
    }
    /// In bytes a second, rounded down.
    pub const fn bytes(self) -> ByteRate {
        ByteRate(self.0 / 8)
    }
    /// The rate of this many bytes in this many seconds.
    pub fn of_bytes(bytes: u64, seconds: f64) -> BitRate {
        BitRate((bytes as f64 * 8.0 / seconds) as u64)
    }
    /// A sum, at most the highest rate.
    pub fn of_sum(bits: u128) -> BitRate {
        BitRate(u64::try_from(bits).unwrap_or(u64::MAX))
    }
    /// The sum, at most the highest rate.
    #[must_use]
    pub const fn saturating_add(self, other: BitRate) -> BitRate {
        BitRate(self.0.saturating_add(other.0))
    }
    /// The difference, at least 0.
    #[must_use]
    pub const fn saturating_sub(self, other: BitRate) -> BitRate {
        BitRate(self.0.saturating_sub(other.0))
    }
    /// Rounded down to a multiple of a step; a step of 0 counts as 1 bit/s.
    #[must_use]
    pub fn rounded_down(self, step: BitRate) -> BitRate {
        let step = step.0.max(1);
        BitRate(self.0 / step * step)
    }
    /// Rounded up to a multiple of a step, at most the highest rate; a step of 0 counts as 1 bit/s.
    #[must_use]
    pub fn rounded_up(self, step: BitRate) -> BitRate {
        let step = step.0.max(1);
        BitRate(self.0.div_ceil(step).saturating_mul(step))
    }
}

impl ByteRate {
    /// From bytes a second.
    pub const fn new(bytes: u64) -> ByteRate {
        ByteRate(bytes)
    }
    /// In bytes a second.
    pub const fn bytes(self) -> u64 {
        self.0
    }
    /// In bit/s, at most the highest rate.
    pub const fn bits(self) -> BitRate {
        BitRate(self.0.saturating_mul(8))
    }
}

impl Add for BitRate {
    type Output = BitRate;
    fn add(self, other: BitRate) -> BitRate {
        BitRate(self.0 + other.0)
    }
}

impl Sub for BitRate {
    type Output = BitRate;
    fn sub(self, other: BitRate) -> BitRate {
        BitRate(self.0 - other.0)
    }
}

impl Mul<BitRate> for u64 {
    type Output = BitRate;
    fn mul(self, rate: BitRate) -> BitRate {
        BitRate(self * rate.0)
    }
}

/// Rounded down.
impl Div<u64> for BitRate {
    type Output = BitRate;
    fn div(self, parts: u64) -> BitRate {
        BitRate(self.0 / parts)
    }
}

/// How often the other rate fits in it.
impl Div for BitRate {
    type Output = u64;
    fn div(self, other: BitRate) -> u64 {
        self.0 / other.0
    }
}

impl Sum for BitRate {
    fn sum<I: Iterator<Item = BitRate>>(rates: I) -> BitRate {
        BitRate(rates.map(BitRate::bits).sum())
    }
}

impl From<BitRate> for u128 {
    fn from(rate: BitRate) -> u128 {
        u128::from(rate.0)
    }
}

/// Prefixes with their factors, powers of a thousand first, descending.
pub(crate) const PREFIXES: [(&str, u64); 8] = [
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
    ("", 1),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
];

/// In a form that reads back exactly: `2.5 Gbit/s`, `1.234567 Mbit/s`.
impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, factor) = PREFIXES[..5].iter().find(|(_, factor)| self.0 >= *factor).copied().unwrap_or(("", 1));
        let digits = factor.ilog10() as usize;
        let fraction = format!("{:0digits$}", self.0 % factor);
        let fraction = if digits == 0 { "" } else { fraction.trim_end_matches('0') };
        let point = if fraction.is_empty() { "" } else { "." };
        f.pad(&format!("{}{point}{fraction} {prefix}bit/s", self.0 / factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_bytes() {
        assert_eq!((BitRate::new(15).bytes(), ByteRate::new(2).bits()), (ByteRate::new(1), BitRate::new(16)));
        assert_eq!(ByteRate::new(u64::MAX).bits(), BitRate::MAX);
        assert_eq!(BitRate::of_sum(u128::MAX), BitRate::MAX);
    }

    #[test]
    fn whole_multiples_of_a_step() {
        let both = |bits, step| [BitRate::new(bits).rounded_down(step), BitRate::new(bits).rounded_up(step)];
        assert_eq!(both(15, BitRate::new(8)).map(BitRate::bits), [8, 16]);
        assert_eq!(both(15, BitRate::ZERO).map(BitRate::bits), [15, 15]);
        assert_eq!(BitRate::MAX.rounded_up(BitRate::new(8)), BitRate::MAX);
    }

    #[test]
    fn shown_with_the_largest_prefix_that_fits() {
        let shown = |bits| BitRate::new(bits).to_string();
        assert_eq!(shown(2_500_000_000), "2.5 Gbit/s");
        assert_eq!(shown(1_234_567), "1.234567 Mbit/s");
        assert_eq!((shown(0).as_str(), shown(999).as_str()), ("0 bit/s", "999 bit/s"));
        assert_eq!(format!("{:>10}|{:<10}|", BitRate::new(1000), BitRate::new(1)), "  1 kbit/s|1 bit/s   |");
    }
}
