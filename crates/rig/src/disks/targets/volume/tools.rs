//! What the tools of each kind of pool are told, and what they say.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use vmio_node::{Exec, Local, Node, RBD_OWNER, Reader, Volume, VolumeKind, ZFS_OWNER};

use super::super::scratch::MIB;
use super::super::{Error, Result};
use crate::disks::places::tools::exec;
use crate::disks::places::{Pool, dm_device};

/// How long udev may take to show a new volume.
const APPEARS: Duration = Duration::from_secs(15);
/// How long a tool may take to make one.
const MAKE_LIMIT: Duration = Duration::from_secs(120);
/// How long ZFS may take to tell of blocks that were given back (`zfs_txg_timeout` is 5 s).
const ZFS_TELLS: Duration = Duration::from_secs(10);
/// Properties of a zvol. Data in ZFS's own cache (ARC) would be read from memory, by the native side
/// and by guests whatever their cache mode; and nobody's scheduled snapshots keep blocks that are given back.
const ZFS_ASKED: [(&str, &str); 2] = [("primarycache", "metadata"), ("com.sun:auto-snapshot", "false")];

/// The volume's name and mark.
pub fn mark(pool: &Pool, target: &str, cookie: &str) -> Volume {
    let (kind, parent, options) = match pool {
        Pool::Lvm { vg } | Pool::LvmThin { vg, .. } => (VolumeKind::Lvm, vg, vec![]),
        Pool::Zfs { dataset, .. } => (VolumeKind::Zvol, dataset, vec![]),
        Pool::Rbd { pool, cluster, .. } => (VolumeKind::Rbd, pool, cluster.options()),
    };
    Volume { kind, name: format!("{parent}/vmio-{cookie}-{target}"), tag: cookie.to_owned(), options }
}

/// The commands that make a volume, mark and all.
fn commands(pool: &Pool, volume: &Volume, bytes: u64) -> Vec<(&'static str, Vec<String>)> {
    let (_, name) = volume.name.rsplit_once('/').unwrap_or(("", &volume.name));
    let words = |words: &[&str]| words.iter().map(|&w| w.to_owned()).collect::<Vec<_>>();
    let size = format!("{bytes}b");
    match pool {
        Pool::Lvm { vg } => vec![(
            "lvcreate",
            words(&["--yes", "--wipesignatures", "y", "--size", &size, "--name", name, "--addtag", &volume.tag, vg]),
        )],
        Pool::LvmThin { vg, pool } => vec![(
            "lvcreate",
            words(&[
                "--yes",
                "--type",
                "thin",
                "--virtualsize",
                &size,
                "--thinpool",
                pool,
                "--name",
                name,
                "--addtag",
                &volume.tag,
                vg,
            ]),
        )],
        Pool::Zfs { block, .. } => {
            let mut args = words(&["create", "-s", "-o", &format!("{ZFS_OWNER}={}", volume.tag)]);
            args.extend(ZFS_ASKED.iter().flat_map(|(key, value)| ["-o".to_owned(), format!("{key}={value}")]));
            args.extend(block.iter().flat_map(|b| ["-b".to_owned(), b.clone()]));
            args.extend(words(&["-V", &bytes.to_string(), &volume.name]));
            vec![("zfs", args)]
        }
        Pool::Rbd { .. } => {
            let with = |args: &[&str]| volume.options.iter().cloned().chain(words(args)).collect();
            let mib = format!("{}M", bytes / MIB);
            vec![
                // Every kernel can map images with this feature alone.
                ("rbd", with(&["create", "--size", &mib, "--image-feature", "layering", &volume.name])),
                ("rbd", with(&["image-meta", "set", &volume.name, RBD_OWNER, &volume.tag])),
                ("rbd", with(&["map", &volume.name])),
            ]
        }
    }
}

