//! NVMe (NVM Express base specification 1.4): what guests without virtio drivers but of this
//! decade can use. QEMU 7.1 began to take the guest's doorbells by ioeventfd, on by default, and
//! later turned it off by default; a stall at depth was seen with it (docs/drivers.md). vmio turns
//! it off wherever QEMU has the property, so that releases compare, and the effective settings
//! say so.

use super::{Device, DeviceArgs, Disk, Driver, QemuVersion};

/// The first with the property `ioeventfd`.
const IOEVENTFD_SINCE: QemuVersion = QemuVersion { major: 7, minor: 1 };

/// Entry `nvme`.
pub struct Nvme;

impl Driver for Nvme {
    fn name(&self) -> &'static str {
        "nvme"
    }
    fn about(&self) -> &'static str {
        "emulated NVMe disk, doorbells without ioeventfd"
    }
    fn device_args(&self, disk: &Disk<'_>) -> DeviceArgs {
        let device = disk.on(Device::new("nvme", disk.id));
        let has_it = disk.qemu >= IOEVENTFD_SINCE;
        DeviceArgs { controller: None, device: device.maybe("ioeventfd", has_it.then_some(false)) }
    }
    fn qom_types(&self) -> (&'static str, Option<&'static str>) {
        ("nvme", None)
    }
    fn guest_modules(&self) -> &'static [&'static str] {
        &["nvme"]
    }
    fn avoids_ioeventfd(&self) -> bool {
        true
    }
    // QEMU's controller always says that it has a volatile write cache.
    fn shows_write_through(&self) -> bool {
        false
    }
}
