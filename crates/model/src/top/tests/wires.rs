//! Uplinks and guests' interfaces.

use super::*;
use crate::rate::BitRate;

pub(super) fn wire(name: &str, sent: Packets, received: Packets) -> GuestLoad {
    let interface = format!("tap-{name}");
    GuestLoad { nics: vec![NicLoad { interface, queue_packets: None, sent, received }], ..guest(name, vec![]) }
}

fn with_queue(mut guest: GuestLoad) -> GuestLoad {
    guest.nics[0].queue_packets = Some(1000);
    guest
}

pub(super) fn packets(packets: u64, dropped: u64) -> Packets {
    Packets { packets, bytes: packets * 1250, dropped }
}

#[test]
fn wires() {
    let none = Packets::default();
    // 95 of 100 Mbit/s sent; the other direction is idle.
    let speed_bps = Some(BitRate::new(100_000_000));
    let uplink = UplinkLoad { name: "eth0".into(), speed_bps, sent: packets(9500, 0), received: none };
    let guests = vec![wire("a", packets(8000, 0), none), wire("b", packets(1000, 0), none)];
    let full = Interval { seconds: 1.0, traced: true, uplinks: vec![uplink.clone()], guests, ..Interval::default() };
    let verdict = the_one(verdicts(&full, &History::default()));
    assert_eq!(
        verdict.line,
        "uplink eth0 is saturated by guest a (84 % of what was moved): 95.0 Mbit/s of 100 Mbit/s sending"
    );
    // The same over ten seconds is little, and an unknown speed cannot be reached.
    assert_eq!(verdicts(&Interval { seconds: 10.0, ..full.clone() }, &History::default()), []);
    let unknown = UplinkLoad { speed_bps: None, ..uplink };
    assert_eq!(verdicts(&Interval { uplinks: vec![unknown.clone()], ..full.clone() }, &History::default()), []);
    let drops = UplinkLoad { received: packets(900, 100), ..unknown };
    let verdict = the_one(verdicts(&Interval { uplinks: vec![drops], ..full.clone() }, &History::default()));
    assert!(verdict.line.starts_with("uplink eth0 drops packets: ") && verdict.culprits.is_empty(), "{}", verdict.line);
    let mut inside = full.clone();
    inside.guests[1].nics[0].sent = packets(9000, 0);
    let among = the_one(verdicts(&inside, &History::default()));
    assert!(among.line.starts_with("uplink eth0 is saturated, by which guest is unknown: "), "{}", among.line);
    assert!(verdict.line.ends_with("receiving, 100 packets a second (10 %) dropped"), "{}", verdict.line);
    // Drops at taps: in both directions; a few are ignored.
    for (guest, line) in [
        (
            wire("a", none, packets(960, 40)),
            Some("guest a does not take its packets fast enough: 40 packets a second (4 %) dropped at tap-a"),
        ),
        (
            wire("a", packets(960, 40), none),
            Some("the host drops what guest a sends: 40 packets a second (4 %) dropped at tap-a"),
        ),
        (
            with_queue(wire("a", none, packets(960, 40))),
            Some(
                "guest a does not take its packets fast enough: 40 packets a second (4 %) dropped at tap-a, whose queue \
                 of 1000 is full (vmio scan: guest-drops)",
            ),
        ),
        (wire("a", packets(100, 4), none), None),
        (wire("a", packets(1_000_000, 40), none), None),
    ] {
        let found =
            verdicts(&Interval { seconds: 1.0, guests: vec![guest], ..Interval::default() }, &History::default());
        assert_eq!(found.first().map(|v| v.line.as_str()), line);
        // It is on the page of its guest.
        assert!(found.iter().all(|v| v.name == "tap-a" && v.guests == ["a"]), "{found:?}");
    }
}
