//! What a block device holds: `wipefs --no-act` of util-linux, the known program for signatures at every
//! place, and vmio's own look for what older libblkid versions miss, what hosts without wipefs would
//! miss, and what is no signature to it at all: images of virtual disks.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crate::{Exec, Node, find_program};

use super::{Error, Result};

/// What util-linux's wipefs sees. `device` is named in messages, `at` is opened.
pub fn wipefs(node: &dyn Node, device: &Path, at: &Path) -> Result<Vec<String>> {
    // In sbin, which a user's PATH often lacks.
    let wipefs = find_program(node.reader(), "wipefs").unwrap_or_else(|| "wipefs".into());
    let cmd = Exec::new(wipefs.display().to_string())
        .args(["--no-act".to_owned(), "--json".to_owned(), at.display().to_string()])
        .limit(Duration::from_secs(30));
    let unsure = |what: String| Error::Refused {
        device: device.into(),
        reason: format!("{what}, so its contents are unknown: install util-linux, or give --force if you are sure"),
    };
    let output = node.exec(&cmd).map_err(|e| unsure(e.to_string()))?;
    if !output.ok() {
        return Err(unsure(format!("`{}` failed: {}", cmd.shown(), output.err().trim())));
    }
    parse_wipefs(&output.out()).map_err(|e| unsure(format!("`{}`: {e}", cmd.shown())))
}

/// Why what wipefs says is not understood.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error(transparent)]
    NoJson(#[from] serde_json::Error),
    #[error("no list of signatures")]
    NoList,
}

fn parse_wipefs(text: &str) -> Result<Vec<String>, Unread> {
    // Older versions print nothing at all for an empty device.
    if text.trim().is_empty() {
        return Ok(vec![]);
    }
    let doc: serde_json::Value = serde_json::from_str(text)?;
    let list = doc["signatures"].as_array().ok_or(Unread::NoList)?;
    Ok(list.iter().map(|s| s["type"].as_str().unwrap_or("an unknown signature").to_owned()).collect())
}

/// Distance from the start, or from the end where negative; the bytes there; what they are.
/// Sources: kernel `md_p.h` and `mdadm` super-intel.c (RAID), LVM2 `label.h`, cryptsetup
/// `luks1.h`/`luks2.h`, kernel `bcache_ondisk.h`, Ceph `BlueStore.cc`, kernel `swap.h`,
/// ext4 `ext4.h`, XFS `xfs_format.h`, btrfs `btrfs_tree.h`, UEFI 2.10 section 5.3, ECMA-119
/// section 8. A guest's disk may be an image in a format of its own that lies on a block device (oVirt and
/// Nova keep qcow2 on logical volumes): QEMU `block/` (qcow2.h, qcow.c, qed.h, vmdk.c, vdi.c, vhdx.h, vpc.c,
/// parallels.c, bochs.c, dmg.c), Proxmox `vma_spec.txt`.
const MAGICS: &[(i64, &[u8], &str)] = &[
    (0, b"LUKS\xba\xbe", "LUKS"),
    (16_384, b"SKUL\xba\xbe", "LUKS"),
    (0, b"bluestore block device\n", "Ceph BlueStore"),
    (4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "bcache"),
    (0, b"\xfc\x4e\x2b\xa9", "Linux RAID (md 1.1)"),
    (4096, b"\xfc\x4e\x2b\xa9", "Linux RAID (md 1.2)"),
    (-1024, b"Intel Raid ISM Cfg Sig. ", "Intel RAID (imsm)"),
    (512, b"EFI PART", "GPT partition table"),
    (4096, b"EFI PART", "GPT partition table"),
    (-512, b"EFI PART", "GPT partition table (backup)"),
    (-4096, b"EFI PART", "GPT partition table (backup)"),
    (4086, b"SWAPSPACE2", "swap"),
    (0, b"XFSB", "XFS"),
    (1080, b"\x53\xef", "ext2, ext3 or ext4"),
    (65_600, b"_BHRfS_M", "btrfs"),
    (32_769, b"CD001", "ISO 9660"),
    (0, b"QFI\xfb", "qcow2 image"),
    (0, b"QED\0", "QED image"),
    (0, b"KDMV", "VMDK image"),
    (0, b"COWD", "VMDK image (COWD)"),
    (0, b"\xbe\xba\xfe\xca\0\0\0\0", "VMDK image (SESparse)"),
    (0, b"# Disk DescriptorFile", "VMDK descriptor"),
    (64, b"\x7f\x10\xda\xbe", "VDI image"),
    (0, b"vhdxfile", "VHDX image"),
    // The copy of the footer that images of variable size begin with, and the footer itself; Virtual PC
    // before 2004 wrote one byte less of it.
    (0, b"conectix", "VHD image"),
    (-512, b"conectix", "VHD image (footer)"),
    (-511, b"conectix", "VHD image (old footer)"),
    (0, b"WithoutFreeSpace", "Parallels image"),
    (0, b"WithouFreSpacExt", "Parallels image (extended)"),
    (0, b"Bochs Virtual HD Image", "Bochs image"),
    (-512, b"koly", "DMG image"),
    (0, b"VMA\0", "Proxmox backup (VMA)"),
];

