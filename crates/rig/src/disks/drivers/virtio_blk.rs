//! virtio-blk on PCI: the paravirtual disk that QEMU, libvirt and Proxmox recommend where few
//! disks must be fast (virtio 1.2 specification, section 5.2). The only one whose requests a
//! server outside of the hypervisor can take over (vhost-user-blk), and the first whose queues can
//! be spread over several I/O threads.

use super::{Driver, PLAIN};

/// Entry `virtio-blk`.
pub const VIRTIO_BLK: Driver = Driver {
    name: "virtio-blk",
    about: "paravirtual disk (virtio-blk-pci)",
    guest_modules: &["virtio_blk", "virtio_pci"],
    supports_iothread: true,
    supports_queues: true,
    maps_iothreads: true,
    fits_vhost_user: true,
    ..PLAIN
};
