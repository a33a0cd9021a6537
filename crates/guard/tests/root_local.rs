//! Traffic that never reaches the uplink: to other guests, to the host, into tunnels.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::flood::{Load, flood, floods, under};
use crate::common::holder::Holder;
use crate::common::nic;
use crate::common::state::State;
use crate::common::test_host::{SINK, TestHost, test_host};
use crate::root_held::OPEN;
use crate::root_plane::{interfaces, policy};
use crate::root_takeover::kept;
use vmio_guard::core::Core;
use vmio_guard::interface::DiscoveredInterface;
use vmio_guard::planes::linux::{Linux, ifb, links};
use vmio_guard::planes::{LocalCount, Plane};
use vmio_model::holding::QueueingPoint;
use vmio_model::policy::assign::Interface;
use vmio_testbed::net::{apart, apart_with_bpffs, run, tried};
use vmio_testbed::{poll_for, poll_until, skip};

const NEIGHBOUR: &str = "10.9.0.102";
/// Of the policies here, and a class's full bucket.
const MAX: f64 = 5e6;
const BUCKET: u64 = 131_072 + 1514;

/// What t1 sends and what t2 receives.
fn text(more: &str) -> String {
    format!(
        "[uplink.u0]\ncapacity = \"100Mbit\"\n[class.gold]\nmax = \"5Mbit\"\n{more}\
         [[interface]]\nmatch = {{ name = \"t1\" }}\nclass = \"gold\"\n\
         [[interface]]\nmatch = {{ name = \"t2\" }}\nrx_class = \"gold\"\n"
    )
}

fn start(text: &str, there: Vec<DiscoveredInterface>) -> Core<Linux> {
    Core::start(Linux::open(false).unwrap(), policy(text), there).unwrap()
}

/// Two tenants, of which the first knows the way to the second, and to the host's own address.
fn neighbours() -> TestHost {
    let host = test_host(2);
    run(&[
        "ip addr add 10.9.0.1/24 dev br0",
        "ip link set br0 address 02:00:00:00:00:01",
        &format!("ip neigh replace {SINK} lladdr 02:00:00:00:00:09 dev br0 nud permanent"),
        "bridge fdb replace 02:00:00:00:01:02 dev t2 master static",
        "bridge fdb replace 02:00:00:00:00:09 dev u0 master static",
    ]);
    host.tenants[0].namespace.run(&[
        &format!("ip neigh replace {NEIGHBOUR} lladdr 02:00:00:00:01:02 dev g0 nud permanent"),
        "ip neigh replace 10.9.0.1 lladdr 02:00:00:00:00:01 dev g0 nud permanent",
        "ip neigh replace 10.9.0.77 lladdr 02:00:00:00:00:77 dev g0 nud permanent",
    ]);
    host
}

/// The first tenant sends what it can.
fn flood_to<'a>(host: &'a TestHost, to: &'a str) -> [Load<'a>; 1] {
    [Box::new(move |done: &AtomicBool| host.tenants[0].namespace.inside(|| flood(to, 1400, 1 << 20, done)))]
}

/// A member's local traffic, in the pool of that number.
fn local(core: &mut Core<Linux>, pool: usize, name: &str) -> LocalCount {
    let status = core.status().unwrap();
    status[pool].members.iter().find(|member| member.name == name).unwrap().local.unwrap()
}

/// Bytes that an interface of the thread's namespace has received and sent.
pub fn bytes(interface: &str) -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{interface}:"))).unwrap();
    let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
    (numbers[0], numbers[8])
}

#[test]
#[ignore = "root"]
fn local_traffic_is_counted() {
    apart(|| {
        let host = neighbours();
        let mut core = start(&text(""), interfaces(&host));
        let _neighbour = host.tenants[1].namespace.inside(|| UdpSocket::bind((NEIGHBOUR, 9)).unwrap());
        let _sink = host.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap());
        let before = (local(&mut core, 0, "t1"), local(&mut core, 1, "t2"));
        assert!(!before.0.limited && !before.1.limited);
        // 10 s of the maximum at once, and it is told of both.
        let most = 10 * MAX as u64 / 8;
        under(flood_to(&host, NEIGHBOUR), || {
            poll_until("a flood between neighbours", || local(&mut core, 0, "t1").bytes > before.0.bytes + most);
            poll_until("the same as received", || local(&mut core, 1, "t2").bytes > before.1.bytes + most);
        });
        assert!(core.status().unwrap()[0].members[1].count.passed_bytes < most / 10, "not by the uplink");
        // What leaves by the uplink is not local.
        let (sent, passed) = (local(&mut core, 0, "t1").bytes, core.status().unwrap()[0].members[1].count.passed_bytes);
        under(floods(&host, &[1]), || {
            poll_until("a flood to the uplink", || {
                core.status().unwrap()[0].members[1].count.passed_bytes > passed + 1_000_000
            });
        });
        let more = local(&mut core, 0, "t1").bytes - sent;
        assert!(more < 20_000, "{more} bytes of 1,000,000 and more");
        core.undo().unwrap();
    });
}

