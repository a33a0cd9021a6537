//! The classifier at a tenant's interface: its class, its address, its counters, and what it leaves behind.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::bed::{Bed, SINK, bed, plug, ready, send};
use crate::common::flood::{Load, of_size, under};
use crate::common::{M, three, tree};
use vmio_guard::planes::linux::classifier::{Classifier, Tenant, Way};
use vmio_guard::planes::linux::counters::Counts;
use vmio_guard::planes::linux::htb::classid;
use vmio_guard::planes::linux::{Device, Netlink, counters, htb, ifb};
use vmio_model::policy::program::{Framing, Hierarchy};
use vmio_testbed::net::{apart, run};
use vmio_testbed::{poll_for, poll_until};

/// Numbers of [`three`].
const DEFAULT: u16 = 2;
const WEB: u16 = 3;

fn tenant(bed: &Bed) -> Tenant {
    Tenant { class: classid(WEB), address: Some(bed.tenants[0].address), redirect: None, framing: Framing::NONE }
}

fn packets(bed: &mut Bed, device: &Device, class: u16) -> u64 {
    counters::read(&mut bed.netlink, device).unwrap()[&class].packets
}

/// TCX links came with Linux 6.6.
pub fn kernels_way() -> Way {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    if version >= (6, 6) { Way::Tcx } else { Way::Clsact }
}

fn in_class_or_dropped(way: Way) {
    apart(|| {
        let mut bed = bed(1);
        let (uplink, at) = (bed.uplink.clone(), bed.tenants[0].device.clone());
        htb::put(&mut bed.netlink, &uplink, &tree(&three()), false).unwrap();
        ready(&mut bed, DEFAULT);
        let before = htb::settings(&mut bed.netlink, &at).unwrap();
        assert_eq!(packets(&mut bed, &uplink, WEB), 0, "nobody says so yet");

        let mut classifier = Classifier::load().unwrap();
        assert_eq!(classifier.counts(&at), None);
        let told = tenant(&bed);
        assert_eq!(classifier.attach_by(&mut bed.netlink, &at, &told, way).unwrap(), way);
        let default = packets(&mut bed, &uplink, DEFAULT);
        bed.tenants[0].namespace.inside(|| send(100));
        poll_until("100 packets in their class", || packets(&mut bed, &uplink, WEB) >= 100);
        assert!(packets(&mut bed, &uplink, DEFAULT) < default + 20, "none of them is in the default class");
        let counts = classifier.counts(&at).unwrap();
        assert!(counts.packets >= 100 && counts.frames == counts.packets, "{counts:?}");
        assert!(counts.bytes >= 100 * 442 && counts.wire_bytes == counts.bytes, "{counts:?}");
        assert_eq!(counts.spoofed_packets, 0);

        // Under an address that is not its own nothing passes, in no class.
        run(&[&format!("ip link set {at} alias still-here")]);
        bed.tenants[0].namespace.run(&["ip link set g0 address 02:00:00:00:66:66"]);
        let passed = classifier.counts(&at).unwrap().packets;
        poll_until("all of them at the uplink", || packets(&mut bed, &uplink, WEB) == passed);
        let default = packets(&mut bed, &uplink, DEFAULT);
        let told_neighbour = format!("ip neigh replace {SINK} lladdr 02:00:00:00:00:09 dev g0 nud permanent");
        bed.tenants[0].namespace.run(&[&told_neighbour]);
        bed.tenants[0].namespace.inside(|| send(50));
        poll_until("50 spoofed packets", || classifier.counts(&at).unwrap().spoofed_packets >= 50);
        let spoofed = classifier.counts(&at).unwrap();
        assert!(spoofed.spoofed_bytes >= 50 * 442, "{spoofed:?}");
        assert_eq!((spoofed.packets, packets(&mut bed, &uplink, WEB)), (passed, passed));
        assert!(packets(&mut bed, &uplink, DEFAULT) < default + 20);

        // Told otherwise, from the next packet on.
        let free = Tenant { class: classid(4), address: None, ..told };
        assert_eq!(classifier.attach(&mut bed.netlink, &at, &free).unwrap(), way, "it stays as it is attached");
        bed.tenants[0].namespace.inside(|| send(30));
        poll_until("30 packets in the other class", || packets(&mut bed, &uplink, 4) >= 30);

        assert!(classifier.detach(&mut bed.netlink, &at).unwrap());
        assert!(!classifier.detach(&mut bed.netlink, &at).unwrap());
        assert!(classifier.set(&mut bed.netlink, &at, &told).is_err());
        assert_eq!(htb::settings(&mut bed.netlink, &at).unwrap(), before);
        let other = packets(&mut bed, &uplink, 4);
        let default = packets(&mut bed, &uplink, DEFAULT);
        bed.tenants[0].namespace.inside(|| send(30));
        poll_until("30 packets in the default class", || packets(&mut bed, &uplink, DEFAULT) >= default + 30);
        assert_eq!(packets(&mut bed, &uplink, 4), other);
    });
}

