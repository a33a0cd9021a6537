//! Names in a change come from command lines and configurations that others may have written. A shell into which the
//! text is pasted must execute none of them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use vmio_model::cell::{Aio, Cache};
use vmio_model::facts::{
    Details, Disk, Fact, Guest, Hop, HopKind, LimitedAt, Nic, Place, Provenance, RateLimit, Subject, ToGuest,
};
use vmio_model::policy::Direction;
use vmio_model::rate::MBIT;
use vmio_model::rules::change::{DiskChange, NicChange, own_disk, own_nic, together, without_cow};
use vmio_model::rules::{Change, findings};

const NASTY: [&str; 10] = [
    "x;CMD;",
    "x\nCMD\n",
    "x\rCMD",
    "$(CMD)",
    "`CMD`",
    "x'; CMD; '",
    "\"; CMD; \"",
    "a' \"$(CMD)\" 'b",
    "scsi0/e CMD",
    "sd'$(CMD)",
];

fn from() -> Provenance {
    Provenance::Transcript { name: "hostile".into() }
}

fn place(name: &str) -> Place {
    let taken = vec![name.to_owned()];
    let name = || Some(name.to_owned());
    Place {
        domain: name(),
        vmid: name(),
        source: name().into(),
        block_device: Some(true),
        target: name(),
        slot: name(),
        volume: name(),
        device_id: name(),
        drive: name(),
        node: name(),
        qom: name(),
        monitor: name(),
        taken,
        boots_as_first: Some(true),
        addresses: Vec::new(),
        addresses_in_doubt: false,
        given: None,
    }
}

fn disks(name: &str) -> Vec<Disk> {
    let mut all = Vec::new();
    for driver in ["virtio-blk", "virtio-scsi", "lsi53c895a", "nvme", name] {
        for option in ["-device", "-drive", "-blockdev"] {
            let read = format!("{name}, {option}");
            let details = Details {
                format: Fact::read(Some(name.into()), &read),
                iothread_name: Some(name.into()).into(),
                queues: Some(1).into(),
                limits: vec![name.into()].into(),
                limit_keys: vec![name.into()],
                // A drive's own limits, and a group's.
                throttle_group: (option == "-blockdev").then(|| name.into()),
                backing_files: Some(3).into(),
                ..Details::default()
            };
            all.push(Disk {
                driver: Fact::read(Some(driver.into()), &read),
                cache: "writethrough".into(),
                aio: "native".into(),
                iothread: Some(option == "-device").into(),
                place: place(name),
                details,
                ..Disk::unknown(Subject::disk(name, all.len().to_string()), from())
            });
        }
    }
    all
}

