//! The one thing in which two cells differ.

use super::*;
use crate::cell::{Actor, Millis, Nic, Shape, Side, State, Subject};
use crate::testing::{guest, native, traits, virtio};

/// What differs, the same in both directions.
fn of(before: &Cell, after: &Cell) -> Option<Changed> {
    let there = changed(before, after, &traits());
    assert_eq!(there, changed(after, before, &traits()));
    there
}

fn amended(cell: &Cell, change: impl Fn(&mut Cell)) -> Cell {
    let mut cell = cell.clone();
    change(&mut cell);
    cell
}

fn set(cell: &Cell, settings: &[(&str, &str)]) -> Cell {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Cell { settings, ..cell.clone() }
}

#[test]
fn one_thing_of_a_disk() {
    let cell = virtio("device", "rand-read-1");
    assert_eq!(of(&cell, &cell), None);
    assert_eq!(of(&cell, &guest("device", "ahci", "rand-read-1")), Some(Changed::Driver));
    assert_eq!(of(&cell, &virtio("sparse", "rand-read-1")), Some(Changed::Target));
    assert_eq!(of(&cell, &virtio("device", "rand-read-32")), Some(Changed::Depth));
    let threaded = amended(&cell, |c| c.attachment_mut().unwrap().iothread = true);
    assert_eq!(of(&cell, &threaded), Some(Changed::Iothread));
    let discarding = amended(&cell, |c| c.attachment_mut().unwrap().options.discard = true);
    assert_eq!(of(&cell, &discarding), Some(Changed::Options));
    // Two differences, and another side.
    assert_eq!(of(&threaded, &virtio("sparse", "rand-read-1")), None);
    assert_eq!(of(&cell, &guest("sparse", "ahci", "rand-read-1")), None);
    assert_eq!(of(&cell, &native("device", "rand-read-1")), None);
    assert_eq!(of(&native("device", "seq-read"), &native("sparse", "seq-read")), Some(Changed::Target));
    // Another state is not another target, and any other difference makes two.
    let filled = |cell: &Cell| {
        amended(cell, |c| {
            let Subject::Disk { state, .. } = &mut c.lead.subject else { panic!("it is on a disk") };
            *state = Some(State::Filled);
        })
    };
    assert_eq!(of(&cell, &filled(&cell)), None);
    assert_eq!(of(&cell, &filled(&virtio("sparse", "rand-read-1"))), None);
    assert_eq!(of(&filled(&cell), &filled(&virtio("sparse", "rand-read-1"))), Some(Changed::Target));
}

#[test]
fn one_setting_and_nothing_else() {
    let cell = virtio("device", "rand-read-1");
    let (small, large) = (set(&cell, &[("read-ahead", "0k")]), set(&cell, &[("read-ahead", "128k")]));
    assert_eq!(of(&small, &large), Some(Changed::Setting));
    assert_eq!(of(&cell, &small), Some(Changed::Setting), "against what was found");
    assert_eq!(of(&small, &set(&cell, &[("read-ahead", "128k"), ("mtu", "9000")])), None);
    assert_eq!(of(&small, &set(&cell, &[("mtu", "9000")])), None);
    assert_eq!(of(&small, &set(&virtio("sparse", "rand-read-1"), &[("read-ahead", "128k")])), None);
    assert_eq!(
        of(&small, &set(&guest("device", "ahci", "rand-read-1"), &[("read-ahead", "0k")])),
        Some(Changed::Driver)
    );
}

#[test]
fn another_time_shape_or_neighbour_is_nothing_to_compare() {
    let cell = virtio("device", "rand-read-1");
    let later = amended(&cell, |c| c.lead.start = Millis(500));
    assert_eq!(of(&cell, &later), None);
    assert_eq!(of(&cell, &amended(&cell, |c| c.lead.duration = Some(Millis(500)))), None);
    let large = Shape { vcpus: Some(4), ..Shape::default() };
    assert_eq!(of(&cell, &amended(&cell, |c| c.lead.side.shape = large.clone())), None);
    let neighbour = Actor { side: Side { nth: 1, ..Side::of("qemu") }, ..cell.lead.clone() };
    assert_eq!(of(&cell, &amended(&cell, |c| c.beside.push(neighbour.clone()))), None);
}

#[test]
fn one_thing_of_a_path() {
    let on = |network: &str, nic: Option<Nic>| {
        let path = crate::cell::Subject::path(network, "host", nic.clone());
        Cell::of(Side::of(if nic.is_some() { "qemu" } else { "native" }), path, "iperf3")
    };
    let cell = on("bridge", Some(Nic::new("e1000")));
    assert_eq!(of(&cell, &on("bridge", Some(Nic::new("virtio-net")))), Some(Changed::Nic));
    assert_eq!(of(&cell, &on("bridge", Some(Nic { vhost: true, ..Nic::new("e1000") }))), Some(Changed::Nic));
    assert_eq!(of(&cell, &on("veth", Some(Nic::new("e1000")))), None);
    assert_eq!(of(&on("bridge", None), &on("veth", None)), None);
    let with_another = amended(&on("bridge", Some(Nic::new("virtio-net"))), |cell| {
        let crate::cell::Subject::Path { co_sender, .. } = &mut cell.lead.subject else { panic!("it is on a path") };
        *co_sender = Some("neighbour".into());
    });
    assert_eq!(of(&cell, &with_another), None);
}
