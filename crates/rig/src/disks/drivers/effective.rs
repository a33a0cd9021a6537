//! The effective settings of a guest's disk: the keys under which what QEMU says (QMP `qom-get`,
//! `query-block`, `query-named-block-nodes`) and what the guest sees (`/sys/block/DISK`, Linux
//! Documentation/ABI/stable/sysfs-block) go into results, and their comparison with what was
//! asked. Not told by any QEMU, and so not compared: the `discard=` of a block node.

use std::collections::BTreeMap;

use vmio_model::cell::Attachment;

use super::{Driver, Unfit};

/// QOM type of the device on which the guest's disk is: `virtio-blk-pci`, `scsi-hd`.
pub const DEVICE: &str = "device";
/// QOM type of the controller above it; absent where the device is its own.
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
/// Who serves the disk, where QEMU itself does not ([`crate::disks::Storage::server`]).
pub const SERVED_BY: &str = "served_by";
/// Said where the guest's memory is not private to QEMU, for all disks of that guest.
pub const MEMORY: &str = "guest memory";
/// `write back` or `write through`: whether the guest believes in a write cache that it must flush.
pub const GUEST_WRITE_CACHE: &str = "guest.write_cache";
/// Most bytes that the guest discards at once; 0 where it cannot.
pub const GUEST_DISCARD_BYTES: &str = "guest.discard_max_bytes";
/// Hardware queues that the guest's driver uses; no more than it has CPUs.
pub const GUEST_QUEUES: &str = "guest.queues";

/// Value of a setting that belongs to the server of the disk.
pub const SERVERS: &str = "server's";

/// A setting that is not in force as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Difference {
    #[error("{key} is {found} instead of {wanted}")]
    Other { key: &'static str, found: String, wanted: String },
    #[error("{GUEST_DISCARD_BYTES} is {found}: the guest cannot discard")]
    NoDiscard { found: String },
}

/// Every difference between what was asked and what was found.
pub(super) fn compare<D: Driver + ?Sized>(
    driver: &D,
    asked: &Attachment,
    found: &BTreeMap<String, String>,
) -> Result<(), Unfit> {
    let (mut device, mut controller) = driver.qom_types();
    let served = found.contains_key(SERVED_BY);
    // QEMU has no block node of a disk on a vhost-user server: neither cache mode nor zeroes.
    let vhost_user = driver.vhost_user_model().filter(|model| found.get(DEVICE).is_some_and(|d| served && d == model));
    if let Some(model) = vhost_user {
        (device, controller) = (model, None);
    }
    let cache = asked.cache;
    let mut want = vec![(DEVICE, device.to_owned()), (AIO, asked.aio.to_string())];
    if served {
        want[1].1 = SERVERS.to_owned();
    }
    if vhost_user.is_none() {
        want.extend([
            (CACHE_DIRECT, cache.direct().to_string()),
            (CACHE_NO_FLUSH, cache.no_flush().to_string()),
            (CACHE_WRITEBACK, cache.write_cache().to_string()),
            (DETECT_ZEROES, asked.options.detect_zeroes.to_string()),
        ]);
    }
    want.extend(controller.map(|model| (CONTROLLER, model.to_owned())));
    want.extend(asked.options.queues.map(|n| (QUEUES, n.to_string())));
    let through = !cache.write_cache() && driver.shows_write_through();
    want.push((GUEST_WRITE_CACHE, if through { "write through" } else { "write back" }.to_owned()));
    if driver.avoids_ioeventfd() && found.contains_key(IOEVENTFD) {
        want.push((IOEVENTFD, false.to_string()));
    }

    let shown = |key: &str| found.get(key).map_or("nothing", String::as_str);
    let other = |(key, wanted): (&'static str, String)| Difference::Other { key, found: shown(key).to_owned(), wanted };
    let mut wrong: Vec<Difference> =
        want.into_iter().filter(|(key, value)| found.get(*key) != Some(value)).map(other).collect();
    let threads = shown(IOTHREAD).split(',').filter(|id| !id.is_empty() && *id != "nothing").count();
    let wanted = asked.options.mapped_iothreads.map_or(usize::from(asked.iothread), |n| n as usize);
    if threads != wanted {
        let words = match wanted {
            0 => "no I/O thread".to_owned(),
            1 => "an I/O thread".to_owned(),
            n => format!("{n} I/O threads"),
        };
        wrong.push(other((IOTHREAD, words)));
    }
    if asked.options.discard && shown(GUEST_DISCARD_BYTES).parse().unwrap_or(0u64) == 0 {
        wrong.push(Difference::NoDiscard { found: shown(GUEST_DISCARD_BYTES).to_owned() });
    }
    if wrong.is_empty() { Ok(()) } else { Err(Unfit::Differs(wrong)) }
}
