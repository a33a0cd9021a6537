//! A hierarchy in force on a veth: read back, changed step by step, put right, taken off.

#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::{M, leaf, three, tree, uplink};
use vmio_guard::planes::linux::htb::{self, Numbers, Queue, Root, Step, Tree, Undone, classid};
use vmio_guard::planes::linux::{Device, Error, Netlink};
use vmio_model::policy::program::{Framing, Hierarchy};
use vmio_model::rate::ByteRate;
use vmio_testbed::net::{apart, run, tried};

fn put(netlink: &mut Netlink, device: &Device, hierarchy: &Hierarchy) -> Vec<Step> {
    htb::put(netlink, device, &tree(hierarchy), false).unwrap().steps
}

#[test]
#[ignore = "root"]
fn hierarchy_is_set_changed_and_removed() {
    apart(|| {
        let (mut netlink, device) = uplink();
        let before = htb::settings(&mut netlink, &device).unwrap();
        assert_eq!(htb::read(&mut netlink, &device).unwrap(), Root::Kernels { kind: "noqueue".to_owned() });
        assert_eq!(put(&mut netlink, &device, &three()).len(), 2 + 3 * 2);
        let Root::Ours(there) = htb::read(&mut netlink, &device).unwrap() else { panic!("it is ours") };
        assert_eq!(htb::difference(&tree(&three()), Some(&there)), []);
        // As another program sees it.
        let (_, output) = tried("tc class show dev u0");
        assert!(
            output.contains("class htb 7a00:3 parent 7a00:1 leaf 4003: prio 3 rate 60Mbit ceil 100Mbit"),
            "{output}"
        );
        let (_, output) = tried("tc qdisc show dev u0");
        assert!(output.contains("qdisc htb 7a00: root") && output.contains("default 0x2"), "{output}");
        assert!(output.contains("qdisc bfifo 4004: parent 7a00:4 limit 250000b"), "{output}");

        // Twice changes nothing, and asks for no change.
        let sent = netlink.changes();
        assert_eq!(put(&mut netlink, &device, &three()), []);
        assert_eq!(netlink.changes(), sent);

        // One ceiling is one step, and the others' classes are not touched.
        let mut other = three();
        other.leaves[2].ceil_bps = 40 * M;
        let steps = put(&mut netlink, &device, &other);
        assert!(matches!(steps[..], [Step::SetClass { minor: 4, .. }]), "{steps:?}");
        assert_eq!(netlink.changes(), sent + 1);

        // Each other thing that can change, one by one.
        other.leaves[1].quantum_bytes = 60_000;
        other.leaves[1].burst_bytes = 262_144;
        assert_eq!(put(&mut netlink, &device, &other).len(), 1);
        // With another priority the queue is made anew, too.
        other.leaves[1].priority = 0;
        assert_eq!(put(&mut netlink, &device, &other).len(), 3);
        other.leaves[1].queue_bytes = 64_000;
        assert_eq!(put(&mut netlink, &device, &other), [Step::SetQueue { minor: 3, queue: Queue::Bytes(64_000) }]);
        // Where 32 bits of bytes a second are too few.
        other.rate_bps = 100_000 * M;
        other.leaves[1].ceil_bps = 80_000 * M;
        assert_eq!(put(&mut netlink, &device, &other).len(), 2);
        other.leaves.pop();
        assert_eq!(put(&mut netlink, &device, &other), [Step::RemoveClass { minor: 4 }]);
        assert_eq!(put(&mut netlink, &device, &other), []);

        assert_eq!(htb::undo(&mut netlink, &device, None).unwrap(), Undone::Removed);
        assert_eq!(htb::settings(&mut netlink, &device).unwrap(), before);
        assert_eq!(htb::undo(&mut netlink, &device, None).unwrap(), Undone::Gone);
    });
}

