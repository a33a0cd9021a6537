//! Intel's 82540EM, imitated register by register.

use super::NicModel;

/// Entry `e1000`.
pub struct E1000;

impl NicModel for E1000 {
    fn name(&self) -> &'static str {
        "e1000"
    }
    fn about(&self) -> &'static str {
        "an emulated Intel card, which every guest has a driver for"
    }
    fn guest_modules(&self) -> &'static [&'static str] {
        &["e1000"]
    }
    fn driver(&self) -> &'static str {
        "e1000"
    }
    fn model(&self) -> &'static str {
        "e1000"
    }
    /// 16 KiB less the Ethernet header, its VLAN tag and its check sum (drivers/net/ethernet/intel/e1000).
    fn most_mtu_bytes(&self) -> u32 {
        16_110
    }
}
