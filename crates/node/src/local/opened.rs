//! Files that a process has open, for those who only look at them.
//!
//! A guest's command line and the headers of its images are written by whoever runs the guest, and may name
//! any file of this machine. What the guest's process has **open for reading** it may read, so to look at that
//! is to do nothing for it that it cannot do itself. Hence a file is found by its name, and looked at only
//! where it is, by device and inode, what the process has open.
//!
//! - Whatever is opened is first held by a descriptor that only names it (`O_PATH`: no device is opened by it,
//!   no pipe waited for, nothing consumed), compared, and seen to be a regular file or a block device of a file
//!   system that holds data. Only then it is opened for reading, by that very descriptor: a name that somebody
//!   exchanges meanwhile changes nothing.
//! - A descriptor of the process that is itself of that kind, or only for writing, proves nothing.
//! - It is opened with the rights of the process's user (file system ids of the thread, setfsuid(2)): a file
//!   server may refuse root. Where those no longer suffice (QEMU was given the descriptor, or gave its rights
//!   up since) with our own.
//! - No program is started but this one, once more, for what may hang ([`io_worker`](crate::io_worker)); nothing
//!   is written.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, fstatfs, openat, statx};
use rustix::process::{Gid, geteuid};

use crate::io_worker::on_own_thread;
use crate::linux::process::Status;
use crate::local::foreign::{self, path_only, shown};
use crate::local::layout;
use crate::local::look::{FileQuery, FileReply, look, no_answer};
use crate::machine;
use crate::node::opened::{At, FileIdentity, FileLayout, Opened, Peek};
use crate::{FileStat, Local};

/// Longest time for one of these calls: storage that does not answer would keep us for ever.
const LIMIT: Duration = Duration::from_secs(1);

/// What a path is, links followed.
pub(crate) fn identity(path: &Path) -> io::Result<FileIdentity> {
    match foreign::in_time(path, FileQuery::Identity)? {
        (FileReply::Identity(is), _) => Ok(is),
        other => Err(no_answer(&other.0)),
    }
}

/// The file of a process's descriptor.
pub(crate) fn opened(pid: u32, fd: u32) -> io::Result<Opened> {
    match look(FileQuery::Opened { pid, fd }, Path::new("/"), LIMIT)? {
        (FileReply::Opened(opened), _) => Ok(opened),
        other => Err(no_answer(&other.0)),
    }
}

/// Looks at a file: its beginning, at most `most` bytes, and what is cached of it. Where this kernel cannot count
/// that, it is held for a program that can, unless its file system is one that may hang.
pub(crate) fn peek(at: &At, most: usize) -> io::Result<Peek> {
    let (open, path) = match at {
        At::Open(opened) => (Some(*opened), PathBuf::from(format!("/proc/{}/fd/{}", opened.pid, opened.fd))),
        At::Path(path) => (None, path.clone()),
    };
    let (reply, start) = look(FileQuery::Peek { open, most }, &path, LIMIT)?;
    let FileReply::Peek { cached, may_hang, layout } = reply else { return Err(no_answer(&reply)) };
    let error = |path: &Path, source| crate::Error::File {
        node: "local".into(),
        what: "count the cached pages of",
        path: path.into(),
        source,
    };
    let uncounted = matches!(cached, Ok(None));
    if uncounted && !may_hang {
        let at = at.clone();
        let file =
            machine::within(LIMIT, move || self::open(&at)).unwrap_or_else(|| Err(ErrorKind::TimedOut.into()))?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        return Ok(Peek { start, cached_bytes: Ok(None), layout, path, _file: Some(file) });
    }
    let cached_bytes = match cached {
        Ok(None) => {
            let why = "this kernel has no cachestat(2), and no program is started for storage that may hang";
            Err(error(&path, io::Error::new(ErrorKind::Unsupported, why)))
        }
        Ok(bytes) => Ok(bytes),
        Err(fault) => Err(error(&path, fault.into())),
    };
    Ok(Peek { start, cached_bytes, layout, path, _file: None })
}

