//! Requested settings of a guest's own device.

use crate::cell::{Aio, Attachment, Cache};
use crate::facts::Disk;

/// Requested settings of a disk; the others stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskChange {
    /// Driver.
    pub driver: Option<&'static str>,
    /// Cache mode.
    pub cache: Option<Cache>,
    /// AIO engine.
    pub aio: Option<Aio>,
    /// Whether it gets its own I/O thread.
    pub iothread: bool,
    /// Request queues.
    pub queues: Option<u32>,
    /// Whether discards are to be passed on.
    pub discard: bool,
    /// Bytes of QEMU's cache of a qcow2 image's L2 tables.
    pub l2_cache: Option<u64>,
    /// Bytes of the smallest unit that the guest is told the disk writes without reading first.
    pub physical_block: Option<u64>,
}

impl DiskChange {
    /// Both combined; where both set something, the first.
    pub(super) fn and(self, other: &DiskChange) -> DiskChange {
        DiskChange {
            driver: self.driver.or(other.driver),
            cache: self.cache.or(other.cache),
            aio: self.aio.or(other.aio),
            iothread: self.iothread || other.iothread,
            queues: self.queues.or(other.queues),
            discard: self.discard || other.discard,
            l2_cache: self.l2_cache.or(other.l2_cache),
            physical_block: self.physical_block.or(other.physical_block),
        }
    }

    /// The driver, if the disk has another one.
    pub(super) fn new_driver(&self, disk: &Disk) -> Option<&'static str> {
        self.driver.filter(|driver| disk.driver.as_deref() != Some(*driver))
    }

    /// Whether a new I/O thread requires a new controller: virtio-scsi's may serve other disks, too.
    pub(super) fn shares_controller(&self, disk: &Disk) -> bool {
        self.iothread && disk.iothread == Some(true) && self.driver_after(disk) == Some("virtio-scsi")
    }

    /// The driver after the change.
    pub(super) fn driver_after<'a>(&self, disk: &'a Disk) -> Option<&'a str> {
        self.driver.or(disk.driver.as_deref())
    }
}

/// All settings of a study's disk except its driver.
impl From<&Attachment> for DiskChange {
    fn from(a: &Attachment) -> Self {
        DiskChange {
            driver: None,
            cache: Some(a.cache),
            aio: Some(a.aio),
            iothread: a.iothread,
            queues: a.options.queues,
            discard: a.options.discard,
            l2_cache: None,
            physical_block: None,
        }
    }
}

/// Requested settings of a network device; the others stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NicChange {
    /// Whether it becomes virtio-net, on a tap.
    pub virtio: bool,
    /// Whether it gets a tap on a bridge, with vhost, in place of QEMU's user network.
    pub tap: bool,
    /// Whether the kernel is to move the packets.
    pub vhost: bool,
    /// Queue pairs.
    pub queues: Option<u32>,
    /// Whether all offloads get their defaults.
    pub offloads: bool,
}

impl NicChange {
    /// Both combined; where both set something, the first.
    pub(super) fn and(self, other: &NicChange) -> NicChange {
        NicChange {
            virtio: self.virtio || other.virtio,
            tap: self.tap || other.tap,
            vhost: self.vhost || other.vhost,
            queues: self.queues.or(other.queues),
            offloads: self.offloads || other.offloads,
        }
    }
}

/// Requested settings of a guest's own device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceChange {
    /// A disk.
    Disk(DiskChange),
    /// A network device.
    Nic(NicChange),
}
