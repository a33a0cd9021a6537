//! `cache=unsafe`: QEMU drops the guest's flushes. Data that a guest's database flushed are lost when the host fails,
//! perhaps with the whole file system. The setting alone decides, whatever its speed.

use super::change::{self, AppliesAt, Change, DiskChange, Names};
use super::live::seen;
use super::support::{cite_count, disk_key};
use super::{Check, DiskRemedy, Finding, Kinds, Need, Rule, Severity};
use crate::cell::{Aio, Attachment, Cache, Vmm};
use crate::facts::{Disk, Facts, Measured};

pub(super) const RULE: Rule = Rule {
    id: "unsafe-cache",
    title: "cache=unsafe: the guest's flushes are dropped",
    needs: Need::AnySettings,
    severity: Severity::Severe,
    references: &[
        "QEMU, qemu(1), \"Block device options\": cache=unsafe, cache.no-flush",
        "https://pve.proxmox.com/wiki/Performance_Tweaks (Writeback (Unsafe))",
    ],
    checks: &[Check::Run(measured), Check::Guests(live)],
    kinds: Kinds::Any,
    remedy: Some(DiskRemedy::Pair),
    // Silent: also through the host's page cache, but flushes are passed on.
    #[cfg(test)]
    fixture: (|| fixture::with(Cache::Unsafe), || fixture::with(Cache::Writeback)),
    ..Rule::PLAIN
};

/// What to do.
const WHAT: &str = "Use cache=none (or writeback), unless losing the whole guest is acceptable: a disposable build \
                    machine, an installation that would be repeated.";

/// The cause for every disk with it.
const CAUSE: &str = "QEMU drops the guest's flushes (cache=unsafe): what the guest believes durable is in the host's \
                     memory, and lost if the host fails.";

fn live(rule: &Rule, facts: &Facts) -> Vec<Finding> {
    let disks = facts.disks.iter().filter(|disk| disk.cache.as_deref() == Some("unsafe"));
    match facts.vmm {
        Vmm::Qemu => disks.map(|disk| of_qemu(rule, disk)).collect(),
        Vmm::Firecracker => disks.map(|disk| of_firecracker(rule, disk)).collect(),
        Vmm::Other => Vec::new(),
    }
}

/// Firecracker's default, suitable for the short-lived guests that it is mostly used for (its
/// `docs/api_requests/block-caching.md`).
fn of_firecracker(rule: &Rule, disk: &Disk) -> Finding {
    let cause = "Firecracker offers the guest no flush for this drive (cache_type Unsafe, its default): what the \
                 guest believes durable is in the host's memory, and lost if the host fails.";
    let what = "Enable flushes if the drive's contents must survive a host failure.";
    let set = "\"cache_type\": \"Writeback\"    # in the drive's configuration, before the microVM starts";
    let change = Change { takes: AppliesAt::NextStart, ..change::on_host(what, set) };
    let mut finding = rule.advice(disk, &seen![disk; cache], cause, change);
    finding.severity = Severity::Advice;
    finding.title = "The guest cannot flush its drive".to_owned();
    finding.references = vec!["Firecracker, docs/api_requests/block-caching.md".to_owned()];
    finding
}

fn of_qemu(rule: &Rule, disk: &Disk) -> Finding {
    if change::thrown_away(disk) {
        return of_a_snapshot(rule, disk);
    }
    let mode = change::cache_mode(disk);
    let what = if mode == Cache::None { WHAT.to_owned() } else { WHAT.replace("none (or writeback)", "writeback") };
    let to = DiskChange { cache: Some(mode), ..DiskChange::default() };
    rule.advice(disk, &seen![disk; cache], CAUSE, change::own_disk(what, disk, &to))
}

/// A guest with a temporary image: another cache mode would change nothing, and without the option it would write to
/// the image, which is its owner's decision and is not combined with other changes.
fn of_a_snapshot(rule: &Rule, disk: &Disk) -> Finding {
    let cause = "The guest's writes go to a temporary image without flushes, which QEMU deletes when it exits \
                 (-snapshot, snapshot=on): right only for a guest that starts fresh each time.";
    let names = Names(&disk.place);
    let (vmid, slot) = (names.vmid(), names.slot("virtio0"));
    let warning = "# only to keep what the guest writes: from its next start on it writes into its image";
    let change = Change {
        what: "Remove snapshot only if you want to keep what the guest writes; otherwise change nothing.".into(),
        qemu: format!(
            "{warning}\n# take snapshot=on away from its own -drive, or -snapshot, which is for all disks of the guest"
        ),
        libvirt: format!(
            "{warning}\nvirsh edit {}\n# take -snapshot or snapshot=on away from its <qemu:commandline>",
            names.domain()
        ),
        proxmox: format!(
            "{warning}\nqm config {vmid} | grep -e '^{slot}: ' -e '^args: '    # set what has snapshot without it"
        ),
        takes: AppliesAt::NextStart,
        sets: None,
    };
    let mut finding = rule.advice(disk, &seen![disk; cache], cause, change);
    // It was requested, and is right for a guest that begins anew each time.
    finding.severity = Severity::Warning;
    finding.title = "What the guest writes is thrown away at its end".to_owned();
    finding.references = vec!["QEMU, qemu(1), -snapshot; \"Block device options\": snapshot=on".to_owned()];
    finding
}

