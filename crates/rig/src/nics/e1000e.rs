//! Intel's 82574L, imitated register by register: what QEMU's machine `q35` has where nothing is said.

use super::NicModel;

/// Entry `e1000e`.
pub struct E1000e;

impl NicModel for E1000e {
    fn name(&self) -> &'static str {
        "e1000e"
    }
    fn about(&self) -> &'static str {
        "an emulated Intel card of PCI Express, the default of machine q35"
    }
    fn guest_modules(&self) -> &'static [&'static str] {
        &["e1000e"]
    }
    fn driver(&self) -> &'static str {
        "e1000e"
    }
    fn model(&self) -> &'static str {
        "e1000e"
    }
    /// Frames of 9,234 bytes at most (drivers/net/ethernet/intel/e1000e/82571.c, DEFAULT_JUMBO), less header, VLAN tag
    /// and check sum.
    fn most_mtu_bytes(&self) -> u32 {
        9_212
    }
}
