//! Maxima above which is dropped: by token buckets in the programs, without a queue that holds anybody back.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs;
use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::flood::{Load, flood, floods, under};
use crate::common::frames::{Raw, ethernet, ipv4, set};
use crate::common::state::State;
use crate::common::test_host::{SINK, TestHost, carried, test_host};
use crate::root_local::bytes;
use crate::root_plane::{counts, interfaces, policy, tx};
use crate::root_receive::{rx, tenants};
use crate::root_takeover::kept;
use vmio_guard::core::Core;
use vmio_guard::desired::PoolKey;
use vmio_guard::planes::linux::classifier::{Classifier, PolicedAt, Tenant};
use vmio_guard::planes::linux::{Linux, htb, ifb};
use vmio_guard::planes::{Count, Observation, Plane, Scope};
use vmio_model::policy::Direction;
use vmio_model::policy::flow::{FlowMatch, Network};
use vmio_model::policy::policer::{Policer, Policers};
use vmio_model::policy::program::Framing;
use vmio_model::rate::BitRate;
use vmio_testbed::net::{apart, apart_with_bpffs, run};
use vmio_testbed::{poll_for, poll_until};

const NEIGHBOUR: &str = "10.9.0.102";
/// How far a rate may be from its maximum.
const NEAR: f64 = 0.02;
/// What may be on its way through a queue that holds nothing back, which would have 1.25 MiB.
const WAITS: u64 = 20_000;
/// A full bucket at the rates here, and a frame.
const BUCKET: u64 = 131_072 + 1514;
/// One of so many packets may go elsewhere: to the bridge itself, or where a busy machine has no room for it.
const OF_MANY: u64 = 1000;

/// What t1 sends is dropped above a maximum, and comes before what t2 sends above its minimum. Of 40 Mbit/s.
fn text(max: u64, more: &str) -> String {
    format!(
        "[uplink.u0]\ncapacity = \"40Mbit\"\n[class.low]\npriority = 2\nmax = \"{max}Mbit\"\nexcess = \"drop\"\n{more}\
         [class.tin]\nmin = \"24Mbit\"\n\
         [[interface]]\nmatch = {{ name = \"t1\" }}\nclass = \"low\"\n\
         [[interface]]\nmatch = {{ name = \"t2\" }}\nclass = \"tin\"\n"
    )
}

fn start(host: &TestHost, text: &str) -> Core<Linux> {
    Core::start(Linux::open(false).unwrap(), policy(text), interfaces(host)).unwrap()
}

fn observed(core: &mut Core<Linux>, pool: &PoolKey) -> Observation {
    core.plane().observe(Scope::Pool(pool)).unwrap()
}

/// Packets that an interface of the thread's namespace has received.
fn received(interface: &str) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{interface}:"))).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The rate of what a counter of bytes counts is this maximum, while `dropped` grows.
pub fn is_at(what: &str, max: f64, mut bytes: impl FnMut() -> u64, mut dropped: impl FnMut() -> u64) {
    let before = dropped();
    poll_until("packets that are dropped", || dropped() > before + 20);
    poll_for(what, || {
        let (began, first) = (Instant::now(), bytes());
        thread::sleep(Duration::from_millis(1500));
        let (last, time) = (bytes(), began.elapsed().as_secs_f64());
        let rate = |bytes: u64| bytes as f64 * 8.0 / time;
        let passed = rate(last - first);
        let least = rate((last - first).saturating_sub(BUCKET));
        assert!(least < (1.0 + NEAR) * max, "{what}: {passed:.0} bit/s, more than {max}");
        // Where the machine was busy for long, the sender was.
        if (passed / max - 1.0).abs() < NEAR { Ok(()) } else { Err(passed) }
    });
}