/// One finding for each disk, with device counters where a durable append ran on it.
fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for cell in &m.cells {
        let Some(attachment) = cell.cell.attachment().filter(|a| a.cache.no_flush()) else { continue };
        let disk = disk_key(&cell.cell);
        let at = all.iter().position(|f| f.subject.is_cell(&disk)).unwrap_or_else(|| {
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
    use crate::cell::{Aio, Cache};
    use crate::facts::Facts;
    use crate::testing::{Bench, native, virtio};

    pub fn with(cache: Cache) -> Facts {
        let mut guest = virtio("device", "durable-append");
        if let Some(a) = guest.attachment_mut() {
            (a.cache, a.aio) = (cache, Aio::Threads);
        }
        Bench::new().cell(native("device", "durable-append"), 5e3).cell(guest, 4e3).facts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Kind;
    use crate::facts::{CommandLineOption, Details, Fact, Source};
    use crate::testing::live_disk;

    #[test]
    fn a_live_guest_is_told_without_any_measurement() {
        let disk = |cache: &str| Disk {
            driver: "virtio-scsi".into(),
            cache: Some(cache.into()).into(),
            ..live_disk(Details::default())
        };
        let facts = |cache: &str| Facts { disks: vec![disk(cache)], ..Facts::default() };
        let found = RULE.check(&facts("unsafe"));
        assert_eq!((found.len(), found[0].severity), (1, Severity::Severe));
        assert_eq!((&*found[0].evidence[0].value, &*found[0].evidence[0].from), ("unsafe", "virsh dumpxml db1"));
        assert!(found[0].change.qemu.contains("\ncache=none,aio=io_uring\n"), "{}", found[0].change.qemu);
        assert_eq!(RULE.check(&facts("writeback")), []);
    }

    #[test]
    fn a_guest_that_is_thrown_away_is_not_made_to_keep_its_writes_by_the_way() {
        let read = |from: Source| Disk {
            cache: Fact::read(Some("unsafe".into()), from),
            aio: "native".into(),
            iothread: Some(false).into(),
            ..live_disk(Details { format: "raw".into(), ..Details::default() })
        };
        let by_option = |name: &str, keys| read(CommandLineOption { keys, ..CommandLineOption::new(812, name) }.into());
        let mut by_monitor = read("QMP, query-block".into());
        by_monitor.place.source = "/var/tmp/vl.LZJGZ3".into();
        for disk in [by_option("snapshot", None), by_option("drive", Some("snapshot=on")), by_monitor] {
            let facts = Facts { disks: vec![disk], ..Facts::default() };
            let found = crate::rules::findings(&facts);
            let ids: Vec<&str> = found.iter().map(|f| &*f.rule).collect();
            assert_eq!(ids, ["unsafe-cache", "missing-iothread"]);
            assert_eq!(
                (found[0].severity, &*found[0].title),
                (Severity::Warning, "What the guest writes is thrown away at its end")
            );
            let change = &found[0].change;
            assert_eq!(change.sets, None, "another finding's change would take it along");
            for text in [&change.qemu, &change.libvirt, &change.proxmox] {
                assert!(text.starts_with("# only to keep what the guest writes"), "{text}");
            }
            for text in found.iter().flat_map(|f| [&f.change.qemu, &f.change.libvirt, &f.change.proxmox]) {
                assert!(!text.contains("cache=") && !text.contains("-drive file="), "{text}");
            }
        }
    }

    #[test]
    fn firecrackers_default_is_told_as_its_own() {
        let disk = Disk { cache: "unsafe".into(), ..live_disk(Details::default()) };
        let facts = |kind: &str| Facts { vmm: Kind::of(kind).vmm, disks: vec![disk.clone()], ..Facts::default() };
        let found = RULE.check(&facts("firecracker"));
        assert_eq!((found.len(), found[0].severity), (1, Severity::Advice));
        assert!(found[0].change.ways()[0].1.starts_with("\"cache_type\": \"Writeback\""), "{:?}", found[0].change);
        assert_eq!((RULE.check(&facts("qemu")).len(), RULE.check(&facts("xen"))), (1, vec![]));
    }

    #[test]
    fn the_devices_evidence_is_cited_once_a_disk() {
        let found = RULE.check(&(RULE.fixture.0)());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].subject.to_string(), "device/qemu/virtio-blk,unsafe,threads");
        assert!(found[0].cause.contains("the device saw 4.0 KiB and"), "{}", found[0].cause);
    }
}
