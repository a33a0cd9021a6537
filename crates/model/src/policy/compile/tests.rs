#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::policy::program::{FlowLeaf, Framing};
use crate::policy::{Excess, Links, Policy};
use crate::rate::MBIT as M;

/// The pool of a policy's only uplink, with the interfaces named in it.
fn pool(text: &str, direction: Direction) -> Pool {
    let policy = Policy::read(&[("guard.toml", text)], &Links::default()).unwrap().policy;
    let labels: Vec<String> = policy.entries.iter().map(|e| e.matcher.label()).collect();
    let named = labels.iter().map(String::as_str).zip(&policy.entries);
    let uplink = policy.uplinks.keys().next().unwrap();
    Pool::of(&policy, uplink, direction, named).unwrap()
}

/// A program as a table in readable units.
fn table(compiled: &Compiled) -> String {
    let mut lines = vec![format!("{} {}", compiled.program.uplink, compiled.program.direction.word())];
    match &compiled.program.program {
        Program::Hierarchy(h) => {
            let Framing { overhead_bytes, least_bytes } = h.framing;
            let root = h.rate_bps.bits();
            lines.push(format!("root {root} burst {} frame +{overhead_bytes} >={least_bytes}", h.burst_bytes));
            for l in &h.leaves {
                let Leaf { name, rate_bps, ceil_bps, priority, quantum_bytes, burst_bytes, queue_bytes, .. } = l;
                let (rate, ceiling) = (rate_bps.bits(), ceil_bps.bits());
                lines.push(format!(
                    "{name} {rate}..{ceiling} prio {priority} quantum {quantum_bytes} burst {burst_bytes} queue \
                     {queue_bytes}"
                ));
            }
        }
        Program::Limits(l) => {
            lines.extend(l.limits.iter().map(|l| format!("{} {} burst {}", l.name, l.cap_bps.bits(), l.burst_bytes)));
        }
    }
    lines.extend(compiled.emulated.iter().map(|e| format!("{e:?}")));
    lines.extend(compiled.notes.clone());
    lines.join("\n")
}

