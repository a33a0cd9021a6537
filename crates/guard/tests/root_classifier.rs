//! The classifier at a tenant's interface: its class, its address, its counters, and what it leaves behind.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::flood::{Load, of_size, under};
use crate::common::test_host::{SINK, TestHost, plug, ready, send, test_host};
use crate::common::{M, three, tree};
use vmio_guard::planes::linux::classifier::{AttachMode, Classifier, Tenant};
use vmio_guard::planes::linux::counters::Counts;
use vmio_guard::planes::linux::htb::classid;
use vmio_guard::planes::linux::{Device, Netlink, counters, htb, ifb};
use vmio_model::policy::program::{Framing, Hierarchy};
use vmio_testbed::net::{apart, run};
use vmio_testbed::{poll_for, poll_until};

/// Numbers of [`three`].
const DEFAULT: u16 = 2;
const WEB: u16 = 3;

fn tenant(host: &TestHost) -> Tenant {
    Tenant {
        class: classid(WEB),
        address: Some(host.tenants[0].address),
        redirect: None,
        framing: Framing::NONE,
        checks: None,
        policed: None,
    }
}

fn packets(host: &mut TestHost, device: &Device, class: u16) -> u64 {
    counters::read(&mut host.netlink, device).unwrap()[&class].packets
}

/// TCX links came with Linux 6.6.
pub fn kernels_mode() -> AttachMode {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    if version >= (6, 6) { AttachMode::Tcx } else { AttachMode::Clsact }
}

fn in_class_or_dropped(mode: AttachMode) {
    apart(|| {
        let mut host = test_host(1);
        let (uplink, at) = (host.uplink.clone(), host.tenants[0].device.clone());
        htb::put(&mut host.netlink, &uplink, &tree(&three()), false).unwrap();
        ready(&mut host, DEFAULT);
        let before = htb::settings(&mut host.netlink, &at).unwrap();
        assert_eq!(packets(&mut host, &uplink, WEB), 0, "nobody says so yet");

        let mut classifier = Classifier::load().unwrap();
        assert_eq!(classifier.counts(&at), None);
        let tenant_settings = tenant(&host);
        assert_eq!(classifier.attach_by(&mut host.netlink, &at, &tenant_settings, mode).unwrap(), mode);
        let default = packets(&mut host, &uplink, DEFAULT);
        host.tenants[0].namespace.inside(|| send(100));
        poll_until("100 packets in their class", || packets(&mut host, &uplink, WEB) >= 100);
        assert!(packets(&mut host, &uplink, DEFAULT) < default + 20, "none of them is in the default class");
        let counts = classifier.counts(&at).unwrap();
        assert!(counts.packets >= 100 && counts.frames == counts.packets, "{counts:?}");
        assert!(counts.bytes >= 100 * 442 && counts.wire_bytes == counts.bytes, "{counts:?}");
        assert_eq!(counts.spoofed_packets, 0);

        // Under an address that is not its own nothing passes, in no class.
        run(&[&format!("ip link set {at} alias still-here")]);
        host.tenants[0].namespace.run(&["ip link set g0 address 02:00:00:00:66:66"]);
        let passed = classifier.counts(&at).unwrap().packets;
        poll_until("all of them at the uplink", || packets(&mut host, &uplink, WEB) == passed);
        let default = packets(&mut host, &uplink, DEFAULT);
        let told_neighbour = format!("ip neigh replace {SINK} lladdr 02:00:00:00:00:09 dev g0 nud permanent");
        host.tenants[0].namespace.run(&[&told_neighbour]);
        host.tenants[0].namespace.inside(|| send(50));
        poll_until("50 spoofed packets", || classifier.counts(&at).unwrap().spoofed_packets >= 50);
        let spoofed = classifier.counts(&at).unwrap();
        assert!(spoofed.spoofed_bytes >= 50 * 442, "{spoofed:?}");
        assert_eq!((spoofed.packets, packets(&mut host, &uplink, WEB)), (passed, passed));
        assert!(packets(&mut host, &uplink, DEFAULT) < default + 20);

        // Told otherwise, from the next packet on.
        let free = Tenant { class: classid(4), address: None, ..tenant_settings };
        assert_eq!(classifier.attach(&mut host.netlink, &at, &free).unwrap(), mode, "it stays as it is attached");
        host.tenants[0].namespace.inside(|| send(30));
        poll_until("30 packets in the other class", || packets(&mut host, &uplink, 4) >= 30);

        assert!(classifier.detach(&mut host.netlink, &at).unwrap());
        assert!(!classifier.detach(&mut host.netlink, &at).unwrap());
        assert!(classifier.set(&mut host.netlink, &at, &tenant_settings).is_err());
        assert_eq!(htb::settings(&mut host.netlink, &at).unwrap(), before);
        let other = packets(&mut host, &uplink, 4);
        let default = packets(&mut host, &uplink, DEFAULT);
        host.tenants[0].namespace.inside(|| send(30));
        poll_until("30 packets in the default class", || packets(&mut host, &uplink, DEFAULT) >= default + 30);
        assert_eq!(packets(&mut host, &uplink, 4), other);
    });
}

