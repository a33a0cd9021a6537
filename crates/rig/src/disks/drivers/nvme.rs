//! NVMe (NVM Express base specification 1.4): what guests without virtio drivers but of this
//! decade can use.

use super::{Driver, PLAIN};

/// Entry `nvme`.
pub const NVME: Driver = Driver {
    name: "nvme",
    about: "emulated NVMe disk, doorbells without ioeventfd",
    guest_modules: &["nvme"],
    ..PLAIN
};
