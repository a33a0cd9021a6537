//! Devices that a guest sees its disk by.
//!
//! Adding a driver: a file with a type that implements [`Driver`], and its line in [`ALL`].

use std::collections::BTreeMap;

use vmio_model::cell::{Aio, Arch, Attachment, DetectZeroes};

use crate::disks::Storage;
use crate::qemu::QemuVersion;

mod ahci;
mod device;
pub mod effective;
mod lsi53c895a;
mod nvme;
#[cfg(test)]
mod tests;
mod unfit;
mod virtio_blk;
mod virtio_blk_mmio;
mod virtio_scsi;

pub use device::Device;
pub use unfit::Unfit;

/// All drivers, in the order in which they are shown.
pub const ALL: &[&dyn Driver] = &[
    &lsi53c895a::Lsi53c895a,
    &ahci::Ahci,
    &nvme::Nvme,
    &virtio_scsi::VirtioScsi,
    &virtio_blk::VirtioBlk,
    &virtio_blk_mmio::VirtioBlkMmio,
];

/// QEMU's `VIRTIO_QUEUE_MAX`, less the two queues that virtio-scsi has beside those for requests.
const MOST_QUEUES: u32 = 1022;

/// A device model.
pub trait Driver: Sync {
    /// Name in studies and results: `virtio-blk`.
    fn name(&self) -> &'static str;
    /// One line for help and docs.
    fn about(&self) -> &'static str;
    /// What `-device` needs for a disk that fits. Where it is on the PCI bus, one
    /// device of these is: the controller where there is one, else the disk.
    fn device_args(&self, disk: &Disk<'_>) -> DeviceArgs;
    /// QOM type of the disk device, and of its controller where it has one.
    fn qom_types(&self) -> (&'static str, Option<&'static str>);
    /// Kernel modules that a Linux guest needs, names as in `modules.dep` (dependencies of
    /// these are the image's business).
    fn guest_modules(&self) -> &'static [&'static str];
    /// The processors of guests that can have it.
    fn arches(&self) -> &'static [Arch] {
        &Arch::ALL
    }
    /// Whether it, or its controller, is on the PCI bus: there it has an address.
    fn is_on_pci(&self) -> bool {
        true
    }
    /// Whether it can have an I/O thread.
    fn supports_iothread(&self) -> bool {
        false
    }
    /// Whether the number of its request queues can be chosen.
    fn supports_queues(&self) -> bool {
        false
    }
    /// The first QEMU that spreads its queues over several I/O threads; `None`: no QEMU does.
    fn maps_iothreads_since(&self) -> Option<QemuVersion> {
        None
    }
    /// QOM type of the device that leaves its requests to a vhost-user server, if there is one.
    fn vhost_user_model(&self) -> Option<&'static str> {
        None
    }
    /// Whether the guest's doorbells must not go through ioeventfd.
    fn avoids_ioeventfd(&self) -> bool {
        false
    }
    /// Whether the guest is told that there is no write cache where the mode has none. Else its
    /// flushes go on, beside writes that are flushed already.
    fn shows_write_through(&self) -> bool {
        true
    }

    /// Whether this set-up of the disk can be had with this driver, else why not and what to do.
    fn fits(&self, asked: &Attachment) -> Result<(), Unfit> {
        let driver = self.name();
        let options = &asked.options;
        let having = |can: fn(&dyn Driver) -> bool| ALL.iter().filter(|d| can(**d)).map(|d| d.name()).collect();
        if asked.iothread && !self.supports_iothread() {
            return Err(Unfit::NoIothread { driver, others: having(|d| d.supports_iothread()) });
        }
        if asked.aio == Aio::Native && !asked.cache.direct() {
            return Err(Unfit::NativeThroughCache);
        }
        match options.queues {
            Some(_) if !self.supports_queues() => {
                return Err(Unfit::NoQueues { driver, others: having(|d| d.supports_queues()) });
            }
            Some(n) if !(1..=MOST_QUEUES).contains(&n) => return Err(Unfit::Queues(n)),
            _ => {}
        }
        if let Some(n) = options.mapped_iothreads {
            if self.maps_iothreads_since().is_none() {
                let others = having(|d| d.maps_iothreads_since().is_some());
                return Err(Unfit::NoMappedIothreads { driver, others });
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
    fn fits_storage(&self, asked: &Attachment, storage: &Storage) -> Result<(), Unfit> {
        if !matches!(storage, Storage::VhostUserBlk { .. }) {
            return Ok(());
        }
        if self.vhost_user_model().is_none() {
            return Err(Unfit::ServerOfOthers { driver: self.name() });
        }
        if asked.iothread || asked.options.mapped_iothreads.is_some() {
            return Err(Unfit::IdleIothread);
        }
        if !asked.cache.write_cache() {
            return Err(Unfit::ShownWriteCache(asked.cache));
        }
        Ok(())
    }

    /// Whether this QEMU can do it, else why not and what to do. [`Driver::fits`] comes first.
    fn fits_qemu(&self, asked: &Attachment, qemu: QemuVersion) -> Result<(), Unfit> {
        self.needs_qemu(asked).map_or(Ok(()), |need| qemu.meets(need).map_err(Unfit::OldQemu))
    }

    /// What this set-up demands of QEMU's version, if anything: which setting, and since when.
    fn needs_qemu(&self, asked: &Attachment) -> Option<(&'static str, QemuVersion)> {
        let since = self.maps_iothreads_since()?;
        asked.options.mapped_iothreads.map(|_| ("mapped_iothreads (iothread-vq-mapping)", since))
    }

    /// Compares what QEMU and the guest say of a disk with what was asked ([`effective`] names
    /// the keys). `Err` lists every difference.
    fn readback(&self, asked: &Attachment, found: &BTreeMap<String, String>) -> Result<(), Unfit> {
        effective::compare(self, asked, found)
    }
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

impl Disk<'_> {
    /// Id of its controller.
    fn controller_id(&self) -> String {
        format!("{}-hba", self.id)
    }

    /// The device with what every disk on a block node has. `share-rw`: the same storage may be
    /// attached several times, once for each driver.
    fn on(&self, device: Device) -> Device {
        device
            .with("drive", self.node)
            .with("serial", self.serial)
            .with("share-rw", true)
            .with("write-cache", if self.asked.cache.write_cache() { "on" } else { "off" })
    }
}

/// Values for QEMU's `-device`, in this order.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceArgs {
    /// The controller that the disk hangs on.
    pub controller: Option<Device>,
    /// The disk.
    pub device: Device,
}

impl DeviceArgs {
    /// A disk of this model on the first bus of a controller.
    fn below(controller: Device, model: &'static str, disk: &Disk<'_>) -> Self {
        let device = disk.on(Device::new(model, disk.id).with("bus", format!("{}.0", disk.controller_id())));
        Self { controller: Some(controller), device }
    }
}

/// Those that guests of a processor can have.
pub fn of(arch: Arch) -> impl Iterator<Item = &'static dyn Driver> {
    ALL.iter().copied().filter(move |driver| driver.arches().contains(&arch))
}

/// The driver of that name.
pub fn find(name: &str) -> Option<&'static dyn Driver> {
    ALL.iter().copied().find(|d| d.name() == name)
}
