//! A sparse raw file: nothing is allocated until it is written, which costs every first write
//! an allocation (shafer2010, section 3.2: the paper's most striking row).

use std::collections::BTreeMap;

use vmio_node::Journal;

use super::scratch::{self, Scratch};
use super::{Attachment, Demands, Prepared, Result, State, Target, TargetCtx};
use crate::require::Requirement;

/// Entry `sparse`.
pub struct Sparse;

impl Target for Sparse {
    fn name(&self) -> &'static str {
        "sparse"
    }
    fn about(&self) -> &'static str {
        "raw file without allocated blocks: every write cell is a first write"
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        let scratch = Scratch::make_with(ctx, self.name(), Scratch::punch)?;
        Ok(Box::new(SparseFile { attachment: Attachment::File(scratch.path.clone()), scratch }))
    }
}

struct SparseFile {
    attachment: Attachment,
    scratch: Scratch,
}

impl Prepared for SparseFile {
    fn attachment(&self) -> &Attachment {
        &self.attachment
    }
    fn bytes(&self) -> u64 {
        self.scratch.bytes
    }
    fn demands(&self) -> Demands {
        Demands { logical_block_bytes: 4096, direct: true }
    }
    fn allocates(&self) -> bool {
        true
    }
    fn effective(&self) -> BTreeMap<String, String> {
        super::facts([("allocated_bytes", self.scratch.allocated().unwrap_or(0).to_string())])
    }
    fn reset(&mut self, state: State) -> Result<u64> {
        let wrote = match state {
            State::Fresh => self.scratch.punch().map(|()| 0)?,
            State::Filled => self.scratch.fill()?,
        };
        self.scratch.forget_pages()?;
        Ok(wrote)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        scratch::remove(journal, self.scratch)
    }
}
