//! `cache=unsafe`: QEMU drops the guest's flushes. What a database in the guest takes for durable
//! is lost when the host fails; its file system may be, too. The setting alone decides: whether it
//! is fast is no matter here.

use super::change::{self, To};
use super::support::{cite_count, disk_key};
use super::{Check, Finding, Need, Rule, Severity};
use crate::facts::{Disk, Measured};
use crate::setup::{Aio, Attachment, Cache};

pub(super) const RULE: Rule = Rule {
    id: "unsafe-cache",
    title: "cache=unsafe: the guest's flushes are dropped",
    needs: Need::AnySettings,
    severity: Severity::Severe,
    references: &[
        "QEMU, qemu(1), \"Block device options\": cache=unsafe, cache.no-flush",
        "https://pve.proxmox.com/wiki/Performance_Tweaks (Writeback (Unsafe))",
    ],
    checks: &[Check::Run(measured), Check::Disk(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
};

/// What to do.
const WHAT: &str = "Use cache=none (or writeback), unless the guest may be lost whole: a throw-away build machine, an \
                    installation that would be started again.";

/// What holds for every disk with it.
const CAUSE: &str = "QEMU drops the guest's flushes (cache=unsafe): what the guest takes for durable is in the host's \
                     memory, and lost when the host fails.";

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    disk.cache.as_deref().filter(|cache| *cache == "unsafe")?;
    let to = To { cache: Some(Cache::None), ..To::default() };
    // QEMU keeps what the guest writes in an image that it throws away at its end.
    let thrown_away = disk.read.get("cache").is_some_and(|from| from.contains("snapshot"));
    let what = if thrown_away { "Leave -snapshot out, if what the guest writes is to be kept." } else { WHAT };
    Some(rule.advice(disk, &["cache"], CAUSE, change::own_disk(what, disk, &to)))
}

/// One finding a disk, with the device's evidence where a durable append ran on it.
fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for cell in &m.cells {
        let Some(attachment) = cell.setup.attachment.as_ref().filter(|a| a.cache.no_flush()) else { continue };
        let disk = disk_key(&cell.setup);
        let at = all.iter().position(|f| f.subject == disk).unwrap_or_else(|| {
            let to = Attachment { cache: Cache::None, aio: Aio::Native, ..attachment.clone() };
            let mut finding = rule.finding(Severity::Severe, disk, CAUSE.to_owned(), change::settings(WHAT, &to));
            let label = "samples with cache=unsafe".to_owned();
            finding.figures.push(cite_count(m, label, f64::from(cell.samples), "samples"));
            all.push(finding);
            all.len() - 1
        });
        if let Some(durability) = &cell.durability
            && let (Some(flushes), Some(bytes)) = (durability.flushes_per_append, durability.bytes_per_append)
        {
            let finding = &mut all[at];
            finding.cause += &format!(
                " Of {} appends acknowledged here the device saw {:.1} KiB and {flushes:.2} flushes each.",
                durability.appends,
                bytes / 1024.0
            );
            finding.figures.push(cite_count(m, format!("flushes for each append: {}", cell.key), flushes, "ratio"));
            finding.figures.push(cite_count(m, format!("bytes for each append: {}", cell.key), bytes, "bytes"));
        }
    }
    all
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::setup::{Aio, Cache};
    use crate::testing::{Bench, native, virtio};

    pub fn fires() -> Facts {
        with(Cache::Unsafe)
    }

    /// Through the host's page cache, too, but flushes are passed on.
    pub fn silent() -> Facts {
        with(Cache::Writeback)
    }

    fn with(cache: Cache) -> Facts {
        let mut guest = virtio("device", "durable-append");
        if let Some(a) = &mut guest.attachment {
            (a.cache, a.aio) = (cache, Aio::Threads);
        }
        Bench::new().cell(native("device", "durable-append"), 5e3).cell(guest, 4e3).facts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Details, Facts};
    use crate::testing::live_disk;

    #[test]
    fn a_live_guest_is_told_without_any_measurement() {
        let disk = |cache: &str| Disk {
            driver: Some("virtio-scsi".into()),
            cache: Some(cache.into()),
            ..live_disk(Details::default())
        };
        let facts = |cache: &str| Facts { disks: vec![disk(cache)], ..Facts::default() };
        let found = RULE.check(&facts("unsafe"));
        assert_eq!((found.len(), found[0].severity), (1, Severity::Severe));
        assert_eq!((&*found[0].evidence[0].value, &*found[0].evidence[0].from), ("unsafe", "virsh dumpxml db1"));
        assert!(found[0].change.qemu.contains("virtio-scsi-pci") && found[0].change.qemu.contains("cache=none"));
        assert_eq!(RULE.check(&facts("writeback")), []);
    }

    #[test]
    fn the_devices_evidence_is_cited_once_a_disk() {
        let found = RULE.check(&fixture::fires());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].subject, "device/qemu/virtio-blk,unsafe,threads");
        assert!(found[0].cause.contains("the device saw 4.0 KiB and"), "{}", found[0].cause);
    }
}
