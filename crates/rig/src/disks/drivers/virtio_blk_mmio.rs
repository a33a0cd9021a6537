//! virtio-blk without a bus (virtio 1.2 specification, section 4.2, "Virtio Over MMIO"): a range of memory and an
//! interrupt, as small ARM boards and microVMs have it. Its doorbell is a write that leaves the guest's processor, which
//! QEMU's own process serves at once: it has no ioeventfd under emulation, and so no I/O thread.

use vmio_model::cell::Arch;

use super::{Device, DeviceArgs, Disk, Driver};

/// Entry `virtio-blk-mmio`.
pub struct VirtioBlkMmio;

impl Driver for VirtioBlkMmio {
    fn name(&self) -> &'static str {
        "virtio-blk-mmio"
    }
    fn about(&self) -> &'static str {
        "the same without a bus, in guests of aarch64 (virtio-blk-device)"
    }
    fn device_args(&self, disk: &Disk<'_>) -> DeviceArgs {
        let device = disk.on(Device::new("virtio-blk-device", disk.id)).maybe("num-queues", disk.asked.options.queues);
        DeviceArgs { controller: None, device }
    }
    fn qom_types(&self) -> (&'static str, Option<&'static str>) {
        ("virtio-blk-device", None)
    }
    fn guest_modules(&self) -> &'static [&'static str] {
        &["virtio_blk", "virtio_mmio"]
    }
    fn supports_queues(&self) -> bool {
        true
    }
    fn arches(&self) -> &'static [Arch] {
        &[Arch::Aarch64]
    }
    fn is_on_pci(&self) -> bool {
        false
    }
}
