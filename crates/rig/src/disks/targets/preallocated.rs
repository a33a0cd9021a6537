//! A raw file that was written out once, block by block. `fallocate` alone would leave extents
//! that are allocated but unwritten, and their first write would still change metadata.

use vmio_look::require::Requirement;

use super::raw_file::RawFile;
use super::scratch::Scratch;
use super::{Prepared, Result, Target, TargetCtx, elsewhere};

/// Entry `preallocated`.
pub struct Preallocated;

impl Target for Preallocated {
    fn name(&self) -> &'static str {
        "preallocated"
    }
    fn about(&self) -> &'static str {
        "raw file with every block written once beforehand"
    }
    fn written(&self) -> bool {
        true
    }
    fn elsewhere(&self) -> Option<elsewhere::Make> {
        Some(elsewhere::file)
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        let scratch = Scratch::make_with(ctx, self.name(), Scratch::fill)?;
        Ok(Box::new(RawFile::new(scratch, false)))
    }
}