/// What the kernel answers is what it does, and asking leaves nothing behind.
#[test]
#[ignore = "root"]
fn fq_codel_where_the_kernel_has_it() {
    apart(|| {
        let (mut netlink, device) = uplink();
        let loopback = Device { index: 1, name: "lo".to_owned() };
        for other in ["", "tc qdisc add dev lo root handle 11: bfifo limit 9000"] {
            run(if other.is_empty() { &[] } else { std::slice::from_ref(&other) });
            let before = htb::settings(&mut netlink, &loopback).unwrap();
            let (has, output) = tried("tc qdisc add dev u1 root handle 12: fq_codel");
            assert!(has || output.contains("kind is unknown"), "{output}");
            assert_eq!(htb::has_flows(&mut netlink).unwrap(), has);
            assert_eq!(htb::settings(&mut netlink, &loopback).unwrap(), before);
            if has {
                run(&["tc qdisc del dev u1 root"]);
            }
        }
        let has = htb::has_flows(&mut netlink).unwrap();
        let numbers = |apart: &[u16]| {
            let named = three().leaves.into_iter().zip(2u16..).map(|(leaf, number)| (leaf.name, number));
            Numbers::given(named.collect()).unwrap().with_flows_apart(apart.iter().copied())
        };
        let wanted = |apart: &[u16]| Tree::wanted(&three(), &numbers(apart)).unwrap();
        let before = htb::settings(&mut netlink, &device).unwrap();
        let put = htb::put(&mut netlink, &device, &wanted(&[3]), false);
        if !has {
            let refused = put.unwrap_err().to_string();
            assert!(refused.contains("cannot set queue of class 7a00:3 to fq_codel of 500000 bytes"), "{refused}");
            assert_eq!(htb::settings(&mut netlink, &device).unwrap(), before, "nothing is half applied");
            return;
        }
        assert_eq!(put.unwrap().steps.len(), 2 + 3 * 2);
        assert_eq!(htb::put(&mut netlink, &device, &wanted(&[3]), false).unwrap().steps, []);
        for apart in [&[][..], &[3], &[2, 4]] {
            assert!(!htb::put(&mut netlink, &device, &wanted(apart), false).unwrap().steps.is_empty());
            assert_eq!(htb::put(&mut netlink, &device, &wanted(apart), false).unwrap().steps, []);
        }
        run(&["tc qdisc change dev u0 parent 7a00:4 handle 4004: fq_codel target 5ms memory_limit 1m"]);
        let steps = htb::put(&mut netlink, &device, &wanted(&[2, 4]), false).unwrap().steps;
        assert!(matches!(steps[..], [Step::SetQueue { minor: 4, .. }]), "{steps:?}");
        assert_eq!(htb::undo(&mut netlink, &device, None).unwrap(), Undone::Removed);
        assert_eq!(htb::settings(&mut netlink, &device).unwrap(), before);
    });
}

#[test]
#[ignore = "root"]
fn framing_is_set_and_changed() {
    apart(|| {
        let (mut netlink, device) = uplink();
        let mut hierarchy = Hierarchy { framing: Framing::ETHERNET, ..three() };
        put(&mut netlink, &device, &hierarchy);
        let Root::Ours(there) = htb::read(&mut netlink, &device).unwrap() else { panic!("it is ours") };
        assert!(there.classes.values().all(|found| (found.class.overhead, found.class.mpu) == (24, 84)), "{there:?}");
        hierarchy.framing = Framing { overhead_bytes: 4, least_bytes: 0 };
        let changed = put(&mut netlink, &device, &hierarchy);
        assert!(changed.len() == 4 && changed.iter().all(|step| matches!(step, Step::SetClass { .. })), "{changed:?}");
        hierarchy.framing = Framing::NONE;
        assert_eq!(put(&mut netlink, &device, &hierarchy).len(), 4);
        assert_eq!(put(&mut netlink, &device, &hierarchy), []);
        // Somebody's size table goes.
        run(&["tc qdisc change dev u0 root handle 7a00: stab overhead 10 linklayer ethernet"]);
        assert_eq!(put(&mut netlink, &device, &hierarchy), [Step::RemoveSizes]);
        assert_eq!(put(&mut netlink, &device, &hierarchy), []);
    });
}

