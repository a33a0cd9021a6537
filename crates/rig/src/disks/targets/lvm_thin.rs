//! A thin logical volume: a block is taken from the pool when it is first written, in chunks of the
//! pool's (lvmthin(7), 64 KiB and more), so that small first writes cost a chunk.

use vmio_look::require::Requirement;

use super::{Prepared, Result, Space, Target, TargetCtx, Unfit, volume};
use crate::disks::places::{PlaceBackend, Pool};

/// Entry `lvm-thin`.
pub struct LvmThin;

impl Target for LvmThin {
    fn name(&self) -> &'static str {
        "lvm-thin"
    }
    fn about(&self) -> &'static str {
        "thin logical volume: every write cell is a first write (--on lvmthin:VG/POOL)"
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    fn native_is_a_device(&self) -> bool {
        true
    }
    fn fits(&self, backend: &PlaceBackend) -> Result<(), Unfit> {
        volume::fits(self.name(), "lvmthin:VG/POOL", backend)
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
