//! virtio-blk without a bus (virtio 1.2 specification, section 4.2, "Virtio Over MMIO"): a range of memory and an
//! interrupt, as small ARM boards and microVMs have it. Its doorbell is a write that leaves the guest's processor, which
//! QEMU's own process serves at once: it has no ioeventfd under emulation, and so no I/O thread.

use vmio_model::cell::Arch;

use super::{Driver, PLAIN};

/// Entry `virtio-blk-mmio`.
pub const VIRTIO_BLK_MMIO: Driver = Driver {
    name: "virtio-blk-mmio",
    about: "the same without a bus, in guests of aarch64 (virtio-blk-device)",
    guest_modules: &["virtio_blk", "virtio_mmio"],
    arches: &[Arch::Aarch64],
    supports_queues: true,
    ..PLAIN
};
