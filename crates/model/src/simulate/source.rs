//! Sources: when the next packet comes.

use super::Source;
use super::random::Random;
use crate::picos::{SECOND, time_of};
use crate::rate::BitRate;

/// A source that is running.
pub struct Running<'a> {
    source: &'a Source,
    packet_bits: u64,
    /// Packets come at random times.
    at_random: bool,
    /// Of a TCP-like source.
    rate: BitRate,
    /// Until then a TCP-like source takes no further drop as news.
    deaf_until: u64,
    /// When the next packet is scheduled, without jitter.
    nominal: u64,
    /// Place in the schedule.
    place: usize,
}

impl<'a> Running<'a> {
    /// `at_random`: an open loop's packets come as a Poisson process. Sources that send like clockwork share a full
    /// queue by how their gaps meet, not by what they offer.
    pub fn new(source: &'a Source, packet_bits: u64, at_random: bool) -> Running<'a> {
        let at_random = at_random && matches!(source, Source::OpenLoop(_));
        let (rate, nominal) = match source {
            // Ten packets in the first round trip (RFC 6928).
            Source::Aimd { rtt } => (10 * packet_a_trip(packet_bits, *rtt), 0),
            Source::OpenLoop(schedule) => (BitRate::ZERO, schedule.first().map_or(u64::MAX, |s| s.0)),
        };
        Running { source, packet_bits, at_random, rate, deaf_until: 0, nominal, place: 0 }
    }

    /// Time of the packet that is next: within half a gap behind its scheduled time, or at that time where packets come
    /// at random.
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

    /// The rate at the scheduled time, after going past all that is over and all pauses.
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

    /// The packet that was next has come: schedules the one after it.
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

    /// One packet got through to the host: a TCP-like source grows by a packet each round trip.
    pub fn sent(&mut self, limit: BitRate) {
        if let Source::Aimd { rtt } = self.source {
            // A round trip holds rate x rtt / packet packets; each adds its part of packet / rtt.
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
