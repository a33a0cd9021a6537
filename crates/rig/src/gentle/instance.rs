//! The trace instance that a watch needs: whether this host can give one, and on which disks. Looking changes nothing; tracefs is never mounted.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use vmio_look::require::{AS_ROOT, Missing, Requirement};
use vmio_node::linux::block::{DEEPEST, Device};
use vmio_node::linux::mounts;
use vmio_node::{Reader, TRACE_PREFIX};

use super::events::Dev;

/// The events, all of the subsystem `block`.
pub(super) const EVENTS: [&str; 2] = ["block_bio_queue", "block_rq_complete"];
/// Where tracefs is found; the second is its place inside debugfs, on old systems.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// What the watch needs of a host, in the order in which to mend it.
pub const REQUIREMENTS: &[Requirement] = &[
    Requirement {
        name: "tracefs rights",
        why: WHY,
        fix: AS_ROOT,
        check: |n| match place(n) {
            Place::Denied => Err(Missing::RootOnly("tracefs")),
            _ => Ok(()),
        },
    },
    Requirement {
        name: "kernel tracing",
        why: WHY,
        fix: "boot a kernel from 4.1 with CONFIG_FTRACE=y",
        check: |n| match (place(n), mounts::has_filesystem(n, "tracefs")) {
            (Place::None, Some(false)) => Err(Missing::Unlike("this kernel has no tracefs".into())),
            _ => Ok(()),
        },
    },
    Requirement {
        name: "tracefs",
        why: WHY,
        fix: "mount -t tracefs nodev /sys/kernel/tracing",
        check: |n| match place(n) {
            Place::None => Err(Missing::Unlike("tracefs is not mounted".into())),
            _ => Ok(()),
        },
    },
    Requirement {
        name: "trace instances",
        why: WHY,
        fix: "boot a kernel from 3.10",
        check: |n| match place(n) {
            Place::At(_, names) if !names.iter().any(|n| n == "instances") => {
                Err(Missing::Unlike("this kernel has no trace instances".into()))
            }
            _ => Ok(()),
        },
    },
    Requirement {
        name: "block events",
        why: WHY,
        fix: "boot a kernel with CONFIG_BLK_DEV_IO_TRACE=y",
        check: |n| {
            let Place::At(place, _) = place(n) else { return Ok(()) };
            let missing = |event: &&&str| n.list(&place.join("events/block").join(event)).is_err();
            match EVENTS.iter().find(missing) {
                Some(event) => Err(Missing::Unlike(format!("this kernel has no tracepoint block:{event}"))),
                None => Ok(()),
            }
        },
    },
];

/// What [`REQUIREMENTS`] are for.
const WHY: &str = "shows the other guests' latency";

/// Where tracefs is.
enum Place {
    /// There, with the names in it.
    At(PathBuf, Vec<String>),
    /// It may be there: this user may not look.
    Denied,
    /// Nowhere.
    None,
}

fn place(reader: &dyn Reader) -> Place {
    let mut denied = false;
    for place in TRACEFS.map(Path::new) {
        match reader.list(place) {
            Ok(names) if names.iter().any(|n| n == "trace_pipe") => return Place::At(place.into(), names),
            Ok(_) => {}
            Err(e) => denied |= e.kind() == Some(ErrorKind::PermissionDenied),
        }
    }
    if denied { Place::Denied } else { Place::None }
}

/// Why the other guests' latency is not visible on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// What it lacks.
    pub why: String,
    /// What to do about it; `None` where nothing helps.
    pub mend: Option<String>,
}

impl std::fmt::Display for Unseen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)?;
        self.mend.iter().try_for_each(|mend| write!(f, "; {mend}"))
    }
}

/// Why there is no watch, which whoever shows it says. The run then goes on under its cap and says so, or not at
/// all.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The host lacks something.
    #[error("{0}")]
    Unmet(Unseen),
    /// A file of tracefs.
    #[error("cannot {what} {}: {source}", path.display())]
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
    Journal(vmio_node::Error),
    /// The other guests cannot be looked for.
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
}

fn unmet<T>(why: impl Into<String>) -> Result<T, Unseen> {
    Err(Unseen { why: why.into(), mend: None })
}