#[test]
#[ignore = "root"]
fn a_senders_packets_are_in_its_class_or_dropped_by_the_kernels_way() {
    in_class_or_dropped(kernels_way());
}

/// The classifier takes TCX where the kernel has it, and clsact where not.
#[test]
#[ignore = "root"]
fn it_is_attached_by_the_kernels_way() {
    apart(|| {
        let mut bed = bed(1);
        let told = tenant(&bed);
        let at = bed.tenants[0].device.clone();
        let way = Classifier::load().unwrap().attach(&mut bed.netlink, &at, &told).unwrap();
        assert_eq!(way, kernels_way());
    });
}

#[test]
#[ignore = "root"]
fn a_senders_packets_are_in_its_class_or_dropped_by_clsact() {
    in_class_or_dropped(Way::Clsact);
}

#[test]
#[ignore = "root"]
fn what_others_have_at_clsact_stays() {
    apart(|| {
        let mut bed = bed(1);
        let at = bed.tenants[0].device.clone();
        run(&[&format!("tc qdisc add dev {at} clsact")]);
        let before = htb::settings(&mut bed.netlink, &at).unwrap();
        let mut classifier = Classifier::load().unwrap();
        let told = tenant(&bed);
        classifier.attach_by(&mut bed.netlink, &at, &told, Way::Clsact).unwrap();
        classifier.detach(&mut bed.netlink, &at).unwrap();
        assert_eq!(htb::settings(&mut bed.netlink, &at).unwrap(), before);
        // Where the program was there first and somebody has a filter by now, the qdisc stays for it.
        run(&[&format!("tc qdisc del dev {at} clsact")]);
        classifier.attach_by(&mut bed.netlink, &at, &told, Way::Clsact).unwrap();
        run(&[&format!("tc filter add dev {at} egress protocol ip prio 5 u32 match u32 0 0 classid 1:1")]);
        classifier.detach(&mut bed.netlink, &at).unwrap();
        assert_eq!(htb::settings(&mut bed.netlink, &at).unwrap(), before);
    });
}

