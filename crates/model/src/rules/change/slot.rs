//! Proxmox's commands for a disk: a slot is one line of settings, which `qm set` rewrites as a whole. Pasted lines are
//! chained: each depends on the one before it, so that nothing is detached from a guest that did not shut down, and
//! nothing is written from a line that could not be read.
//!
//! Syntax: Proxmox, `qm(1)`; `qm.adoc`, "Hard Disk"; `bootdisk` in qemu-server, src/PVE/QemuServer.pm,
//! `bootorder_from_legacy`.

use super::names::{Names, bus};
use super::to::DiskChange;
use crate::cell::{Attachment, DetectZeroes};
use crate::facts::Disk;

/// Changed settings of Proxmox's slot, with values.
fn settings(to: &DiskChange, driver: Option<&str>) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    all.extend(to.cache.map(|cache| ("cache", cache.to_string())));
    all.extend(to.aio.map(|aio| ("aio", aio.to_string())));
    all.extend(to.iothread.then(|| ("iothread", "1".to_owned())));
    all.extend(to.queues.filter(|_| driver == Some("virtio-scsi")).map(|n| ("queues", n.to_string())));
    all.extend(to.discard.then(|| ("discard", "on".to_owned())));
    all
}

fn joined(settings: &[(&str, String)]) -> String {
    settings.iter().map(|(name, value)| format!(",{name}={value}")).collect()
}

fn keys<'a>(settings: &[(&'a str, String)]) -> Vec<&'a str> {
    settings.iter().map(|(name, _)| *name).collect()
}

/// A note where a change takes effect later.
const STOPPED: &str = "# takes effect after the guest is shut down and started";

/// A note where a new controller affects other disks.
const OF_ALL: &str = "# --scsihw is the controller of all SCSI disks of the guest";

/// Proxmox's command for a study's disk.
pub(super) fn command(a: &Attachment) -> String {
    let Some((_, _, slot)) = bus(Some(&a.driver)) else {
        return format!("# Proxmox VE has no emulated {} disk: use virtio", a.driver);
    };
    // An I/O thread for each disk requires a controller for each disk.
    let hardware = if a.driver == "virtio-scsi" { "qm set VMID --scsihw virtio-scsi-single\n" } else { "" };
    let mut settings = settings(&a.into(), Some(&a.driver));
    settings.extend((a.options.detect_zeroes != DetectZeroes::Off).then(|| ("detect_zeroes", "1".to_owned())));
    let settings = joined(&settings);
    format!("{hardware}qm set VMID --{slot} STORAGE:VOLUME{settings} --boot order={slot}\n{STOPPED}")
}

/// Reads a Proxmox slot, without some of its settings, into the shell's variable `disk`: `qm set` rewrites a slot, and
/// other settings (limits, `ssd`, `backup`) would be lost.
pub fn slot_without(vmid: &str, slot: &str, settings: &[&str]) -> String {
    let less = if settings.is_empty() { String::new() } else { format!("s/,({})=[^,]*//g;", settings.join("|")) };
    read_slot("disk", vmid, slot, &less)
}

/// Reads a slot's line into a variable, edited by a `sed` script, and stops where there is none.
pub(in crate::rules) fn read_slot(variable: &str, vmid: &str, slot: &str, script: &str) -> String {
    read_slot_by("qm", variable, vmid, slot, script)
}

/// The same by `qm`, or by `pct` for a container's.
pub(super) fn read_slot_by(tool: &str, variable: &str, vmid: &str, slot: &str, script: &str) -> String {
    format!(
        "{variable}=\"$({tool} config {vmid} | sed -nE '/^{slot}: /{{s///;{script}p}}')\" && [ -n \"${variable}\" ]"
    )
}

/// Commands that each depend on the one before it, as one to paste.
pub(in crate::rules) fn chained(steps: &[String]) -> String {
    steps.join(" && \\\n")
}

/// Sets the controller of all SCSI disks of the guest, unless it already fits.
fn hardware(vmid: &str, single: bool) -> String {
    let (is, kind) = if single {
        ("^scsihw: virtio-scsi-single$", "virtio-scsi-single")
    } else {
        ("^scsihw: virtio-scsi-", "virtio-scsi-pci")
    };
    format!("{{ qm config {vmid} | grep '{is}' || qm set {vmid} --scsihw {kind}; }}")
}

/// Proxmox's commands for the change of a guest's own disk.
pub(super) fn set(disk: &Disk, to: &DiskChange) -> String {
    let names = Names(&disk.place);
    let (vmid, slot) = (names.vmid(), names.slot("virtio0"));
    let tables = to.l2_cache.map(|_| {
        format!(
            "# Proxmox VE has no setting for the cache of qcow2 tables: raw has none (and no snapshots on a directory)\n\
             qm disk move {vmid} {slot} STORAGE --format raw"
        )
    });
    let sectors = to.physical_block.map(|bytes| {
        format!(
            "# Proxmox VE has no setting for the sectors; only root may set args\n\
             args=\"$(qm config {vmid} | sed -n 's/^args: //p')\" && \\\n\
             qm set {vmid} --args \"$args -set device.{slot}.physical_block_size={bytes}\"\n{STOPPED}"
        )
    });
    // Under the old name, so before the disk moves.
    let all = [tables, Some(settings_of(disk, to)), sectors].into_iter().flatten();
    all.filter(|text| !text.is_empty()).collect::<Vec<String>>().join("\n")
}

