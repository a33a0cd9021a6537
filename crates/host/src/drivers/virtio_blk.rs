//! virtio-blk on PCI: the paravirtual disk that QEMU, libvirt and Proxmox recommend where few
//! disks must be fast (virtio 1.2 specification, section 5.2).

use super::{DeviceArgs, Disk, Driver};

/// Entry `virtio-blk`.
pub struct VirtioBlk;

impl Driver for VirtioBlk {
    fn name(&self) -> &'static str {
        "virtio-blk"
    }
    fn about(&self) -> &'static str {
        "paravirtual disk (virtio-blk-pci)"
    }
    fn device_args(&self, disk: &Disk<'_>) -> DeviceArgs {
        let Disk { id, node, serial, iothread } = disk;
        let iothread = iothread.map(|io| format!(",iothread={io}")).unwrap_or_default();
        DeviceArgs {
            controller: None,
            device: format!("virtio-blk-pci,id={id},drive={node},serial={serial}{iothread}"),
        }
    }
    fn qom_types(&self) -> (&'static str, Option<&'static str>) {
        ("virtio-blk-pci", None)
    }
    fn guest_modules(&self) -> &'static [&'static str] {
        &["virtio_blk", "virtio_pci"]
    }
    fn supports_iothread(&self) -> bool {
        true
    }
}
