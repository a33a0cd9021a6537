//! virtio-net without a bus (virtio 1.2 specification, section 4.2).

use vmio_model::cell::Arch;

use super::NicModel;

/// Entry `virtio-net-mmio`.
pub struct VirtioNetMmio;

impl NicModel for VirtioNetMmio {
    fn name(&self) -> &'static str {
        "virtio-net-mmio"
    }
    fn about(&self) -> &'static str {
        "the same without a bus, in guests of aarch64"
    }
    fn guest_modules(&self) -> &'static [&'static str] {
        &["virtio_net", "virtio_mmio"]
    }
    fn driver(&self) -> &'static str {
        "virtio_net"
    }
    fn model(&self) -> &'static str {
        "virtio-net-device"
    }
    fn is_virtio(&self) -> bool {
        true
    }
    /// MAX_MTU of drivers/net/virtio_net.c.
    fn most_mtu_bytes(&self) -> u32 {
        65_535
    }
    fn arches(&self) -> &'static [Arch] {
        &[Arch::Aarch64]
    }
    fn is_on_pci(&self) -> bool {
        false
    }
}
