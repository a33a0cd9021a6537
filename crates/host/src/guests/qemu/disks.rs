//! Finds a disk in the guest by the serial number that the host gave it. Names like `sda` depend
//! on the order in which drivers come up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vmio_node::Reader;

/// Block devices of a node by serial number.
///
/// virtio-blk has `serial` beside the device; NVMe has it in `device/`; SCSI and ATA disks answer
/// with page 0x80 of their vital product data (SPC-4, 7.8.15): four bytes, then the number.
pub fn by_serial(guest: &dyn Reader) -> BTreeMap<String, PathBuf> {
    let sys = Path::new("/sys/block");
    let mut found = BTreeMap::new();
    for name in guest.list(sys).unwrap_or_default() {
        let dir = sys.join(&name);
        let text = |file: &str| guest.read_text(&dir.join(file)).ok();
        let page = || guest.read(&dir.join("device/vpd_pg80")).ok().filter(|p| p.len() > 4);
        let serial = text("serial")
            .or_else(|| text("device/serial"))
            .or_else(|| page().map(|p| String::from_utf8_lossy(&p[4..]).into_owned()));
        if let Some(serial) = serial.map(|s| s.trim_matches(['\0', ' ', '\n']).to_owned()).filter(|s| !s.is_empty()) {
            found.insert(serial, Path::new("/dev").join(&name));
        }
    }
    found
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
}
