//! Leaves with flow classes.

use std::sync::Arc;

use vmio_model::policy::Direction;
use vmio_model::policy::flow::FlowMatch;
use vmio_model::policy::program::FlowLeaf;

use super::*;

fn flow(name: &str, dscp: Option<u8>, rate_mbit: u64, ceil_mbit: u64) -> FlowLeaf {
    FlowLeaf {
        name: name.into(),
        matcher: FlowMatch { dscp, ..FlowMatch::default() },
        direction: Direction::GuestTx,
        rate_bps: rate_mbit * M,
        ceil_bps: ceil_mbit * M,
        priority: 3,
        quantum_bytes: 65_536,
        burst_bytes: 131_072,
    }
}

/// `web` with two flow classes, of which one has this rate.
fn nested(rate_mbit: u64) -> Tree {
    let mut hierarchy = three();
    hierarchy.leaves[1].flows =
        vec![flow("voice", Some(46), rate_mbit, 20), flow("bulk", Some(8), 1, 100), flow("rest", None, 1, 800_000)];
    tree(&hierarchy)
}

#[test]
fn flow_classes_are_put_in_and_taken_out_whole() {
    let (plain, wanted) = (tree(&three()), nested(10));
    let flows = &wanted.flow_trees[&3];
    let rates: Vec<(u64, u64)> = flows.classes.iter().map(|c| (c.rate.bytes(), c.ceil.bytes())).collect();
    let unlimited = 100_000_000_000;
    assert_eq!(
        rates,
        [(unlimited, unlimited), (1_250_000, 2_500_000), (125_000, 12_500_000), (125_000, unlimited)],
        "a root that never runs dry"
    );
    let second: Vec<bool> = flows.classes.iter().map(|c| c.cburst == 15_625_000).collect();
    assert_eq!(second, [true, false, false, true], "nor does what has no maximum");
    assert_eq!(flows.filter.iter().filter(|i| i.k >> 16 == 0x4003).map(|i| i.k & 0xffff).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(wanted.leaves, plain.leaves, "the leaf is as it is without");
    let whole = "set 3 flow classes of class 7a00:3 with queues of 250000 bytes";
    let anew = ["remove queue 4003: of class 7a00:3", whole];
    let check = |from: &InForce, to: &Tree, texts: &[&str]| {
        assert_eq!(step_texts(to, Some(from)), texts);
        assert_eq!(done(Some(from.clone()), &difference(to, Some(from))), Some(in_force(to)));
    };
    assert!(step_texts(&wanted, None).contains(&whole.to_owned()));
    assert_eq!(done(None, &difference(&wanted, None)), Some(in_force(&wanted)));
    check(&in_force(&wanted), &wanted, &[]);
    check(&in_force(&plain), &wanted, &anew);
    check(&in_force(&wanted), &nested(11), &anew);
    let queue = ["remove queue 4003: of class 7a00:3", "set queue of class 7a00:3 to 250000 bytes"];
    check(&in_force(&wanted), &plain, &queue);
    // Somebody has changed what is in it, so that it was not read as ours.
    let mut hurt = in_force(&wanted);
    hurt.flow_trees.remove(&3);
    check(&hurt, &wanted, &anew);
    let told = (3, "flow classes", "as written".to_owned(), "others".to_owned());
    assert_eq!(steps::mismatch(&wanted, &hurt), Some(told));
    // A leaf that is made anew.
    let mut owing = in_force(&wanted);
    owing.classes.get_mut(&3).unwrap().debt.rate = 900_000_000;
    check(&owing, &wanted, &["remove class 7a00:3", step_texts(&wanted, None)[4].as_str(), whole]);
}

/// The loop changes rates: what a leaf's flow classes are built of stays, and so does what was built.
#[test]
fn flow_classes_are_built_once_for_all_rates() {
    let mut hierarchy = three();
    for leaf in &mut hierarchy.leaves[1..] {
        leaf.flows = vec![flow("voice", Some(46), 10, 20), flow("rest", None, 1, 800_000)];
    }
    let (numbers, mut built) = (numbers(&hierarchy), BuiltFlows::default());
    let mut wanted = |hierarchy: &Hierarchy| Tree::wanted_with(&mut built, hierarchy, &numbers).unwrap();
    let first = wanted(&hierarchy);
    assert_eq!(first, Tree::wanted(&hierarchy, &numbers).unwrap());
    let same = |one: &Tree, other: &Tree, minor: u16| Arc::ptr_eq(&one.flow_trees[&minor], &other.flow_trees[&minor]);
    (hierarchy.rate_bps, hierarchy.leaves[1].ceil_bps) = (80 * M, 70 * M);
    let second = wanted(&hierarchy);
    assert!(second != first && [3, 4].into_iter().all(|minor| same(&first, &second, minor)));
    hierarchy.leaves[1].flows[0].ceil_bps = 15 * M;
    let third = wanted(&hierarchy);
    assert!(!same(&second, &third, 3) && same(&second, &third, 4), "one was changed");
    assert_eq!(third, Tree::wanted(&hierarchy, &numbers).unwrap());
    // Another framing is one of all; a leaf without flow classes has nothing.
    hierarchy.framing = Framing { overhead_bytes: 24, least_bytes: 84 };
    hierarchy.leaves[2].flows.clear();
    let fourth = wanted(&hierarchy);
    assert_eq!((fourth.flow_trees.len(), same(&third, &fourth, 3)), (1, false));
}

/// The loop reads classes alone.
#[test]
fn what_is_in_leaves_is_taken_as_wanted_where_they_are_there() {
    let wanted = nested(10);
    let whole = in_force(&wanted);
    let mut read = InForce { queues: BTreeMap::new(), flow_trees: BTreeMap::new(), ..whole.clone() };
    assert_eq!(read.clone().filled(&wanted), whole);
    read.classes.remove(&3);
    let lacks = read.filled(&wanted);
    let steps = difference(&wanted, Some(&lacks));
    assert!(
        matches!(steps.as_slice(), [Step::AddClass { minor: 3, .. }, Step::SetFlows { minor: 3, .. }]),
        "{steps:?}"
    );
    assert_eq!(done(Some(lacks), &steps), Some(whole));
}

#[test]
fn classes_in_a_leaf_are_known_by_their_number() {
    assert_eq!(flow_of(0x4010_0002), Some((16, 0)));
    assert_eq!(flow_of(queue_handle(LAST_NUMBER) | 9), Some((LAST_NUMBER, 7)));
    // A root inside, a leaf, the root of all, and what the kernel gives.
    let others = [0x4010_0001, 0x4001_0002, classid(16), classid(ROOT_CLASS), 0x8001_0002, 0];
    assert_eq!(others.map(flow_of), [None; 6]);
    assert_eq!(flow_of(flow_id(16, 8)), Some((16, 8)));
}
