//! A file with holes under the guest's disk: the first write to each block makes the host's file
//! system allocate it, update its metadata and split the request, inside the guest's write.

use super::support::times;
use super::{Check, Finding, Need, Rule, Severity, change};
use crate::facts::{Changed, Disk, Gain, Measured, Place};

/// Any sure gain counts.
const GAIN: f64 = 1.0;
/// What to do.
const WHAT: &str = "Write the file out before the guest uses it, or give the guest a device (LVM, partition).";
/// The target with holes.
const SPARSE: &str = "sparse";
/// Targets whose blocks are all there.
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
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
};

fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let first_write = |g: &&Gain| {
        g.before.target == SPARSE
            && FULL.contains(&g.after.target.as_str())
            && m.traits(&g.before.workload).is_some_and(|t| t.writes && !t.reads)
    };
    rule.from_gains(m, m.sure_gains(Changed::Target, GAIN).filter(first_write), cause, |_| {
        change::full_allocation(WHAT, &Place::default(), None)
    })
}

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    disk.sparse.filter(|sparse| *sparse)?;
    let cause = "The disk lies in a file with holes: the first write to each block waits until the host's file system has \
                 allocated it.";
    let change = change::full_allocation(WHAT, &disk.place, disk.details.format.as_deref());
    Some(rule.advice(disk, &["sparse", "allocated_bytes", "virtual_bytes"], cause, change))
}

fn cause(gain: &Gain) -> String {
    format!(
        "The disk lies in a file with holes; each first write waits until the host's file system has allocated the \
         block. {} on {} ran {} as fast. Blocks once written are not slower afterwards.",
        gain.after.workload,
        match gain.after.target.as_str() {
            "device" => "the whole device",
            _ => "a file written out beforehand",
        },
        times(&gain.ratio)
    )
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
