//! What a receiver makes of what arrives, against a count that remembers everything, and of what nobody should send.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::udp::SECOND_NS;

const CLOCK: u64 = 7;

fn packet(sender: u64, sequence: u64, sent_ns: u64) -> Packet {
    Packet { kind: Kind::Data, sender, sequence, due_ns: sent_ns, sent_ns, clock: CLOCK }
}

fn end(sender: u64, sent: u64) -> Packet {
    Packet { kind: Kind::End, ..packet(sender, sent, 0) }
}

/// With a payload of 100 bytes.
fn add(tally: &mut Tally, packet: Packet, now_ns: u64) {
    let mut bytes = packet.header().to_vec();
    bytes.resize(100, 0);
    tally.add(&bytes, now_ns);
}

fn identities(report: &ReceiveReport) {
    let of = |field: fn(&SenderReport) -> u64| report.senders.iter().map(field).sum::<u64>();
    let packets = of(|s| s.received) + of(|s| s.duplicates) + of(|s| s.too_old);
    assert_eq!(report.datagrams, packets + report.ends + report.greetings + report.strangers + report.untracked);
    for sender in &report.senders {
        assert_eq!(sender.received + sender.lost, sender.sent, "{sender:?}");
        assert!(sender.reordered <= sender.received, "{sender:?}");
        assert_eq!(sender.bytes, sender.bytes_by_window.iter().sum::<u64>(), "{sender:?}");
    }
    assert!(report.senders.len() <= MOST_SENDERS);
    assert!(report.senders.iter().all(|sender| sender.bytes_by_window.len() <= MOST_WINDOWS));
}

#[test]
fn losses_at_the_end() {
    let mut tally = Tally::new(CLOCK);
    for sequence in [0, 1, 4, 3, 4] {
        add(&mut tally, packet(9, sequence, 1000), 2000);
    }
    let report = tally.report(0, SECOND_NS, Some(3));
    let [sender] = report.senders.as_slice() else { panic!("{report:?}") };
    assert_eq!((sender.sent, sender.received, sender.lost, sender.sent_is_told), (5, 4, 1, false));
    assert_eq!((sender.duplicates, sender.reordered, sender.bytes), (1, 1, 400));
    assert_eq!((report.buffer_drops, report.seconds), (Some(3), 1.0));
    assert_eq!(tally.done(), 0);
    add(&mut tally, end(9, 8), 3000);
    add(&mut tally, end(9, 8), 3000);
    let report = tally.report(0, SECOND_NS, None);
    let sender = &report.senders[0];
    assert_eq!((sender.sent, sender.lost, sender.sent_is_told, tally.done()), (8, 4, true, 1));
    // Who says less than arrived is not believed.
    add(&mut tally, packet(9, 20, 1000), 4000);
    let report = tally.report(0, SECOND_NS, None);
    assert_eq!((report.senders[0].sent, report.senders[0].sent_is_told), (21, false));
    identities(&report);
}

#[test]
fn greetings() {
    let mut tally = Tally::new(CLOCK);
    let greeting = Packet { kind: Kind::Greeting, ..packet(9, 3, 1000) };
    let answer = Packet { kind: Kind::Answer, ..greeting };
    assert_eq!(tally.add(&greeting.header(), 2000), Some(answer));
    assert_eq!(tally.add(&answer.header(), 2000), None, "two receivers do not answer each other");
    assert_eq!(tally.add(&packet(9, 0, 0).header(), 2000), None);
    let report = tally.report(0, 1, None);
    assert_eq!((report.greetings, report.strangers, report.senders.len()), (1, 1, 1));
    identities(&report);
}

#[test]
fn delays_need_one_clock() {
    let delays = |clock: u64, mine: u64| {
        let mut tally = Tally::new(mine);
        add(&mut tally, Packet { clock, ..packet(1, 0, 5_000) }, 9_000);
        add(&mut tally, Packet { clock, ..packet(1, 1, 10_000) }, 9_000);
        tally.report(0, 1, None).senders[0].delay_on_one_clock.clone()
    };
    let told = delays(CLOCK, CLOCK).unwrap();
    assert_eq!((told.packets, told.mean_seconds), (1, 4e-6), "one from the future is none");
    assert_eq!((delays(8, CLOCK), delays(0, 0)), (None, None), "another clock, and one that is not known");
}

#[test]
fn windows_become_wider_instead_of_more() {
    let mut tally = Tally::new(CLOCK);
    // A packet each 10 ms from second 5 on.
    for n in 0..3 * MOST_WINDOWS as u64 {
        add(&mut tally, packet(1, n, 0), 5 * SECOND_NS + n * WINDOW_NS);
    }
    let report = tally.report(SECOND_NS, 200 * SECOND_NS, None);
    let sender = &report.senders[0];
    assert_eq!((report.window_seconds, sender.first_second), (0.04, 4.0));
    assert_eq!(sender.bytes_by_window.len(), 3 * MOST_WINDOWS / 4);
    assert!(sender.bytes_by_window.iter().all(|&bytes| bytes == 400));
    // The clock of a machine that was asleep.
    add(&mut tally, packet(1, 1 << 40, 0), u64::MAX);
    identities(&tally.report(0, 1, None));
}

