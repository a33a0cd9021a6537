//! A disk of this host's own kernel as the client of another host: what native workloads open, and hypervisors that have
//! it by this kernel. It is found by what it is, not by its name, and held open: until it is let go the kernel gives its
//! number to no other disk, so that nothing is written to one that took its name after the connection was lost.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use vmio_node::linux::block::Device;
use vmio_node::linux::device::{self, Number};
use vmio_node::{Node, Reader, held};

use super::client_disk::{self, Known};
use super::{Error, Result, scratch};

/// A disk that is held.
pub struct HostDisk {
    /// As it was found.
    node: PathBuf,
    /// As what programs open it.
    open: PathBuf,
    file: File,
    number: Number,
}

impl HostDisk {
    /// Waits for the disk that this kernel was connected to, which has so many bytes, and opens it.
    ///
    /// # Errors
    /// [`Error::NotAsAsked`] where none comes, or another one is there.
    pub fn hold(host: &dyn Node, known: Known<'_>, bytes: u64) -> Result<Self> {
        let node = client_disk::find(host, known)?;
        let file = File::open(&node).map_err(scratch::io("open", &node))?;
        let meta = file.metadata().map_err(scratch::io("look at", &node))?;
        let open = held::by_descriptor(&file).map_err(scratch::io("find the descriptor of", &node))?;
        let this = Self { node, open, file, number: device::of_dev(meta.rdev()) };
        is_it(host.reader(), this.number, known, bytes)
            .map_err(|reason| Error::NotAsAsked { path: this.node.clone(), reason })?;
        Ok(this)
    }

    /// Its node.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// What programs open.
    pub fn path(&self) -> &Path {
        &self.open
    }

    /// Whether this kernel is still connected to it.
    pub fn is_there(&self, reader: &dyn Reader, known: Known<'_>) -> bool {
        known.matches(&Device::numbered(reader, self.number))
    }

    /// Writes out what the page cache holds of it.
    pub fn flush(&self) -> Result<()> {
        self.file.sync_all().map_err(scratch::io("flush", &self.node))
    }

    /// The same, and takes its pages out of the page cache.
    pub fn forget_pages(&self) -> Result<()> {
        scratch::forget_pages(&self.file, &self.node)
    }
}

/// Whether the device of this number, which is open, is that disk: its node may have been another one's.
///
/// # Errors
/// What it is instead, in words.
fn is_it(reader: &dyn Reader, number: Number, known: Known<'_>, bytes: u64) -> Result<(), String> {
    let device = Device::numbered(reader, number);
    if !known.matches(&device) {
        return Err(format!("it is not the disk {known}"));
    }
    match device.size_bytes() {
        Some(found) if found == bytes => Ok(()),
        found => Err(format!("it has {} bytes, not {bytes}", found.unwrap_or(0))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::Fake;

    use super::*;

    #[test]
    fn what_is_open_is_the_disk_of_the_subsystem_or_refused() {
        let host = Fake::new("host")
            .file("/sys/dev/block/259:1/device/subsysnqn", "nqn.x:run\n")
            .file("/sys/dev/block/259:1/size", "2048\n")
            .file("/sys/dev/block/259:0/device/subsysnqn", "nqn.2014-08.org.nvmexpress:uuid:others\n")
            .file("/sys/dev/block/259:0/size", "2048\n")
            .file("/sys/dev/block/8:0/size", "2048\n");
        let known = Known::Subsystem("nqn.x:run");
        assert_eq!(is_it(&host, (259, 1), known, 1 << 20), Ok(()));
        let said = is_it(&host, (259, 1), known, 2 << 20).unwrap_err();
        assert_eq!(said, "it has 1048576 bytes, not 2097152");
        // Another NVMe disk that has the name now, one that is none, and one that is gone.
        for other in [(259, 0), (8, 0), (259, 2)] {
            let said = is_it(&host, other, known, 1 << 20).unwrap_err();
            assert_eq!(said, "it is not the disk of the subsystem nqn.x:run");
        }
    }
}
