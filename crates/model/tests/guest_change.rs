//! QEMU itself takes the options that the findings tell people to paste, and libvirt's schema the
//! elements.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use vmio_model::facts::{Details, Disk, Nic, Place, Provenance};
use vmio_model::rules::Change;
use vmio_model::rules::change::{NicTo, To, own_disk, own_nic, recommended, settings};
use vmio_model::setup::{Aio, Attachment, Cache, DetectZeroes, Options};

/// A file of the test's own that is gone at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("vmio-change-{}-{name}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        Scratch(path)
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Starts QEMU stopped with these options, as a shell reads them, and has it quit.
fn qemu_takes(options: &str) {
    let command =
        format!("exec qemu-system-x86_64 -machine q35,accel=tcg -display none -nodefaults -S -monitor stdio {options}");
    let mut qemu = Command::new("sh")
        .args(["-c", &command])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // QEMU may have refused and gone; its exit status and words tell.
    let _ = qemu.stdin.take().unwrap().write_all(b"quit\n");
    let out = qemu.wait_with_output().unwrap();
    assert!(out.status.success(), "{options}: {}", String::from_utf8_lossy(&out.stderr));
}

fn from() -> Provenance {
    Provenance::Transcript { name: "change".into() }
}

/// A guest's own disks, one a driver, and what becomes of them.
fn own_changes(file: &str) -> Vec<(Disk, Change)> {
    let disk = |driver: &str, target: &str| Disk {
        driver: Some(driver.into()),
        cache: Some("writeback".into()),
        aio: Some("threads".into()),
        iothread: Some(false),
        details: Details { format: Some("raw".into()), ..Details::default() },
        place: Place {
            domain: Some("web1".into()),
            source: Some(file.into()),
            target: Some(target.into()),
            device_id: Some("disk-7".into()),
            ..Place::default()
        },
        ..Disk::unknown("guest web1, disk", from())
    };
    let virtio = To { driver: Some("virtio-blk"), iothread: true, ..To::default() };
    let thread = To { iothread: true, queues: Some(2), ..To::default() };
    let direct = To { cache: Some(Cache::None), discard: true, ..To::default() };
    let all = [
        (disk("ahci", "sda"), virtio.clone()),
        (disk("ide", "hda"), virtio),
        (disk("virtio-blk", "vda"), thread.clone()),
        (disk("virtio-scsi", "sda"), thread),
        (disk("virtio-blk", "vda"), direct.clone()),
        (disk("virtio-scsi", "sdb"), direct),
    ];
    all.into_iter().map(|(disk, to)| (disk.clone(), own_disk("x", &disk, &to))).collect()
}

#[test]
#[ignore = "guest: needs QEMU"]
fn qemu_takes_the_options_that_findings_print() {
    let disk = Scratch::new("study.raw");
    let attachment = |driver: &str, cache, aio| Attachment::new(driver, cache, aio);
    let options = |driver: &str| Attachment {
        driver: driver.into(),
        options: Options { queues: Some(2), discard: true, detect_zeroes: DetectZeroes::Unmap, ..Options::default() },
        ..recommended()
    };
    let all = [
        recommended(),
        Attachment { driver: "virtio-scsi".into(), ..recommended() },
        attachment("lsi53c895a", Cache::None, Aio::Native),
        attachment("ahci", Cache::Directsync, Aio::IoUring),
        attachment("nvme", Cache::None, Aio::Native),
        options("virtio-blk"),
        options("virtio-scsi"),
        attachment("virtio-blk", Cache::Writeback, Aio::Threads),
    ];
    for a in &all {
        qemu_takes(&settings("x", a).qemu.replace("/dev/DISK", disk.text()));
    }
}

#[test]
#[ignore = "guest: needs QEMU"]
fn qemu_takes_a_guests_own_disk_and_card_changed() {
    // A comma, a space and a quote in its name.
    let disk = Scratch::new("web 1's, own.raw");
    for (_, change) in own_changes(disk.text()) {
        qemu_takes(&change.qemu);
    }
    let place = Place { target: Some("52:54:00:12:34:56".into()), device_id: Some("net7".into()), ..Place::default() };
    let nic = Nic { place, ..Nic::unknown("guest web1, net", from()) };
    let change = own_nic("x", &nic, NicTo { queues: Some(2), ..NicTo::default() }).qemu;
    // Without a bridge and root there is no tap; the keys of the device are what is tried.
    let keys = change.lines().last().unwrap();
    assert_eq!(keys, "mq=on,vectors=6");
    qemu_takes(&format!("-netdev hubport,hubid=0,id=hostnet0 -device virtio-net-pci,netdev=hostnet0,{keys}"));
}

/// Elements of an edit of libvirt's, by where they belong.
fn domain(disk: &Disk, change: &Change) -> String {
    let (mut top, mut own) = (String::new(), String::new());
    // Attributes stand below the line that says of which element they are.
    let (mut driver, mut controller, mut model) = (String::new(), String::new(), String::new());
    let mut said = "";
    for line in change.libvirt.lines().filter(|l| !l.starts_with("virsh ")) {
        let place = match () {
            () if line.starts_with('#') => {
                said = line;
                continue;
            }
            () if line.starts_with("<iothreads>") => &mut top,
            () if line.starts_with("<target") => &mut own,
            () if said.contains("in its <driver .../>") => &mut driver,
            () if said.contains("in the <driver .../> of the <controller>") => &mut controller,
            () if said.contains("in the <controller>") => &mut model,
            () => panic!("{line} belongs nowhere"),
        };
        place.push_str(line);
        place.push('\n');
    }
    own.insert_str(0, &format!("<driver name='qemu' type='raw' {driver}/>"));
    let scsi = disk.driver.as_deref() == Some("virtio-scsi") || !model.is_empty();
    let model = if model.is_empty() { "model='virtio-scsi'" } else { model.trim() };
    let inner = if controller.is_empty() { String::new() } else { format!("<driver {controller}/>") };
    let devices =
        if scsi { format!("<controller type='scsi' index='0' {model}>{inner}</controller>") } else { String::new() };
    if !own.contains("<target") {
        let name = disk.place.target.as_deref().unwrap();
        let bus = if name.starts_with("sd") { "scsi" } else { "virtio" };
        own.push_str(&format!("<target dev='{name}' bus='{bus}'/>"));
    }
    format!(
        "<domain type='qemu'><name>web1</name><memory unit='MiB'>64</memory>{top}<os><type>hvm</type></os><devices>\
         {devices}<disk type='file' device='disk'>{own}<source file='/a.raw'/></disk></devices></domain>"
    )
}

#[test]
#[ignore = "guest: needs virsh"]
fn libvirts_schema_takes_the_elements() {
    for (disk, change) in own_changes("/a.raw") {
        let file = Scratch::new("domain.xml");
        std::fs::write(&file.0, domain(&disk, &change)).unwrap();
        // libvirt's own driver for tests keeps its domains in memory.
        let out = Command::new("virsh")
            .args(["-c", "test:///default", "define", "--validate", file.text()])
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{}\n{words}", domain(&disk, &change));
    }
}
