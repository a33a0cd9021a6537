#![allow(clippy::unwrap_used)]
use super::*;

fn guest(workload: &str) -> Cell {
    Cell::on("qemu", "device", Some(Attachment::new("virtio-blk", Cache::None, Aio::Native)), workload)
}

#[test]
fn a_key_says_all_that_differs() {
    let cell = guest("seq-write");
    assert_eq!(cell.key(), "device/qemu/virtio-blk,none,native/seq-write");
    assert_eq!(cell.place_key(), "device/qemu/virtio-blk,none,native");
    assert_eq!(cell.natively().key(), "device/native/seq-write");
    let mut two = cell.clone();
    let second = Actor {
        side: Side { nth: 1, ..Side::of("qemu") },
        start: Millis::from_seconds(0.5),
        duration: Some(Millis(2000)),
        ..guest("rand-read-1").lead
    };
    two.beside.push(second);
    two.settings.insert("read-ahead".into(), "4096k".into());
    assert_eq!(
        two.key(),
        "device/qemu/virtio-blk,none,native/seq-write & device/qemu#2/virtio-blk,none,native/rand-read-1@0.5s~2s \
         [read-ahead=4096k]"
    );
    let shape = Shape { vcpus: Some(2), pins: vec![0, 1], ..Shape::default() };
    let side = Side { shape, ..Side::of("qemu") };
    assert_eq!(Cell::of(side, Subject::Machine, "openssl").key(), "machine/qemu:vcpus=2:pins=0+1/openssl");
    let mut warm = cell.clone();
    let Subject::Disk { state, .. } = &mut warm.lead.subject else { panic!("it is on a disk") };
    *state = Some(State::WarmGuest);
    assert_eq!(warm.key(), "device+warm-guest/qemu/virtio-blk,none,native/seq-write");
    assert_eq!(warm.natively().key(), "device+warm-host/native/seq-write", "its own page cache is the host's");
    assert!(warm.is_warm() && warm.disk().is_none() && !cell.is_warm() && cell.disk().is_some());
    let mut below = |of: State| {
        let Subject::Disk { state, .. } = &mut warm.lead.subject else { panic!("it is on a disk") };
        *state = Some(of);
        warm.lead.is_warm_below()
    };
    assert_eq!(State::ALL.map(&mut below), [false, false, false, true, true]);
    assert!(warm.natively().lead.is_warm_below(), "of a flash cache the host has its own, too");
    let path = |nic: Option<Nic>| Subject::path("bridge", "host", nic);
    let nic = Nic { vhost: true, queues: Some(4), ..Nic::new("virtio-net") };
    assert_eq!(
        Cell::of(Side::of("qemu"), path(Some(nic)), "iperf3-tcp").key(),
        "bridge.host/qemu/virtio-net+vhost+q4/iperf3-tcp"
    );
    let both = |side: Side| {
        let nic = (!side.is_native()).then(|| Nic::new("virtio-net"));
        let (network, peer, co_sender) = ("shared".into(), "remote".into(), Some(NEIGHBOUR.into()));
        Cell::of(side, Subject::Path { network, peer, nic, co_sender }, "udp")
    };
    let guests = both(Side::of("qemu"));
    assert_eq!(guests.key(), "shared.remote+neighbour/qemu/virtio-net/udp");
    assert_eq!(guests.natively(), both(Side::native()), "what it is compared with has two senders, too");
    let sides: Vec<String> = guests.with_neighbours().map(|actor| actor.side.to_string()).collect();
    assert_eq!(sides, ["qemu", "qemu#2"]);
    assert_eq!(both(Side::native()).lead.neighbour(), None, "a namespace");
    let text = serde_json::to_string(&guests).unwrap();
    assert!(text.contains("\"co_sender\":\"neighbour\"") && serde_json::from_str::<Cell>(&text).unwrap() == guests);
}

/// Cells with a state read back, and cells stored without one have none.
#[test]
fn a_state_goes_there_and_back() {
    for state in State::ALL {
        let mut cell = guest("seq-read");
        let Subject::Disk { state: of, .. } = &mut cell.lead.subject else { panic!("it is on a disk") };
        *of = Some(state);
        let text = serde_json::to_string(&cell).unwrap();
        assert!(text.contains(&format!("\"state\":\"{state}\"")), "{text}");
        assert_eq!(serde_json::from_str::<Cell>(&text).unwrap(), cell);
    }
}

/// The common stored form has no empty members.
#[test]
fn a_plain_cell_is_stored_plainly() {
    let stored = serde_json::to_value(guest("seq-write").natively()).unwrap();
    let wanted = serde_json::json!({
        "side": {"kind": "native"}, "subject": {"disk": {"target": "device", "attachment": null}}, "workload": "seq-write",
    });
    assert_eq!(stored, wanted);
    for cell in [guest("a"), guest("b").natively()] {
        let text = serde_json::to_string(&cell).unwrap();
        assert_eq!(serde_json::from_str::<Cell>(&text).unwrap(), cell);
    }
}

#[test]
fn what_a_cell_is_compared_with_is_the_studys_word() {
    let cell = guest("seq-write");
    let native = Baseline::Native;
    assert_eq!(native.of(&cell).unwrap(), cell.natively());
    assert!(native.is(&cell.natively()) && !native.is(&cell));
    assert_eq!(Baseline::None.of(&cell), None);
    let other = Baseline::Like(Like { side: Some("container".into()), ..Like::default() });
    assert_eq!(other.of(&cell).unwrap().key(), "device/container/seq-write", "it has no device of a machine");
    let mut tuned = cell.clone();
    tuned.settings.insert("read-ahead".into(), "128k".into());
    let cold = Baseline::Like(Like { state: Some(State::Filled), ..Like::default() });
    assert_eq!(cold.of(&cell).unwrap().key(), "device+filled/qemu/virtio-blk,none,native/seq-write");
    let warm = Like { side: Some("native".into()), state: Some(State::WarmGuest), ..Like::default() };
    assert_eq!(Baseline::Like(warm).of(&cell).unwrap().key(), "device+warm-host/native/seq-write");
    let plain = Baseline::Like(Like { settings: Some(Settings::new()), ..Like::default() });
    assert_eq!(plain.of(&tuned).unwrap(), cell);
    assert!(plain.is(&cell) && !plain.is(&tuned));
    tuned.beside.push(guest("rand-read-1").lead);
    let alone = Baseline::Like(Like { alone: true, ..Like::default() });
    assert_eq!(alone.of(&tuned).unwrap().beside, []);
}
