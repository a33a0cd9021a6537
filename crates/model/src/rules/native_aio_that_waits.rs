//! Linux AIO on a file that is not fully allocated: submitting a write blocks while the host's file system (or QEMU's
//! qcow2 layer) allocates, and with it everything else that the thread serves.

use super::change::{DiskChange, own_disk, uring_or_threads};
use super::live::seen;
use super::withheld::{self, Advice};
use super::{Check, DiskRemedy, Finding, Need, Rule, Severity};
use crate::cell::Aio;
use crate::facts::Disk;

pub(super) const RULE: Rule = Rule {
    id: "native-aio-that-waits",
    title: "aio=native on a growing file",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://github.com/kubevirt/kubevirt/issues/4077",
        "https://github.com/kubevirt/kubevirt/pull/4421 (native AIO only on preallocated images)",
    ],
    checks: &[Check::Disk(live)],
    remedy: Some(DiskRemedy::Aio(Aio::IoUring)),
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    disk.aio.as_deref().filter(|aio| *aio == "native")?;
    let on_file = disk.details.storage.as_deref() == Some("file") || disk.place.block_device == Some(false);
    let grows = match disk.details.format.as_deref() {
        _ if disk.sparse == Some(true) => "a sparse file",
        Some("qcow2") if on_file && disk.sparse != Some(false) => "a growing qcow2 image",
        _ => return None,
    };
    let cause = format!(
        "aio=native on {grows}: a write to an unallocated block blocks in the call that submits it, and with it \
         everything else that its thread serves."
    );
    let what = match withheld::of_disk(disk, Advice::IoUring) {
        None => "Use aio=io_uring (QEMU 5.0, Linux 5.13; threads on older ones), or preallocate the file.".to_owned(),
        Some(entry) => format!("Use aio=threads, or preallocate the file. No io_uring, since {}.", entry.because),
    };
    let change = own_disk(what, disk, &DiskChange { aio: Some(uring_or_threads(disk)), ..DiskChange::default() });
    Some(rule.advice(disk, &seen![disk; aio, details.format, sparse, details.storage], &cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Details, Disk, Facts};
    use crate::testing::{live_disk, settings};

    pub fn fires() -> Facts {
        let disk = Disk { sparse: Some(true).into(), ..live_disk(Details::default()) };
        Facts { disks: vec![disk], ..Facts::default() }
    }

    /// A file that is not known to grow.
    pub fn silent() -> Facts {
        settings(Details { storage: "file".into(), ..Details::default() })
    }
}
