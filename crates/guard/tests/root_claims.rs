//! ARP and neighbour discovery in which a guest claims a neighbour's address: what the neighbours believe, and what is
//! counted.

#![allow(clippy::unwrap_used)]

use std::net::UdpSocket;
use std::time::Duration;

use crate::common::frames::{self, Raw};
use crate::common::test_host::{TestHost, test_host};
use crate::root_classifier::kernels_mode;
use vmio_guard::planes::Claimed;
use vmio_guard::planes::linux::classifier::{AttachMode, Checks, Classifier, Tenant, as_compared};
use vmio_guard::planes::linux::htb::classid;
use vmio_model::policy::program::Framing;
use vmio_testbed::net::{apart, tried};
use vmio_testbed::poll_until;

const ATTACKER: [u8; 6] = [2, 0, 0, 0, 1, 1];
const VICTIM: [u8; 6] = [2, 0, 0, 0, 1, 2];
const ATTACKER_IP: &str = "10.9.0.101";
const VICTIM_IP: &str = "10.9.0.102";

/// Sends frames by an interface of the thread's namespace.
fn send_frames(interface: &str, frames: &[Vec<u8>]) {
    let raw = Raw::open(interface);
    for frame in frames {
        assert!(raw.send(frame), "{}", std::io::Error::last_os_error());
    }
}

/// The attacker's announcement to all: this IP address is at this Ethernet address.
fn announcement(mac: [u8; 6], ip: &str) -> Vec<u8> {
    frames::announcement(ATTACKER, mac, ip.parse::<std::net::Ipv4Addr>().unwrap().octets())
}

/// A message of neighbour discovery about an address, from one, with the target's Ethernet address where it is told.
fn discovery(kind: u8, from: &str, about: &str, mac: Option<[u8; 6]>) -> Vec<u8> {
    let octets = |ip: &str| ip.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let option = mac.map(|mac| [&[2u8, 1][..], &mac].concat()).unwrap_or_default();
    let message = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &octets(about), &option].concat();
    let head = [&[0x33u8, 0x33, 0, 0, 0, 1][..], &ATTACKER, &[0x86, 0xdd]].concat();
    let ip = [&[0x60u8, 0, 0, 0, 0, message.len() as u8, 58, 255][..], &octets(from), &octets("ff02::1")].concat();
    [head, ip, message].concat()
}

/// The Ethernet address that the sink believes to be the victim's.
fn believed(host: &TestHost) -> String {
    host.sink.inside(|| tried(&format!("ip neigh show {VICTIM_IP} dev u1")).1)
}