/// What the bytes of a device or file say, wipefs aside.
pub fn signatures(file: &File) -> io::Result<Vec<String>> {
    use std::io::{Seek, SeekFrom};
    let size = { file }.seek(SeekFrom::End(0))?;
    let at = |offset: u64, length: usize| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        if offset + length as u64 <= size {
            file.read_exact_at(&mut bytes, offset)?;
        }
        Ok(bytes)
    };
    let mut found = Vec::new();
    for (place, magic, what) in MAGICS {
        let offset = if *place < 0 { size.checked_sub(place.unsigned_abs()) } else { Some(place.unsigned_abs()) };
        if let Some(offset) = offset
            && at(offset, magic.len())? == *magic
        {
            found.push((*what).to_owned());
        }
    }
    // md 0.90 lies at the last 64 KiB boundary but one, md 1.0 8 to 12 KiB before the end.
    for (offset, what) in [
        (size.checked_sub(65_536).map(|s| s / 65_536 * 65_536), "Linux RAID (md 0.90)"),
        (size.checked_sub(8192).map(|s| s / 4096 * 4096), "Linux RAID (md 1.0)"),
    ] {
        // 0.90 has its magic in the byte order of the machine that made it.
        let bytes = offset.map(|o| at(o, 4)).transpose()?.unwrap_or_default();
        if bytes == b"\xfc\x4e\x2b\xa9" || bytes == b"\xa9\x2b\x4e\xfc" {
            found.push(what.to_owned());
        }
    }
    if (0..4u64).map(|sector| at(sector * 512, 8)).collect::<io::Result<Vec<_>>>()?.iter().any(|b| b == b"LABELONE") {
        found.push("LVM physical volume".to_owned());
    }
    if zfs_label(size, &at)? {
        found.push("ZFS label".to_owned());
    }
    let mbr = at(0, 512)?;
    // Without a partition entry in use these two bytes are also the end of many boot sectors.
    if mbr[510..] == [0x55, 0xaa] && mbr[446..510].chunks(16).any(|entry| entry[4] != 0) {
        found.push("DOS partition table".to_owned());
    }
    Ok(found)
}

