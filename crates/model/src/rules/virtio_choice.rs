//! The two paravirtual disks: virtio-blk has the shorter path for one fast disk; virtio-scsi attaches many disks to one
//! PCI device and supports more commands.

use super::change::{self, DiskChange};
use super::live::seen;
use super::support::{better, driver};
use super::{Check, Finding, Live, Need, Rule, Severity};
use crate::facts::{Changed, Disk, Facts, Gain, GuestId, Measured};

/// Least gain: the two differ little, and a change renames the guest's disks.
const GAIN: f64 = 1.1;
/// Number of virtio-blk disks from which a guest runs short of PCI slots (32 on a bus, some used).
const MANY: u32 = 20;

pub(super) const RULE: Rule = Rule {
    id: "virtio-choice",
    title: "The other paravirtual disk type fits better",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Advice,
    references: &["Proxmox VE, qm.adoc, \"Bus/Controller\"", "QEMU, blog \"virtio-blk and virtio-scsi\" (2021)"],
    checks: &[Check::Run(measured), Check::Guests(live)],
    // Silent: within a few per cent.
    #[cfg(test)]
    fixture: (|| fixture::scsi(9e3), || fixture::scsi(12.5e3)),
    ..Rule::PLAIN
};

fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let shorter = |g: &&Gain| driver(&g.before) == "virtio-scsi" && driver(&g.after) == "virtio-blk";
    rule.from_gains(m, m.sure_gains(Changed::Driver, GAIN).filter(shorter), cause, |g| {
        change::virtio_disk("Attach the disk to virtio-blk if few disks must be fast.", &better(g))
    })
}

/// One finding for each guest, at its first such disk.
fn live(rule: &Rule, facts: &Facts) -> Vec<Finding> {
    let many =
        |d: &&Disk| d.driver.as_deref() == Some("virtio-blk") && d.details.alike_in_guest.is_some_and(|n| n >= MANY);
    let mut reported: Vec<&GuestId> = Vec::new();
    let mut all = Vec::new();
    for disk in facts.disks.iter().filter(many) {
        if reported.contains(&disk.guest()) {
            continue;
        }
        reported.push(disk.guest());
        let cause = format!(
            "The guest has {} virtio-blk disks, each a separate PCI device with its own interrupts.",
            disk.details.alike_in_guest.unwrap_or_default()
        );
        let to = DiskChange { driver: Some("virtio-scsi"), ..DiskChange::default() };
        let change = change::own_disk("Attach this disk and similar ones to virtio-scsi controllers.", disk, &to);
        all.push(rule.advice(disk, &seen![disk; driver, details.alike_in_guest], &cause, change));
    }
    all
}

fn cause(gain: &Gain) -> String {
    format!(
        "virtio-scsi carries each request as a SCSI command. By virtio-blk, {} ran {} as fast.",
        gain.after.workload(),
        gain.ratio.times()
    )
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, guest, native, virtio};

    pub fn scsi(figure: f64) -> Facts {
        Bench::new()
            .cell(native("device", "rand-read-32"), 60e3)
            .cell(guest("device", "virtio-scsi", "rand-read-32"), figure)
            .cell(virtio("device", "rand-read-32"), 13e3)
            .facts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Details;
    use crate::testing::settings;

    #[test]
    fn many_disks_are_one_finding() {
        let of = |n| RULE.check(&settings(Details { alike_in_guest: Some(n).into(), ..Details::default() })).len();
        assert_eq!([of(3), of(24)], [0, 1]);
    }
}
