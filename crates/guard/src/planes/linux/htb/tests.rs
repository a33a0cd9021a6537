#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;

use vmio_model::policy::program::{Framing, Hierarchy};
use vmio_model::rate::{BitRate, ByteRate, MBIT as M};

use super::encode::AT_ROOT;
use super::*;
use crate::desired::LAST_NUMBER;

mod flows;
#[path = "../../../../tests/common/hierarchy.rs"]
mod hierarchy;
mod properties;

use hierarchy::three;

/// From 2 on, in the leaves' order.
fn numbers(hierarchy: &Hierarchy) -> Numbers {
    let named = hierarchy.leaves.iter().zip(2u16..).map(|(leaf, number)| (leaf.name.clone(), number));
    Numbers::given(named.collect()).unwrap()
}

fn tree(hierarchy: &Hierarchy) -> Tree {
    Tree::wanted(hierarchy, &numbers(hierarchy)).unwrap()
}

fn queued(minor: u16, queue: Queue) -> FoundQueue {
    FoundQueue { kind: queue.kind().to_owned(), handle: queue_handle(minor), queue: Some(queue) }
}

/// As the kernel would have it.
fn in_force(tree: &Tree) -> InForce {
    let child = |class| FoundClass { parent: classid(ROOT_CLASS), class, debt: Debt::default() };
    let mut classes: BTreeMap<u16, FoundClass> = tree.leaves.iter().map(|(m, l)| (*m, child(l.class))).collect();
    classes.insert(ROOT_CLASS, FoundClass { parent: AT_ROOT, ..child(tree.root) });
    let queues = tree.leaves.iter().map(|(m, l)| (*m, queued(*m, l.queue)));
    let nested =
        |minor: &u16| FoundQueue { kind: flow_tree::KIND.to_owned(), handle: queue_handle(*minor), queue: None };
    let nested: BTreeMap<u16, FoundQueue> = tree.flow_trees.keys().map(|minor| (*minor, nested(minor))).collect();
    let queues: BTreeMap<u16, FoundQueue> = queues.into_iter().chain(nested).collect();
    let flow_trees = tree.flow_trees.clone();
    InForce { default: u32::from(tree.default), sized: false, classes, queues, flow_trees }
}

/// What the kernel makes of steps: refused where it would refuse them.
fn done(found: Option<InForce>, steps: &[Step]) -> Option<InForce> {
    let mut there = found;
    for step in steps {
        if let Step::AddRoot { default } = step {
            assert_eq!(there, None, "{step}");
            there = Some(InForce { default: u32::from(*default), ..InForce::default() });
            continue;
        }
        let now = there.as_mut().unwrap();
        match step {
            Step::AddRoot { .. } => unreachable!(),
            Step::RemoveRoot => there = None,
            Step::RemoveSizes => now.sized = false,
            Step::AddClass { minor, class } => {
                let parent = if *minor == ROOT_CLASS { AT_ROOT } else { classid(ROOT_CLASS) };
                assert!(parent == AT_ROOT || now.classes.contains_key(&ROOT_CLASS), "{step}");
                let made = FoundClass { parent, class: *class, debt: Debt::default() };
                assert_eq!(now.classes.insert(*minor, made), None, "{step}");
            }
            // What it owes stays.
            Step::SetClass { minor, class } => now.classes.get_mut(minor).unwrap().class = *class,
            Step::RemoveQueue { minor, handle } => {
                assert_eq!(now.queues.remove(minor).unwrap().handle, *handle);
                now.flow_trees.remove(minor);
            }
            Step::SetFlows { minor, flows } => {
                assert!(now.classes.contains_key(minor), "{step}");
                let kind = flow_tree::KIND.to_owned();
                let made = FoundQueue { kind, handle: queue_handle(*minor), queue: None };
                assert_eq!(now.queues.insert(*minor, made), None, "an empty leaf");
                now.flow_trees.insert(*minor, flows.clone());
            }
            Step::SetQueue { minor, queue } => {
                let before = now.queues.insert(*minor, queued(*minor, *queue));
                assert!(before.is_none_or(|b| b.kind == queue.kind()), "another kind under our handle is refused");
                assert!(now.classes.contains_key(minor), "{step}");
            }
            Step::RemoveClass { minor } => {
                let below = now.classes.values().any(|c| c.parent == classid(*minor));
                assert!(!below && now.classes.remove(minor).is_some(), "{step}");
                now.queues.remove(minor);
                now.flow_trees.remove(minor);
            }
        }
    }
    there
}