#[test]
fn too_many_senders() {
    let mut tally = Tally::new(CLOCK);
    for sender in 0..5000 {
        add(&mut tally, packet(sender, 0, 0), sender);
        add(&mut tally, end(sender, 1), sender);
    }
    tally.add(b"GET / HTTP/1.1\r\n\r\n", 5000);
    let report = tally.report(0, 1, None);
    assert_eq!((report.senders.len(), report.strangers), (MOST_SENDERS, 1));
    assert_eq!(report.untracked, 2 * (5000 - MOST_SENDERS as u64));
    identities(&report);
}

/// Packets of a sender as a network may deliver them: some lost, some again, each behind others by no more than so
/// many.
fn delivered() -> impl Strategy<Value = (u64, Vec<u64>)> {
    (1u64..500, 0u64..2000).prop_flat_map(|(sent, spread)| {
        let packet = (0..sent, 0..=spread, 0u8..3);
        proptest::collection::vec(packet, 0..800).prop_map(move |mut all| {
            all.sort_by_key(|(sequence, delay, _)| sequence + delay);
            let times = |n: u8| if n == 2 { 2 } else { 1 };
            (sent, all.into_iter().flat_map(|(s, _, n)| std::iter::repeat_n(s, times(n))).collect())
        })
    })
}

/// Anything: packets with any field, cut ones, other bytes.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let field = || prop_oneof![0u64..4, any::<u64>(), Just(u64::MAX), Just(MEMORY), Just(MEMORY + 1)];
    let fields = (0u64..200, field(), field(), prop_oneof![Just(CLOCK), any::<u64>()], 0usize..4);
    let kinds = [Kind::Data, Kind::End, Kind::Greeting, Kind::Answer];
    prop_oneof![
        8 => (fields, 40usize..100).prop_map(move |((sender, sequence, sent_ns, clock, kind), length)| {
            let kind = kinds[kind];
            let mut bytes = Packet { kind, clock, ..packet(sender, sequence, sent_ns) }.header().to_vec();
            bytes.resize(length, 0);
            bytes
        }),
        1 => proptest::collection::vec(any::<u8>(), 0..100),
    ]
}

proptest! {
    #[test]
    fn counts_equal_a_complete_record((sent, order) in delivered()) {
        let mut tally = Tally::new(CLOCK);
        let (mut seen, mut again, mut behind) = (BTreeSet::new(), 0, 0);
        for &sequence in &order {
            add(&mut tally, packet(3, sequence, 0), 10);
            let highest = seen.last().copied();
            if seen.insert(sequence) { behind += u64::from(highest.is_some_and(|h| sequence < h)) } else { again += 1 }
        }
        add(&mut tally, end(3, sent), 10);
        let report = tally.report(0, 1, None);
        let sender = &report.senders[0];
        prop_assert_eq!((sender.sent, sender.received), (sent, seen.len() as u64));
        prop_assert_eq!((sender.duplicates, sender.reordered, sender.too_old), (again, behind, 0));
        identities(&report);
    }

    /// The same far up, where the numbers have gone round the memory and jump over it.
    #[test]
    fn numbers_go_round(steps in proptest::collection::vec(prop_oneof![1u64..5, MEMORY - 3..MEMORY + 3], 1..60)) {
        let mut tally = Tally::new(CLOCK);
        let (mut sequence, mut sent) = (0, BTreeSet::from([0]));
        add(&mut tally, packet(3, 0, 0), 0);
        for step in steps {
            sequence += step;
            sent.insert(sequence);
            add(&mut tally, packet(3, sequence, 0), 0);
        }
        // Each that is missing within the memory is missing, each that is there is there.
        let before = tally.report(0, 1, None).senders[0].clone();
        prop_assert_eq!((before.received, before.duplicates), (sent.len() as u64, 0));
        let near = sequence.saturating_sub(50).max(sequence.saturating_sub(MEMORY - 1));
        let missing = (near..sequence).filter(|s| !sent.contains(s)).count() as u64;
        (near..=sequence).for_each(|s| add(&mut tally, packet(3, s, 0), 0));
        let after = tally.report(0, 1, None).senders[0].clone();
        prop_assert_eq!(after.received, before.received + missing);
        prop_assert_eq!(after.duplicates, sequence - near + 1 - missing);
        if sequence >= MEMORY {
            add(&mut tally, packet(3, sequence - MEMORY, 0), 0);
            prop_assert_eq!(tally.report(0, 1, None).senders[0].too_old, 1);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_datagrams(
        all in proptest::collection::vec((hostile(), any::<u32>()), 0..400),
        wide in any::<bool>(),
    ) {
        let mut tally = Tally::new(CLOCK);
        let mut now = 0u64;
        for (bytes, after) in &all {
            now = now.saturating_add(u64::from(*after) << if wide { 20 } else { 0 });
            tally.add(bytes, now);
        }
        let report = tally.report(0, now, None);
        prop_assert_eq!(report.datagrams, all.len() as u64);
        identities(&report);
    }
}
