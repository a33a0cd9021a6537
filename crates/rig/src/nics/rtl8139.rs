//! Realtek's 8139C+, imitated register by register: a card of 100 Mbit/s that old set-ups still name.

use super::NicModel;

/// Entry `rtl8139`.
pub struct Rtl8139;

impl NicModel for Rtl8139 {
    fn name(&self) -> &'static str {
        "rtl8139"
    }
    fn about(&self) -> &'static str {
        "an emulated Realtek card, which old guests have a driver for"
    }
    fn guest_modules(&self) -> &'static [&'static str] {
        &["8139cp"]
    }
    fn driver(&self) -> &'static str {
        "8139cp"
    }
    fn model(&self) -> &'static str {
        "rtl8139"
    }
    /// CP_MAX_MTU of drivers/net/ethernet/realtek/8139cp.c.
    fn most_mtu_bytes(&self) -> u32 {
        4_096
    }
}
