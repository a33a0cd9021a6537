//! virtio-scsi on PCI: the paravirtual SCSI controller (virtio 1.2 specification, section 5.6),
//! Proxmox's default. Each disk has a controller of its own, as with Proxmox's "VirtIO SCSI
//! single", since queues and I/O thread belong to the controller.

use super::{Device, DeviceArgs, Disk, Driver};

/// Entry `virtio-scsi`.
pub struct VirtioScsi;

impl Driver for VirtioScsi {
    fn name(&self) -> &'static str {
        "virtio-scsi"
    }
    fn about(&self) -> &'static str {
        "paravirtual SCSI disk (scsi-hd on a virtio-scsi-pci of its own)"
    }
    fn device_args(&self, disk: &Disk<'_>) -> DeviceArgs {
        let controller = Device::new("virtio-scsi-pci", disk.controller_id())
            .maybe("num_queues", disk.asked.options.queues)
            .maybe("iothread", disk.iothreads.first().cloned());
        DeviceArgs::below(controller, "scsi-hd", disk)
    }
    fn qom_types(&self) -> (&'static str, Option<&'static str>) {
        ("scsi-hd", Some("virtio-scsi-pci"))
    }
    fn guest_modules(&self) -> &'static [&'static str] {
        &["virtio_scsi", "virtio_pci", "sd_mod"]
    }
    fn supports_iothread(&self) -> bool {
        true
    }
    fn supports_queues(&self) -> bool {
        true
    }
}
