//! Why QEMU cannot give a guest what is asked of it.

use vmio_model::cell::{Arch, Cache};

use super::super::Unfit as OfGuest;
use crate::nics;

/// The kinds of reasons; what they say names what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Unfit {
    #[error("vmio's own guests of {arch} under QEMU have the machine {own}, not {asked}")]
    Machine { arch: Arch, own: &'static str, asked: String },

    #[error("QEMU has no {0}")]
    NoDriver(String),
    #[error("{driver} has no I/O thread in QEMU: drop `iothread` or use {}", .others.join(" or "))]
    NoIothread { driver: &'static str, others: Vec<&'static str> },
    #[error("aio=native needs O_DIRECT: use cache=none or directsync, or aio=threads or io_uring")]
    NativeThroughCache,
    #[error("the number of {driver}'s queues cannot be chosen: drop `queues` or use {}", .others.join(" or "))]
    NoQueues { driver: &'static str, others: Vec<&'static str> },
    #[error("queues = {asked}: QEMU has 1 to {most} of them")]
    Queues { asked: u32, most: u32 },
    #[error(
        "vmio spreads no queues of {driver} over I/O threads: drop `mapped_iothreads` or use {}", .others.join(" or ")
    )]
    NoMappedIothreads { driver: &'static str, others: Vec<&'static str> },
    #[error("mapped_iothreads takes the place of the one I/O thread: drop `iothread`")]
    MappedAndOne,
    #[error("mapped_iothreads = {0} needs as many queues or more, or threads would idle: set `queues`")]
    MoreThreadsThanQueues(u32),
    #[error("detect_zeroes = unmap needs discard = true: QEMU refuses it else")]
    UnmapWithoutDiscard,

    #[error("a vhost-user-blk server takes only virtio-blk requests, not those of {driver}: use its NBD export")]
    ServerOfOthers { driver: &'static str },
    #[error("QEMU sees no request of a vhost-user-blk disk, so an I/O thread would idle: drop it")]
    IdleIothread,
    #[error(
        "cache={0}: QEMU cannot hide the write cache of a vhost-user-blk disk: use none or writeback, or an NBD export"
    )]
    ShownWriteCache(Cache),

    #[error("QEMU has no client of ATA over Ethernet: leave the driver out, and the guest reaches the disk by itself")]
    NoAoe,
    #[error("QEMU has no client of NVMe over TCP: leave the driver out, and the guest reaches the disk by itself")]
    NoNvmeTcp,
    #[error("a device that is passed through is an NVMe disk in the guest, not one of {driver}: use nvme")]
    DeviceOfItsOwn { driver: &'static str },
    #[error("cache={0}: QEMU sees no request of a device that is passed through: use none")]
    NoCache(Cache),
    #[error("QEMU sees no request of a device that is passed through: leave aio, iothread and all options out")]
    NoOptions,

    #[error(transparent)]
    Card(#[from] nics::Unfit),
    #[error(
        "vmio gives {name} no vhost: it has no doorbell that the host's kernel hears when QEMU emulates; drop `vhost` \
         or use virtio-net"
    )]
    NoVhost { name: &'static str },
    #[error("a ring of {name} has 256, 512 or 1024 descriptors, not {ring}")]
    Ring { name: &'static str, ring: u32 },
}

impl From<Unfit> for OfGuest {
    fn from(why: Unfit) -> OfGuest {
        OfGuest::OfHypervisor(why.to_string())
    }
}
