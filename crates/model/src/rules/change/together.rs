//! Combines all changes of one device in one step. A finding's own change is written for the device as it is: applied
//! one after the other, a later change could undo a part of an earlier one.

use schemars::JsonSchema;
use serde::Serialize;

use super::to::{DeviceChange, DiskChange, NicChange};
use super::{Change, own_disk, own_nic};
use crate::facts::{Guest, Subject};
use crate::rules::Finding;

/// The combined change of several findings.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Together {
    /// The device.
    pub subject: Subject,
    /// Their rules, in the order of the findings.
    pub rules: Vec<String>,
    /// Their indices in the given list.
    #[serde(skip)]
    pub places: Vec<usize>,
    /// The combined change.
    pub change: Change,
}

/// A combined change for each device with several different changes.
pub fn together(guest: &Guest, findings: &[Finding]) -> Vec<Together> {
    let disks = guest.disks.iter().map(|disk| {
        of(findings, &disk.subject, |what, all| {
            let to = all.iter().filter_map(|sets| if let DeviceChange::Disk(to) = sets { Some(to) } else { None });
            own_disk(what, disk, &to.fold(DiskChange::default(), |sum, to| sum.and(to)))
        })
    });
    let nics = guest.nics.iter().map(|nic| {
        of(findings, &nic.subject, |what, all| {
            let to = all.iter().filter_map(|sets| if let DeviceChange::Nic(to) = sets { Some(to) } else { None });
            own_nic(what, nic, to.fold(NicChange::default(), |sum, to| sum.and(to)))
        })
    });
    disks.chain(nics).flatten().collect()
}

fn of(
    findings: &[Finding],
    subject: &Subject,
    change: impl Fn(String, &[&DeviceChange]) -> Change,
) -> Option<Together> {
    let ours = |(_, f): &(usize, &Finding)| f.subject.is(subject) && f.change.sets.is_some();
    let (places, ours): (Vec<usize>, Vec<&Finding>) = findings.iter().enumerate().filter(ours).unzip();
    let sets: Vec<&DeviceChange> = ours.iter().filter_map(|f| f.change.sets.as_ref()).collect();
    if sets.windows(2).all(|two| two[0] == two[1]) {
        return None; // one finding, or all ask for the same
    }
    let change = change(format!("All changes to {subject} in one step."), &sets);
    let rules = ours.iter().map(|f| f.rule.clone()).collect();
    Some(Together { subject: subject.clone(), rules, places, change })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::{Details, Disk, Nic};
    use crate::rules::findings;
    use crate::testing::{live_disk, live_nic};

    fn guest(disks: Vec<Disk>, nics: Vec<Nic>) -> Guest {
        Guest { name: "db1".into(), kind: "qemu".into(), disks, nics, ..Guest::default() }
    }

    fn all(guest: &Guest) -> (Vec<Finding>, Vec<Together>) {
        let found = findings(&guest.facts());
        let together = together(guest, &found);
        (found, together)
    }

    #[test]
    fn a_disk_with_several_faults_is_put_right_in_one_step() {
        let details = Details { format: "raw".into(), storage: "lvm".into(), ..Details::default() };
        let disk = Disk {
            driver: "ide".into(),
            cache: "writeback".into(),
            aio: "threads".into(),
            iothread: Some(false).into(),
            ..live_disk(details)
        };
        let (found, together) = all(&guest(
            vec![disk.clone(), Disk { subject: Subject::disk("db1", "other"), ..live_disk(Details::default()) }],
            vec![],
        ));
        let [one] = &together[..] else { panic!("{together:#?}") };
        assert_eq!(
            (&one.subject, &one.rules[..2]),
            (&disk.subject, &["emulated-driver".to_owned(), "host-page-cache".into()][..])
        );
        assert!(one.places.iter().zip(&one.rules).all(|(place, rule)| found[*place].rule == *rule));
        let Change { qemu, libvirt, proxmox, .. } = &one.change;
        assert!(qemu.contains("\ncache=none,aio=native\n") && qemu.contains("\nvirtio-blk-pci,iothread="), "{qemu}");
        assert!(
            libvirt.contains("cache='none' io='native' iothread='N'") && libvirt.contains("bus='virtio'"),
            "{libvirt}"
        );
        assert!(proxmox.contains(",cache=none,aio=native,iothread=1"), "{proxmox}");
        // Each one alone leaves the other setting.
        assert!(found.iter().all(|f| f.change.qemu != *qemu));
    }

    #[test]
    fn the_cache_of_qcow2_tables_is_among_them() {
        let details = Details {
            format: "qcow2".into(),
            virtual_bytes: Some(1 << 40).into(),
            cluster_bytes: Some(64 << 10).into(),
            l2_cache_bytes: Some(32 << 20).into(),
            ..Details::default()
        };
        let disk = Disk { cache: "writeback".into(), aio: "threads".into(), ..live_disk(details) };
        let (_, together) = all(&guest(vec![disk], vec![]));
        let [one] = &together[..] else { panic!("{together:#?}") };
        assert_eq!(one.rules, ["qcow2-l2-cache", "host-page-cache"]);
        let Change { qemu, libvirt, proxmox, .. } = &one.change;
        assert!(qemu.contains("\ncache=none,aio=io_uring,l2-cache-size=134217728\n"), "{qemu}");
        assert!(
            qemu.ends_with("# in that of driver qcow2: set this, keep all else\nl2-cache-size=134217728"),
            "{qemu}"
        );
        let cache = "# and inside of that <driver ...> (type='qcow2'): this, keep all else\n\
                     <metadata_cache><max_size unit='bytes'>134479872</max_size></metadata_cache>";
        assert!(libvirt.contains(cache) && libvirt.contains("cache='none' io='io_uring'"), "{libvirt}");
        assert!(proxmox.contains("qm disk move VMID virtio0 STORAGE --format raw\n"), "{proxmox}");
    }

    #[test]
    fn a_network_device_too() {
        let nic = Nic { queues: Some(1).into(), offloads_off: vec!["gso".into()].into(), ..live_nic() };
        let (_, together) = all(&guest(vec![], vec![nic]));
        let [one] = &together[..] else { panic!("{together:#?}") };
        assert_eq!(one.rules, ["nic-queues", "offloads-off"]);
        let Change { qemu, libvirt, .. } = &one.change;
        assert!(qemu.contains("\nqueues=4\n") && qemu.contains("keep all else\ngso=off"), "{qemu}");
        assert!(libvirt.contains("name='vhost' queues='4'") && libvirt.contains("gso='on'"), "{libvirt}");
    }

    #[test]
    fn one_finding_or_none_needs_no_step_of_its_own() {
        let disk = Disk { iothread: Some(false).into(), ..live_disk(Details::default()) };
        let (found, together) = all(&guest(vec![disk], vec![live_nic()]));
        assert_eq!((found.len(), together.len()), (1, 0), "{found:#?}");
    }
}
