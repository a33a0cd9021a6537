//! virtio-blk on PCI: the paravirtual disk that QEMU, libvirt and Proxmox recommend where few
//! disks must be fast (virtio 1.2 specification, section 5.2). The only one whose requests a
//! server outside of QEMU can take over (vhost-user-blk), and the first whose queues can be
//! spread over several I/O threads (`iothread-vq-mapping`, QEMU 9.0).

use serde_json::{Value, json};

use super::{Device, DeviceArgs, Disk, Driver, QemuVersion};

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
        let mapped = disk.asked.options.mapped_iothreads.is_some();
        let mapping: Vec<Value> = disk.iothreads.iter().map(|io| json!({"iothread": io})).collect();
        let single = disk.iothreads.first().filter(|_| !mapped);
        let device = disk
            .on(Device::new("virtio-blk-pci", disk.id))
            .maybe("num-queues", disk.asked.options.queues)
            .maybe("iothread", single.cloned())
            .maybe("iothread-vq-mapping", mapped.then_some(mapping));
        DeviceArgs { controller: None, device }
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
    fn supports_queues(&self) -> bool {
        true
    }
    fn maps_iothreads_since(&self) -> Option<QemuVersion> {
        Some(QemuVersion { major: 9, minor: 0 })
    }
    fn vhost_user_model(&self) -> Option<&'static str> {
        Some("vhost-user-blk-pci")
    }
}