fn claims(mode: AttachMode) {
    apart(|| {
        let mut host = test_host(2);
        let at = host.tenants[0].device.clone();
        let mut classifier = Classifier::load().unwrap();
        let own = ["10.9.0.101", "2001:db8::1"].map(|ip| as_compared(ip.parse().unwrap()));
        classifier.own(&at, &own.into()).unwrap();
        let tenant = |drop| Tenant {
            class: classid(3),
            address: Some(ATTACKER),
            redirect: None,
            framing: Framing::NONE,
            checks: Some(Checks { addresses: true, drop, router: false }),
            policed: None,
        };
        let right = "ip neigh replace 10.9.0.102 lladdr 02:00:00:00:01:02 dev u1 nud stale";
        let send = |host: &TestHost, frames: &[Vec<u8>]| {
            host.tenants[0].namespace.inside(|| send_frames("g0", frames));
        };

        // Told only: the neighbour's address is taken.
        classifier.attach_by(&mut host.netlink, &at, &tenant(false), mode).unwrap();
        host.sink.run(&[right]);
        poll_until("the address is taken", || {
            send(&host, &[announcement(ATTACKER, VICTIM_IP)]);
            believed(&host).contains("02:00:00:00:01:01")
        });
        let told = classifier.claimed(&at).unwrap();
        assert!(told.packets > 0 && told.dropped == 0, "{told:?}");

        // Dropped: it stays the neighbour's, whose traffic stands.
        classifier.set(&mut host.netlink, &at, &tenant(true)).unwrap();
        host.sink.run(&[right]);
        let since = |classifier: &Classifier| {
            let now = classifier.claimed(&at).unwrap();
            Claimed { packets: now.packets - told.packets, ..now }
        };
        send(
            &host,
            &[vec![announcement(ATTACKER, VICTIM_IP); 40], vec![announcement(VICTIM, ATTACKER_IP); 10]].concat(),
        );
        let seen = since(&classifier);
        assert_eq!((seen.packets, seen.dropped, seen.floods), (50, 50, told.floods));
        assert!(believed(&host).contains("02:00:00:00:01:02"), "{}", believed(&host));
        let victim = host.tenants[1].namespace.inside(|| UdpSocket::bind((VICTIM_IP, 7)).unwrap());
        victim.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        poll_until("the neighbour hears the sink", || {
            host.sink.inside(|| UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"hello", (VICTIM_IP, 7)).unwrap());
            victim.recv(&mut [0; 64]).is_ok()
        });

        let theirs = host.tenants[1].device.clone();
        let listed = [VICTIM_IP, "fe80::1"].map(|ip| as_compared(ip.parse().unwrap()));
        classifier.own(&theirs, &listed.into()).unwrap();

        // Of IPv6: what is its own passes, also while it asks whether that is free.
        let (own, other) = ("2001:db8::1", "2001:db8::2");
        let honest = [
            discovery(136, own, own, Some(ATTACKER)),
            discovery(135, "::", own, None),
            discovery(135, own, other, None),
            discovery(135, "::", "fe80::ff:fe00:101", None),
            discovery(136, "fe80::1234", "fe80::1234", Some(ATTACKER)),
        ];
        send(&host, &honest);
        assert_eq!(since(&classifier).packets, 50);
        let forged = [
            discovery(136, own, other, Some(ATTACKER)),
            discovery(136, own, own, Some(VICTIM)),
            discovery(136, other, own, Some(ATTACKER)),
            discovery(135, "::", other, None),
            discovery(136, own, "fe80::ff:fe00:102", Some(ATTACKER)),
            discovery(136, "fe80::1", "fe80::1", Some(ATTACKER)),
            discovery(134, "fe80::ff:fe00:101", "::", None),
            discovery(137, "fe80::ff:fe00:101", own, None),
        ];
        send(&host, &forged);
        assert_eq!(since(&classifier).packets, 50 + forged.len() as u64);

        // One without a list may not claim what is in another's.
        let unlisted = Checks { addresses: false, drop: true, router: false };
        let unlisted = Tenant { checks: Some(unlisted), ..tenant(true) };
        classifier.set(&mut host.netlink, &at, &unlisted).unwrap();
        send(&host, &[announcement(ATTACKER, VICTIM_IP), announcement(ATTACKER, "10.9.0.200")]);
        let told_so_far = 50 + forged.len() as u64 + 1;
        assert_eq!(since(&classifier).packets, told_so_far);
        // Nor what is a gateway's, which is owned by the uplink.
        let gateways = ["10.9.0.200", "fe80::77"].map(|ip| as_compared(ip.parse().unwrap()));
        classifier.own(&host.uplink, &gateways.into()).unwrap();
        let gateway = discovery(136, "fe80::77", "fe80::77", Some(ATTACKER));
        send(&host, &[announcement(ATTACKER, "10.9.0.200"), gateway, announcement(ATTACKER, "10.9.0.201")]);
        let told_so_far = told_so_far + 2;
        assert_eq!(since(&classifier).packets, told_so_far);

        // Behind tags that name no VLAN, of which a neighbour takes off any number.
        let tagged = |tags: usize| {
            let plain = announcement(ATTACKER, VICTIM_IP);
            [&plain[..12], &[0x81, 0, 0, 0].repeat(tags), &plain[12..]].concat()
        };
        send(&host, &[tagged(1), tagged(3), tagged(4), tagged(6)]);
        let told_so_far = told_so_far + 4;
        assert_eq!(since(&classifier).packets, told_so_far);

        // Too many, though true.
        send(&host, &vec![announcement(ATTACKER, ATTACKER_IP); 500]);
        let seen = since(&classifier);
        assert!((100..=500).contains(&(seen.floods - told.floods)), "{seen:?}");
        assert_eq!(seen.packets, told_so_far);
        // Answers to one neighbour all pass: else its questions would use up what the guest may send.
        let mut answer = announcement(ATTACKER, ATTACKER_IP);
        answer[..6].copy_from_slice(&VICTIM);
        send(&host, &vec![answer; 500]);
        // The guest's own kernel may ask something meanwhile.
        let more = since(&classifier).floods - seen.floods;
        assert!(more < 10, "{more} of 500");

        // A router may announce itself, with any number of options.
        let router = Tenant { checks: Some(Checks { addresses: true, drop: true, router: true }), ..tenant(true) };
        classifier.set(&mut host.netlink, &at, &router).unwrap();
        let mut announced = discovery(134, "fe80::ff:fe00:101", "::", None);
        announced.truncate(54 + 16);
        announced.extend([5u8, 1, 0, 0, 0, 0, 5, 220].repeat(6));
        announced[19] = 16 + 48;
        send(&host, &[announced]);
        assert_eq!(since(&classifier).packets, told_so_far);
    });
}

#[test]
#[ignore = "root"]
fn a_neighbours_address_is_not_taken() {
    claims(kernels_mode());
}

#[test]
#[ignore = "root"]
fn a_neighbours_address_is_not_taken_by_clsact() {
    claims(AttachMode::Clsact);
}
