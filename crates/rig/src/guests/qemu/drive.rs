//! What a guest reads of its disk, as QEMU counts it.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::{Value, json};
use vmio_node::qmp::{self, Qmp};

use super::super::{Drive, Result};
use super::args::PERIPHERAL;

/// A disk of a guest, as its QEMU counts it (QMP `query-blockstats`).
#[derive(Debug)]
pub struct QemuDrive {
    /// The guest's name in messages.
    pub guest: String,
    /// Socket of the monitor for whoever watches.
    pub monitor: PathBuf,
    /// Id of its device in QEMU.
    pub device: String,
}

impl Drive for QemuDrive {
    fn read_bytes(&self) -> Result<Option<u64>> {
        let (command, guest) = ("query-blockstats", self.guest.as_str());
        let fail = |e: std::io::Error| qmp::Error {
            guest: guest.to_owned(),
            command: command.to_owned(),
            reason: format!("cannot connect: {e}"),
        };
        let stream = UnixStream::connect(&self.monitor).map_err(fail)?;
        let all = Qmp::over(guest, stream)?.execute(command, json!({}))?;
        Ok(read_of(&all, &self.device))
    }
}

/// `disk0 of qemu`.
impl std::fmt::Display for QemuDrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.device, self.guest)
    }
}

/// What `query-blockstats` tells of a device, which it names by its id or, where the disk is a part of it (virtio), by
/// the path of that part in QEMU's object tree.
fn read_of(all: &Value, device: &str) -> Option<u64> {
    let path = format!("{PERIPHERAL}{device}");
    let within = format!("{path}/");
    let own = |named: &str| named == device || named == path || named.starts_with(&within);
    let entry = all.as_array()?.iter().find(|entry| entry["qdev"].as_str().is_some_and(own))?;
    entry["stats"]["rd_bytes"].as_u64()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_disk_is_known_by_its_id_or_its_path() {
        let all = json!([
            {"qdev": "disk10", "stats": {"rd_bytes": 1}},
            {"stats": {"rd_bytes": 2}},
            {"qdev": "/machine/peripheral/disk1/virtio-backend", "stats": {"rd_bytes": 4096}},
            {"qdev": "disk2", "stats": {"rd_bytes": 512}},
        ]);
        let read = ["disk1", "disk2", "disk10", "disk3"].map(|device| read_of(&all, device));
        assert_eq!(read, [Some(4096), Some(512), Some(1), None]);
        let gone = QemuDrive { guest: "qemu".into(), monitor: "/nowhere/m".into(), device: "disk1".into() };
        assert!(gone.read_bytes().unwrap_err().to_string().contains("query-blockstats: cannot connect"));
    }
}
