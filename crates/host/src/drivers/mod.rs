//! Devices that a guest sees its disk by.
//!
//! Adding a driver: a file with a type that implements [`Driver`], and its line in [`ALL`].

use std::collections::BTreeMap;

use vmio_model::setup;

mod lsi53c895a;
mod virtio_blk;

/// All drivers, in the order in which they are shown.
pub const ALL: &[&dyn Driver] = &[&lsi53c895a::Lsi53c895a, &virtio_blk::VirtioBlk];

/// Keys of the effective settings that the guest's side reads back from QEMU (QMP `qom-list`,
/// `query-block`, `query-named-block-nodes`) and that [`Driver::readback`] compares.
pub mod effective {
    /// QOM type of the device on which the guest's disk is: `virtio-blk-pci`, `scsi-hd`.
    pub const DEVICE: &str = "device";
    /// QOM type of the controller above it; absent where the device is its own.
    pub const CONTROLLER: &str = "controller";
    /// `true` when the node below goes round the host's page cache.
    pub const CACHE_DIRECT: &str = "cache.direct";
    /// `true` when flushes of the guest are dropped; no mode of vmio does that.
    pub const CACHE_NO_FLUSH: &str = "cache.no-flush";
    /// `threads`, `native` or `io_uring`.
    pub const AIO: &str = "aio";
    /// Id of the I/O thread; absent or empty where there is none.
    pub const IOTHREAD: &str = "iothread";
}

