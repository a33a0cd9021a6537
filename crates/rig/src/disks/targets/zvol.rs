//! A sparse ZFS volume (zfs-create(8), `-s`). ZFS writes every block anew wherever it was before, so
//! that thick ones would differ in the space that is set aside alone.

use vmio_look::require::Requirement;

use super::{Prepared, Result, Space, Target, TargetCtx, Unfit, volume};
use crate::disks::places::{PlaceBackend, Pool};

/// Entry `zvol`.
pub struct Zvol;

impl Target for Zvol {
    fn name(&self) -> &'static str {
        "zvol"
    }
    fn about(&self) -> &'static str {
        "sparse ZFS volume: every write cell is a first write (--on zfs:POOL[/DATASET])"
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    fn native_is_a_device(&self) -> bool {
        true
    }
    fn fits(&self, backend: &PlaceBackend) -> Result<(), Unfit> {
        volume::fits(self.name(), "zfs:POOL[/DATASET]", backend)
    }
    fn refilled(&self, _pool: Option<&Pool>) -> bool {
        true
    }
    fn space(&self, bytes: u64, _attachments: u64) -> Space {
        Space { taken_bytes: bytes, prepared_bytes: 0 }
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        volume::prepare(ctx, self.name())
    }
}