#[test]
#[ignore = "root"]
fn foreign_changes_are_put_right() {
    apart(|| {
        let (mut netlink, device) = uplink();
        let whole = put(&mut netlink, &device, &three());
        run(&["tc qdisc del dev u0 root"]);
        assert_eq!(put(&mut netlink, &device, &three()), whole);
        run(&["tc class change dev u0 parent 7a00:1 classid 7a00:3 htb rate 1mbit ceil 2mbit prio 3"]);
        // It may have come to owe more than 50 ms at that rate.
        assert!(matches!(
            put(&mut netlink, &device, &three())[..],
            [Step::RemoveClass { minor: 3 }, Step::AddClass { minor: 3, .. }, Step::SetQueue { minor: 3, .. }]
        ));
        run(&["tc qdisc replace dev u0 parent 7a00:3 handle 55: tbf rate 1mbit burst 10k limit 10k"]);
        assert!(matches!(
            put(&mut netlink, &device, &three())[..],
            [Step::RemoveQueue { minor: 3, handle: 0x55_0000 }, Step::SetQueue { minor: 3, .. }]
        ));
        run(&["tc qdisc del dev u0 parent 7a00:4 handle 4004:"]);
        assert_eq!(put(&mut netlink, &device, &three()), [Step::SetQueue { minor: 4, queue: Queue::Bytes(250_000) }]);
        run(&["tc class add dev u0 parent 7a00:1 classid 7a00:99 htb rate 1mbit"]);
        assert_eq!(put(&mut netlink, &device, &three()), [Step::RemoveClass { minor: 0x99 }]);
        run(&["tc class add dev u0 parent 7a00:3 classid 7a00:98 htb rate 1mbit"]);
        assert_eq!(put(&mut netlink, &device, &three())[0], Step::RemoveRoot);
        assert_eq!(put(&mut netlink, &device, &three()), []);
    });
}

#[test]
#[ignore = "root"]
fn foreign_qdisc_is_refused_or_replaced_and_restored() {
    apart(|| {
        let (mut netlink, device) = uplink();
        let wanted = tree(&three());
        run(&["tc qdisc add dev u0 root handle 11: tbf rate 10mbit burst 20k limit 100k"]);
        let before = htb::settings(&mut netlink, &device).unwrap();
        let refused = htb::put(&mut netlink, &device, &wanted, false).unwrap_err();
        let expected = "linux plane: u0: qdisc tbf 11: belongs to another program and was not changed\n  help: `vmio \
                        guard run --takeover` \
                        replaces it and puts it back when the guard is undone; or remove it: tc qdisc del dev u0 root";
        assert_eq!(refused.to_string(), expected);
        assert_eq!(htb::settings(&mut netlink, &device).unwrap(), before);
        assert_eq!(htb::undo(&mut netlink, &device, None).unwrap(), Undone::Left("qdisc tbf 11:".to_owned()));

        let applied = htb::put(&mut netlink, &device, &wanted, true).unwrap();
        let replaced = applied.replaced.unwrap();
        assert_eq!((replaced.kind.as_str(), replaced.handle), ("tbf", 0x11_0000));
        assert!(matches!(htb::read(&mut netlink, &device).unwrap(), Root::Ours(_)));
        assert_eq!(htb::undo(&mut netlink, &device, Some(&replaced)).unwrap(), Undone::Removed);
        assert_eq!(htb::settings(&mut netlink, &device).unwrap(), before);

        // What its options alone do not say would be lost.
        run(&[
            "tc qdisc replace dev u0 root handle 12: htb default 1",
            "tc class add dev u0 parent 12: classid 12:1 htb rate 1mbit",
        ]);
        let before = htb::settings(&mut netlink, &device).unwrap();
        let refused = htb::put(&mut netlink, &device, &wanted, true).unwrap_err();
        assert!(matches!(refused, Error::Foreign { .. }));
        assert!(refused.to_string().contains("cannot be taken over, since its classes would be lost"), "{refused}");
        assert_eq!(htb::settings(&mut netlink, &device).unwrap(), before);
    });
}

