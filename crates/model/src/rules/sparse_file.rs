//! A sparse file as a guest's disk: the first write to each block makes the host's file system allocate it, update its
//! metadata and split the request, during the guest's write.

use super::live::seen;
use super::{Check, DiskRemedy, Finding, Kinds, Need, Rule, Severity, change};
use crate::facts::{Changed, Disk, Gain, Measured, Place};
use crate::paper;

/// Any significant gain counts.
const GAIN: f64 = 1.0;
/// What to do.
const WHAT: &str = "Preallocate the file, or give the guest a device (LVM, partition).";
/// The sparse target.
const SPARSE: &str = "sparse";
/// Fully allocated targets.
const FULL: [&str; 2] = ["preallocated", "device"];

pub(super) const RULE: Rule = Rule {
    id: "sparse-file",
    title: "Sparse file under the disk",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Advice,
    references: &[
        "shafer2010, section 3.3, table 1 (sparse file 1.3 MB/s, whole disk 71.5 MB/s)",
        "https://github.com/kubevirt/kubevirt/pull/4421 (native AIO only on preallocated images)",
        "https://github.com/kubevirt/kubevirt/issues/4077",
    ],
    checks: &[Check::Run(measured), Check::Disk(live)],
    kinds: Kinds::Any,
    remedy: Some(DiskRemedy::Target("preallocated")),
    published: Some(published),
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
};

fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let first_write = |g: &&Gain| {
        g.before.target() == Some(SPARSE)
            && g.after.target().is_some_and(|target| FULL.contains(&target))
            && m.job(g.before.workload()).is_some_and(|t| t.writes && !t.reads)
    };
    rule.from_gains(m, m.sure_gains(Changed::Target, GAIN).filter(first_write), cause, |_| {
        change::full_allocation(WHAT, &Place::default(), None)
    })
}

/// A smaller unallocated share is not worth a rewrite.
const MISSING_SHARE: f64 = 0.05;
const MISSING_BYTES: u64 = 1 << 30;

/// Whether enough of the disk is unallocated to slow down first writes; where the amount is unknown, any hole counts.
/// With discard holes are intended: they come back.
pub fn is_felt(disk: &Disk) -> bool {
    let missing = disk.details.virtual_bytes.zip(*disk.details.allocated_bytes);
    let much = missing.is_none_or(|(size, there)| {
        let missing = size.saturating_sub(there);
        missing >= MISSING_BYTES && missing as f64 >= MISSING_SHARE * size as f64
    });
    // Where each overwrite goes to another place, allocating first holds nothing.
    let layout = disk.details.below.layout.as_ref();
    let copied = disk.details.filesystem() == Some("zfs") || layout.and_then(|l| l.copy_on_write) == Some(true);
    disk.sparse == Some(true) && disk.details.discard != Some(true) && much && !copied
}

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    if !is_felt(disk) {
        return None;
    }
    let cause = "The disk lies in a sparse file: the first write to each block waits until the host's file system has \
                 allocated it.";
    let change = change::full_allocation(WHAT, &disk.place, disk.details.format.as_deref());
    Some(rule.advice(disk, &seen![disk; sparse, details.allocated_bytes, details.virtual_bytes], cause, change))
}

fn cause(gain: &Gain) -> String {
    format!(
        "The disk lies in a sparse file; each first write waits until the host's file system has allocated the \
         block. {} on {} ran {} as fast. Blocks once written are not slower afterwards.",
        gain.after.workload(),
        match gain.after.target().unwrap_or_default() {
            "device" => "the whole device",
            _ => "a preallocated file",
        },
        gain.ratio.times()
    )
}

/// Whether a published figure compares a sparse file with other storage, with the same driver.
fn published(slow: &paper::Pattern, fast: &paper::Pattern) -> bool {
    slow.driver.is_some() && slow.driver == fast.driver && slow.target.as_deref() == Some(SPARSE)
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, native, virtio};

    pub fn fires() -> Facts {
        Bench::new()
            .cell(native("sparse", "seq-write"), 500e6)
            .cell(virtio("sparse", "seq-write"), 100e6)
            .cell(native("preallocated", "seq-write"), 700e6)
            .cell(virtio("preallocated", "seq-write"), 250e6)
            .facts()
    }

    /// Reads of a sparse file are not first writes, however slow.
    pub fn silent() -> Facts {
        Bench::new()
            .cell(native("sparse", "seq-read"), 500e6)
            .cell(virtio("sparse", "seq-read"), 100e6)
            .cell(native("preallocated", "seq-read"), 700e6)
            .cell(virtio("preallocated", "seq-read"), 250e6)
            .facts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Details, Facts};
    use crate::rules::findings;
    use crate::testing::live_disk;

    #[test]
    fn holes_that_are_few_or_meant_to_be_are_left_alone() {
        let felt = |size: Option<u64>, there: Option<u64>, discard: bool| {
            let (virtual_bytes, allocated_bytes) = (size.map(|n| n << 20), there.map(|n| n << 20));
            let details = Details {
                virtual_bytes: virtual_bytes.into(),
                allocated_bytes: allocated_bytes.into(),
                discard: Some(discard).into(),
                ..Details::default()
            };
            is_felt(&Disk { sparse: Some(true).into(), ..live_disk(details) })
        };
        assert!(felt(Some(20 << 10), Some(10 << 10), false) && felt(None, None, false));
        assert!(!felt(Some(20 << 10), Some(10 << 10), true), "discard makes holes");
        assert!(!felt(Some(2048), Some(1536), false), "half a GiB");
        assert!(!felt(Some(100 << 10), Some(97 << 10), false), "3 %");
    }

    /// Full allocation and discard exclude each other.
    #[test]
    fn a_raw_file_gets_one_advice_on_its_holes() {
        let rules = |format: &str| {
            let details = Details {
                format: Some(format.into()).into(),
                thin: Some(true).into(),
                discard: Some(false).into(),
                ..Details::default()
            };
            let disk = Disk { sparse: Some(true).into(), aio: "io_uring".into(), ..live_disk(details) };
            let found = findings(&Facts { disks: vec![disk], ..Facts::default() });
            found.into_iter().map(|f| f.rule).collect::<Vec<String>>()
        };
        assert_eq!(rules("raw"), ["sparse-file"]);
        assert!(rules("qcow2").contains(&"no-discard".to_owned()));
    }
}