#[test]
#[ignore = "root"]
fn packets_get_their_class_or_are_dropped() {
    in_class_or_dropped(kernels_mode());
}

/// The classifier takes TCX where the kernel has it, and clsact where not.
#[test]
#[ignore = "root"]
fn attaches_by_tcx_where_possible() {
    apart(|| {
        let mut host = test_host(1);
        let tenant_settings = tenant(&host);
        let at = host.tenants[0].device.clone();
        let mode = Classifier::load().unwrap().attach(&mut host.netlink, &at, &tenant_settings).unwrap();
        assert_eq!(mode, kernels_mode());
    });
}

#[test]
#[ignore = "root"]
fn packets_get_their_class_or_are_dropped_by_clsact() {
    in_class_or_dropped(AttachMode::Clsact);
}

#[test]
#[ignore = "root"]
fn foreign_filters_of_clsact_stay() {
    apart(|| {
        let mut host = test_host(1);
        let at = host.tenants[0].device.clone();
        run(&[&format!("tc qdisc add dev {at} clsact")]);
        let before = htb::settings(&mut host.netlink, &at).unwrap();
        let mut classifier = Classifier::load().unwrap();
        let tenant_settings = tenant(&host);
        classifier.attach_by(&mut host.netlink, &at, &tenant_settings, AttachMode::Clsact).unwrap();
        classifier.detach(&mut host.netlink, &at).unwrap();
        assert_eq!(htb::settings(&mut host.netlink, &at).unwrap(), before);
        // Where the program was there first and somebody has a filter by now, the qdisc stays for it.
        run(&[&format!("tc qdisc del dev {at} clsact")]);
        classifier.attach_by(&mut host.netlink, &at, &tenant_settings, AttachMode::Clsact).unwrap();
        run(&[&format!("tc filter add dev {at} egress protocol ip prio 5 u32 match u32 0 0 classid 1:1")]);
        classifier.detach(&mut host.netlink, &at).unwrap();
        assert_eq!(htb::settings(&mut host.netlink, &at).unwrap(), before);
    });
}

fn attached_anew(mode: AttachMode) {
    apart(|| {
        let mut host = test_host(1);
        let (uplink, at) = (host.uplink.clone(), host.tenants[0].device.clone());
        htb::put(&mut host.netlink, &uplink, &tree(&three()), false).unwrap();
        ready(&mut host, DEFAULT);
        let mut classifier = Classifier::load().unwrap();
        let tenant_settings = tenant(&host);
        classifier.attach_by(&mut host.netlink, &at, &tenant_settings, mode).unwrap();
        // QEMU restarts, and the new interface has the index of the old one.
        run(&[&format!("ip link del {at}")]);
        plug(1, &host.tenants[0].namespace, &format!(" index {}", at.index));
        classifier.attach_by(&mut host.netlink, &at, &tenant_settings, mode).unwrap();
        let web = packets(&mut host, &uplink, WEB);
        poll_until("a packet of the new interface in its class", || {
            host.tenants[0].namespace.inside(|| send(1));
            packets(&mut host, &uplink, WEB) > web
        });
        assert!(classifier.counts(&at).unwrap().packets > 0);
        if mode == AttachMode::Clsact {
            run(&[&format!("tc filter del dev {at} ingress")]);
            classifier.attach_by(&mut host.netlink, &at, &tenant_settings, mode).unwrap();
            assert!(classifier.counts(&at).unwrap().packets < 20, "it counts from 0");
            let web = packets(&mut host, &uplink, WEB);
            host.tenants[0].namespace.inside(|| send(30));
            poll_until("30 packets in their class", || packets(&mut host, &uplink, WEB) >= web + 30);
        }
        // An interface that is gone needs no more than to be forgotten.
        run(&[&format!("ip link del {at}")]);
        assert!(classifier.detach(&mut host.netlink, &at).unwrap());
        assert_eq!(classifier.counts(&at), None);
    });
}

#[test]
#[ignore = "root"]
fn reattaches_after_removal_or_index_reuse() {
    attached_anew(kernels_mode());
}

#[test]
#[ignore = "root"]
fn reattaches_after_removal_or_index_reuse_by_clsact() {
    attached_anew(AttachMode::Clsact);
}

