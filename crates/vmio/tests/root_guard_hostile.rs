//! What hostile guests do to a neighbour's guarantee, in vain; `common/attacked.rs` says how it is judged.
#![allow(clippy::unwrap_used)]

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use crate::help::attacked::{Attack, Bed, attacked, paced, raw};
use crate::help::frames::{Raw, announcement, boundless, echo, ethernet, ipv4, set, udp};
use crate::help::guarded::ip;

/// How long an attack lasts where all of them are to take seconds, and in the long form.
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(10);

const SINK: [u8; 4] = [10, 9, 0, 9];
const SINK_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const HOST: [u8; 4] = [10, 9, 0, 1];
const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const IPV4: &[u8] = &[8, 0];
const UDP: u8 = 17;

/// The neighbour is guest 1, the attackers are 2 and 3, and 4 is in no policy.
pub fn mac(guest: u8) -> [u8; 6] {
    [2, 0, 0, 0, 1, guest]
}

pub fn address(guest: u8) -> [u8; 4] {
    [10, 9, 0, 100 + guest]
}

/// To the sink, with so much payload.
pub fn datagram(mac: [u8; 6], from: [u8; 4], tos: u8, bytes: usize) -> Vec<u8> {
    ethernet(SINK_MAC, mac, IPV4, &ipv4(from, SINK, [tos, UDP], 0, &udp(bytes)))
}

/// Hundreds, the neighbour's among them.
fn forged_macs(bed: &Bed, until: Instant) {
    raw(bed, 2, until, 32, |n| {
        let from = if n % 4 == 0 { mac(1) } else { [2, 0, 0, 2, (n >> 8) as u8 & 1, n as u8] };
        datagram(from, address(2), 0, 400)
    });
}

/// As the neighbour and as anybody, with the classes of the host and the neighbour as priorities.
fn forged_addresses_and_priorities(bed: &Bed, until: Instant) {
    bed.guests[1].inside(|| {
        let all = [0x7a00_0002, 0x7a00_0010, 7].map(|priority| Raw::open("g0").priority(priority));
        paced(until, 32, |n| {
            let from = if n % 2 == 0 { address(1) } else { [10, 9, 1, n as u8] };
            all[n % 3].send(&datagram(mac(2), from, 0xb8, 400));
        });
    });
}

/// A tag of the highest priority, of no or any VLAN; and two of them.
fn tags(bed: &Bed, until: Instant) {
    raw(bed, 2, until, 8, |n| {
        let outer = [0x81u8, 0, 0xe0, (n % 3) as u8, 8, 0];
        let both = [0x88u8, 0xa8, 0xe0, 5, 0x81, 0, 0xe0, 6, 8, 0];
        let kind = if n % 2 == 0 { &outer[..] } else { &both };
        ethernet(SINK_MAC, mac(2), kind, &ipv4(address(2), SINK, [0xb8, UDP], 0, &udp(1352)))
    });
}

fn smallest(bed: &Bed, until: Instant) {
    raw(bed, 2, until, 32, |_| datagram(mac(2), address(2), 0, 18));
}

/// Datagrams that are cut behind the queues.
fn segments(bed: &Bed, until: Instant) {
    bed.guests[1].inside(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        boundless(&socket);
        set(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 1448);
        paced(until, 1, |_| drop(socket.send_to(&[7; 60_000], "10.9.0.9:9")));
    });
}

/// The bridge drops what the uplink does not take.
fn jumbo(bed: &Bed, until: Instant) {
    raw(bed, 2, until, 4, |_| datagram(mac(2), address(2), 0, 8972));
}

/// Half of them claim the neighbour's address.
fn arp(bed: &Bed, until: Instant) {
    raw(bed, 2, until, 16, |n| announcement(mac(2), mac(2), address(1 + (n % 2) as u8)));
}

