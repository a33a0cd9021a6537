//! Whether a block device may be overwritten. Three checks, each of which alone is enough to
//! refuse it:
//! - who uses it, one of its partitions or the disk that it is a partition of: mounts in any mount
//!   namespace, swap, holders (LVM, md, dm, bcache), loop devices over it, processes that have it open or
//!   mapped (a guest's QEMU does, and without O_EXCL), and whoever has it open exclusively. `--force` does not
//!   override these, nor a process that could not be examined;
//! - `wipefs --no-act` of util-linux, the known program for signatures at every place;
//! - vmio's own look for what older libblkid versions miss, hosts without wipefs would miss, and
//!   for images of virtual disks.

mod content;
mod family;
mod pin;
mod process;
mod users;

use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::linux::block::Device;
use crate::linux::process::namespace;
use crate::linux::{mounts, system};
use crate::{Node, Reader};

pub use self::pin::{Identity, Pinned, RemoteDevice, path_of};
use self::process::DeviceQuery;
use self::users::Users;

/// Result of these checks.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a device is not used. Says what failed, on what, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// `find`, `open`, …
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// It must not be written.
    #[error("{} is not used: {reason}", device.display())]
    Refused {
        /// The device.
        device: PathBuf,
        /// What it holds or who uses it, and what to do.
        reason: String,
    },
    /// From the node.
    #[error(transparent)]
    Node(#[from] crate::Error),
}

/// `1.5 GiB`, `768 MiB`.
pub fn gib(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    if bytes < GIB {
        format!("{} MiB", bytes.div_ceil(1 << 20))
    } else {
        format!("{:.1} GiB", bytes as f64 / GIB as f64)
    }
}

/// What `/proc/self/ns/pid` shows on the machine itself, not in a container (`PROC_PID_INIT_INO` of
/// linux/proc_ns.h): only there are all processes to be seen.
const ALL_PROCESSES: &str = "pid:[4026531836]";

/// Refuses a device that is used or whose users cannot all be seen, or that has content and is not forced. Returns
/// notes on one that may be overwritten.
///
/// # Errors
/// [`Error::Refused`] with all reasons.
pub fn check(node: &dyn Node, device: &Pinned, force: bool) -> Result<Vec<String>> {
    let refused = |reason: String| Error::Refused { device: device.asked.clone(), reason };
    let reader = node.reader();
    let mut used = uses(reader, &device.name)?;
    let Users { found, mut unseen, told } = processes(reader, device);
    for user in found {
        // Mounts of this namespace are seen twice.
        if !used.contains(&user) {
            used.push(user);
        }
    }
    if used.is_empty() && device.open(OFlags::RDONLY | OFlags::EXCL).is_err_and(|e| e.raw_os_error() == BUSY) {
        used.push("it is in use by the kernel or another program (exclusive open failed): end that use".into());
    }
    if !used.is_empty() {
        return Err(refused(format!("{}; --force does not change that", used.join("; "))));
    }
    if namespace(reader, "self", "pid")?.is_none_or(|ns| ns != Path::new(ALL_PROCESSES)) {
        unseen
            .insert(0, "vmio runs in a container (its own process namespace), where it sees no other processes".into());
    }
    if let Some(first) = unseen.first() {
        let more = unseen.len() - 1;
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        return Err(refused(format!(
            "it is unknown whether it is in use: {first}{more}; run vmio as root on the host itself; --force does \
             not change that"
        )));
    }
    if force {
        return Ok(told);
    }
    let mut held = partitions_held(reader, &device.name);
    held.extend(content::wipefs(node, &device.asked, &device.path())?);
    let open = |source| Error::Io { what: "look into", path: device.asked.clone(), source };
    held.extend(content::signatures(device.file()).map_err(open)?);
    held.sort();
    held.dedup();
    if held.is_empty() {
        return Ok(told);
    }
    Err(refused(format!(
        "it holds {}; all of it would be overwritten: name another device, or use --force if you are sure",
        held.join(", ")
    )))
}

/// Whether open(2) with `O_EXCL` finds an exclusive user.
const BUSY: Option<i32> = Some(Errno::BUSY.raw_os_error());

/// Processes and loop devices that use it, and mounts in any namespace.
fn processes(reader: &dyn Reader, device: &Pinned) -> Users {
    let members = family::members(reader, &device.name);
    let numbers = members.into_iter().map(|m| (m.number, m.name)).collect();
    users::users(Path::new("/proc"), &DeviceQuery { numbers, own: Some(device.descriptor()) })
}

fn partitions_held(reader: &dyn Reader, disk: &str) -> Vec<String> {
    let names = Device::whole(reader, disk).partitions();
    if names.is_empty() { vec![] } else { vec![format!("partitions ({})", names.join(", "))] }
}

/// Users of a device, its partitions or its disk, as the kernel reports them.
fn uses(reader: &dyn Reader, name: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    if Device::named(reader, name).is_read_only() {
        found.push("it is read-only".into());
    }
    let mounts = mounts::own(reader)?;
    let swaps = system::swaps_in_use(reader);
    for family::Member { name: member, device, number } in family::members(reader, name) {
        for mount in &mounts {
            if mount.dev == number || mount.source == format!("/dev/{member}") {
                found.push(format!("{member} is mounted on {}", mount.point.display()));
            }
        }
        for path in &swaps {
            let is_node = |path: &Path| matches!(reader.stat(path), Ok(Some(s)) if s.rdev == number && s.rdev.0 != 0);
            if path == Path::new(&format!("/dev/{member}")) || is_node(path) {
                found.push(format!("{member} is swap in use"));
            }
        }
        let holders = device.holders();
        if !holders.is_empty() {
            found.push(format!("{member} is held by {}", holders.join(", ")));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::fake::Tree;

    #[test]
    fn users_of_a_disk_are_named() {
        let tree = Tree::of(&[
            ("/proc/self/mountinfo", "22 1 8:2 / /srv rw - ext4 /dev/sda2 rw\n"),
            ("/proc/swaps", "Filename Type Size Used Priority\n/dev/sda3 partition 1 0 -2\n"),
            ("/sys/block/sda/dev", "8:0\n"),
            ("/sys/block/sda/ro", "0\n"),
            ("/sys/block/sda/sda1/partition", "1\n"),
            ("/sys/block/sda/sda1/dev", "8:1\n"),
            ("/sys/block/sda/sda1/holders/dm-0", ""),
            ("/sys/block/sda/sda2/partition", "2\n"),
            ("/sys/block/sda/sda2/dev", "8:2\n"),
            ("/sys/block/sda/sda3/partition", "3\n"),
            ("/sys/block/sda/sda3/dev", "8:3\n"),
            ("/sys/class/block/sda2/dev", "8:2\n"),
            ("/sys/block/sdb/dev", "8:16\n"),
            ("/sys/block/sdb/ro", "1\n"),
            ("/sys/block/sdc/dev", "8:32\n"),
            ("/sys/block/sdc/ro", "0\n"),
        ]);
        assert_eq!(
            uses(&tree, "sda").unwrap(),
            ["sda1 is held by dm-0", "sda2 is mounted on /srv", "sda3 is swap in use"]
        );
        assert_eq!(uses(&tree, "sda2").unwrap(), ["sda2 is mounted on /srv"], "a partition named directly");
        assert_eq!(uses(&tree, "sdb").unwrap(), ["it is read-only"]);
        assert_eq!(uses(&tree, "sdc").unwrap(), Vec::<String>::new());
        assert_eq!(partitions_held(&tree, "sda"), ["partitions (sda1, sda2, sda3)"]);
        assert!(partitions_held(&tree, "sdc").is_empty());
    }
}