/// [`identity`], in this thread.
pub(crate) fn identity_here(path: &Path) -> io::Result<FileIdentity> {
    identity_of(path_only(path, OFlags::empty())?)
}

/// [`opened`], in this thread.
pub(crate) fn opened_here(pid: u32, fd: u32) -> io::Result<Opened> {
    let path = format!("/proc/{pid}/fd/{fd}");
    // The rights of the link are those of the descriptor (Linux, fs/proc/fd.c, `tid_fd_update_inode`).
    let readable = fs::symlink_metadata(&path).map(|m| std::os::unix::fs::MetadataExt::mode(&m) & 0o400 != 0)?;
    let at = openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    Ok(Opened { pid, fd, is: identity_of(at)?, readable })
}

/// First bytes of a file, and how many of its bytes are in the page cache.
pub(crate) struct FileStart {
    /// Its first bytes.
    pub start: Vec<u8>,
    /// Bytes of it in the page cache; `None` where this kernel cannot count them.
    pub cached: io::Result<Option<u64>>,
    /// Whether its file system is one whose server may not answer.
    pub may_hang: bool,
    /// How its file system keeps it, where that may copy on write.
    pub layout: Option<FileLayout>,
}

/// [`peek`], in this thread.
pub(crate) fn peek_here(at: &At, most: usize) -> io::Result<FileStart> {
    let file = open(at)?;
    let mut start = Vec::new();
    if most > 0 {
        (&file).take(most as u64).read_to_end(&mut start)?;
    }
    let metadata = file.metadata()?;
    let may_hang = metadata.is_file() && MAY_HANG.contains(&(fstatfs(&file)?.f_type as u32));
    let layout = if metadata.is_file() { layout::layout(&file, metadata.len()) } else { None };
    Ok(FileStart { start, cached: machine::cached_bytes(&file), may_hang, layout })
}

/// FUSE, NFS, SMB (three), Ceph, 9P (`f_type`, include/uapi/linux/magic.h).
const MAY_HANG: [u32; 7] = [0x6573_5546, 0x6969, 0x517b, 0xfe53_4d42, 0xff53_4d42, 0x00c3_6400, 0x0102_1997];

fn identity_of(at: OwnedFd) -> io::Result<FileIdentity> {
    // What is known here is enough: a server need not be asked how long a file is now.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let s = statx(&at, "", flags, StatxFlags::BASIC_STATS)?;
    Ok(FileIdentity {
        stat: FileStat {
            mode: u32::from(s.stx_mode),
            size: s.stx_size,
            allocated: s.stx_blocks * 512,
            dev: (s.stx_dev_major, s.stx_dev_minor),
            rdev: (s.stx_rdev_major, s.stx_rdev_minor),
        },
        inode: s.stx_ino,
        links: u64::from(s.stx_nlink),
    })
}

