//! A thick logical volume: its blocks are there from the start.

use vmio_look::require::Requirement;

use super::{Prepared, Result, Target, TargetCtx, Unfit, volume};
use crate::disks::places::PlaceBackend;

/// Entry `lvm`.
pub struct Lvm;

impl Target for Lvm {
    fn name(&self) -> &'static str {
        "lvm"
    }
    fn about(&self) -> &'static str {
        "logical volume with every block written once beforehand (--on lvm:VG)"
    }
    fn written(&self) -> bool {
        true
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    fn native_is_a_device(&self) -> bool {
        true
    }
    fn fits(&self, backend: &PlaceBackend) -> Result<(), Unfit> {
        volume::fits(self.name(), "lvm:VG", backend)
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        volume::prepare(ctx, self.name())
    }
}
