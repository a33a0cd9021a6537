//! virtio-net: queues in the guest's memory.

use super::NicModel;

/// Entry `virtio-net`.
pub struct VirtioNet;

impl NicModel for VirtioNet {
    fn name(&self) -> &'static str {
        "virtio-net"
    }
    fn about(&self) -> &'static str {
        "the paravirtual device; its packets are carried by the hypervisor, or by the host's kernel (vhost)"
    }
    fn guest_modules(&self) -> &'static [&'static str] {
        &["virtio_net"]
    }
    fn driver(&self) -> &'static str {
        "virtio_net"
    }
    fn model(&self) -> &'static str {
        "virtio-net-pci"
    }
    fn is_virtio(&self) -> bool {
        true
    }
    /// MAX_MTU of drivers/net/virtio_net.c.
    fn most_mtu_bytes(&self) -> u32 {
        65_535
    }
}
