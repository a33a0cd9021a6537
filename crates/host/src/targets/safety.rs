//! Whether a block device may be overwritten. Three looks, each of which alone is enough to
//! refuse it:
//! - who uses it: mounts, swap, holders (LVM, md, dm, bcache), partitions in use, processes that have
//!   it open (a guest's QEMU does, and without O_EXCL). Never forced;
//! - `wipefs --no-act` of util-linux, the known program for signatures at every place;
//! - vmio's own look for what older libblkid versions miss or hosts without wipefs would miss.

mod openers;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vmio_node::{Exec, Node, Reader};

use self::openers::openers;
use super::{Error, Result};
use crate::backing::mounts;
use crate::require::find_program;

/// Refuses a device that is used, or that holds something and is not forced. Returns its kernel
/// name.
///
/// # Errors
/// [`Error::Refused`] with all reasons.
pub fn check(node: &dyn Node, device: &Path, force: bool) -> Result<String> {
    let refused = |reason: String| Error::Refused { device: device.into(), reason };
    let stat = node.stat(device)?.filter(|s| s.mode & 0o170_000 == 0o060_000);
    let (major, minor) = stat.ok_or_else(|| refused("it is not a block device".into()))?.rdev;
    let uevent = node.read_text(Path::new(&format!("/sys/dev/block/{major}:{minor}/uevent")))?;
    let name = uevent.lines().find_map(|l| l.strip_prefix("DEVNAME=")).filter(|n| !n.is_empty());
    let name =
        name.ok_or_else(|| refused("the kernel does not report its name, so its users cannot be found".into()))?;
    let name = name.replace('/', "!");
    let mut used = uses(node.reader(), &name)?;
    let numbers = numbers(node.reader(), &name);
    used.extend(openers(
        Path::new("/proc"),
        |path| matches!(node.stat(path), Ok(Some(s)) if s.mode & 0o170_000 == 0o060_000 && numbers.contains(&s.rdev)),
    ));
    if !used.is_empty() {
        return Err(refused(format!("{}; --force does not change that", used.join("; "))));
    }
    if force {
        return Ok(name);
    }
    let mut held = partitions(node.reader(), &name);
    held.extend(wipefs(node, device)?);
    let open = |source| Error::Io { what: "look into", path: device.into(), source };
    let file = File::open(device).map_err(open)?;
    held.extend(signatures(&file).map_err(open)?);
    held.sort();
    held.dedup();
    if held.is_empty() {
        return Ok(name);
    }
    Err(refused(format!(
        "it holds {}; all of it would be overwritten: name another device, or use --force if you are sure",
        held.join(", ")
    )))
}

/// The device itself and its partitions.
fn family(reader: &dyn Reader, name: &str) -> Vec<String> {
    let mut all = partitions_of(reader, name);
    all.push(name.to_owned());
    all
}

fn partitions_of(reader: &dyn Reader, disk: &str) -> Vec<String> {
    let dir = Path::new("/sys/block").join(disk);
    let names = reader.list(&dir).unwrap_or_default();
    names.into_iter().filter(|n| matches!(reader.stat(&dir.join(n).join("partition")), Ok(Some(_)))).collect()
}