/// A flood gets its maximum, whatever that was before, and a neighbour what it is owed. Each packet is counted: it
/// arrived at the sink, or was dropped.
#[test]
#[ignore = "root"]
fn a_flood_gets_its_maximum_and_its_neighbour_a_minimum() {
    apart(|| {
        let host = test_host(2);
        // Nothing but what is sent here.
        for namespace in host.tenants.iter().map(|t| &t.namespace).chain([&host.sink]) {
            let _ = namespace.inside(|| fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1"));
        }
        let _ = fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        let before = State::now();
        let _sink = host.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap());
        let mut core = start(&host, &text(10, ""));
        assert_eq!(core.reconcile().unwrap(), 0, "applying twice changes nothing");
        let core_of = std::cell::RefCell::new(&mut core);
        let of = |member: usize| -> Count { counts(&mut core_of.borrow_mut())[member] };
        let arrived = || host.sink.inside(|| received("u1"));
        let begin = (received("t1"), arrived(), of(1).dropped_packets);
        under(floods(&host, &[1]), || {
            is_at("the maximum", 10e6, || carried(&host).1, || of(1).dropped_packets);
            // Nothing waits, so nobody is held back.
            assert!(of(1).waiting_bytes < WAITS, "{:?}", of(1));
            for max in [4, 16] {
                core_of.borrow_mut().reload(policy(&text(max, ""))).unwrap();
                is_at("another maximum", max as f64 * 1e6, || carried(&host).1, || of(1).dropped_packets);
            }
        });
        poll_for("each packet is counted", || {
            let came = received("t1") - begin.0;
            let (there, dropped) = (arrived() - begin.1, of(1).dropped_packets - begin.2);
            let told = there + dropped;
            // The bridge and its ports may have sent a packet of their own.
            if (told.saturating_sub(3)..=told + came / OF_MANY).contains(&came) {
                Ok(())
            } else {
                Err((came, there, dropped))
            }
        });
        // With a neighbour that wants all: each has what it is owed.
        under(floods(&host, &[1, 2]), || {
            is_at("the maximum beside a flood", 16e6, || of(1).passed_bytes, || of(1).dropped_packets);
            poll_for("the neighbour's minimum", || {
                let (began, first) = (Instant::now(), of(2).passed_bytes);
                thread::sleep(Duration::from_millis(1500));
                let rate = (of(2).passed_bytes - first) as f64 * 8.0 / began.elapsed().as_secs_f64();
                if rate > (1.0 - NEAR) * 24e6 { Ok(()) } else { Err(rate) }
            });
        });
        core.undo().unwrap();
        assert_eq!(State::now(), before);
    });
}

/// Of all that a guest sends, without an IFB: to a neighbour and to the uplink together. The next guard takes it over.
#[test]
#[ignore = "root"]
fn a_maximum_of_all_needs_no_ifb() {
    for pinned in [true, false] {
        apart_with_bpffs(pinned, || {
            let mut host = test_host(2);
            run(&["bridge fdb replace 02:00:00:00:01:02 dev t2 master static"]);
            host.tenants[0]
                .namespace
                .run(&[&format!("ip neigh replace {NEIGHBOUR} lladdr 02:00:00:00:01:02 dev g0 nud permanent")]);
            let before = State::now();
            let ledger = tempfile::tempdir().unwrap();
            let limits = text(5, "local = \"limit\"\n");
            let open = || Core::start(kept(ledger.path()), policy(&limits), interfaces(&host)).unwrap();
            open().leave();
            let mut core = open();
            assert_eq!(core.reconcile().unwrap(), 0);
            let index = host.tenants[0].device.index;
            let local = |core: &mut Core<Linux>| observed(core, &tx()).local[&index];
            assert!(local(&mut core).limited);
            let _there = host.tenants[1].namespace.inside(|| UdpSocket::bind((NEIGHBOUR, 9)).unwrap());
            let to_neighbour: Load<'_> = Box::new(|done: &AtomicBool| {
                host.tenants[0].namespace.inside(|| flood(NEIGHBOUR, 1400, 1 << 20, done));
            });
            let neighbours = || host.tenants[1].namespace.inside(|| bytes("g0").0);
            under([to_neighbour], || {
                is_at("to a neighbour", 5e6, neighbours, || local(&mut core).dropped_packets);
            });
            under(floods(&host, &[1]), || {
                is_at("to the uplink", 5e6, || carried(&host).1, || local(&mut core).dropped_packets);
            });
            assert_eq!(counts(&mut core)[1].dropped_packets, 0, "each is counted once");
            let name = format!("vmiolc{:x}", host.uplink.index);
            assert!(ifb::find(&mut host.netlink, &name).unwrap().is_none());
            core.leave();
            kept(ledger.path()).undo().unwrap();
            assert_eq!(State::now(), before);
        });
    }
}

#[test]
#[ignore = "root"]
fn what_is_received_above_a_maximum_is_dropped() {
    apart(|| {
        let host = test_host(1);
        let before = State::now();
        let text = "[uplink.u0]\ncapacity = \"100Mbit\"\n[class.low]\nmax = \"8Mbit\"\nexcess = \"drop\"\n\
                    [[interface]]\nmatch = { name = \"t1\" }\nrx_class = \"low\"\n";
        let mut core = start(&host, text);
        let _there = host.tenants[0].namespace.inside(|| UdpSocket::bind("0.0.0.0:9").unwrap());
        let to = tenants(1).to_string();
        host.sink.run(&[&format!("ip neigh replace {to} lladdr 02:00:00:00:01:01 dev u1 nud permanent")]);
        let core_of = std::cell::RefCell::new(&mut core);
        let now = || observed(&mut core_of.borrow_mut(), &rx()).counts[1];
        let sent: Load<'_> = Box::new(|done: &AtomicBool| host.sink.inside(|| flood(&to, 1400, 1 << 20, done)));
        under([sent], || is_at("received", 8e6, || now().passed_bytes, || now().dropped_packets));
        assert!(now().waiting_bytes < WAITS, "{:?}", now());
        core.undo().unwrap();
        assert_eq!(State::now(), before);
    });
}

