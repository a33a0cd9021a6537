//! Properties of any hierarchy.

use std::collections::BTreeSet;

use proptest::prelude::*;
use vmio_model::policy::program::Leaf;

use super::super::super::netlink::wire::Attributes;
use super::hierarchy::leaf;
use super::*;

fn classes() -> impl Strategy<Value = Class> {
    (any::<u64>(), any::<u64>(), any::<[u32; 4]>(), any::<[u16; 2]>()).prop_map(|(rate, ceil, small, short)| Class {
        rate: ByteRate::new(rate),
        ceil: ByteRate::new(ceil),
        burst: small[0],
        cburst: small[1],
        quantum: small[2],
        prio: small[3],
        overhead: short[0],
        mpu: short[1],
    })
}

/// Hierarchies of a few leaves, any of which can be missing in another.
fn hierarchies() -> impl Strategy<Value = Hierarchy> {
    let some = (1u64..100, 1u64..100, 0u8..8, 1u32..90_000, 1u32..9);
    let leaves = prop::collection::btree_map(0u8..12, some, 0..10);
    (leaves, 1u64..1000, 0usize..3).prop_map(|(leaves, rate, framing)| {
        let of = |(name, (rate, more, priority, quantum, queue)): (u8, (u64, u64, u8, u32, u32))| Leaf {
            priority,
            quantum_bytes: quantum,
            queue_bytes: queue,
            ..leaf(&format!("vm{name}"), rate, rate + more)
        };
        let framing = [Framing::NONE, Framing::ETHERNET, Framing { overhead_bytes: 4, least_bytes: 0 }][framing];
        let leaves = leaves.into_iter().map(of).chain([leaf("default", 1, 9)]).collect();
        Hierarchy { rate_bps: rate * M, burst_bytes: 9000, framing, leaves }
    })
}

proptest! {
    /// From one hierarchy to another, whatever somebody did to the first.
    #[test]
    fn steps_reach_the_wanted_tree(
        all in (hierarchies(), hierarchies()),
        apart in (prop::collection::btree_set(2u16..15, 0..9), prop::collection::btree_set(2u16..15, 0..9)),
        hurt in prop::collection::vec((2u16..15, 0u8..6), 0..4),
        owed in prop::collection::vec((1u16..15, any::<u32>()), 0..9),
    ) {
        // A leaf of both has one number.
        let number = |name: &str| match name.strip_prefix("vm") {
            Some(index) => 3 + index.parse::<u16>().unwrap(),
            None => 2,
        };
        let named = |h: &Hierarchy| h.leaves.iter().map(|l| (l.name.clone(), number(&l.name))).collect();
        let wanted = |h: &Hierarchy, apart: &BTreeSet<u16>| {
            Tree::wanted(h, &Numbers::given(named(h)).unwrap().with_flows_apart(apart.iter().copied())).unwrap()
        };
        let (first, second) = (wanted(&all.0, &apart.0), wanted(&all.1, &apart.1));
        let mut there = done(None, &difference(&first, None)).unwrap();
        prop_assert_eq!(&there, &in_force(&first));
        for (minor, how) in hurt {
            let class = there.classes[&ROOT_CLASS].class;
            let queue = FoundQueue { kind: "tbf".into(), handle: 0x8001_0000, queue: None };
            let stray = |parent| FoundClass { parent, class, debt: Debt::default() };
            match how {
                0 => drop(there.queues.remove(&minor)),
                1 if there.classes.contains_key(&minor) => drop(there.queues.insert(minor, queue)),
                2 => drop(there.classes.insert(minor + 90, stray(classid(ROOT_CLASS)))),
                3 => drop(there.classes.insert(minor + 90, stray(AT_ROOT))),
                4 => drop(there.classes.insert(minor + 90, stray(classid(minor)))),
                _ => there.default = u32::from(minor),
            }
        }
        for (minor, rate) in owed {
            there.classes.entry(minor).and_modify(|found| found.debt = Debt { rate, ceil: rate / 2 });
        }
        let there = there.owing(Cause::Policy);
        let steps = difference(&second, Some(&there));
        let reached = done(Some(there), &steps).unwrap().settled();
        prop_assert_eq!(difference(&second, Some(&reached)), []);
        prop_assert_eq!(reached.classes.len(), second.leaves.len() + 1);
        prop_assert_eq!(steps::mismatch(&second, &reached), None);
    }

    #[test]
    fn class_round_trips(class in classes()) {
        prop_assert_eq!(encode::class_of(encode::class(&class).bytes()), Ok(class));
    }

    #[test]
    fn default_round_trips(default in any::<u16>()) {
        prop_assert_eq!(encode::default_of(encode::qdisc(default).bytes()), Ok(u32::from(default)));
    }

    #[test]
    fn hostile_options_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0u16..9) {
        for options in [bytes.clone(), Attributes::new().with(kind, &bytes).bytes().to_vec()] {
            let _ = (Queue::of("bfifo", &options), Queue::of("fq_codel", &options));
            let _ = (encode::class_of(&options), encode::default_of(&options), encode::entries_of(&options));
        }
    }

    #[test]
    fn bucket_size_is_rounded_up_by_a_tick(rate in 8u64..400_000_000_000, burst in 1u32..16_000_000) {
        let mut hierarchy = three();
        let bits = BitRate::new(rate);
        hierarchy.leaves[1] = Leaf { rate_bps: bits, ceil_bps: bits, burst_bytes: burst, ..leaf("web", 1, 1) };
        let class = tree(&hierarchy).leaves[&3].class;
        let whole = class.rate.bytes();
        let bytes = |ticks: u32| u128::from(ticks) * 64 * u128::from(whole) / 1_000_000_000;
        prop_assert!(bytes(class.burst) >= u128::from(burst) || class.burst == u32::MAX);
        prop_assert!(class.burst == 1 || bytes(class.burst - 1) <= u128::from(burst));
        prop_assert!(whole * 8 <= rate && rate < (whole + 1) * 8);
    }
}

/// What it took from there would come before others' minima.
#[test]
fn a_bucket_before_a_leaf_gives_its_own_rate_no_burst() {
    let mut hierarchy = three();
    hierarchy.leaves[1].policed_bytes = 12_500_000;
    let (with, without) = (tree(&hierarchy).leaves[&3].class, tree(&three()).leaves[&3].class);
    assert_eq!(with.burst, without.burst);
    // At 100 Mbit/s, in ticks of 64 ns.
    assert_eq!(with.cburst, 15_625_000);
}
