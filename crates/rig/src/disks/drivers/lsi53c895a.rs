//! The emulated LSI 53C895A SCSI controller: what the paper's guests used (shafer2010,
//! section 3), and what guests without virtio drivers still use. Every request goes through
//! the SCSI script processor that the hypervisor emulates, and all but a few commands run one
//! after another, which is why depth does not help here.

use super::{Driver, PLAIN};

/// Entry `lsi53c895a`.
pub const LSI53C895A: Driver = Driver {
    name: "lsi53c895a",
    about: "emulated SCSI controller (LSI 53C895A), as in the paper",
    guest_modules: &["sym53c8xx", "sd_mod"],
    ..PLAIN
};
