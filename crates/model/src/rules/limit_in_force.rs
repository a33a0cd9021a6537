//! A limit of IOPS or bytes on the disk: where it is reached, it is why the disk is slow, and no other
//! setting will make it faster.

use super::change::{Change, Names, Takes, shell, slot_without};
use super::{Check, Finding, Need, Rule, Severity};
use crate::facts::Disk;

/// Proxmox's names of limits of a disk (`qm(1)`).
const LIMITS: [&str; 12] = [
    "mbps",
    "mbps_rd",
    "mbps_wr",
    "mbps_max",
    "mbps_rd_max",
    "mbps_wr_max",
    "iops",
    "iops_rd",
    "iops_wr",
    "iops_max",
    "iops_rd_max",
    "iops_wr_max",
];

pub(super) const RULE: Rule = Rule {
    id: "limit-in-force",
    title: "A limit holds the disk back",
    needs: Need::Settings,
    severity: Severity::Note,
    references: &[
        "https://libvirt.org/manpages/virsh.html#blkdeviotune",
        "QEMU, docs/throttle.txt",
        "Proxmox VE, qm(1), mbps, iops",
    ],
    checks: &[Check::Disk(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
};

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    if disk.details.limits.is_empty() {
        return None;
    }
    let cause = format!(
        "In force: {}. A guest that reaches a limit waits, whatever the disk below could give.",
        disk.details.limits.join("; ")
    );
    let names = Names(&disk.place);
    let (domain, target) = (names.domain(), shell(disk.place.target.as_deref().unwrap_or("vda")));
    let (vmid, slot) = (names.vmid(), names.slot("virtio0"));
    let id = names.id("DEVICE").escape_default().to_string();
    let zero = "\"bps\": 0, \"bps_rd\": 0, \"bps_wr\": 0, \"iops\": 0, \"iops_rd\": 0, \"iops_wr\": 0";
    let change = Change {
        what: "If it is meant, leave it, and measure nothing through it; else raise it or take it away (0).".into(),
        qemu: format!(
            "# QMP; a limit of a control group instead: io.max (v1: blkio.throttle.*) of the process's group\n\
             {{\"execute\": \"block_set_io_throttle\", \"arguments\": {{\"id\": \"{id}\", {zero}}}}}"
        ),
        libvirt: format!(
            "virsh blkdeviotune {domain} {target}    # what is in force\n\
             virsh blkdeviotune {domain} {target} --total-iops-sec 0 --total-bytes-sec 0 --live --config"
        ),
        proxmox: format!("{} && \\\nqm set {vmid} --{slot} \"$disk\"", slot_without(&vmid, &slot, &LIMITS)),
        takes: Takes::Running,
        sets: None,
    };
    Some(rule.advice(disk, &["limits"], &cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Details, Facts};
    use crate::testing::settings;

    pub fn fires() -> Facts {
        settings(Details { limits: vec!["1000 IOPS by QEMU's throttle".into()], ..Details::default() })
    }

    pub fn silent() -> Facts {
        settings(Details::default())
    }
}
