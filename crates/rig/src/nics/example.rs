//! Intel's 82545EM, imitated register by register.

use super::{NicModel, PLAIN};

/// Entry `e1000-82545em`.
pub const E1000_82545EM: NicModel = NicModel {
    name: "e1000-82545em",
    about: "an emulated Intel card, which VMware's guests know",
    guest_modules: &["e1000"],
    driver: "e1000",
    // As of the e1000: one driver has them both (drivers/net/ethernet/intel/e1000).
    most_mtu_bytes: 16_110,
    ..PLAIN
};
