//! Devices that a guest sees its disk by: what they are called, and what a study may ask of each. How a hypervisor
//! makes one is its own affair (`guests/qemu/drivers.rs`).
//!
//! Adding a driver: a file with a [`Driver`], its line in [`ALL`], and its row with each hypervisor that has it.

use vmio_model::cell::{Aio, Arch, Attachment, DetectZeroes};

use crate::disks::Storage;

mod ahci;
pub mod effective;
mod lsi53c895a;
mod nvme;
#[cfg(test)]
mod tests;
mod unfit;
mod virtio_blk;
mod virtio_blk_mmio;
mod virtio_scsi;

pub use ahci::AHCI;
pub use lsi53c895a::LSI53C895A;
pub use nvme::NVME;
pub use unfit::Unfit;
pub use virtio_blk::VIRTIO_BLK;
pub use virtio_blk_mmio::VIRTIO_BLK_MMIO;
pub use virtio_scsi::VIRTIO_SCSI;

/// All drivers, in the order in which they are shown.
pub const ALL: &[&Driver] = &[&LSI53C895A, &AHCI, &NVME, &VIRTIO_SCSI, &VIRTIO_BLK, &VIRTIO_BLK_MMIO];

/// QEMU's `VIRTIO_QUEUE_MAX`, less the two queues that virtio-scsi has beside those for requests.
const MOST_QUEUES: u32 = 1022;

/// A device model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Driver {
    /// Name in studies and results: `virtio-blk`.
    pub name: &'static str,
    /// One line for help and docs.
    pub about: &'static str,
    /// Kernel modules that a Linux guest needs, names as in `modules.dep` (dependencies of
    /// these are the image's business).
    pub guest_modules: &'static [&'static str],
    /// The processors of guests that can have it.
    pub arches: &'static [Arch],
    /// Whether it can have an I/O thread.
    pub supports_iothread: bool,
    /// Whether the number of its request queues can be chosen.
    pub supports_queues: bool,
    /// Whether its queues can be spread over several I/O threads.
    pub maps_iothreads: bool,
    /// Whether its requests can be left to a vhost-user server.
    pub fits_vhost_user: bool,
}

/// One of which nothing is asked.
const PLAIN: Driver = Driver {
    name: "",
    about: "",
    guest_modules: &[],
    arches: &Arch::ALL,
    supports_iothread: false,
    supports_queues: false,
    maps_iothreads: false,
    fits_vhost_user: false,
};

impl Driver {
    /// Whether this set-up of the disk can be had with this driver, else why not and what to do.
    ///
    /// # Errors
    /// Why not.
    pub fn fits(&self, asked: &Attachment) -> Result<(), Unfit> {
        let driver = self.name;
        let options = &asked.options;
        let having = |can: fn(&Driver) -> bool| ALL.iter().filter(|d| can(d)).map(|d| d.name).collect();
        if asked.iothread && !self.supports_iothread {
            return Err(Unfit::NoIothread { driver, others: having(|d| d.supports_iothread) });
        }
        if asked.aio == Aio::Native && !asked.cache.direct() {
            return Err(Unfit::NativeThroughCache);
        }
        match options.queues {
            Some(_) if !self.supports_queues => {
                return Err(Unfit::NoQueues { driver, others: having(|d| d.supports_queues) });
            }
            Some(n) if !(1..=MOST_QUEUES).contains(&n) => return Err(Unfit::Queues(n)),
            _ => {}
        }
        if let Some(n) = options.mapped_iothreads {
            if !self.maps_iothreads {
                return Err(Unfit::NoMappedIothreads { driver, others: having(|d| d.maps_iothreads) });
            }
            if asked.iothread {
                return Err(Unfit::MappedAndOne);
            }
            if n == 0 || options.queues.is_none_or(|queues| queues < n) {
                return Err(Unfit::MoreThreadsThanQueues(n));
            }
        }
        if options.detect_zeroes == DetectZeroes::Unmap && !options.discard {
            return Err(Unfit::UnmapWithoutDiscard);
        }
        Ok(())
    }

    /// Whether this set-up of the disk can be had on this storage, else why not and what to do.
    /// [`Driver::fits`] comes first.
    ///
    /// # Errors
    /// Why not.
    pub fn fits_storage(&self, asked: &Attachment, storage: &Storage) -> Result<(), Unfit> {
        if !matches!(storage, Storage::VhostUserBlk { .. }) {
            return Ok(());
        }
        if !self.fits_vhost_user {
            return Err(Unfit::ServerOfOthers { driver: self.name });
        }
        if asked.iothread || asked.options.mapped_iothreads.is_some() {
            return Err(Unfit::IdleIothread);
        }
        if !asked.cache.write_cache() {
            return Err(Unfit::ShownWriteCache(asked.cache));
        }
        Ok(())
    }
}

/// Those that guests of a processor can have.
pub fn of(arch: Arch) -> impl Iterator<Item = &'static Driver> {
    ALL.iter().copied().filter(move |driver| driver.arches.contains(&arch))
}

/// The driver of that name.
pub fn find(name: &str) -> Option<&'static Driver> {
    ALL.iter().copied().find(|d| d.name == name)
}
