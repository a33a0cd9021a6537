#![allow(clippy::unwrap_used)]

use std::time::Duration;

use vmio_model::facts::{Nic, Provenance, Subject};
use vmio_model::holding::{PacketPath, QueueingPoint};
use vmio_model::rate::BitRate;

use super::*;
use crate::core::{Core, CoreError};
use crate::planes::fake::Fake;
use crate::planes::{Count, StageBacklog};
use crate::testing::policy;

const OPEN: PacketPath = PacketPath { bridge_netfilter: Some(false), routed: Some(false), card: None };
const FIREWALL: PacketPath = PacketPath { bridge_netfilter: Some(true), routed: Some(false), card: None };

const POLICY: &str = "\
[uplink.eth0]
capacity = \"100Mbit\"
[class.gold]
max = \"40Mbit\"
[[interface]]
match = { name = \"tap*\" }
class = \"gold\"
[[interface]]
match = { name = \"vnet0\" }
class = \"gold\"
rx_class = \"gold\"
[[interface]]
match = { vm = \"web\" }
class = \"gold\"
";

fn found(index: u32, name: &str, model: &str, backend: &str, path: PacketPath) -> DiscoveredInterface {
    let from = Provenance::Transcript { name: "test".into() };
    let nic = Nic { model: model.into(), backend: backend.into(), ..Nic::unknown(Subject::net("g", "n"), from) };
    let interface = Interface { index, name: name.into(), ..Interface::default() };
    DiscoveredInterface { nic: Some(nic), paths: [("eth0".to_owned(), path)].into(), pids: vec![7], ..interface.into() }
}

fn held(index: u32, path: PacketPath) -> DiscoveredInterface {
    found(index, &format!("tap{index}"), "virtio-net", "tap", path)
}

/// `vhost-user` passes no queue of this kernel.
fn lost(index: u32, name: &str) -> DiscoveredInterface {
    found(index, name, "virtio-net", "vhost-user", OPEN)
}

fn start(text: &str, there: Vec<DiscoveredInterface>) -> Result<Core<Fake>, CoreError> {
    Core::start(Fake::new(Abilities::HTB), policy(text), there)
}

/// Of the pool of sent traffic: each member, where its excess waits, and its tap's send buffer.
fn shown(core: &mut Core<Fake>) -> Vec<(String, Option<QueueingPoint>, Option<u32>)> {
    let status = core.status().unwrap();
    let one = |m: &crate::core::MemberStatus| {
        (m.name.clone(), m.held.as_ref().map(|h| h.waits), m.held.as_ref().and_then(|h| h.send_buffer_bytes))
    };
    status[0].members.iter().map(one).collect()
}

#[test]
fn a_namespace_is_no_guest_that_is_not_known() {
    let reason = |netns: Option<&str>| {
        let netns = netns.map(str::to_owned);
        let interface = Interface { index: 1, name: "tap1".into(), netns, ..Interface::default() };
        let core = start(POLICY, vec![interface.into()]).unwrap();
        core.desired().pools[0].seats[1].holding.clone().unwrap().reason
    };
    assert_eq!(reason(None), "no guest is known behind it");
    assert!(reason(Some("blue")).starts_with("it leads to network namespace blue"));
}

#[test]
fn holding_depends_on_card_and_path() {
    let bare = DiscoveredInterface::from(Interface { index: 3, name: "tap3".into(), ..Interface::default() });
    let there = vec![held(1, OPEN), found(2, "tap2", "e1000", "tap", OPEN), bare];
    let mut core = start(POLICY, there).unwrap();
    let wanted = [
        ("host", None, None),
        ("tap1", Some(QueueingPoint::Held), Some(50_000)),
        ("tap2", Some(QueueingPoint::Queued), None),
        ("tap3", Some(QueueingPoint::Queued), None),
        ("default", None, None),
    ];
    assert_eq!(shown(&mut core), wanted.map(|(name, waits, bytes)| (name.to_owned(), waits, bytes)));
    assert_eq!(core.desired().pools[0].queue, Some(Queue::Uplink));
    // As the limit changes, so does the buffer: 10 ms of it. What may go beyond its maximum may have all.
    core.reload(policy(&POLICY.replace("40Mbit", "80Mbit"))).unwrap();
    assert_eq!(shown(&mut core)[1].2, Some(100_000));
    core.reload(policy(&POLICY.replace("40Mbit\"", "40Mbit\"\nover_max = true"))).unwrap();
    assert_eq!(shown(&mut core)[1].2, Some(125_000));
    // A queue of 128 KiB has room for half of that and one more packet.
    core.reload(policy(&POLICY.replace("40Mbit\"", "80Mbit\"\nqueue = \"1ms\""))).unwrap();
    assert_eq!(shown(&mut core)[1].2, Some(65_536));
}

/// What is dropped waits nowhere, so no tap is held, and no queue has to be right behind one.
#[test]
fn what_is_dropped_is_not_held_back() {
    let drops = POLICY.replace("40Mbit\"", "40Mbit\"\nexcess = \"drop\"");
    let mut core = start(&drops, vec![held(1, FIREWALL)]).unwrap();
    assert_eq!(shown(&mut core)[1], ("tap1".to_owned(), Some(QueueingPoint::Queued), None));
    let seat = |core: &Core<Fake>| core.desired().pools[0].seats[1].clone();
    assert_eq!(core.desired().pools[0].queue, Some(Queue::Uplink));
    let own = seat(&core).policers.and_then(|policers| policers.own).unwrap();
    assert_eq!((own.rate_bps.bits(), own.burst_bytes), (40_000_000, 131_072));
    // All that it sends meets the bucket, and needs no queue of its own.
    core.reload(policy(&drops.replace("\"drop\"", "\"drop\"\nlocal = \"limit\""))).unwrap();
    assert!(seat(&core).local_max.is_some() && !seat(&core).is_capped());
    core.reload(policy(&drops.replace("\"drop\"", "\"queue\"\nlocal = \"limit\""))).unwrap();
    assert!(seat(&core).policers.is_none() && seat(&core).is_capped());
}

/// Whatever the guests' paths are; nobody has a limit but by a bucket.
#[test]
fn maxima_alone_have_no_queue() {
    let equal = "[class.host]\nmin = \"0bit\"\npriority = 4\n[class.default]\npriority = 4\n";
    let drops = POLICY.replace("40Mbit\"", "40Mbit\"\nexcess = \"drop\"") + equal;
    let mut core = start(&drops, vec![held(1, FIREWALL)]).unwrap();
    let pool = &core.desired().pools[0];
    assert!(pool.is_queueless() && !pool.is_staged() && !pool.is_looped());
    assert_eq!(pool.seats[1].holding.as_ref().unwrap().queue, None);
    let status = core.status().unwrap().remove(0);
    let limits: Vec<_> = status.members.iter().map(|m| m.limit_bps.map(BitRate::bits)).collect();
    assert_eq!(limits, [None, Some(40_000_000), None]);
    assert_eq!((status.root_bps, status.queue), (status.capacity_bps, None));
    // The host has a minimum again; and a loop sets limits of queues.
    core.reload(policy(&drops.replace("min = \"0bit\"\n", ""))).unwrap();
    assert_eq!(core.desired().pools[0].queue, Some(Queue::Uplink));
    let by_loop = Abilities { form: Form::Limits, ..Abilities::HTB };
    let queueless = |plane| is_queueless(&policy(&drops), "eth0", plane);
    assert!(queueless(&Abilities::HTB) && !queueless(&by_loop));
}

#[test]
fn one_staged_interface_stages_the_pool() {
    let mut core = start(POLICY, vec![held(1, OPEN), held(2, FIREWALL)]).unwrap();
    assert_eq!(core.desired().pools[0].queue, Some(Queue::Ifb));
    core.set_interfaces(vec![held(1, OPEN)]).unwrap();
    assert_eq!(core.desired().pools[0].queue, Some(Queue::Uplink));
    // The switch of the bridge's firewall is thrown while all runs.
    core.set_interfaces(vec![held(1, FIREWALL)]).unwrap();
    assert_eq!(core.desired().pools[0].queue, Some(Queue::Ifb));
}

/// As status says it of the plane (`LocalCount::limited`).
#[test]
fn behind_a_stage_local_traffic_is_limited() {
    let policy = policy(POLICY);
    let exceeded = |there: Vec<DiscoveredInterface>| {
        let core = start(POLICY, there).unwrap();
        core.desired().exceeded_locally(&policy).join(" ")
    };
    assert_eq!(exceeded(Vec::new()), "gold", "nothing here says otherwise");
    assert_eq!(exceeded(vec![held(1, OPEN)]), "gold");
    assert_eq!(exceeded(vec![held(1, OPEN), held(2, FIREWALL)]), "");
}

/// What the host uses is not the guests', whose queues stand elsewhere.
#[test]
fn stage_follows_the_hosts_traffic() {
    let mut core = start(POLICY, vec![held(1, FIREWALL)]).unwrap();
    let key = PoolKey { uplink: "eth0".into(), direction: Direction::GuestTx };
    let stage = |core: &mut Core<Fake>| core.plane().limits(&key).unwrap().stage.unwrap();
    let capacity = BitRate::new(100_000_000);
    assert_eq!(stage(&mut core), capacity, "nothing is known yet");
    let period = Duration::from_millis(10);
    let mut counts = [Count::default(); 3];
    let left = BitRate::new(89_843_750);
    for wanted in [capacity, left, left] {
        core.plane().count(&key, counts.to_vec());
        core.tick(period).unwrap();
        assert_eq!(stage(&mut core), wanted);
        // 10 Mbit/s of the host, and all that the guest can have.
        counts[0].passed_bytes += 12_500;
        counts[1] = Count { passed_bytes: counts[1].passed_bytes + 50_000, waiting_bytes: 9000, ..counts[1] };
    }
    let status = &core.status().unwrap()[0];
    assert_eq!(status.stage, Some((left, StageBacklog::default())));
    core.set_interfaces(vec![held(1, OPEN)]).unwrap();
    assert_eq!(core.status().unwrap()[0].stage, None);
}

#[test]
fn named_interfaces_that_cannot_be_limited_are_refused() {
    let web = DiscoveredInterface {
        interface: Interface { vms: vec!["web".into()], ..lost(9, "v9").interface },
        ..lost(9, "v9")
    };
    let there = vec![lost(1, "vnet0"), web, held(2, OPEN)];
    let Err(CoreError::Refused(refusal)) = start(POLICY, there.clone()) else { panic!("it cannot be held") };
    let [one, two, three] = refusal.0.as_slice() else { panic!("{refusal}") };
    for (said, wanted) in [
        (one, ["guard.toml:9:9: vnet0 cannot", "class gold", "guest_tx", "another process", "allow_unenforced"]),
        (two, ["v9 (vm:web) cannot", "guard.toml:13", "guest_tx", "another process", "allow_unenforced"]),
        (three, ["guard.toml:9:9: vnet0 cannot", "class gold", "guest_rx", "another process", "allow_unenforced"]),
    ] {
        assert!(wanted.iter().all(|word| said.contains(word)), "{said}");
    }
    // Admitted, it is noted, shown, and in nobody's way.
    let mut core = start(&format!("[guard]\nallow_unenforced = true\n{POLICY}"), there).unwrap();
    assert_eq!(core.desired().notes.len(), 3, "{:?}", core.desired().notes);
    let names: Vec<_> = shown(&mut core).into_iter().map(|(name, waits, _)| (name, waits)).collect();
    let wanted = [
        ("host", None),
        ("tap2", Some(QueueingPoint::Held)),
        ("default", None),
        ("vnet0", Some(QueueingPoint::None)),
        ("v9", Some(QueueingPoint::None)),
    ];
    assert_eq!(names, wanted.map(|(name, waits)| (name.to_owned(), waits)));
    let status = core.status().unwrap();
    let last = status[0].members.last().unwrap();
    assert_eq!((last.min_effective_bps, last.limit_bps), (BitRate::ZERO, None));
    assert_eq!(status[1].members.last().unwrap().name, "vnet0", "what it receives is not limited either");
}

#[test]
fn later_guest_that_cannot_be_limited_is_noted() {
    // What a pattern happens to match is noted even when the policy comes.
    let mut core = start(POLICY, vec![lost(1, "tap1"), held(2, OPEN)]).unwrap();
    let notes = &core.desired().notes;
    assert!(notes[0].contains("it is not limited"), "{notes:?}");
    let unused = [
        "guard.toml:9:9: no interface that is here now matches vnet0",
        "guard.toml:13:9: no interface that is here now matches vm:web",
    ];
    assert_eq!(notes[1..], unused);
    core.set_interfaces(vec![lost(3, "vnet0"), held(2, OPEN), held(4, OPEN)]).unwrap();
    let names: Vec<_> = shown(&mut core).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["host", "tap2", "tap4", "default", "vnet0"]);
    // The next policy is told of it by name.
    let before = core.desired().clone();
    assert!(matches!(core.reload(policy(POLICY)), Err(CoreError::Refused(_))));
    assert_eq!(*core.desired(), before);
}

#[test]
fn an_entry_that_is_passed_over_has_a_match() {
    let of_web = held(2, OPEN);
    let interface = Interface { name: "vnet0".into(), vms: vec!["web".into()], ..of_web.interface.clone() };
    let core = start(POLICY, vec![DiscoveredInterface { interface, ..of_web }]).unwrap();
    let notes = core.desired().notes.join("\n");
    assert!(notes.contains("vnet0 is matched by vnet0 (guard.toml:9:9) and by vm:web"), "{notes}");
    assert!(notes.contains("no interface that is here now matches tap*"), "{notes}");
    assert!(!notes.contains("no interface that is here now matches v"), "{notes}");
}

#[test]
fn interfaces_without_a_class_are_noted() {
    let there = |others: u32| {
        let other = |index| DiscoveredInterface {
            interface: Interface { name: format!("veth{index}"), ..held(index, OPEN).interface },
            ..held(index, OPEN)
        };
        let text = POLICY.split("[[interface]]\nmatch = { name = \"vnet0\" }").next().unwrap();
        let core = start(text, std::iter::once(held(1, OPEN)).chain((2..2 + others).map(other)).collect()).unwrap();
        core.desired().notes.clone()
    };
    assert_eq!(there(0), [""; 0]);
    let alone = "veth2 is in no class: what it sends and receives shares `default`, which comes last; it may claim any \
                 address, those of gateways, too";
    assert_eq!(there(1), [alone]);
    assert!(there(2)[0].starts_with("veth2, veth3 are in no class"), "{:?}", there(2));
    assert!(there(10)[0].contains("veth9 and 2 more are in no class"), "{:?}", there(10));
}

/// An interface may be called as a member that every uplink has: a pattern, a machine or an address means it all the
/// same.
#[test]
fn interface_named_like_a_fixed_member() {
    let text = POLICY.replace("name = \"tap*\"", "name = \"*t\"");
    let there = ["host", "default"].map(|name| found(5, name, "virtio-net", "tap", OPEN));
    let [host, default] = there;
    let default = DiscoveredInterface { interface: Interface { index: 6, ..default.interface }, ..default };
    let mut core = start(&text, vec![host, default.clone()]).unwrap();
    let names: Vec<_> = shown(&mut core).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["host", "name:host", "name:default", "default"]);
    let lost = DiscoveredInterface { nic: lost(6, "default").nic, ..default };
    core.set_interfaces(vec![lost]).unwrap();
    let names: Vec<_> = shown(&mut core).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["host", "default", "name:default"], "one that nobody can hold, too");
}

