use super::*;
use crate::facts::{Provenance, Subject};

const LIMIT: BitRate = BitRate::new(20_000_000);
const OPEN: PacketPath = PacketPath { bridge_netfilter: Some(false), routed: Some(false), card: None };
const FIREWALL: PacketPath = PacketPath { bridge_netfilter: Some(true), routed: Some(false), card: None };
const ROUTED: PacketPath = PacketPath { bridge_netfilter: Some(false), routed: Some(true), card: None };
const UNREAD: PacketPath = PacketPath { bridge_netfilter: None, routed: Some(false), card: None };

fn nic(model: &str, backend: &str) -> Nic {
    let from = Provenance::Transcript { name: "test".into() };
    Nic { model: model.into(), backend: backend.into(), ..Nic::unknown(Subject::net("web1", "net0"), from) }
}

fn sent(model: &str, backend: &str, way: PacketPath) -> Holding {
    holding(&nic(model, backend), way, &Abilities::HTB, Direction::GuestTx, LIMIT)
}

/// The measured table (docs/guard-linux.md), and what follows for cards and sockets.
#[test]
fn what_a_guest_sends_waits_by_card_connection_and_way() {
    use Queue::{Ifb, Uplink};
    let table = [
        ("virtio-net", "tap", OPEN, QueueingPoint::Held, Some(Uplink)),
        ("virtio-net", "tap", FIREWALL, QueueingPoint::Held, Some(Ifb)),
        ("virtio-net", "tap", ROUTED, QueueingPoint::Held, Some(Ifb)),
        ("virtio-net", "tap", UNREAD, QueueingPoint::Held, Some(Ifb)),
        ("e1000", "tap", OPEN, QueueingPoint::Queued, Some(Uplink)),
        ("rtl8139", "tap", OPEN, QueueingPoint::Queued, Some(Uplink)),
        ("veth", "veth", OPEN, QueueingPoint::Queued, Some(Uplink)),
        ("vfio", "vfio", OPEN, QueueingPoint::None, None),
        ("virtio-net", "vhost-user", OPEN, QueueingPoint::None, None),
        ("virtio-net", "vdpa", OPEN, QueueingPoint::None, None),
        ("virtio-net", "macvtap", OPEN, QueueingPoint::None, None),
        ("virtio-net", "user", OPEN, QueueingPoint::None, None),
        ("virtio-net", "af-xdp", OPEN, QueueingPoint::None, None),
    ];
    for (model, backend, way, waits, queue) in table {
        let got = sent(model, backend, way);
        assert_eq!((got.waits, got.queue), (waits, queue), "{model} {backend} {way:?}: {}", got.reason);
        assert_eq!(got.send_buffer_bytes.is_some(), waits == QueueingPoint::Held, "{model} {backend}");
        assert!(!got.reason.is_empty());
    }
    // Whoever waits for a full socket does so only while its packets are charged to it.
    for (way, word) in [(OPEN, "and wait"), (FIREWALL, "dropped"), (ROUTED, "dropped")] {
        let got = sent("veth", "veth", way);
        assert!(got.waits == QueueingPoint::Queued && got.reason.contains(word), "{way:?}: {}", got.reason);
    }
}

#[test]
fn what_could_not_be_read_is_never_promised() {
    let unknown = Nic::unknown(Subject::net("web1", "net0"), Provenance::Transcript { name: "test".into() });
    let got = holding(&unknown, OPEN, &Abilities::HTB, Direction::GuestTx, LIMIT);
    assert_eq!(got.waits, QueueingPoint::None);
    assert!(got.reason.contains("as root"), "{}", got.reason);
    let got = holding(&Nic { backend: "tap".into(), ..unknown }, OPEN, &Abilities::HTB, Direction::GuestTx, LIMIT);
    assert_eq!((got.waits, got.send_buffer_bytes), (QueueingPoint::Queued, None));
}

#[test]
fn received_traffic_waits_on_the_host_where_the_plane_can() {
    let (tap, vf) = (nic("virtio-net", "tap"), nic("vfio", "vfio"));
    let of = |nic: &Nic, plane: &Abilities| holding(nic, OPEN, plane, Direction::GuestRx, LIMIT).waits;
    assert_eq!(of(&tap, &Abilities::HTB), QueueingPoint::Queued);
    assert_eq!(of(&tap, &Abilities { receive: false, ..Abilities::HTB }), QueueingPoint::None);
    let cards = Abilities { card_rates: true, ..Abilities::HTB };
    let none = Abilities { card_rates: false, ..Abilities::HTB };
    assert_eq!(of(&vf, &cards), QueueingPoint::None, "cards limit what is sent alone");
    let function = PacketPath { card: Some(3), ..PacketPath::default() };
    let of = |way, plane: &Abilities| holding(&vf, way, plane, Direction::GuestTx, LIMIT);
    assert_eq!(of(function, &cards).waits, QueueingPoint::Nic);
    for (way, plane, why) in
        [(OPEN, &cards, "of the uplink's own card"), (function, &none, "sets no limit in the card")]
    {
        let got = of(way, plane);
        assert_eq!((got.waits, got.queue), (QueueingPoint::None, None));
        assert!(got.reason.contains(why), "{}", got.reason);
    }
}

#[test]
fn the_send_buffer_follows_the_rate_within_what_was_tried() {
    assert_eq!(send_buffer_bytes(BitRate::ZERO), 20_000);
    assert_eq!(send_buffer_bytes(LIMIT), 25_000);
    assert_eq!(send_buffer_bytes(BitRate::new(1_000_000_000)), 1_250_000);
    assert_eq!(send_buffer_bytes(BitRate::MAX), 4 << 20);
}
