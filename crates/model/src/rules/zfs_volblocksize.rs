//! A ZFS volume reads and writes whole blocks (`volblocksize`): a smaller write reads the block, modifies a part and
//! writes it, with checksums and parity.

use super::change::{AppliesAt, Names, shell, xml};
use super::live::seen;
use super::support::{caution, cite_count, cite_share, from_setting};
use super::{Change, Check, Finding, Need, Rule, Severity};
use crate::facts::{Disk, Measured, Place};
use crate::summary::CellRow;

/// Write amplification from which the block is called too large: the intent log alone may double writes.
const AMPLIFIED: f64 = 3.0;
/// OpenZFS's default since 2.2; larger ones are a choice for large requests.
const DEFAULT_BYTES: u64 = 16 * 1024;
/// The target.
const ZVOL: &str = "zvol";

pub(super) const RULE: Rule = Rule {
    id: "zfs-volblocksize",
    title: "ZFS volume blocks are larger than the guest's writes",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Advice,
    references: &["OpenZFS, zfsprops(7), volblocksize", "Proxmox VE, \"ZFS over iSCSI\" and zfspool, blocksize"],
    checks: &[Check::Run(measured), Check::Disk(live)],
    // Silent: the intent log doubles writes.
    #[cfg(test)]
    fixture: (|| fixture::written(8.0), || fixture::written(2.0)),
    ..Rule::PLAIN
};

fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    m.cells.iter().filter_map(|cell| amplified(rule, m, cell)).collect()
}

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    disk.details.storage.as_deref().filter(|storage| *storage == ZVOL)?;
    let block = disk.details.volblock_bytes.filter(|b| *b > DEFAULT_BYTES)?;
    let cause = format!(
        "The volume has blocks of {} KiB: each smaller write of the guest reads and rewrites a whole block.",
        block / 1024
    );
    let mut finding =
        rule.advice(disk, &seen![disk; details.storage, details.volblock_bytes], &cause, advice(&disk.place));
    finding.figures.push(from_setting("volblocksize", block as f64, "bytes", disk));
    Some(finding)
}

fn amplified(rule: &Rule, m: &Measured, cell: &CellRow) -> Option<Finding> {
    let traits = m.job(cell.cell.workload()).filter(|t| t.writes && !t.sequential)?;
    if cell.cell.target() != Some(ZVOL) || cell.cell.is_native() {
        return None;
    }
    // Only with a known cost.
    let share = m.known_share(&cell.cell).filter(|s| s.share_ratio.surely_below(1.0))?;
    let device = cell.device?;
    let factor = device.write_bytes_per_second.value / cell.disk.as_ref()?.bandwidth_bytes_per_second.value;
    let enough = device.write_bytes_per_second.n >= m.convergence.min_pairs;
    if !enough || factor < AMPLIFIED {
        return None;
    }
    let cause = format!(
        "For each byte that {} wrote in pieces of {} KiB, the disks wrote {factor:.1}: whole blocks of the volume are \
         rewritten.{}",
        cell.cell.workload(),
        traits.block_bytes / 1024,
        caution(m)
    );
    let mut finding = rule.finding(Severity::Warning, share.key.clone(), cause, advice(&Place::default()));
    let label = format!("bytes at the disks for each byte written: {}", cell.key);
    finding.figures.push(cite_count(m, label, factor, "ratio"));
    finding.figures.extend(cite_share(m, &cell.cell));
    Some(finding)
}

fn advice(place: &Place) -> Change {
    let names = Names(place);
    let plain = place.source.as_deref().unwrap_or("/dev/zvol/POOL/OLD");
    let volume = format!("{}-new", plain.trim_start_matches("/dev/zvol/"));
    let (old, new, pool) = (shell(plain), shell(&format!("{plain}-new")), shell(&volume));
    let zfs = format!(
        "# fixed when a volume is created: create a new one and copy, with the guest shut down\n\
         zfs create -V $(blockdev --getsize64 {old}) -o volblocksize=16k {pool}\n\
         dd if={old} of={new} bs=1M conv=sparse status=progress"
    );
    Change {
        what: "Recreate the volume with a block size near the guest's usual write (databases: 8 to 16 KiB).".into(),
        libvirt: format!(
            "{zfs}\nvirsh edit {}    # then <source dev='{}'/>",
            names.domain(),
            xml(&format!("{plain}-new"))
        ),
        qemu: zfs,
        proxmox: format!(
            "pvesm set STORAGE --blocksize 16k    # for volumes created from now on\n\
             # an existing disk: move it away and back; each copy stays as an unused disk until removed\n\
             qm disk move {vmid} {slot} OTHERSTORAGE && qm disk move {vmid} {slot} STORAGE",
            vmid = names.vmid(),
            slot = names.slot("virtio0")
        ),
        takes: AppliesAt::ShutDown,
        sets: None,
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, native, virtio};

    pub fn written(factor: f64) -> Facts {
        let cell = virtio("zvol", "rand-write-32");
        Bench::new().cell(native("zvol", "rand-write-32"), 20e3).cell(cell.clone(), 5e3).moved(&cell, factor).facts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Details;
    use crate::testing::settings;

    #[test]
    fn a_live_volume_is_judged_by_its_blocks() {
        let of = |kib: u64| {
            let (storage, volblock_bytes) = (Some("zvol".into()), Some(kib << 10));
            RULE.check(&settings(Details {
                storage: storage.into(),
                volblock_bytes: volblock_bytes.into(),
                ..Details::default()
            }))
            .len()
        };
        assert_eq!([of(8), of(16), of(128)], [0, 0, 1]);
    }
}
