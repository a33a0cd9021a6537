//! A raw file as a target, with or without blocks: what `sparse` and `preallocated` yield.

use std::collections::BTreeMap;
use std::path::Path;

use vmio_model::cell;
use vmio_node::Journal;

use super::scratch::{self, Scratch};
use super::{Demands, Prepared, Result, State};
use crate::disks::Storage;

/// A raw file that was prepared.
pub struct RawFile {
    scratch: Scratch,
    sparse: bool,
}

impl RawFile {
    /// With `sparse`, [`State::Fresh`] takes all blocks away; else every block always holds data.
    pub fn new(scratch: Scratch, sparse: bool) -> Self {
        Self { scratch, sparse }
    }
}

impl Prepared for RawFile {
    fn native(&self) -> &Path {
        &self.scratch.open
    }
    fn intact(&self) -> Result<()> {
        self.scratch.intact()
    }
    fn attach(&mut self, _asked: &cell::Attachment) -> Result<Storage> {
        Ok(Storage::File(self.scratch.open.clone()))
    }
    fn bytes(&self) -> u64 {
        self.scratch.bytes
    }
    fn demands(&self) -> Demands {
        Demands { logical_block_bytes: 4096, direct: true }
    }
    fn allocates(&self) -> bool {
        self.sparse
    }
    fn effective(&self) -> BTreeMap<String, String> {
        super::facts([("allocated_bytes", self.scratch.allocated().unwrap_or(0).to_string())])
    }
    fn reset(&mut self, state: State) -> Result<u64> {
        let wrote = if self.sparse && state == State::Fresh {
            self.scratch.punch().map(|()| 0)?
        } else {
            // Where all is written out already, only the holes of a guest's discard are.
            self.scratch.fill()?
        };
        self.scratch.forget_pages()?;
        Ok(wrote)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        scratch::remove(journal, self.scratch)
    }
}
