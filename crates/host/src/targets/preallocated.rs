//! A raw file that was written out once, block by block. `fallocate` alone would leave extents
//! that are allocated but unwritten, and their first write would still change metadata.

use std::collections::BTreeMap;

use vmio_node::Journal;

use super::scratch::{self, Scratch};
use super::{Attachment, Demands, Prepared, Result, State, Target, TargetCtx};
use crate::require::Requirement;

/// Entry `preallocated`.
pub struct Preallocated;

impl Target for Preallocated {
    fn name(&self) -> &'static str {
        "preallocated"
    }
    fn about(&self) -> &'static str {
        "raw file with every block written once beforehand"
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        let scratch = Scratch::make_with(ctx, self.name(), Scratch::fill)?;
        Ok(Box::new(WrittenFile { attachment: Attachment::File(scratch.path.clone()), scratch }))
    }
}

struct WrittenFile {
    attachment: Attachment,
    scratch: Scratch,
}

impl Prepared for WrittenFile {
    fn attachment(&self) -> &Attachment {
        &self.attachment
    }
    fn bytes(&self) -> u64 {
        self.scratch.bytes
    }
    fn demands(&self) -> Demands {
        Demands { logical_block_bytes: 4096, direct: true }
    }
    fn effective(&self) -> BTreeMap<String, String> {
        super::facts([("allocated_bytes", self.scratch.allocated().unwrap_or(0).to_string())])
    }
    fn reset(&mut self, _state: State) -> Result<u64> {
        // A guest's discard could have made holes: then, and only then, is anything written.
        let wrote = self.scratch.fill()?;
        self.scratch.forget_pages()?;
        Ok(wrote)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        scratch::remove(journal, self.scratch)
    }
}