/// Flow classes as the filter of the queues tells them apart (`htb/filter/tests.rs` has the same packets).
fn told_apart() -> Vec<FlowMatch> {
    let network = |text: &str| Network::parse(text).ok();
    vec![
        FlowMatch { dscp: Some(46), ..FlowMatch::default() },
        FlowMatch {
            protocol: Some(6),
            ports: vec![(443, 443), (8000, 8080)],
            address: network("10.0.0.0/8"),
            ..FlowMatch::default()
        },
        FlowMatch { address: network("2001:db8:10::/44"), ..FlowMatch::default() },
        FlowMatch { ports: vec![(53, 53)], ..FlowMatch::default() },
        FlowMatch { protocol: Some(1), ..FlowMatch::default() },
    ]
}

/// From 192.0.2.1 to 10.1.2.3, without and with two tags of VLANs.
fn v4(dscp: u8, protocol: u8, fragment: u16, ports: [u16; 2]) -> [Vec<u8>; 2] {
    let payload = [ports[0].to_be_bytes(), ports[1].to_be_bytes(), [0, 0], [0, 0]].concat();
    let packet = ipv4([192, 0, 2, 1], [10, 1, 2, 3], [dscp << 2 | 1, protocol], fragment, &payload);
    [vec![8, 0], vec![0x88, 0xa8, 0, 7, 0x81, 0, 0, 7, 8, 0]].map(|kind| ethernet([2; 6], [4; 6], &kind, &packet))
}