fn step_texts(wanted: &Tree, found: Option<&InForce>) -> Vec<String> {
    difference(wanted, found).iter().map(ToString::to_string).collect()
}

#[test]
fn steps_from_nothing() {
    let wanted = tree(&three());
    assert_eq!(
        step_texts(&wanted, None),
        [
            "add qdisc 7a00: default 7a00:2",
            "add class 7a00:1 rate 12500000 ceil 12500000 burst 163840 cburst 163840 quantum 15140 prio 0",
            "add class 7a00:2 rate 125000 ceil 12500000 burst 16384000 cburst 163840 quantum 15140 prio 3",
            "set queue of class 7a00:2 to 250000 bytes",
            "add class 7a00:3 rate 7500000 ceil 12500000 burst 273067 cburst 163840 quantum 15140 prio 3",
            "set queue of class 7a00:3 to 250000 bytes",
            "add class 7a00:4 rate 2500000 ceil 6250000 burst 819200 cburst 327680 quantum 15140 prio 3",
            "set queue of class 7a00:4 to 250000 bytes",
        ]
    );
    assert_eq!(step_texts(&wanted, Some(&in_force(&wanted))), [""; 0]);
}

#[test]
fn steps_for_differences() {
    let wanted = tree(&three());
    let there = in_force(&wanted);
    let mut other = three();
    other.leaves[2].ceil_bps = 40 * M;
    assert_eq!(
        step_texts(&tree(&other), Some(&there)),
        ["change class 7a00:4 rate 2500000 ceil 5000000 burst 819200 cburst 409600 quantum 15140 prio 3"]
    );
    let mut fewer = three();
    fewer.leaves.pop();
    fewer.leaves[1].queue_bytes = 9000;
    assert_eq!(
        step_texts(&tree(&fewer), Some(&there)),
        ["set queue of class 7a00:3 to 9000 bytes", "remove class 7a00:4"]
    );
    let mut framed = three();
    framed.framing = Framing::ETHERNET;
    framed.rate_bps = 50 * M;
    assert_eq!(
        step_texts(&tree(&framed), Some(&there)),
        [
            "change class 7a00:1 rate 6250000 ceil 6250000 burst 327680 cburst 327680 quantum 15140 prio 0 overhead 24 mpu 84",
            "change class 7a00:2 rate 125000 ceil 12500000 burst 16384000 cburst 163840 quantum 15140 prio 3 overhead 24 mpu 84",
            "change class 7a00:3 rate 7500000 ceil 12500000 burst 273067 cburst 163840 quantum 15140 prio 3 overhead 24 mpu 84",
            "change class 7a00:4 rate 2500000 ceil 6250000 burst 819200 cburst 327680 quantum 15140 prio 3 overhead 24 mpu 84"
        ]
    );
    let sized = InForce { sized: true, ..there };
    assert_eq!(step_texts(&wanted, Some(&sized)), ["remove the size table of qdisc 7a00:"]);
}

