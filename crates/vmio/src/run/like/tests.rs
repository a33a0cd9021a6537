#![allow(clippy::unwrap_used)]

use vmio_model::facts::{Details, Place, Processors, Provenance, Remedy, Subject, Unread};

use super::*;
use crate::studies;

/// 2026-11-21 12:00:00 UTC.
const AT: f64 = 1_795_262_400.0;

fn quick() -> Study {
    studies::named("quick").unwrap()
}

fn host() -> Host {
    Host {
        cpus: 2,
        memory_left_bytes: 8 << 30,
        places: vec!["lvm:vg0".into(), "lvmthin:pve/data".into()],
        directories: vec!["/var/lib/libvirt/images".into(), "/srv/vms".into()],
    }
}

fn disk(name: &str, driver: &str, source: &str) -> Disk {
    let from = Provenance::Transcript { name: "made up".into() };
    Disk {
        driver: Some(driver.into()).into(),
        cache: "none".into(),
        aio: "native".into(),
        iothread: Some(false).into(),
        sparse: Some(false).into(),
        details: Details { storage: "file".into(), format: "raw".into(), ..Details::default() },
        place: Place { source: Some(source.into()).into(), target: Some(name.into()), ..Place::default() },
        ..Disk::unknown(Subject::disk("web1", name), from)
    }
}

fn guest(disk: Disk) -> Guest {
    let processors = Processors {
        vcpus: Some(4).into(),
        memory_bytes: Some(16 << 30).into(),
        ..Processors::unknown(Subject::guest("web1"), disk.from.clone())
    };
    Guest {
        name: "web1".into(),
        kind: "qemu".into(),
        pid: Some(812),
        disks: vec![disk],
        processors: Some(processors),
        ..Guest::default()
    }
}

fn like(disk: Disk) -> Like {
    of(&guest(disk), None, None, AT, &host(), &quick()).unwrap()
}

#[test]
fn a_guest_of_vmios_own_measurement_is_no_ones_to_be_like() {
    let mut own = guest(disk("vda", "virtio-blk", "/srv/vms/a.raw"));
    own.ids.insert("owner".into(), "vmio".into());
    let refused = of(&own, None, None, AT, &host(), &quick()).unwrap_err();
    assert!(refused.exit == Exit::Usage && refused.message.contains("that vmio itself is measuring"), "{refused}");
    let unknown = named(std::slice::from_ref(&own), "nosuch").unwrap_err().help.unwrap();
    assert!(unknown.starts_with("no guest runs here"), "{unknown}");
    let other = Guest { name: "web2".into(), ids: Default::default(), ..own.clone() };
    let unknown = named(&[own, other], "nosuch").unwrap_err().help.unwrap();
    assert!(unknown.starts_with("guests that run here: web2;"), "{unknown}");
}

/// The guest's set-ups, in the order of the study.
fn set_ups(like: &Like) -> Vec<String> {
    let matrix = |m: &Matrix| {
        let one = Study { matrix: vec![m.clone()], ..like.study.clone() };
        let cell = one.cells().into_iter().find(|c| !c.is_native()).unwrap();
        format!("{}: {}", cell.target().unwrap(), cell.attachment().unwrap().label())
    };
    like.study.matrix.iter().map(matrix).collect()
}

fn says(like: &Like, words: &str) {
    assert!(like.notes.iter().any(|t| t.contains(words)), "{words}: {:#?}", like.notes);
}

/// As virt-manager makes it for a guest that it does not know: SATA, sparse.
#[test]
fn a_libvirt_guest_and_its_mends() {
    let mut sata = disk("sda", "ahci", "/var/lib/libvirt/images/web1.img");
    (sata.cache, sata.aio, sata.sparse) = ("writeback".into(), "threads".into(), Some(true).into());
    let like = like(sata);
    let found = set_ups(&like);
    assert_eq!(found[0], "sparse: ahci,writeback,threads");
    assert_eq!(found.last().unwrap(), "preallocated: virtio-blk,none,native+iothread");
    for alone in [
        "sparse: virtio-blk,writeback,threads+iothread",
        "sparse: ahci,none,io_uring",
        "preallocated: ahci,writeback,threads",
    ] {
        assert!(found.contains(&alone.to_owned()), "{alone}: {found:?}");
    }
    assert_eq!(like.on.as_deref(), Some("/var/lib/libvirt/images"));
    assert_eq!(like.study.name, "like-web1");
    assert_eq!(
        like.study.title,
        "Like web1 (read at 2026-11-21 12:00:00 UTC): disk sda as it is, and with what its findings advise"
    );
    assert_eq!(
        (like.study.guest.vcpus, like.study.guest.memory_mib, like.study.size.unwrap().target_mib),
        (2, 512, 1024)
    );
    says(&like, "2 vCPUs instead of 4");
    says(&like, "512 MiB of memory instead of 16384: the workloads bypass");
    says(&like, "web1 itself is only read");
    // What is stored reads back, so that the run can be resumed.
    assert_eq!(studies::parse("stored", &like.study.to_toml()).unwrap(), like.study);
    assert!(like.study.repeat.max_minutes > quick().repeat.max_minutes);
}

