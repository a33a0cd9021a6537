//! A token bucket for packets of one size, as the generic cell rate algorithm (ITU-T I.371, annex A): it stores the
//! time at which the next packet is due instead of tokens.

use crate::picos::{MILLISECOND, time_of};
use crate::rate::BitRate;

/// Default burst after a pause: a millisecond's worth.
const BURST: u64 = MILLISECOND;

#[derive(Debug, Clone)]
pub struct Bucket {
    packet_bits: u64,
    rate: BitRate,
    /// Time of a packet at the rate, in picoseconds.
    gap: u64,
    /// How early a packet may pass, in picoseconds; at least one packet's gap.
    burst: u64,
    /// When the next packet is due.
    due: u64,
}

impl Bucket {
    /// A full bucket; [`BitRate::MAX`] for no limit.
    pub fn new(packet_bits: u64, rate: BitRate) -> Bucket {
        Bucket::with_burst(packet_bits, rate, BURST)
    }

    /// A full bucket with a burst of `burst` picoseconds' worth.
    pub fn with_burst(packet_bits: u64, rate: BitRate, burst: u64) -> Bucket {
        Bucket { packet_bits, rate, gap: time_of(packet_bits, rate), burst, due: 0 }
    }

    /// Its rate.
    pub fn rate(&self) -> BitRate {
        self.rate
    }

    /// Changes the rate; the bits taken in advance stay the same.
    pub fn set_rate(&mut self, now: u64, rate: BitRate) {
        if rate == self.rate {
            return;
        }
        let debt = u128::from(self.due.saturating_sub(now));
        let scaled = (debt * u128::from(self.rate)).checked_div(u128::from(rate)).unwrap_or(0);
        self.due = if self.gap == u64::MAX { now } else { self.due.min(now) + u64::try_from(scaled).unwrap_or(0) };
        (self.rate, self.gap) = (rate, time_of(self.packet_bits, rate));
    }

    /// The earliest time from `now` on at which a packet may pass; `u64::MAX` for never.
    pub fn next(&self, now: u64) -> u64 {
        if self.gap == u64::MAX {
            return u64::MAX;
        }
        // At least one packet early, or jitter would count as excess.
        self.due.saturating_sub(self.gap.max(self.burst)).max(now)
    }

    /// A packet passes now.
    pub fn take(&mut self, now: u64) {
        self.due = self.due.max(now).saturating_add(self.gap);
    }
}
