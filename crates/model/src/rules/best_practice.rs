//! No rule may fire on a guest set up as vmio recommends, nor on one without known facts.

#![allow(clippy::unwrap_used)]

use super::contract::OF_HOST;
use super::hyperv::{ADVISED, TIMERS};
use super::{Finding, Severity, findings};
use crate::cell::Kind;
use crate::facts::{
    Busiest, Conntrack, DeletedFile, Details, Disk, Facts, Governor, Guest, HostSeen, HostState, IoWeight, Ksm,
    LimitedAt, Nic, Overridden, Place, PlacedThread, Processors, RateLimit, Setting, Subject, ToGuest, Uplink,
    WeightedDisk,
};
use crate::policy::Direction;
use crate::rate::MBIT;
use crate::result::Accel;
use crate::testing::{live_disk, live_nic, live_processors, read_from_db1, way};

/// A well-configured guest: a raw block device with this driver and its own I/O thread, virtio-net with vhost, pinned
/// vCPUs of the host's model.
fn by_the_book(driver: &str, windows: bool) -> Guest {
    let details = Details {
        storage: "block".into(),
        format: "raw".into(),
        virtual_bytes: Some(64 << 30).into(),
        allocated_bytes: Some(64 << 30).into(),
        backing_files: Some(0).into(),
        thin: Some(false).into(),
        discard: Some(true).into(),
        alike_in_guest: Some(1).into(),
        queues: Some(4).into(),
        iothread_name: "iothread1".into(),
        host_cached_bytes: Some(0).into(),
        ..Details::default()
    };
    let place = Place { source: "/dev/vg0/db1".into(), block_device: Some(true), ..Place::default() };
    let disk = Disk { driver: Some(driver.into()).into(), sparse: Some(false).into(), place, ..live_disk(details) };
    let flags: Vec<String> = if windows { ADVISED.into_iter().map(str::to_owned).collect() } else { Vec::new() };
    // Several queues made Windows slower.
    let queues = Some(if windows { 1 } else { 4 });
    Guest {
        name: "db1".into(),
        kind: "qemu".into(),
        os: Some((if windows { "windows" } else { "linux" }).into()),
        disks: vec![disk],
        nics: vec![Nic { queues: queues.into(), windows: Some(windows).into(), ..live_nic() }],
        processors: Some(Processors { windows: Some(windows).into(), flags: flags.into(), ..live_processors() }),
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
        disks: vec![Disk::unknown(Subject::disk("db1", "vda"), from())],
        nics: vec![Nic::unknown(Subject::net("db1", "tap0"), from())],
        processors: vec![Processors::unknown(Subject::guest("db1"), from())],
        ..Facts::default()
    };
    assert_eq!(findings(&facts), []);
    assert_eq!(findings(&Guest::default().facts()), []);
}

/// Names of guest 101's devices in its configuration.
fn place(target: &str, slot: &str) -> Place {
    Place {
        domain: Some("web 1".into()),
        vmid: Some("101".into()),
        source: "/images/web 1.raw".into(),
        block_device: Some(false),
        target: Some(target.into()),
        slot: Some(slot.into()),
        volume: Some("local:101/vm-101-disk-0.raw".into()),
        device_id: Some(format!("id-{slot}")),
        ..Place::default()
    }
}

