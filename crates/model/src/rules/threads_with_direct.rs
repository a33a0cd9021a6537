//! `aio=threads` with O_DIRECT on a block device: each request is passed to a pool thread and back, two context
//! switches that Linux AIO and io_uring save. (For a growing file threads are a good choice: they may block.)

use super::change::{DiskChange, own_disk};
use super::live::seen;
use super::withheld::{self, Advice};
use super::{Check, DiskRemedy, Finding, Need, Rule, Severity};
use crate::cell::Aio;
use crate::facts::Disk;

/// Cache modes with O_DIRECT.
const DIRECT: [&str; 2] = ["none", "directsync"];

pub(super) const RULE: Rule = Rule {
    id: "threads-with-direct",
    title: "Thread pool on a block device",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://kb.blockbridge.com/technote/proxmox-optimizing-windows-server/part-1.html (native, io_uring, threads)",
        "QEMU, qemu(1), \"Block device options\": aio",
    ],
    checks: &[Check::Disk(live)],
    remedy: Some(DiskRemedy::Aio(Aio::Native)),
    // Silent: a file.
    #[cfg(test)]
    fixture: (|| fixture::on(true), || fixture::on(false)),
    ..Rule::PLAIN
};

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    let is = |value: &Option<String>, names: &[&str]| value.as_deref().is_some_and(|v| names.contains(&v));
    let fits = is(&disk.aio, &["threads"])
        && is(&disk.cache, &DIRECT)
        && is(&disk.details.format, &["raw"])
        && disk.place.block_device == Some(true);
    if !fits {
        return None;
    }
    let cause = "aio=threads passes each request to a thread and back; on a block device with O_DIRECT the kernel \
                 takes \
                 them asynchronously.";
    let what = match withheld::of_disk(disk, Advice::IoUring) {
        None => "Use aio=native (or io_uring).",
        Some(_) => "Use aio=native.",
    };
    let change = own_disk(what, disk, &DiskChange { aio: Some(Aio::Native), ..DiskChange::default() });
    Some(rule.advice(disk, &seen![disk; aio, cache, details.format, details.storage], cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Details, Disk, Facts, Place};
    use crate::testing::live_disk;

    pub fn on(block_device: bool) -> Facts {
        let disk = Disk {
            aio: "threads".into(),
            place: Place { block_device: Some(block_device), ..Place::default() },
            ..live_disk(Details { format: "raw".into(), ..Details::default() })
        };
        Facts { disks: vec![disk], ..Facts::default() }
    }
}