/// Solicitations (RFC 4861), each about another address.
fn discovery(bed: &Bed, until: Instant) {
    raw(bed, 2, until, 16, |n| {
        let link_local = |n: usize| [&[0xfeu8, 0x80][..], &[0; 12], &[(n >> 8) as u8, n as u8]].concat();
        let all = [&[0xffu8, 2][..], &[0; 13], &[1]].concat();
        let head = [0x60u8, 0, 0, 0, 0, 24, 58, 255];
        let packet = [&head[..], &link_local(7), &all, &[135, 0, 0, 0, 0, 0, 0, 0], &link_local(n)].concat();
        ethernet([0x33, 0x33, 0, 0, 0, 1], mac(2), &[0x86, 0xdd], &packet)
    });
}

fn to_all(bed: &Bed, until: Instant) {
    raw(bed, 2, until, 4, |n| {
        let broadcast = ([0xff; 6], [255; 4]);
        let (to, group) = if n % 2 == 0 { broadcast } else { ([1, 0, 0x5e, 0, 0, 1], [224, 0, 0, 1]) };
        ethernet(to, mac(2), IPV4, &ipv4(address(2), group, [0, UDP], 0, &udp(1472)))
    });
}

/// Of packets that are never whole.
fn fragments(bed: &Bed, until: Instant) {
    raw(bed, 2, until, 4, |n| {
        let offset = 0x2000 | (n % 1000) as u16;
        ethernet(SINK_MAC, mac(2), IPV4, &ipv4(address(2), SINK, [0, UDP], offset, &udp(1472)))
    });
}

const FORGED: &[Attack] = &[
    Attack {
        name: "hundreds of MAC addresses",
        frame: 442,
        told: ("t2", "spoofed_dropped_packets_total", 1000),
        act: forged_macs,
    },
    Attack {
        name: "IP addresses and priorities",
        frame: 442,
        told: ("t2", "dropped_packets_total", 100),
        act: forged_addresses_and_priorities,
    },
    Attack { name: "VLAN tags", frame: 1400, told: ("t2", "dropped_packets_total", 100), act: tags },
    Attack { name: "64-byte frames", frame: 60, told: ("t2", "passed_bytes_total", 300_000), act: smallest },
    Attack { name: "segments", frame: 61_764, told: ("t2", "passed_bytes_total", 300_000), act: segments },
    Attack { name: "jumbo frames", frame: 9014, told: ("t2", "local", 1_000_000), act: jumbo },
    Attack { name: "ARP", frame: 60, told: ("t2", "resolution_dropped_packets_total", 500), act: arp },
    Attack {
        name: "neighbour discovery",
        frame: 78,
        told: ("t2", "resolution_dropped_packets_total", 1000),
        act: discovery,
    },
    Attack { name: "broadcast and multicast", frame: 1514, told: ("t2", "dropped_packets_total", 100), act: to_all },
    Attack { name: "fragments", frame: 1514, told: ("t2", "dropped_packets_total", 100), act: fragments },
];

/// Both attackers in turn, each so long out of twice that.
fn bursts(bed: &Bed, until: Instant, long: Duration) {
    let begin = Instant::now();
    thread::scope(|s| {
        for guest in [2, 3] {
            s.spawn(move || {
                bed.guests[usize::from(guest) - 1].inside(|| {
                    let raw = Raw::open("g0");
                    let frame = datagram(mac(guest), address(guest), 0, 1472);
                    paced(until, 1, |_| {
                        let turn = begin.elapsed().as_micros() / long.as_micros() % 2;
                        if turn == u128::from(guest) % 2 {
                            for _ in 0..8 {
                                raw.send(&frame);
                            }
                        }
                    });
                });
            });
        }
    });
}

/// Shorter than the period of the loop, which takes an idle minimum off what others share.
fn bursts_between_periods(bed: &Bed, until: Instant) {
    bursts(bed, until, Duration::from_millis(7));
}

/// Longer than the loop remembers, shorter than it takes until counters are read.
fn bursts_between_looks(bed: &Bed, until: Instant) {
    bursts(bed, until, Duration::from_millis(250));
}

fn between_guests(bed: &Bed, until: Instant) {
    let to = |to: u8, from: u8| {
        move |_: usize| ethernet(mac(to), mac(from), IPV4, &ipv4(address(from), address(to), [0, UDP], 0, &udp(1472)))
    };
    thread::scope(|s| {
        s.spawn(|| raw(bed, 2, until, 8, to(3, 2)));
        s.spawn(|| raw(bed, 3, until, 8, to(2, 3)));
        s.spawn(|| raw(bed, 2, until, 4, |_| datagram(mac(2), address(2), 0, 1472)));
    });
}

