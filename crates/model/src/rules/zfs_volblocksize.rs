//! A ZFS volume reads and writes whole blocks (`volblocksize`): a smaller write reads the block, modifies a part and
//! writes it, with checksums and parity. Blocks that are too small cost, too: RAIDZ gives each block parity of its own,
//! and rounds it to a multiple of that many sectors and one (OpenZFS, module/zfs/vdev_raidz.c,
//! `vdev_raidz_psize_to_asize`), and each is found, compressed and checked by itself.

use super::change::{AppliesAt, Names, shell, xml};
use super::live::seen;
use super::support::{caution, cite_count, cite_share, from_setting};
use super::{Change, Check, Finding, Need, Rule, Severity};
use crate::facts::{Disk, Measured, Place, Raidz};
use crate::summary::CellRow;

/// Write amplification from which the block is called too large: the intent log alone may double writes.
const AMPLIFIED: f64 = 3.0;
/// OpenZFS's default since 2.2; larger ones are a choice for large requests.
const DEFAULT_BYTES: u64 = 16 * 1024;
/// The default before that, 8 KiB: blocks up to it are small wherever they lie.
const SMALL_BYTES: u64 = 8 * 1024;
/// Blocks that RAIDZ holds with little loss, and which are no fault there.
const RAIDZ_BYTES: u64 = 64 * 1024;
/// Sectors of the pool's disks (ashift 12), which `zpool list` does not tell.
const SECTOR_BYTES: u64 = 4096;
/// Space over that of large blocks from which small ones are called too small for a RAIDZ.
const WASTE: f64 = 1.25;
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
    let block = (*disk.details.volblock_bytes)?;
    let raidz = *disk.details.below.raidz;
    let (large, size) = if raidz.is_some() { (RAIDZ_BYTES, "64k") } else { (DEFAULT_BYTES, "16k") };
    let mut finding = if block > large {
        let cause = format!(
            "The volume has blocks of {} KiB: each smaller write of the guest reads and rewrites a whole block.",
            block / 1024
        );
        rule.advice(disk, &seen![disk; details.storage, details.volblock_bytes], &cause, advice(&disk.place, size))
    } else {
        small(rule, disk, block, raidz)?
    };
    finding.figures.push(from_setting("volblocksize", block as f64, "bytes", disk));
    Some(finding)
}

/// Blocks that waste space, or are small.
fn small(rule: &Rule, disk: &Disk, block: u64, raidz: Option<Raidz>) -> Option<Finding> {
    let wasted = raidz.map(|raidz| (raidz, taken(block, raidz))).filter(|(_, (used, fair))| *used > WASTE * fair);
    let (severity, cause, size) = match wasted {
        Some((Raidz { parity, disks }, (used, fair))) => {
            let kib = |sectors: f64| sectors * SECTOR_BYTES as f64 / 1024.0;
            let cause = format!(
                "The volume's blocks of {} KiB lie on RAIDZ{parity} of {disks} disks: with its own parity each takes \
                 {:.0} KiB (of sectors of 4 KiB), where large blocks would take {:.0}, and each is found and checked \
                 by itself.",
                block / 1024,
                kib(used),
                kib(fair)
            );
            (Severity::Advice, cause, "64k")
        }
        None if block <= SMALL_BYTES => {
            let cause = format!(
                "The volume has blocks of {} KiB; the default is 16 KiB since OpenZFS 2.2: small ones need more \
                 metadata, and compression saves little. For a database with pages of that size they are right.",
                block / 1024
            );
            (Severity::Note, cause, "16k")
        }
        None => return None,
    };
    let looked_at = seen![disk; details.storage, details.volblock_bytes, details.below.raidz];
    let mut finding = rule.advice(disk, &looked_at, &cause, advice(&disk.place, size));
    finding.title = match severity {
        Severity::Note => "ZFS volume blocks are small",
        _ => "ZFS volume blocks are too small for this pool",
    }
    .to_owned();
    finding.severity = severity;
    Some(finding)
}

/// Sectors that a block takes on a RAIDZ, and those that it would take as a part of a large one.
fn taken(block: u64, raidz: Raidz) -> (f64, f64) {
    let (parity, disks) = (u64::from(raidz.parity), u64::from(raidz.disks));
    let data = block.div_ceil(SECTOR_BYTES);
    let rows = data.div_ceil(disks.saturating_sub(parity).max(1));
    let used = (data + parity * rows).next_multiple_of(parity + 1);
    (used as f64, data as f64 * disks as f64 / disks.saturating_sub(parity).max(1) as f64)
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
    let mut finding = rule.finding(Severity::Warning, share.key.clone(), cause, advice(&Place::default(), "16k"));
    let label = format!("bytes at the disks for each byte written: {}", cell.key);
    finding.figures.push(cite_count(m, label, factor, "ratio"));
    finding.figures.extend(cite_share(m, &cell.cell));
    Some(finding)
}

fn advice(place: &Place, size: &str) -> Change {
    let names = Names(place);
    let plain = place.source.as_deref().unwrap_or("/dev/zvol/POOL/OLD");
    let volume = format!("{}-new", plain.trim_start_matches("/dev/zvol/"));
    let (old, new, pool) = (shell(plain), shell(&format!("{plain}-new")), shell(&volume));
    let zfs = format!(
        "# fixed when a volume is created: create a new one and copy, with the guest shut down\n\
         zfs create -V $(blockdev --getsize64 {old}) -o volblocksize={size} {pool}\n\
         dd if={old} of={new} bs=1M conv=sparse status=progress"
    );
    Change {
        what:
            "Recreate the volume with a block size near the guest's usual write (databases: 8 to 16 KiB, on mirrors)."
                .into(),
        libvirt: format!(
            "{zfs}\nvirsh edit {}    # then <source dev='{}'/>",
            names.domain(),
            xml(&format!("{plain}-new"))
        ),
        qemu: zfs,
        proxmox: format!(
            "pvesm set STORAGE --blocksize {size}    # for volumes created from now on\n\
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
    use crate::facts::{Below, Details};
    use crate::testing::settings;

    #[test]
    fn a_live_volume_is_judged_by_its_blocks() {
        let of = |kib: u64, raidz: Option<(u32, u32)>| {
            let raidz = raidz.map(|(parity, disks)| Raidz { parity, disks });
            let found = RULE.check(&settings(Details {
                storage: "zvol".into(),
                volblock_bytes: Some(kib << 10).into(),
                below: Below { raidz: raidz.into(), ..Below::default() },
                ..Details::default()
            }));
            found.into_iter().map(|f| f.severity).next()
        };
        let (note, advice) = (Some(Severity::Note), Some(Severity::Advice));
        assert_eq!([of(8, None), of(16, None), of(128, None)], [note, None, advice]);
        assert_eq!([of(8, Some((2, 6))), of(16, Some((2, 6))), of(64, Some((2, 6)))], [advice, None, None]);
        assert_eq!([of(8, Some((1, 3))), of(128, Some((1, 3)))], [advice, advice]);
    }

    #[test]
    fn sectors_of_a_block_on_raidz() {
        let of = |kib: u64, parity: u32, disks: u32| taken(kib << 10, Raidz { parity, disks });
        assert_eq!([of(8, 1, 3), of(8, 2, 6), of(16, 2, 6)], [(4.0, 3.0), (6.0, 3.0), (6.0, 6.0)]);
        assert_eq!(of(64, 2, 6), (24.0, 24.0));
    }
}
