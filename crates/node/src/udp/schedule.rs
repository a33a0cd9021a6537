//! When each packet is due: a pure function of rates, packet size and length.

use super::SECOND_NS;

/// What is late by less is not late, whatever the rate.
const LEAST_ALLOWED_NS: u64 = 1_000_000;
/// What is late by less than so many gaps between packets is not late.
const ALLOWED_GAPS: u128 = 8;
/// Most changes of the rate.
pub const MOST_STEPS: usize = 10_000;

/// From when on which rate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// From so many ns after the start on.
    pub from_ns: u64,
    /// Bits of payload a second; 0: silence.
    pub rate_bits: u64,
}

/// Why there is no schedule for what is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum NoSchedule {
    #[error("it has no length")]
    NoLength,
    #[error("{0} changes of the rate are more than {MOST_STEPS}")]
    Steps(usize),
    #[error("the rate from second {} on does not come after the one before it", super::seconds(*from_ns))]
    Order { from_ns: u64 },
    #[error("so many packets cannot be counted")]
    Uncountable,
}

/// When each packet is due, in ns from the start.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Those that send anything, by time.
    parts: Vec<Part>,
    /// Bits of a packet, times ns of a second.
    bits: u128,
    length_ns: u64,
    packets: u64,
    /// What is late by less is not late.
    within_ns: u64,
}

/// A time with one rate.
#[derive(Debug, Clone, Copy)]
struct Part {
    from_ns: u64,
    to_ns: u64,
    rate_bits: u64,
    /// Packets before it.
    before: u64,
    packets: u64,
}