/// Opens a file for reading, if it may be opened.
fn open(at: &At) -> io::Result<File> {
    let refused = |why: String| Err(io::Error::new(ErrorKind::InvalidInput, why));
    let (held, pid) = match at {
        At::Path(path) => (path_only(path, OFlags::empty())?, None),
        At::Open(opened) => {
            let path = format!("/proc/{}/fd/{}", opened.pid, opened.fd);
            (openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?, Some(opened.pid))
        }
    };
    let is = identity_of(held.try_clone()?)?;
    match at {
        At::Open(opened) if !opened.readable => return refused("its process has it open, but not for reading".into()),
        At::Open(opened) if !opened.is.is(&is) => {
            return refused("its process now has another file open in its place".into());
        }
        _ => {}
    }
    if let Some(why) = no_data(&held, is.stat.mode)? {
        return refused(why);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let again = || Ok(File::from(openat(CWD, shown(&held), flags, Mode::empty())?));
    let theirs = pid.filter(|_| geteuid().is_root()).and_then(User::of).filter(|user| user.uid != 0);
    match theirs.map(|user| on_own_thread(|| user.does(again))) {
        Some(Ok(file)) => Ok(file),
        Some(Err(e)) if e.kind() != ErrorKind::PermissionDenied => Err(e),
        _ => again(),
    }
}

/// Why something holds no data of a disk; `None` where it does.
fn no_data(held: &OwnedFd, mode: u32) -> io::Result<Option<String>> {
    let what = match FileType::from_raw_mode(mode) {
        FileType::BlockDevice => return Ok(None),
        FileType::RegularFile => {
            let on = fstatfs(held.as_fd())?;
            // Both are 32 bits wide in the kernel; the type of the field is the platform's.
            return Ok(is_made_up(on.f_type as u32, on.f_blocks).then(|| {
                "it is in a pseudo file system of the kernel (proc, sysfs, tracing and so on), where reading can have \
                 effects: it was not opened"
                    .to_owned()
            }));
        }
        FileType::Fifo => "a pipe",
        FileType::CharacterDevice => "a character device",
        FileType::Socket => "a socket",
        FileType::Directory => "a directory",
        _ => "no file",
    };
    Ok(Some(format!("it is {what}, neither a regular file nor a block device: it was not opened")))
}

/// Whether a file system, by its number (`f_type`, include/uapi/linux/magic.h) and its size in blocks, holds
/// nothing but what the kernel says when it is asked. Such a one has no size; those in memory may have none.
fn is_made_up(magic: u32, blocks: u64) -> bool {
    /// tmpfs, ramfs, FUSE.
    const SIZE_MAY_BE_UNKNOWN: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x6573_5546];
    /// proc, sysfs, tracefs, debugfs, efivarfs, hugetlbfs, secretmem.
    const MADE_UP: [u32; 7] = [0x9fa0, 0x6265_6572, 0x7472_6163, 0x6462_6720, 0xde5e_81e4, 0x9584_58f6, 0x5345_434d];
    MADE_UP.contains(&magic) || (blocks == 0 && !SIZE_MAY_BE_UNKNOWN.contains(&magic))
}

/// The user of a process, as the kernel checks files for it.
#[derive(Debug, PartialEq, Eq)]
struct User {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl User {
    fn of(pid: u32) -> Option<Self> {
        Self::among(&Status::of(&Local::new(), pid).ok()?)
    }

    /// The fourth of each is for files.
    fn among(status: &Status) -> Option<Self> {
        let ([.., uid], [.., gid]) = (status.users()?, status.groups()?);
        Some(Self { uid, gid, groups: status.supplementary_groups()? })
    }

    /// Works with this user's rights on files. Only for a thread that ends afterwards, since its supplementary groups
    /// stay changed.
    fn does<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        unsafe extern "C" {
            fn setfsuid(uid: u32) -> i32;
            fn setfsgid(gid: u32) -> i32;
        }
        let groups: Vec<Gid> = self.groups.iter().map(|g| Gid::from_raw(*g)).collect();
        rustix::thread::set_thread_groups(&groups)?;
        // SAFETY: both take a number and change the ids of the calling thread alone (setfsuid(2)); with another
        // uid than 0 the thread also loses, until it is set back, the capabilities that override permissions.
        let own = unsafe { (setfsgid(self.gid), setfsuid(self.uid)) };
        // SAFETY: as above. An id that cannot be set (-1) changes nothing and tells what is in force.
        let now = unsafe { (setfsgid(u32::MAX), setfsuid(u32::MAX)) };
        let in_force = (now.0 as u32, now.1 as u32) == (self.gid, self.uid);
        let done = if in_force { work() } else { Err(ErrorKind::PermissionDenied.into()) };
        // SAFETY: as above; these were in force before.
        unsafe {
            setfsuid(own.1 as u32);
            setfsgid(own.0 as u32);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn own(file: &impl AsRawFd) -> Opened {
        opened(std::process::id(), file.as_raw_fd() as u32).unwrap()
    }

    #[test]
    fn open_file_survives_renames() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, vec![7; 100_000]).unwrap();
        let file = File::open(&path).unwrap();
        let open = own(&file);
        assert!(open.readable && open.is.is(&identity(&path).unwrap()) && open.is.links == 1);
        let peeked = peek(&At::Open(open), 4096).unwrap();
        assert_eq!(peeked.start, [7; 4096]);
        assert_eq!(fs::metadata(&peeked.path).unwrap().len(), 100_000, "reached as long as it is held");
        fs::write(dir.path().join("b"), "another").unwrap();
        fs::rename(dir.path().join("b"), &path).unwrap();
        assert!(!own(&file).is.is(&identity(&path).unwrap()), "the name is another file's now");
        assert_eq!(own(&file).is.links, 0);
        assert_eq!(peek(&At::Open(open), 1).unwrap().start, [7]);
        // Another file behind the same number is not taken for it.
        let other = File::open(&path).unwrap();
        let taken = Opened { fd: other.as_raw_fd() as u32, ..open };
        assert!(peek(&At::Open(taken), 1).unwrap_err().to_string().contains("another file"));
    }

