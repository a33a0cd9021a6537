//! Made-up facts of running guests.

use std::collections::BTreeMap;

use crate::facts::{
    Below, Details, Disk, Facts, Hop, HopKind, HostCpu, Mounted, Nic, PlacedThread, Processors, Provenance, Subject,
    ToGuest,
};
use crate::result::Accel;

/// Source of the facts.
pub fn read_from_db1() -> Provenance {
    Provenance::Live { guest: "db1".into(), read_from: "virsh dumpxml db1".into(), at_unix_seconds: 1.0 }
}

/// A disk with virtio-blk of which nothing else is known.
pub fn live_disk(details: Details) -> Disk {
    Disk {
        driver: "virtio-blk".into(),
        cache: "none".into(),
        aio: "native".into(),
        iothread: Some(true).into(),
        details,
        ..Disk::unknown(Subject::disk("db1", "vda"), read_from_db1())
    }
}

/// A network device without faults.
pub fn live_nic() -> Nic {
    Nic {
        model: "virtio-net".into(),
        backend: "tap".into(),
        interface: "tap0".into(),
        bridge: "br0".into(),
        vhost: Some(true).into(),
        vhost_here: Some(true).into(),
        queues: Some(4).into(),
        vcpus: Some(4).into(),
        windows: Some(false).into(),
        tap_header: Some(true).into(),
        ring_packets: Some(256).into(),
        to_guest: Some(ToGuest { packets: 1_000_000, dropped_packets: 0, queue_packets: Some(1000) }).into(),
        mtu_bytes: Some(1500).into(),
        guest_mtu_bytes: Some(1500).into(),
        bridge_mtu_bytes: Some(1500).into(),
        way: way(1500).into(),
        bridge_netfilter: Some(false).into(),
        ..Nic::unknown(Subject::net("db1", "tap0"), read_from_db1())
    }
}

/// From `tap0` by `br0` to a network card, `eth0`, that takes packets of so many bytes.
pub fn way(card_mtu_bytes: u64) -> Vec<Hop> {
    let hop = |interface: &str, kind, mtu| Hop {
        interface: interface.into(),
        kind,
        mtu_bytes: Some(mtu),
        driver: (kind == HopKind::Card).then(|| "igb".into()),
        here: true,
    };
    vec![hop("tap0", HopKind::Tap, 1500), hop("br0", HopKind::Bridge, 1500), hop("eth0", HopKind::Card, card_mtu_bytes)]
}

/// Processors without faults: four vCPUs on the processors 2 to 5 of eight, one each, and an I/O thread on 6 and 7. The
/// host has two nodes of four.
pub fn live_processors() -> Processors {
    let thread = |role: &str, name: &str, cpus: &[u32]| PlacedThread {
        role: role.into(),
        name: name.into(),
        tid: 100 + cpus[0],
        cpus: cpus.to_vec(),
    };
    let mut threads: Vec<PlacedThread> = (0..4).map(|n| thread("vcpu", &n.to_string(), &[n + 2])).collect();
    threads.push(thread("iothread", "iothread0", &[6, 7]));
    Processors {
        vcpus: Some(4).into(),
        accel: Some(Accel::Kvm).into(),
        kvm_here: Some(true).into(),
        model: "host".into(),
        windows: Some(false).into(),
        hpet: Some(false).into(),
        clock_source: "tsc".into(),
        threads: threads.into(),
        host: (0..8).map(|cpu| HostCpu { cpu, core: cpu, package: cpu / 4, node: cpu / 4 }).collect(),
        memory_bytes: Some(4 << 30).into(),
        memory_by_node: BTreeMap::from([(0, 2 << 30), (1, 2 << 30)]).into(),
        huge_pages: Some(false).into(),
        ..Processors::unknown(Subject::guest("db1"), read_from_db1())
    }
}

/// The facts of one network device.
pub fn of_nic(nic: Nic) -> Facts {
    Facts { nics: vec![nic], ..Facts::default() }
}

/// The facts of one guest's processors.
pub fn of_processors(processors: Processors) -> Facts {
    Facts { processors: vec![processors], ..Facts::default() }
}

/// The facts of one disk.
pub fn settings(details: Details) -> Facts {
    Facts { disks: vec![live_disk(details)], ..Facts::default() }
}

/// Storage below a disk whose file is on a file system.
pub fn on_filesystem(name: &str) -> Below {
    let mounted = Mounted { filesystem: name.into(), point: "/srv".into(), device: "8:1".into(), options: "rw".into() };
    Below { mounted: Some(mounted).into(), ..Below::default() }
}
