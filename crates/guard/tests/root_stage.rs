//! Guests that must be held behind their own interfaces: they share on an IFB, and the host meets them at the uplink.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::time::Duration;

use crate::common::holder::Holder;
use crate::common::nic;
use crate::common::state::State;
use crate::common::test_host::{SINK, TestHost, send, test_host};
use crate::root_held::OPEN;
use crate::root_plane::{counts, interfaces, policy, shares, tx};
use crate::root_takeover::kept;
use vmio_guard::core::Core;
use vmio_guard::desired::GUESTS_NUMBER;
use vmio_guard::interface::DiscoveredInterface;
use vmio_guard::planes::linux::counters::{self, Counts};
use vmio_guard::planes::linux::{Device, Linux, Netlink, htb, ifb, links};
use vmio_guard::planes::{Plane, Scope, StageBacklog};
use vmio_model::holding::{PacketPath, Queue, QueueingPoint};
use vmio_testbed::net::{apart, apart_with_bpffs, run};
use vmio_testbed::{poll_until, skip};

const PERIOD: Duration = Duration::from_millis(10);

/// Of the members: `host`, the guests, `default`.
const GUESTS: [usize; 3] = [1, 2, 3];
const ALL: [usize; 4] = [0, 1, 2, 3];

/// Of what the host leaves of 10 Mbit/s gold has up to 5, and the two others share the rest two to one.
const POLICY: &str = "\
[uplink.u0]
capacity = \"10Mbit\"
[class.host]
min = \"2Mbit\"
max = \"3Mbit\"
[class.gold]
priority = 2
min = \"4Mbit\"
max = \"5Mbit\"
[class.silver]
weight = 2
[class.bronze]
[[interface]]
match = { name = \"t1\" }
class = \"gold\"
[[interface]]
match = { name = \"t2\" }
class = \"silver\"
[[interface]]
match = { name = \"t3\" }
class = \"bronze\"
";

/// As on a host whose bridge hands packets to its firewall.
const FIREWALL: PacketPath = PacketPath { bridge_netfilter: Some(true), routed: Some(false), card: None };

fn by(path: PacketPath) -> BTreeMap<String, PacketPath> {
    [("u0".to_owned(), path)].into()
}

pub fn behind_a_firewall(there: Vec<DiscoveredInterface>) -> Vec<DiscoveredInterface> {
    let one = |found| DiscoveredInterface { nic: Some(nic("virtio-net", "tap")), paths: by(FIREWALL), ..found };
    there.into_iter().map(one).collect()
}

fn start(text: &str, there: Vec<DiscoveredInterface>) -> Core<Linux> {
    Core::start(Linux::open(false).unwrap(), policy(text), there).unwrap()
}

fn backlog(core: &mut Core<Linux>) -> Option<StageBacklog> {
    core.plane().observe(Scope::Counts(&tx())).unwrap().backlog
}

fn dropped_behind(core: &mut Core<Linux>) -> u64 {
    backlog(core).unwrap().dropped_packets
}

/// The host has an address of its own on the bridge.
fn with_host() {
    run(&[
        "ip addr add 10.9.0.1/24 dev br0",
        "ip neigh replace 10.9.0.9 lladdr 02:00:00:00:00:09 dev br0 nud permanent",
    ]);
}

fn near(what: &str, got: &[f64], wanted: [f64; 5]) {
    for (got_one, want) in got.iter().zip(wanted) {
        assert!((got_one - want).abs() < 0.05, "{what}: {got:?} where {wanted:?} is right");
    }
}

#[test]
#[ignore = "root"]
fn stage_shares_what_the_host_leaves() {
    apart(|| {
        let mut host = test_host(3);
        with_host();
        let uplink = host.uplink.clone();
        let before = htb::settings(&mut host.netlink, &uplink).unwrap();
        let there = behind_a_firewall(interfaces(&host));
        let mut core = start(POLICY, there.clone());
        assert_eq!(core.desired().pools[0].queue, Some(Queue::Ifb));
        assert_eq!(core.reconcile().unwrap(), 0, "applying twice changes nothing");
        let _listener = host.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap());
        poll_until("a first packet", || {
            host.tenants[0].namespace.inside(|| send(1));
            counts(&mut core)[1].passed_bytes > 0
        });
        near("an idle host", &shares(&mut core, &host, &GUESTS), [0.0, 0.5, 0.333, 0.167, 0.0]);
        near("a host that floods", &shares(&mut core, &host, &ALL), [0.3, 0.5, 0.133, 0.067, 0.0]);
        let status = &core.status().unwrap()[0];
        let (stage, _) = status.stage.unwrap();
        assert!((6_500_000..7_100_000).contains(&stage.bits()), "{stage}");
        // As unimportant as can be, the host has its minimum.
        // That takes hold though its queue is never empty.
        core.reload(policy(&POLICY.replace("[class.host]", "[class.host]\npriority = 8"))).unwrap();
        let dropped = dropped_behind(&mut core);
        near("a host that is last", &shares(&mut core, &host, &ALL), [0.2, 0.5, 0.2, 0.1, 0.0]);
        assert_eq!(dropped_behind(&mut core), dropped, "behind the IFB");

        // Somebody takes things away.
        let ifb = format!("vmiotx{:x}", uplink.index);
        run(&["tc qdisc del dev u0 root", &format!("ip link del {ifb}")]);
        assert!(core.reconcile().unwrap() > 0);
        assert_eq!(core.reconcile().unwrap(), 0);
        let passed = counts(&mut core)[1].passed_bytes;
        host.tenants[0].namespace.inside(|| send(10));
        poll_until("packets through the new IFB", || counts(&mut core)[1].passed_bytes > passed);
        // The firewall is switched off: the uplink does. And on again.
        core.set_interfaces(interfaces(&host)).unwrap();
        assert_eq!(core.desired().pools[0].queue, Some(Queue::Uplink));
        assert_eq!(ifb::find(&mut host.netlink, &ifb).unwrap(), None);
        assert_eq!(backlog(&mut core), None);
        let all = counters::read(&mut host.netlink, &uplink).unwrap();
        assert!(all.contains_key(&16) && !all.contains_key(&GUESTS_NUMBER), "{all:?}");
        host.tenants[0].namespace.inside(|| send(10));
        poll_until("packets in their class at the uplink", || counts(&mut core)[1].passed_bytes > 0);
        core.set_interfaces(there).unwrap();
        assert!(ifb::find(&mut host.netlink, &ifb).unwrap().is_some());
        core.undo().unwrap();
        assert_eq!(ifb::find(&mut host.netlink, &ifb).unwrap(), None);
        assert_eq!(htb::settings(&mut host.netlink, &uplink).unwrap(), before, "as it was, bit by bit");
    });
}

/// The firewall is switched on for real where this kernel has one for bridges, in the test's namespace alone.
#[test]
#[ignore = "root"]
fn stage_holds_taps_behind_a_bridge_firewall() {
    apart(|| {
        let mut host = test_host(0);
        let firewall = std::fs::write("/proc/sys/net/bridge/bridge-nf-call-iptables", "1").is_ok();
        run(&["bridge fdb replace 02:00:00:00:00:09 dev u0 master static"]);
        let mut holder = Holder::start("t1", 1);
        run(&["ip link set t1 master br0", "ip link set t1 up"]);
        let index = links::find(&mut host.netlink, "t1").unwrap().index;
        let interface = vmio_model::policy::assign::Interface { index, name: "t1".into(), ..Default::default() };
        let there = DiscoveredInterface { pids: vec![holder.child.id()], ..interface.into() };
        let there = behind_a_firewall(vec![there]);
        let mut core = start(POLICY, there.clone());
        let held = |core: &mut Core<Linux>| {
            poll_until("a tap held", || {
                core.status().unwrap()[0].members[1].held.as_ref().unwrap().waits == QueueingPoint::Held
            });
        };
        let mut flooded = |core: &mut Core<Linux>| {
            poll_until("an empty queue", || counts(core)[1].waiting_bytes == 0);
            let before = counts(core)[1];
            let core_of = std::cell::RefCell::new(&mut *core);
            let was_dropped = || counts(&mut core_of.borrow_mut())[1].dropped_packets > before.dropped_packets;
            let flood = holder.flood("flood-ip", was_dropped, || core_of.borrow_mut().tick(PERIOD).unwrap());
            let after = counts(core)[1];
            assert!(after.passed_bytes > before.passed_bytes && flood.written > 0);
            (after.dropped_packets - before.dropped_packets, flood.again)
        };
        held(&mut core);
        let (dropped, again) = flooded(&mut core);
        assert!(dropped == 0 && again > 0, "{dropped} dropped, told to wait {again} times");
        assert_eq!(dropped_behind(&mut core), 0);
        if firewall {
            // At the uplink they are not the tap's any more, whatever its send buffer.
            core.set_interfaces(
                there.into_iter().map(|found| DiscoveredInterface { paths: by(OPEN), ..found }).collect(),
            )
            .unwrap();
            held(&mut core);
            let (dropped, again) = flooded(&mut core);
            assert!(dropped > 0 && again == 0, "{dropped} dropped, told to wait {again} times");
        } else {
            skip("this kernel has no firewall for bridges to compare with");
        }
        core.undo().unwrap();
    });
}

/// Packets of the class of what was in the IFB, and of `default`, at the uplink.
fn at_uplink(host: &mut TestHost) -> (u64, u64) {
    let uplink = host.uplink.clone();
    let all = counters::read(&mut host.netlink, &uplink).unwrap();
    (all[&GUESTS_NUMBER].packets, all[&3].packets)
}

/// Killed, it all stays; the next one finds it, whether it wants the IFB or the uplink, and one that was just opened
/// takes it off.
fn outlives(pinned: bool) {
    apart_with_bpffs(pinned, || {
        let mut host = test_host(3);
        let before = State::now();
        let dir = tempfile::tempdir().unwrap();
        let ifb = format!("vmiotx{:x}", host.uplink.index);
        let there = behind_a_firewall(interfaces(&host));
        let open = || Core::start(kept(dir.path()), policy(POLICY), there.clone()).unwrap();
        let mut core = open();
        let passed = |core: &mut Core<Linux>, host: &TestHost| {
            let before = counts(core)[1].passed_bytes;
            poll_until("packets through the IFB", || {
                host.tenants[0].namespace.inside(|| send(1));
                counts(core)[1].passed_bytes > before
            });
        };
        passed(&mut core, &host);
        drop(core);
        // Nobody is there, and it goes on.
        let (through, _) = at_uplink(&mut host);
        poll_until("packets at the uplink", || {
            host.tenants[0].namespace.inside(|| send(1));
            at_uplink(&mut host).0 > through
        });
        let index = ifb::find(&mut host.netlink, &ifb).unwrap().unwrap().index;
        let mut core = open();
        assert_eq!(ifb::find(&mut host.netlink, &ifb).unwrap().unwrap().index, index, "the same");
        assert_eq!(core.reconcile().unwrap(), 0);
        passed(&mut core, &host);
        core.leave();
        let mut core = Core::start(kept(dir.path()), policy(POLICY), interfaces(&host)).unwrap();
        assert_eq!(ifb::find(&mut host.netlink, &ifb).unwrap(), None);
        core.set_interfaces(there.clone()).unwrap();
        passed(&mut core, &host);
        core.leave();
        kept(dir.path()).undo().unwrap();
        assert_eq!(State::now(), before);
    });
}

#[test]
#[ignore = "root"]
fn stage_is_taken_over_and_undone_with_pins() {
    outlives(true);
}

#[test]
#[ignore = "root"]
fn stage_is_taken_over_and_undone_by_clsact() {
    outlives(false);
}

#[test]
#[ignore = "root"]
fn all_sent_packets_pass_the_ifb() {
    apart(|| {
        let mut host = test_host(3);
        let mut core = start(POLICY, behind_a_firewall(interfaces(&host)[..2].to_vec()));
        // IPv6 and its neighbour discovery, to the sink.
        let listener = host.sink.inside(|| {
            run(&["ip addr add fd00::9/64 dev u1 nodad"]);
            UdpSocket::bind(("fd00::9", 9)).unwrap()
        });
        listener.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let passed = |core: &mut Core<Linux>| counts(core).iter().map(|c| c.passed_bytes).collect::<Vec<_>>();
        let before = (passed(&mut core), at_uplink(&mut host));
        host.tenants[0].namespace.run(&["ip addr add fd00::101/64 dev g0 nodad"]);
        poll_until("a datagram by IPv6", || {
            host.tenants[0].namespace.inside(|| {
                // Before the link is up it cannot be sent.
                let _ = UdpSocket::bind("[::]:0").unwrap().send_to(&[7; 400], ("fd00::9", 9));
            });
            listener.recv(&mut [0; 1000]).is_ok()
        });
        let now = (passed(&mut core), at_uplink(&mut host));
        assert!(now.0[1] >= before.0[1] + 400 && now.1.0 > before.1.0, "{before:?} {now:?}");
        // ARP, asked for an address that nobody has.
        let (count, _) = at_uplink(&mut host);
        host.tenants[1].namespace.run(&["ip neigh flush dev g0"]);
        poll_until("a question by ARP", || {
            host.tenants[1].namespace.inside(|| {
                let _ = UdpSocket::bind("0.0.0.0:0").unwrap().send_to(&[7; 40], ("10.9.0.77", 9));
            });
            passed(&mut core)[2] > 0 && at_uplink(&mut host).0 > count
        });
        // From guest to guest, straight over the bridge.
        host.tenants[0].namespace.run(&["ip neigh replace 10.9.0.102 lladdr 02:00:00:00:01:02 dev g0 nud permanent"]);
        run(&["bridge fdb replace 02:00:00:00:01:02 dev t2 master static"]);
        let heard = host.tenants[1].namespace.inside(|| UdpSocket::bind(("10.9.0.102", 9)).unwrap());
        heard.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (mine, (uplinks, _)) = (passed(&mut core)[1], at_uplink(&mut host));
        poll_until("a datagram to a neighbour", || {
            host.tenants[0].namespace.inside(|| {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                for _ in 0..20 {
                    let _ = socket.send_to(&[7; 1000], ("10.9.0.102", 9));
                }
            });
            heard.recv(&mut [0; 1500]).is_ok()
        });
        assert!(passed(&mut core)[1] >= mine + 1000, "it counts in the IFB");
        assert!(at_uplink(&mut host).0 < uplinks + 10, "and is not seen at the uplink");
        // Who is in no policy is not led, and is `default` at the uplink.
        let (_, before) = at_uplink(&mut host);
        poll_until("a stranger's packets", || {
            host.tenants[2].namespace.inside(|| send(10));
            at_uplink(&mut host).1 >= before + 10
        });
        core.undo().unwrap();
    });
}

/// Which classes of a device get packets while this is done.
fn grew(netlink: &mut Netlink, at: &Device, what: impl Fn()) -> Vec<u16> {
    let before = counters::read(netlink, at).unwrap();
    let more = |number: &u16, counts: &Counts| counts.packets >= before[number].packets + 10;
    let mut after = before.clone();
    poll_until("packets at the uplink", || {
        what();
        after = counters::read(netlink, at).unwrap();
        after.iter().any(|(number, counts)| more(number, counts))
    });
    after
        .into_iter()
        .filter(|(number, counts)| *number != 1 && more(number, counts))
        .map(|(number, _)| number)
        .collect()
}

/// What is known of a packet at the uplink survives where its priority does not.
#[test]
#[ignore = "root"]
fn class_survives_veth_router_and_bridge() {
    apart(|| {
        let mut host = test_host(3);
        let uplink = host.uplink.clone();
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        run(&[
            // t1: a bridge of its own, and from there a pair to the one of the uplink, as a firewall has it.
            "ip link add fwbr type bridge mcast_snooping 0",
            "ip link set fwbr up",
            "ip link add fwln type veth peer name fwpr",
            "ip link set t1 master fwbr",
            "ip link set fwln master fwbr",
            "ip link set fwpr master br0",
            "ip link set fwln up",
            "ip link set fwpr up",
            // t2: routed; t3: routed by a bridge that has the host's address.
            "ip addr add 10.9.0.1/24 dev br0",
            "ip neigh replace 10.9.0.9 lladdr 02:00:00:00:00:09 dev br0 nud permanent",
            "ip link set t2 nomaster",
            "ip addr add 10.8.2.1/24 dev t2",
            "ip link add nat type bridge",
            "ip link set nat up",
            "ip addr add 10.8.3.1/24 dev nat",
            "ip link set t3 master nat",
        ]);
        for (i, tenant) in (1..).zip(&host.tenants).skip(1) {
            tenant.namespace.run(&[
                "ip addr flush dev g0",
                &format!("ip addr add 10.8.{i}.2/24 dev g0"),
                &format!("ip route add default via 10.8.{i}.1"),
            ]);
        }
        for staged in [false, true] {
            let there = interfaces(&host);
            let core = start(POLICY, if staged { behind_a_firewall(there) } else { there });
            for (number, i) in (16..).zip(0..3) {
                let namespace = &host.tenants[i].namespace;
                let numbers = grew(&mut host.netlink, &uplink, || namespace.inside(|| send(10)));
                assert_eq!(numbers, [if staged { GUESTS_NUMBER } else { number }], "t{}, staged: {staged}", i + 1);
            }
            core.undo().unwrap();
        }
    });
}