/// Its rate would be shown on, since nothing reaches the uplink that would have counters read.
#[test]
#[ignore = "root"]
fn local_traffic_that_ended_is_counted_once_more() {
    apart(|| {
        let host = neighbours();
        let mut core = start(&text(""), interfaces(&host));
        let _neighbour = host.tenants[1].namespace.inside(|| UdpSocket::bind((NEIGHBOUR, 9)).unwrap());
        let mut counted = || {
            let pools = core.count().unwrap()?;
            Some(pools[0].members.iter().find(|member| member.name == "t1")?.local?.bytes)
        };
        poll_until("nothing passes", || counted().is_none());
        under(flood_to(&host, NEIGHBOUR), || {
            poll_until("a flood between neighbours", || counted().is_some_and(|bytes| bytes > BUCKET));
        });
        let mut last = None;
        poll_until("it is counted without any more", || {
            let (before, now) = (last, counted());
            last = now.or(before);
            now.is_some() && now == before
        });
        core.undo().unwrap();
    });
}

/// The rate in bit/s of what arrives while the first tenant floods and is held back; returns when nothing waits any
/// more.
fn rate(core: &mut Core<Linux>, host: &TestHost, to: &str, arrived: impl Fn() -> u64) -> f64 {
    let rate = under(flood_to(host, to), || {
        poll_until("packets that wait at the interface", || local(core, 0, "t1").waiting_bytes > 0);
        poll_for(&format!("a flood to {to} for 1.5 s"), || {
            let (began, first) = (Instant::now(), arrived());
            thread::sleep(Duration::from_millis(1500));
            let (last, time) = (arrived(), began.elapsed().as_secs_f64());
            let passed = (last - first) as f64 * 8.0 / time;
            let least = last.saturating_sub(first + BUCKET) as f64 * 8.0 / time;
            assert!(least < 1.02 * MAX, "{to}: {passed:.0} bit/s where {MAX} is the maximum");
            if passed > 0.85 * MAX { Ok(passed) } else { Err(passed) }
        })
    });
    poll_until("an empty queue", || local(core, 0, "t1").waiting_bytes == 0);
    rate
}

#[test]
#[ignore = "root"]
fn maximum_holds_for_local_traffic() {
    apart(|| {
        let host = neighbours();
        let tunnel = tried("ip link add vx0 type vxlan id 7 remote 10.9.0.9 local 10.9.0.1 dstport 4789").0;
        if tunnel {
            run(&["ip link set vx0 master br0", "ip link set vx0 up"]);
            run(&["bridge fdb replace 02:00:00:00:00:77 dev vx0 master static"]);
        }
        let before = State::now();
        let mut core = start(&text("local = \"limit\"\n"), interfaces(&host));
        assert_eq!(core.reconcile().unwrap(), 0, "applying twice changes nothing");
        let _neighbour = host.tenants[1].namespace.inside(|| UdpSocket::bind((NEIGHBOUR, 9)).unwrap());
        let _sink = host.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap());
        let _host = UdpSocket::bind(("10.9.0.1", 9)).unwrap();
        assert!(local(&mut core, 0, "t1").limited);
        rate(&mut core, &host, NEIGHBOUR, || host.tenants[1].namespace.inside(|| bytes("g0").0));
        rate(&mut core, &host, "10.9.0.1", || bytes("br0").0);
        if tunnel {
            rate(&mut core, &host, "10.9.0.77", || bytes("vx0").1);
        } else {
            skip("this kernel has no VXLAN");
        }
        // And for what leaves by the uplink, which is its class's as before.
        let passed = core.status().unwrap()[0].members[1].count.passed_bytes;
        rate(&mut core, &host, SINK, || host.sink.inside(|| bytes("u1").0));
        let members = &core.status().unwrap()[0].members;
        assert!(members[1].count.passed_bytes > passed + 700_000, "{members:?}");
        core.undo().unwrap();
        assert_eq!(State::now(), before);
    });
}

/// By filters of clsact, as on kernels without TCX; also where the next guard takes the queues over, and another undoes
/// them.
#[test]
#[ignore = "root"]
fn maximum_holds_for_local_traffic_by_clsact() {
    apart_with_bpffs(false, || {
        let host = neighbours();
        let before = State::now();
        let (ledger, limits) = (tempfile::tempdir().unwrap(), text("local = \"limit\"\n"));
        let open = || Core::start(kept(ledger.path()), policy(&limits), interfaces(&host)).unwrap();
        open().leave();
        let mut core = open();
        assert_eq!(core.reconcile().unwrap(), 0);
        let _neighbour = host.tenants[1].namespace.inside(|| UdpSocket::bind((NEIGHBOUR, 9)).unwrap());
        rate(&mut core, &host, NEIGHBOUR, || host.tenants[1].namespace.inside(|| bytes("g0").0));
        core.leave();
        kept(ledger.path()).undo().unwrap();
        assert_eq!(State::now(), before);
    });
}

