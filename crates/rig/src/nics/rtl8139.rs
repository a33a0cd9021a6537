//! Realtek's 8139C+, imitated register by register: a card of 100 Mbit/s that old set-ups still name.

use super::{NicModel, PLAIN};

/// Entry `rtl8139`.
pub const RTL8139: NicModel = NicModel {
    name: "rtl8139",
    about: "an emulated Realtek card, which old guests have a driver for",
    guest_modules: &["8139cp"],
    driver: "8139cp",
    // CP_MAX_MTU of drivers/net/ethernet/realtek/8139cp.c.
    most_mtu_bytes: 4_096,
    ..PLAIN
};