/// Whether the requests of others to the disks below `devices` can be seen here, before there is an owner: what a
/// plan says. Only looks.
///
/// # Errors
/// Why not.
pub fn visible(reader: &dyn Reader, devices: &[Dev]) -> Result<(), Unseen> {
    all_disks_below(reader, devices).and_then(|_| tracefs(reader)).map(drop)
}

/// What a watch needs, found without changing anything.
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
            let why = format!("the owner's cookie {cookie:?} cannot be part of a file name");
            return unmet(why).map_err(WatchError::Unmet);
        }
        let disks = all_disks_below(reader, devices).map_err(WatchError::Unmet)?;
        let tracefs = tracefs(reader).map_err(WatchError::Unmet)?;
        Ok(Self { instance: tracefs.join("instances").join(format!("{TRACE_PREFIX}{cookie}")), disks })
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

fn tracefs(reader: &dyn Reader) -> Result<PathBuf, Unseen> {
    for needed in REQUIREMENTS {
        if let Err(found) = (needed.check)(reader) {
            return Err(Unseen { why: found.to_string(), mend: Some(needed.fix_for(reader, &found)) });
        }
    }
    match place(reader) {
        Place::At(place, _) => Ok(place),
        Place::Denied | Place::None => unmet("tracefs was there a moment ago"),
    }
}

/// The disks below all of them.
fn all_disks_below(reader: &dyn Reader, devices: &[Dev]) -> Result<Vec<Dev>, Unseen> {
    let mut disks = Vec::new();
    let mut failed = None;
    for &device in devices {
        failed = disks_below(reader, device, 0, &mut disks).err().or(failed);
    }
    match (disks.is_empty(), failed) {
        (false, _) => Ok(disks),
        (true, Some(failed)) => Err(failed),
        (true, None) => unmet("no disk is known below the targets"),
    }
}

fn disks_below(reader: &dyn Reader, dev: Dev, depth: u32, disks: &mut Vec<Dev>) -> Result<(), Unseen> {
    let device = Device::numbered(reader, dev);
    if depth > DEEPEST || !device.is_there() {
        return unmet(format!(
            "{}:{} is not a block device of this host (ZFS, NFS, btrfs and the like have none)",
            dev.0, dev.1
        ));
    }
    let number = |of: Device<'_>| -> Result<Dev, Unseen> {
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

    /// What `doctor` lists, a plan says and a watch fails with is the same.
    #[test]
    fn each_lack_is_named_with_its_own_mend_and_no_more_than_once() {
        let lacks = |host: &Fake| {
            let unmet = vmio_look::require::unmet(host, REQUIREMENTS);
            unmet.iter().map(|(needed, _)| (needed.name, needed.fix)).collect::<Vec<_>>()
        };
        let at = TRACEFS[0];
        let mount = ("tracefs", "mount -t tracefs nodev /sys/kernel/tracing");
        assert_eq!(lacks(&disk()), [mount]);
        assert_eq!(lacks(&disk().file("/proc/filesystems", "nodev\ttracefs\n")), [mount]);
        // Nothing is left to mount there.
        let untraced = disk().file("/proc/filesystems", "nodev\tsysfs\n");
        assert_eq!(lacks(&untraced)[0].0, "kernel tracing");
        assert!(visible(&untraced, &[(254, 0)]).unwrap_err().mend.unwrap().contains("CONFIG_FTRACE=y"));
        let old = traced(disk(), at);
        old.remove(format!("{at}/instances/other/trace_pipe"));
        assert_eq!(lacks(&old), [("trace instances", "boot a kernel from 3.10")]);
        let eventless = traced(disk(), at);
        eventless.remove(format!("{at}/events/block/{}/enable", EVENTS[1]));
        assert_eq!(lacks(&eventless)[0].0, "block events");
        let said = visible(&eventless, &[(254, 0)]).unwrap_err();
        assert_eq!(said.why, "this kernel has no tracepoint block:block_rq_complete");
        assert_eq!(why(Plan::new(&eventless, "c", &[(254, 0)])), said.to_string());
        assert_eq!((lacks(&traced(disk(), at)), visible(&traced(disk(), at), &[(254, 0)])), (vec![], Ok(())));
        assert_eq!(visible(&traced(disk(), at), &[]).unwrap_err().mend, None);
        // Whoever shows it says what follows from it.
        assert!(!why(Plan::new(&disk(), "c", &[(254, 0)])).contains("latency"));
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
