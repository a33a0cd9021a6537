//! The trace instance that a watch needs: whether this host can give one, and on which disks. Looking changes nothing; tracefs is never mounted.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use vmio_look::require;
use vmio_node::linux::block::{DEEPEST, Device};
use vmio_node::{Reader, TRACE_PREFIX};

use super::events::Dev;

/// The events, all of the subsystem `block`.
pub(super) const EVENTS: [&str; 2] = ["block_bio_queue", "block_rq_complete"];
/// Where tracefs is found; the second is its place inside debugfs, on old systems.
pub(super) const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Why there is no watch. The run then goes on under its cap and says so, or not at all.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The host lacks something.
    #[error("the other guests' latency is not visible: {why}")]
    Unmet {
        /// What, and what to do.
        why: String,
    },
    /// A file of tracefs.
    #[error("the other guests' latency is not visible: cannot {what} {}: {source}", path.display())]
    File {
        /// `create`, `write`, `open`.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The change could not be journalled, so it was not made.
    #[error("no trace instance was created, because the journal failed: {0}")]
    Journal(String),
}

fn unmet<T>(why: impl Into<String>) -> Result<T, WatchError> {
    Err(WatchError::Unmet { why: why.into() })
}

/// What a watch needs, found without changing anything (for `doctor` too).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub(super) instance: PathBuf,
    pub(super) disks: Vec<Dev>,
}

impl Plan {
    /// Looks for tracefs and its block events, and for the disks below `devices` (partitions,
    /// device-mapper and md are followed down; those that have no disks here are left out unless none
    /// has). `cookie` is the owner's. tracefs is never mounted.
    pub fn new(reader: &dyn Reader, cookie: &str, devices: &[Dev]) -> Result<Self, WatchError> {
        if cookie.is_empty() || !cookie.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            return unmet(format!("the owner's cookie {cookie:?} cannot be part of a file name"));
        }
        let mut disks = Vec::new();
        let mut failed = None;
        for &device in devices {
            failed = disks_below(reader, device, 0, &mut disks).err().or(failed);
        }
        if disks.is_empty() {
            return Err(
                failed.unwrap_or_else(|| WatchError::Unmet { why: "no disk is known below the targets".into() })
            );
        }
        Ok(Self { instance: tracefs(reader)?.join("instances").join(format!("{TRACE_PREFIX}{cookie}")), disks })
    }

    /// The directory that [`super::watch::LatencyWatch::start`] makes.
    pub fn instance(&self) -> &Path {
        &self.instance
    }

    /// The disks that are watched.
    pub fn disks(&self) -> &[Dev] {
        &self.disks
    }
}

fn tracefs(reader: &dyn Reader) -> Result<PathBuf, WatchError> {
    let mut denied = false;
    for place in TRACEFS.map(Path::new) {
        match reader.list(place) {
            Ok(names) if names.iter().any(|n| n == "trace_pipe") => {
                if !names.iter().any(|n| n == "instances") {
                    return unmet("this kernel has no trace instances (they need Linux 3.10)");
                }
                for event in EVENTS {
                    if reader.list(&place.join("events/block").join(event)).is_err() {
                        return unmet(format!("this kernel has no tracepoint block:{event}"));
                    }
                }
                return Ok(place.into());
            }
            Err(vmio_node::Error::File { source, .. }) if source.kind() == ErrorKind::PermissionDenied => denied = true,
            _ => {}
        }
    }
    if denied {
        return unmet(require::mend_for(reader, "tracefs may be read by root only; run as root"));
    }
    unmet(format!("tracefs is not mounted; `mount -t tracefs nodev {}` does it", TRACEFS[0]))
}

