#![allow(clippy::unwrap_used)]

use std::os::unix::net::UnixListener;

use vmio_model::policy::Direction;
use vmio_model::rate::BitRate;
use vmio_model::top::load::{GuestLoad, NicLoad};
use vmio_model::top::rows::rows;

use super::*;
use crate::top::columns::{self, Set};

const STATUS: &str = include_str!("status.json");

fn status(held: f64, dropped: u64) -> Status {
    let mut status: Status = serde_json::from_str(STATUS).unwrap();
    let tap = &mut status.pools[0].members[1];
    (tap.held_seconds_total, tap.dropped_packets_total) = (held, dropped);
    status
}

fn interval() -> Interval {
    let nic = |interface: &str| NicLoad { interface: interface.into(), ..NicLoad::default() };
    let guest = |name: &str, nics: &[&str]| GuestLoad {
        name: name.into(),
        kind: "qemu".into(),
        pid: None,
        vmid: None,
        uuid: None,
        disk_source: vmio_model::top::load::DiskSource::None,
        disks: Vec::new(),
        nics: nics.iter().map(|name| nic(name)).collect(),
        ..GuestLoad::default()
    };
    Interval { seconds: 1.0, guests: vec![guest("web", &["tap0"]), guest("other", &["tap9"])], ..Interval::default() }
}

fn cells(guest: &GuestRow) -> Vec<String> {
    let titles = ["RXMIN", "RXLIM", "TXMIN", "TXLIM", "HELD%", "LOST"];
    titles.iter().map(|title| columns::find(title).unwrap().cell(guest)).collect()
}

#[test]
fn limits_stand_beside_the_guests_that_they_hold() {
    let interval = interval();
    let mut guests = rows(&interval).guests;
    let none = columns::Known { guard: false, calls: false };
    assert!(columns::fitting(250, 10, Set::Overview, none).iter().all(|c| c.title != "TXLIM"));
    let counts = beside(&status(1.0, 10), None, &interval, &mut guests).1;
    assert_eq!(cells(&guests[0]), ["10.0", "20.0", "40.0", "100", "-", "-"], "nothing is known of before");
    assert_eq!(guests[1].guard, Some(Vec::new()), "it is nobody's there");
    // Half of the time held back, and 20 packets in 2 s.
    let before = Instant::now() - Duration::from_secs(2);
    beside(&status(2.0, 30), Some((before, counts)), &interval, &mut guests);
    let of: Vec<_> = guests[0].guard.as_ref().unwrap().iter().map(|m| (m.direction, m.limit_bps)).collect();
    assert_eq!(of, [(Direction::GuestTx, None), (Direction::GuestRx, Some(BitRate::new(20_000_000)))]);
    assert_eq!(&cells(&guests[0])[4..], ["50", "10"]);
    assert_eq!(cells(&guests[1]), ["-"; 6]);
}

#[test]
fn where_no_guard_is_there_is_nothing_and_one_that_does_not_answer_is_noted() {
    let (dir, interval) = (tempfile::tempdir().unwrap(), interval());
    let mut guests = rows(&interval).guests;
    let socket = dir.path().join("guard.sock");
    assert_eq!(Guard::at(&socket).ask(&interval, &mut guests), None);
    assert!(guests.iter().all(|guest| guest.guard.is_none()));
    // Somebody listens and says nothing: it is waited for once.
    let _listener = UnixListener::bind(&socket).unwrap();
    let mut guard = Guard::at(&socket);
    let why = guard.ask(&interval, &mut guests).unwrap();
    assert!(why.starts_with("limits of guests are not shown"), "{why}");
    assert_eq!(guard.ask(&interval, &mut guests), Some(why));
}
