//! The emulated LSI 53C895A SCSI controller: what the paper's guests used (shafer2010,
//! section 3), and what guests without virtio drivers still use. Every request goes through
//! the SCSI script processor that QEMU emulates, and all but a few commands run one after
//! another, which is why depth does not help here.

use super::{Device, DeviceArgs, Disk, Driver};

/// Entry `lsi53c895a`.
pub struct Lsi53c895a;

impl Driver for Lsi53c895a {
    fn name(&self) -> &'static str {
        "lsi53c895a"
    }
    fn about(&self) -> &'static str {
        "emulated SCSI controller (LSI 53C895A), as in the paper"
    }
    fn device_args(&self, disk: &Disk<'_>) -> DeviceArgs {
        DeviceArgs::below(Device::new("lsi53c895a", disk.controller_id()), "scsi-hd", disk)
    }
    fn qom_types(&self) -> (&'static str, Option<&'static str>) {
        ("scsi-hd", Some("lsi53c895a"))
    }
    fn guest_modules(&self) -> &'static [&'static str] {
        &["sym53c8xx", "sd_mod"]
    }
}
