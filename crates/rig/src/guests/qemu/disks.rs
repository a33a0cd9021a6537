//! Finds a disk in the guest by the serial number that the host gave it, or by its place on the
//! PCI bus where it has none (a vhost-user server makes no serial number up). Names like `sda`
//! depend on the order in which drivers come up.

use std::collections::BTreeMap;
use std::path::PathBuf;

use vmio_node::Reader;
use vmio_node::linux::{block, bus};

use super::args::PciAddress;

/// Block devices of a node by serial number.
pub fn by_serial(guest: &dyn Reader) -> BTreeMap<String, PathBuf> {
    let names = block::whole(guest).unwrap_or_default();
    let serial = |name: &String| Some((block::Device::whole(guest, name).serial()?, block::node_path(name)));
    names.iter().filter_map(serial).collect()
}

/// Block device of the virtio disk at this place.
pub fn by_address(guest: &dyn Reader, address: PciAddress) -> Option<PathBuf> {
    Some(block::node_path(&bus::virtio_disk(guest, &address.in_guest())?))
}

/// Block device of the NVMe controller at this place.
pub fn nvme_by_address(guest: &dyn Reader, address: PciAddress) -> Option<PathBuf> {
    Some(block::node_path(&bus::nvme_disk(guest, &address.in_guest())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmio_node::fake::Fake;

    #[test]
    fn each_kind_of_disk_is_found_by_its_serial() {
        let guest = Fake::new("fake")
            .file("/sys/block/vda/serial", "vmio-tools\n")
            .file("/sys/block/nvme0n1/device/serial", "vmio-2            \n")
            .file("/sys/block/sda/device/vpd_pg80", b"\0\x80\0\x06vmio-0")
            .file("/sys/block/loop0/size", "0\n");
        let expected = [("vmio-0", "/dev/sda"), ("vmio-2", "/dev/nvme0n1"), ("vmio-tools", "/dev/vda")];
        assert_eq!(by_serial(&guest), expected.map(|(s, p)| (s.to_owned(), PathBuf::from(p))).into());
    }

    #[test]
    fn a_disk_without_a_serial_is_found_by_its_place() {
        let guest = Fake::new("fake")
            .file("/sys/bus/pci/devices/0000:00:04.0/vendor", "0x1af4\n")
            .file("/sys/bus/pci/devices/0000:00:04.0/virtio2/block/vdb/size", "2048\n")
            .file("/sys/bus/pci/devices/0000:00:05.0/vendor", "0x1af4\n");
        assert_eq!(by_address(&guest, PciAddress::of(1)), Some("/dev/vdb".into()));
        assert_eq!(by_address(&guest, PciAddress::of(2)), None);
        assert_eq!(by_address(&guest, PciAddress::of(3)), None);
    }

    #[test]
    fn a_device_of_the_hosts_is_found_by_its_place() {
        let controller = "/sys/bus/pci/devices/0000:00:04.0/nvme/nvme1";
        let guest = Fake::new("fake")
            .file(format!("{controller}/model"), "OCZ\n")
            .file(format!("{controller}/nvme1c1n1/size"), "2048\n")
            .file(format!("{controller}/nvme1n1/size"), "2048\n")
            .file("/sys/bus/pci/devices/0000:00:05.0/vendor", "0x1af4\n")
            .file("/sys/bus/pci/devices/0000:00:06.0/nvme/nvme2/nvme0c2n1/size", "2048\n");
        assert_eq!(nvme_by_address(&guest, PciAddress::of(1)), Some("/dev/nvme1n1".into()));
        assert_eq!(nvme_by_address(&guest, PciAddress::of(2)), None);
        assert_eq!(nvme_by_address(&guest, PciAddress::of(3)), Some("/dev/nvme0n1".into()), "the disk of a path");
    }
}