/// Each setting that the findings' changes name is in the last set-up; what cannot be there is told with the reason.
#[test]
fn the_whole_advice_is_measured_or_told() {
    let mut slow = disk("sda", "ahci", "/dev/pve/vm-101-disk-0");
    (slow.cache, slow.aio) = ("writeback".into(), "threads".into());
    (slow.details.storage, slow.details.thin) = ("lvm-thin".into(), Some(true).into());
    slow.details.discard = Some(false).into();
    let subject = slow.subject.clone();
    let guest = guest(slow.clone());
    let like = like(slow);
    let found = set_ups(&like);
    assert_eq!(found.last().unwrap(), "lvm-thin: virtio-blk,none,native+iothread+discard", "{:#?}", like.notes);
    assert!(!found.contains(&"lvm-thin: ahci,writeback,threads+discard".to_owned()), "{found:?}");
    says(&like, "no-discard: no effect on speed alone; part of the combined change");
    // By the advice itself: nothing of it is left out in silence.
    let last = like.study.matrix.last().unwrap().clone();
    let one = Study { matrix: vec![last], ..like.study.clone() };
    let cell = one.cells().into_iter().find(|c| !c.is_native()).unwrap();
    let has = cell.attachment().unwrap();
    for finding in rules::findings(&guest.facts()).iter().filter(|f| f.subject.is(&subject)) {
        let noted = like.notes.iter().any(|t| t.contains(&format!("not measured: the change of {}: ", finding.rule)));
        let Some(change::DeviceChange::Disk(to)) = &finding.change.sets else {
            assert!(noted || Rule::find(&finding.rule).unwrap().remedy.is_some(), "{}", finding.rule);
            continue;
        };
        let measured = to.driver.is_none_or(|driver| driver == has.driver)
            && to.cache.is_none_or(|cache| cache == has.cache)
            && (!to.iothread || has.iothread)
            && (!to.discard || has.options.discard);
        assert!(measured || noted, "{}: {to:?}, {}: {:#?}", finding.rule, has.label(), like.notes);
    }
}

#[test]
fn what_is_not_measured_is_told_with_the_reason() {
    let mut shared = disk("vda", "virtio-blk", "/srv/vms/a.raw");
    shared.iothread = Some(true).into();
    shared.details.iothread_name = Some("io1".into()).into();
    let mut both = guest(shared.clone());
    let place = Place { target: Some("vdb".into()), ..shared.place.clone() };
    both.disks.push(Disk { place, ..Disk { subject: Subject::disk("web1", "vdb"), ..shared } });
    let like = of(&both, Some("vdb"), None, AT, &host(), &quick()).unwrap();
    says(&like, "not measured: the change of shared-iothread: it is about disks that share a thread");
}

#[test]
fn the_best_set_up_is_measured_as_it_is() {
    let best = Disk { iothread: Some(true).into(), ..disk("vda", "virtio-blk", "/srv/vms/web1.raw") };
    let like = like(best);
    assert_eq!(set_ups(&like), ["preallocated: virtio-blk,none,native+iothread"]);
    assert!(like.study.title.ends_with("disk vda as it is"), "{}", like.study.title);
}

#[test]
fn a_proxmox_volume_lies_in_its_storage() {
    let mut scsi = disk("scsi0", "virtio-scsi", "/dev/pve/vm-101-disk-0");
    scsi.details.storage = "lvm-thin".into();
    // Without Proxmox's word the one thin pool of the group is meant.
    assert_eq!(like(scsi.clone()).on.as_deref(), Some("lvmthin:pve/data"));
    scsi.place.volume = Some("local-lvm:vm-101-disk-0".into());
    let like = like(scsi);
    assert_eq!(set_ups(&like)[0], "lvm-thin: virtio-scsi,none,native");
    assert_eq!(like.on.as_deref(), Some("pve:local-lvm"));
}

