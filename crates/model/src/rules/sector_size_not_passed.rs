//! A device whose smallest unit is 4096 bytes, below a guest that is told 512. QEMU asks only s390's disks for their
//! sizes (block/file-posix.c, `hdev_probe_blocksizes`) and tells 512 bytes else (hw/block/block.c,
//! `blkconf_blocksizes`). A request that is smaller or not aligned is padded: read, changed and written back, while
//! others to the same range wait (block/io.c, `bdrv_pad_request`).

use super::change::{self, DiskChange};
use super::live::seen;
use super::{Check, Finding, Need, Rule, Severity};
use crate::facts::Disk;

/// Sectors of disks with native blocks of 4 KiB. Most disks with smaller ones tell their inner blocks as 4096 bytes,
/// too, and hide what that costs.
const LARGE: u64 = 4096;

pub(super) const RULE: Rule = Rule {
    id: "sector-size-not-passed",
    title: "The guest is not told the disk's sectors",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "QEMU, hw/block/block.c, blkconf_blocksizes",
        "https://libvirt.org/formatdomain.html#hard-drives-floppy-disks-cdroms (blockio)",
        "https://github.com/kubevirt/kubevirt/issues/5028",
    ],
    checks: &[Check::Disk(live)],
    #[cfg(test)]
    fixture: (|| fixture::told(512), || fixture::told(4096)),
    ..Rule::PLAIN
};

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    let below = &disk.details.below;
    let sector = below.host_logical_block_bytes.filter(|bytes| *bytes >= LARGE)?;
    let (physical, logical) = below.guest_physical_block_bytes.zip(*below.guest_logical_block_bytes)?;
    // An emulated controller is to go first.
    let virtio = disk.driver.as_deref().is_some_and(|driver| driver.starts_with("virtio"));
    if !virtio || physical.max(logical) >= sector {
        return None;
    }
    let cause = format!(
        "The device has sectors of {sector} bytes, the guest is told {physical}: a write that is smaller or not \
         aligned to {sector} is read, changed and written back as a whole, and guests may begin partitions anywhere."
    );
    let what = format!(
        "Tell the guest physical_block_size={sector}: what it partitions from then on is aligned. It keeps the \
         partitions that it has: check them (in it: parted /dev/vda align-check opt 1). logical_block_size={sector}, \
         too, only for an empty disk: with it an existing partition table is not found."
    );
    let to = DiskChange { physical_block: Some(sector), ..DiskChange::default() };
    let seen = seen![
        disk;
        details.below.host_logical_block_bytes,
        details.below.guest_logical_block_bytes,
        details.below.guest_physical_block_bytes,
    ];
    Some(rule.advice(disk, &seen, &cause, change::own_disk(what, disk, &to)))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Below, Details, Facts};
    use crate::testing::settings;

    pub fn told(guest: u64) -> Facts {
        let below = Below {
            host_logical_block_bytes: Some(4096).into(),
            host_physical_block_bytes: Some(4096).into(),
            guest_logical_block_bytes: Some(512).into(),
            guest_physical_block_bytes: Some(guest).into(),
            ..Below::default()
        };
        settings(Details { below, ..Details::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_sets_the_size_of_its_own_disk() {
        let mut facts = fixture::told(512);
        facts.disks[0].place.vmid = Some("101".into());
        facts.disks[0].place.slot = Some("scsi1".into());
        let found = RULE.check(&facts);
        let change = &found[0].change;
        assert!(change.qemu.ends_with("set these, keep all else\nphysical_block_size=4096"), "{}", change.qemu);
        assert!(change.libvirt.contains("physical_block_size='4096'/>"), "{}", change.libvirt);
        assert!(change.proxmox.contains("-set device.scsi1.physical_block_size=4096\""), "{}", change.proxmox);
    }
}
