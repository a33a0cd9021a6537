//! Memory and reads by `domstats`.

use vmio_model::facts::{Balloon, GuestMemory};

use super::*;

/// Written by virsh(1), domstats; the recording has no statistics.
const TOLD: &str = "Domain: 'other'\n  balloon.current=1\n  block.0.name=vda\n  block.0.rd.bytes=7\n\n\
    Domain: 'db1'\n  balloon.current=131072\n  balloon.maximum=262144\n  balloon.last-update=1000\n  \
    balloon.unused=1024\n  balloon.available=250000\n  balloon.usable=4096\n  balloon.rss=99\n  \
    balloon.major_fault=12\n  balloon.swap_in=8\n  block.count=1\n  \
    block.0.name=vda\n  block.0.rd.reqs=20\n  block.0.rd.bytes=81920\n  block.0.wr.bytes=5\n";

#[test]
fn what_the_description_tells_is_what_the_balloon_leaves() {
    let db1 = of(&host(), "db1").processors.unwrap();
    assert_eq!(*db1.balloon, Some(Balloon { actual_bytes: 256 << 20, statistics: None }));
    let without = "<domain type='kvm' id='1'><name>a</name><currentMemory>1024</currentMemory>\
                   <devices><memballoon model='none'/></devices></domain>";
    assert_eq!(*written(without).processors.unwrap().balloon, None);
}

#[test]
fn statistics_and_reads_are_those_of_the_domain() {
    let fake = host();
    let mut look = HostView::new(&fake);
    let told = |look: &HostView<'_>| {
        let mut guests = vec![of(&fake, "db1")];
        super::super::memory::put(look, TOLD, "virsh", &mut guests);
        guests.remove(0)
    };
    look.at_unix_seconds = 1200.0;
    let guest = told(&look);
    let statistics = GuestMemory {
        free_bytes: 1 << 20,
        available_bytes: Some(4 << 20),
        cache_bytes: None,
        at_unix_seconds: 1000,
        major_faults: Some(12),
        swapped_in_bytes: Some(8 << 10),
    };
    let whole = Some(Balloon { actual_bytes: 128 << 20, statistics: Some(statistics) });
    assert_eq!(*guest.processors.unwrap().balloon, whole);
    let read = guest.disks[0].details.read_bytes.clone();
    assert_eq!((*read, read.source()), (Some(81_920), Some(&"virsh domstats db1".into())));
    assert_eq!(*guest.disks[1].details.read_bytes, None);
    // Nobody has polled it for an hour.
    look.at_unix_seconds = 4600.0;
    assert_eq!(told(&look).processors.unwrap().balloon.unwrap().statistics, None);
}

#[test]
fn monitors_are_asked_where_that_was_allowed() {
    let asked = |monitor: bool| {
        let fake = host();
        let mut look = HostView::new(&fake);
        look.monitor = monitor;
        Libvirt.guests(&look);
        let scripts = fake.ran().into_iter().map(|exec| String::from_utf8_lossy(&exec.stdin).into_owned());
        scripts.filter(|script| script.starts_with("domstats")).collect::<Vec<_>>()
    };
    assert_eq!(asked(false), [] as [&str; 0]);
    let with = asked(true);
    assert!(with.len() == 1 && with[0].starts_with("domstats --block --balloon --nowait "), "{with:?}");
}
