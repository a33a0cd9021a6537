//! A disk that this kernel has by ATA over Ethernet (Linux drivers/block/aoe): it stays when its server is gone, until the
//! kernel is told to let go of it.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::journal::error::NotUndone;
use crate::machine;

/// Where the kernel is told so (aoechr.c, `MINOR_FLUSH`).
const FLUSH: &str = "/dev/etherd/flush";
/// How long it may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A disk by its place on the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AoeDisk {
    /// Its shelf.
    pub shelf: u16,
    /// Its slot there.
    pub slot: u8,
}

impl AoeDisk {
    /// Has the kernel let go of it.
    pub(crate) fn undo(self) -> Result<(), NotUndone> {
        let flush = Path::new(FLUSH);
        let ended = machine::within(LIMIT, move || self.let_go(flush));
        ended.unwrap_or_else(|| Err(ErrorKind::TimedOut.into())).map_err(NotUndone::cannot("write to", flush))
    }

    /// The kernel compares as many bytes as it is told: with the zero at its end the name is no other's beginning.
    fn let_go(self, flush: &Path) -> io::Result<()> {
        match OpenOptions::new().write(true).open(flush) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            file => file?.write_all(format!("{}\0", self.name()).as_bytes()),
        }
    }

    fn name(self) -> String {
        format!("e{}.{}", self.shelf, self.slot)
    }

    /// Its name below `/dev`: `etherd/e0.0`.
    pub fn node_name(self) -> String {
        format!("etherd/{}", self.name())
    }
}

/// `disk e0.0 by ATA over Ethernet`.
impl fmt::Display for AoeDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "disk {} by ATA over Ethernet", self.name())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    #[test]
    fn the_kernel_is_told_this_disk_alone_and_nothing_is_made_where_it_has_no_client() {
        let dir = tempfile::tempdir().unwrap();
        let flush = dir.path().join("flush");
        let disk = AoeDisk { shelf: 7, slot: 1 };
        disk.let_go(&flush).unwrap();
        assert!(!flush.exists());
        fs::write(&flush, "").unwrap();
        disk.let_go(&flush).unwrap();
        assert_eq!(fs::read(&flush).unwrap(), b"e7.1\0");
        assert_eq!(disk.node_name(), "etherd/e7.1");
    }
}
