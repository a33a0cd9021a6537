//! The read cache: without changes nothing is read back, without traffic no counters are read, and both are resumed
//! with changes and traffic.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::M;
use crate::common::state::State;
use crate::common::test_host::{TestHost, ready, send, test_host};
use crate::root_plane::{interfaces, policy, tx};
use crate::root_receive::LIMITED;
use crate::root_receive_undo::detach_program;
use crate::root_takeover::start;
use vmio_guard::core::Core;
use vmio_guard::planes::linux::{Device, Linux, Netlink, counters, links};
use vmio_guard::source::guests::Once;
use vmio_guard::source::{DiscoveredInterface, Source};
use vmio_model::policy::assign::Interface;
use vmio_model::rate::BitRate;
use vmio_testbed::net::{Namespace, apart, apart_with_bpffs, run};
use vmio_testbed::poll_until;

const PERIOD: Duration = Duration::from_millis(10);
/// All are read each 5 s: of several that waited for that, one after another, one at most would be so soon.
const SOON: Duration = Duration::from_millis(2500);
const HARD: &str = "\
[uplink.u0]
capacity = \"100Mbit\"
[class.gold]
min = \"40Mbit\"
reserve = \"hard\"
[class.rest]
[[interface]]
match = { name = \"t1\" }
class = \"gold\"
[[interface]]
match = { name = \"t2\" }
class = \"rest\"
";

/// New links go on for a moment.
fn rests(core: &mut Core<Linux>) {
    let mut quiet = 0;
    poll_until("nothing is told", || {
        if core.disturbed() {
            quiet = 0;
            assert_eq!(core.reconcile().unwrap(), 0);
        }
        quiet += 1;
        thread::sleep(PERIOD);
        quiet > 8
    });
}

fn told_and_put_right(pinned: bool) {
    apart_with_bpffs(pinned, || {
        let mut host = test_host(2);
        let ledger = tempfile::tempdir().unwrap();
        let mut core = start(&host, ledger.path(), LIMITED);
        let ifb = links::all(&mut host.netlink).unwrap().into_iter().find(|link| link.kind == "ifb").unwrap();
        let mut taken = vec![
            "tc qdisc del dev u0 root".to_owned(),
            "tc class change dev u0 parent 7a00:1 classid 7a00:10 htb rate 9mbit ceil 9mbit".to_owned(),
            format!("ip link del {}", ifb.device),
        ];
        let by_filters = State::now().filters("handle 0x766d69") > 0;
        if by_filters {
            taken.push("tc filter del dev t1 ingress".to_owned());
            taken.push("tc qdisc del dev t2 clsact".to_owned());
        }
        for line in &taken {
            rests(&mut core);
            run(&[line]);
            assert!(core.disturbed(), "{line}");
            assert!(core.reconcile().unwrap() > 0, "{line}");
            assert_eq!(core.reconcile().unwrap(), 0, "{line}");
        }
        rests(&mut core);
        // Of this the kernel tells nobody.
        if !by_filters {
            assert!(detach_program(&host));
            assert!(core.disturbed());
            assert!(core.reconcile().unwrap() > 0);
            rests(&mut core);
        }
        core.undo().unwrap();
    });
}

#[test]
#[ignore = "root"]
fn foreign_changes_are_noticed_with_pins() {
    told_and_put_right(true);
}

#[test]
#[ignore = "root"]
fn foreign_changes_are_noticed_by_clsact() {
    told_and_put_right(false);
}

fn root(core: &mut Core<Linux>) -> BitRate {
    thread::sleep(PERIOD);
    core.tick(PERIOD).unwrap();
    core.in_force(&tx()).unwrap().root
}

fn passed(core: &mut Core<Linux>) -> Option<u64> {
    let pools = core.count().unwrap()?;
    Some(pools[0].members.iter().map(|member| member.count.passed_bytes).sum())
}

fn sends(host: &TestHost, tenant: usize) {
    host.tenants[tenant].namespace.inside(|| send(50));
}

#[test]
#[ignore = "root"]
fn loop_resumes_with_traffic() {
    apart(|| {
        let mut host = test_host(2);
        let mut core = Core::start(Linux::open(false).unwrap(), policy(HARD), interfaces(&host)).unwrap();
        ready(&mut host, 16);
        // Longer than what the loop remembers, by its own clock. Neighbours may be asked for meanwhile.
        for _ in 0..150 {
            core.tick(PERIOD).unwrap();
        }
        poll_until("the loop rests", || root(&mut core) == 60 * M);
        poll_until("nothing passes", || core.count().unwrap().is_none());
        let before = core.status().unwrap()[0].members.iter().map(|member| member.count.passed_bytes).sum::<u64>();
        // Sooner than counters are read anyway.
        sends(&host, 1);
        poll_until("it is counted", || passed(&mut core).is_some_and(|now| now >= before + 50 * 400));
        poll_until("nothing passes", || core.count().unwrap().is_none());
        poll_until("the reserve is given back while it is used", || {
            sends(&host, 0);
            root(&mut core) > 60 * M
        });
        // What the loop itself has changed is not told as another's.
        poll_until("the reserve is kept again", || root(&mut core) == 60 * M);
        rests(&mut core);
        for _ in 0..20 {
            sends(&host, 0);
            root(&mut core);
        }
        assert!(!core.disturbed());
        core.undo().unwrap();
    });
}

const MANY: &str = "\
[uplink.u0]
capacity = \"100Mbit\"
[class.rest]
[[interface]]
match = { name = \"t*\" }
class = \"rest\"
[[interface]]
match = { name = \"d*\" }
class = \"rest\"
";

/// The tenants' interfaces, and 150 more.
fn many(host: &mut TestHost) -> Vec<DiscoveredInterface> {
    (0..150).for_each(|n| run(&[&format!("ip link add d{n} type veth peer name e{n}")]));
    let idle = links::all(&mut host.netlink).unwrap().into_iter().map(|link| link.device);
    let idle = idle.filter(|device| device.name.starts_with('d'));
    let mut all = interfaces(host);
    all.extend(idle.map(|d| Interface { index: d.index, name: d.name, ..Interface::default() }.into()));
    all
}

/// Nothing is missing in a pool that the kernel has counted at this interface.
fn is_all_of(core: &mut Core<Linux>, pool: usize, netlink: &mut Netlink, at: &Device) {
    let pools = core.status().unwrap();
    let mut by_kernel = counters::read(netlink, at).unwrap();
    assert_eq!(pools[pool].members.len(), 154);
    for (seat, member) in core.desired().pools[pool].seats.iter().zip(&pools[pool].members) {
        let counts = by_kernel.remove(&seat.number).unwrap();
        // A neighbour may have been asked for since.
        let since = counts.bytes.checked_sub(member.count.passed_bytes);
        assert!(since.is_some_and(|bytes| bytes < 1000), "{}: {since:?} {counts:?}", seat.name);
    }
}

/// What was counted stays valid where reading back finds all in force.
fn stays_counted(core: &mut Core<Linux>) {
    poll_until("nothing is counted anew", || core.reconcile().unwrap() == 0 && core.count().unwrap().is_none());
}

/// Most of them were counted before all are read, however busy the machine is.
#[track_caller]
fn are_soon(took: &[Duration]) {
    assert!(took.iter().filter(|took| **took < SOON).count() * 2 > took.len(), "{took:?}");
}

/// Of many members those that received something are read alone.
#[test]
#[ignore = "root"]
fn few_of_many_members_that_receive_are_counted() {
    apart(|| {
        let mut host = test_host(2);
        let all = many(&mut host);
        let received = MANY.replace("class = \"rest\"", "rx_class = \"rest\"");
        let mut core = Core::start(Linux::open(false).unwrap(), policy(&received), all).unwrap();
        let passed = |core: &mut Core<Linux>| -> Option<u64> {
            let pools = core.count().unwrap()?;
            let tenants = pools[1].members.iter().filter(|member| member.name.starts_with('t'));
            Some(tenants.map(|member| member.count.passed_bytes).sum())
        };
        let (mut total, mut took) = (0, Vec::new());
        for tenant in [1, 2, 1, 1, 2] {
            let began = Instant::now();
            host.sink.inside(|| {
                let (socket, to) = (UdpSocket::bind("0.0.0.0:0").unwrap(), format!("10.9.0.10{tenant}"));
                for _ in 0..50 {
                    // What the tenant says of a port without a program is no matter.
                    let _ = socket.send_to(&[7; 400], (to.as_str(), 9));
                }
            });
            total += 50 * 400;
            poll_until("it is counted", || passed(&mut core).is_some_and(|now| now >= total));
            took.push(began.elapsed());
        }
        are_soon(&took);
        poll_until("nothing passes", || core.count().unwrap().is_none());
        stays_counted(&mut core);
        let ifb = format!("vmiorx{:x}", host.uplink.index);
        let ifb = links::look(&mut host.netlink, &ifb).unwrap().unwrap().device;
        is_all_of(&mut core, 1, &mut host.netlink, &ifb);
        core.undo().unwrap();
    });
}

/// Of many members those that sent something are read alone: nothing that the kernel has counted is missing.
#[test]
#[ignore = "root"]
fn few_of_many_members_are_counted() {
    apart(|| {
        let mut host = test_host(2);
        let all = many(&mut host);
        let mut core = Core::start(Linux::open(false).unwrap(), policy(MANY), all).unwrap();
        ready(&mut host, 16);
        let (mut total, mut took) = (0, Vec::new());
        for tenant in [0, 1, 0, 0, 1] {
            let began = Instant::now();
            sends(&host, tenant);
            // That reads back what is in force, and hides nothing that has passed.
            core.reconcile().unwrap();
            total += 50 * 400;
            poll_until("it is counted", || passed(&mut core).is_some_and(|now| now >= total));
            took.push(began.elapsed());
        }
        are_soon(&took);
        poll_until("nothing passes", || core.count().unwrap().is_none());
        stays_counted(&mut core);
        let uplink = host.uplink.clone();
        is_all_of(&mut core, 0, &mut host.netlink, &uplink);
        core.undo().unwrap();
    });
}

/// A container may change its address without a word to this end.
#[test]
#[ignore = "root"]
fn addresses_of_other_ends_are_cached() {
    apart(|| {
        let there = Namespace::make();
        run(&["ip link add h0 type veth peer name g0", &format!("ip link set g0 netns {}", there.path())]);
        let mut source = Source::open(Box::new(Once { guests: Vec::new(), unread: Vec::new() })).unwrap();
        let uplinks = BTreeSet::new();
        let of = |found: Vec<DiscoveredInterface>| {
            found.into_iter().find(|f| f.interface.name == "h0").unwrap().interface.macs
        };
        let set = |address: &str| there.run(&[&format!("ip link set g0 address {address}")]);
        set("02:00:00:00:00:01");
        assert_eq!(of(source.look(&uplinks).unwrap()), ["02:00:00:00:00:01"]);
        set("02:00:00:00:00:02");
        assert_eq!(of(source.glance(&uplinks).unwrap()), ["02:00:00:00:00:01"], "kept");
        assert_eq!(of(source.look(&uplinks).unwrap()), ["02:00:00:00:00:02"]);
        // Of an interface that is not as it was nothing is kept.
        run(&["ip link set h0 up"]);
        set("02:00:00:00:00:03");
        assert_eq!(of(source.glance(&uplinks).unwrap()), ["02:00:00:00:00:03"]);
    });
}

#[test]
#[ignore = "root"]
fn a_neighbours_mac_is_not_taken() {
    apart(|| {
        let [one, other] = [Namespace::make(), Namespace::make()];
        for (i, guest) in [&one, &other].into_iter().enumerate() {
            run(&[&format!("ip link add h{i} type veth peer name g0 netns {}", guest.path())]);
            guest.run(&[&format!("ip link set g0 address 02:00:00:00:00:1{i}")]);
        }
        run(&["ip link set h1 address 02:00:00:00:00:20"]);
        let mut source = Source::open(Box::new(Once { guests: Vec::new(), unread: Vec::new() })).unwrap();
        let mut seen = || {
            let found = source.look(&BTreeSet::new()).unwrap();
            found.into_iter().find(|f| f.interface.name == "h0").unwrap().interface.macs
        };
        let set = |address: &str| one.run(&[&format!("ip link set g0 address {address}")]);
        assert_eq!(seen(), ["02:00:00:00:00:10"]);
        // Its neighbour's, and this host's.
        for taken in ["02:00:00:00:00:11", "02:00:00:00:00:20"] {
            set(taken);
            assert_eq!(seen(), ["02:00:00:00:00:10"]);
            assert_eq!(seen(), ["02:00:00:00:00:10"], "it stays so");
        }
        set("02:00:00:00:00:12");
        assert_eq!(seen(), ["02:00:00:00:00:12"]);
        other.run(&["ip link set g0 address 02:00:00:00:00:13"]);
        seen();
        set("02:00:00:00:00:11");
        assert_eq!(seen(), ["02:00:00:00:00:11"], "nobody has it any more");
    });
}
