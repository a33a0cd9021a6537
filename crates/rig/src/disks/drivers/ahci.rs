//! AHCI (SATA): what QEMU's q35 gives a disk when nobody says anything, and what installers
//! without virtio drivers boot from. 32 commands may be under way at once (AHCI 1.3.1, section
//! 4.2), on one queue that the main loop serves.

use super::{Device, DeviceArgs, Disk, Driver};

/// Entry `ahci`.
pub struct Ahci;

impl Driver for Ahci {
    fn name(&self) -> &'static str {
        "ahci"
    }
    fn about(&self) -> &'static str {
        "emulated SATA disk (ide-hd on ich9-ahci)"
    }
    fn device_args(&self, disk: &Disk<'_>) -> DeviceArgs {
        DeviceArgs::below(Device::new("ich9-ahci", disk.controller_id()), "ide-hd", disk)
    }
    fn qom_types(&self) -> (&'static str, Option<&'static str>) {
        ("ide-hd", Some("ich9-ahci"))
    }
    fn guest_modules(&self) -> &'static [&'static str] {
        &["ahci", "sd_mod"]
    }
}
