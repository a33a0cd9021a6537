//! Devices that a guest sees its disk by: what they are called. How a hypervisor makes one, and what may be asked of it
//! there, is its own affair (`guests/qemu/drivers.rs`).
//!
//! Adding a driver: a [`Driver`] here, its place in [`ALL`], and its row with each hypervisor that has it.

use vmio_model::cell::{Arch, Attachment};

pub mod effective;
#[cfg(test)]
pub(crate) mod example;
#[cfg(test)]
mod tests;

/// All drivers, in the order in which they are shown.
pub const ALL: &[&Driver] = &[&LSI53C895A, &AHCI, &NVME, &VIRTIO_SCSI, &VIRTIO_BLK, &VIRTIO_BLK_MMIO];

/// A device model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Driver {
    /// Name in studies and results: `virtio-blk`.
    pub name: &'static str,
    /// One line for help and docs.
    pub about: &'static str,
    /// Kernel modules that a Linux guest needs, names with underscores, as in `/proc/modules`
    /// (dependencies of these are the image's business).
    pub guest_modules: &'static [&'static str],
    /// Parameters with which vmio's own guests load a module: its name, then `NAME=VALUE`s.
    pub module_options: &'static [(&'static str, &'static str)],
    /// The processors of guests that can have it.
    pub arches: &'static [Arch],
    /// Whether its requests can be left to a vhost-user server.
    pub fits_vhost_user: bool,
}

/// One of which nothing is asked.
const PLAIN: Driver =
    Driver { name: "", about: "", guest_modules: &[], module_options: &[], arches: &Arch::ALL, fits_vhost_user: false };

/// The emulated LSI 53C895A SCSI controller: what the paper's guests used (shafer2010, section 3), and what guests
/// without virtio drivers still use. Every request goes through the SCSI script processor that the hypervisor emulates,
/// and all but a few commands run one after another, which is why depth does not help here.
pub const LSI53C895A: Driver = Driver {
    name: "lsi53c895a",
    about: "emulated SCSI controller (LSI 53C895A), as in the paper",
    guest_modules: &["sym53c8xx", "sd_mod"],
    // Else it takes no request for three seconds after it has reset the bus, which no emulated disk needs
    // (Linux: drivers/scsi/sym53c8xx_2/sym_hipd.c, `sym_xpt_async_bus_reset`).
    module_options: &[("sym53c8xx", "settle=0")],
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
    about: "paravirtual SCSI disk (scsi-hd on its own virtio-scsi-pci)",
    guest_modules: &["virtio_scsi", "virtio_pci", "sd_mod"],
    ..PLAIN
};

/// virtio-blk on PCI: the paravirtual disk that QEMU, libvirt and Proxmox recommend where few disks must be fast
/// (virtio 1.2 specification, section 5.2). The only one whose requests a server outside of the hypervisor can take
/// over (vhost-user-blk).
pub const VIRTIO_BLK: Driver = Driver {
    name: "virtio-blk",
    about: "paravirtual disk (virtio-blk-pci)",
    guest_modules: &["virtio_blk", "virtio_pci"],
    fits_vhost_user: true,
    ..PLAIN
};

/// virtio-blk without a bus (virtio 1.2 specification, section 4.2, "Virtio Over MMIO"): a range of memory and an
/// interrupt, as small ARM boards and microVMs have it. Its doorbell is a write that leaves the guest's processor.
pub const VIRTIO_BLK_MMIO: Driver = Driver {
    name: "virtio-blk-mmio",
    about: "the same without a bus, in guests of aarch64 (virtio-blk-device)",
    guest_modules: &["virtio_blk", "virtio_mmio"],
    arches: &[Arch::Aarch64],
    ..PLAIN
};

impl Driver {
    /// Whether a vhost-user server can take the requests of a disk that is set up so: its hypervisor sees none of them,
    /// so an I/O thread would idle, and the guest sees a write cache.
    pub fn takes_vhost_user(&self, asked: &Attachment) -> bool {
        let has_iothread = asked.iothread || asked.options.mapped_iothreads.is_some();
        self.fits_vhost_user && !has_iothread && asked.cache.write_cache()
    }
}

/// Those that guests of a processor can have.
pub fn of(arch: Arch) -> impl Iterator<Item = &'static Driver> {
    ALL.iter().copied().filter(move |driver| driver.arches.contains(&arch))
}

/// Parameters with which vmio's own guests load a module, blank where it has none.
pub fn module_options(module: &str) -> &'static str {
    let options = ALL.iter().flat_map(|driver| driver.module_options);
    options.copied().find(|(name, _)| *name == module).map_or("", |(_, options)| options)
}

/// The driver of that name.
pub fn find(name: &str) -> Option<&'static Driver> {
    ALL.iter().copied().find(|d| d.name == name)
}
