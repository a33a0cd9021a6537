#![allow(clippy::unwrap_used)]

use super::*;
use crate::policy::Links;
use crate::policy::text::text;
use crate::rate::MBIT as M;

const POLICY: &str = "\
[uplink.eth0]
capacity = \"1Gbit\"
[class.gold]
priority = 2
min = \"300Mbit\"
max = \"600Mbit\"
[class.rest]
max = \"50Mbit\"
[[interface]]
match = { vm = \"web1\" }
class = \"gold\"
rx_class = \"gold\"
[[interface]]
match = { name = \"tap*\" }
class = \"rest\"
";

fn policy() -> Policy {
    Policy::read(&[("guard.toml", POLICY)], &Links::default()).unwrap().policy
}

fn limit(by: &str, direction: Direction, mbit: u64) -> RateLimit {
    let drops = direction == Direction::GuestTx;
    RateLimit::new(by, direction, mbit * M, drops)
}

fn limited(index: u32, name: &str, vm: &str, limits: Vec<RateLimit>) -> Limited {
    let mac = format!("52:54:00:00:00:{index:02x}");
    let interface = Interface { index, name: name.into(), macs: vec![mac.clone()], vms: vec![vm.into()], netns: None };
    let place = Place {
        domain: Some(vm.into()),
        vmid: Some("101".into()),
        slot: Some("net1".into()),
        target: Some(mac),
        ..Place::default()
    };
    Limited { interface, guest: Some(vm.into()), uplink: Some("eth0".into()), place, limits }
}

/// The replacing policy, read from its text.
fn after(all: &[Limited]) -> (Policy, Vec<String>) {
    let there: Vec<Interface> = all.iter().map(|l| l.interface.clone()).collect();
    let (next, left) = replaced(&policy(), all, &there);
    let text = text(&next);
    let read = Policy::read(&[("proposal", &text)], &Links::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    (read.policy, left)
}

/// Minimum and maximum, in Mbit/s.
fn rates(policy: &Policy, limited: &Limited, way: Direction) -> Option<(u64, u64)> {
    let entry = assign(policy, &limited.interface)?.entry;
    let member = policy.class(entry.class_in(way)?).member(1000 * M);
    Some((member.min / M, member.max / M))
}

#[test]
fn what_both_mean_is_said() {
    let all = [
        limited(1, "vnet0", "web1", vec![limit("libvirt", Direction::GuestTx, 100)]),
        limited(
            2,
            "tap2",
            "db",
            vec![limit("proxmox", Direction::GuestTx, 80), limit("proxmox", Direction::GuestRx, 80)],
        ),
    ];
    let found = conflicts(&policy(), &all);
    let of = |n: usize| found[n].why.join("\n");
    // One sentence each, of what counts most.
    assert!(found.iter().all(|conflict| conflict.why.len() == 1), "{found:?}");
    assert!(of(0).starts_with("libvirt drops what is above 100 Mbit/s at once: TCP gets less"), "{}", of(0));
    assert_eq!((found[0].class.as_deref(), found[0].max_bps), (Some("gold"), Some(600 * M)));
    assert!(of(1).starts_with("the maximum of class rest, 50 Mbit/s, holds"), "{}", of(1));
    assert!(of(2).contains("in no class for this direction") && !of(2).contains("drops"), "{}", of(2));
    // A burst of a second lets TCP through, and a queue does.
    let patient = |mbit| {
        let limit = limit("libvirt", Direction::GuestTx, mbit);
        RateLimit { burst_bytes: Some(mbit * 125_000), ..limit }
    };
    let why = |limit| conflicts(&policy(), &[limited(1, "vnet0", "web1", vec![limit])])[0].why[0].clone();
    assert_eq!(why(patient(100)), "class gold guarantees 300 Mbit/s, but libvirt lets no more than 100 Mbit/s pass");
    assert_eq!(
        why(limit("libvirt", Direction::GuestRx, 400)),
        "libvirt's limit of 400 Mbit/s holds; the maximum of class gold, 600 Mbit/s, is never reached"
    );
}

#[test]
fn each_has_its_command() {
    let command = |by: &str, name: &str, vm: &str, ways: &[Direction]| {
        let limits = ways.iter().map(|way| limit(by, *way, 10)).collect();
        conflicts(&policy(), &[limited(1, name, vm, limits)])[0].take_off.clone()
    };
    assert_eq!(
        command("libvirt", "vnet0", "a b", &[Direction::GuestRx, Direction::GuestTx]),
        "virsh domiftune 'a b' 52:54:00:00:00:01 --inbound 0 --outbound 0 --live --config\n\
         # or, to keep it with a burst that TCP can do with:\n\
         # virsh domiftune 'a b' 52:54:00:00:00:01 --outbound 1250,1250,1250 --live --config"
    );
    assert_eq!(
        command("libvirt", "vnet0", "web1", &[Direction::GuestTx]),
        "virsh domiftune web1 52:54:00:00:00:01 --outbound 0 --live --config\n\
         # or, to keep it with a burst that TCP can do with:\n\
         # virsh domiftune web1 52:54:00:00:00:01 --outbound 1250,1250,1250 --live --config"
    );
    assert_eq!(
        command("proxmox", "tap101i1", "web1", &Direction::ALL),
        "card=\"$(qm config 101 | sed -nE '/^net1: /{s///;s/,(rate)=[^,]*//g;p}')\" && [ -n \"$card\" ] && \\\n\
         qm set 101 --net1 \"$card\""
    );
    assert_eq!(
        command("openvswitch", "vnet0", "web1", &[Direction::GuestTx]),
        "ovs-vsctl set interface vnet0 ingress_policing_rate=0 ingress_policing_burst=0"
    );
    let queue = RateLimit {
        at: Some(crate::facts::LimitedAt::Root),
        ..RateLimit::new("openvswitch", Direction::GuestRx, BitRate::new(10), false)
    };
    let off = conflicts(&policy(), &[limited(1, "vnet0", "web1", vec![queue])])[0].take_off.clone();
    let command = "\nqos=$(ovs-vsctl get port vnet0 qos) && ovs-vsctl clear port vnet0 qos && ";
    assert!(off.contains(command) && !off.contains("policing"), "{off}");
}

#[test]
fn the_policy_takes_their_place() {
    let all = [
        limited(
            1,
            "vnet0",
            "web1",
            vec![limit("libvirt", Direction::GuestTx, 400), limit("libvirt", Direction::GuestRx, 700)],
        ),
        limited(
            2,
            "tap2",
            "db",
            vec![limit("proxmox", Direction::GuestTx, 20), limit("proxmox", Direction::GuestRx, 80)],
        ),
        limited(3, "tap3", "log", vec![limit("openvswitch", Direction::GuestTx, 90)]),
        limited(4, "vnet4", "new", vec![limit("libvirt", Direction::GuestRx, 30)]),
    ];
    let (next, left) = after(&all);
    assert!(left.is_empty(), "{left:?}");
    let of = |n: usize| Direction::ALL.map(|way| rates(&next, &all[n], way));
    // The minimum is the user's; the other direction's maximum was lower already.
    assert_eq!(of(0), [Some((300, 400)), Some((300, 600))]);
    // One interface of a pattern is changed, the others stay.
    assert_eq!(of(1), [Some((0, 20)), Some((0, 80))]);
    assert_eq!(of(2), [Some((0, 50)), None]);
    assert_eq!(of(3), [None, Some((0, 30))]);
    assert_eq!(
        next.entries.iter().map(|e| e.matcher.label()).collect::<Vec<_>>(),
        ["vm:web1", "vm:db", "tap*", "vm:new"]
    );
}

#[test]
fn two_cards_of_a_guest_are_two() {
    let all = [
        limited(1, "vnet0", "web1", vec![limit("libvirt", Direction::GuestTx, 400)]),
        limited(2, "vnet1", "web1", Vec::new()),
    ];
    let (next, left) = after(&all);
    assert!(left.is_empty(), "{left:?}");
    let sends = |n: usize| rates(&next, &all[n], Direction::GuestTx);
    assert_eq!((sends(0), sends(1)), (Some((300, 400)), Some((300, 600))));
    assert_eq!(next.entries[0].matcher.label(), "mac:52:54:00:00:00:01");
}

/// A default of CloudStack below what the user guarantees: nothing of the policy goes down, and nothing of it goes up.
#[test]
fn limit_below_the_minimum_is_not_taken_over() {
    let base = |min: &str| {
        let text = format!(
            "[uplink.eth0]\ncapacity = \"10Gbit\"\n[class.std]\nmin = \"{min}\"\nmax = \"2Gbit\"\n\
             [[interface]]\nmatch = {{ mac = \"52:54:00:00:00:01\" }}\nclass = \"std\"\nrx_class = \"std\"\n"
        );
        Policy::read(&[("guard.toml", &text)], &Links::default()).unwrap().policy
    };
    let limits =
        Direction::ALL.map(|way| RateLimit { rate_bps: BitRate::new(204_800_000), ..limit("libvirt", way, 0) });
    let all = [limited(1, "vnet0", "i-2-20-VM", limits.to_vec())];
    let there = [all[0].interface.clone()];
    let (next, left) = replaced(&base("300Mbit"), &all, &there);
    assert_eq!(next, base("300Mbit"));
    assert_eq!(
        left[0],
        "vnet0: libvirt's 204.8 Mbit/s on what it sends is below the minimum of class std (300 Mbit/s), so it is not taken over: take it off"
    );
    let (next, left) = replaced(&base("100Mbit"), &all, &there);
    let sends = rates(&next, &all[0], Direction::GuestTx);
    assert_eq!((sends, left.len()), (Some((100, 204)), 0));
}

#[test]
fn minima_that_were_a_patterns_are_left_out_where_they_do_not_fit() {
    let base = POLICY.replace("match = { vm = \"web1\" }", "match = { vm = \"web*\" }");
    let base = Policy::read(&[("guard.toml", &base)], &Links::default()).unwrap().policy;
    let all: Vec<Limited> = (1..=4)
        .map(|n| limited(n, &format!("vnet{n}"), &format!("web{n}"), vec![limit("libvirt", Direction::GuestTx, 400)]))
        .collect();
    let there: Vec<Interface> = all.iter().map(|l| l.interface.clone()).collect();
    let (next, left) = replaced(&base, &all, &there);
    let text = text(&next);
    assert!(Policy::read(&[("proposal", &text)], &Links::default()).is_ok(), "{text}");
    assert!(left.iter().any(|l| l.contains("its minimum does not fit")), "{left:?}");
}

/// A proposal has more members than a target was chosen for: what was chosen stays, and nothing is promised.
#[test]
fn targets_of_delay_are_left_out() {
    let text = POLICY.replace("max = \"600Mbit\"", "max = \"600Mbit\"\ndelay = \"20ms\"");
    let base = Policy::read(&[("guard.toml", &text)], &Links::default()).unwrap().policy;
    let all = [limited(1, "vnet0", "web1", vec![limit("libvirt", Direction::GuestTx, 400)])];
    let (next, left) = replaced(&base, &all, &[all[0].interface.clone()]);
    assert_eq!(left, ["vnet0: the targets of delay of class gold are left out; priority and queue stay"]);
    let entry = assign(&next, &all[0].interface).unwrap().entry;
    let class = next.class(entry.class.as_deref().unwrap());
    assert_eq!((class.priority, class.delay, class.max), (2, None, Some(400 * M)));
    assert_eq!(class.queue, base.class("gold").queue_time());
}
