//! A device that is passed through to a guest by VFIO (`--on vfio:ADDRESS`, [`crate::disks::places::vfio`]): neither
//! this host's kernel nor the hypervisor sees its requests. What it holds is not known here, so it is only read.
//!
//! Built from the documents of kernel and QEMU, and tested with made-up hosts: none with an IOMMU was there to run it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use vmio_look::require::Requirement;
use vmio_model::cell;
use vmio_node::Journal;

use super::{Demands, Error, Given, Prepared, Result, Space, State, Target, TargetCtx, Unfit, facts, scratch};
use crate::disks::Storage;
use crate::disks::places::{PassedThrough, PlaceBackend, Pool, vfio};

/// Entry `passthrough`.
pub struct Passthrough;

impl Target for Passthrough {
    fn name(&self) -> &'static str {
        "passthrough"
    }
    fn about(&self) -> &'static str {
        "an NVMe device that a guest gets whole, by VFIO; guests only, only read"
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    fn fits(&self, backend: &PlaceBackend) -> Result<(), Unfit> {
        backend.passed_through().map_or(Err(Unfit::NotPassedThrough), |_| Ok(()))
    }
    /// It is there already.
    fn space(&self, bytes: u64, _attachments: u64) -> Space {
        Space { taken_bytes: bytes, prepared_bytes: 0 }
    }
    fn can_be(&self, state: State, _native: bool, _pool: Option<&Pool>) -> Result<(), &'static str> {
        match state {
            State::WarmGuest => Ok(()),
            State::Fresh | State::Filled => Err("what the device holds is not seen from here: leave the state out"),
            State::WarmHost | State::WarmFlash => Err("no cache of the host lies below it"),
        }
    }
    fn guests_alone(&self) -> Option<&'static str> {
        Some(
            "a device that is passed through is gone from the host: measure it natively before it is bound to \
             vfio-pci, with --device",
        )
    }
    fn only_read(&self) -> Option<&'static str> {
        Some("vmio does not see what a device that is passed through holds, so it is only read")
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        match &ctx.device {
            Some(Given::PassedThrough(device)) => {
                let bytes = ctx.bytes.next_multiple_of(scratch::MIB);
                Ok(Box::new(Device { dir: device.dir(), device: device.clone(), bytes }))
            }
            _ => Err(Error::NotAsAsked { path: ctx.dir.clone(), reason: Unfit::NotPassedThrough.to_string() }),
        }
    }
}

struct Device {
    device: PassedThrough,
    dir: PathBuf,
    /// Bytes that cells go over.
    bytes: u64,
}

impl Prepared for Device {
    fn native(&self) -> &Path {
        &self.dir
    }
    /// Whether it is still VFIO's.
    fn intact(&self) -> Result<()> {
        let driver =
            fs::read_link(self.dir.join("driver")).map_err(scratch::io("look for the driver of", &self.dir))?;
        if driver.file_name().is_some_and(|name| name == vfio::DRIVER) {
            return Ok(());
        }
        let reason = format!("its driver is {} now, not {}", driver.display(), vfio::DRIVER);
        Err(Error::NotAsAsked { path: self.dir.clone(), reason })
    }
    fn attach(&mut self, _asked: &cell::Attachment) -> Result<Storage> {
        Ok(Storage::PassedThrough { address: self.device.address.clone() })
    }
    fn settle(&mut self, _asked: &cell::Attachment) -> Result<()> {
        Ok(())
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn demands(&self) -> Demands {
        Demands { logical_block_bytes: 4096, direct: true }
    }
    fn effective(&self) -> BTreeMap<String, String> {
        let PassedThrough { address, group } = &self.device;
        facts([("passed_through", address.clone()), ("iommu_group", group.clone())])
    }
    fn reset(&mut self, _state: State) -> Result<u64> {
        Ok(0)
    }
    fn remove(self: Box<Self>, _journal: &Journal) -> Result<()> {
        Ok(())
    }
}