/// What a tap holds back waits in the order of the guest, so a guest with flow classes is not held.
#[test]
fn flow_classes_are_told_apart_on_this_host() {
    let flow = "max = \"40Mbit\"\n[[class.gold.flow]]\nname = \"voice\"\nmatch = { dscp = \"ef\" }\n";
    let mut core = start(&POLICY.replace("max = \"40Mbit\"\n", flow), vec![held(1, OPEN)]).unwrap();
    assert_eq!(shown(&mut core)[1], ("tap1".to_owned(), Some(QueueingPoint::Queued), None));
    assert_eq!(core.desired().pools[0].pool.seats[1].flows.len(), 1);
}

/// A target of delay is met by a queue that is short, in bytes.
#[test]
fn a_target_of_delay_bounds_the_queue() {
    let keys = "min = \"30Mbit\"\nmax = \"40Mbit\"\ndelay = \"300ms\"\n";
    let core = start(&POLICY.replace("max = \"40Mbit\"\n", keys), vec![held(1, OPEN)]).unwrap();
    let pool = &core.desired().pools[0];
    assert_eq!(pool.seats.iter().map(|seat| seat.is_bounded).collect::<Vec<_>>(), [false, true, false]);
    assert!(pool.pool.seats[1].queue.is_some_and(|queue| queue < Duration::from_millis(250)));
    assert_eq!(pool.pool.seats[1].contract.priority, 2);
}