/// In the sink's name, so that the host's answers leave by the uplink.
fn answers_of_the_host(bed: &Bed, until: Instant) {
    raw(bed, 2, until, 8, |_| ethernet(HOST_MAC, mac(2), IPV4, &ipv4(SINK, HOST, [0, 1], 0, &echo(1472))));
}

fn stranger(bed: &Bed, until: Instant) {
    raw(bed, 4, until, 8, |_| datagram(mac(4), address(4), 0, 1472));
}

/// The interface of one that sends is called something else again and again.
fn renames(bed: &Bed, until: Instant) {
    thread::scope(|s| {
        s.spawn(|| raw(bed, 3, until, 8, |_| datagram(mac(3), address(3), 0, 1472)));
        while Instant::now() < until {
            for [from, to] in [["t3", "other"], ["other", "t3"]] {
                ip(&format!("link set {from} down"));
                ip(&format!("link set {from} name {to}"));
                ip(&format!("link set {to} up"));
                thread::sleep(Duration::from_millis(50));
            }
        }
    });
}

/// Its interface has another address again and again, the neighbour's among them.
fn own_macs(bed: &Bed, until: Instant) {
    let be = |[.., fifth, last]: [u8; 6]| {
        bed.guests[1].run(&[&format!("ip link set g0 address 02:00:00:00:{fifth:02x}:{last:02x}")]);
    };
    for n in (0..=255u8).cycle() {
        let mac = if n % 8 == 0 { mac(1) } else { [2, 0, 0, 0, 3, n] };
        be(mac);
        raw(bed, 2, Instant::now() + Duration::from_millis(2), 32, |_| datagram(mac, address(2), 0, 400));
        if Instant::now() > until {
            break;
        }
    }
    be(mac(2));
}

fn link_flaps(bed: &Bed, until: Instant) {
    thread::scope(|s| {
        s.spawn(|| raw(bed, 2, until, 8, |_| datagram(mac(2), address(2), 0, 1472)));
        while Instant::now() < until {
            bed.guests[1].run(&["ip link set g0 down", "ip link set g0 up"]);
            thread::sleep(Duration::from_millis(20));
        }
    });
}

const TIMED: &[Attack] = &[
    Attack {
        name: "bursts between periods",
        frame: 1514,
        told: ("t3", "passed_bytes_total", 300_000),
        act: bursts_between_periods,
    },
    Attack {
        name: "bursts between looks",
        frame: 1514,
        told: ("t3", "passed_bytes_total", 300_000),
        act: bursts_between_looks,
    },
    Attack { name: "traffic between guests", frame: 1514, told: ("t2", "local", 1_000_000), act: between_guests },
    Attack {
        name: "answers of the host",
        frame: 1514,
        told: ("host", "passed_bytes_total", 100_000),
        act: answers_of_the_host,
    },
    Attack { name: "own MACs", frame: 442, told: ("t2", "spoofed_dropped_packets_total", 100), act: own_macs },
    Attack { name: "link flaps", frame: 1514, told: ("t2", "passed_bytes_total", 0), act: link_flaps },
    // What is left in the queue of `default` goes on for a while.
    Attack { name: "a stranger", frame: 1514, told: ("default", "dropped_packets_total", 50), act: stranger },
    Attack { name: "renames", frame: 1514, told: ("default", "passed_bytes_total", 0), act: renames },
];

#[test]
#[ignore = "root"]
fn a_guarantee_holds_against_forged_frames_and_floods() {
    attacked(FORGED, SHORT, true);
}

#[test]
#[ignore = "root"]
fn a_guarantee_holds_against_bursts_flaps_and_detours() {
    attacked(TIMED, SHORT, false);
}

#[test]
#[ignore = "root"]
fn long_a_guarantee_holds_against_forged_frames_and_floods() {
    attacked(FORGED, LONG, true);
}

#[test]
#[ignore = "root"]
fn long_a_guarantee_holds_against_bursts_flaps_and_detours() {
    attacked(TIMED, LONG, false);
}
