//! The classifier at a tenant's interface: its class, its address, its counters, and what it leaves behind.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::common::bed::{Bed, SINK, bed, plug, ready, send, send_sized};
use crate::common::{apart, run, three, tree, until};
use vmio_guard::planes::linux::classifier::{Classifier, Tenant, Way};
use vmio_guard::planes::linux::htb::classid;
use vmio_guard::planes::linux::{Device, counters, htb, ifb};
use vmio_model::policy::program::{Framing, Hierarchy};

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
fn kernels_way() -> Way {
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
        until("100 packets in their class", || packets(&mut bed, &uplink, WEB) >= 100);
        assert!(packets(&mut bed, &uplink, DEFAULT) < default + 20, "none of them is in the default class");
        let counts = classifier.counts(&at).unwrap();
        assert!(counts.packets >= 100 && counts.frames == counts.packets, "{counts:?}");
        assert!(counts.bytes >= 100 * 442 && counts.wire_bytes == counts.bytes, "{counts:?}");
        assert_eq!(counts.spoofed_packets, 0);

        // Under an address that is not its own nothing passes, in no class.
        run(&[&format!("ip link set {at} alias still-here")]);
        bed.tenants[0].namespace.run(&["ip link set g0 address 02:00:00:00:66:66"]);
        let passed = classifier.counts(&at).unwrap().packets;
        until("all of them at the uplink", || packets(&mut bed, &uplink, WEB) == passed);
        let default = packets(&mut bed, &uplink, DEFAULT);
        let told_neighbour = format!("ip neigh replace {SINK} lladdr 02:00:00:00:00:09 dev g0 nud permanent");
        bed.tenants[0].namespace.run(&[&told_neighbour]);
        bed.tenants[0].namespace.inside(|| send(50));
        until("50 spoofed packets", || classifier.counts(&at).unwrap().spoofed_packets >= 50);
        let spoofed = classifier.counts(&at).unwrap();
        assert!(spoofed.spoofed_bytes >= 50 * 442, "{spoofed:?}");
        assert_eq!((spoofed.packets, packets(&mut bed, &uplink, WEB)), (passed, passed));
        assert!(packets(&mut bed, &uplink, DEFAULT) < default + 20);

        // Told otherwise, from the next packet on.
        let free = Tenant { class: classid(4), address: None, ..told };
        assert_eq!(classifier.attach(&mut bed.netlink, &at, &free).unwrap(), way, "it stays as it is attached");
        bed.tenants[0].namespace.inside(|| send(30));
        until("30 packets in the other class", || packets(&mut bed, &uplink, 4) >= 30);

        assert!(classifier.detach(&mut bed.netlink, &at).unwrap());
        assert!(!classifier.detach(&mut bed.netlink, &at).unwrap());
        assert!(classifier.set(&mut bed.netlink, &at, &told).is_err());
        assert_eq!(htb::settings(&mut bed.netlink, &at).unwrap(), before);
        let other = packets(&mut bed, &uplink, 4);
        let default = packets(&mut bed, &uplink, DEFAULT);
        bed.tenants[0].namespace.inside(|| send(30));
        until("30 packets in the default class", || packets(&mut bed, &uplink, DEFAULT) >= default + 30);
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
        until("a packet of the new interface in its class", || {
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
            until("30 packets in their class", || packets(&mut bed, &uplink, WEB) >= web + 30);
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
        until("100 packets at the IFB", || packets(&mut bed, &middle, WEB) >= 100);
        until("100 packets at the uplink", || packets(&mut bed, &uplink, WEB) >= 100);
        assert!(classifier.counts(&at).unwrap().packets >= 100);
        // Told to go straight on, and to the IFB again.
        let straight = Tenant { redirect: None, ..told };
        classifier.set(&mut bed.netlink, &at, &straight).unwrap();
        let (led, all) = (packets(&mut bed, &middle, WEB), packets(&mut bed, &uplink, WEB));
        bed.tenants[0].namespace.inside(|| send(50));
        until("50 more at the uplink", || packets(&mut bed, &uplink, WEB) >= all + 50);
        assert_eq!(packets(&mut bed, &middle, WEB), led);
        classifier.set(&mut bed.netlink, &at, &told).unwrap();
        bed.tenants[0].namespace.inside(|| send(50));
        until("50 more at the IFB", || packets(&mut bed, &middle, WEB) >= led + 50);
        drop(classifier);
        assert_eq!(htb::settings(&mut bed.netlink, &at).unwrap(), before);
        let led = packets(&mut bed, &middle, WEB);
        let default = packets(&mut bed, &uplink, DEFAULT);
        bed.tenants[0].namespace.inside(|| send(50));
        until("50 in the default class", || packets(&mut bed, &uplink, DEFAULT) >= default + 50);
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

/// The class of an uplink with the framing of a physical port counts what the wire carries, frame by frame; of a
/// packet that is to be cut into segments it counts only one (docs/guard-linux.md says what to do).
#[test]
#[ignore = "root"]
fn a_framed_class_counts_what_the_wire_carries_but_for_segments() {
    apart(|| {
        let mut bed = bed(1);
        let (uplink, at) = (bed.uplink.clone(), bed.tenants[0].device.clone());
        let mut framed = Hierarchy { framing: Framing::ETHERNET, rate_bps: 1_000_000_000, ..three() };
        // What is dropped there would be counted at the tenant's interface alone.
        framed.leaves[1].queue_bytes = 64 << 20;
        htb::put(&mut bed.netlink, &uplink, &tree(&framed), false).unwrap();
        ready(&mut bed, DEFAULT);
        let mut classifier = Classifier::load().unwrap();
        let told = Tenant { framing: Framing::ETHERNET, ..tenant(&bed) };
        classifier.attach(&mut bed.netlink, &at, &told).unwrap();
        let both = |bed: &mut Bed| {
            let class = |bed: &mut Bed| counters::read(&mut bed.netlink, &uplink).unwrap()[&WEB];
            // All that was sent has left the class.
            until("an empty queue", || class(bed).waiting_packets == 0);
            (class(bed).bytes, class(bed).packets, classifier.counts(&at).unwrap())
        };
        for size in [1, 18, 19, 400, 1472] {
            bed.tenants[0].namespace.inside(|| send_sized(20, size));
        }
        until("all of them", || both(&mut bed).1 >= 100);
        let (class, packets, counts) = both(&mut bed);
        assert_eq!((class, packets), (counts.wire_bytes, counts.frames), "{counts:?}");

        // One packet of many segments counts with one frame's framing and one frame's headers.
        tcp(&bed, SENT);
        let (segmented, _, later) = both(&mut bed);
        let (packets, frames) = (later.packets - counts.packets, later.frames - counts.frames);
        assert!(packets < frames / 4, "segments left together: {later:?}");
        let (short, missing) = (later.wire_bytes - segmented, (frames - packets) * (66 + 24));
        // The size table adds its entries up beyond its end, which is up to 84 bytes off.
        assert!(short.abs_diff(missing) <= packets * 84, "{short} bytes are missing, where {missing} are expected");

        // Where the tenant's interface lets none through, nothing is missing.
        bed.tenants[0].namespace.run(&["ip link set g0 gso_max_segs 1"]);
        tcp(&bed, SENT);
        let (whole, _, last) = both(&mut bed);
        assert_eq!(last.packets - later.packets, last.frames - later.frames);
        assert_eq!(whole - segmented, last.wire_bytes - later.wire_bytes);
    });
}
