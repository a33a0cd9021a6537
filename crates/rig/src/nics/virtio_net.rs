//! virtio-net: queues in the guest's memory.

use super::{NicModel, PLAIN};

/// Entry `virtio-net`.
pub const VIRTIO_NET: NicModel = NicModel {
    name: "virtio-net",
    about: "the paravirtual device; its packets are carried by the hypervisor, or by the host's kernel (vhost)",
    guest_modules: &["virtio_net"],
    driver: "virtio_net",
    // MAX_MTU of drivers/net/virtio_net.c.
    most_mtu_bytes: 65_535,
    is_virtio: true,
    ..PLAIN
};
