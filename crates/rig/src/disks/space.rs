//! Free space, and where scratch files go.
//!
//! What is left is the smallest of: blocks that this user may still use on the file system
//! (statvfs(3); directories under a project quota of XFS or ext4 show that quota there), and
//! data blocks left in LVM thin pools below it, which the file system knows nothing of. User
//! quotas cannot be asked without knowing the file system's kind; a write that meets one ends
//! with a clear error ([`super::targets::Error::Full`]).

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use vmio_node::device_safety::gib;
use vmio_node::linux::{block, mounts};
use vmio_node::{Exec, Node, Reader};

use vmio_look::backing::Backing;
use vmio_look::managers::proxmox::storages;
use vmio_look::require;

/// Result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why files do not go there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system cannot be looked at.
    #[error("cannot look at the file system of {}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// Not enough space.
    #[error("not enough space on {}: {} are needed (20 % to spare included), {} are left ({of}); free some, use --on another place, or a study with a smaller size.target_mib", dir.display(), gib(*needed_bytes), gib(*free_bytes))]
    Space {
        /// Where.
        dir: PathBuf,
        /// What is left of what.
        of: String,
        /// Needed bytes, margin included.
        needed_bytes: u64,
        /// Left bytes.
        free_bytes: u64,
    },
    /// From the node.
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
}

/// What is left where scratch files go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// Bytes left: the smallest of file system and thin pools.
    pub free_bytes: u64,
    /// Which of them that is: `file system`, `thin pool vg0-pool-tpool`. Says so where a thin
    /// pool may lie below but could not be asked.
    pub of: String,
}

/// Bytes to be free for `bytes` of scratch files: 20 % more.
pub fn with_margin(bytes: u64) -> u64 {
    bytes + bytes / 5
}

/// What is left for files in `dir` of this machine.
///
/// # Errors
/// When the directory cannot be looked at.
pub fn left(node: &dyn Node, dir: &Path) -> Result<Space> {
    let fs = rustix::fs::statvfs(dir).map_err(|e| Error::Io { path: dir.into(), source: e.into() })?;
    let mut space = Space { free_bytes: fs.f_bavail.saturating_mul(fs.f_frsize), of: "file system".into() };
    for (name, pool) in pools_below(node, dir)? {
        match pool {
            Some(free) if free < space.free_bytes => {
                space = Space { free_bytes: free, of: format!("thin pool {name}") }
            }
            Some(_) => {}
            None => space.of = format!("{}; {name} may be thin and dmsetup cannot be asked", space.of),
        }
    }
    Ok(space)
}

/// Refuses `bytes` in `dir` unless they fit with 20 % to spare.
///
/// # Errors
/// [`Error::Space`] with the figures.
pub fn demand(node: &dyn Node, dir: &Path, bytes: u64) -> Result<Space> {
    let space = left(node, dir)?;
    let needed_bytes = with_margin(bytes);
    if space.free_bytes < needed_bytes {
        return Err(Error::Space { dir: dir.into(), of: space.of, needed_bytes, free_bytes: space.free_bytes });
    }
    Ok(space)
}

/// Device-mapper devices below a directory that are thin pools, with their free bytes; those
/// that could not be asked with `None`.
fn pools_below(node: &dyn Node, dir: &Path) -> Result<Vec<(String, Option<u64>)>> {
    let backing = Backing::of(node.reader(), dir)?;
    let dm_name = |kernel: &String| block::Device::whole(node.reader(), kernel).mapper_name();
    let names: Vec<String> = backing.way.iter().filter(|n| n.starts_with("dm-")).filter_map(dm_name).collect();
    if names.is_empty() {
        return Ok(vec![]);
    }
    let dmsetup = require::find_program(node.reader(), "dmsetup").unwrap_or_else(|| "dmsetup".into());
    let ask = |what: &str| {
        let cmd = Exec::new(dmsetup.display().to_string())
            .args([what, "--target", "thin-pool"])
            .limit(Duration::from_secs(10));
        node.exec(&cmd).ok().filter(|o| o.ok()).map(|o| o.out())
    };
    match (ask("status"), ask("table")) {
        (Some(status), Some(table)) => {
            let free = |name: String| pool_free(&name, &status, &table).map(|free| (name, Some(free)));
            Ok(names.into_iter().filter_map(free).collect())
        }
        _ => Ok(names.into_iter().take(1).map(|name| (name, None)).collect()),
    }
}

