#![allow(clippy::unwrap_used)]

use vmio_model::holding::Queue;
use vmio_model::policy::Direction;

use super::*;
use crate::core::{MemberDelay, MemberStatus};
use crate::planes::Interruptions;

/// 80 Mbit/s are 10 MB in a window of a second.
const MIN: BitRate = BitRate::new(80_000_000);
const MB: u64 = 1_000_000;

pub(super) fn key() -> PoolKey {
    PoolKey { uplink: "eth0".into(), direction: Direction::GuestTx }
}

pub(super) fn member(name: &str, min: BitRate, passed: u64, dropped: u64, waiting: u64) -> MemberStatus {
    let count = Count { passed_bytes: passed, dropped_packets: dropped, waiting_bytes: waiting, ..Count::default() };
    let (name, class) = (name.to_owned(), "gold".to_owned());
    MemberStatus {
        name,
        class,
        min_effective_bps: min,
        limit_bps: None,
        count,
        held: None,
        local: None,
        flows: Vec::new(),
        other_limit: None,
        delay: MemberDelay::default(),
    }
}

/// A pool on an uplink of 100 Mbit/s.
pub(super) fn pool_of(members: Vec<MemberStatus>, arrived_bytes: Option<u64>) -> PoolStatus {
    let (root_bps, capacity_bps, queue) = (BitRate::ZERO, BitRate::new(100_000_000), Some(Queue::Uplink));
    let (stage, interruptions) = Default::default();
    PoolStatus { key: key(), root_bps, queue, stage, arrived_bytes, capacity_bps, interruptions, members }
}

#[test]
fn flow_classes_have_rates_of_their_own() {
    let pool = |passed: u64, name: &str| {
        let flow = |name: &str, passed_bytes| FlowCount { name: name.to_owned(), passed_bytes, ..FlowCount::default() };
        let flows = vec![flow(name, passed), flow("rest", 0)];
        let member = MemberStatus { flows, ..member("a", MIN, passed, 0, 0) };
        pool_of(vec![member], None)
    };
    let (mut demand, began) = (Demand::default(), Instant::now());
    let at = |second| began + Duration::from_secs(second);
    let rates = |demand: &Demand| demand.of(&key(), "a").unwrap().flow_bps.clone();
    demand.count(&[pool(0, "voice")], at(0));
    assert!(rates(&demand).is_empty());
    demand.count(&[pool(125_000, "voice")], at(1));
    assert_eq!(rates(&demand), [Some(BitRate::new(1_000_000)), Some(BitRate::ZERO)]);
    demand.rest(at(2));
    assert_eq!(rates(&demand), [Some(BitRate::ZERO); 2]);
    // Its queue is a new one, or that of another flow class.
    demand.count(&[pool(0, "voice")], at(3));
    assert_eq!(rates(&demand), [None, Some(BitRate::ZERO)]);
    demand.count(&[pool(9, "video")], at(4));
    assert_eq!(rates(&demand)[0], None);
}

/// Windows of a second.
struct Clock {
    demand: Demand,
    at: Instant,
}

impl Clock {
    fn new() -> Clock {
        Clock { demand: Demand::default(), at: Instant::now() }
    }

    fn count(&mut self, members: Vec<MemberStatus>) -> Vec<Breach> {
        self.arrived(members, None)
    }

    /// With so many MB that have arrived at an uplink of 100 Mbit/s.
    fn arrived(&mut self, members: Vec<MemberStatus>, mb: Option<u64>) -> Vec<Breach> {
        self.at += Duration::from_secs(1);
        self.demand.count(&[pool_of(members, mb.map(|mb| mb * MB))], self.at)
    }

    /// A window at whose end the pool is not in force.
    fn interrupted(&mut self) -> Vec<Breach> {
        self.at += Duration::from_secs(1);
        let pool = PoolStatus {
            key: key(),
            root_bps: BitRate::ZERO,
            queue: Some(Queue::Uplink),
            stage: None,
            arrived_bytes: None,
            capacity_bps: BitRate::new(100_000_000),
            interruptions: Interruptions { total: 1, now: Some("it is gone".to_owned()), ..Interruptions::default() },
            members: vec![member("a", MIN, 0, 0, 0), member("b", BitRate::ZERO, 0, 0, 0)],
        };
        self.demand.count(&[pool], self.at)
    }

    /// Of `a`, in all: passed, dropped, waiting.
    fn a(&mut self, passed: u64, dropped: u64, waiting: u64) -> Vec<Breach> {
        self.count(vec![member("a", MIN, passed, dropped, waiting)])
    }

    fn known(&self) -> &MemberDemand {
        self.demand.of(&key(), "a").unwrap()
    }
}

