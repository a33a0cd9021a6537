//! The host's page cache below a guest's disk: writes are acknowledged from memory (the guest's flushes are still
//! passed on), data are cached twice, and the host writes them back in bursts. It can be faster (a shorter fsync) or
//! slower, so it is reported and measured.
//!
//! `writethrough` and `directsync` give the guest a disk without a write cache: QEMU forces each write to the disk
//! before it acknowledges it (block/block-backend.c, `blk_co_do_pwritev_part`), so nothing is written back in bursts.

use super::change::{self, DiskChange};
use super::live::{bytes_shown, seen};
use super::support::{better, from_setting};
use super::withheld::{self, Advice};
use super::{Check, DiskRemedy, Finding, Need, Rule, Severity};
use crate::cell::{Cache, Cell};
use crate::facts::{Changed, Disk, Gain, Measured};

/// Least gain: page caches differ by less from moment to moment.
const GAIN: f64 = 1.2;

pub(super) const RULE: Rule = Rule {
    id: "host-page-cache",
    title: "Disk goes through the host's page cache",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Advice,
    references: &[
        "Proxmox VE, qm.adoc, \"Cache Mode\"",
        "QEMU, qemu(1), \"Block device options\": cache",
        "https://github.com/neondatabase/autoscaling/issues/775 (fast, then storms of eviction)",
    ],
    checks: &[Check::Run(measured), Check::Disk(live)],
    remedy: Some(DiskRemedy::Pair),
    // Silent: reads from the page cache are another rule's finding.
    #[cfg(test)]
    fixture: (|| fixture::writeback("rand-write-32"), || fixture::writeback("rand-read-32")),
    ..Rule::PLAIN
};

fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let cached = |g: &&Gain| {
        let direct = |s: &Cell| s.attachment().is_some_and(|a| a.cache.direct());
        // writethrough acknowledges nothing from memory: its gain has another cause.
        let from_memory = g.after.attachment().is_some_and(|a| a.cache == Cache::Writeback);
        let writes = m.job(g.before.workload()).is_some_and(|t| t.writes);
        direct(&g.before) && from_memory && writes
    };
    let mut found = rule.from_gains(m, m.sure_gains(Changed::CacheAio, GAIN).filter(cached), cause, |g| {
        let to = better(g);
        let what = "If memory to spare and bursts of write-back are acceptable";
        change::settings(format!("{what}: cache={}; otherwise do not change it.", to.cache), &to)
    });
    // It is a trade-off, not a fault.
    found.iter_mut().for_each(|f| f.severity = Severity::Note);
    found
}

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    match disk.cache.as_deref()? {
        "writeback" if disk.is_cacheable() => written_back(rule, disk),
        "writethrough" => Some(flushed(rule, disk, "writethrough", disk.is_cacheable())),
        "directsync" => Some(flushed(rule, disk, "directsync", false)),
        _ => None,
    }
}

/// What the page cache holds of the disk now, for a sentence.
fn held(disk: &Disk) -> String {
    match *disk.details.host_cached_bytes {
        Some(bytes) if bytes > 0 => format!(" (now {})", bytes_shown(bytes)),
        _ => String::new(),
    }
}

/// A finding with what the page cache holds.
fn with_figure(mut finding: Finding, disk: &Disk) -> Finding {
    let held = *disk.details.host_cached_bytes;
    finding.figures.extend(held.map(|b| from_setting("now in the host's page cache", b as f64, "bytes", disk)));
    finding
}

/// `cache=writeback`; right where direct I/O breaks.
fn written_back(rule: &Rule, disk: &Disk) -> Option<Finding> {
    if withheld::of_disk(disk, Advice::CacheNone).is_some() {
        return None;
    }
    let cause = format!(
        "cache=writeback: the guest's data is also kept in the host's page cache{}; other guests and the host lose \
         that memory, and a burst of write-back stalls everyone on the same disk.",
        held(disk)
    );
    let to = DiskChange { cache: Some(Cache::None), ..DiskChange::default() };
    let change = change::own_disk("Use cache=none, unless measurements favour the current mode.", disk, &to);
    Some(with_figure(rule.advice(disk, &seen![disk; cache, details.host_cached_bytes], &cause, change), disk))
}