fn led_through_an_ifb(mode: AttachMode) {
    apart(|| {
        let mut host = test_host(1);
        let (uplink, at) = (host.uplink.clone(), host.tenants[0].device.clone());
        let middle = ifb::make(&mut host.netlink, "vmio-u0", "what guests send to u0", 1000).unwrap();
        for device in [&uplink, &middle] {
            htb::put(&mut host.netlink, device, &tree(&three()), false).unwrap();
        }
        ready(&mut host, DEFAULT);
        let before = htb::settings(&mut host.netlink, &at).unwrap();
        let mut classifier = Classifier::load().unwrap();
        let tenant_settings = Tenant { redirect: Some(middle.index), ..tenant(&host) };
        classifier.attach_by(&mut host.netlink, &at, &tenant_settings, mode).unwrap();
        host.tenants[0].namespace.inside(|| send(100));
        poll_until("100 packets at the IFB", || packets(&mut host, &middle, WEB) >= 100);
        poll_until("100 packets at the uplink", || packets(&mut host, &uplink, WEB) >= 100);
        assert!(classifier.counts(&at).unwrap().packets >= 100);
        // Told to go straight on, and to the IFB again.
        let straight = Tenant { redirect: None, ..tenant_settings };
        classifier.set(&mut host.netlink, &at, &straight).unwrap();
        let (led, all) = (packets(&mut host, &middle, WEB), packets(&mut host, &uplink, WEB));
        host.tenants[0].namespace.inside(|| send(50));
        poll_until("50 more at the uplink", || packets(&mut host, &uplink, WEB) >= all + 50);
        assert_eq!(packets(&mut host, &middle, WEB), led);
        classifier.set(&mut host.netlink, &at, &tenant_settings).unwrap();
        host.tenants[0].namespace.inside(|| send(50));
        poll_until("50 more at the IFB", || packets(&mut host, &middle, WEB) >= led + 50);
        drop(classifier);
        assert_eq!(htb::settings(&mut host.netlink, &at).unwrap(), before);
        let led = packets(&mut host, &middle, WEB);
        let default = packets(&mut host, &uplink, DEFAULT);
        host.tenants[0].namespace.inside(|| send(50));
        poll_until("50 in the default class", || packets(&mut host, &uplink, DEFAULT) >= default + 50);
        assert_eq!(packets(&mut host, &middle, WEB), led);
        assert!(ifb::remove(&mut host.netlink, "vmio-u0").unwrap());
    });
}

#[test]
#[ignore = "root"]
fn redirected_packets_keep_their_class() {
    led_through_an_ifb(kernels_mode());
}

#[test]
#[ignore = "root"]
fn redirected_packets_keep_their_class_by_clsact() {
    led_through_an_ifb(AttachMode::Clsact);
}

/// Two interfaces whose entries would have the same place in the array of `classifier/by_index.rs`.
#[test]
#[ignore = "root"]
fn interfaces_of_like_indexes_are_told_apart() {
    apart(|| {
        let mut host = test_host(2);
        let (uplink, first) = (host.uplink.clone(), host.tenants[0].device.clone());
        run(&["ip link del t2"]);
        let second = Device { index: first.index + 4096, name: "t2".to_owned() };
        plug(2, &host.tenants[1].namespace, &format!(" index {}", second.index));
        htb::put(&mut host.netlink, &uplink, &tree(&three()), false).unwrap();
        ready(&mut host, DEFAULT);
        let mut classifier = Classifier::load().unwrap();
        let web = tenant(&host);
        let other = Tenant { class: classid(4), address: Some(host.tenants[1].address), ..web };
        let is_in = |host: &mut TestHost, tenant: usize, class: u16| {
            let before = packets(host, &uplink, class);
            host.tenants[tenant].namespace.inside(|| send(30));
            poll_until("30 packets in their class", || packets(host, &uplink, class) >= before + 30);
        };
        classifier.attach(&mut host.netlink, &first, &web).unwrap();
        classifier.attach(&mut host.netlink, &second, &other).unwrap();
        is_in(&mut host, 0, WEB);
        is_in(&mut host, 1, 4);
        // Both get another class, wherever their entries are.
        classifier.set(&mut host.netlink, &first, &Tenant { class: other.class, ..web }).unwrap();
        classifier.set(&mut host.netlink, &second, &Tenant { class: web.class, ..other }).unwrap();
        is_in(&mut host, 0, 4);
        is_in(&mut host, 1, WEB);
        // The second goes on without the first, and the other way round.
        assert!(classifier.detach(&mut host.netlink, &first).unwrap());
        is_in(&mut host, 0, DEFAULT);
        is_in(&mut host, 1, WEB);
        classifier.set(&mut host.netlink, &second, &other).unwrap();
        classifier.attach(&mut host.netlink, &first, &web).unwrap();
        is_in(&mut host, 0, WEB);
        is_in(&mut host, 1, 4);
        assert!(classifier.detach(&mut host.netlink, &second).unwrap());
        is_in(&mut host, 0, WEB);
        is_in(&mut host, 1, DEFAULT);
    });
}