fn settings_of(disk: &Disk, to: &DiskChange) -> String {
    let names = Names(&disk.place);
    let vmid = names.vmid();
    let old = names.slot(bus(disk.driver.as_deref()).map_or("virtio0", |(_, _, slot)| slot));
    let (driver, moves) = (to.driver_after(disk), to.new_driver(disk).is_some());
    let said = settings(to, driver);
    // With an emulated SCSI controller the disk keeps its slot and the controller changes.
    if moves && !old.starts_with("scsi") {
        return moved(&vmid, &old, &disk.place.taken, driver, to, &said);
    }
    let mut text = Vec::new();
    if !said.is_empty() || moves {
        let scsi = old.starts_with("scsi") && (to.iothread || moves);
        let steps: Vec<String> = [slot_without(&vmid, &old, &keys(&said))]
            .into_iter()
            .chain(scsi.then(|| hardware(&vmid, to.iothread)))
            .chain([format!("qm set {vmid} --{old} \"$disk{}\"", joined(&said))])
            .collect();
        text.extend(scsi.then(|| OF_ALL.to_owned()));
        text.extend([chained(&steps), STOPPED.to_owned()]);
    }
    if to.queues.is_some() && driver == Some("virtio-blk") {
        text.push(format!(
            "# Proxmox VE has no setting for the queues: machine types since 5.2 have one for each vCPU\n\
             qm config {vmid} | grep ^machine"
        ));
    }
    text.join("\n")
}

/// Number of slots of a bus (qm.conf(5)).
fn places(prefix: &str) -> u32 {
    match prefix {
        "scsi" => 31,
        "sata" => 6,
        "ide" => 4,
        _ => 16,
    }
}

/// An unused slot of a bus: the one of the same number, else the first.
fn free(prefix: &str, old: &str, taken: &[String]) -> Option<String> {
    let number = old.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok();
    let name = |n: u32| format!("{prefix}{n}");
    let slots = number.into_iter().filter(|n| *n < places(prefix)).chain(0..places(prefix)).map(name);
    slots.into_iter().find(|slot| !taken.contains(slot))
}

/// Moves the disk to an unused slot of another bus; a disk in a used one would be detached.
fn moved(
    vmid: &str,
    old: &str,
    taken: &[String],
    driver: Option<&str>,
    to: &DiskChange,
    said: &[(&str, String)],
) -> String {
    let prefix = bus(driver).map_or("virtio", |(_, _, slot)| slot.trim_end_matches('0'));
    let Some(new) = free(prefix, old, taken) else {
        return format!("# no slot of {prefix} is free: another disk of guest {vmid} must leave one first");
    };
    // The last ones are not allowed in virtio-blk slots.
    let disk = slot_without(vmid, old, &[&keys(said)[..], &["ssd", "wwn", "queues", "model"]].concat());
    // Read before the disk is detached, which removes it from the boot order. Older guests name their boot disk in a
    // line of its own (`bootdisk:`, with `boot: cdn`), which must be changed, too.
    let config = format!("qm config {vmid} | sed -nE");
    let boot = format!("boot=\"$({config} '/^boot: /{{s///;s/(order=|;){old}(;|$)/\\1{new}\\2/p}}')\"");
    let bootdisk = format!("bootdisk=\"$({config} 's/^bootdisk: {old}$/{new}/p')\"");
    let steps: Vec<String> = [format!("! qm config {vmid} | grep '^{new}: '"), disk, boot, bootdisk]
        .into_iter()
        .chain([format!("qm shutdown {vmid}")])
        .chain((prefix == "scsi").then(|| hardware(vmid, to.iothread)))
        .chain([
            format!("qm set {vmid} --delete {old}"),
            format!("qm set {vmid} --{new} \"$disk{}\"", joined(said)),
            format!("{{ [ -z \"$boot\" ] || qm set {vmid} --boot \"$boot\"; }}"),
            format!("{{ [ -z \"$bootdisk\" ] || qm set {vmid} --bootdisk \"$bootdisk\"; }}"),
            format!("qm start {vmid}"),
        ])
        .collect();
    format!(
        "# stops before any change if {new} is taken (its line is shown: choose a free number);\n\
         # {old} becomes unused for a moment, nothing is erased\n{}{}",
        if prefix == "scsi" { format!("{OF_ALL}\n") } else { String::new() },
        chained(&steps)
    )
}