/// A manager's addresses are the guest's own, but not all that it may have, and never what the policy gives to another.
#[test]
fn addresses_of_policy_and_manager() {
    let known = |mut found: DiscoveredInterface, all: &[&str]| {
        found.nic.as_mut().unwrap().place.addresses = all.iter().map(|text| text.parse().unwrap()).collect();
        found
    };
    let there = || {
        let vnet0 = found(2, "vnet0", "virtio-net", "tap", OPEN);
        vec![known(held(1, OPEN), &["192.0.2.7", "192.0.2.8"]), known(vnet0, &["192.0.2.9"]), held(3, OPEN)]
    };
    let identities = |text: &str| -> Vec<(String, String, bool)> {
        let core = start(text, there()).unwrap();
        let seats = core.desired().pools[0].seats.iter().filter(|seat| seat.interface.is_some());
        let all = |seat: &DesiredMember| {
            let addresses: Vec<String> = seat.identity.addresses.iter().map(ToString::to_string).collect();
            (seat.name.clone(), addresses.join(" "), seat.identity.all_known)
        };
        seats.map(all).collect()
    };
    let wanted = |tap1: &str, vnet0: &str, all_known| {
        [("tap1", tap1, false), ("tap3", "", false), ("vnet0", vnet0, all_known)]
            .map(|(name, addresses, all)| (name.to_owned(), addresses.to_owned(), all))
    };
    let sorted = |text: &str| {
        let mut all = identities(text);
        all.sort();
        all
    };
    assert_eq!(sorted(POLICY), wanted("192.0.2.7 192.0.2.8", "192.0.2.9", false));
    let listed = POLICY.replace("name = \"vnet0\" }", "name = \"vnet0\" }\naddresses = [\"192.0.2.8\"]");
    assert_eq!(sorted(&listed), wanted("192.0.2.7", "192.0.2.8", true));
    let gateways = POLICY.replace("\"100Mbit\"", "\"100Mbit\"\ngateways = [\"192.0.2.7\"]");
    assert_eq!(sorted(&gateways), wanted("192.0.2.8", "192.0.2.9", false), "a gateway is no guest's");
    assert_eq!(start(&gateways, there()).unwrap().desired().pools[0].gateways.len(), 1);
}

