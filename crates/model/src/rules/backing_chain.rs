//! A chain of images: a block that the top image lacks is looked up in each backing file, and the first write to it
//! copies a whole cluster. Snapshots and linked clones leave such chains.

use serde_json::json;

use super::change::{AppliesAt, Names, qmp, shell, thrown_away};
use super::live::seen;
use super::support::from_setting;
use super::{Change, Check, DiskRemedy, Finding, Need, Rule, Severity};
use crate::facts::{Changed, Disk, Gain, Measured, Place};

/// Any significant gain counts.
const GAIN: f64 = 1.0;
/// Number of backing files from which advice is given without a measurement: one is a linked clone, usually on purpose.
const FILES: u32 = 2;
/// The target with a chain, and the flat one.
const CHAIN: &str = "qcow2-chain";
/// See [`CHAIN`].
const FLAT: &str = "qcow2";

pub(super) const RULE: Rule = Rule {
    id: "backing-chain",
    title: "Disk image with a backing chain",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Advice,
    references: &["QEMU, docs/interop/live-block-operations.rst", "Proxmox VE, qm.adoc, \"Linked Clone\""],
    checks: &[Check::Run(measured), Check::Disk(live)],
    remedy: Some(DiskRemedy::Target("qcow2")),
    // Silent: a chain without a cost.
    #[cfg(test)]
    fixture: (|| fixture::chain(6e3), || fixture::chain(12e3)),
    ..Rule::PLAIN
};

fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let flat = |g: &&Gain| g.before.target() == Some(CHAIN) && g.after.target() == Some(FLAT);
    rule.from_gains(m, m.sure_gains(Changed::Target, GAIN).filter(flat), cause, |_| advice(&Place::default(), None))
}

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    // An image that QEMU discards would only be filled from its backing file.
    let files = disk.details.backing_files.filter(|n| *n >= FILES && !thrown_away(disk))?;
    let cause = format!(
        "The disk is the top of a chain with {files} files below it: a block that it does not hold is searched for in each of them, and the first write to a cluster copies all of it into the top file."
    );
    let mut finding = rule.advice(
        disk,
        &seen![disk; details.backing_files, details.format],
        &cause,
        advice(&disk.place, disk.details.format.as_deref()),
    );
    finding.figures.push(from_setting("files below the top one", f64::from(files), "files", disk));
    Some(finding)
}

fn cause(gain: &Gain) -> String {
    format!(
        "The disk is the top of a chain of images. On one flat image, {} ran {} as fast.",
        gain.after.workload(),
        gain.ratio.times()
    )
}

fn advice(place: &Place, format: Option<&str>) -> Change {
    let names = Names(place);
    let (domain, target) = (names.domain(), shell(place.target.as_deref().unwrap_or("vda")));
    // A job takes the name of the image's node, or of the drive; never that of the device.
    let (qemu, takes) = match (&place.monitor, place.node.as_ref().or(place.drive.as_ref())) {
        (Some(socket), Some(node)) => (
            format!(
                "# while the guest runs; the lower images may be shared: do not delete them. Done when\n\
                 # query-block-jobs no longer lists it\n{}",
                qmp(socket, "block-stream", &json!({"job-id": "flatten", "device": node}))
            ),
            AppliesAt::Running,
        ),
        // Without a monitor it is rewritten while the guest is shut down.
        _ => (
            format!(
                "# guest shut down; the lower images may be shared: do not delete them\nqemu-img rebase -p -f {} -b '' {}",
                shell(format.unwrap_or("FORMAT")),
                names.source()
            ),
            if place.domain.is_some() || place.vmid.is_some() { AppliesAt::Running } else { AppliesAt::ShutDown },
        ),
    };
    Change {
        what: "Flatten the chain: copy into the top image what it needs from the images below.".into(),
        qemu,
        libvirt: format!("virsh blockpull {domain} {target} --wait --verbose"),
        proxmox: format!(
            "# a full copy of a linked clone's disk on another storage, while it runs; snapshots: qm delsnapshot {vmid} NAME\n\
             qm disk move {vmid} {} OTHERSTORAGE",
            names.slot("virtio0"),
            vmid = names.vmid()
        ),
        takes,
        sets: None,
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, native, virtio};

    pub fn chain(figure: f64) -> Facts {
        Bench::new()
            .cell(native("qcow2-chain", "rand-write-32"), 60e3)
            .cell(virtio("qcow2-chain", "rand-write-32"), figure)
            .cell(native("qcow2", "rand-write-32"), 60e3)
            .cell(virtio("qcow2", "rand-write-32"), 12e3)
            .facts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Details;
    use crate::testing::settings;

    #[test]
    fn a_linked_clone_is_left_alone_and_a_longer_chain_is_not() {
        let of =
            |files| RULE.check(&settings(Details { backing_files: Some(files).into(), ..Details::default() })).len();
        assert_eq!([of(0), of(1), of(2), of(5)], [0, 0, 1, 1]);
    }
}
