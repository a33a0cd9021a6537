//! A limit in force on a disk: when it is reached, no other setting makes the disk faster. Of a network card:
//! [`limit_on_card`].

use serde_json::json;

use super::change::{AppliesAt, Change, Names, comment, qmp, shell, slot_without};
use super::live::seen;
use super::{Check, Finding, Kinds, Need, Rule, Severity, limit_on_card};
use crate::facts::Disk;

/// Proxmox's limits of a disk (`qm(1)`).
const LIMITS: [&str; 21] = [
    "mbps",
    "mbps_rd",
    "mbps_wr",
    "mbps_max",
    "mbps_rd_max",
    "mbps_wr_max",
    "iops",
    "iops_rd",
    "iops_wr",
    "iops_max",
    "iops_rd_max",
    "iops_wr_max",
    // QEMU refuses to start with bursts without a limit.
    "bps",
    "bps_rd",
    "bps_wr",
    "bps_max_length",
    "bps_rd_max_length",
    "bps_wr_max_length",
    "iops_max_length",
    "iops_rd_max_length",
    "iops_wr_max_length",
];

pub(super) const RULE: Rule = Rule {
    id: "limit-in-force",
    title: "The disk is throttled",
    needs: Need::Settings,
    severity: Severity::Note,
    references: &[
        "https://libvirt.org/manpages/virsh.html#blkdeviotune",
        "QEMU, docs/throttle.txt",
        "Proxmox VE, qm(1), mbps, iops; of a card: rate",
        "https://libvirt.org/formatdomain.html#quality-of-service",
        "https://docs.openvswitch.org/en/latest/faq/qos/ (a policer's burst)",
    ],
    checks: &[Check::Disk(live), Check::Nic(limit_on_card::live)],
    kinds: Kinds::Any,
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

/// Directions of a limit.
const WAYS: [&str; 3] = ["total", "read", "write"];

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    if disk.details.limits.is_empty() {
        return None;
    }
    // Linux Documentation/admin-guide/cgroup-v1/blkio-controller.rst: who wrote to the page cache is not charged when
    // that is written back.
    let passed = if disk.details.writes_uncharged == Some(true) && !disk.is_direct() {
        " Its control group is of version 1: writes through the page cache pass that limit."
    } else {
        ""
    };
    let cause = format!(
        "In force: {}. A guest that reaches a limit waits, even if the disk could do more.{passed}",
        disk.details.limits.join("; ")
    );
    let names = Names(&disk.place);
    let (domain, target) = (names.domain(), shell(disk.place.target.as_deref().unwrap_or("vda")));
    let (vmid, slot) = (names.vmid(), names.slot("virtio0"));
    // A limit is removed with its bursts: libvirt refuses one without the other.
    let mut none = String::new();
    for (way, unit) in WAYS.into_iter().flat_map(|way| ["bytes", "iops"].map(|unit| (way, unit))) {
        for part in ["", "-max", "-max-length"] {
            none.push_str(&format!(" --{way}-{unit}-sec{part} 0"));
        }
    }
    let change = Change {
        what: "If it is intended, keep it, and do not measure the disk through it; otherwise raise or remove it (0)."
            .into(),
        qemu: qemu(disk),
        libvirt: format!(
            "virsh blkdeviotune {domain} {target}    # what is in force\n\
             virsh blkdeviotune {domain} {target}{none} --live --config"
        ),
        proxmox: format!("{} && \\\nqm set {vmid} --{slot} \"$disk\"", slot_without(&vmid, &slot, &LIMITS)),
        takes: AppliesAt::Running,
        sets: None,
    };
    Some(rule.advice(disk, &seen![disk; details.limits], &cause, change))
}

/// By the monitor for now, and on the command line for later. QMP names a drive by its name, other disks by the
/// device's path, and a group's limits by the group.
fn qemu(disk: &Disk) -> String {
    let place = &disk.place;
    let set = |on: &str, name: &str| {
        let mut zero = json!({ on: name });
        ["bps", "bps_rd", "bps_wr", "iops", "iops_rd", "iops_wr"].iter().for_each(|key| zero[*key] = json!(0));
        ("block_set_io_throttle", zero)
    };
    let group = disk.details.throttle_group.as_deref();
    let command = match (group, &place.drive, &place.qom) {
        (Some(group), ..) => {
            let mut limits = json!({});
            for key in WAYS.iter().flat_map(|way| ["bps", "iops"].map(|unit| format!("{unit}-{way}"))) {
                // QEMU refuses a burst of length 0.
                (limits[&*key], limits[format!("{key}-max")], limits[format!("{key}-max-length")]) =
                    (json!(0), json!(0), json!(1));
            }
            Some(("qom-set", json!({"path": format!("/objects/{group}"), "property": "limits", "value": limits})))
        }
        (None, Some(drive), _) => Some(set("device", drive)),
        (None, None, Some(device)) => Some(set("id", device)),
        (None, None, None) => None,
    };
    let mut text = Vec::new();
    if let (Some(socket), Some((command, arguments))) = (&place.monitor, command) {
        text.push(format!("# at once:\n{}", qmp(socket, command, &arguments)));
    }
    if !disk.details.limit_keys.is_empty() {
        let place = match group {
            Some(id) => format!("in the -object throttle-group with id={}", comment(id)),
            None => "in its own -drive".to_owned(),
        };
        let keys = shell(&disk.details.limit_keys.join(","));
        text.push(format!("# from the next start on, {place}: remove these, keep all else\n{keys}"));
    }
    if text.is_empty() {
        text.push(
            "# remove throttling.* (iops=, bps=) from its own -drive; a limit of a control group instead:\n\
             # io.max (v1: blkio.throttle.*) of the process's group"
                .to_owned(),
        );
    }
    text.join("\n")
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Details, Facts};
    use crate::testing::settings;

    pub fn fires() -> Facts {
        settings(Details { limits: vec!["1000 IOPS by QEMU's throttle".into()].into(), ..Details::default() })
    }

    pub fn silent() -> Facts {
        settings(Details::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Details;
    use crate::testing::live_disk;

    #[test]
    fn a_limit_that_buffered_writes_pass_says_so() {
        let passes = |cache: Option<&str>, writes_uncharged: Option<bool>| {
            let limits = vec!["10.0 write MB/s by the control group".to_owned()].into();
            let details = Details { limits, writes_uncharged: writes_uncharged.into(), ..Details::default() };
            let disk = Disk { cache: cache.map(str::to_owned).into(), ..live_disk(details) };
            live(&RULE, &disk).map(|f| f.cause.contains("page cache"))
        };
        assert_eq!((passes(Some("writeback"), Some(true)), passes(None, Some(true))), (Some(true), Some(true)));
        assert_eq!((passes(Some("none"), Some(true)), passes(Some("writeback"), None)), (Some(false), Some(false)));
    }
}