#[test]
fn the_published_policy_as_a_hierarchy() {
    let text = include_str!("../../../tests/fixtures/policy/good/amamou2012.toml");
    let compiled = compile(&pool(text, Direction::GuestTx), &Abilities::HTB).unwrap();
    let golden = "\
eth0 guest_tx
root 1000000000 burst 131072 frame +0 >=0
host 20000000..1000000000 prio 0 quantum 65536 burst 131072 queue 6250000
vm:MV1 300000000..600000000 prio 0 quantum 65536 burst 131072 queue 3750000
vm:MV2 100000000..300000000 prio 1 quantum 65536 burst 131072 queue 1875000
vm:MV3 8000..100000000 prio 2 quantum 65536 burst 131072 queue 1310720
default 8000..1000000000 prio 7 quantum 65536 burst 131072 queue 6250000
Hard { members: [\"vm:MV1\"] }
OverMax { members: [\"vm:MV2\", \"vm:MV3\"] }";
    assert_eq!(table(&compiled), golden);
}

#[test]
fn the_same_policy_for_a_plane_that_knows_only_limits() {
    let text = include_str!("../../../tests/fixtures/policy/good/amamou2012.toml");
    let plane = Abilities { plane: "card", form: Form::Limits, least_bps: M, ..Abilities::HTB };
    let compiled = compile(&pool(text, Direction::GuestTx), &plane).unwrap();
    // As `exact` shares it when all want everything: of what minima leave the host and MV1, the first in priority, get
    // a half each.
    let golden = "\
eth0 guest_tx
host 310000000 burst 131072
vm:MV1 590000000 burst 131072
vm:MV2 100000000 burst 131072
vm:MV3 1000000 burst 131072
default 1000000 burst 131072
Sharing";
    assert_eq!(table(&compiled), golden);
    let grants = exact(1000 * M, &pool(text, Direction::GuestTx).members(), &[Demand::Unbounded; 5]);
    let Program::Limits(limits) = compiled.program.program else { panic!("limits") };
    assert_eq!(limits.limits[1].cap_bps, grants[1].rate);
}

#[test]
fn frames_weights_and_receiving() {
    let text = "\
[uplink.eth0]
capacity = \"1Gbit\"
framing = \"ethernet\"
[class]
gold = { weight = 3, min = \"900Mbit\" }
silver = { weight = 2 }
tiny = { weight = 1000 }
[[interface]]
match = { name = \"a\" }
rx_class = \"gold\"
[[interface]]
match = { name = \"b\" }
rx_class = \"silver\"
class = \"silver\"
[[interface]]
match = { name = \"c\" }
class = \"tiny\"
";
    let compiled =
        compile(&pool(text, Direction::GuestRx), &Abilities { packet_bytes: 1_600, ..Abilities::HTB }).unwrap();
    let golden = "\
eth0 guest_rx
root 950000000 burst 118750 frame +24 >=84
host 20000000..950000000 prio 0 quantum 1600 burst 118750 queue 5937500
a 900000000..950000000 prio 3 quantum 2400 burst 118750 queue 5937500
b 8000..950000000 prio 3 quantum 1600 burst 118750 queue 5937500
default 8000..950000000 prio 7 quantum 1600 burst 118750 queue 5937500
eth0 guest_rx: minima hold against senders that slow down (TCP); other floods are lost on the link before this host";
    assert_eq!(table(&compiled), golden);
    let compiled =
        compile(&pool(text, Direction::GuestTx), &Abilities { packet_bytes: 1_600, ..Abilities::HTB }).unwrap();
    assert_eq!(compiled.notes, ["eth0 guest_tx: weights 2 and 1000 of priority 4 are held as 1 to 256"]);
    let Program::Hierarchy(h) = compiled.program.program else { panic!("a hierarchy") };
    assert_eq!(h.leaves[2].quantum_bytes, 256 * 1_600);
}

/// Where packets are segmented behind the queues, full frames take 24 bytes more than counted.
#[test]
fn the_framing_of_segments_is_left_free_of_what_is_sent() {
    let text = "\
[uplink.eth0]
capacity = \"1538Mbit\"
framing = \"ethernet\"
[class]
gold = { min = \"1500Mbit\", max = \"1538Mbit\" }
[[interface]]
match = { name = \"a\" }
class = \"gold\"
";
    let (send, receive) = (pool(text, Direction::GuestTx), pool(text, Direction::GuestRx));
    assert_eq!(shared(&send, &Abilities::HTB), 1514 * M);
    assert_eq!(shared(&receive, &Abilities::HTB), 95 * (1538 * M / 100));
    let whole = Abilities { packet_bytes: 1_600, ..Abilities::HTB };
    assert_eq!(shared(&send, &whole), 1538 * M);
    let unframed = pool(&text.replace("ethernet", "none"), Direction::GuestTx);
    assert_eq!(shared(&unframed, &Abilities::HTB), 1538 * M);
    let compiled = compile(&send, &Abilities::HTB).unwrap();
    let Program::Hierarchy(h) = &compiled.program.program else { panic!("a hierarchy") };
    // No ceiling exceeds it, and all own rates fit.
    assert_eq!((h.rate_bps, h.leaves[1].ceil_bps), (1514 * M, 1514 * M));
    assert!(h.leaves.iter().map(|leaf| leaf.rate_bps).sum::<BitRate>() <= h.rate_bps);
    assert_eq!(
        compiled.notes,
        [
            "eth0 guest_tx: 1.514 Gbit/s of 1.538 Gbit/s are shared: a packet that is cut into segments behind the queues \
             counts the framing of one frame, and that of the others, 24 bytes each, is left free",
            "eth0 guest_tx: minima of 1.53076 Gbit/s are more than the 1.514 Gbit/s that are shared (the rest is left \
             free for framing)",
        ]
    );
    assert_eq!(compile(&send, &whole).unwrap().notes, [""; 0]);
}

/// Room for TCP at any rate, or as long as written. What is received has its senders elsewhere.
#[test]
fn queues_have_room_for_tcp_or_are_as_long_as_written() {
    let text = "\
[uplink.eth0]
capacity = \"10Gbit\"
[class]
slow = { max = \"50Mbit\" }
fast = {}
short = { max = \"50Mbit\", queue = \"25ms\" }
least = { max = \"1Mbit\", queue = \"1ms\" }
long = { queue = \"10s\" }
[[interface]]
match = { name = \"a\" }
class = \"slow\"
rx_class = \"slow\"
[[interface]]
match = { name = \"b\" }
class = \"fast\"
[[interface]]
match = { name = \"c\" }
class = \"short\"
rx_class = \"short\"
[[interface]]
match = { name = \"d\" }
class = \"least\"
[[interface]]
match = { name = \"e\" }
class = \"long\"
";
    let lengths = |direction| {
        let compiled = compile(&pool(text, direction), &Abilities::HTB).unwrap();
        let Program::Hierarchy(h) = compiled.program.program else { panic!("a hierarchy") };
        h.leaves.into_iter().map(|leaf| leaf.queue_bytes).collect::<Vec<u32>>()
    };
    let most = 16 << 20;
    // `host`, the interfaces, `default`.
    assert_eq!(lengths(Direction::GuestTx), [most, 1_310_720, most, 156_250, 131_072, most, most]);
    assert_eq!(lengths(Direction::GuestRx), [most, 312_500, 156_250, most]);
}

#[test]
fn all_that_a_plane_cannot_hold_is_refused_at_once() {
    let text = "\
[uplink.eth0]
capacity = \"1Gbit\"
[class]
slow = { max = \"500kbit\" }
[[interface]]
match = { name = \"a\" }
class = \"slow\"
rx_class = \"slow\"
";
    let plane =
        Abilities { plane: "small", least_bps: M, most_bps: 100 * M, members: 2, receive: false, ..Abilities::HTB };
    let Refusal(reasons) = compile(&pool(text, Direction::GuestRx), &plane).unwrap_err();
    assert_eq!(
        reasons,
        [
            "eth0 guest_rx: plane small cannot limit what guests receive; leave rx_class out, or use another plane",
            "eth0 guest_rx: 3 members, and plane small has at most 2; let fewer interfaces match, the rest share `default`",
            "eth0 guest_rx: 950 Mbit/s are shared, and plane small takes 1 Mbit/s to 100 Mbit/s",
            "eth0 guest_rx: a has a maximum of 500 kbit/s (class slow), below the least of plane small, 1 Mbit/s; raise it",
        ]
    );
    // The least rates must fit.
    let plane = Abilities { least_bps: 400 * M, ..Abilities::HTB };
    let Refusal(reasons) = compile(&pool(FULL, Direction::GuestTx), &plane).unwrap_err();
    assert_eq!(
        reasons,
        [
            "eth0 guest_tx: 3 members at the least rate of plane linux, 400 Mbit/s, are more than 1 Gbit/s; raise the capacity, or \
          let fewer interfaces match"
        ]
    );
}

/// The host's 2 % and 98 % fill the capacity.
const FULL: &str = "[uplink.eth0]\ncapacity = \"1Gbit\"\n[class.g]\nmin = \"980Mbit\"\n[[interface]]\n\
                    match = { name = \"a\" }\nclass = \"g\"\n";

#[test]
fn minima_that_fill_the_capacity_give_way_by_what_a_leaf_needs_at_least() {
    let compiled = compile(&pool(FULL, Direction::GuestTx), &Abilities::HTB).unwrap();
    let Program::Hierarchy(h) = &compiled.program.program else { panic!("a hierarchy") };
    let least = Abilities::HTB.least_bps;
    assert_eq!(h.leaves.iter().map(|l| l.rate_bps).collect::<Vec<_>>(), [20 * M, 980 * M - least, least]);
    assert_eq!(
        compiled.notes,
        [
            "eth0 guest_tx: minima are held 8 kbit/s short in all: members without one get 8 kbit/s each, the least of plane \
          linux"
        ]
    );
}

/// A flow class has its minimum as a rate of its own, and beyond that no limit but its maximum and its member's.
#[test]
fn flow_classes_and_the_rest_are_inside_of_a_leaf() {
    let text = include_str!("../../../tests/fixtures/policy/good/flows.toml");
    for direction in Direction::ALL {
        let compiled = compile(&pool(text, direction), &Abilities::HTB).unwrap();
        let Program::Hierarchy(h) = &compiled.program.program else { panic!("a hierarchy") };
        let with: Vec<&Leaf> = h.leaves.iter().filter(|leaf| !leaf.flows.is_empty()).collect();
        let [leaf] = with[..] else { panic!("{with:?}") };
        assert_eq!((leaf.rate_bps, leaf.ceil_bps), (100 * M, 200 * M), "as without");
        let most = Abilities::HTB.most_bps;
        let row = |f: &FlowLeaf| (f.name.clone(), f.rate_bps, f.ceil_bps, f.priority);
        let least = Abilities::HTB.least_bps;
        assert_eq!(
            leaf.flows.iter().map(row).collect::<Vec<_>>(),
            [
                ("voice".to_owned(), 10 * M, 20 * M, 0),
                ("web".to_owned(), 90 * M, most, 3),
                ("tunnel".to_owned(), least, most, 7),
                ("rest".to_owned(), least, most, 3),
            ]
        );
        assert!(leaf.flows.iter().all(|flow| flow.direction == direction));
    }
}

/// Few maxima of flow classes are no matter; many cost each packet of the others.
#[test]
fn many_members_with_maxima_of_flow_classes_are_noted() {
    let text = include_str!("../../../tests/fixtures/policy/good/flows.toml");
    let mut pool = pool(text, Direction::GuestTx);
    let seat = pool.seats.iter().find(|seat| !seat.flows.is_empty()).unwrap().clone();
    let noted = |pool: &Pool| {
        let notes = compile(pool, &Abilities::HTB).unwrap().notes;
        notes.into_iter().find(|note| note.contains("flow classes"))
    };
    pool.seats.extend((0..7).map(|n| PoolMember { name: format!("more{n}"), ..seat.clone() }));
    assert_eq!(noted(&pool), None);
    pool.seats.push(PoolMember { name: "ninth".into(), ..seat });
    assert!(noted(&pool).is_some_and(|note| note.contains("9 members have flow classes with a maximum")));
    for flow in pool.seats.iter_mut().flat_map(|seat| &mut seat.flows) {
        flow.max = None;
    }
    assert_eq!(noted(&pool), None);
}

fn seats() -> impl Strategy<Value = Vec<PoolMember>> {
    let one = (1u8..=8, 0u64..200_000_000, 0u64..2_000_000_000, 1u32..100, any::<bool>(), any::<bool>());
    let seat = |(priority, min, more, weight, hard, over_max)| PoolMember {
        name: "m".into(),
        who: MemberKind::Interface,
        class: "c".into(),
        contract: Member { priority, min: BitRate::new(min), max: BitRate::new(min + more), weight, hard, over_max },
        queue: None,
        delay: None,
        excess: Excess::default(),
        flows: Vec::new(),
    };
    prop::collection::vec(one.prop_map(seat), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Invariants of a hierarchy that meets the contracts by itself.
    #[test]
    fn a_hierarchy_holds_minima_and_maxima(
        seats in seats(), capacity in (1_000_000u64..4_000_000_000).prop_map(BitRate::new)
    ) {
        let (least, step) = (Abilities::HTB.least_bps, Abilities::HTB.step_bps);
        let pool = Pool { uplink: "u".into(), direction: Direction::GuestTx, capacity, framing: Framing::NONE, seats };
        let members = pool.members();
        let Ok(compiled) = compile(&pool, &Abilities::HTB) else {
            // Refused: the least rates do not fit, or a maximum is below the least rate.
            prop_assert!(members.len() as u64 * least > capacity || members.iter().any(|m| m.max < least));
            return Ok(());
        };
        let Program::Hierarchy(h) = &compiled.program.program else { panic!("a hierarchy") };
        prop_assert!(h.rate_bps <= capacity && capacity - h.rate_bps < step);
        prop_assert!(h.leaves.iter().map(|l| l.rate_bps).sum::<BitRate>() <= capacity);
        // Minima lose no more than the others' least rates.
        let short: BitRate = h.leaves.iter().zip(&members).map(|(l, m)| m.min.saturating_sub(l.rate_bps)).sum();
        prop_assert!(short <= members.len() as u64 * (least + step + step), "{}", short);
        for (leaf, member) in h.leaves.iter().zip(&members) {
            let fits = members.iter().map(|m| m.min.rounded_up(step).max(least)).sum::<BitRate>() <= capacity;
            prop_assert!(leaf.rate_bps >= member.min || !fits, "a minimum is never rounded away");
            prop_assert!(leaf.rate_bps < member.min + step || leaf.rate_bps == least);
            prop_assert!(leaf.ceil_bps >= leaf.rate_bps && leaf.ceil_bps <= member.max.max(leaf.rate_bps));
            prop_assert!(leaf.burst_bytes >= 131_072 && leaf.quantum_bytes >= 65_536 && leaf.priority < 8);
            prop_assert!(leaf.rate_bps.bits() % 8 == 0 && leaf.ceil_bps.bits() % 8 == 0);
        }
        // Within a priority quanta are proportional to weights.
        for (a, x) in h.leaves.iter().zip(&members) {
            for (b, y) in h.leaves.iter().zip(&members).filter(|(_, y)| y.priority == x.priority) {
                let (left, right) = (u64::from(a.quantum_bytes) * u64::from(y.weight), u64::from(b.quantum_bytes) * u64::from(x.weight));
                prop_assert!(left.abs_diff(right) <= u64::from(x.weight.max(y.weight)));
            }
        }
        let over = members.iter().any(|m| m.over_max && m.max < capacity);
        let hard = members.iter().any(|m| m.hard && m.min > BitRate::ZERO);
        prop_assert_eq!(compiled.emulated.len(), usize::from(over) + usize::from(hard));
    }
}
