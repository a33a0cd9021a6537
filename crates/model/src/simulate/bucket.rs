//! A token bucket for packets of one size, as the generic cell rate algorithm (ITU-T I.371, annex
//! A): instead of tokens it keeps the time at which the next packet is due at the bucket's rate.

use crate::picos::{MILLISECOND, time_of};
use crate::rate::BitRate;

/// What a bucket lets pass at once after a pause unless something else is asked for: a millisecond's worth.
const BURST: u64 = MILLISECOND;

#[derive(Debug, Clone)]
pub struct Bucket {
    packet_bits: u64,
    rate: BitRate,
    /// Time of a packet at the rate, in picoseconds.
    gap: u64,
    /// How long before it is due a packet may pass, in picoseconds; a packet's gap at least.
    burst: u64,
    /// When the next packet is due.
    due: u64,
}

impl Bucket {
    /// A full bucket; [`BitRate::MAX`] for no limit.
    pub fn new(packet_bits: u64, rate: BitRate) -> Bucket {
        Bucket::with_burst(packet_bits, rate, BURST)
    }

    /// One that lets `burst` picoseconds' worth pass at once after a pause.
    pub fn with_burst(packet_bits: u64, rate: BitRate, burst: u64) -> Bucket {
        Bucket { packet_bits, rate, gap: time_of(packet_bits, rate), burst, due: 0 }
    }

    /// Its rate.
    pub fn rate(&self) -> BitRate {
        self.rate
    }

    /// Changes the rate; what was taken in advance stays the same number of bits.
    pub fn set_rate(&mut self, now: u64, rate: BitRate) {
        if rate == self.rate {
            return;
        }
        let debt = u128::from(self.due.saturating_sub(now));
        let scaled = (debt * u128::from(self.rate)).checked_div(u128::from(rate)).unwrap_or(0);
        self.due = if self.gap == u64::MAX { now } else { self.due.min(now) + u64::try_from(scaled).unwrap_or(0) };
        (self.rate, self.gap) = (rate, time_of(self.packet_bits, rate));
    }

    /// The first time, from `now`, at which a packet may pass; `u64::MAX` for never.
    pub fn next(&self, now: u64) -> u64 {
        if self.gap == u64::MAX {
            return u64::MAX;
        }
        // At least a packet ahead, or jitter would be taken for excess.
        self.due.saturating_sub(self.gap.max(self.burst)).max(now)
    }

    /// A packet passes now.
    pub fn take(&mut self, now: u64) {
        self.due = self.due.max(now).saturating_add(self.gap);
    }
}
