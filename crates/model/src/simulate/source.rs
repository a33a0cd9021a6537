//! Arrival times of sources' packets.

use super::Source;
use super::random::Random;
use crate::picos::{SECOND, time_of};
use crate::rate::BitRate;

/// State of a source.
pub struct Running<'a> {
    source: &'a Source,
    packet_bits: u64,
    /// Whether packets arrive at random times.
    at_random: bool,
    /// Rate of a TCP-like source.
    rate: BitRate,
    /// Until this time a TCP-like source ignores further drops.
    deaf_until: u64,
    /// Time of the next packet, without jitter.
    nominal: u64,
    /// Index in the schedule.
    place: usize,
}

impl<'a> Running<'a> {
    /// With `at_random` an open loop's packets arrive as a Poisson process. With constant gaps sources share a full
    /// queue by the phase of their gaps, not by their rates.
    pub fn new(source: &'a Source, packet_bits: u64, at_random: bool) -> Running<'a> {
        let at_random = at_random && matches!(source, Source::OpenLoop(_));
        let (rate, nominal) = match source {
            // Ten packets in the first round trip (RFC 6928).
            Source::Aimd { rtt } => (10 * packet_a_trip(packet_bits, *rtt), 0),
            Source::OpenLoop(schedule) => (BitRate::ZERO, schedule.first().map_or(u64::MAX, |s| s.0)),
        };
        Running { source, packet_bits, at_random, rate, deaf_until: 0, nominal, place: 0 }
    }

    /// Time of the next packet: up to half a gap after its scheduled time, or exactly then where packets arrive at
    /// random.
    pub fn next(&mut self, random: &mut Random) -> u64 {
        let rate = self.scheduled();
        if self.nominal == u64::MAX {
            return u64::MAX;
        }
        if self.at_random {
            return self.nominal;
        }
        self.nominal + random.below(time_of(self.packet_bits, rate).min(SECOND) / 2)
    }

    /// The rate at the scheduled time, after skipping past steps and pauses.
    fn scheduled(&mut self) -> BitRate {
        let Source::OpenLoop(schedule) = self.source else { return self.rate };
        loop {
            let Some((_, rate)) = schedule.get(self.place) else { return BitRate::ZERO };
            let until = schedule.get(self.place + 1).map_or(u64::MAX, |s| s.0);
            if self.nominal >= until {
                self.place += 1;
            } else if *rate == BitRate::ZERO {
                self.nominal = until;
                if until == u64::MAX {
                    return BitRate::ZERO;
                }
            } else {
                return *rate;
            }
        }
    }

    /// Schedules the packet after the one that arrived.
    pub fn advance(&mut self, random: &mut Random) {
        let mut gap = time_of(self.packet_bits, self.scheduled());
        if self.at_random {
            gap = random.exponential(gap);
        }
        let after = self.nominal.saturating_add(gap);
        let change = match self.source {
            Source::OpenLoop(schedule) => schedule.get(self.place + 1).map_or(u64::MAX, |s| s.0),
            Source::Aimd { .. } => u64::MAX,
        };
        // A slow schedule does not delay the start of a fast one.
        self.nominal = after.min(change);
    }

    /// A packet reached the host: a TCP-like source grows by a packet each round trip.
    pub fn sent(&mut self, limit: BitRate) {
        if let Source::Aimd { rtt } = self.source {
            // A round trip has rate x rtt / packet packets; each adds its part of packet / rtt.
            let each = u128::from(self.packet_bits).pow(2) * u128::from(SECOND).pow(2)
                / (u128::from(*rtt).pow(2) * u128::from(self.rate)).max(1);
            self.rate = self.rate.saturating_add(BitRate::of_sum(each)).min(limit);
        }
    }

    /// A packet was dropped on the host.
    pub fn dropped(&mut self, now: u64) {
        if let Source::Aimd { rtt } = self.source
            && now >= self.deaf_until
        {
            self.rate = (self.rate / 2).max(packet_a_trip(self.packet_bits, *rtt));
            self.deaf_until = now + rtt;
        }
    }

    /// Whether it waits for room in the ring.
    pub fn waits(&self) -> bool {
        matches!(self.source, Source::Aimd { .. })
    }
}

/// The rate of one packet each round trip.
fn packet_a_trip(packet_bits: u64, rtt: u64) -> BitRate {
    BitRate::new(packet_bits * (SECOND / rtt.max(1)).max(1))
}