/// A leaf that may owe more than its new rate has made is made anew, and for the root all is.
#[test]
fn debts_do_not_outlive_a_rate() {
    let mut slow = three();
    slow.leaves[2].rate_bps = BitRate::new(8000);
    let (before, wanted) = (in_force(&tree(&slow)), tree(&three()));
    let in_place = "change class 7a00:4 rate 2500000 ceil 6250000 burst 819200 cburst 327680 quantum 15140 prio 3";
    let anew = [
        "remove class 7a00:4".to_owned(),
        in_place.replace("change", "add"),
        "set queue of class 7a00:4 to 250000 bytes".to_owned(),
    ];
    // One packet may cost it a minute after it was read.
    assert_eq!(step_texts(&wanted, Some(&before.clone().owing(Cause::Policy))), anew);
    assert_eq!(step_texts(&wanted, Some(&before.clone().owing(Cause::Loop))), [in_place]);
    let owes = |minor: u16, rate: u32| {
        let mut there = before.clone();
        there.classes.get_mut(&minor).unwrap().debt.rate = rate;
        there
    };
    let owing = owes(4, 687_875_970);
    assert_eq!(step_texts(&wanted, Some(&owing.clone().owing(Cause::Loop))), anew);
    assert_eq!(done(Some(owing.clone()), &difference(&wanted, Some(&owing))), Some(in_force(&wanted)));
    // It is its own while the rate stays; left by another guard at a rate that cannot have made it, it is not.
    assert_eq!(step_texts(&tree(&slow), Some(&owing.clone().owing(Cause::Policy))), [""; 0]);
    let mut left = owing;
    left.classes.get_mut(&4).unwrap().class = wanted.leaves[&4].class;
    assert_eq!(step_texts(&wanted, Some(&left)), anew);
    assert_eq!(steps::mismatch(&wanted, &left.settled()), None);
    // A turn of three seconds.
    let mut turn = in_force(&wanted);
    turn.classes.get_mut(&4).unwrap().class.quantum = 37_500_000;
    assert_eq!(step_texts(&wanted, Some(&turn)), anew);
    // The root of a higher rate.
    let mut faster = three();
    faster.rate_bps = 3 * faster.rate_bps;
    let owing = owes(1, 15_625_000);
    assert_eq!(step_texts(&tree(&faster), Some(&owing))[0], "remove qdisc 7a00:");
    assert!(step_texts(&tree(&faster), Some(&owing.clone().owing(Cause::Loop)))[0].starts_with("change class 7a00:1 "));
    assert_eq!(step_texts(&tree(&slow), Some(&owing)), [""; 0]);
}

/// HTB serves a class in which something waits by the priority that it had when that began.
#[test]
fn changed_priority_replaces_the_queue() {
    let before = in_force(&tree(&three()));
    let mut changed = three();
    changed.leaves[2].priority = 1;
    let steps = difference(&tree(&changed), Some(&before));
    let minor = 4;
    let [Step::SetClass { minor: 4, class }, Step::RemoveQueue { minor: 4, handle }, Step::SetQueue { minor: 4, .. }] =
        steps.as_slice()
    else {
        panic!("{steps:?}")
    };
    assert_eq!((class.prio, *handle), (1, queue_handle(minor)));
    assert_eq!(done(Some(before), &steps), Some(in_force(&tree(&changed))));
}

#[test]
fn steps_for_foreign_changes() {
    let wanted = tree(&three());
    let mut there = in_force(&wanted);
    there.queues.insert(3, FoundQueue { kind: "tbf".to_owned(), handle: 0x8001_0000, queue: None });
    there.queues.remove(&4);
    let stray = there.classes[&4];
    there.classes.insert(99, stray);
    assert_eq!(
        step_texts(&wanted, Some(&there)),
        [
            "remove queue 8001: of class 7a00:3",
            "set queue of class 7a00:3 to 250000 bytes",
            "set queue of class 7a00:4 to 250000 bytes",
            "remove class 7a00:63"
        ]
    );
    // A class below one of ours, and another default: neither can be changed in place.
    let mut deeper = in_force(&wanted);
    deeper.classes.insert(99, FoundClass { parent: classid(3), ..stray });
    let whole = step_texts(&wanted, None);
    assert_eq!(step_texts(&wanted, Some(&deeper))[0], "remove qdisc 7a00:");
    assert_eq!(step_texts(&wanted, Some(&deeper))[1..], whole);
    let other = InForce { default: 7, ..in_force(&wanted) };
    assert_eq!(step_texts(&wanted, Some(&other))[1..], whole);
    // What a class that lends never uses is not compared.
    let mut lends = in_force(&wanted);
    lends.classes.get_mut(&ROOT_CLASS).unwrap().class.quantum = 1;
    assert_eq!(step_texts(&wanted, Some(&lends)), [""; 0]);
}