/// From fe80::1 to 2001:db8:12::1 or to 2001:db8:22::1.
fn v6(dscp: u8, next: u8, inside: bool, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60 | dscp >> 2, dscp << 6 | 0x1f, 0xff, 0xff, 0, rest.len() as u8, next, 64];
    packet.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([0x20, 0x01, 0x0d, 0xb8, 0, if inside { 0x12 } else { 0x22 }, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend(rest);
    ethernet([2; 6], [4; 6], &[0x86, 0xdd], &packet)
}

#[test]
#[ignore = "root"]
fn buckets_tell_flow_classes_apart_as_queues_do() {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    apart(|| {
        let mut host = test_host(1);
        let (device, number) = (host.tenants[0].device.clone(), 16);
        let mut classifier = Classifier::load().unwrap();
        // The first packet finds a full bucket, the next ones an empty one.
        let policer = Some(Policer { rate_bps: BitRate::new(8_000), burst_bytes: 1 });
        let flows = told_apart().into_iter().map(|matcher| (matcher, policer)).collect();
        let policers = Policers { own: None, flows };
        let set = |classifier: &mut Classifier, policers: Option<&Policers>| {
            classifier.police(&device, (Direction::GuestTx, number), policers, Framing::NONE).unwrap()
        };
        assert!(set(&mut classifier, Some(&policers)) && !set(&mut classifier, Some(&policers)));
        let tenant = Tenant {
            class: htb::classid(number),
            address: None,
            redirect: None,
            framing: Framing::NONE,
            checks: None,
            policed: Some(PolicedAt::Interface),
        };
        classifier.attach(&mut host.netlink, &device, &tenant).unwrap();
        let options = |next: u8, more: u8| [vec![next, more], vec![0; 6 + 8 * usize::from(more)]].concat();
        let ports = |from: u8, to: u8| vec![0, from, 0, to, 0, 0, 0, 0];
        let fragment = |offset: u8| [vec![UDP, 0, 0, offset, 0, 0, 0, 0], ports(53, 1)].concat();
        let headers = [options(60, 1), options(43, 0), options(UDP, 2), ports(1, 53)].concat();
        let many = [options(60, 0).repeat(4), options(UDP, 0), ports(1, 53)].concat();
        let mut frames: Vec<(Vec<u8>, Option<usize>)> = Vec::new();
        for (packet, wanted) in [
            (v4(46, TCP, 0, [443, 9]), Some(0)),
            (v4(45, TCP, 0, [443, 9]), Some(1)),
            (v4(0, TCP, 0, [9, 7999]), None),
            (v4(0, TCP, 0, [9, 8080]), Some(1)),
            (v4(0, UDP, 0, [9, 443]), None),
            (v4(0, UDP, 0, [53, 9]), Some(3)),
            (v4(0, 1, 0, [53, 53]), Some(4)),
            (v4(0, UDP, 0x2000, [53, 9]), Some(3)),
            (v4(0, UDP, 0x00b9, [53, 9]), None),
            (v4(46, UDP, 0x00b9, [53, 9]), Some(0)),
        ] {
            frames.extend(packet.map(|frame| (frame, wanted)));
        }
        frames.extend([
            (v6(46, UDP, true, &ports(1, 1)), Some(0)),
            (v6(45, UDP, true, &ports(1, 1)), Some(2)),
            (v6(0, UDP, false, &ports(53, 1)), Some(3)),
            (v6(0, 0, false, &headers), Some(3)),
            (v6(0, 60, false, &many), None),
            (v6(0, 44, false, &fragment(1)), Some(3)),
            (v6(0, 44, false, &fragment(8)), None),
            (ethernet([2; 6], [4; 6], &[8, 6], &[46; 60]), None),
        ]);
        let raw = host.tenants[0].namespace.inside(|| Raw::open("g0"));
        let mut at = vec![0; 8];
        for (frame, wanted) in frames {
            let seen = || {
                let passed = classifier.counts(&device).unwrap().packets;
                passed + classifier.dropped_above(Direction::GuestTx, number)
            };
            let before = seen();
            for _ in 0..5 {
                assert!(raw.send(&frame));
            }
            poll_until("the frames", || seen() >= before + 5);
            let now = classifier.flows_dropped_above(Direction::GuestTx, number);
            let grew: Vec<usize> = (0..8).filter(|i| now[*i] > at[*i]).collect();
            assert_eq!(grew, Vec::from_iter(wanted), "{frame:x?}: {now:?}");
            at = now;
        }
        let all: u64 = at.iter().sum();
        assert_eq!(classifier.dropped_above(Direction::GuestTx, number), all, "the member has them, too");
        // Without buckets, and with the number of another interface.
        assert!(set(&mut classifier, None));
        assert_eq!(classifier.dropped_above(Direction::GuestTx, number), all);
        let other = host.uplink.clone();
        classifier.police(&other, (Direction::GuestTx, number), None, Framing::NONE).unwrap();
        assert_eq!(classifier.dropped_above(Direction::GuestTx, number), 0);
    });
}

/// A flow class is at its maximum, and its guest's leaf never waits for that.
#[test]
#[ignore = "root"]
fn a_flow_class_above_its_maximum_keeps_no_leaf_waiting() {
    apart(|| {
        let host = test_host(1);
        let before = State::now();
        let text = "[uplink.u0]\ncapacity = \"40Mbit\"\n[class.gold]\n\
                    [[class.gold.flow]]\nname = \"other\"\nmatch = { dscp = \"ef\", ports = [11] }\n\
                    [[class.gold.flow]]\nname = \"voice\"\nmatch = { dscp = \"ef\", protocol = \"udp\", \
                    ports = [7, \"10-12\"], address = \"10.9.0.0/25\" }\nmax = \"4Mbit\"\nexcess = \"drop\"\n\
                    [[interface]]\nmatch = { name = \"t1\" }\nclass = \"gold\"\n";
        let mut core = start(&host, text);
        assert_eq!(core.reconcile().unwrap(), 0);
        let _sink = [9, 10, 11].map(|port| host.sink.inside(|| UdpSocket::bind((SINK, port)).unwrap()));
        let index = host.tenants[0].device.index;
        let core_of = std::cell::RefCell::new(&mut core);
        let flow = |at: usize| observed(&mut core_of.borrow_mut(), &tx()).flows[&index][at].clone();
        let marked = |port: u16| -> Load<'_> {
            let tenant = &host.tenants[0].namespace;
            Box::new(move |done: &AtomicBool| {
                tenant.inside(|| {
                    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                    set(&socket, libc::IPPROTO_IP, libc::IP_TOS, 46 << 2);
                    socket.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        let _ = socket.send_to(&[7; 1400], (SINK, port));
                    }
                });
            })
        };
        under([marked(10)], || {
            is_at("voice", 4e6, || flow(1).passed_bytes, || flow(1).dropped_packets);
            assert!(flow(1).waiting_bytes < WAITS, "{:?}", flow(1));
        });
        let dropped = flow(1).dropped_packets;
        // What belongs to an earlier flow class, and what belongs to none, is no matter to the bucket.
        for (at, load) in [(0, vec![marked(11)]), (2, floods(&host, &[1]))] {
            let passed = flow(at).passed_bytes;
            under(load, || poll_until("more than voice may", || flow(at).passed_bytes > passed + 4_000_000));
        }
        assert_eq!(flow(1).dropped_packets, dropped);
        core.undo().unwrap();
        assert_eq!(State::now(), before);
    });
}
