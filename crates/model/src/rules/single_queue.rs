//! One request queue for several vCPUs: they wait for its lock, and one of them handles all completions. QEMU's default
//! is a queue for each vCPU since machine type 5.2.

use super::change::{DiskChange, own_disk};
use super::live::{processors_of, seen};
use super::{Check, DiskRemedy, Finding, Need, Rule, Severity};
use crate::facts::{Disk, Facts, Processors};

/// Drivers with several queues.
const QUEUED: [&str; 2] = ["virtio-blk", "virtio-scsi"];

pub(super) const RULE: Rule = Rule {
    id: "single-queue",
    title: "One request queue for several vCPUs",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "QEMU, hw/core/machine.c, hw_compat_5_1 (one queue up to 5.1, then one for each vCPU)",
        "https://libvirt.org/formatdomain.html#hard-drives-floppy-disks-cdroms (queues)",
    ],
    checks: &[Check::Guests(live)],
    remedy: Some(DiskRemedy::Queues),
    #[cfg(test)]
    fixture: (|| fixture::queues(1), || fixture::queues(4)),
    ..Rule::PLAIN
};

fn live(rule: &Rule, facts: &Facts) -> Vec<Finding> {
    facts.disks.iter().filter_map(|d| single(rule, d, processors_of(d, &facts.processors)?)).collect()
}

fn single(rule: &Rule, disk: &Disk, processors: &Processors) -> Option<Finding> {
    disk.driver.as_deref().filter(|d| QUEUED.contains(d) && disk.details.queues == Some(1))?;
    let vcpus = processors.vcpus.filter(|n| *n > 1)?;
    let cause = format!(
        "The disk has one request queue for {vcpus} vCPUs: they share it, and one of them handles all interrupts."
    );
    let what = format!("Give it {vcpus} queues, one for each vCPU (QEMU's default since machine type 5.2).");
    let change = own_disk(what, disk, &DiskChange { queues: Some(vcpus), ..DiskChange::default() });
    let mut finding = rule.advice(disk, &seen![disk; driver, details.queues], &cause, change);
    finding.evidence.extend(seen![processors; vcpus].into_iter().flatten());
    Some(finding)
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Details, Facts};
    use crate::testing::{live_disk, live_processors, of_processors};

    pub fn queues(n: u32) -> Facts {
        let disk = live_disk(Details { queues: Some(n).into(), ..Details::default() });
        Facts { disks: vec![disk], ..of_processors(live_processors()) }
    }
}
