//! virtio-scsi on PCI: the paravirtual SCSI controller (virtio 1.2 specification, section 5.6),
//! Proxmox's default.

use super::{Driver, PLAIN};

/// Entry `virtio-scsi`.
pub const VIRTIO_SCSI: Driver = Driver {
    name: "virtio-scsi",
    about: "paravirtual SCSI disk (scsi-hd on a virtio-scsi-pci of its own)",
    guest_modules: &["virtio_scsi", "virtio_pci", "sd_mod"],
    supports_iothread: true,
    supports_queues: true,
    ..PLAIN
};
