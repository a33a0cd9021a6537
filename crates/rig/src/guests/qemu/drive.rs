//! What a guest does on its disk, as QEMU counts it.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::{Value, json};
use vmio_node::qmp::{self, Qmp};

use super::super::{Drive, DriveCounts, Result};
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
    fn counts(&self) -> Result<Option<DriveCounts>> {
        let (command, guest) = ("query-blockstats", self.guest.as_str());
        let fail = |e: std::io::Error| qmp::Error {
            guest: guest.to_owned(),
            command: command.to_owned(),
            reason: format!("cannot connect: {e}"),
        };
        let stream = UnixStream::connect(&self.monitor).map_err(fail)?;
        let all = Qmp::over(guest, stream)?.execute(command, json!({}))?;
        Ok(counts_of(&all, &self.device))
    }
}

/// `disk0 of qemu`.
impl std::fmt::Display for QemuDrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.device, self.guest)
    }
}

/// What `query-blockstats` tells of a device, which it names by its id or, where the disk is a part of it (virtio), by
/// the path of that part in QEMU's object tree (qapi/block-core.json, `BlockDeviceStats`). Its times have been counted
/// since QEMU 0.15.
fn counts_of(all: &Value, device: &str) -> Option<DriveCounts> {
    let path = format!("{PERIPHERAL}{device}");
    let within = format!("{path}/");
    let own = |named: &str| named == device || named == path || named.starts_with(&within);
    let entry = all.as_array()?.iter().find(|entry| entry["qdev"].as_str().is_some_and(own))?;
    let stats = |name: &str| entry["stats"][name].as_u64();
    Some(DriveCounts {
        read_bytes: stats("rd_bytes")?,
        written_bytes: stats("wr_bytes")?,
        requests: stats("rd_operations")?.saturating_add(stats("wr_operations")?),
        nanoseconds: ["rd_total_time_ns", "wr_total_time_ns", "flush_total_time_ns"]
            .into_iter()
            .try_fold(0u64, |sum, name| Some(sum.saturating_add(stats(name)?)))?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_disk_is_known_by_its_id_or_its_path() {
        let stats = |bytes: u64| {
            json!({"rd_bytes": bytes, "wr_bytes": 7, "rd_operations": 3, "wr_operations": 2, "flush_operations": 1,
                   "rd_total_time_ns": 1000, "wr_total_time_ns": 200, "flush_total_time_ns": 30})
        };
        let all = json!([
            {"qdev": "disk10", "stats": stats(1)},
            {"stats": stats(2)},
            {"qdev": "/machine/peripheral/disk1/virtio-backend", "stats": stats(4096)},
            {"qdev": "disk2", "stats": stats(512)},
            {"qdev": "disk4", "stats": {"rd_bytes": 5}},
        ]);
        let of = |device: &str| counts_of(&all, device);
        let read = ["disk1", "disk2", "disk10", "disk3", "disk4"].map(|device| of(device).map(|c| c.read_bytes));
        assert_eq!(read, [Some(4096), Some(512), Some(1), None, None]);
        let counts = of("disk1").unwrap();
        assert_eq!((counts.written_bytes, counts.requests, counts.nanoseconds), (7, 5, 1230));
        assert_eq!(of("disk2").unwrap().since(&counts), None, "fewer bytes");
        let gone = QemuDrive { guest: "qemu".into(), monitor: "/nowhere/m".into(), device: "disk1".into() };
        assert!(gone.counts().unwrap_err().to_string().contains("query-blockstats: cannot connect"));
    }
}
