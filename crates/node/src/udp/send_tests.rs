//! What is sent, late and never sent, by a clock that is made up.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::udp::schedule::Step;

const MS: u64 = 1_000_000;

/// A machine on which time passes as it is told.
#[derive(Default)]
struct MadeUp {
    now: u64,
    /// What sending a packet takes.
    cost: u64,
    /// (from, to): the machine does nothing between.
    stalls: Vec<(u64, u64)>,
    /// (from, to): the buffer is full between.
    full: Vec<(u64, u64)>,
    /// From then on nothing is taken, for this reason.
    broken: Option<(u64, Refused)>,
    /// (due, sent) of each packet.
    went: Vec<(u64, u64)>,
    slept: u64,
}

impl MadeUp {
    fn until(&self, spans: &[(u64, u64)]) -> Option<u64> {
        spans.iter().find(|(from, to)| (*from..*to).contains(&self.now)).map(|(_, to)| *to)
    }
}

impl Wire for MadeUp {
    fn now_ns(&mut self) -> u64 {
        while let Some(to) = self.until(&self.stalls) {
            self.now = to;
        }
        self.now
    }
    fn sleep_until(&mut self, at_ns: u64) {
        self.slept += 1;
        self.now = self.now.max(at_ns);
    }
    fn send(&mut self, sequence: u64, due: u64, now: u64) -> Result<(), Refused> {
        assert_eq!((sequence, self.now), (self.went.len() as u64, now), "numbers have no gaps, and now is now");
        self.now += self.cost;
        if let Some((_, reason)) = self.broken.filter(|(from, _)| *from <= now) {
            return Err(reason);
        }
        if self.full.iter().any(|(from, to)| (*from..*to).contains(&now)) {
            return Err(Refused::Full);
        }
        self.went.push((due, now));
        Ok(())
    }
    fn wait_for_room(&mut self, until: u64) {
        self.now = self.until(&self.full).unwrap_or(self.now + 1).min(until.max(self.now));
    }
}

/// A packet each ms for a second, eight of which are allowed.
fn each_ms() -> Schedule {
    Schedule::new(&[Step { from_ns: 0, rate_bits: 8_000_000 }], 1000, SECOND_NS).unwrap()
}

#[test]
fn each_packet_is_sent_when_it_is_due() {
    let mut wire = MadeUp { cost: 1000, ..MadeUp::default() };
    let counts = drive(&each_ms(), false, &mut wire);
    assert_eq!(counts, Counts { sent: 1000, ..Counts::default() });
    assert!(wire.went.iter().all(|(due, sent)| due == sent));
    assert_eq!(wire.slept, 999, "and it sleeps in between");
}

#[test]
fn close_packets_are_batched() {
    // A packet each 10 us.
    let schedule = Schedule::new(&[Step { from_ns: 0, rate_bits: 800_000_000 }], 1000, SECOND_NS).unwrap();
    let mut wire = MadeUp { cost: 1000, ..MadeUp::default() };
    let counts = drive(&schedule, false, &mut wire);
    assert_eq!((counts.sent, counts.late, counts.never_sent), (100_000, 0, NeverSent::default()));
    assert!(counts.worst_late_ns <= BATCH_NS + 20_000, "{counts:?}");
    assert!((3_500..=4_040).contains(&wire.slept), "{} batches", wire.slept);
}

#[test]
fn late_sender_catches_up() {
    let mut wire = MadeUp { stalls: vec![(100 * MS, 150 * MS)], ..MadeUp::default() };
    let counts = drive(&each_ms(), false, &mut wire);
    // At 150 ms those of 100 to 141 ms are late by more than 8 ms.
    assert_eq!((counts.sent, counts.late, counts.worst_late_ns), (1000, 42, 50 * MS));
    assert_eq!(wire.went[150], (150 * MS, 150 * MS), "then it is on time again");
}

