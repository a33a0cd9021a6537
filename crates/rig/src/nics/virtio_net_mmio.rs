//! virtio-net without a bus (virtio 1.2 specification, section 4.2).

use vmio_model::cell::Arch;

use super::NicModel;

/// Entry `virtio-net-mmio`.
pub const VIRTIO_NET_MMIO: NicModel = NicModel {
    name: "virtio-net-mmio",
    about: "the same without a bus, in guests of aarch64",
    guest_modules: &["virtio_net", "virtio_mmio"],
    driver: "virtio_net",
    // MAX_MTU of drivers/net/virtio_net.c.
    most_mtu_bytes: 65_535,
    is_virtio: true,
    arches: &[Arch::Aarch64],
    is_on_pci: false,
};
