//! A thin disk without discard grows to its full size: what the guest deletes stays allocated on the host, and a thin
//! pool fills up.

use super::change::{self, DiskChange};
use super::live::seen;
use super::{Check, DiskRemedy, Finding, Need, Rule, Severity, sparse_file};
use crate::facts::Disk;

pub(super) const RULE: Rule = Rule {
    id: "no-discard",
    title: "Deleted data is never freed",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &["Proxmox VE, qm.adoc, \"Trim/Discard\"", "QEMU, -blockdev discard=unmap"],
    checks: &[Check::Disk(live)],
    remedy: Some(DiskRemedy::Discard),
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    let details = &disk.details;
    if details.thin != Some(true) || details.discard != Some(false) {
        return None;
    }
    // That rule advises full allocation.
    if details.format.as_deref() == Some("raw") && sparse_file::is_felt(disk) {
        return None;
    }
    let cause = "The disk's storage allocates blocks when they are written, and the guest's discards are not passed \
                 on: what the guest deletes stays allocated until the storage is full.";
    let what = "Pass the guest's discards on, and let the guest trim: in the guest `fstrim -av` once, then \
                `systemctl enable --now fstrim.timer` (Windows trims automatically).";
    let change = change::own_disk(what, disk, &DiskChange { discard: true, ..DiskChange::default() });
    Some(rule.advice(disk, &seen![disk; details.thin, details.discard], cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Details, Facts};
    use crate::testing::settings;

    pub fn fires() -> Facts {
        settings(Details { thin: Some(true).into(), discard: Some(false).into(), ..Details::default() })
    }

    /// A fully allocated disk has no thin storage to free.
    pub fn silent() -> Facts {
        settings(Details { thin: Some(false).into(), discard: Some(false).into(), ..Details::default() })
    }
}