/// Guests with every wrong setting.
pub(super) fn all_wrong() -> Vec<Facts> {
    let overridden =
        || vec![Overridden { setting: Setting::Aio, asked: "native".into(), found: "threads".into(), why: None }];
    let disk = |n: usize, driver: &str, cache: &str, aio: &str| Disk {
        subject: Subject::disk("db1", format!("sd{n}")),
        driver: Some(driver.into()).into(),
        cache: Some(cache.into()).into(),
        aio: Some(aio.into()).into(),
        iothread: Some(false).into(),
        sparse: Some(true).into(),
        place: place("sda", "scsi0"),
        ..live_disk(Details {
            storage: Some(["file", "zvol", "iscsi"][n % 3].into()).into(),
            format: "qcow2".into(),
            virtual_bytes: Some(1 << 40).into(),
            cluster_bytes: Some(64 << 10).into(),
            l2_cache_bytes: Some(1 << 20).into(),
            backing_files: Some(3).into(),
            thin: Some(true).into(),
            discard: Some(false).into(),
            volblock_bytes: Some(128 << 10).into(),
            alike_in_guest: Some(24).into(),
            queues: Some(1).into(),
            iothread_name: "iothread1".into(),
            host_cached_bytes: Some(1 << 30).into(),
            read_bytes: Some(8 << 30).into(),
            in_memory: "tmpfs".into(),
            // Where tmpfs takes direct I/O.
            host: Some(HostSeen { kernel: Some((6, 12)), ..HostSeen::default() }).into(),
            deleted: vec![DeletedFile {
                path: "/images/web 1.raw".into(),
                pid: 812,
                fd: 31,
                replaced: n.is_multiple_of(2),
            }]
            .into(),
            limits: vec!["1000 IOPS by QEMU's throttle".into()].into(),
            overridden: overridden(),
            ..Details::default()
        })
    };
    let disks =
        ["virtio-blk", "virtio-scsi", "lsi53c895a", "ahci", "ide"].into_iter().enumerate().flat_map(|(n, driver)| {
            [("unsafe", "threads"), ("writeback", "native"), ("none", "threads"), ("none", "native")]
                .map(|(cache, aio)| disk(n, driver, cache, aio))
        });
    let mut disks: Vec<Disk> = disks.collect();
    let raw = Details { format: "raw".into(), ..Details::default() };
    let device = Place { source: "/dev/vg0/web1".into(), block_device: Some(true), ..place("vdb", "virtio1") };
    disks.push(Disk { aio: "threads".into(), place: device, ..live_disk(raw) });
    // Faults of the storage below are not beside others.
    for id in [
        "direct-io-on-checksums",
        "copy-on-write-below",
        "sector-size-not-passed",
        "exchange-format",
        "discard-goes-nowhere",
        "discard-storm",
        "shared-journal",
        "io-uring-hangs",
    ] {
        let wrong = (super::Rule::find(id).unwrap().fixture.0)().disks;
        disks.extend(wrong.into_iter().map(|disk| Disk { place: place("vdb", "virtio1"), ..disk }));
    }
    let nic = |model: &str, backend: &str| Nic {
        model: Some(model.into()).into(),
        backend: Some(backend.into()).into(),
        vhost: Some(false).into(),
        queues: Some(1).into(),
        mtu_bytes: Some(1400).into(),
        way: way(1400).into(),
        bridge_netfilter: Some(true).into(),
        offloads_off: vec!["host_tso4".into()].into(),
        to_guest: Some(ToGuest { packets: 90_000, dropped_packets: 10_000, queue_packets: Some(1000) }).into(),
        uplink: Some(Uplink {
            name: "eth 0".into(),
            driver: Some("e1000e".into()),
            transmit_timeouts: Some(3),
            link_losses: Some(9),
            received_packets: Some(1_000_000),
            missed_packets: Some(10_000),
            ring_packets: Some(256),
            ring_most_packets: Some(4096),
            segmentation: Some(true),
            host_up_seconds: Some(86_400),
        })
        .into(),
        conntrack: Some(Conntrack {
            count: 262_000,
            max: 262_144,
            dropped_packets: Some(70_000),
            evicted: Some(9000),
            busiest: Some(Busiest { guest: "web 1".into(), connections: 12_200, looked_at: 20_000 }),
        })
        .into(),
        rate_limits: vec![
            RateLimit { at: Some(LimitedAt::Root), ..RateLimit::new("libvirt", Direction::GuestRx, MBIT, false) },
            RateLimit {
                burst_bytes: Some(1 << 10),
                at: Some(LimitedAt::Ingress),
                dropped_packets: Some(41),
                platform: Some("cloudstack".into()),
                ..RateLimit::new("libvirt", Direction::GuestTx, MBIT, true)
            },
        ]
        .into(),
        overridden: overridden(),
        place: place("52:54:00:12:34:56", "net0"),
        ..live_nic()
    };
    let single = Nic {
        vhost: Some(true).into(),
        windows: None.into(),
        rate_limits: Vec::new().into(),
        ..nic("virtio-net", "tap")
    };
    let bsd = Nic { queues: Some(4).into(), os: "bsd".into(), ..nic("virtio-net", "tap") };
    let nics = vec![nic("e1000", "user"), nic("rtl8139", "tap"), nic("virtio-net", "tap"), single, bsd];
    let thread = |role: &str, name: &str| PlacedThread { role: role.into(), name: name.into(), tid: 7, cpus: vec![0] };
    let governor =
        Governor { driver: "acpi-cpufreq".into(), governor: "powersave".into(), preference: None, cpus: vec![0] };
    let ksm = Ksm { saved_bytes: 0, memory_bytes: 8 << 30, run_seconds: 900, up_seconds: 1000, across_nodes: true };
    let unheld = WeightedDisk { name: "sda".into(), number: "8:0".into(), scheduler: "none".into(), iocost: false };
    let wrong = Processors {
        model: "qemu64".into(),
        windows: Some(true).into(),
        hpet: Some(true).into(),
        clock_source: "acpi_pm".into(),
        quota_cpus: Some(0.5).into(),
        swapped_bytes: Some(1 << 30).into(),
        free_page_reporting: Some(false).into(),
        io_weight: Some(IoWeight { weight: 300, v1: false, disks: vec![unheld] }).into(),
        host_state: Some(HostState { governors: vec![governor], ksm: Some(ksm), ..HostState::default() }).into(),
        threads: vec![thread("vcpu", "0"), thread("vcpu", "1"), thread("iothread", "iothread1"), thread("vhost", "")]
            .into(),
        overridden: overridden(),
        place: place("", ""),
        ..live_processors()
    };
    // A guest in swap is given no more memory.
    let lacking = super::memory_in_host_cache::fixture::processors(8 << 30);
    let emulated = Processors {
        accel: Some(Accel::Tcg).into(),
        swapped_bytes: None.into(),
        balloon: lacking.balloon,
        storage_read_bytes: lacking.storage_read_bytes,
        host_state: lacking.host_state,
        ..wrong.clone()
    };
    let timed = Processors { flags: TIMERS.into_iter().map(str::to_owned).collect(), ..wrong.clone() };
    let of = |processors| Facts {
        disks: disks.clone(),
        nics: nics.clone(),
        processors: vec![processors],
        ..Facts::default()
    };
    vec![of(wrong), of(emulated), Facts { processors: vec![timed], ..Facts::default() }]
}