#[test]
fn offered_bytes() {
    let mut clock = Clock::new();
    clock.a(100 * MB, 0, 3 * MB);
    assert_eq!((clock.known().offered_bytes, clock.known().offered_bps), (0, None), "nothing is known of before");
    clock.a(110 * MB, 0, 5 * MB);
    assert_eq!((clock.known().offered_bytes, clock.known().offered_bps), (12 * MB, Some(BitRate::new(96_000_000))));
    // 5 MB waited before; they passed now, and no more came.
    clock.a(115 * MB, 0, 0);
    assert_eq!((clock.known().offered_bytes, clock.known().offered_bps), (12 * MB, Some(BitRate::ZERO)));
    // Counters begin anew: this window tells nothing, the sum never shrinks.
    clock.a(MB, 0, 0);
    assert_eq!((clock.known().offered_bytes, clock.known().offered_bps), (12 * MB, None));
    clock.a(2 * MB, 0, 0);
    assert_eq!(clock.known().offered_bytes, 13 * MB);
}

#[test]
fn offered_bytes_of_a_flood() {
    let offered = |arrived: [Option<u64>; 2]| {
        let mut clock = Clock::new();
        for (passed, dropped, arrived) in [(0, 0, arrived[0]), (MB, 9000, arrived[1])] {
            let mut flood = member("a", MIN, passed, dropped, 0);
            flood.count.arrived_bytes = arrived;
            clock.count(vec![flood]);
        }
        clock.known().offered_bytes
    };
    assert_eq!(offered([Some(5 * MB), Some(15 * MB)]), 10 * MB);
    assert_eq!(offered([None, Some(15 * MB)]), MB, "what nobody has counted is not made up");
}

#[test]
fn held_back_time() {
    let mut clock = Clock::new();
    let held = |clock: &Clock| clock.known().held.as_secs();
    clock.a(0, 0, 0);
    clock.a(MB, 0, 1000);
    assert_eq!(held(&clock), 0, "a packet that waits at a look is none that is held back");
    clock.a(2 * MB, 0, 1000);
    assert_eq!(held(&clock), 1);
    clock.a(3 * MB, 0, 0);
    assert_eq!(held(&clock), 1);
    clock.a(4 * MB, 7, 0);
    assert_eq!(held(&clock), 2);
}

#[test]
fn minimum_counts_only_with_demand() {
    let mut clock = Clock::new();
    clock.a(0, 0, 0);
    assert_eq!(clock.known().ratio(), None);
    // Little, and all of it: it does not want its minimum.
    clock.a(MB, 0, 0);
    assert_eq!((clock.known().ratio(), clock.known().wanted.as_secs()), (None, 0));
    // Its minimum, without a queue.
    clock.a(11 * MB, 0, 0);
    assert_eq!(clock.known().ratio(), Some(1.0));
    // Less, with a queue at one end only, then at both.
    clock.a(12 * MB, 0, MB);
    assert_eq!(clock.known().ratio(), Some(1.0));
    clock.a(13 * MB, 5, MB);
    assert_eq!(clock.known().ratio(), Some(0.5));
    assert_eq!((clock.known().wanted.as_secs(), clock.known().met.as_secs()), (2, 1));
    // A minute later only what the last minute shows counts; the sums stay.
    for _ in 0..60 {
        clock.a(13 * MB, 5, 0);
    }
    assert_eq!((clock.known().ratio(), clock.known().wanted.as_secs()), (None, 2));
    // Without a minimum there is nothing to keep.
    clock.count(vec![member("a", BitRate::ZERO, 13 * MB, 5, MB)]);
    assert!(clock.count(vec![member("a", BitRate::ZERO, 13 * MB, 5, MB)]).is_empty());
    assert_eq!(clock.known().ratio(), None);
}

#[test]
fn begin_and_end_of_a_breach() {
    let mut clock = Clock::new();
    clock.a(0, 0, MB);
    assert_eq!(clock.a(5 * MB, 0, MB), [], "for a second only");
    let breaches = clock.a(10 * MB, 0, MB);
    let rate_bps = BitRate::new(40_000_000);
    let begun = Breach { pool: key(), member: "a".into(), min_bps: MIN, rate_bps, ended_after: None };
    assert_eq!(breaches, std::slice::from_ref(&begun));
    assert_eq!(clock.known().breached, Some(Duration::from_secs(2)));
    assert_eq!(clock.a(15 * MB, 0, MB), []);
    // A good second between bad ones ends nothing.
    assert_eq!(clock.a(25 * MB, 0, MB), []);
    assert_eq!(clock.a(30 * MB, 0, MB), []);
    assert_eq!((clock.known().breaches, clock.known().breached), (1, Some(Duration::from_secs(5))));
    assert_eq!(clock.a(40 * MB, 0, MB), []);
    let breaches = clock.a(50 * MB, 0, MB);
    assert_eq!(breaches, [Breach { rate_bps: MIN, ended_after: Some(Duration::from_secs(5)), ..begun }]);
    assert_eq!((clock.known().breaches, clock.known().breached), (1, None));
}