#[test]
#[ignore = "root"]
fn kernel_refusals_leave_nothing_half_applied() {
    apart(|| {
        let (mut netlink, device) = uplink();
        let before = htb::settings(&mut netlink, &device).unwrap();
        let gone = Device { index: 4_000_000, name: "gone0".to_owned() };
        let refused = htb::put(&mut netlink, &gone, &tree(&three()), false).unwrap_err().to_string();
        assert!(refused.contains("cannot add qdisc 7a00: default 7a00:2 on gone0: No such device"), "{refused}");
        assert!(refused.contains("help: the interface is gone"), "{refused}");
        // The kernel takes the qdisc and refuses a class.
        let mut wrong = tree(&three());
        wrong.leaves.get_mut(&3).unwrap().class.rate = ByteRate::new(0);
        let refused = htb::put(&mut netlink, &device, &wrong, false).unwrap_err().to_string();
        assert!(
            refused.contains("cannot add class 7a00:3 rate 0 ") && refused.contains("on u0: Invalid argument"),
            "{refused}"
        );
        assert_eq!(htb::settings(&mut netlink, &device).unwrap(), before);
        // The kernel takes a priority that it does not have and makes it its last: what is read back is not what was
        // written.
        let mut wrong = tree(&three());
        wrong.leaves.get_mut(&3).unwrap().class.prio = 9;
        let refused = htb::put(&mut netlink, &device, &wrong, false).unwrap_err();
        assert!(matches!(refused, Error::Mismatch { .. }), "{refused}");
        assert_eq!(htb::settings(&mut netlink, &device).unwrap(), before);
        // Another's qdisc is back, too.
        run(&["tc qdisc add dev u0 root handle 11: bfifo limit 9000"]);
        let before = htb::settings(&mut netlink, &device).unwrap();
        assert!(htb::put(&mut netlink, &device, &wrong, true).is_err());
        assert_eq!(htb::settings(&mut netlink, &device).unwrap(), before);
    });
}

#[test]
#[ignore = "root"]
fn a_thousand_leaves_and_back() {
    apart(|| {
        let (mut netlink, device) = uplink();
        let before = htb::settings(&mut netlink, &device).unwrap();
        let mut many = three();
        many.rate_bps = 10_000 * M;
        many.leaves.extend((0..997).map(|i| leaf(&format!("vm{i}"), 1, 100)));
        assert_eq!(put(&mut netlink, &device, &many).len(), 2 + 2 * 1000);
        assert_eq!(put(&mut netlink, &device, &many), []);
        assert_eq!(vmio_guard::planes::linux::counters::read(&mut netlink, &device).unwrap().len(), 1001);
        many.leaves.retain(|l| !l.name.ends_with('7'));
        // Numbers are given anew here: what matters is that all is as wanted in the end.
        assert!(!put(&mut netlink, &device, &many).is_empty());
        assert_eq!(put(&mut netlink, &device, &many), []);
        assert_eq!(htb::undo(&mut netlink, &device, None).unwrap(), Undone::Removed);
        assert_eq!(htb::settings(&mut netlink, &device).unwrap(), before);
        assert_eq!(classid(2), 0x7a00_0002);
    });
}

/// The kernel's list of all qdiscs leaves some out where interfaces go while it is given, and does not say so.
#[test]
#[ignore = "root"]
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
fn dump_is_complete_while_interfaces_vanish() {
    apart(|| {
        // They are listed before ours, whose own list comes in parts.
        const BEFORE: usize = 400;
        let add: String = (0..BEFORE).map(|i| format!("link add v{i} type veth peer name w{i}\n")).collect();
        let remove: String = (0..BEFORE).map(|i| format!("link del v{i}\n")).collect();
        let dir = tempfile::tempdir().unwrap();
        let batch = |name: &str, lines: &str| {
            let path = dir.path().join(name);
            fs::write(&path, lines).unwrap();
            format!("ip -batch {}", path.display())
        };
        let (add, remove) = (batch("add", &add), batch("remove", &remove));
        run(&[&add]);
        let (mut netlink, device) = uplink();
        let mut many = Hierarchy { rate_bps: 1000 * M, ..three() };
        many.leaves.extend((0..300).map(|i| leaf(&format!("guest{i}"), 1, 100)));
        put(&mut netlink, &device, &many);
        let wanted = htb::read(&mut netlink, &device).unwrap();
        let mut readings = 0;
        loop {
            let mut program = std::process::Command::new("sh").args(["-c", &remove]).spawn().unwrap();
            while program.try_wait().unwrap().is_none() {
                assert_eq!(htb::read(&mut netlink, &device).unwrap(), wanted, "reading {readings}");
                readings += 1;
            }
            assert!(program.wait().unwrap().success());
            if readings > 10 {
                break;
            }
            run(&[&add]);
        }
    });
}