fn all_findings() -> Vec<Finding> {
    all_wrong().iter().flat_map(findings).collect()
}

/// Every rule for running guests has a finding in one of them.
#[test]
fn every_live_rule_fires_where_all_is_wrong() {
    let found = all_findings();
    let silent: Vec<&str> = super::RULES
        .iter()
        .filter(|r| r.checks.iter().any(super::Check::is_live) && !found.iter().any(|f| f.rule == r.id))
        .map(|r| r.id)
        .collect();
    assert_eq!(silent, [] as [&str; 0]);
    for finding in found {
        let times = finding.cause.matches("Not measured here").count();
        assert_eq!(times, usize::from(finding.severity != Severity::Severe), "{}", finding.cause);
        assert!(!finding.evidence.is_empty() && finding.cost_ratio.is_none(), "{}", finding.rule);
        assert!(finding.cause.len() < 330, "{} is told at length: {}", finding.rule, finding.cause);
    }
}

/// Findings whose cause is the host's, which are told once for all guests.
#[test]
fn what_is_the_hosts_is_marked() {
    let of_host: std::collections::BTreeSet<String> =
        all_findings().into_iter().filter(|f| f.of_host).map(|f| f.rule).collect();
    assert_eq!(of_host.into_iter().collect::<Vec<_>>(), OF_HOST);
}

/// Changes name the reader's own guest, and never contain a setting that another rule calls dangerous.
#[test]
fn changes_of_live_guests_are_exact_and_safe() {
    for finding in all_findings() {
        let (rule, change) = (&finding.rule, &finding.change);
        for (name, text) in change.ways() {
            for placeholder in ["VMID", "DOMAIN", "STORAGE:VOLUME", "/dev/DISK", "MAC'", "FORMAT", "DRIVER"] {
                assert!(!text.contains(placeholder), "{rule}, {name}: {text}");
            }
            assert!(!text.contains("unsafe"), "{rule}, {name}: {text}");
            let native = text.contains("aio=native") || text.contains("io='native'");
            let cached = text.contains("cache=write") || text.contains("cache='write");
            assert!(!(native && cached), "{rule}, {name}: {text}");
            // Names with spaces are quoted.
            assert!(!text.contains("virsh edit web 1"), "{rule}, {name}: {text}");
            // A disk or card is not detached from a running guest.
            let devices = text.replace("--delete affinity", "");
            assert!(!devices.contains("--delete") || text.starts_with("qm shutdown 101\n"), "{rule}, {name}: {text}");
            for erased in ["rm ", "mkfs", "wipefs", "--delete 1"] {
                assert!(!text.contains(erased), "{rule}, {name}: {text}");
            }
        }
    }
}

/// A descriptor's path means another file, or none, later.
#[test]
fn no_command_names_a_disk_by_a_descriptor() {
    let mut replaced = 0;
    for mut facts in all_wrong() {
        for disk in &mut facts.disks {
            disk.place = Place { source: "/proc/900/fd/7".into(), ..disk.place.clone() };
        }
        for finding in findings(&facts) {
            for (name, text) in finding.change.ways() {
                assert!(!text.contains("/proc/900/fd"), "{}, {name}: {text}", finding.rule);
                let unnamed = text.contains("passed to the guest as a descriptor");
                assert!(!unnamed || text.lines().all(|line| line.starts_with('#')), "{text}");
                replaced += usize::from(unnamed);
            }
        }
    }
    assert!(replaced > 0, "some rule names the disk's file");
}

/// QEMU's settings have other names, or are missing, in other hypervisors.
#[test]
fn other_kinds_of_guests_are_told_nothing_about_qemu() {
    let known = [
        "disk-in-memory",
        "sparse-file",
        "copy-on-write-below",
        "discard-storm",
        "shared-journal",
        "limit-in-force",
        "io-weight-ignored",
        "mtu-mismatch",
        "guest-drops",
        "conntrack-full",
        "uplink-trouble",
        "vcpus-over-cores",
        "numa-split",
        "guest-in-swap",
        "slow-governor",
        "cpu-quota",
        "host-clock-source",
    ];
    for kind in ["firecracker", "cloud-hypervisor", "xen", "container"] {
        for facts in all_wrong() {
            let found = findings(&Facts { vmm: Kind::of(kind).vmm, ..facts });
            assert!(!found.is_empty());
            for f in found {
                let drive = kind == "firecracker" && f.rule == "unsafe-cache" && f.severity == Severity::Advice;
                assert!(drive || known.contains(&f.rule.as_str()), "{kind}: {}", f.rule);
                assert!(!f.cause.contains("QEMU") || f.rule == "limit-in-force", "{kind}: {}", f.cause);
            }
        }
    }
}
