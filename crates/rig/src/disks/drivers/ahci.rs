//! AHCI (SATA): what QEMU's q35 gives a disk when nobody says anything, and what installers
//! without virtio drivers boot from. 32 commands may be under way at once (AHCI 1.3.1, section
//! 4.2), on one queue that the main loop serves.

use super::{Driver, PLAIN};

/// Entry `ahci`.
pub const AHCI: Driver = Driver {
    name: "ahci",
    about: "emulated SATA disk (ide-hd on ich9-ahci)",
    guest_modules: &["ahci", "sd_mod"],
    ..PLAIN
};
