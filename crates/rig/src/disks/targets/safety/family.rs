//! A block device and those that share its blocks: its partitions, or the disk that it is a partition
//! of (kernel document ABI/stable/sysfs-block).

use std::path::{Path, PathBuf};

use vmio_node::Reader;

use super::super::Result;

/// The kernel's name of a device number, as sysfs has it (`cciss!c0d0` for `cciss/c0d0`).
pub fn name(reader: &dyn Reader, (major, minor): (u32, u32)) -> Result<Option<String>> {
    let uevent = reader.read_text(Path::new(&format!("/sys/dev/block/{major}:{minor}/uevent")))?;
    let name = uevent.lines().find_map(|l| l.strip_prefix("DEVNAME=")).filter(|n| !n.is_empty());
    Ok(name.map(|n| n.replace('/', "!")))
}

/// A device that has blocks in common with the one that is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name in sysfs.
    pub name: String,
    /// Its directory there.
    pub dir: PathBuf,
    /// (major, minor).
    pub number: (u32, u32),
}

/// Partitions, the disk that a partition belongs to, then the device itself. A disk's other partitions
/// have no block in common with this one.
pub fn members(reader: &dyn Reader, name: &str) -> Vec<Member> {
    let block = Path::new("/sys/block");
    let mut dirs: Vec<(String, PathBuf)> =
        partitions(reader, name).into_iter().map(|p| (p.clone(), block.join(name).join(p))).collect();
    dirs.extend(disk_of(reader, name).map(|disk| (disk.clone(), block.join(disk))));
    dirs.push((name.to_owned(), class_dir(reader, name)));
    let member = |(name, dir): (String, PathBuf)| {
        let text = reader.read_text(&dir.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(Member { name, number: (major.parse().ok()?, minor.parse().ok()?), dir })
    };
    dirs.into_iter().filter_map(member).collect()
}

/// Names of a disk's partitions.
pub fn partitions(reader: &dyn Reader, disk: &str) -> Vec<String> {
    let dir = Path::new("/sys/block").join(disk);
    let names = reader.list(&dir).unwrap_or_default();
    names.into_iter().filter(|n| is(reader, &dir.join(n).join("partition"))).collect()
}

/// The disk that a partition belongs to.
fn disk_of(reader: &dyn Reader, name: &str) -> Option<String> {
    let block = Path::new("/sys/block");
    let disks = reader.list(block).unwrap_or_default();
    disks.into_iter().find(|disk| is(reader, &block.join(disk).join(name).join("partition")))
}

/// `/sys/block/sda` or `/sys/class/block/sda1`.
pub fn class_dir(reader: &dyn Reader, name: &str) -> PathBuf {
    let disk = Path::new("/sys/block").join(name);
    if is(reader, &disk) { disk } else { Path::new("/sys/class/block").join(name) }
}

fn is(reader: &dyn Reader, path: &Path) -> bool {
    matches!(reader.stat(path), Ok(Some(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmio_node::fake::Tree;

    #[test]
    fn a_disk_its_partitions_and_a_partitions_disk_have_numbers() {
        let tree = Tree::of(&[
            ("/sys/block/sda/dev", "8:0\n"),
            ("/sys/block/sda/sda1/partition", "1\n"),
            ("/sys/block/sda/sda1/dev", "8:1\n"),
            ("/sys/block/sda/sda2/partition", "2\n"),
            ("/sys/block/sda/sda2/dev", "8:2\n"),
            ("/sys/class/block/sda1/dev", "8:1\n"),
        ]);
        let numbers = |name: &str| members(&tree, name).iter().map(|m| m.number).collect::<Vec<_>>();
        assert_eq!(numbers("sda"), [(8, 1), (8, 2), (8, 0)]);
        // Its neighbour has no block in common with it.
        assert_eq!(numbers("sda1"), [(8, 0), (8, 1)]);
    }
}
