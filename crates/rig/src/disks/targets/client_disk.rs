//! A disk that a kernel has as the client of another host, a guest's kernel or this host's: what it is known by, and how
//! it is found.

use std::fmt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use vmio_node::linux::block::{self, Device};
use vmio_node::{Node, Reader};

use super::{Error, Result};

/// How long a disk may take to appear once a kernel is connected: a guest under emulation is slow.
const DISK_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// What a disk that a kernel has connected to is known by: a kernel names disks as they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known<'a> {
    /// Its serial number.
    Serial(&'a str),
    /// The NVMe subsystem that it is the disk of.
    Subsystem(&'a str),
    /// Its name below `/dev`, where that is of its place and not of when it came.
    Node(&'a str),
}

impl Known<'_> {
    /// Whether a device is that disk.
    pub fn matches(self, device: &Device<'_>) -> bool {
        match self {
            Self::Serial(serial) => device.serial().as_deref() == Some(serial),
            Self::Subsystem(nqn) => device.nvme_subsystem().as_deref() == Some(nqn),
            Self::Node(name) => device.node_name().ok().flatten().as_deref() == Some(name),
        }
    }
}

/// `with the serial number vmio-iscsi`.
impl fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serial(serial) => write!(f, "with the serial number {serial}"),
            Self::Subsystem(nqn) => write!(f, "of the subsystem {nqn}"),
            Self::Node(name) => f.write_str(name),
        }
    }
}

/// The device of a disk that a kernel has connected to, once it is there.
///
/// # Errors
/// [`Error::NotAsAsked`] where there is none within a limit.
pub fn find(node: &dyn Node, known: Known<'_>) -> Result<PathBuf> {
    let until = Instant::now() + DISK_LIMIT;
    loop {
        if let Some(name) = disk(node.reader(), known) {
            return Ok(block::node_path(&name));
        }
        if Instant::now() > until {
            let reason =
                format!("{} is connected, and after {} s has no disk {known}", node.name(), DISK_LIMIT.as_secs());
            return Err(Error::NotAsAsked { path: "/sys/block".into(), reason });
        }
        thread::sleep(POLL);
    }
}

/// Its name; not of a way to it that is no disk of its own.
fn disk(reader: &dyn Reader, known: Known<'_>) -> Option<String> {
    let is_it = |name: &String| {
        let device = Device::whole(reader, name);
        let is_there = !device.is_hidden() && device.size_bytes().is_some_and(|bytes| bytes > 0);
        is_there && known.matches(&device)
    };
    block::whole(reader).ok()?.into_iter().find(is_it)
}

#[cfg(test)]
mod tests {
    use vmio_node::fake::Fake;

    use super::*;

    #[test]
    fn a_disk_without_a_size_and_those_of_others_are_not_taken_for_it() {
        let other = Fake::new("guest")
            .file("/sys/block/sda/size", "2048\n")
            .file("/sys/block/sda/device/vpd_pg80", b"\0\x80\0\x06vmio-0")
            .file("/sys/block/sdb/size", "0\n")
            .file("/sys/block/sdb/device/vpd_pg80", b"\0\x80\0\x06vmio-x");
        assert_eq!(disk(&other, Known::Serial("vmio-x")), None);
        assert_eq!(disk(&other, Known::Serial("vmio-0")).as_deref(), Some("sda"));
    }

    #[test]
    fn a_disk_by_ata_over_ethernet_has_the_name_of_its_place() {
        let host = Fake::new("host")
            .file("/sys/block/etherd!e0.0/size", "2048\n")
            .file("/sys/block/etherd!e0.0/uevent", "MAJOR=152\nMINOR=0\nDEVNAME=etherd/e0.0\nDEVTYPE=disk\n")
            .file("/sys/block/vda/size", "2048\n");
        assert_eq!(disk(&host, Known::Node("etherd/e0.0")).as_deref(), Some("etherd!e0.0"));
        assert_eq!(disk(&host, Known::Node("etherd/e0.1")), None);
    }
}