/// All texts of all changes of devices with such a name.
fn texts(name: &str) -> Vec<String> {
    let asked = DiskChange {
        cache: Some(Cache::None),
        aio: Some(Aio::IoUring),
        iothread: true,
        queues: Some(4),
        discard: true,
        driver: None,
        l2_cache: Some(1 << 20),
        physical_block: Some(4096),
    };
    let driver = |driver| DiskChange { driver: Some(driver), ..DiskChange::default() };
    let mut changes: Vec<Change> =
        ["btrfs", "bcachefs", "xfs"].map(|filesystem| without_cow(name, &place(name), filesystem)).to_vec();
    for disk in disks(name) {
        for to in [asked.clone(), driver("virtio-blk"), driver("virtio-scsi")] {
            changes.push(own_disk(name, &disk, &to));
            for given in [name.to_owned(), format!("-hda {name}")] {
                let place = Place { given: Some(vec![given]), ..disk.place.clone() };
                changes.push(own_disk(name, &Disk { place, ..disk.clone() }, &to));
            }
        }
    }
    let nic = Nic {
        model: Some(name.into()).into(),
        backend: Some(name.into()).into(),
        interface: Some(name.into()).into(),
        bridge: Some(name.into()).into(),
        queues: Some(1).into(),
        vcpus: Some(4).into(),
        vhost: Some(false).into(),
        vhost_here: Some(true).into(),
        offloads_off: vec![name.into(), "host_tso4".into()].into(),
        place: place(name),
        ..Nic::unknown(Subject::net(name, ""), from())
    };
    let to = NicChange { virtio: true, vhost: true, queues: Some(4), offloads: true, tap: false };
    for to in [to, NicChange { tap: true, ..to }, NicChange { offloads: true, ..NicChange::default() }] {
        changes.push(own_nic(name, &nic, to));
        for kind in ["-nic tap", "-nic bridge", "-net nic"] {
            let given = [vec![format!("{kind},{name}")], vec![format!("{kind},{name}"), format!("-net {name}")]];
            for (given, backend) in given.into_iter().flat_map(|g| [(g.clone(), "tap"), (g, "user")]) {
                let place = Place { given: Some(given), ..nic.place.clone() };
                changes.push(own_nic(name, &Nic { place, backend: Some(backend.into()).into(), ..nic.clone() }, to));
            }
        }
    }
    let nics = vec![Nic { model: "virtio-net".into(), backend: "tap".into(), ..nic.clone() }];
    let nics = nics.into_iter().flat_map(|nic| {
        let by = [("libvirt", "libvirt"), ("proxmox", "openvswitch"), ("openvswitch", "openvswitch"), ("tc", "tc")];
        by.map(|(receives, sends)| {
            let sent = RateLimit::new(sends, Direction::GuestTx, MBIT, true);
            let limits = vec![
                RateLimit { at: Some(LimitedAt::Root), ..RateLimit::new(receives, Direction::GuestRx, MBIT, false) },
                RateLimit { at: Some(LimitedAt::Ingress), burst_bytes: Some(1), ..sent },
            ];
            Nic { rate_limits: limits.into(), ..nic.clone() }
        })
    });
    let hop = |kind| Hop { interface: name.into(), kind, mtu_bytes: Some(1400), driver: None, here: true };
    let behind = vec![hop(HopKind::Tap), hop(HopKind::Bridge), hop(HopKind::Card)];
    let nics: Vec<Nic> = nics
        .map(|n| Nic {
            mtu_bytes: Some(1500).into(),
            guest_mtu_bytes: Some(9000).into(),
            tap_header: Some(false).into(),
            to_guest: Some(ToGuest { packets: 9000, dropped_packets: 9000, queue_packets: None }).into(),
            ..n
        })
        .flat_map(|n| {
            let subject = Subject::net(name, "behind");
            let told = Nic { host_mtu_bytes: Some(9000).into(), ..n.clone() };
            [told, Nic { subject, way: behind.clone().into(), ..n }]
        })
        .collect();
    let guest = Guest { name: name.into(), kind: "qemu".into(), disks: disks(name), nics, ..Guest::default() };
    let found = findings(&guest.facts());
    let joined = together(&guest, &found);
    for rule in ["limit-in-force", "backing-chain", "mtu-mismatch", "guest-drops", "offloads-off"] {
        assert!(found.iter().any(|f| f.rule == rule), "{rule}");
        changes.extend(found.iter().filter(|f| f.rule == rule).map(|f| f.change.clone()));
    }
    assert!(joined.len() > 5, "{joined:?}");
    changes.extend(joined.into_iter().map(|t| t.change));
    let mut all: Vec<String> = changes.into_iter().flat_map(|c| [c.qemu, c.libvirt, c.proxmox]).collect();
    all.sort();
    all.dedup();
    all
}

/// A directory with programs that do nothing, and `CMD`, which leaves a mark.
struct Trap(PathBuf);

impl Trap {
    fn new() -> Trap {
        let dir = std::env::temp_dir().join(format!("vmio-hostile-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("empty")).unwrap();
        let mark = dir.join("mark");
        let echo = "echo 'scsi0: a'; echo 'virtio0: b'; echo 'SLOT: c'".to_owned();
        for (program, script) in [
            ("CMD", format!(": > '{}'", mark.display())),
            ("qm", format!("case $1 in config) {echo};; esac")),
            ("virsh", String::new()),
            ("modprobe", String::new()),
            ("sleep", String::new()),
            ("socat", String::new()),
            ("qemu-img", String::new()),
            ("ip", String::new()),
            ("touch", String::new()),
            ("chattr", String::new()),
            ("lsattr", "echo C".to_owned()),
            ("setfattr", String::new()),
            ("dd", String::new()),
            ("truncate", String::new()),
            ("chown", String::new()),
            ("chmod", String::new()),
            ("mv", String::new()),
            ("ovs-vsctl", String::new()),
            ("tc", String::new()),
        ] {
            let path = dir.join(program);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Trap(dir)
    }

    fn is_sprung_by(&self, text: &str) -> bool {
        Command::new("sh")
            .args(["-c", text])
            .current_dir(self.0.join("empty"))
            .env("PATH", format!("{}:/usr/bin:/bin", self.0.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        self.0.join("mark").exists()
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn no_name_becomes_a_command() {
    let trap = Trap::new();
    for name in NASTY {
        let texts: Vec<String> = texts(name).into_iter().filter(|text| text.contains("CMD")).collect();
        // A shell that stops at a syntax error would miss the rest: each line is tried alone, too.
        let lines: BTreeSet<&str> = texts.iter().flat_map(|t| t.lines()).filter(|line| line.contains("CMD")).collect();
        assert!(!lines.is_empty(), "{name:?} is nowhere");
        for text in lines.into_iter().chain(texts.iter().map(String::as_str)) {
            assert!(!trap.is_sprung_by(text), "{name:?}: {text}");
        }
    }
    assert!(trap.is_sprung_by("echo; CMD"));
}