fn attached_anew(way: Way) {
    apart(|| {
        let mut bed = bed(1);
        let (uplink, at) = (bed.uplink.clone(), bed.tenants[0].device.clone());
        htb::put(&mut bed.netlink, &uplink, &tree(&three()), false).unwrap();
        ready(&mut bed, DEFAULT);
        let mut classifier = Classifier::load().unwrap();
        let told = tenant(&bed);
        classifier.attach_by(&mut bed.netlink, &at, &told, way).unwrap();
        // QEMU restarts, and the new interface has the index of the old one.
        run(&[&format!("ip link del {at}")]);
        plug(1, &bed.tenants[0].namespace, &format!(" index {}", at.index));
        classifier.attach_by(&mut bed.netlink, &at, &told, way).unwrap();
        let web = packets(&mut bed, &uplink, WEB);
        poll_until("a packet of the new interface in its class", || {
            bed.tenants[0].namespace.inside(|| send(1));
            packets(&mut bed, &uplink, WEB) > web
        });
        assert!(classifier.counts(&at).unwrap().packets > 0);
        if way == Way::Clsact {
            run(&[&format!("tc filter del dev {at} ingress")]);
            classifier.attach_by(&mut bed.netlink, &at, &told, way).unwrap();
            assert!(classifier.counts(&at).unwrap().packets < 20, "it counts from 0");
            let web = packets(&mut bed, &uplink, WEB);
            bed.tenants[0].namespace.inside(|| send(30));
            poll_until("30 packets in their class", || packets(&mut bed, &uplink, WEB) >= web + 30);
        }
        // An interface that is gone needs no more than to be forgotten.
        run(&[&format!("ip link del {at}")]);
        assert!(classifier.detach(&mut bed.netlink, &at).unwrap());
        assert_eq!(classifier.counts(&at), None);
    });
}

#[test]
#[ignore = "root"]
fn taken_off_or_with_another_interface_under_its_index_it_is_attached_anew_by_the_kernels_way() {
    attached_anew(kernels_way());
}

#[test]
#[ignore = "root"]
fn taken_off_or_with_another_interface_under_its_index_it_is_attached_anew_by_clsact() {
    attached_anew(Way::Clsact);
}

fn led_through_an_ifb(way: Way) {
    apart(|| {
        let mut bed = bed(1);
        let (uplink, at) = (bed.uplink.clone(), bed.tenants[0].device.clone());
        let middle = ifb::make(&mut bed.netlink, "vmio-u0", "what guests send to u0", 1000).unwrap();
        for device in [&uplink, &middle] {
            htb::put(&mut bed.netlink, device, &tree(&three()), false).unwrap();
        }
        ready(&mut bed, DEFAULT);
        let before = htb::settings(&mut bed.netlink, &at).unwrap();
        let mut classifier = Classifier::load().unwrap();
        let told = Tenant { redirect: Some(middle.index), ..tenant(&bed) };
        classifier.attach_by(&mut bed.netlink, &at, &told, way).unwrap();
        bed.tenants[0].namespace.inside(|| send(100));
        poll_until("100 packets at the IFB", || packets(&mut bed, &middle, WEB) >= 100);
        poll_until("100 packets at the uplink", || packets(&mut bed, &uplink, WEB) >= 100);
        assert!(classifier.counts(&at).unwrap().packets >= 100);
        // Told to go straight on, and to the IFB again.
        let straight = Tenant { redirect: None, ..told };
        classifier.set(&mut bed.netlink, &at, &straight).unwrap();
        let (led, all) = (packets(&mut bed, &middle, WEB), packets(&mut bed, &uplink, WEB));
        bed.tenants[0].namespace.inside(|| send(50));
        poll_until("50 more at the uplink", || packets(&mut bed, &uplink, WEB) >= all + 50);
        assert_eq!(packets(&mut bed, &middle, WEB), led);
        classifier.set(&mut bed.netlink, &at, &told).unwrap();
        bed.tenants[0].namespace.inside(|| send(50));
        poll_until("50 more at the IFB", || packets(&mut bed, &middle, WEB) >= led + 50);
        drop(classifier);
        assert_eq!(htb::settings(&mut bed.netlink, &at).unwrap(), before);
        let led = packets(&mut bed, &middle, WEB);
        let default = packets(&mut bed, &uplink, DEFAULT);
        bed.tenants[0].namespace.inside(|| send(50));
        poll_until("50 in the default class", || packets(&mut bed, &uplink, DEFAULT) >= default + 50);
        assert_eq!(packets(&mut bed, &middle, WEB), led);
        assert!(ifb::remove(&mut bed.netlink, "vmio-u0").unwrap());
    });
}