#[test]
fn breach_ends_with_its_member() {
    let mut clock = Clock::new();
    for _ in 0..3 {
        clock.count(vec![member("a", MIN, 0, 0, MB), member("b", MIN, 0, 0, MB)]);
    }
    let breaches = clock.count(vec![member("b", MIN, 0, 0, MB)]);
    let ended: Vec<_> = breaches.iter().map(|b| (b.member.as_str(), b.ended_after)).collect();
    assert_eq!(ended, [("a", Some(Duration::from_secs(2)))]);
    let breaches = clock.demand.count(&[], clock.at + Duration::from_secs(1));
    let ended: Vec<_> = breaches.iter().map(|b| (b.member.as_str(), b.ended_after)).collect();
    assert_eq!(ended, [("b", Some(Duration::from_secs(3)))]);
    assert!(clock.demand.of(&key(), "b").is_none());
}

#[test]
fn an_interruption_is_a_breach_at_once() {
    let mut clock = Clock::new();
    let both = |passed| vec![member("a", MIN, passed, 0, 0), member("b", BitRate::ZERO, passed, 0, 0)];
    clock.count(both(MB));
    clock.count(both(2 * MB));
    assert!(clock.interrupted().is_empty(), "told of the pool as a whole");
    assert_eq!((clock.known().breaches, clock.known().breached), (1, Some(Duration::ZERO)));
    assert_eq!(clock.known().rate_bps, None, "nothing is counted");
    clock.interrupted();
    assert_eq!((clock.known().breaches, clock.known().breached), (1, Some(Duration::from_secs(1))));
    assert_eq!(clock.demand.of(&key(), "b").unwrap().breaches, 0, "it has no minimum");
    assert!(clock.count(both(MB)).is_empty());
    assert_eq!((clock.known().breaches, clock.known().breached), (1, None));
}

#[test]
fn flooded_time() {
    let mut clock = Clock::new();
    let mut sent = [0, 0];
    // What passes of `a`, and what arrives, in MB a second; how long it has been flooded then.
    for (passed, arrives, flooded) in [
        (1, 12, None),
        // The first look tells nothing; then 2 s must pass.
        (1, 12, None),
        (1, 13, None),
        (1, 13, Some(2)),
        (1, 13, Some(3)),
        // It has its minimum; nothing of it comes; the link is not full: 95 % of it are what those get who give way.
        (10, 13, None),
        (1, 13, None),
        (0, 13, None),
        (1, 11, None),
    ] {
        sent = [sent[0] + passed, sent[1] + arrives];
        clock.arrived(vec![member("a", MIN, sent[0] * MB, 0, 0)], Some(sent[1]));
        assert_eq!(clock.known().flooded_for(), flooded.map(Duration::from_secs), "{sent:?}");
    }
    assert_eq!(clock.known().flooded, Duration::from_secs(4));
    assert_eq!(clock.known().breaches, 0, "nothing of it waits here");
    assert_eq!(clock.demand.is_full(&key()), Some(false));
    clock.arrived(vec![member("a", MIN, 0, 0, 0)], None);
    clock.arrived(Vec::new(), None);
}

/// Where the uplink is at rest, local traffic is read less often.
#[test]
fn local_rate_is_since_the_last_counters() {
    let mut clock = Clock::new();
    let local = |bytes: u64, dropped_packets: u64| {
        let local = LocalCount { bytes, limited: true, waiting_bytes: 0, dropped_packets };
        vec![MemberStatus { local: Some(local), ..member("a", MIN, 0, 0, 0) }]
    };
    clock.count(local(7, 0));
    assert_eq!(clock.known().local_bps, None);
    clock.count(local(7 + MB, 0));
    assert_eq!(clock.known().local_bps, Some(BitRate::new(8 * MB)));
    for _ in 0..3 {
        clock.at += Duration::from_secs(1);
        clock.demand.rest(clock.at);
    }
    clock.count(local(7 + 5 * MB, 2));
    assert_eq!(clock.known().local_bps, Some(BitRate::new(8 * MB)));
    assert_eq!(clock.known().held, Duration::from_secs(4), "dropped at its own interface");
    // A counter that starts again.
    clock.count(local(0, 2));
    assert_eq!(clock.known().local_bps, None);
}

/// A minute without traffic is all that is remembered of a member: from then on looks change nothing but the time.
#[test]
fn rest_ends_with_traffic() {
    let pool = |passed| pool_of(vec![member("a", MIN, passed, 0, 0)], None);
    let (mut demand, began) = (Demand::default(), Instant::now());
    let at = |second| began + Duration::from_secs(second);
    demand.count(&[pool(0)], at(0));
    demand.count(&[pool(10 * MB)], at(1));
    for second in 2..=70 {
        assert!(demand.rest(at(second)).is_empty());
        let known = demand.of(&key(), "a").unwrap();
        let ratio = if second <= 60 { Some(1.0) } else { None };
        assert_eq!((known.ratio(), demand.rested), (ratio, second > 60), "{second}");
    }
    demand.count(&[pool(20 * MB)], at(71));
    let known = demand.of(&key(), "a").unwrap();
    assert_eq!((known.rate_bps, known.ratio(), known.met), (Some(MIN), Some(1.0), Duration::from_secs(2)));
    assert!(!demand.rested);
}
