//! The effective settings of a guest's disk: the keys under which what the hypervisor says, and what the guest sees
//! (`/sys/block/DISK`, Linux Documentation/ABI/stable/sysfs-block), go into results, and how a difference from what was
//! asked is told.

/// The hypervisor's name of the device on which the guest's disk is: `virtio-blk-pci`, `scsi-hd`.
pub const DEVICE: &str = "device";
/// Its name of the controller above it; absent where the device is its own.
pub const CONTROLLER: &str = "controller";
/// `true` when the nodes below go round the host's page cache.
pub const CACHE_DIRECT: &str = "cache.direct";
/// `true` when flushes of the guest are dropped.
pub const CACHE_NO_FLUSH: &str = "cache.no-flush";
/// `false` when each write is flushed before it is acknowledged.
pub const CACHE_WRITEBACK: &str = "cache.writeback";
/// What is done with zeroes: `off`, `on`, `unmap`.
pub const DETECT_ZEROES: &str = "detect-zeroes";
/// `threads`, `native` or `io_uring`; [`SERVERS`] where a server does the I/O.
pub const AIO: &str = "aio";
/// Ids of the I/O threads, with commas between; absent or empty where there is none.
pub const IOTHREAD: &str = "iothread";
/// Request queues of the device.
pub const QUEUES: &str = "num-queues";
/// `true` when the guest's doorbells go through ioeventfd; absent where the device has no choice.
pub const IOEVENTFD: &str = "ioeventfd";
/// Who serves the disk, where the hypervisor itself does not ([`crate::disks::Storage::server`]).
pub const SERVED_BY: &str = "served_by";
/// Said where the guest's memory is not private to its hypervisor, for all disks of that guest.
pub const MEMORY: &str = "guest memory";
/// `write back` or `write through`: whether the guest believes in a write cache that it must flush.
pub const GUEST_WRITE_CACHE: &str = "guest.write_cache";
/// Most bytes that the guest discards at once; 0 where it cannot.
pub const GUEST_DISCARD_BYTES: &str = "guest.discard_max_bytes";
/// Hardware queues that the guest's driver uses; no more than it has CPUs.
pub const GUEST_QUEUES: &str = "guest.queues";

/// Value of a setting that belongs to the server of the disk.
pub const SERVERS: &str = "server's";

/// The settings that are not in force as they were asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Differences(pub Vec<Difference>);

/// A setting that is not in force as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Difference {
    #[error("{key} is {found} instead of {wanted}")]
    Other { key: &'static str, found: String, wanted: String },
    #[error("{GUEST_DISCARD_BYTES} is {found}: the guest cannot discard")]
    NoDiscard { found: String },
}
