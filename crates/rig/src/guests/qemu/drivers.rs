//! How QEMU makes a guest's disk of each driver: its QOM types, the values of `-device` (qemu(1)), and what may be asked
//! of it.
//!
//! Adding a driver: its row in [`ALL`].

use serde_json::{Value, json};
use vmio_model::cell::{Aio, Attachment, Cache, DetectZeroes};

use super::device::Device;
use super::unfit::Unfit;
use crate::disks::Storage;
use crate::disks::drivers::{AHCI, Driver, LSI53C895A, NVME, VIRTIO_BLK, VIRTIO_BLK_MMIO, VIRTIO_SCSI};
use crate::qemu::QemuVersion;

/// All that QEMU has.
pub const ALL: &[Model] = &[
    Model { controller: Some("lsi53c895a"), ..Model::of(&LSI53C895A, "scsi-hd") },
    Model { controller: Some("ich9-ahci"), ..Model::of(&AHCI, "ide-hd") },
    // Its controller always says that it has a volatile write cache. QEMU 7.1 began to take the guest's doorbells by
    // ioeventfd, on by default, and later turned it off by default; a stall at depth was seen with it
    // (docs/drivers.md). vmio turns it off wherever QEMU has the property, so that releases compare, and the effective
    // settings say so.
    Model {
        avoids_ioeventfd: true,
        shows_write_through: false,
        can_pause_guest: false,
        more: |device, disk| device.maybe("ioeventfd", (disk.qemu >= NVME_IOEVENTFD).then_some(false)),
        ..Model::of(&NVME, "nvme")
    },
    // Each disk has a controller of its own, as with Proxmox's "VirtIO SCSI single", since queues and I/O thread belong
    // to the controller.
    Model {
        controller: Some("virtio-scsi-pci"),
        has_iothread: true,
        has_queues: true,
        more: |hba, disk| {
            hba.maybe("num_queues", disk.asked.options.queues).maybe("iothread", disk.iothreads.first().cloned())
        },
        ..Model::of(&VIRTIO_SCSI, "scsi-hd")
    },
    Model {
        vhost_user: Some("vhost-user-blk-pci"),
        has_iothread: true,
        has_queues: true,
        maps_iothreads: true,
        more: queues_and_threads,
        ..Model::of(&VIRTIO_BLK, "virtio-blk-pci")
    },
    // Without ioeventfd under emulation QEMU's own process serves its doorbell at once, and no I/O thread.
    Model {
        is_on_pci: false,
        has_queues: true,
        more: queues_and_threads,
        ..Model::of(&VIRTIO_BLK_MMIO, "virtio-blk-device")
    },
];

/// `VIRTIO_QUEUE_MAX`, less the two queues that virtio-scsi has beside those for requests.
const MOST_QUEUES: u32 = 1022;

/// The first QEMU whose nvme has the property `ioeventfd`.
const NVME_IOEVENTFD: QemuVersion = QemuVersion { major: 7, minor: 1 };
/// What spreads queues over several I/O threads, and since when.
const MAPPED: (&str, QemuVersion) = ("mapped_iothreads (iothread-vq-mapping)", QemuVersion { major: 9, minor: 0 });

/// A driver's disk in QEMU.
pub struct Model {
    /// The driver.
    pub driver: &'static Driver,
    /// QOM type of the disk.
    pub disk: &'static str,
    /// QOM type of its controller, where it has one of its own.
    pub controller: Option<&'static str>,
    /// QOM type of the device that leaves its requests to a vhost-user server, where there is one.
    pub vhost_user: Option<&'static str>,
    /// Whether it, or its controller, is on the PCI bus: there it has an address.
    pub is_on_pci: bool,
    /// Whether it can have an I/O thread.
    pub has_iothread: bool,
    /// Whether the number of its request queues can be chosen.
    has_queues: bool,
    /// Whether its queues can be spread over several I/O threads.
    maps_iothreads: bool,
    /// Whether the guest's doorbells must not go through ioeventfd.
    pub avoids_ioeventfd: bool,
    /// Whether the guest is told that there is no write cache where the mode has none. Else its
    /// flushes go on, beside writes that are flushed already.
    pub shows_write_through: bool,
    /// Whether QEMU would pause the guest when a write of its finds no space (`werror=enospc`, the default): it answers
    /// nothing then, and waits for somebody who makes space.
    can_pause_guest: bool,
    /// What its controller has besides, or where there is none it itself.
    more: fn(Device, &Disk<'_>) -> Device,
}

/// One disk of a guest.
#[derive(Debug, Clone, Copy)]
pub struct Disk<'a> {
    /// Id of the device in QEMU; the ids of controllers derive from it.
    pub id: &'a str,
    /// Node name of the block back end (`-blockdev node-name=`).
    pub node: &'a str,
    /// Serial number by which the guest finds the disk; at most 20 characters.
    pub serial: &'a str,
    /// Ids of its I/O thread objects: none, one, or as many as are mapped.
    pub iothreads: &'a [String],
    /// What is asked for.
    pub asked: &'a Attachment,
    /// The QEMU that will run it.
    pub qemu: QemuVersion,
}