/// Leaf 3 with its flows apart.
fn apart(hierarchy: &Hierarchy) -> Tree {
    Tree::wanted(hierarchy, &numbers(hierarchy).with_flows_apart([3])).unwrap()
}

#[test]
fn fq_codel_options_round_trip() {
    let queue = Queue::flows(262_144);
    let option = |kind: u8, value: u32| [&[8, 0, kind, 0], &value.to_ne_bytes()[..]].concat();
    // Target, limit, interval, ECN, memory limit: 1000 s twice, and two bytes of memory for each of a frame.
    let options =
        [option(1, 1_000_000_000), option(2, 1 << 20), option(3, 1_000_000_000), option(4, 0), option(9, 524_288)]
            .concat();
    let kind = [&[13, 0, 1, 0], &b"fq_codel\0\0\0\0"[..]].concat();
    let whole = [kind, [&[44, 0, 2, 0x80], &options[..]].concat()].concat();
    let written = queue.attributes().bytes().to_vec();
    // Whether what has attributes inside says so matters to no kernel.
    let bare = |mut bytes: Vec<u8>| {
        bytes[19] &= 0x7f;
        bytes
    };
    assert_eq!(bare(written), bare(whole));
    // The kernel adds what it has beside: flows, quantum, its batch.
    let changed = [option(5, 1024), options, option(6, 1514), option(8, 64)].concat();
    assert_eq!(Queue::of("fq_codel", &changed), Some(queue));
    assert_eq!(Queue::of("bfifo", &9000u32.to_ne_bytes()), Some(Queue::Bytes(9000)));
    assert_eq!(Queue::of("pfifo", &9000u32.to_ne_bytes()), None);
    // What the kernel takes at most comes back as it was written.
    let Queue::Flows(most) = Queue::flows(u32::MAX) else { panic!("flows") };
    assert_eq!(most.memory_bytes, 1 << 31);
}

#[test]
fn queue_kind_is_replaced_and_settings_changed() {
    let (bytes, flows) = (tree(&three()), apart(&three()));
    let there = in_force(&flows);
    assert_eq!(step_texts(&flows, Some(&there)), [""; 0]);
    // Who is held in the guest by now, and who is no more.
    let to_bytes = ["remove queue 4003: of class 7a00:3", "set queue of class 7a00:3 to 250000 bytes"];
    assert_eq!(step_texts(&bytes, Some(&there)), to_bytes);
    let to_flows =
        ["remove queue 4003: of class 7a00:3", "set queue of class 7a00:3 to fq_codel of 500000 bytes of memory"];
    assert_eq!(step_texts(&flows, Some(&in_force(&bytes))), to_flows);
    // Another limit, and what somebody changed by hand.
    let mut smaller = three();
    smaller.leaves[1].queue_bytes = 9000;
    assert_eq!(
        step_texts(&apart(&smaller), Some(&there)),
        ["set queue of class 7a00:3 to fq_codel of 18000 bytes of memory"]
    );
    let Queue::Flows(ours) = flows.leaves[&3].queue else { panic!("flows") };
    let by_hand = [
        ("queue's target (us)", "1000000000", "4999", Flows { target_us: 4999, ..ours }),
        ("queue's interval (us)", "1000000000", "99999", Flows { interval_us: 99_999, ..ours }),
        ("queue's packets", "1048576", "10240", Flows { packets: 10_240, ..ours }),
        ("queue's memory (bytes)", "500000", "33554432", Flows { memory_bytes: 32 << 20, ..ours }),
        ("queue's ECN", "0", "1", Flows { ecn: 1, ..ours }),
    ];
    for (field, wanted, is, hurt) in by_hand {
        let mut hand = there.clone();
        hand.queues.get_mut(&3).unwrap().queue = Some(Queue::Flows(hurt));
        assert_eq!(steps::mismatch(&flows, &hand), Some((3, field, wanted.to_owned(), is.to_owned())));
        let steps = difference(&flows, Some(&hand));
        assert!(matches!(steps[..], [Step::SetQueue { minor: 3, .. }]), "{steps:?}");
        assert_eq!(done(Some(hand), &steps).as_ref(), Some(&there));
    }
    assert_eq!(
        steps::mismatch(&flows, &in_force(&bytes)),
        Some((3, "queue", "fq_codel".to_owned(), "bfifo".to_owned()))
    );
}