impl Schedule {
    /// Packets of so many bytes at these rates, for so long: the first of a step at its start, each further one when
    /// the bits before it have had their time.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(steps: &[Step], bytes: usize, length_ns: u64) -> Result<Self, NoSchedule> {
        if length_ns == 0 || bytes == 0 {
            return Err(NoSchedule::NoLength);
        }
        if steps.len() > MOST_STEPS {
            return Err(NoSchedule::Steps(steps.len()));
        }
        if let Some(pair) = steps.windows(2).find(|pair| pair[0].from_ns >= pair[1].from_ns) {
            return Err(NoSchedule::Order { from_ns: pair[1].from_ns });
        }
        let bits = bytes as u128 * 8 * u128::from(SECOND_NS);
        let (mut parts, mut before) = (Vec::new(), 0u64);
        for (i, step) in steps.iter().enumerate() {
            let to_ns = steps.get(i + 1).map_or(length_ns, |next| next.from_ns.min(length_ns));
            if step.rate_bits == 0 || step.from_ns >= to_ns {
                continue;
            }
            // k is due where k x bits / rate is below the length.
            let packets = (u128::from(to_ns - step.from_ns) * u128::from(step.rate_bits)).div_ceil(bits);
            let all = u64::try_from(packets).ok().and_then(|packets| Some((packets, before.checked_add(packets)?)));
            let (packets, after) = all.ok_or(NoSchedule::Uncountable)?;
            parts.push(Part { from_ns: step.from_ns, to_ns, rate_bits: step.rate_bits, before, packets });
            before = after;
        }
        Ok(Self { parts, bits, length_ns, packets: before, within_ns: LEAST_ALLOWED_NS })
    }

    /// The same where packets may be late by so much, if that is more than else.
    #[must_use]
    pub fn within(self, ns: u64) -> Self {
        Self { within_ns: ns.max(LEAST_ALLOWED_NS), ..self }
    }

    /// How many packets it has.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// How long it is, in ns.
    pub fn length_ns(&self) -> u64 {
        self.length_ns
    }

    fn part_of(&self, number: u64) -> Option<&Part> {
        let at = self.parts.partition_point(|part| part.before + part.packets <= number);
        self.parts.get(at)
    }

    /// When a packet is due; `None` behind the last one.
    pub fn due_ns(&self, number: u64) -> Option<u64> {
        let part = self.part_of(number)?;
        let after = u128::from(number - part.before) * self.bits / u128::from(part.rate_bits);
        // Within the part, so it is no more than 64 bits.
        Some(part.from_ns + after as u64)
    }

    /// By how much a packet may be late: 1 ms, what [`Schedule::within`] says, or eight gaps between packets, whichever
    /// is more.
    pub fn allowed_ns(&self, number: u64) -> u64 {
        self.part_of(number).map_or(self.within_ns, |part| self.allowed_at(part.rate_bits))
    }

    /// The least of that, which is at the highest rate.
    pub fn least_allowed_ns(&self) -> u64 {
        self.parts.iter().map(|part| self.allowed_at(part.rate_bits)).min().unwrap_or(self.within_ns)
    }

    fn allowed_at(&self, rate_bits: u64) -> u64 {
        let gaps = ALLOWED_GAPS * self.bits / u128::from(rate_bits);
        u64::try_from(gaps).unwrap_or(u64::MAX).max(self.within_ns)
    }

    /// The first packet that is due then or later; [`Self::packets`] where none is.
    pub fn first_from(&self, at_ns: u64) -> u64 {
        let Some(part) = self.parts.iter().find(|part| at_ns < part.to_ns) else { return self.packets };
        let into = u128::from(at_ns.saturating_sub(part.from_ns));
        let number = (into * u128::from(part.rate_bits)).div_ceil(self.bits);
        part.before + u64::try_from(number).unwrap_or(u64::MAX).min(part.packets)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn steady(rate_bits: u64, bytes: usize, length_ns: u64) -> Schedule {
        Schedule::new(&[Step { from_ns: 0, rate_bits }], bytes, length_ns).unwrap()
    }

    #[test]
    fn a_rate_is_of_payload() {
        // 1,250 bytes are 10,000 bits: 1,000 a second at 10 Mbit/s, one each ms.
        let schedule = steady(10_000_000, 1250, 2 * SECOND_NS);
        assert_eq!(schedule.packets(), 2000);
        let due: Vec<_> = (0..3).map(|n| schedule.due_ns(n).unwrap()).collect();
        assert_eq!(due, [0, 1_000_000, 2_000_000]);
        assert_eq!((schedule.due_ns(1999), schedule.due_ns(2000)), (Some(1_999_000_000), None));
        assert_eq!(schedule.allowed_ns(0), 8_000_000, "eight gaps");
        assert_eq!(steady(10_000_000_000, 1250, SECOND_NS).allowed_ns(0), 1_000_000, "1 ms at least");
        // A rate that no number of packets gives in a second: 3 of them, and the first of the next are due.
        assert_eq!(steady(35_000, 1250, SECOND_NS).packets(), 4);
    }

    #[test]
    fn rates_change_at_their_seconds() {
        let step = |second: u64, rate_bits| Step { from_ns: second * SECOND_NS, rate_bits };
        let schedule =
            Schedule::new(&[step(1, 10_000), step(3, 0), step(4, 20_000), step(9, 1)], 1250, 5 * SECOND_NS).unwrap();
        let due: Vec<_> = (0..5).map_while(|n| schedule.due_ns(n)).collect();
        assert_eq!(due, [SECOND_NS, 2 * SECOND_NS, 4 * SECOND_NS, 4_500_000_000]);
        assert_eq!((schedule.packets(), schedule.length_ns()), (4, 5 * SECOND_NS));
        for (at, first) in [(0, 0), (SECOND_NS, 0), (SECOND_NS + 1, 1), (2 * SECOND_NS + 1, 2), (4_100_000_000, 3)] {
            assert_eq!(schedule.first_from(at), first, "{at}");
        }
        assert_eq!(schedule.first_from(6 * SECOND_NS), 4);
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        let of = |steps: &[Step], bytes, ns| Schedule::new(steps, bytes, ns).unwrap_err().to_string();
        let step = |from_ns, rate_bits| Step { from_ns, rate_bits };
        assert!(of(&[step(0, 1)], 100, 0).contains("no length"));
        assert!(of(&[step(5, 1), step(5, 2)], 100, 9).contains("does not come after"));
        assert!(of(&[step(0, u64::MAX)], 1, u64::MAX).contains("cannot be counted"));
        let many: Vec<_> = (0..=MOST_STEPS as u64).map(|n| step(n, 1)).collect();
        assert!(of(&many, 100, 9).contains("more than 10000"));
        assert_eq!(Schedule::new(&[], 100, 9).unwrap().packets(), 0, "silence is one");
    }

    proptest! {
        /// Packets come in order, within their time, so many as the rate says, and the first from one's own time on is
        /// that one.
        #[test]
        fn schedule_properties(
            rates in proptest::collection::vec(prop_oneof![Just(0u64), 1_000u64..2_000_000], 1..5),
            bytes in 48usize..2000,
        ) {
            let at = |i: usize| i as u64 * SECOND_NS / 3;
            let steps: Vec<_> =
                rates.iter().enumerate().map(|(i, &rate_bits)| Step { from_ns: at(i), rate_bits }).collect();
            let schedule = Schedule::new(&steps, bytes, at(rates.len())).unwrap();
            let due: Vec<u64> = (0..schedule.packets()).map(|n| schedule.due_ns(n).unwrap()).collect();
            prop_assert_eq!(schedule.due_ns(schedule.packets()), None);
            prop_assert!(due.is_sorted());
            for (i, &rate) in rates.iter().enumerate() {
                let within = due.iter().filter(|d| (at(i)..at(i + 1)).contains(*d)).count() as f64;
                let exact = rate as f64 * super::super::seconds(at(i + 1) - at(i)) / (bytes * 8) as f64;
                prop_assert!(within >= exact - 0.01 && within <= exact + 1.01, "{} of {}", within, exact);
            }
            for (n, &d) in due.iter().enumerate() {
                let first = schedule.first_from(d);
                prop_assert_eq!(schedule.due_ns(first), Some(d));
                prop_assert!(first <= n as u64 && schedule.first_from(d + 1) > n as u64);
            }
        }
    }
}
