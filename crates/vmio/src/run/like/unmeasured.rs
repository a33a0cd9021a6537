//! The advice that a reference guest cannot show, with the reasons.

use vmio_model::rules::Finding;
use vmio_model::rules::change::{DeviceChange, DiskChange};

/// Why a finding's change is not measured at all.
pub fn why(finding: &Finding) -> &'static str {
    let Some(DeviceChange::Disk(DiskChange { driver, iothread, .. })) = &finding.change.sets else {
        return "it is not a disk setting that a reference guest can have";
    };
    match (driver, iothread) {
        (Some(_), _) => "it is about many disks in use at once; the reference guest uses one",
        (None, true) => "it is about disks that share a thread; the reference guest's thread serves one disk",
        (None, false) => "vmio has no such set-up",
    }
}

/// What of a change that is measured differs from what is advised.
pub fn part(finding: &Finding) -> Option<String> {
    let Some(DeviceChange::Disk(to)) = &finding.change.sets else { return None };
    let rule = &finding.rule;
    match (to.queues, to.l2_cache) {
        (Some(n), _) => {
            Some(format!("{rule}: one queue for each vCPU of the reference guest, QEMU's default, instead of {n}"))
        }
        (_, Some(_)) => {
            Some(format!("{rule}: a cache that covers the reference guest's image, not the guest's own size"))
        }
        _ => None,
    }
}