/// A device model.
pub trait Driver: Sync {
    /// Name in studies and results: `virtio-blk`.
    fn name(&self) -> &'static str;
    /// One line for help and docs.
    fn about(&self) -> &'static str;
    /// What `-device` needs for a disk.
    fn device_args(&self, disk: &Disk<'_>) -> DeviceArgs;
    /// QOM type of the disk device, and of its controller where it has one.
    fn qom_types(&self) -> (&'static str, Option<&'static str>);
    /// Kernel modules that a Linux guest needs, names as in `modules.dep` (dependencies of
    /// these are the image's business).
    fn guest_modules(&self) -> &'static [&'static str];
    /// Whether it can have an I/O thread.
    fn supports_iothread(&self) -> bool;
    /// Whether this set-up of the disk can be had with this driver, else why not.
    fn fits(&self, asked: &setup::Attachment) -> Result<(), String> {
        if asked.iothread && !self.supports_iothread() {
            return Err(format!("{} has no I/O thread in QEMU: drop `iothread` or use virtio-blk", self.name()));
        }
        if asked.aio == setup::Aio::Native && !asked.cache.direct() {
            return Err("aio=native needs O_DIRECT: use cache=none, or aio=threads or io_uring".into());
        }
        Ok(())
    }
    /// Compares what QEMU says it does with what was asked ([`effective`] names the keys).
    /// `Err` lists every difference.
    fn readback(&self, asked: &setup::Attachment, found: &BTreeMap<String, String>) -> Result<(), String> {
        let (device, controller) = self.qom_types();
        let mut want = vec![
            (effective::DEVICE, device.to_owned()),
            (effective::CACHE_DIRECT, asked.cache.direct().to_string()),
            (effective::CACHE_NO_FLUSH, asked.cache.no_flush().to_string()),
            (effective::AIO, asked.aio.to_string()),
        ];
        if let Some(controller) = controller {
            want.push((effective::CONTROLLER, controller.to_owned()));
        }
        let shown = |key: &str| found.get(key).map_or("nothing", String::as_str).to_owned();
        let mut wrong: Vec<String> = want
            .iter()
            .filter(|(key, value)| found.get(*key) != Some(value))
            .map(|(key, value)| format!("{key} is {} instead of {value}", shown(key)))
            .collect();
        if asked.iothread == found.get(effective::IOTHREAD).is_none_or(|id| id.is_empty()) {
            let word = if asked.iothread { "an I/O thread" } else { "no I/O thread" };
            wrong.push(format!("{} is {} instead of {word}", effective::IOTHREAD, shown(effective::IOTHREAD)));
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
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
    /// Id of the I/O thread object, where the disk has one.
    pub iothread: Option<&'a str>,
}

/// Values for QEMU's `-device`, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceArgs {
    /// The controller that the disk hangs on.
    pub controller: Option<String>,
    /// The disk.
    pub device: String,
}

/// The driver of that name.
pub fn find(name: &str) -> Option<&'static dyn Driver> {
    ALL.iter().copied().find(|d| d.name() == name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::setup::{Aio, Attachment, Cache};

    use super::*;

    fn asked(driver: &str, iothread: bool) -> Attachment {
        Attachment::new(driver, Cache::None, Aio::Native).iothread(iothread)
    }

    fn found(driver: &dyn Driver, iothread: bool) -> BTreeMap<String, String> {
        let (device, controller) = driver.qom_types();
        let mut map: BTreeMap<String, String> = [
            (effective::DEVICE, device),
            (effective::CACHE_DIRECT, "true"),
            (effective::CACHE_NO_FLUSH, "false"),
            (effective::AIO, "native"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
        map.extend(controller.map(|c| (effective::CONTROLLER.to_owned(), c.to_owned())));
        if iothread {
            map.insert(effective::IOTHREAD.into(), "io0".into());
        }
        map
    }

    #[test]
    fn contract_of_every_driver() {
        for (i, driver) in ALL.iter().enumerate() {
            let name = driver.name();
            assert!(!name.contains([' ', ',', '/', '+']), "{name}: cell keys use these characters");
            assert!(ALL[..i].iter().all(|d| d.name() != name), "{name} twice");
            assert!(!driver.about().is_empty() && !driver.guest_modules().is_empty(), "{name}");
            let io = driver.supports_iothread().then_some("io0");
            let args = driver.device_args(&Disk { id: "disk0", node: "node0", serial: "VMIO-1", iothread: io });
            let (device, controller) = driver.qom_types();
            assert_eq!(args.device.split(',').next(), Some(device), "{name}");
            assert_eq!(args.controller.as_deref().and_then(|c| c.split(',').next()), controller, "{name}");
            for part in ["id=disk0", "drive=node0", "serial=VMIO-1"] {
                assert!(args.device.split(',').any(|p| p == part), "{name}: {part} is missing in {}", args.device);
            }
            assert_eq!(args.device.contains("iothread=io0"), driver.supports_iothread(), "{name}");
            assert_eq!(driver.fits(&asked(name, true)).is_ok(), driver.supports_iothread(), "{name}");
            driver.fits(&asked(name, false)).unwrap();
            driver.readback(&asked(name, false), &found(*driver, false)).unwrap();
        }
    }

    #[test]
    fn readback_names_each_difference() {
        for driver in ALL {
            let name = driver.name();
            for key in [effective::DEVICE, effective::CACHE_DIRECT, effective::AIO, effective::CACHE_NO_FLUSH] {
                let mut map = found(*driver, false);
                map.insert(key.into(), "other".into());
                let reason = driver.readback(&asked(name, false), &map).unwrap_err();
                assert!(reason.contains(key) && reason.contains("other"), "{name}: {reason}");
            }
            let reason = driver.readback(&asked(name, true), &found(*driver, false)).unwrap_err();
            assert!(reason.contains("iothread"), "{name}: {reason}");
            let reason = driver.readback(&asked(name, false), &found(*driver, true)).unwrap_err();
            assert!(reason.contains("no I/O thread"), "{name}: {reason}");
        }
    }

    #[test]
    fn native_aio_needs_direct() {
        let bad = Attachment { cache: Cache::Writeback, ..asked("virtio-blk", false) };
        assert!(find("virtio-blk").unwrap().fits(&bad).unwrap_err().contains("O_DIRECT"));
    }
}