/// `cache=writethrough` and `directsync`; `cached`: through the page cache.
fn flushed(rule: &Rule, disk: &Disk, mode: &str, cached: bool) -> Finding {
    let mut cause = format!(
        "cache={mode}: each write of the guest waits until the disk has it (flush or FUA), whether the \
         guest asked for it or not; the guest's own flushes then find nothing to do."
    );
    if cached {
        cause.push_str(&format!(" The data is also kept in the host's page cache{}.", held(disk)));
    }
    let to = change::cache_mode(disk);
    let what = format!(
        "Use cache={to}: the guest's own flushes still reach the disk. Keep {mode} only for a system that sends none \
         (Linux before 2.6.32, some appliances)."
    );
    let change = change::own_disk(what, disk, &DiskChange { cache: Some(to), ..DiskChange::default() });
    let shown =
        if cached { seen![disk; cache, details.host_cached_bytes].to_vec() } else { seen![disk; cache].to_vec() };
    let mut finding = rule.advice(disk, &shown, &cause, change);
    "Each write waits for a flush".clone_into(&mut finding.title);
    if cached { with_figure(finding, disk) } else { finding }
}

fn cause(gain: &Gain) -> String {
    format!(
        "Through the host's page cache, {} ran {} as fast: it is acknowledged from the host's memory. The guest's \
         flushes still reach the disk; the memory is taken from the host, and it is written back in bursts.",
        gain.after.workload(),
        gain.ratio.times()
    )
}

#[cfg(test)]
mod fixture {
    use crate::cell::{Aio, Cache};
    use crate::facts::Facts;
    use crate::testing::{Bench, native, virtio};

    pub fn writeback(workload: &str) -> Facts {
        let mut cached = virtio("device", workload);
        if let Some(a) = cached.attachment_mut() {
            (a.cache, a.aio) = (Cache::Writeback, Aio::Threads);
        }
        Bench::new()
            .cell(native("device", workload), 60e3)
            .cell(virtio("device", workload), 13e3)
            .cell(cached, 40e3)
            .facts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Details, Place};
    use crate::testing::{live_disk, on_filesystem};

    #[test]
    fn a_flush_for_each_write_is_told_as_one() {
        let of = |cache: &str, filesystem: &str, storage: &str| {
            let details = Details {
                storage: Some(storage.into()).into(),
                below: on_filesystem(filesystem),
                host_cached_bytes: Some(3 << 19).into(),
                ..Details::default()
            };
            live(&RULE, &Disk { cache: Some(cache.into()).into(), ..live_disk(details) })
        };
        for (cache, storage) in [("writethrough", "file"), ("directsync", "file"), ("directsync", "rbd")] {
            let found = of(cache, "ext4", storage).unwrap_or_else(|| panic!("{cache} on {storage} is told"));
            assert_eq!(found.title, "Each write waits for a flush");
            assert!(found.cause.contains("(flush or FUA)") && !found.cause.contains("write-back"));
            assert_eq!(found.cause.contains("page cache (now 1.5 MiB)"), cache == "writethrough", "{}", found.cause);
            assert!(found.change.qemu.contains("cache=none") && found.change.what.contains("Use cache=none"));
            assert!(found.cause.len() < 330, "{}", found.cause);
        }
        // A file system with checksums keeps its page cache, and writeback is right there.
        let kept = of("writethrough", "btrfs", "file").map(|f| f.change.libvirt).unwrap_or_default();
        assert!(kept.contains("cache='writeback'") && of("writeback", "btrfs", "file").is_none(), "{kept}");
        assert!(of("writeback", "ext4", "file").is_some() && of("none", "ext4", "file").is_none());
    }

    #[test]
    fn only_what_the_hosts_kernel_caches() {
        let cause_of = |storage: &str, block_device: Option<bool>, held: u64| {
            let details = Details {
                storage: Some(storage.into()).into(),
                host_cached_bytes: Some(held).into(),
                ..Details::default()
            };
            let place = Place { block_device, ..Place::default() };
            let disk = Disk { cache: "writeback".into(), place, ..live_disk(details) };
            live(&RULE, &disk).map(|f| f.cause)
        };
        assert!(cause_of("file", Some(false), 3 << 19).is_some_and(|cause| cause.contains("(now 1.5 MiB)")));
        assert!(cause_of("lvm", Some(true), 0).is_some_and(|cause| !cause.contains("now")));
        // Mapped by the kernel, or librbd in QEMU.
        assert!(cause_of("rbd", Some(true), 0).is_some() && cause_of("rbd", None, 0).is_none());
        for storage in ["nbd", "iscsi", "https", "vhost-user"] {
            assert_eq!(cause_of(storage, None, 0), None, "{storage}");
        }
    }
}
