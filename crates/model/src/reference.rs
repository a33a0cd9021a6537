//! Differences between a running guest and the reference guest of `vmio tax`, whose figures do not cover them.

use crate::cell::Attachment;
use crate::facts::{Disk, Guest, Subject};
use crate::rules::change::recommended;

/// A setting that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The guest's device.
    pub subject: Subject,
    /// The setting: `driver`, `cache`, `aio`, `iothread`, `format`, `storage`.
    pub setting: String,
    /// The guest's value.
    pub guest: String,
    /// The reference guest's value.
    pub reference: String,
}

/// How a guest's disks differ from the reference guest's: a whole device as raw disk with virtio-blk, `cache=none`,
/// `aio=native` and an I/O thread. Unknown settings of the guest are left out.
pub fn differences(guest: &Guest) -> Vec<Difference> {
    differences_from(guest, &recommended())
}

/// The same for a reference guest with another attachment.
fn differences_from(guest: &Guest, reference: &Attachment) -> Vec<Difference> {
    guest.disks.iter().flat_map(|disk| of_disk(disk, reference)).collect()
}

fn of_disk(disk: &Disk, reference: &Attachment) -> Vec<Difference> {
    let (cache, aio) = (reference.cache.to_string(), reference.aio.to_string());
    let word = |on: bool| if on { "yes" } else { "no" };
    let each = [
        ("driver", disk.driver.as_deref(), reference.driver.as_str()),
        ("cache", disk.cache.as_deref(), &cache),
        ("aio", disk.aio.as_deref(), &aio),
        ("iothread", disk.iothread.map(word), word(reference.iothread)),
        ("format", disk.details.format.as_deref(), "raw"),
        ("storage", disk.details.storage.as_deref(), "block"),
    ];
    let differs = each.into_iter().filter_map(|(setting, has, reference)| {
        let guest = has.filter(|has| *has != reference)?.to_owned();
        Some(Difference {
            subject: disk.subject.clone(),
            setting: setting.to_owned(),
            guest,
            reference: reference.to_owned(),
        })
    });
    differs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Details;
    use crate::testing::live_disk;

    fn of(disk: Disk) -> Vec<String> {
        let found = differences(&Guest { disks: vec![disk], ..Guest::default() });
        found
            .into_iter()
            .map(|d| format!("{}: {} {}, not {}", d.subject.within(), d.setting, d.guest, d.reference))
            .collect()
    }

    #[test]
    fn only_what_is_known_and_differs_is_told() {
        assert_eq!(of(live_disk(Details::default())), [] as [&str; 0]);
        let details = Details { format: "qcow2".into(), storage: "file".into(), ..Details::default() };
        let disk = Disk {
            driver: "virtio-scsi".into(),
            iothread: Some(false).into(),
            cache: None.into(),
            ..live_disk(details)
        };
        assert_eq!(
            of(disk),
            [
                "disk vda: driver virtio-scsi, not virtio-blk",
                "disk vda: iothread no, not yes",
                "disk vda: format qcow2, not raw",
                "disk vda: storage file, not block"
            ]
        );
    }

    #[test]
    fn another_reference_may_be_given() {
        let guest = Guest { disks: vec![live_disk(Details::default())], ..Guest::default() };
        let scsi = Attachment { driver: "virtio-scsi".into(), ..recommended() };
        assert_eq!(differences_from(&guest, &scsi).len(), 1);
    }
}