/// Makes it, and gives the device node that it can be used by. The tools bear no mark: LVM that is
/// killed while it has a pool suspended leaves all guests on that pool hanging, and the daemon
/// that it may start (dmeventd) outlives the run.
pub fn make(pool: &Pool, volume: &Volume, bytes: u64) -> Result<PathBuf> {
    let node = &Local::new();
    let mut said = String::new();
    for (tool, args) in commands(pool, volume, bytes) {
        let command: Exec = exec(node, tool, args).limit(MAKE_LIMIT);
        let output = node.exec_gently(&command)?;
        if !output.ok() {
            let reason = format!("`{}` failed ({:?}): {}", command.shown(), output.end, output.err().trim());
            return Err(Error::NotAsAsked { path: volume.name.clone().into(), reason });
        }
        said = output.out();
    }
    let (parent, name) = volume.name.rsplit_once('/').unwrap_or(("", &volume.name));
    let until = Instant::now() + APPEARS;
    loop {
        let found = match pool {
            Pool::Lvm { .. } | Pool::LvmThin { .. } => dm_device(node, parent, name),
            Pool::Zfs { .. } => Some(format!("/dev/zvol/{}", volume.name)),
            // The kernel's device is what `rbd map` prints.
            Pool::Rbd { .. } => said.lines().last().map(|l| l.trim().to_owned()),
        };
        let found = found.map(PathBuf::from);
        if let Some(device) = found.filter(|d| matches!(node.stat(d), Ok(Some(s)) if s.is_block())) {
            return Ok(device.canonicalize().unwrap_or(device));
        }
        if Instant::now() >= until {
            let reason = "it was created, but its device node did not appear; is udev running?".to_owned();
            return Err(Error::NotAsAsked { path: volume.name.clone().into(), reason });
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Percent of a volume that take space in its pool; `None` where it is not told.
pub fn allocated(node: &dyn Node, pool: &Pool, volume: &Volume, bytes: u64) -> Result<Option<f64>> {
    let (tool, args, whole) = match pool {
        Pool::LvmThin { .. } => ("lvs", ["--noheadings", "-o", "data_percent", &volume.name].to_vec(), 100.0),
        Pool::Zfs { .. } => {
            ("zfs", ["get", "-Hp", "-o", "value", "referenced", &volume.name].to_vec(), bytes.max(1) as f64)
        }
        Pool::Lvm { .. } | Pool::Rbd { .. } => return Ok(None),
    };
    let command = exec(node, tool, args);
    let output = node.exec(&command)?;
    match output.out().trim().parse::<f64>() {
        Ok(used) if output.ok() => Ok(Some(used / whole * 100.0)),
        _ => Err(Error::NotAsAsked {
            path: volume.name.clone().into(),
            reason: format!(
                "`{}` ({:?}) does not say how much of it is allocated: {} {}",
                command.shown(),
                output.end,
                output.out().trim(),
                output.err().trim()
            ),
        }),
    }
}

/// Why it is not known that a volume has no blocks any more.
#[derive(Debug, thiserror::Error)]
pub enum NotEmpty {
    #[error("{percent:.1} % is still allocated after discarding everything")]
    Allocated { percent: f64 },
    #[error(transparent)]
    Untold(#[from] Error),
}

/// Sees to it that all blocks of a volume were given back, where its system tells.
pub fn emptied(node: &dyn Node, pool: &Pool, volume: &Volume, bytes: u64) -> Result<(), NotEmpty> {
    // The last chunk of a thin volume may be half outside of it; a zvol keeps its own tables, and
    // says so when its transaction group has been written.
    let (most, patience) = match pool {
        Pool::Zfs { .. } => (5.0, ZFS_TELLS),
        _ => (1.0, Duration::ZERO),
    };
    let until = Instant::now() + patience;
    loop {
        match allocated(node, pool, volume, bytes)? {
            Some(percent) if percent > most && Instant::now() >= until => {
                return Err(NotEmpty::Allocated { percent });
            }
            Some(percent) if percent > most => thread::sleep(Duration::from_millis(500)),
            _ => return Ok(()),
        }
    }
}

/// What a zvol was set up with, as ZFS says itself.
pub fn settings(node: &dyn Node, pool: &Pool, volume: &Volume) -> Result<BTreeMap<String, String>> {
    let Pool::Zfs { .. } = pool else { return Ok(BTreeMap::new()) };
    let command = exec(node, "zfs", ["get", "-Hp", "-o", "property,value", "volblocksize,primarycache", &volume.name]);
    let output = node.exec(&command)?;
    let wrong = |reason: String| Error::NotAsAsked { path: volume.name.clone().into(), reason };
    if !output.ok() {
        return Err(wrong(format!("`{}` failed ({:?}): {}", command.shown(), output.end, output.err().trim())));
    }
    let pair = |line: &str| line.split_once('\t').map(|(key, value)| (key.to_owned(), value.trim().to_owned()));
    let found: BTreeMap<String, String> = output.out().lines().filter_map(pair).collect();
    match found.get("primarycache").map(String::as_str) {
        Some("metadata") => Ok(found),
        other => Err(wrong(format!("asked for primarycache=metadata, ZFS says {other:?}"))),
    }
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
