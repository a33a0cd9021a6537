//! No rule may fire on a guest that is set up as vmio itself recommends, nor on one of which nothing is
//! known.

use super::findings;
use crate::facts::{Details, Disk, Facts, Guest, Nic, Place, Processors};
use crate::testing::{live_disk, live_nic, live_processors, read_from_db1};

/// A guest by the book: a raw block device by this driver with an I/O thread of its own, virtio-net
/// with vhost, pinned vCPUs of the host's model.
fn by_the_book(driver: &str, windows: bool) -> Guest {
    let details = Details {
        storage: Some("block".into()),
        format: Some("raw".into()),
        virtual_bytes: Some(64 << 30),
        allocated_bytes: Some(64 << 30),
        backing_files: Some(0),
        thin: Some(false),
        discard: Some(true),
        alike_in_guest: Some(1),
        queues: Some(4),
        iothread_name: Some("iothread1".into()),
        host_cached_bytes: Some(0),
        ..Details::default()
    };
    let place = Place { source: Some("/dev/vg0/db1".into()), block_device: Some(true), ..Place::default() };
    let disk = Disk { driver: Some(driver.into()), sparse: Some(false), place, ..live_disk(details) };
    let flags = if windows { vec!["hv_relaxed".into(), "hv_vapic".into(), "hv_time".into()] } else { Vec::new() };
    // Several queues made Windows slower.
    let queues = Some(if windows { 1 } else { 4 });
    Guest {
        name: "db1".into(),
        kind: "qemu".into(),
        os: Some((if windows { "windows" } else { "linux" }).into()),
        disks: vec![disk],
        nics: vec![Nic { queues, windows: Some(windows), ..live_nic() }],
        processors: Some(Processors { windows: Some(windows), flags, ..live_processors() }),
        ..Guest::default()
    }
}

#[test]
fn a_guest_by_the_book_has_no_findings() {
    for driver in ["virtio-blk", "virtio-scsi"] {
        for windows in [false, true] {
            assert_eq!(findings(&by_the_book(driver, windows).facts()), [], "{driver}, windows: {windows}");
        }
    }
}

#[test]
fn a_guest_of_which_nothing_is_known_has_no_findings() {
    let from = read_from_db1;
    let facts = Facts {
        disks: vec![Disk::unknown("guest db1, disk vda", from())],
        nics: vec![Nic::unknown("guest db1, net tap0", from())],
        processors: vec![Processors::unknown("guest db1", from())],
        measured: None,
    };
    assert_eq!(findings(&facts), []);
    assert_eq!(findings(&Guest::default().facts()), []);
}