#[test]
fn storage_is_made_only_in_a_directory_that_is_the_guests_and_ours() {
    let place = |source: &str| like(disk("vda", "virtio-blk", source));
    assert_eq!(place("/srv/vms/web1.raw").on.as_deref(), Some("/srv/vms"));
    for elsewhere in ["images/web1.raw", "web1.raw", "/var/run/kubevirt-private/vmi-disks/web1/disk.img"] {
        let like = place(elsewhere);
        assert_eq!((like.on.as_deref(), set_ups(&like)[0].split(':').next()), (None, Some("preallocated")));
        says(&like, &format!("the directory of {elsewhere} is not known to be one of this host"));
    }
}

#[test]
fn a_guests_directories_are_known_by_its_mounts() {
    const ROOT: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
    let of = |theirs: &str| {
        let node = vmio_node::fake::Fake::new("fake")
            .symlink("/proc/self/ns/mnt", "mnt:[1]")
            .symlink("/proc/812/ns/mnt", "mnt:[2]")
            .file("/proc/self/mountinfo", ROOT)
            .file("/proc/812/mountinfo", theirs);
        let mut guest = guest(disk("vda", "virtio-blk", "/srv/vms/web1.raw"));
        guest.disks.push(disk("vdb", "virtio-blk", "web1.raw"));
        storage::directories(&HostView::new(&node), &guest)
    };
    assert_eq!(of(ROOT), ["/srv/vms"]);
    assert_eq!(of("22 1 0:7 / / rw - overlay overlay rw\n"), [] as [&str; 0]);
}

#[test]
fn ide_is_measured_by_what_is_nearest_and_told() {
    let like = like(disk("hda", "ide", "/srv/vms/old.raw"));
    assert_eq!(set_ups(&like)[0], "preallocated: ahci,none,native");
    says(&like, "vmio has no driver ide; using ahci");
}