#[test]
#[ignore = "root"]
fn queues_at_interfaces_come_and_go() {
    apart(|| {
        let mut host = neighbours();
        let before = State::now();
        let (counts, limits) = (text("local = \"count\"\n"), text("local = \"limit\"\n"));
        let name = format!("vmiolc{:x}", host.uplink.index);
        let mut core = start(&counts, interfaces(&host));
        let mut is_there = || ifb::find(&mut host.netlink, &name).unwrap().is_some();
        assert!(!is_there());
        core.reload(policy(&limits)).unwrap();
        assert!(is_there() && local(&mut core, 0, "t1").limited);
        run(&[&format!("ip link del {name}")]);
        assert!(core.reconcile().unwrap() > 0 && is_there());
        assert_eq!(core.reconcile().unwrap(), 0);
        core.reload(policy(&counts)).unwrap();
        assert!(!is_there() && !local(&mut core, 0, "t1").limited);
        // Another's queue in their place is removed where the policy says so.
        core.reload(policy(&format!("[guard]\non_conflict = \"restore\"\n{limits}"))).unwrap();
        run(&[&format!("tc qdisc replace dev {name} root pfifo limit 9")]);
        assert!(core.reconcile().unwrap() > 0);
        let interruptions = core.status().unwrap().remove(0).interruptions;
        // With that of the deleted interface.
        assert_eq!((interruptions.total, interruptions.now), (2, None));
        assert!(tried(&format!("tc qdisc show dev {name}")).1.contains("htb 7a00:"));
        core.undo().unwrap();
        assert!(!is_there());
        assert_eq!(State::now(), before);
    });
}

/// What is too much for a neighbour waits in the guest, too.
#[test]
#[ignore = "root"]
fn taps_are_held_before_neighbours() {
    apart(|| {
        let mut host = test_host(0);
        let mut holder = Holder::start("t1", 1);
        run(&[
            "ip link add x0 type veth peer name x1",
            "ip link set x0 master br0",
            "ip link set x0 up",
            "ip link set x1 up",
            // The sink has that address, too, and what it sends would move the entry to the uplink (`br_fdb_update`).
            "bridge fdb replace 02:00:00:00:00:09 dev x0 master static sticky",
            "ip link set t1 master br0",
            "ip link set t1 up",
        ]);
        let index = links::find(&mut host.netlink, "t1").unwrap().index;
        let interface = Interface { index, name: "t1".into(), ..Interface::default() };
        let there = DiscoveredInterface {
            pids: vec![holder.child.id()],
            nic: Some(nic("virtio-net", "tap")),
            paths: [("u0".to_owned(), OPEN)].into(),
            ..interface.into()
        };
        let mut core = start(&text("local = \"limit\"\n"), vec![there]);
        poll_until("a tap held", || {
            core.status().unwrap()[0].members[1].held.as_ref().unwrap().waits == QueueingPoint::Held
        });
        let core_of = std::cell::RefCell::new(&mut core);
        let now = || local(&mut core_of.borrow_mut(), 0, "t1");
        let flood = holder.flood("flood-ip", || now().dropped_packets > 0, || ());
        // What waits has not passed yet.
        poll_until("what passed is counted", || now().bytes > 0);
        let after = now();
        assert!(flood.written > 0, "{after:?}");
        assert!(after.dropped_packets == 0 && flood.again > 0, "{after:?}, told to wait {} times", flood.again);
        core.undo().unwrap();
    });
}

/// What a datagram to a neighbour costs this thread, in which all of its way is done: without the guard, counted, and
/// held to a maximum that it does not reach, by a queue and by a bucket. Prints, and asserts nothing of it.
#[test]
#[ignore = "root"]
fn cost_of_a_local_packet() {
    const PACKETS: u32 = 20_000;
    apart(|| {
        let host = neighbours();
        let _neighbour = host.tenants[1].namespace.inside(|| UdpSocket::bind((NEIGHBOUR, 9)).unwrap());
        let policies = ["count\"\n", "limit\"\n", "limit\"\nexcess = \"drop\"\n"]
            .map(|local| text(&format!("local = \"{local}")).replace("100Mbit", "100Gbit").replace("5Mbit", "90Gbit"));
        let mut core = start(&policies[0], interfaces(&host)[1..].to_vec());
        let send = || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            let began = Instant::now();
            for _ in 0..PACKETS {
                let _ = socket.send_to(&[7; 64], (NEIGHBOUR, 9));
            }
            began.elapsed().as_nanos() as f64 / f64::from(PACKETS)
        };
        // The least of some rounds in turn.
        let mut least = [f64::MAX; 4];
        for _ in 0..5 {
            for (i, least) in least.iter_mut().enumerate() {
                core.set_interfaces(interfaces(&host)[usize::from(i == 0)..].to_vec()).unwrap();
                core.reload(policy(&policies[i.saturating_sub(1)])).unwrap();
                *least = least.min(host.tenants[0].namespace.inside(send));
            }
        }
        let [without, counted, limited, policed] = least;
        println!(
            "a packet to a neighbour: {without:.0} ns without the guard, {:+.0} counted, {:+.0} limited, {:+.0} limited \
             by a bucket",
            counted - without,
            limited - without,
            policed - without
        );
        core.undo().unwrap();
    });
}
