//! The host itself as the side that guests are compared with. It is held to a guest's cores and
//! memory by a control group that the workloads join ([`crate::limits`]).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use vmio_model::cell::{Kind, Shape};
use vmio_node::{Node, Reader};

use crate::limits;

use super::{Accelerator, Disks, Error, Guest, GuestKind, GuestSpec, Hypervisor, LaunchCtx, Result, Unfit};

/// Entry `native`.
pub struct Native;

impl GuestKind for Native {
    fn name(&self) -> &'static str {
        Kind::NATIVE.name
    }
    fn about(&self) -> &'static str {
        "the host itself, limited to the guest's cores and memory"
    }
    fn fits(&self, shape: &Shape, host: &dyn Reader) -> Result<(), Unfit> {
        if *shape != shape.natively() {
            return Err(Unfit::OfHost);
        }
        // Without a control group of its own it is measured all the same, and told; but not on other processors.
        limits::can_pin(host, &shape.pins).map_err(Unfit::Unheld)
    }
    fn launch(&self, ctx: &LaunchCtx<'_>, spec: &GuestSpec) -> Result<Box<dyn Guest>> {
        let disks = spec.disks.iter().filter_map(|d| Some((d.id.clone(), d.storage.path()?.to_owned()))).collect();
        Ok(Box::new(Host { name: spec.name.clone(), node: Arc::clone(&ctx.node), disks }))
    }
}

struct Host {
    name: String,
    node: Arc<dyn Node>,
    disks: BTreeMap<String, PathBuf>,
}

impl Guest for Host {
    fn node(&self) -> Arc<dyn Node> {
        Arc::clone(&self.node)
    }
    fn hypervisor(&self) -> Option<&Hypervisor> {
        None
    }
    fn disks(&self) -> Option<&dyn Disks> {
        Some(self)
    }
    fn accelerator(&self) -> Option<&Accelerator> {
        None
    }
    fn boot_seconds(&self) -> Option<f64> {
        None
    }
    fn give_up(&self, seen: &str) -> Error {
        let report = "it is the host itself".to_owned();
        Error::Down { guest: self.name.clone(), what: seen.to_owned(), report, last: None }
    }
    fn stop(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Disks for Host {
    fn path(&self, id: &str) -> Result<PathBuf> {
        self.disks.get(id).cloned().ok_or_else(|| Error::NoDisk {
            guest: self.name.clone(),
            disk: id.to_owned(),
            hint: String::new(),
        })
    }
    fn effective(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
        Ok(BTreeMap::new())
    }
}
