//! What is to differ of a guest's own device.

use crate::cell::{Aio, Attachment, Cache};
use crate::facts::Disk;

/// What is to differ from the disk as it is; what is not said stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct To {
    /// Driver.
    pub driver: Option<&'static str>,
    /// Cache mode.
    pub cache: Option<Cache>,
    /// AIO engine.
    pub aio: Option<Aio>,
    /// Whether it gets an I/O thread of its own.
    pub iothread: bool,
    /// Request queues.
    pub queues: Option<u32>,
    /// Whether discards are passed on from now on.
    pub discard: bool,
    /// Bytes of QEMU's cache of a qcow2 image's L2 tables.
    pub l2_cache: Option<u64>,
}

impl To {
    /// Both; where both say something else, the first.
    pub(super) fn and(self, other: &To) -> To {
        To {
            driver: self.driver.or(other.driver),
            cache: self.cache.or(other.cache),
            aio: self.aio.or(other.aio),
            iothread: self.iothread || other.iothread,
            queues: self.queues.or(other.queues),
            discard: self.discard || other.discard,
            l2_cache: self.l2_cache.or(other.l2_cache),
        }
    }

    /// The driver, where another one is asked for than the disk has.
    pub(super) fn new_driver(&self, disk: &Disk) -> Option<&'static str> {
        self.driver.filter(|driver| disk.driver.as_deref() != Some(*driver))
    }

    /// Whether a new I/O thread takes a new controller: virtio-scsi's one with a thread serves other disks, too.
    pub(super) fn shares_controller(&self, disk: &Disk) -> bool {
        self.iothread && disk.iothread == Some(true) && self.driver_after(disk) == Some("virtio-scsi")
    }

    /// The driver that the disk has afterwards.
    pub(super) fn driver_after<'a>(&self, disk: &'a Disk) -> Option<&'a str> {
        self.driver.or(disk.driver.as_deref())
    }
}

/// All settings of a disk of a study, without its driver.
impl From<&Attachment> for To {
    fn from(a: &Attachment) -> Self {
        To {
            driver: None,
            cache: Some(a.cache),
            aio: Some(a.aio),
            iothread: a.iothread,
            queues: a.options.queues,
            discard: a.options.discard,
            l2_cache: None,
        }
    }
}

/// What is to differ from the network device as it is; what is not said stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NicTo {
    /// Whether it becomes a paravirtual one, on a tap.
    pub virtio: bool,
    /// Whether it gets a tap on a bridge, with vhost, in place of a network of the user's own.
    pub tap: bool,
    /// Whether the kernel is to move the packets.
    pub vhost: bool,
    /// Queue pairs.
    pub queues: Option<u32>,
    /// Whether all offloads are left to their defaults.
    pub offloads: bool,
}

impl NicTo {
    /// Both; where both say something else, the first.
    pub(super) fn and(self, other: &NicTo) -> NicTo {
        NicTo {
            virtio: self.virtio || other.virtio,
            tap: self.tap || other.tap,
            vhost: self.vhost || other.vhost,
            queues: self.queues.or(other.queues),
            offloads: self.offloads || other.offloads,
        }
    }
}

/// What of a guest's own device a change sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sets {
    /// A disk.
    Disk(To),
    /// A network device.
    Nic(NicTo),
}
