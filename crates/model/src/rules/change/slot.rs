//! Proxmox's commands for a disk: a slot is one line of settings, which `qm set` writes anew as a whole.
//!
//! Syntax: Proxmox, `qm(1)`; `qm.adoc`, "Hard Disk".

use super::disk::{Draft, To, bus};
use super::names::Names;
use crate::setup::DetectZeroes;

/// Settings of Proxmox's slot that were changed, and their values.
fn settings(d: &Draft) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    all.extend(d.cache.clone().map(|cache| ("cache", cache)));
    all.extend(d.aio.clone().map(|aio| ("aio", aio)));
    all.extend(d.iothread.as_ref().map(|_| ("iothread", "1".to_owned())));
    all.extend(d.queues.filter(|_| d.driver.as_deref() == Some("virtio-scsi")).map(|n| ("queues", n.to_string())));
    all.extend(d.discard.then(|| ("discard", "on".to_owned())));
    all.extend((d.zeroes != DetectZeroes::Off).then(|| ("detect_zeroes", "1".to_owned())));
    all
}

fn joined(settings: &[(&str, String)]) -> String {
    settings.iter().map(|(name, value)| format!(",{name}={value}")).collect()
}

/// Proxmox: an I/O thread a disk needs a controller a disk.
const SINGLE: &str = "--scsihw virtio-scsi-single";

/// What Proxmox needs to be told when something is in force only later.
const STOPPED: &str = "# in force after the guest was stopped and started";

/// Proxmox's command for a disk of a study.
pub(super) fn command(d: &Draft) -> String {
    let Some((_, _, slot)) = bus(d.driver.as_deref()) else {
        let driver = d.driver.as_deref().unwrap_or("such");
        return format!("# Proxmox VE knows no emulated {driver} disk: use virtio");
    };
    let hardware =
        if d.driver.as_deref() == Some("virtio-scsi") { format!("qm set VMID {SINGLE}\n") } else { String::new() };
    let settings = joined(&settings(d));
    format!("{hardware}qm set VMID --{slot} STORAGE:VOLUME{settings} --boot order={slot}\n{STOPPED}")
}

/// What a slot of Proxmox has now, without some of its settings: `qm set` writes a slot anew, and
/// what is not said (limits, `ssd`, `backup`) would be lost.
pub fn slot_without(vmid: &str, slot: &str, settings: &[&str]) -> String {
    let less = if settings.is_empty() { String::new() } else { format!("s/,({})=[^,]*//g;", settings.join("|")) };
    format!("$(qm config {vmid} | sed -nE '/^{slot}: /{{s///;{less}p}}')")
}

/// Proxmox's commands for a change of a guest's own disk.
pub(super) fn set(before: &Draft, after: &Draft, to: &To) -> String {
    let names = Names(&after.place);
    let vmid = names.vmid();
    let old = names.slot(bus(before.driver.as_deref()).map_or("virtio0", |(_, _, slot)| slot));
    // On an emulated SCSI controller the disk keeps its slot: the controller is what changes.
    let prefix = bus(after.driver.as_deref()).map_or("virtio", |(_, _, slot)| slot.trim_end_matches('0'));
    let stays = before.driver == after.driver || old.starts_with("scsi");
    let mut said: Vec<(&str, String)> = settings(after);
    said.retain(|(name, _)| match *name {
        "cache" => to.cache.is_some(),
        "aio" => to.aio.is_some(),
        "iothread" => to.iothread,
        "queues" => to.queues.is_some(),
        "discard" => to.discard,
        _ => false,
    });
    let keys: Vec<&str> = said.iter().map(|(name, _)| *name).collect();
    let more = joined(&said);
    if stays {
        let scsi = old.starts_with("scsi") && (to.iothread || before.driver != after.driver);
        let hardware = if scsi { format!("qm set {vmid} {SINGLE}\n") } else { String::new() };
        let set = format!("{hardware}qm set {vmid} --{old} \"{}{more}\"\n{STOPPED}", slot_without(&vmid, &old, &keys));
        let queues = format!(
            "# Proxmox VE has no setting for the queues: machine types since 5.2 have one for each vCPU\n\
             qm config {vmid} | grep ^machine"
        );
        return match to.queues.is_some() && after.driver.as_deref() == Some("virtio-blk") {
            false => set,
            true if said.is_empty() => queues,
            true => format!("{set}\n{queues}"),
        };
    }
    let number: String = old.chars().filter(char::is_ascii_digit).collect();
    let new = format!("{prefix}{number}");
    let hardware = if prefix == "scsi" {
        format!("qm set {vmid} --scsihw virtio-scsi-pci    # unless it is a virtio-scsi one\n")
    } else {
        String::new()
    };
    // What virtio-blk's slots do not take.
    let keys: Vec<&str> = keys.into_iter().chain(["ssd", "wwn", "queues", "model"]).collect();
    format!(
        "qm shutdown {vmid}\n{hardware}\
         disk=\"{}\"\n\
         qm set {vmid} --delete {old}    # becomes unused, nothing is erased\n\
         qm set {vmid} --{new} \"$disk{more}\"    # a number that is free\n\
         # if the guest boots from it\n\
         qm set {vmid} --boot \"$(qm config {vmid} | sed -nE '/^boot: /{{s///;s/{old}/{new}/;p}}')\"\n\
         qm start {vmid}",
        slot_without(&vmid, &old, &keys)
    )
}