/// Device numbers of the device and its partitions.
fn numbers(reader: &dyn Reader, name: &str) -> Vec<(u32, u32)> {
    let number = |member: &String| {
        let text = reader.read_text(&class_dir(reader, member).join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    family(reader, name).iter().filter_map(number).collect()
}

fn partitions(reader: &dyn Reader, disk: &str) -> Vec<String> {
    let names = partitions_of(reader, disk);
    if names.is_empty() { vec![] } else { vec![format!("partitions ({})", names.join(", "))] }
}

/// Who uses a disk or one of its partitions.
fn uses(reader: &dyn Reader, name: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let disk_dir = Path::new("/sys/block").join(name);
    let text = |path: &Path| reader.read_text(path).unwrap_or_default();
    if text(&class_dir(reader, name).join("ro")).trim() == "1" {
        found.push("it is read-only".into());
    }
    let mounts = mounts(reader)?;
    let swaps = text(Path::new("/proc/swaps"));
    for member in family(reader, name) {
        // A partition named directly is not in /sys/block itself.
        let dir = if member == name { class_dir(reader, name) } else { disk_dir.join(&member) };
        let numbers = text(&dir.join("dev"));
        for mount in &mounts {
            if format!("{}:{}", mount.dev.0, mount.dev.1) == numbers.trim() || mount.source == format!("/dev/{member}")
            {
                found.push(format!("{member} is mounted on {}", mount.point.display()));
            }
        }
        for line in swaps.lines().skip(1) {
            if line.split_ascii_whitespace().next() == Some(&format!("/dev/{member}")) {
                found.push(format!("{member} is swap in use"));
            }
        }
        let holders = reader.list(&dir.join("holders")).unwrap_or_default();
        if !holders.is_empty() {
            found.push(format!("{member} is held by {}", holders.join(", ")));
        }
    }
    Ok(found)
}

/// `/sys/block/sda` or `/sys/class/block/sda1`.
fn class_dir(reader: &dyn Reader, name: &str) -> PathBuf {
    let disk = Path::new("/sys/block").join(name);
    match reader.stat(&disk) {
        Ok(Some(_)) => disk,
        _ => Path::new("/sys/class/block").join(name),
    }
}

/// What util-linux's wipefs sees.
fn wipefs(node: &dyn Node, device: &Path) -> Result<Vec<String>> {
    // In sbin, which a user's PATH often lacks.
    let wipefs = find_program(node.reader(), "wipefs").unwrap_or_else(|| "wipefs".into());
    let cmd = Exec::new(wipefs.display().to_string())
        .args(["--no-act".to_owned(), "--json".to_owned(), device.display().to_string()])
        .limit(Duration::from_secs(30));
    let unsure = |what: String| Error::Refused {
        device: device.into(),
        reason: format!(
            "{what}, so its contents cannot be identified: install util-linux, or use --force if you are sure"
        ),
    };
    let output = node.exec(&cmd).map_err(|e| unsure(e.to_string()))?;
    if !output.ok() {
        return Err(unsure(format!("`{}` failed: {}", cmd.shown(), output.err().trim())));
    }
    parse_wipefs(&output.out()).map_err(|e| unsure(format!("`{}`: {e}", cmd.shown())))
}

fn parse_wipefs(text: &str) -> std::result::Result<Vec<String>, String> {
    // Older versions print nothing at all for an empty device.
    if text.trim().is_empty() {
        return Ok(vec![]);
    }
    let doc: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let list = doc["signatures"].as_array().ok_or("no list of signatures")?;
    Ok(list.iter().map(|s| s["type"].as_str().unwrap_or("an unknown signature").to_owned()).collect())
}

/// Distance from the start, or from the end where negative; the bytes there; what they are.
/// Sources: kernel `md_p.h` and `mdadm` super-intel.c (RAID), LVM2 `label.h`, cryptsetup
/// `luks1.h`/`luks2.h`, kernel `bcache_ondisk.h`, Ceph `BlueStore.cc`, kernel `swap.h`,
/// ext4 `ext4.h`, XFS `xfs_format.h`, btrfs `btrfs_tree.h`, UEFI 2.10 section 5.3.
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
];

/// What the bytes of a device or file say, wipefs aside.
fn signatures(file: &File) -> io::Result<Vec<String>> {
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
    use crate::testing::Tree;

    const SIZE: u64 = 16 << 20;

    fn seen(put: impl FnOnce(&File, &Path)) -> Vec<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(SIZE).unwrap();
        put(file.as_file(), file.path());
        signatures(&File::open(file.path()).unwrap()).unwrap()
    }

    fn put(offset: u64, bytes: &[u8]) -> Vec<String> {
        seen(|file, _| file.write_all_at(bytes, offset).unwrap())
    }

    #[test]
    fn an_empty_device_holds_nothing() {
        assert_eq!(seen(|_, _| ()), Vec::<String>::new());
        assert_eq!(put(0, &[0x5a; 8192]), Vec::<String>::new(), "plain data is no signature");
    }

    #[test]
    fn each_magic_is_found_at_its_place_and_nowhere_else() {
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
    fn what_real_programs_make_is_found() {
        for (program, what) in [("mkfs.ext4", "ext2, ext3 or ext4"), ("mkswap", "swap")] {
            let found = seen(|_, path| {
                let output =
                    Command::new(program).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").arg(path).output().unwrap();
                assert!(output.status.success(), "{program}: {output:?}");
            });
            assert_eq!(found, [what]);
        }
    }

    #[test]
    fn a_small_file_is_no_reason_to_panic() {
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

    #[test]
    fn a_device_and_its_partitions_have_numbers() {
        let tree = Tree::of(&[
            ("/sys/block/sda/dev", "8:0\n"),
            ("/sys/block/sda/sda1/partition", "1\n"),
            ("/sys/class/block/sda1/dev", "8:1\n"),
        ]);
        assert_eq!(numbers(&tree, "sda"), [(8, 1), (8, 0)]);
    }

    #[test]
    fn users_of_a_disk_are_named() {
        let tree = Tree::of(&[
            ("/proc/self/mountinfo", "22 1 8:2 / /srv rw - ext4 /dev/sda2 rw\n"),
            ("/proc/swaps", "Filename Type Size Used Priority\n/dev/sda3 partition 1 0 -2\n"),
            ("/sys/block/sda/dev", "8:0\n"),
            ("/sys/block/sda/ro", "0\n"),
            ("/sys/block/sda/sda1/partition", "1\n"),
            ("/sys/block/sda/sda1/dev", "8:1\n"),
            ("/sys/block/sda/sda1/holders/dm-0", ""),
            ("/sys/block/sda/sda2/partition", "2\n"),
            ("/sys/block/sda/sda2/dev", "8:2\n"),
            ("/sys/block/sda/sda3/partition", "3\n"),
            ("/sys/block/sda/sda3/dev", "8:3\n"),
            ("/sys/class/block/sda2/dev", "8:2\n"),
            ("/sys/block/sdb/dev", "8:16\n"),
            ("/sys/block/sdb/ro", "1\n"),
            ("/sys/block/sdc/dev", "8:32\n"),
            ("/sys/block/sdc/ro", "0\n"),
        ]);
        assert_eq!(
            uses(&tree, "sda").unwrap(),
            ["sda1 is held by dm-0", "sda2 is mounted on /srv", "sda3 is swap in use"]
        );
        assert_eq!(uses(&tree, "sda2").unwrap(), ["sda2 is mounted on /srv"], "a partition named directly");
        assert_eq!(uses(&tree, "sdb").unwrap(), ["it is read-only"]);
        assert_eq!(uses(&tree, "sdc").unwrap(), Vec::<String>::new());
        assert_eq!(partitions(&tree, "sda"), ["partitions (sda1, sda2, sda3)"]);
        assert!(partitions(&tree, "sdc").is_empty());
    }
}