fn disks_below(reader: &dyn Reader, dev: Dev, depth: u32, disks: &mut Vec<Dev>) -> Result<(), WatchError> {
    let device = Device::numbered(reader, dev);
    if depth > DEEPEST || !device.is_there() {
        return unmet(format!(
            "{}:{} is not a block device of this host (ZFS, NFS, btrfs and the like have none)",
            dev.0, dev.1
        ));
    }
    let number = |of: Device<'_>| -> Result<Dev, WatchError> {
        of.number().map_or_else(|| unmet(format!("{}/dev holds no device number", of.dir.display())), Ok)
    };
    if device.is_partition() {
        return disks_below(reader, number(device.inner(".."))?, depth + 1, disks);
    }
    let below = device.slaves();
    for name in &below {
        disks_below(reader, number(device.inner("slaves").inner(name))?, depth + 1, disks)?;
    }
    if below.is_empty() && !disks.contains(&dev) {
        disks.push(dev);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_node::fake::Fake;

    fn traced(fake: Fake, place: &str) -> Fake {
        EVENTS
            .iter()
            .fold(fake, |f, e| f.file(format!("{place}/events/block/{e}/enable"), "0"))
            .file(format!("{place}/trace_pipe"), "")
            .file(format!("{place}/instances/other/trace_pipe"), "")
    }

    fn disk() -> Fake {
        Fake::new("fake").file("/sys/dev/block/254:0/dev", "254:0\n")
    }

    fn why(result: Result<Plan, WatchError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn tracefs_is_found_in_both_places_and_its_lack_is_told() {
        let plan = Plan::new(&traced(disk(), TRACEFS[1]), "c1", &[(254, 0)]).unwrap();
        assert_eq!(plan.instance(), Path::new("/sys/kernel/debug/tracing/instances/vmio-c1"));
        let plan = Plan::new(&traced(traced(disk(), TRACEFS[1]), TRACEFS[0]), "c1", &[(254, 0)]).unwrap();
        assert_eq!(plan.instance(), Path::new("/sys/kernel/tracing/instances/vmio-c1"));
        assert!(why(Plan::new(&disk(), "c1", &[(254, 0)])).contains("mount -t tracefs nodev /sys/kernel/tracing"));
        let no_events = disk().file("/sys/kernel/tracing/trace_pipe", "").file("/sys/kernel/tracing/instances/x/y", "");
        assert!(why(Plan::new(&no_events, "c1", &[(254, 0)])).contains("no tracepoint block:block_bio_queue"));
        for cookie in ["", "../x", "a b"] {
            assert!(why(Plan::new(&traced(disk(), TRACEFS[0]), cookie, &[(254, 0)])).contains("cookie"));
        }
    }

    #[test]
    fn partitions_and_layers_lead_to_disks() {
        let fake = traced(disk(), TRACEFS[0])
            .file("/sys/dev/block/254:1/partition", "1\n")
            .file("/sys/dev/block/254:1/../dev", "254:0\n")
            .file("/sys/dev/block/8:0/dev", "8:0\n")
            .file("/sys/dev/block/253:0/slaves/vda1/dev", "254:1\n")
            .file("/sys/dev/block/253:0/slaves/sda/dev", "8:0\n")
            .file("/sys/dev/block/253:1/slaves/dm-0/dev", "253:0\n");
        let disks = |dev| Plan::new(&fake, "c", &[dev]).unwrap().disks().to_vec();
        assert_eq!(disks((254, 0)), [(254, 0)]);
        assert_eq!(disks((254, 1)), [(254, 0)]);
        assert_eq!(disks((253, 1)), [(8, 0), (254, 0)]);
        // As deep as for the run itself: twelve devices on each other.
        let deep = (1..12)
            .fold(traced(disk(), TRACEFS[0]).file("/sys/dev/block/9:0/slaves/vda/dev", "254:0\n"), |f, n| {
                f.file(format!("/sys/dev/block/9:{n}/slaves/x/dev"), format!("9:{}\n", n - 1))
            });
        assert_eq!(Plan::new(&deep, "c", &[(9, 11)]).unwrap().disks(), [(254, 0)]);
        // Every device is watched, and one that has no disk here does not hide another.
        let all = Plan::new(&fake, "c", &[(8, 0), (0, 45), (254, 1)]).unwrap();
        assert_eq!(all.disks(), [(8, 0), (254, 0)]);
        assert!(why(Plan::new(&fake, "c", &[])).contains("no disk is known"));
        assert!(why(Plan::new(&fake, "c", &[(0, 45)])).contains("0:45 is not a block device"));
    }
}
