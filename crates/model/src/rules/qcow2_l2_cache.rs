//! qcow2 finds a guest's block through an L2 table. Entries missing in QEMU's cache are read from the image first:
//! random I/O over more than the cache covers takes two requests instead of one. An entry of 8 bytes covers a cluster.

use super::change::{AppliesAt, DiskChange, own_disk};
use super::live::seen;
use super::support::from_setting;
use super::{Change, Check, DiskRemedy, Finding, Need, Rule, Severity};
use crate::facts::{Changed, Details, Disk, Gain, Measured};

/// Any significant gain counts.
const GAIN: f64 = 1.0;
/// Bytes of an entry of the L2 table (QEMU, docs/interop/qcow2.txt).
const ENTRY_BYTES: u64 = 8;
/// Targets whose cache covers a part of the disk, and all of it.
const SMALL: &str = "qcow2-small-l2";
/// See [`SMALL`].
const FULL: &str = "qcow2-full-l2";
/// What to do.
const WHAT: &str = "Let QEMU cache all L2 tables (disk size / cluster size * 8 bytes), or use larger clusters or raw.";

pub(super) const RULE: Rule = Rule {
    id: "qcow2-l2-cache",
    title: "qcow2 L2 cache does not cover the disk",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Advice,
    references: &["QEMU, docs/qcow2-cache.txt", "libvirt, formatdomain.html, metadata_cache (7.0.0)"],
    checks: &[Check::Run(measured), Check::Disk(live)],
    remedy: Some(DiskRemedy::Target("qcow2-full-l2")),
    // Silent: the tables were in the cache either way.
    #[cfg(test)]
    fixture: (|| fixture::covering(12e3), || fixture::covering(7e3)),
    ..Rule::PLAIN
};

fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let covered = |g: &&Gain| g.before.target() == Some(SMALL) && g.after.target() == Some(FULL);
    rule.from_gains(m, m.sure_gains(Changed::Target, GAIN).filter(covered), cause, |_| advice())
}

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    let (needed, has) = uncovered(&disk.details)?;
    let cause = format!(
        "The image's L2 tables take {needed} bytes and QEMU caches {has}: random I/O beyond {:.0} % of the disk must \
         read a table first.",
        100.0 * has as f64 / needed as f64
    );
    let mut finding = rule.advice(
        disk,
        &seen![disk; details.format, details.virtual_bytes, details.cluster_bytes, details.l2_cache_bytes],
        &cause,
        own_disk(WHAT, disk, &DiskChange { l2_cache: Some(needed), ..DiskChange::default() }),
    );
    finding.figures.push(from_setting("L2 tables of the image", needed as f64, "bytes", disk));
    finding.figures.push(from_setting("QEMU's cache of them", has as f64, "bytes", disk));
    Some(finding)
}

/// Bytes of all L2 tables and of the cache, where the cache is smaller.
fn uncovered(d: &Details) -> Option<(u64, u64)> {
    if d.format.as_deref() != Some("qcow2") {
        return None;
    }
    let needed = (*d.virtual_bytes)?.div_ceil(d.cluster_bytes.filter(|b| *b > 0)?) * ENTRY_BYTES;
    d.l2_cache_bytes.filter(|has| *has < needed).map(|has| (needed, has))
}

fn cause(gain: &Gain) -> String {
    format!(
        "QEMU's cache of the image's L2 tables covers only part of the disk; requests beyond it must read a table \
         first. With \
         a cache that covers the disk, {} ran {} as fast.",
        gain.after.workload(),
        gain.ratio.times()
    )
}

/// For a measured image, which is not the reader's.
fn advice() -> Change {
    Change {
        what: WHAT.into(),
        qemu: "# one more option of the disk's -drive or -blockdev (driver qcow2)\nl2-cache-size=BYTES".into(),
        libvirt: "virsh edit DOMAIN\n\
                  # inside of the disk's <driver ... type='qcow2' ...>; libvirt counts 4 clusters more, for other \
                  tables:\n\
                  <metadata_cache><max_size unit='bytes'>BYTES</max_size></metadata_cache>"
            .into(),
        proxmox: "# Proxmox VE has no setting for it: raw has no tables (and no snapshots on a directory)\n\
                  qm disk move VMID SLOT STORAGE --format raw"
            .into(),
        takes: AppliesAt::NextStart,
        sets: None,
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, native, virtio};

    pub fn covering(full: f64) -> Facts {
        Bench::new()
            .cell(native("qcow2-small-l2", "rand-read-32"), 60e3)
            .cell(virtio("qcow2-small-l2", "rand-read-32"), 7e3)
            .cell(native("qcow2-full-l2", "rand-read-32"), 60e3)
            .cell(virtio("qcow2-full-l2", "rand-read-32"), full)
            .facts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::settings;

    #[test]
    fn a_live_image_is_judged_by_its_size() {
        let of = |cache: u64| {
            let details = Details {
                format: "qcow2".into(),
                virtual_bytes: Some(1 << 40).into(),
                cluster_bytes: Some(64 << 10).into(),
                l2_cache_bytes: Some(cache).into(),
                ..Details::default()
            };
            RULE.check(&settings(details))
        };
        // 1 TiB with clusters of 64 KiB has 128 MiB of tables; QEMU's default is 32 MiB.
        assert!(of(32 << 20)[0].cause.contains("134217728 bytes and QEMU caches 33554432"));
        assert!(of(32 << 20)[0].change.qemu.contains("l2-cache-size=134217728"));
        assert_eq!(of(128 << 20), []);
    }
}
