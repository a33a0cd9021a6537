//! A sparse raw file: nothing is allocated until it is written, which costs every first write
//! an allocation (shafer2010, section 3.2: the paper's most striking row).

use vmio_look::require::Requirement;

use super::raw_file::RawFile;
use super::scratch::Scratch;
use super::{Prepared, Result, Space, Target, TargetCtx};
use crate::disks::places::Pool;

/// Entry `sparse`.
pub struct Sparse;

impl Target for Sparse {
    fn name(&self) -> &'static str {
        "sparse"
    }
    fn about(&self) -> &'static str {
        "raw file without allocated blocks: every write cell is a first write"
    }
    fn written(&self) -> bool {
        true
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    fn refilled(&self, _pool: Option<&Pool>) -> bool {
        true
    }
    fn space(&self, bytes: u64, _attachments: u64) -> Space {
        Space { taken_bytes: bytes, prepared_bytes: 0 }
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        let scratch = Scratch::make_with(ctx, self.name(), Scratch::punch)?;
        Ok(Box::new(RawFile::new(scratch, true)))
    }
}