#[test]
fn mismatch_names_the_field() {
    let wanted = tree(&three());
    let named = |change: &dyn Fn(&mut InForce)| {
        let mut there = in_force(&wanted);
        change(&mut there);
        steps::mismatch(&wanted, &there).unwrap()
    };
    let is = |minor: u16, field: &'static str, wanted: &str, found: &str| (minor, field, wanted.into(), found.into());
    assert_eq!(
        named(&|t| t.classes.get_mut(&3).unwrap().class.ceil = ByteRate::new(1)),
        is(3, "ceil (bytes/s)", "12500000", "1")
    );
    assert_eq!(named(&|t| t.classes.get_mut(&3).unwrap().class.mpu = 64), is(3, "mpu", "0", "64"));
    // For that it would be made anew.
    assert_eq!(
        named(&|t| t.classes.get_mut(&3).unwrap().class.quantum = 40_000_000),
        is(3, "quantum", "15140", "40000000")
    );
    assert_eq!(
        named(&|t| t.queues.get_mut(&2).unwrap().queue = Some(Queue::Bytes(7))),
        is(2, "queue", "4002: 250000 bytes", "4002: 7 bytes")
    );
    assert_eq!(
        named(&|t| t.queues.get_mut(&2).unwrap().handle = 0x55_0000),
        is(2, "queue", "4002: 250000 bytes", "55: 250000 bytes")
    );
    assert_eq!(named(&|t| drop(t.queues.remove(&2))), is(2, "queue", "4002: 250000 bytes", "missing"));
    assert_eq!(named(&|t| t.default = 9), is(1, "default", "2", "9"));
    assert_eq!(named(&|t| t.sized = true), is(1, "size table", "none", "there"));
    assert_eq!(steps::mismatch(&wanted, &in_force(&wanted)), None);
}

#[test]
fn invalid_hierarchies_name_the_leaf() {
    let refused = |change: &dyn Fn(&mut Hierarchy)| {
        let mut hierarchy = three();
        change(&mut hierarchy);
        Tree::wanted(&hierarchy, &numbers(&hierarchy)).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&|h| h.leaves[1].rate_bps = BitRate::ZERO),
        "linux plane: leaf \"web\": a rate of 0 is none for HTB: its least is 8 bit/s"
    );
    assert_eq!(
        refused(&|h| h.leaves[1].ceil_bps = BitRate::new(5)),
        "linux plane: leaf \"web\": its ceiling is below its rate"
    );
    assert_eq!(refused(&|h| h.leaves[1].priority = 8), "linux plane: leaf \"web\": priorities are 0 to 7");
    assert!(refused(&|h| h.leaves[1].quantum_bytes = 0).contains("a quantum is 1 to"));
    assert!(refused(&|h| h.leaves[1].queue_bytes = 0).contains("lets nothing pass"));
    assert!(refused(&|h| h.leaves[1].name = "db".into()).contains("two of that name"));
    assert!(refused(&|h| h.leaves[0].name = "other".into()).contains("would pass unshaped"));
    assert!(refused(&|h| h.rate_bps = BitRate::ZERO).contains("a root of rate or burst 0"));
    assert!(refused(&|h| h.framing.least_bytes = 5000).contains("least frame of at most 4096"));
}

#[test]
fn numbers_and_handles_are_unique() {
    let given = |all: &[(&str, u16)]| Numbers::given(all.iter().map(|(n, m)| ((*n).to_owned(), *m)).collect());
    assert!(given(&[("a", 2), ("b", 3)]).is_ok() && given(&[("a", LAST_NUMBER)]).is_ok());
    assert!(given(&[("a", 2), ("b", 2)]).is_err() && given(&[("a", 1)]).is_err());
    assert!(given(&[("a", LAST_NUMBER + 1)]).is_err());
    assert!(queue_handle(LAST_NUMBER) < HANDLE && queue_handle(2) == 0x4002_0000);
}