#[test]
fn refused_packets_are_not_resent() {
    let mut wire = MadeUp { full: vec![(100 * MS, 150 * MS)], ..MadeUp::default() };
    let counts = drive(&each_ms(), false, &mut wire);
    assert_eq!((counts.sent, counts.late), (950, 0));
    assert_eq!(counts.never_sent, NeverSent { buffer_full: 50, ..NeverSent::default() });
    assert!(wire.went.iter().all(|(due, sent)| due == sent), "the rest is on time");
    for (reason, expected) in [
        (Refused::NoRoom, NeverSent { no_room: 100, ..NeverSent::default() }),
        (Refused::Port, NeverSent { refused: 100, ..NeverSent::default() }),
        (Refused::Other, NeverSent { other: 100, ..NeverSent::default() }),
    ] {
        let mut wire = MadeUp { broken: Some((900 * MS, reason)), ..MadeUp::default() };
        assert_eq!(drive(&each_ms(), reason != Refused::Port, &mut wire).never_sent, expected);
    }
}

#[test]
fn blocking_sender_skips_missed_packets() {
    let mut wire = MadeUp { full: vec![(100 * MS, 150 * MS)], ..MadeUp::default() };
    let counts = drive(&each_ms(), true, &mut wire);
    // The one of 100 ms goes at 150 ms; those of 101 to 149 do not.
    assert_eq!((counts.sent, counts.held_back, counts.held_ns, counts.late), (951, 49, 50 * MS, 0));
    assert_eq!(wire.went[100..102], [(100 * MS, 150 * MS), (150 * MS, 150 * MS)]);
    // Full to the end: it does not wait for ever.
    let mut wire = MadeUp { full: vec![(100 * MS, u64::MAX)], ..MadeUp::default() };
    let counts = drive(&each_ms(), true, &mut wire);
    assert_eq!((counts.sent, counts.held_back, counts.held_ns), (100, 900, 900 * MS));
}

#[test]
fn impossible_rate_ends_in_time() {
    // 25 packets are due each time that one is sent.
    let schedule = Schedule::new(&[Step { from_ns: 0, rate_bits: 8_000_000_000 }], 40, SECOND_NS).unwrap();
    let mut wire = MadeUp { cost: 1000, ..MadeUp::default() };
    let counts = drive(&schedule, false, &mut wire);
    assert_eq!(counts.sent + counts.never_sent.no_time, schedule.packets());
    assert!(wire.now < SECOND_NS + 2 * MS, "{}", wire.now);
    assert!(counts.never_sent.no_time > 23_900_000 && counts.late > counts.sent / 2, "{counts:?}");
}

proptest! {
    /// Whatever happens, each packet has become something, nothing is sent before it is due, and a sender that does not
    /// wait is past the end by no more than is allowed and what the machine itself stood still.
    #[test]
    fn every_packet_is_accounted_for(
        rates in proptest::collection::vec(prop_oneof![Just(0u64), 100_000u64..40_000_000], 1..4),
        stalls in proptest::collection::vec((0u64..300, 1u64..100), 0..4),
        full in proptest::collection::vec((0u64..300, 1u64..100), 0..4),
        cost in prop_oneof![Just(0u64), 1u64..3_000_000],
        waits in any::<bool>(),
    ) {
        let step = |(i, &rate_bits): (usize, &u64)| Step { from_ns: i as u64 * 100 * MS, rate_bits };
        let steps: Vec<_> = rates.iter().enumerate().map(step).collect();
        let schedule = Schedule::new(&steps, 1000, rates.len() as u64 * 100 * MS).unwrap();
        let spans = |of: &[(u64, u64)]| of.iter().map(|(at, len)| (at * MS, (at + len) * MS)).collect::<Vec<_>>();
        let mut wire = MadeUp { cost, stalls: spans(&stalls), full: spans(&full), ..MadeUp::default() };
        let counts = drive(&schedule, waits, &mut wire);
        prop_assert_eq!(counts.sent + counts.never_sent.all() + counts.held_back, schedule.packets());
        prop_assert_eq!(counts.sent, wire.went.len() as u64);
        prop_assert!(wire.went.iter().all(|(due, sent)| due <= sent));
        prop_assert!(wire.went.iter().is_sorted_by_key(|(due, _)| *due));
        prop_assert!(waits || (counts.held_back, counts.held_ns) == (0, 0));
        prop_assert!(!waits || counts.never_sent.buffer_full == 0);
        prop_assert!(counts.late <= counts.sent);
    }
}
