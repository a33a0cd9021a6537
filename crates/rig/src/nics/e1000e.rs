//! Intel's 82574L, imitated register by register: what QEMU's machine `q35` has where nothing is said.

use super::{NicModel, PLAIN};

/// Entry `e1000e`.
pub const E1000E: NicModel = NicModel {
    name: "e1000e",
    about: "an emulated Intel card of PCI Express, the default of machine q35",
    guest_modules: &["e1000e"],
    driver: "e1000e",
    // Frames of 9,234 bytes at most (drivers/net/ethernet/intel/e1000e/82571.c, DEFAULT_JUMBO), less header, VLAN tag
    // and check sum.
    most_mtu_bytes: 9_212,
    ..PLAIN
};
