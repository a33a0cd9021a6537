//! Proxmox's commands of a change, run by a shell with a `qm` that records its arguments: a slot is rewritten from its
//! own value, and unrelated parts must not be lost.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use vmio_model::cell::Cache;
use vmio_model::facts::{Disk, Nic, Place, Provenance, Subject};
use vmio_model::rules::change::{DiskChange, NicChange, own_disk, own_nic};

/// The calls of `qm` by these commands, on a guest with this configuration; without `qm config`.
fn calls(commands: &str, config: &str) -> Vec<String> {
    calls_failing(commands, config, "nothing")
}

/// The same where one of `qm`'s commands fails. Pasted lines run one after the other, whatever their exit status.
fn calls_failing(commands: &str, config: &str, fails: &str) -> Vec<String> {
    let qm = format!(
        "qm() {{ if [ \"$1\" = config ]; then cat <<'END'\n{config}\nEND\n\
         else printf 'qm|'; printf '%s|' \"$@\"; echo; [ \"$1\" != {fails} ]; fi; }}"
    );
    let out = Command::new("bash").args(["-uc", &format!("{qm}\n{commands}")]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stderr), "", "{commands}");
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().filter_map(|line| line.strip_prefix("qm|")).map(str::to_owned).collect()
}

fn from() -> Provenance {
    Provenance::Transcript { name: "proxmox".into() }
}

fn place(slot: &str) -> Place {
    Place { vmid: Some("101".into()), slot: Some(slot.into()), ..Place::default() }
}

fn disk(driver: &str, slot: &str) -> Disk {
    Disk {
        driver: Some(driver.into()).into(),
        cache: "writeback".into(),
        place: place(slot),
        ..Disk::unknown(Subject::disk("web1", ""), from())
    }
}

const CONFIG: &str = "boot: order=sata1;ide2;net0\n\
                      net0: e1000=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,rate=10\n\
                      net1: virtio=BC:24:11:00:00:02,bridge=vmbr1,queues=1,tag=7\n\
                      sata1: local-lvm:vm-101-disk-1,backup=0,cache=writeback,mbps_rd=50,size=32G,ssd=1\n\
                      scsi0: local-lvm:vm-101-disk-0,aio=threads,cache=writeback,iothread=0,mbps_rd=50,size=32G,ssd=1\n\
                      scsi10: local-lvm:vm-101-disk-9,size=1G";

#[test]
fn sectors_are_added_to_the_options_that_are_there() {
    let to = DiskChange { physical_block: Some(4096), ..DiskChange::default() };
    let change = own_disk("x", &disk("virtio-scsi", "scsi0"), &to).proxmox;
    let set = "-set device.scsi0.physical_block_size=4096";
    let with = |args: &str| calls(&change, &format!("{CONFIG}{args}"));
    assert_eq!(with("\nargs: -cpu host"), [format!("set|101|--args|-cpu host {set}|")]);
    assert_eq!(with(""), [format!("set|101|--args| {set}|")]);
}

#[test]
fn an_iothread_keeps_the_rest_of_the_slot() {
    let change = own_disk("x", &disk("virtio-scsi", "scsi0"), &DiskChange { iothread: true, ..DiskChange::default() });
    assert_eq!(
        calls(&change.proxmox, CONFIG),
        [
            "set|101|--scsihw|virtio-scsi-single|",
            "set|101|--scsi0|local-lvm:vm-101-disk-0,aio=threads,cache=writeback,mbps_rd=50,size=32G,ssd=1,iothread=1|"
        ]
    );
}

#[test]
fn another_cache_mode_replaces_the_old_one() {
    let change =
        own_disk("x", &disk("virtio-scsi", "scsi0"), &DiskChange { cache: Some(Cache::None), ..DiskChange::default() });
    assert_eq!(
        calls(&change.proxmox, CONFIG),
        // The format is not known: native AIO would block where a file grows.
        ["set|101|--scsi0|local-lvm:vm-101-disk-0,iothread=0,mbps_rd=50,size=32G,ssd=1,cache=none,aio=io_uring|"]
    );
}

#[test]
fn a_disk_moves_to_virtio_with_its_limits_and_the_boot_order() {
    let to = DiskChange { driver: Some("virtio-blk"), iothread: true, ..DiskChange::default() };
    assert_eq!(
        calls(&own_disk("x", &disk("ahci", "sata1"), &to).proxmox, CONFIG),
        [
            "shutdown|101|",
            "set|101|--delete|sata1|",
            "set|101|--virtio1|local-lvm:vm-101-disk-1,backup=0,cache=writeback,mbps_rd=50,size=32G,iothread=1|",
            "set|101|--boot|order=virtio1;ide2;net0|",
            "start|101|"
        ]
    );
}

#[test]
fn a_card_keeps_address_bridge_and_firewall() {
    let nic = |slot: &str| Nic { place: place(slot), ..Nic::unknown(Subject::net("web1", ""), from()) };
    let model = own_nic("x", &nic("net0"), NicChange { virtio: true, ..NicChange::default() });
    let set = "set|101|--net0|virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,rate=10|";
    assert_eq!(calls(&model.proxmox, CONFIG), ["shutdown|101|", set, "start|101|"]);
    let queues = own_nic("x", &nic("net1"), NicChange { queues: Some(4), ..NicChange::default() });
    let set = "set|101|--net1|virtio=BC:24:11:00:00:02,bridge=vmbr1,tag=7,queues=4|";
    assert_eq!(calls(&queues.proxmox, CONFIG), ["shutdown|101|", set, "start|101|"]);
}

