//! Several disks on one I/O thread: it uses one core, and while it serves one disk the others wait.

use super::change::{DiskChange, own_disk};
use super::live::seen;
use super::{Check, Finding, Live, Need, Rule, Severity};
use crate::facts::{Disk, Facts};

pub(super) const RULE: Rule = Rule {
    id: "shared-iothread",
    title: "Disks share an I/O thread",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "Proxmox VE, qm.adoc, \"IO Thread\" (virtio-scsi-single: a controller and a thread for each disk)",
        "https://libvirt.org/formatdomain.html#iothreads-allocation",
    ],
    checks: &[Check::Guests(live)],
    #[cfg(test)]
    fixture: (
        || fixture::threads(["iothread1", "iothread1", "iothread1"]),
        || fixture::threads(["iothread1", "iothread2", "iothread3"]),
    ),
    ..Rule::PLAIN
};

/// One finding for each thread, at the second of its disks.
fn live(rule: &Rule, facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    for (at, disk) in facts.disks.iter().enumerate() {
        // Queues spread over several threads are intended.
        let spread = disk.details.mapped_iothreads.is_some();
        let Some(thread) = disk.details.iothread_name.as_deref().filter(|_| !spread) else { continue };
        let shares = |d: &&Disk| d.guest() == disk.guest() && d.details.iothread_name.as_deref() == Some(thread);
        if facts.disks[..at].iter().filter(shares).count() != 1 {
            continue;
        }
        let names: Vec<String> = facts.disks.iter().filter(shares).map(Live::device).collect();
        let cause = format!(
            "The I/O thread {thread} serves {}: it is one core, and while it works for one disk the others wait.",
            names.join(", ")
        );
        let change = own_disk(
            "If several of them are busy at once, give each its own I/O thread (virtio-scsi: its own controller).",
            disk,
            &DiskChange { iothread: true, ..DiskChange::default() },
        );
        all.push(rule.advice(disk, &seen![disk; driver, details.iothread_name], &cause, change));
    }
    all
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Details, Disk, Facts, Subject};
    use crate::testing::live_disk;

    pub fn threads(names: [&str; 3]) -> Facts {
        let disk = |(name, thread): (&str, &str)| Disk {
            subject: Subject::disk("db1", name),
            ..live_disk(Details { iothread_name: Some(thread.into()).into(), ..Details::default() })
        };
        Facts { disks: ["vda", "vdb", "vdc"].into_iter().zip(names).map(disk).collect(), ..Facts::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Subject;

    #[test]
    fn one_thread_is_one_finding_and_disks_of_two_guests_share_none() {
        let mut facts = (RULE.fixture.0)();
        let found = RULE.check(&facts);
        assert_eq!((found.len(), found[0].subject.to_string()), (1, "guest db1, disk vdb".to_owned()));
        assert!(found[0].cause.contains("serves disk vda, disk vdb, disk vdc:"), "{}", found[0].cause);
        for (n, disk) in facts.disks.iter_mut().enumerate() {
            disk.subject = Subject::disk(format!("db{n}"), "vda");
        }
        assert_eq!(RULE.check(&facts), []);
    }
}
