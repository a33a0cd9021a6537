//! A Ceph RBD image. The native side uses the kernel's client (`rbd map`), a guest librbd: two clients
//! of the same cluster, so their share compares these too.

use super::{Prepared, Result, Target, TargetCtx, volume};
use crate::places::Ground;
use crate::require::Requirement;

/// Entry `rbd`.
pub struct Rbd;

impl Target for Rbd {
    fn name(&self) -> &'static str {
        "rbd"
    }
    fn about(&self) -> &'static str {
        "Ceph RBD image: natively mapped by the kernel, guests through librbd (--on rbd:POOL)"
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    fn fits(&self, ground: &Ground) -> std::result::Result<(), String> {
        volume::fits(self.name(), "rbd:POOL", ground)
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        volume::prepare(ctx, self.name())
    }
}