#[test]
fn a_disk_moves_to_virtio_scsi_too() {
    let to = DiskChange { driver: Some("virtio-scsi"), ..DiskChange::default() };
    let config = "boot: order=virtio3\nvirtio3: local:101/a.raw,cache=none,size=1G";
    assert_eq!(
        calls(&own_disk("x", &disk("virtio-blk", "virtio3"), &to).proxmox, config),
        [
            "shutdown|101|",
            "set|101|--scsihw|virtio-scsi-pci|",
            "set|101|--delete|virtio3|",
            "set|101|--scsi3|local:101/a.raw,cache=none,size=1G|",
            "set|101|--boot|order=scsi3|",
            "start|101|"
        ]
    );
}

fn to_virtio() -> DiskChange {
    DiskChange { driver: Some("virtio-blk"), iothread: true, ..DiskChange::default() }
}

#[test]
fn a_slot_that_is_taken_stops_the_move_before_anything_is_changed() {
    let change = own_disk("x", &disk("ahci", "sata1"), &to_virtio()).proxmox;
    let taken = format!("{CONFIG}\nvirtio1: local-lvm:vm-101-disk-7,size=1G");
    assert_eq!(calls(&change, &taken), [] as [&str; 0]);
    // A volume whose name only begins alike is not taken for it.
    let alike = format!("{CONFIG}\nvirtio10: local-lvm:vm-101-disk-7,size=1G");
    assert_eq!(calls(&change, &alike).len(), 5);
    let to_scsi = own_disk(
        "x",
        &disk("virtio-blk", "virtio0"),
        &DiskChange { driver: Some("virtio-scsi"), ..DiskChange::default() },
    );
    assert_eq!(calls(&to_scsi.proxmox, &format!("{CONFIG}\nvirtio0: a:b")), [] as [&str; 0]);
}

#[test]
fn nothing_is_taken_off_a_guest_that_does_not_shut_down() {
    let nic = Nic { place: place("net0"), ..Nic::unknown(Subject::net("web1", ""), from()) };
    for change in [
        own_disk("x", &disk("ahci", "sata1"), &to_virtio()),
        own_nic("x", &nic, NicChange { virtio: true, ..NicChange::default() }),
    ] {
        assert_eq!(calls_failing(&change.proxmox, CONFIG, "shutdown"), ["shutdown|101|"], "{}", change.proxmox);
    }
    // It is not started in between, either.
    let change = own_disk("x", &disk("ahci", "sata1"), &to_virtio()).proxmox;
    assert_eq!(calls_failing(&change, CONFIG, "set"), ["shutdown|101|", "set|101|--delete|sata1|"]);
}

#[test]
fn a_line_that_is_not_there_is_not_written() {
    let nic = Nic { place: place("net7"), ..Nic::unknown(Subject::net("web1", ""), from()) };
    for change in [
        own_disk("x", &disk("ahci", "sata4"), &to_virtio()),
        own_disk("x", &disk("virtio-scsi", "scsi7"), &DiskChange { iothread: true, ..DiskChange::default() }),
        own_disk(
            "x",
            &disk("virtio-blk", "virtio7"),
            &DiskChange { cache: Some(Cache::None), ..DiskChange::default() },
        ),
        own_disk(
            "x",
            &disk("virtio-blk", "not a slot"),
            &DiskChange { cache: Some(Cache::None), ..DiskChange::default() },
        ),
        own_nic("x", &nic, NicChange { queues: Some(4), ..NicChange::default() }),
    ] {
        assert_eq!(calls(&change.proxmox, CONFIG), [] as [&str; 0], "{}", change.proxmox);
    }
}

#[test]
fn the_controller_of_all_scsi_disks_changes_only_where_it_does_not_fit() {
    let calls = |to: &DiskChange, driver: &str, slot: &str, hardware: &str| {
        let config = format!("{CONFIG}\nvirtio3: local:101/a.raw\nscsihw: {hardware}");
        let all = calls(&own_disk("x", &disk(driver, slot), to).proxmox, &config);
        all.into_iter().find(|call| call.contains("--scsihw"))
    };
    let thread = DiskChange { iothread: true, ..DiskChange::default() };
    assert_eq!(calls(&thread, "virtio-scsi", "scsi0", "virtio-scsi-single"), None);
    assert!(calls(&thread, "virtio-scsi", "scsi0", "virtio-scsi-pci").is_some());
    let scsi = DiskChange { driver: Some("virtio-scsi"), ..DiskChange::default() };
    assert_eq!(calls(&scsi, "virtio-blk", "virtio3", "virtio-scsi-single"), None);
    assert_eq!(calls(&scsi, "virtio-blk", "virtio3", "virtio-scsi-pci"), None);
    assert!(calls(&scsi, "virtio-blk", "virtio3", "lsi").is_some());
}

#[test]
fn a_disk_that_is_not_booted_from_leaves_the_order_alone() {
    let config = "boot: order=sata10;net0\nsata1: local:101/a.raw";
    let all = calls(&own_disk("x", &disk("ahci", "sata1"), &to_virtio()).proxmox, config);
    assert!(all.len() == 4 && all.iter().all(|call| !call.contains("--boot")), "{all:?}");
}