#[test]
#[ignore = "root"]
fn led_through_an_ifb_a_packet_is_in_its_class_there_and_goes_on_by_the_kernels_way() {
    led_through_an_ifb(kernels_way());
}

#[test]
#[ignore = "root"]
fn led_through_an_ifb_a_packet_is_in_its_class_there_and_goes_on_by_clsact() {
    led_through_an_ifb(Way::Clsact);
}

/// What a TCP connection carries in a test.
const SENT: usize = 8 << 20;

/// Bytes through a TCP connection from the first tenant to the sink.
fn tcp(bed: &Bed, bytes: usize) {
    let listener = bed.sink.inside(|| TcpListener::bind((SINK, 5000)).unwrap());
    std::thread::scope(|s| {
        let received = s.spawn(|| {
            let mut all = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
            all.len()
        });
        bed.tenants[0].namespace.inside(|| {
            let mut stream = TcpStream::connect((SINK, 5000)).unwrap();
            stream.write_all(&vec![1; bytes]).unwrap();
        });
        assert_eq!(received.join().unwrap(), bytes);
    });
}

#[test]
#[ignore = "root"]
fn segments_count_as_the_wire_carries_them() {
    apart(|| {
        let mut bed = bed(1);
        let at = bed.tenants[0].device.clone();
        let mut classifier = Classifier::load().unwrap();
        let told = tenant(&bed);
        classifier.attach(&mut bed.netlink, &at, &told).unwrap();
        tcp(&bed, SENT);
        let counts = classifier.counts(&at).unwrap();
        assert!(counts.packets < counts.frames / 4, "segments left together: {counts:?}");
        assert!(counts.frames >= (SENT / 1448) as u64, "{counts:?}");
        // Ethernet 14, IPv4 20, TCP 20 and its timestamps 12: repeated in each segment but the first.
        assert_eq!(counts.wire_bytes - counts.bytes, (counts.frames - counts.packets) * 66, "{counts:?}");
    });
}

/// The rate of a framed class is what the wire carries, of the smallest frames to the byte; of packets that are cut into segments
/// later all headers count and one frame's framing, 1.5 % short at 1514 bytes.
#[test]
#[ignore = "root"]
fn a_framed_class_holds_what_the_wire_carries() {
    // So little that the bucket makes up for 80 ms in which no processor had time for the queue.
    let limit = 2 * M;
    apart(|| {
        let mut bed = bed(1);
        let (uplink, at) = (bed.uplink.clone(), bed.tenants[0].device.clone());
        let mut framed = Hierarchy { framing: Framing::ETHERNET, ..three() };
        (framed.leaves[1].rate_bps, framed.leaves[1].ceil_bps, framed.leaves[1].burst_bytes) = (limit, limit, 20_000);
        // Empty again within seconds, at this rate.
        framed.leaves[1].queue_bytes = 256 << 10;
        htb::put(&mut bed.netlink, &uplink, &tree(&framed), false).unwrap();
        ready(&mut bed, DEFAULT);
        let mut classifier = Classifier::load().unwrap();
        let told = Tenant { framing: Framing::ETHERNET, ..tenant(&bed) };
        classifier.attach(&mut bed.netlink, &at, &told).unwrap();
        // Packets of segments that are small beside what passes in the time.
        bed.tenants[0].namespace.run(&["ip link set g0 gso_max_segs 4"]);
        let _listener = bed.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap());
        let bed = &bed;
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
        kept("smallest frames", 1.02, of_size(bed, 0, 1), |packets, _| 84 * packets);
        let segments: Load<'_> = Box::new(|done| {
            while !done.load(Ordering::Relaxed) {
                tcp(bed, 1 << 20);
            }
        });
        kept("segments", 1.05, segments, |frames, bytes| bytes + 24 * frames);
    });
}
