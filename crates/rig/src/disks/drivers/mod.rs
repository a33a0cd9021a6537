//! Devices that a guest sees its disk by: what they are called, and what a study may ask of each. How a hypervisor
//! makes one is its own affair (`guests/qemu/drivers.rs`).
//!
//! Adding a driver: a [`Driver`] here, its place in [`ALL`], and its row with each hypervisor that has it.

use vmio_model::cell::{Aio, Arch, Attachment, DetectZeroes};

use crate::disks::Storage;

pub mod effective;
#[cfg(test)]
mod example;
#[cfg(test)]
mod tests;
mod unfit;

pub use unfit::Unfit;

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

/// The emulated LSI 53C895A SCSI controller: what the paper's guests used (shafer2010, section 3), and what guests
/// without virtio drivers still use. Every request goes through the SCSI script processor that the hypervisor emulates,
/// and all but a few commands run one after another, which is why depth does not help here.
pub const LSI53C895A: Driver = Driver {
    name: "lsi53c895a",
    about: "emulated SCSI controller (LSI 53C895A), as in the paper",
    guest_modules: &["sym53c8xx", "sd_mod"],
    ..PLAIN
};

/// AHCI (SATA): what QEMU's q35 gives a disk when nobody says anything, and what installers without virtio drivers boot
/// from. 32 commands may be under way at once (AHCI 1.3.1, section 4.2), on one queue that the main loop serves.
pub const AHCI: Driver = Driver {
    name: "ahci",
    about: "emulated SATA disk (ide-hd on ich9-ahci)",
    guest_modules: &["ahci", "sd_mod"],
    ..PLAIN
};

/// NVMe (NVM Express base specification 1.4): what guests without virtio drivers but of this decade can use.
pub const NVME: Driver = Driver {
    name: "nvme",
    about: "emulated NVMe disk, doorbells without ioeventfd",
    guest_modules: &["nvme"],
    ..PLAIN
};

/// virtio-scsi on PCI: the paravirtual SCSI controller (virtio 1.2 specification, section 5.6), Proxmox's default.
pub const VIRTIO_SCSI: Driver = Driver {
    name: "virtio-scsi",
    about: "paravirtual SCSI disk (scsi-hd on a virtio-scsi-pci of its own)",
    guest_modules: &["virtio_scsi", "virtio_pci", "sd_mod"],
    supports_iothread: true,
    supports_queues: true,
    ..PLAIN
};

/// virtio-blk on PCI: the paravirtual disk that QEMU, libvirt and Proxmox recommend where few disks must be fast
/// (virtio 1.2 specification, section 5.2). The only one whose requests a server outside of the hypervisor can take
/// over (vhost-user-blk), and the first whose queues can be spread over several I/O threads.
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

/// virtio-blk without a bus (virtio 1.2 specification, section 4.2, "Virtio Over MMIO"): a range of memory and an
/// interrupt, as small ARM boards and microVMs have it. Its doorbell is a write that leaves the guest's processor,
/// which QEMU's own process serves at once: it has no ioeventfd under emulation, and so no I/O thread.
pub const VIRTIO_BLK_MMIO: Driver = Driver {
    name: "virtio-blk-mmio",
    about: "the same without a bus, in guests of aarch64 (virtio-blk-device)",
    guest_modules: &["virtio_blk", "virtio_mmio"],
    arches: &[Arch::Aarch64],
    supports_queues: true,
    ..PLAIN
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