#[test]
fn qcow2_images_by_what_they_are() {
    let target = |change: fn(&mut Details)| {
        let mut qcow2 = disk("vda", "virtio-blk", "/srv/vms/web1.qcow2");
        qcow2.details.format = "qcow2".into();
        (qcow2.details.virtual_bytes, qcow2.details.cluster_bytes) = (Some(1 << 40).into(), Some(64 << 10).into());
        change(&mut qcow2.details);
        set_ups(&like(qcow2)).iter().map(|s| s.split(':').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(target(|d| d.backing_files = Some(3).into()), ["qcow2-chain", "qcow2-chain", "qcow2", "qcow2"]);
    assert_eq!(target(|d| d.l2_cache_bytes = Some(32 << 20).into())[0], "qcow2-small-l2");
    assert!(target(|d| d.l2_cache_bytes = Some(32 << 20).into()).contains(&"qcow2-full-l2".to_owned()));
    assert_eq!(target(|d| d.cluster_bytes = Some(2 << 20).into())[0], "qcow2-2m");
    assert_eq!(target(|d| d.l2_cache_bytes = Some(128 << 20).into())[0], "qcow2");
}

#[test]
fn volumes_lie_beside_the_guests_own() {
    let place = |storage: &str, source: &str| {
        let mut volume = disk("vda", "virtio-blk", source);
        volume.details.storage = Some(storage.into()).into();
        let like = like(volume);
        (like.study.matrix[0].disks.as_ref().unwrap().targets[0].clone(), like.on)
    };
    let on = |target: &str, on: &str| (target.to_owned(), Some(on.to_owned()));
    assert_eq!(place("rbd", "rbd:vms/web1-disk"), on("rbd", "rbd:vms"));
    assert_eq!(place("zvol", "/dev/zvol/tank/vms/web1"), on("zvol", "zfs:tank/vms"));
    assert_eq!(place("lvm", "/dev/mapper/vg--fast-web1"), on("lvm", "lvm:vg-fast"));
    assert_eq!(place("block", "/dev/vg0/web1"), on("lvm", "lvm:vg0"));
    assert_eq!(place("block", "/dev/sdb"), ("device".to_owned(), None));
}

#[test]
fn what_cannot_be_had_is_told() {
    let ask = |guest: &Guest, disk: Option<&str>, on: Option<&str>| of(guest, disk, on, AT, &host(), &quick());
    let fails = |guest: &Guest, disk: Option<&str>, words: [&str; 2]| {
        let e = ask(guest, disk, None).unwrap_err();
        let help = e.help.clone().unwrap_or_default();
        assert!(e.message.contains(words[0]) && help.contains(words[1]), "{e:?}");
    };
    let good = guest(disk("vda", "virtio-blk", "/a.raw"));
    fails(&Guest { kind: "container".into(), ..good.clone() }, None, ["is a container", "virtual machines"]);
    fails(&good, Some("vdb"), ["has no disk vdb", "it has disk vda"]);
    let unread = Unread { what: "/proc/812/cmdline".into(), why: "denied".into(), mend: Remedy::Root };
    let blind = Guest { disks: Vec::new(), unread: vec![unread], ..good.clone() };
    fails(&blind, None, ["no disk of web1 could be read", "run as root"]);
    let none = named(std::slice::from_ref(&good), "web2").unwrap_err();
    assert!(none.message.contains("no guest called web2") && none.help.unwrap().contains("web1"));
    assert_eq!(named(std::slice::from_ref(&good), "812").unwrap().name, "web1");

    let uuid = |name: &str| Guest { name: name.into(), uuid: Some(format!("5f2b-{name}")), ..good.clone() };
    let twins = [uuid("web1"), uuid("web2")];
    let several = named(&twins, "5f2b").unwrap_err();
    assert_eq!(several.message, "5f2b names several guests: web1, web2");
    assert_eq!(named(&twins, "5f2b-web2").unwrap().name, "web2");

    let mut nbd = disk("vda", "virtio-blk", "nbd://10.0.0.1/web1");
    nbd.details.storage = "nbd".into();
    fails(&guest(nbd.clone()), None, ["is on nbd", "--on PLACE"]);
    let elsewhere = ask(&guest(nbd), None, Some("/srv/vms")).unwrap();
    assert_eq!(
        (set_ups(&elsewhere)[0].as_str(), elsewhere.on.as_deref()),
        ("device: virtio-blk,none,native", Some("/srv/vms"))
    );
    says(&elsewhere, "using a device on /srv/vms");

    let mut odd = disk("vda", "virtio-blk", "/a.raw");
    (odd.cache, odd.aio) = ("writeback".into(), "native".into());
    odd.details.queues = Some(4).into();
    let like = like(odd);
    assert_eq!(set_ups(&like)[0], "preallocated: virtio-blk,writeback,threads+q4");
    says(&like, "aio=native needs O_DIRECT");
}

#[test]
fn little_memory_is_left_to_the_others() {
    let small = Host { memory_left_bytes: 600 << 20, ..host() };
    let like = of(&guest(disk("vda", "virtio-blk", "/a.raw")), None, None, AT, &small, &quick()).unwrap();
    assert_eq!(like.study.guest.memory_mib, 300);
    says(&like, "300 MiB of memory instead of 16384: half of the memory that is free here");
}

#[test]
fn the_differences_to_the_reference_guest() {
    let mut sata = disk("sda", "ahci", "/a.qcow2");
    (sata.cache, sata.iothread) = ("writeback".into(), None.into());
    sata.details.format = "qcow2".into();
    let reference = quick().guest;
    assert_eq!(
        differences(&guest(sata), reference),
        [
            "disk sda: driver ahci instead of virtio-blk, cache writeback instead of none, format qcow2 instead of raw, \
             storage file instead of block",
            "4 vCPUs instead of 1, 16384 MiB of memory instead of 256"
        ]
    );
    let mut best = Disk { iothread: Some(true).into(), ..disk("vda", "virtio-blk", "/dev/vg0/a") };
    best.details.storage = "block".into();
    assert_eq!(differences(&Guest { processors: None, ..guest(best) }, reference), [] as [&str; 0]);
}

/// Names are not taken apart: neither the guest's nor a disk's.
#[test]
fn a_disk_is_named_by_its_whole_name() {
    let mut two = guest(disk("z, disk vda", "virtio-blk", "/srv/vms/z.raw"));
    two.disks.push(disk("vda", "virtio-blk", "/srv/vms/vda.raw"));
    for disk in &mut two.disks {
        disk.place.target = None;
    }
    two.name = "a, b".into();
    let picked =
        |word: &str| pick(&two, Some(word)).map(|d| d.place.source.value().clone().unwrap()).map_err(|e| e.message);
    assert_eq!(picked("vda").unwrap(), "/srv/vms/vda.raw");
    assert_eq!(picked("z, disk vda").unwrap(), "/srv/vms/z.raw");
    assert!(picked("a").is_err() && picked("da").is_err());
}

#[test]
fn storage_that_a_rule_puts_in_place_is_a_target() {
    for rule in rules::RULES {
        if let Some(DiskRemedy::Target(name)) = rule.remedy {
            assert!(targets::find(name).is_some(), "{}: {name}", rule.id);
        }
    }
}