/// What a TCP connection carries in a test.
const SENT: usize = 8 << 20;

/// Bytes through a TCP connection from the first tenant to the sink.
fn tcp(host: &TestHost, bytes: usize) {
    let listener = host.sink.inside(|| TcpListener::bind((SINK, 5000)).unwrap());
    std::thread::scope(|s| {
        let received = s.spawn(|| {
            let mut all = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
            all.len()
        });
        host.tenants[0].namespace.inside(|| {
            let mut stream = TcpStream::connect((SINK, 5000)).unwrap();
            stream.write_all(&vec![1; bytes]).unwrap();
        });
        assert_eq!(received.join().unwrap(), bytes);
    });
}

#[test]
#[ignore = "root"]
fn segments_count_with_their_headers() {
    apart(|| {
        let mut host = test_host(1);
        let at = host.tenants[0].device.clone();
        let mut classifier = Classifier::load().unwrap();
        let tenant_settings = tenant(&host);
        classifier.attach(&mut host.netlink, &at, &tenant_settings).unwrap();
        tcp(&host, SENT);
        let counts = classifier.counts(&at).unwrap();
        assert!(counts.packets < counts.frames / 4, "segments left together: {counts:?}");
        assert!(counts.frames >= (SENT / 1448) as u64, "{counts:?}");
        // Ethernet 14, IPv4 20, TCP 20 and its timestamps 12: repeated in each segment but the first.
        assert_eq!(counts.wire_bytes - counts.bytes, (counts.frames - counts.packets) * 66, "{counts:?}");
    });
}

/// The rate of a framed class is what the wire carries, of the smallest frames to the byte; of packets that are cut
/// into segments later all headers count and one frame's framing, 1.5 % short at 1514 bytes.
#[test]
#[ignore = "root"]
fn framed_class_keeps_its_rate_on_the_wire() {
    // So little that the bucket makes up for 80 ms in which no processor had time for the queue.
    let limit = 2 * M;
    apart(|| {
        let mut host = test_host(1);
        let (uplink, at) = (host.uplink.clone(), host.tenants[0].device.clone());
        let mut framed = Hierarchy { framing: Framing::ETHERNET, ..three() };
        (framed.leaves[1].rate_bps, framed.leaves[1].ceil_bps, framed.leaves[1].burst_bytes) = (limit, limit, 20_000);
        // Empty again within seconds, at this rate.
        framed.leaves[1].queue_bytes = 256 << 10;
        htb::put(&mut host.netlink, &uplink, &tree(&framed), false).unwrap();
        ready(&mut host, DEFAULT);
        let mut classifier = Classifier::load().unwrap();
        let tenant_settings = Tenant { framing: Framing::ETHERNET, ..tenant(&host) };
        classifier.attach(&mut host.netlink, &at, &tenant_settings).unwrap();
        // Packets of segments that are small beside what passes in the time.
        host.tenants[0].namespace.run(&["ip link set g0 gso_max_segs 4"]);
        let _listener = host.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap());
        let host = &host;
        let kept = |what: &str, most: f64, load: Load<'_>, on_the_wire: fn(u64, u64) -> u64| {
            let mut netlink = Netlink::open().unwrap();
            let mut counts = || counters::read(&mut netlink, &uplink).unwrap()[&WEB];
            // At some moment between two.
            let mut look = || (Instant::now(), counts(), Instant::now());
            poll_until("an empty queue", || look().1.waiting_packets == 0);
            under([load], || {
                poll_until("a queue", || look().1.waiting_packets > 0);
                poll_for("a sender that fills the class for 2 s", || {
                    let first = look();
                    thread::sleep(Duration::from_secs(2));
                    let last = look();
                    let wire = |counts: &Counts| on_the_wire(counts.packets, counts.bytes);
                    let bytes = (wire(&last.1) - wire(&first.1)) as f64;
                    let of_rate = |bytes: f64, time: Duration| bytes * 8.0 / time.as_secs_f64() / limit.bits() as f64;
                    // However long looks and sleep took: no more than the rate's, a bucket that was full, and a packet.
                    let least = of_rate(bytes - 26_000.0, last.2 - first.0);
                    assert!(least < most, "{what}: {least:.3} of the rate");
                    let seen = of_rate(bytes, last.0 - first.2);
                    if seen > 0.85 { Ok(()) } else { Err(format!("{what}: {seen:.3} of the rate")) }
                });
            });
        };
        kept("smallest frames", 1.02, of_size(host, 0, 1), |packets, _| 84 * packets);
        let segments: Load<'_> = Box::new(|done| {
            while !done.load(Ordering::Relaxed) {
                tcp(host, 1 << 20);
            }
        });
        kept("segments", 1.05, segments, |frames, bytes| bytes + 24 * frames);
    });
}
