//! Intel's 82540EM, imitated register by register.

use super::{NicModel, PLAIN};

/// Entry `e1000`.
pub const E1000: NicModel = NicModel {
    name: "e1000",
    about: "an emulated Intel card, which every guest has a driver for",
    guest_modules: &["e1000"],
    driver: "e1000",
    // 16 KiB less the Ethernet header, its VLAN tag and its check sum (drivers/net/ethernet/intel/e1000).
    most_mtu_bytes: 16_110,
    ..PLAIN
};
