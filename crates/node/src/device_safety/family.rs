//! A block device and those that share its blocks: its partitions, or the disk that it is a partition
//! of.

use crate::Reader;
use crate::linux::block::{Device, disk_of, sysfs_name};
use crate::linux::device::Number;

use super::Result;

/// The kernel's name of a device number, as sysfs has it (`cciss!c0d0` for `cciss/c0d0`).
pub fn name(reader: &dyn Reader, number: Number) -> Result<Option<String>> {
    Ok(Device::numbered(reader, number).node_name()?.map(|name| sysfs_name(&name)))
}

/// A device that has blocks in common with the one that is asked about.
pub struct Member<'a> {
    /// Its name in sysfs.
    pub name: String,
    /// What sysfs says of it.
    pub device: Device<'a>,
    /// (major, minor).
    pub number: Number,
}

/// Partitions, the disk that a partition belongs to, then the device itself. A disk's other partitions
/// have no block in common with this one.
pub fn members<'a>(reader: &'a dyn Reader, name: &str) -> Vec<Member<'a>> {
    let whole = Device::whole(reader, name);
    let mut all: Vec<(String, Device<'a>)> =
        whole.partitions().into_iter().map(|part| (part.clone(), whole.inner(part))).collect();
    all.extend(disk_of(reader, name).map(|disk| (disk.clone(), Device::whole(reader, &disk))));
    all.push((name.to_owned(), Device::named(reader, name)));
    let member = |(name, device): (String, Device<'a>)| Some(Member { name, number: device.number()?, device });
    all.into_iter().filter_map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Tree;

    #[test]
    fn members_of_a_family() {
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
