//! What a run does with a target that is there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vmio_model::cell;
use vmio_node::Journal;

use super::{Result, State, scratch};
use crate::disks::Storage;
use crate::nets::NetPath;

/// Storage for the next cell in the place of what a guest has open.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// What the hypervisor opens now, of the same size and by the same means.
    pub storage: Storage,
    /// Bytes that were written to make it.
    pub wrote_bytes: u64,
}

/// A target that is there.
pub trait Prepared: Send {
    /// What a native workload opens: a file or a block device of this machine. Where a guest gets
    /// what no native program could open (an image format, a server's socket), it is raw storage
    /// of the same kind beside or below it. A file is named by its descriptor
    /// ([`vmio_node::held::by_descriptor`]), since others may exchange what a path leads to.
    fn native(&self) -> &Path;
    /// The file or device of this machine that it lies on, whose disks are watched.
    fn lies_on(&self) -> &Path {
        self.native()
    }
    /// Whether what was made is still there, unchanged and under its name. Asked after it was made and
    /// before each cell.
    ///
    /// # Errors
    /// [`super::Error::Exchanged`].
    fn intact(&self) -> Result<()> {
        Ok(())
    }
    /// Lets programs of this machine mount it from here on, which what is open with O_EXCL refuses.
    fn share(&mut self) -> Result<()> {
        Ok(())
    }
    /// What a hypervisor opens for a disk that is asked for like this. Asked again it gives the
    /// same. A target that is served starts its server here.
    fn attach(&mut self, asked: &cell::Attachment) -> Result<Storage>;
    /// Where what such a disk holds is a file system: the file in it that a guest's workload works on, by a loop device
    /// of the guest's own. It is set up before each cell and taken off after it.
    fn inside(&self) -> Option<&'static str> {
        None
    }
    /// What a hypervisor opens for the disk that a guest of this name has beside such a disk, for a cache of its own.
    /// Asked again it gives the same.
    fn cache_disk(&mut self, _asked: &cell::Attachment, _guest: &str) -> Result<Option<PathBuf>> {
        Ok(None)
    }
    /// The device of this machine that the native side has beside [`Prepared::native`], for a cache over that.
    fn native_cache(&self) -> Option<&Path> {
        None
    }
    /// What is between the hypervisor and the native storage for such a disk, as read back: which
    /// server, which image. Empty where nothing is. Asked after [`Prepared::attach`].
    fn attached(&self, _asked: &cell::Attachment) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    /// The path to the host that serves it, where that is another one: its peer [`crate::nets::REMOTE`].
    fn link(&self) -> Option<&NetPath> {
        None
    }
    /// Processes that serve such a disk. Their CPU time is part of its price where they are this host's.
    fn servers(&self, _asked: &cell::Attachment) -> Vec<u32> {
        Vec::new()
    }
    /// Has this host's kernel, where it is the client, take note of how the link is set up now; before each cell.
    fn renew(&mut self) -> Result<()> {
        Ok(())
    }
    /// The process that serves it on the machine at the other end of the network `wire`, while one does.
    fn server_at_peer(&self) -> Option<u32> {
        None
    }
    /// After a cell whose disk went through this host's page cache: writes out what that still holds
    /// of what the hypervisor has open, which would else be written during the next cell.
    fn settle(&mut self, _asked: &cell::Attachment) -> Result<()> {
        scratch::flush(self.lies_on())
    }
    /// A cell wrote by such a disk, and its zeroes or discards may have given blocks back: they are not written out
    /// any more, and the next [`Prepared::reset`] or [`Prepared::exchange`] sees to it.
    fn mark_dirty(&mut self, _asked: &cell::Attachment) {}
    /// After a cell that failed: an error if what serves such a disk is gone.
    fn sound(&mut self, _asked: &cell::Attachment) -> Result<()> {
        Ok(())
    }
    /// Where the state that a cell needs cannot be had in place because a hypervisor has the
    /// image open: other storage for it. The guest lets go of the old one
    /// (`Guest::exchange`), then [`Prepared::exchanged`] is called. `None`
    /// where the guest goes on with what it has.
    fn exchange(&mut self, _asked: &cell::Attachment, _state: State) -> Result<Option<Exchange>> {
        Ok(None)
    }
    /// No hypervisor has the old storage open any more: takes it away.
    fn exchanged(&mut self, _asked: &cell::Attachment) -> Result<()> {
        Ok(())
    }
    /// Usable bytes, a multiple of 1 MiB.
    fn bytes(&self) -> u64;
    /// What whoever uses it must keep to.
    fn demands(&self) -> Demands;
    /// Whether writes after a reset to [`State::Fresh`] make the file system allocate
    /// (the probes' `first_write`).
    fn allocates(&self) -> bool {
        false
    }
    /// As [`Prepared::allocates`], for the native side: not where it has written-out storage of its own.
    fn native_allocates(&self) -> bool {
        self.allocates()
    }
    /// Settings as read back from the kernel, for the result (`direct_io`, `allocated_bytes`, …).
    fn effective(&self) -> BTreeMap<String, String>;
    /// Brings it into the state that a cell needs. Its own pages leave this host's page cache
    /// (of this file alone), so that no cell reads what another one left there. Returns the bytes
    /// that it wrote to do so.
    fn reset(&mut self, state: State) -> Result<u64>;
    /// Takes away all that `prepare` made, through the journal.
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()>;
}

/// What a target demands of those who use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demands {
    /// Logical block size in bytes: direct I/O must be aligned to it.
    pub logical_block_bytes: u32,
    /// Whether O_DIRECT works on it.
    pub direct: bool,
}