/// ZFS keeps four labels of 256 KiB, two at the start and two at the end; in each, after 128 KiB,
/// the uberblocks with their magic number in either byte order (OpenZFS `vdev_impl.h`,
/// `uberblock_impl.h`).
fn zfs_label(size: u64, at: &impl Fn(u64, usize) -> io::Result<Vec<u8>>) -> io::Result<bool> {
    const LABEL: u64 = 256 << 10;
    const RING: u64 = 128 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let end = size / LABEL * LABEL;
    for start in [Some(0), Some(LABEL), end.checked_sub(2 * LABEL), end.checked_sub(LABEL)].into_iter().flatten() {
        // Uberblocks are 1 KiB or a larger power of two: every 1 KiB covers all.
        let ring = at(start + RING, RING as usize)?;
        let magic = |b: &[u8]| b[..8] == MAGIC.to_le_bytes() || b[..8] == MAGIC.to_be_bytes();
        if ring.chunks_exact(1024).any(magic) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use super::*;

    const SIZE: u64 = 16 << 20;

    fn signatures_of(put: impl FnOnce(&File, &Path)) -> Vec<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(SIZE).unwrap();
        put(file.as_file(), file.path());
        signatures(&File::open(file.path()).unwrap()).unwrap()
    }

    fn put(offset: u64, bytes: &[u8]) -> Vec<String> {
        signatures_of(|file, _| file.write_all_at(bytes, offset).unwrap())
    }

    #[test]
    fn an_empty_device_holds_nothing() {
        assert_eq!(signatures_of(|_, _| ()), Vec::<String>::new());
        assert_eq!(put(0, &[0x5a; 8192]), Vec::<String>::new(), "plain data is no signature");
    }

    #[test]
    fn signatures_at_their_places() {
        for (place, magic, what) in MAGICS {
            let offset = if *place < 0 { SIZE - place.unsigned_abs() } else { place.unsigned_abs() };
            assert_eq!(put(offset, magic), [*what], "at {place}");
            assert!(put(offset + 8, magic).iter().all(|f| f != what), "{what} is found elsewhere");
        }
        assert_eq!(put(SIZE - 65_536, b"\xfc\x4e\x2b\xa9"), ["Linux RAID (md 0.90)"]);
        assert_eq!(put(SIZE - 8192, b"\xfc\x4e\x2b\xa9"), ["Linux RAID (md 1.0)"]);
        for sector in 0..4 {
            assert_eq!(put(sector * 512, b"LABELONE"), ["LVM physical volume"]);
        }
        for start in [0, 256 << 10, SIZE - (512 << 10), SIZE - (256 << 10)] {
            assert_eq!(put(start + (128 << 10) + 7 * 1024, &0x00ba_b10c_u64.to_le_bytes()), ["ZFS label"]);
            assert_eq!(put(start + (128 << 10), &0x00ba_b10c_u64.to_be_bytes()), ["ZFS label"]);
        }
        let mut mbr = [0u8; 512];
        mbr[510..].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(put(0, &mbr), Vec::<String>::new());
        mbr[450] = 0x83;
        assert_eq!(put(0, &mbr), ["DOS partition table"]);
    }

    #[test]
    fn signatures_of_real_programs() {
        for (program, what) in [("mkfs.ext4", "ext2, ext3 or ext4"), ("mkswap", "swap")] {
            let found = signatures_of(|_, path| {
                let output =
                    Command::new(program).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").arg(path).output().unwrap();
                assert!(output.status.success(), "{program}: {output:?}");
            });
            assert_eq!(found, [what]);
        }
    }

    #[test]
    fn images_of_qemu() {
        for (format, what) in [
            ("qcow2", "qcow2 image"),
            ("qcow", "qcow2 image"),
            ("qed", "QED image"),
            ("vmdk", "VMDK image"),
            ("vdi", "VDI image"),
            ("vhdx", "VHDX image"),
            ("vpc", "VHD image"),
            ("parallels", "Parallels image"),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let made =
                Command::new("qemu-img").args(["create", "-q", "-f", format]).arg(file.path()).arg("16M").output();
            let made = made.unwrap();
            assert!(made.status.success(), "{format}: {made:?}");
            let found = signatures(&File::open(file.path()).unwrap()).unwrap();
            assert!(found.iter().any(|f| f.starts_with(what)), "{format}: {found:?}");
        }
    }

    #[test]
    fn small_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for size in [0, 1, 511, 4096, 70_000, 300_000] {
            file.as_file().set_len(size).unwrap();
            assert_eq!(signatures(&File::open(file.path()).unwrap()).unwrap(), Vec::<String>::new(), "{size}");
        }
    }

    #[test]
    fn wipefs_output_is_read() {
        let text = include_str!("../../tests/fixtures/wipefs-ext4.json");
        assert_eq!(parse_wipefs(text).unwrap(), ["ext4"]);
        assert_eq!(parse_wipefs(include_str!("../../tests/fixtures/wipefs-empty.json")).unwrap(), Vec::<String>::new());
        assert_eq!(parse_wipefs("").unwrap(), Vec::<String>::new());
        assert!(parse_wipefs("wipefs: what?").is_err());
    }
}