/// Free bytes of a thin pool from `dmsetup status` and `dmsetup table` (kernel document
/// device-mapper/thin-provisioning.rst): used/total data blocks, and the block size in sectors.
fn pool_free(name: &str, status: &str, table: &str) -> Option<u64> {
    let line = |text: &str| -> Option<Vec<String>> {
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.split_ascii_whitespace().map(String::from).collect())
    };
    let (status, table) = (line(status)?, line(table)?);
    // 0 SECTORS thin-pool TRANSACTION METADATA/TOTAL DATA/TOTAL …
    let (used, total) = status.get(5)?.split_once('/')?;
    // 0 SECTORS thin-pool METADATA-DEVICE DATA-DEVICE BLOCK-SECTORS …
    let sectors: u64 = table.get(5)?.parse().ok()?;
    Some(total.parse::<u64>().ok()?.saturating_sub(used.parse().ok()?) * sectors * block::SECTOR_BYTES)
}

/// Where guest images are on this machine: the first directory of libvirt or Proxmox that is
/// there and can be written by root, else `state`.
pub fn default_dir(reader: &dyn Reader, state: &Path) -> PathBuf {
    let usable = |dir: &PathBuf| {
        let there = matches!(reader.stat(dir), Ok(Some(s)) if s.is_directory());
        there && !read_only(reader, dir)
    };
    let mut dirs = places_of_images(reader, state);
    dirs.pop();
    dirs.into_iter().find(usable).unwrap_or_else(|| state.into())
}

/// The directories that [`default_dir`] may be, the first that can be used before the others; the last one is the
/// state's own.
pub fn places_of_images(reader: &dyn Reader, state: &Path) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    if require::root(reader).is_ok() {
        dirs.push(PathBuf::from("/var/lib/libvirt/images"));
        dirs.extend(storages::image_dirs(reader));
        dirs.push("/var/lib/vz/images".into());
    }
    dirs.push(state.into());
    dirs
}

/// Whether the file system of a directory is mounted read-only.
fn read_only(reader: &dyn Reader, dir: &Path) -> bool {
    let all = mounts::own(reader).unwrap_or_default();
    mounts::holding(&all, dir).is_some_and(|m| m.read_only)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_node::fake::Tree;

    const ROOT: (&str, &str) = ("/proc/self/status", "Name:\tvmio\nUid:\t0\t0\t0\t0\n");
    const CFG: &str = "dir: local\n\tpath /var/lib/vz\n\tcontent iso,vztmpl,backup\n\nlvmthin: local-lvm\n\tthinpool data\n\
                       \tcontent rootdir,images\n\ndir: fast\n\tpath /mnt/fast\n\tcontent images,rootdir\n\n\
                       dir: off\n\tdisable\n\tpath /mnt/off\n\ndir: plain\n\tpath /mnt/plain\n";

    #[test]
    fn thin_pools_are_read() {
        let status = include_str!("../../tests/fixtures/dmsetup-status-thin-pool.txt");
        let table = include_str!("../../tests/fixtures/dmsetup-table-thin-pool.txt");
        // 65536 blocks of 64 KiB, 61440 of them used.
        assert_eq!(pool_free("vg0-data-tpool", status, table), Some(4096 * 65_536));
        assert_eq!(pool_free("vg0-data", status, table), None, "a name that only begins alike");
        assert_eq!(pool_free("vg0-data-tpool", "No devices found\n", table), None);
    }

    #[test]
    fn scratch_goes_where_guest_images_are() {
        let state = Path::new("/var/lib/vmio");
        let mounts = (
            "/proc/self/mountinfo",
            "22 1 254:0 / / rw - ext4 /dev/vda rw\n23 1 8:1 / /mnt/fast ro,relatime - ext4 /dev/sda1 rw\n",
        );
        let dir = |files: &[(&str, &str)]| default_dir(&Tree::of(files), state).display().to_string();
        assert_eq!(dir(&[ROOT, mounts]), "/var/lib/vmio");
        assert_eq!(dir(&[ROOT, mounts, ("/var/lib/libvirt/images/a.raw", "")]), "/var/lib/libvirt/images");
        assert_eq!(dir(&[mounts, ("/var/lib/libvirt/images/a.raw", "")]), "/var/lib/vmio", "not root");
        let pve = ("/etc/pve/storage.cfg", CFG);
        assert_eq!(
            dir(&[ROOT, pve, mounts, ("/mnt/plain/images/x", ""), ("/var/lib/vz/images/x", "")]),
            "/mnt/plain/images"
        );
        assert_eq!(
            dir(&[ROOT, pve, mounts, ("/mnt/fast/images/x", ""), ("/var/lib/vz/images/x", "")]),
            "/var/lib/vz/images"
        );
    }

    #[test]
    fn a_fifth_is_left_to_spare() {
        assert_eq!(with_margin(1000), 1200);
        let node = vmio_node::Local::new();
        let here = std::env::temp_dir();
        let free = left(&node, &here).unwrap().free_bytes;
        let said = demand(&node, &here, free / 6 * 5 + (64 << 20)).unwrap_err().to_string();
        assert!(said.contains("iB are needed (20 % to spare included), ") && said.contains("--on"), "{said}");
        demand(&node, &here, free / 2).unwrap();
    }
}