/// Addresses that a manager names but others may have, too, are reported and never refused.
#[test]
fn addresses_in_doubt_are_not_dropped_for() {
    let addresses = |text: &str, in_doubt: bool| {
        let mut tap1 = held(1, OPEN);
        let place = &mut tap1.nic.as_mut().unwrap().place;
        (place.addresses, place.addresses_in_doubt) = (vec!["192.0.2.7".parse().unwrap()], in_doubt);
        let core = start(text, vec![tap1]).unwrap();
        let seats = &core.desired().pools[0].seats;
        seats.iter().map(|seat| seat.identity.addresses.len()).sum::<usize>()
    };
    let drops = format!("{POLICY}[guard]\nspoofing = \"drop\"\n");
    assert_eq!([addresses(POLICY, false), addresses(POLICY, true)], [1, 1]);
    assert_eq!([addresses(&drops, false), addresses(&drops, true)], [1, 0]);
}

#[test]
fn plane_without_receive_limits() {
    let plane = Fake::new(Abilities { receive: false, ..Abilities::HTB });
    let refused = Core::start(plane, policy(POLICY), vec![found(1, "vnet0", "virtio-net", "tap", OPEN)]).err().unwrap();
    assert!(refused.to_string().contains("leave rx_class out"), "{refused}");
}

mod cards;

#[test]
fn each_member_of_the_largest_pool_has_a_number() {
    assert_eq!(Abilities::HTB.members, usize::from(LAST_NUMBER - FIRST_NUMBER + 1) + 2);
}
