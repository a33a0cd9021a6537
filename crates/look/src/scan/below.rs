//! What the storage below several guests has in common: journals of ext4, which have one commit for all files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use vmio_model::facts::{Disk, Fact, Guest, Mounted, SharedJournal};
use vmio_node::linux::block::Device;
use vmio_node::linux::mounts::{self, Mount};
use vmio_node::linux::{device, journal};

use crate::host_view::HostView;
use crate::images;

/// Other guests on a journal that are named; a thousand that name each other would be a million names.
const NAMED: usize = 8;

/// Completes the disks of all guests, whose images are read.
pub fn settle(host: &HostView<'_>, guests: &mut [Guest]) {
    for guest in guests.iter_mut() {
        let layered = guest.shares_kernel();
        for disk in &mut guest.disks {
            if layered && disk.details.storage.as_deref() == Some("overlay") {
                upper(disk, host.mounts());
            }
        }
    }
    journals(host, guests);
}

/// The file system of a container's own layer, whose directory the engine chose.
fn upper(disk: &mut Disk, own: &[Mount]) {
    let layer = disk.place.source.as_deref().map(Path::new).filter(|path| path.is_absolute());
    if let Some(mount) = layer.and_then(|path| mounts::holding(own, path)) {
        disk.details.below.mounted = images::mounted(mount, mount.dev);
    }
}

/// Finds disks on one ext4 with `data=ordered`, its default: commits may write the data of files that grew.
fn journals(host: &HostView<'_>, guests: &mut [Guest]) {
    let mut shared: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for guest in guests.iter() {
        for mounted in guest.disks.iter().filter_map(ordered) {
            shared.entry(mounted.device.clone()).or_default().insert(guest.name.clone());
        }
    }
    shared.retain(|_, names| names.len() > 1);
    for (number, names) in shared {
        let name = device::parse(&number).and_then(|n| Device::numbered(host.reader(), n).node_name().ok().flatten());
        let Some((figures, file)) = name.and_then(|name| journal::of(host.reader(), &name)) else { continue };
        for guest in guests.iter_mut() {
            let others = names.iter().filter(|name| **name != guest.name).take(NAMED);
            for disk in &mut guest.disks {
                if ordered(disk).is_some_and(|mounted| mounted.device == number) {
                    let journal = SharedJournal {
                        shared_with: others.clone().cloned().collect(),
                        others: names.len() - 1,
                        commit_microseconds: figures.commit_us,
                        requested_percent: figures.requested.saturating_mul(100) / figures.transactions.max(1),
                    };
                    disk.details.below.journal = Fact::read(Some(journal), file.display().to_string());
                }
            }
        }
    }
}

fn ordered(disk: &Disk) -> Option<&Mounted> {
    let mounted = disk.details.below.mounted.as_ref()?;
    let otherwise = ["data=journal", "data=writeback"];
    let ordered = !mounted.options.split(',').any(|option| otherwise.contains(&option));
    (mounted.filesystem == "ext4" && ordered).then_some(mounted)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_model::facts::Subject;
    use vmio_node::fake::Fake;

    const INFO: &str = "40 transactions (30 requested), each up to 8192 blocks\naverage: \n  \
                        2ms flushing data (in ordered mode)\n  34120us average transaction commit time\n";

    fn guest(host: &HostView<'_>, name: &str, device: &str, options: &str) -> Guest {
        let mounted =
            Mounted { filesystem: "ext4".into(), point: "/srv".into(), device: device.into(), options: options.into() };
        let mut disk = Disk::unknown(Subject::disk(name, "vda"), host.from(name, "a test"));
        disk.details.below.mounted = Some(mounted).into();
        Guest { name: name.into(), kind: "qemu".into(), disks: vec![disk], ..Guest::default() }
    }

    #[test]
    fn guests_on_one_ext4_share_its_journal() {
        let fake = Fake::new("fake")
            .file("/proc/sys/kernel/osrelease", "6.1.0\n")
            .file("/proc/self/mountinfo", "22 1 8:1 / /srv rw - ext4 /dev/sda1 rw\n")
            .file("/sys/dev/block/8:1/uevent", "DEVNAME=sda1\n")
            .file("/sys/dev/block/8:2/uevent", "DEVNAME=sda2\n")
            .file("/proc/fs/jbd2/sda1-8/info", INFO)
            .file("/proc/fs/jbd2/sda2-8/info", INFO);
        let host = HostView::new(&fake);
        let mut container = guest(&host, "c", "0:42", "rw");
        container.kind = "container".into();
        container.disks[0].details.storage = "overlay".into();
        container.disks[0].place.source = "/srv/docker/upper".into();
        let mut guests = [
            guest(&host, "a", "8:1", "rw"),
            guest(&host, "b", "8:1", "rw,stripe=16"),
            container,
            guest(&host, "d", "8:1", "rw,data=writeback"),
            guest(&host, "e", "8:2", "rw"),
        ];
        settle(&host, &mut guests);
        let with = |n: usize| guests[n].disks[0].details.below.journal.as_ref().map(|j| j.shared_with.join(" "));
        assert_eq!(
            [0, 1, 2, 3, 4].map(with),
            [Some("b c"), Some("a c"), Some("a b"), None, None].map(|n| n.map(str::to_owned))
        );
        let journal = guests[0].disks[0].details.below.journal.as_ref().unwrap();
        assert_eq!((journal.commit_microseconds, journal.requested_percent, journal.others), (34_120, 75, 2));
        let mut crowd: Vec<Guest> = (0..20).map(|n| guest(&host, &format!("g{n}"), "8:1", "rw")).collect();
        settle(&host, &mut crowd);
        let journal = crowd[0].disks[0].details.below.journal.as_ref().unwrap();
        assert_eq!((journal.shared_with.len(), journal.others), (NAMED, 19));
    }
}