impl Model {
    /// One on the PCI bus, without a controller of its own.
    const fn of(driver: &'static Driver, disk: &'static str) -> Self {
        Self {
            driver,
            disk,
            controller: None,
            vhost_user: None,
            is_on_pci: true,
            has_iothread: false,
            has_queues: false,
            maps_iothreads: false,
            avoids_ioeventfd: false,
            shows_write_through: true,
            can_pause_guest: true,
            more: |device, _| device,
        }
    }

    /// Whether a disk can be set up so, else why not and what to do.
    ///
    /// # Errors
    /// Why not.
    pub fn fits(&self, asked: &Attachment) -> Result<(), Unfit> {
        let driver = self.driver.name;
        let options = &asked.options;
        let having = |can: fn(&Model) -> bool| ALL.iter().filter(|model| can(model)).map(|m| m.driver.name).collect();
        if asked.iothread && !self.has_iothread {
            return Err(Unfit::NoIothread { driver, others: having(|m| m.has_iothread) });
        }
        if asked.aio == Aio::Native && !asked.cache.direct() {
            return Err(Unfit::NativeThroughCache);
        }
        match options.queues {
            Some(_) if !self.has_queues => {
                return Err(Unfit::NoQueues { driver, others: having(|m| m.has_queues) });
            }
            Some(asked) if !(1..=MOST_QUEUES).contains(&asked) => {
                return Err(Unfit::Queues { asked, most: MOST_QUEUES });
            }
            _ => {}
        }
        if let Some(n) = options.mapped_iothreads {
            if !self.maps_iothreads {
                return Err(Unfit::NoMappedIothreads { driver, others: having(|m| m.maps_iothreads) });
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

    /// Whether a disk that is set up so can lie on this storage, else why not and what to do. [`Model::fits`] comes
    /// first.
    ///
    /// # Errors
    /// Why not.
    pub fn fits_storage(&self, asked: &Attachment, storage: &Storage) -> Result<(), Unfit> {
        match storage {
            Storage::VhostUserBlk { .. } if self.driver.takes_vhost_user(asked) => Ok(()),
            Storage::VhostUserBlk { .. } if !self.driver.fits_vhost_user => {
                Err(Unfit::ServerOfOthers { driver: self.driver.name })
            }
            Storage::VhostUserBlk { .. } if asked.iothread || asked.options.mapped_iothreads.is_some() => {
                Err(Unfit::IdleIothread)
            }
            Storage::VhostUserBlk { .. } => Err(Unfit::ShownWriteCache(asked.cache)),
            Storage::Aoe { .. } => Err(Unfit::NoAoe),
            Storage::NvmeTcp { .. } => Err(Unfit::NoNvmeTcp),
            Storage::PassedThrough { .. } if self.driver.name != NVME.name => {
                Err(Unfit::DeviceOfItsOwn { driver: self.driver.name })
            }
            Storage::PassedThrough { .. } if asked.cache != Cache::None => Err(Unfit::NoCache(asked.cache)),
            Storage::PassedThrough { .. } if *asked != Attachment::new(NVME.name, Cache::None, Aio::Native) => {
                Err(Unfit::NoOptions)
            }
            _ => Ok(()),
        }
    }

    /// What `-device` needs for a disk that fits, in this order. The first one is on the bus: the controller where
    /// there is one, else the disk. `share-rw`: the same storage may be attached several times, once for each driver.
    pub fn devices(&self, disk: &Disk<'_>) -> Vec<Device> {
        let id = format!("{}-hba", disk.id);
        let own = Device::new(self.disk, disk.id)
            .maybe("bus", self.controller.map(|_| format!("{id}.0")))
            .with("drive", disk.node)
            .with("serial", disk.serial)
            .with("share-rw", true)
            .with("write-cache", if disk.asked.cache.write_cache() { "on" } else { "off" })
            .maybe("werror", self.can_pause_guest.then_some("report"));
        match self.controller {
            Some(controller) => vec![(self.more)(Device::new(controller, id), disk), own],
            None => vec![(self.more)(own, disk)],
        }
    }
}

/// Queues, and who serves them.
fn queues_and_threads(device: Device, disk: &Disk<'_>) -> Device {
    let mapped = disk.asked.options.mapped_iothreads.is_some();
    let mapping: Vec<Value> = disk.iothreads.iter().map(|io| json!({"iothread": io})).collect();
    let single = disk.iothreads.first().filter(|_| !mapped);
    device
        .maybe("num-queues", disk.asked.options.queues)
        .maybe("iothread", single.cloned())
        .maybe("iothread-vq-mapping", mapped.then_some(mapping))
}

/// The disk of the driver of that name; `None` where QEMU has none.
pub fn find(driver: &str) -> Option<&'static Model> {
    ALL.iter().find(|model| model.driver.name == driver)
}

/// What this set-up demands of QEMU's version, if anything: which setting, and since when. [`Model::fits`] comes
/// first.
pub fn needs(asked: &Attachment) -> Option<(&'static str, QemuVersion)> {
    asked.options.mapped_iothreads.map(|_| MAPPED)
}

#[cfg(test)]
#[path = "drivers_tests.rs"]
mod tests;