    #[test]
    fn only_readable_descriptors_count() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = fs::OpenOptions::new().write(true).open(file.path()).unwrap();
        let named = openat(CWD, file.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        for open in [own(&write), own(&named)] {
            assert!(!open.readable);
            assert!(peek(&At::Open(open), 1).unwrap_err().to_string().contains("not for reading"));
        }
    }

    #[test]
    fn pipes_devices_and_kernel_files_are_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();
        let refused = |path: &Path| peek(&At::Path(path.into()), 1).unwrap_err().to_string();
        assert!(refused(&pipe).contains("a pipe"));
        assert!(refused(Path::new("/dev/zero")).contains("a character device"));
        assert!(refused(dir.path()).contains("a directory"));
        for made_up in ["/proc/self/status", "/proc/kcore", "/sys/kernel/mm/transparent_hugepage/enabled"] {
            if Path::new(made_up).exists() {
                assert!(refused(Path::new(made_up)).contains("pseudo file system"), "{made_up}");
            }
        }
        let file = dir.path().join("file");
        fs::write(&file, "data").unwrap();
        assert_eq!(peek(&At::Path(file), 9).unwrap().start, b"data");
    }

    #[test]
    fn file_systems_without_a_size() {
        assert!(is_made_up(0x9fa0, 0) && is_made_up(0xde5e_81e4, 64) && is_made_up(0x1234_5678, 0));
        assert!(!is_made_up(0xef53, 1000) && !is_made_up(0x0102_1994, 0));
    }

    /// Root's rights are laid down for another's file, and taken up again.
    #[test]
    fn files_are_opened_as_the_guests_user() {
        use std::os::unix::fs::{PermissionsExt, chown};
        if !geteuid().is_root() {
            return; // nobody else can take another user's rights
        }
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(dir.path(), 0o755);
        let made = |name: &str, owner: u32, group: u32, rights: u32| {
            let path = dir.path().join(name);
            fs::write(&path, name).unwrap();
            chown(&path, Some(owner), Some(group)).unwrap();
            mode(&path, rights);
            path
        };
        let secret = made("secret", 0, 0, 0o600);
        let own = made("own", 65_534, 0, 0o600);
        let shared = made("shared", 0, 1234, 0o640);
        let user = User { uid: 65_534, gid: 65_534, groups: vec![1234] };
        let theirs = std::thread::spawn(move || {
            let opens = |path: &Path| user.does(|| File::open(path).map(drop)).map_err(|e| e.kind());
            let peeked = [opens(&secret), opens(&own), opens(&shared)];
            (peeked, File::open(&secret).is_ok())
        });
        let (peeked, after) = theirs.join().unwrap();
        assert_eq!(peeked, [Err(ErrorKind::PermissionDenied), Ok(()), Ok(())]);
        assert!(after && File::open(dir.path().join("secret")).is_ok(), "root is root again");
    }

    #[test]
    fn user_of_a_process() {
        let of = |status: &str| User::among(&Status::of_text(status.to_owned()));
        let status = "Name:\tq\nUid:\t1\t2\t3\t64055\nGid:\t5\t6\t7\t108\nGroups:\t108 993 \n";
        assert_eq!(of(status), Some(User { uid: 64_055, gid: 108, groups: vec![108, 993] }));
        assert!(User::of(std::process::id()).is_some());
        assert_eq!(of("Uid:\t1\n"), None);
    }
}
