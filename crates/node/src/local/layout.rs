//! How a file system keeps an image: whether an overwrite goes to another place (copy on write), whether it is
//! compressed, in how many pieces it lies.
//!
//! Asked of file systems of this machine alone, by an allow-list: FUSE and NFS would hand the calls to their servers.
//! ext4, ZFS and all others are not asked either. A guest can cut its image into millions of pieces, and the kernel
//! holds locks of the file while it counts them, so that the guest's own writes wait. So the count is made in windows
//! of [`WINDOW`], no more than [`WINDOWS`] of them, and ends after [`LIMIT`]. `FIEMAP_FLAG_SYNC` is never set: it waits
//! for write-back (Linux, fs/btrfs/fiemap.c, `btrfs_fiemap`).

use std::fs::File;
use std::time::{Duration, Instant};

use rustix::fs::{IFlags, fgetxattr, fstatfs, ioctl_getflags};

use crate::node::opened::{CowFilesystem, Extents, FileLayout};

/// What one call looks at: 16,384 extents of 4 KiB at most.
const WINDOW: u64 = 64 << 20;
/// Windows of one file, spread over it; a file of as many is counted whole.
const WINDOWS: u64 = 16;
/// Longest time of the count, after which no further call is made.
const LIMIT: Duration = Duration::from_millis(20);
/// Extents of one call that are told, where the kernel's count alone does not do.
const TOLD: usize = 512;

/// `FS_IOC_FIEMAP` (include/uapi/linux/fs.h): `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: rustix::ioctl::Opcode = 0xC020_660B;
/// `FIEMAP_EXTENT_SHARED` (include/uapi/linux/fiemap.h): another file has the same blocks.
const SHARED: u32 = 0x2000;

/// `struct fiemap` with room for the extents that it tells (include/uapi/linux/fiemap.h;
/// Documentation/filesystems/fiemap.rst).
#[repr(C)]
struct Fiemap<const N: usize> {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [Extent; N],
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}
const _: () = assert!(size_of::<Fiemap<0>>() == 32 && size_of::<Extent>() == 56);

/// The layout of a file; `None` where its file system is none that copies, or does not say.
pub(crate) fn layout(file: &File, bytes: u64) -> Option<FileLayout> {
    let filesystem = known(fstatfs(file).ok()?.f_type as u32)?;
    let flags = ioctl_getflags(file).ok();
    let has = |flag: IFlags| flags.map(|flags| flags.contains(flag));
    let (copy_on_write, extents) = match filesystem {
        // Without room for extents btrfs counts them, and leaves out its search for shared ones, which is slow.
        CowFilesystem::Btrfs => (has(IFlags::NOCOW).map(|nocow| !nocow), counted::<0>(file, bytes)),
        CowFilesystem::Bcachefs => (bcachefs_nocow(file).map(|nocow| !nocow), counted::<0>(file, bytes)),
        // XFS copies shared blocks alone.
        CowFilesystem::Xfs => (Some(false), counted::<TOLD>(file, bytes)),
    };
    Some(FileLayout { filesystem, copy_on_write, compressed: has(IFlags::COMPRESSED) == Some(true), extents })
}

/// By `f_type` (include/uapi/linux/magic.h; of bcachefs fs/bcachefs/bcachefs_format.h, `BCACHEFS_STATFS_MAGIC`).
fn known(magic: u32) -> Option<CowFilesystem> {
    match magic {
        0x9123_683e => Some(CowFilesystem::Btrfs),
        0x5846_5342 => Some(CowFilesystem::Xfs),
        0xca45_1a4e => Some(CowFilesystem::Bcachefs),
        _ => None,
    }
}

/// Its option `nocow` as it is in force for a file (fs/bcachefs/xattr.c, `bch2_xattr_bcachefs_get_effective`).
fn bcachefs_nocow(file: &File) -> Option<bool> {
    let mut value = [0_u8; 8];
    let length = fgetxattr(file, "bcachefs_effective.nocow", &mut value).ok()?;
    match value.get(..length)?.trim_ascii_end() {
        b"0" => Some(false),
        b"1" => Some(true),
        _ => None,
    }
}

/// Counts the extents of a file, `N` of each window told; `None` where the first call fails.
fn counted<const N: usize>(file: &File, bytes: u64) -> Option<Extents> {
    let begun = Instant::now();
    let windows = bytes.div_ceil(WINDOW).clamp(1, WINDOWS);
    let step = bytes / windows;
    let mut found = Extents { seen: 0, of_bytes: 0, whole: bytes <= WINDOW * WINDOWS, shared: 0 };
    for n in 0..windows {
        if n > 0 && begun.elapsed() >= LIMIT {
            found.whole = false;
            break;
        }
        // Windows of a small file meet; those of a large one leave gaps.
        let start = n * step;
        let end = if n + 1 == windows { bytes } else { (n + 1) * step };
        let length = (end - start).min(WINDOW);
        let mut map = Fiemap::<N> {
            start,
            length,
            flags: 0,
            mapped_extents: 0,
            extent_count: N as u32,
            reserved: 0,
            extents: [Extent::default(); N],
        };
        // SAFETY: the call reads and fills one `struct fiemap` and no more extents behind it than its count, which is
        // that of the array; all are plain integers.
        let call = unsafe { rustix::ioctl::Updater::<FS_IOC_FIEMAP, Fiemap<N>>::new(&mut map) };
        // SAFETY: as above; the descriptor is open.
        let done = unsafe { rustix::ioctl::ioctl(file, call) };
        if done.is_err() {
            found.whole = false;
            if n == 0 {
                return None;
            }
            break;
        }
        let told = map.extents.iter().take(map.mapped_extents as usize);
        found.shared += told.filter(|extent| extent.flags & SHARED != 0).count() as u64;
        found.seen += u64::from(map.mapped_extents);
        // A full answer ends before its window does.
        let full = N > 0 && map.mapped_extents as usize == N;
        let last = map.extents.last().filter(|_| full);
        let seen = last.map_or(length, |l| l.logical.saturating_add(l.length).saturating_sub(start).min(length));
        found.whole &= seen == length;
        found.of_bytes += seen;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn only_file_systems_that_copy_are_asked() {
        assert_eq!(known(0x9123_683e), Some(CowFilesystem::Btrfs));
        // ext4, FUSE, NFS, ZFS.
        for other in [0xef53, 0x6573_5546, 0x6969, 0x2fc1_2fc1] {
            assert_eq!(known(other), None, "{other:x}");
        }
    }

    /// The layout of the call is the same on each file system that knows it.
    #[test]
    fn extents_of_a_file_are_counted_and_the_holes_are_not() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(WINDOW * 3).unwrap();
        for at in 0..5 {
            file.write_all_at(&[7; 4096], at * (1 << 20)).unwrap();
        }
        file.sync_all().unwrap();
        let begun = Instant::now();
        let (Some(told), Some(alone)) = (counted::<TOLD>(&file, WINDOW * 3), counted::<0>(&file, WINDOW * 3)) else {
            return; // a file system that does not tell
        };
        assert!(begun.elapsed() < Duration::from_secs(1));
        assert!((1..=5).contains(&told.seen) && told.whole && told.of_bytes == WINDOW * 3, "{told:?}");
        assert_eq!((alone.seen, alone.shared), (told.seen, 0));
        let large = counted::<0>(&file, WINDOW * (WINDOWS + 1));
        assert!(large.is_none_or(|found| !found.whole), "{large:?}");
    }
}
