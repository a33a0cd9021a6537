//! Which journals are trusted. A journal makes vmio remove and write files, often as root, so it must not come from
//! another user: every directory down to it must be this user's or root's and writable by nobody else, and the file
//! itself must be this user's alone.
//!
//! The way down is walked with descriptors (`O_NOFOLLOW`), so that what was looked at is what is used.
//! What is sticky (`/tmp`) is no danger on the way: there only the owner of an entry can replace it. A
//! group that has nobody but this user in it (Debian, Fedora and others give each user one of its own,
//! and a umask of 002 with it) is nobody else.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::process::geteuid;

use crate::{Error, Result};

/// Write permission for the group, for all others; the sticky bit (inode(7)).
const GROUP: u32 = 0o020;
const OTHERS: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Why a file is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub(crate) enum Planted {
    #[error("it is a link")]
    Link,
    #[error("it is not a file")]
    NoFile,
    #[error("it belongs to user {0}")]
    Others(u32),
    #[error("others than its owner may write it")]
    Writable,
    #[error("it has a second name, so that another file may be meant")]
    SecondName,
}

/// Which other users can write a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Open {
    #[error("belongs to user {0}")]
    User(u32),
    #[error("can be written by everybody")]
    Everybody,
    #[error("can be written by group {0}")]
    Group(u32),
}

/// A directory that nobody but this user (and root) can have written.
#[derive(Debug)]
pub(crate) struct Home {
    fd: OwnedFd,
    /// Without links.
    pub path: PathBuf,
}

impl Home {
    /// Opens a directory that is there.
    ///
    /// # Errors
    /// [`Error::Untrusted`] where somebody else could write it or what it lies in; [`Error::File`] where
    /// it cannot be opened.
    pub fn open(dir: &Path) -> Result<Self> {
        Self::walk(dir, false)
    }

    /// As [`Home::open`], for a directory below which one is to be made: it may be sticky, or root's.
    pub fn above(dir: &Path) -> Result<()> {
        Self::walk(dir, true).map(drop)
    }

    fn walk(dir: &Path, above: bool) -> Result<Self> {
        let failed = |source: io::Error| Error::File { node: "local".into(), what: "open", path: dir.into(), source };
        let path = fs::canonicalize(dir).map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = path.clone();
        let mut fd = openat(CWD, "/", flags, Mode::empty()).map_err(|e| failed(e.into()))?;
        let names: Vec<&OsStr> =
            path.components().filter_map(|c| if let Component::Normal(name) = c { Some(name) } else { None }).collect();
        for depth in 0..=names.len() {
            at = Path::new("/").join(names[..depth].iter().collect::<PathBuf>());
            let stat = fstat(&fd).map_err(|e| failed(e.into()))?;
            if let Some(why) = distrust(&stat, &fd, above || depth < names.len()) {
                return Err(untrusted(dir, &at, &stat, why));
            }
            let Some(name) = names.get(depth) else { break };
            // Directories that may be passed but not listed (0711) are only named, not opened.
            let only = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let flags = if above || depth + 1 < names.len() { only } else { flags };
            fd = openat(&fd, *name, flags, Mode::empty()).map_err(|e| failed(e.into()))?;
        }
        debug_assert_eq!(at, path);
        Ok(Self { fd, path })
    }

    /// Names in it that end so, sorted.
    pub fn names(&self, end: &str) -> Vec<std::ffi::OsString> {
        let Ok(dir) = rustix::fs::Dir::read_from(&self.fd) else { return Vec::new() };
        let names = dir.flatten().map(|e| OsStr::from_bytes(e.file_name().to_bytes()).to_owned());
        let mut names: Vec<_> = names.filter(|n| n.as_bytes().ends_with(end.as_bytes())).collect();
        names.sort();
        names
    }

    /// Opens a file in it for reading and appending; makes it where it is missing and `create` is said.
    /// The inner error says why the existing file is not trusted.
    pub fn file(&self, name: &OsStr, create: bool) -> io::Result<Result<File, Planted>> {
        let mut flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Does not wait at a pipe or terminal.
        flags |= OFlags::NONBLOCK | OFlags::NOCTTY;
        if create {
            flags |= OFlags::CREATE;
        }
        let file = match openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => File::from(fd),
            Err(rustix::io::Errno::LOOP) => return Ok(Err(Planted::Link)),
            Err(rustix::io::Errno::ISDIR | rustix::io::Errno::NXIO) => return Ok(Err(Planted::NoFile)),
            Err(e) => return Err(e.into()),
        };
        let stat = fstat(&file)?;
        Ok(match distrust_file(&stat) {
            Some(why) => Err(why),
            None => Ok(file),
        })
    }

    /// Whether a name in it is still this file.
    pub fn is_still(&self, name: &OsStr, file: &File) -> bool {
        let at = rustix::fs::statat(&self.fd, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        matches!((at, fstat(file)), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
    }
}

/// A directory that nobody but this user and root can have written, without links in its path. As long as this user
/// changes nothing there, its path means the same directory.
///
/// # Errors
/// As [`Home::open`].
pub fn trusted_dir(dir: &Path) -> Result<PathBuf> {
    Home::open(dir).map(|home| home.path)
}

/// Why a directory is not trusted; `None` if it is. One `above` may be root's, and sticky.
fn distrust(stat: &Stat, fd: &OwnedFd, above: bool) -> Option<Open> {
    let me = geteuid().as_raw();
    if stat.st_uid != me && !(above && stat.st_uid == 0) {
        return Some(Open::User(stat.st_uid));
    }
    if above && stat.st_mode & STICKY != 0 {
        return None;
    }
    if stat.st_mode & OTHERS != 0 {
        return Some(Open::Everybody);
    }
    (stat.st_mode & GROUP != 0 && (!is_own_group(stat.st_gid) || has_acl(fd))).then_some(Open::Group(stat.st_gid))
}

fn distrust_file(stat: &Stat) -> Option<Planted> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Some(Planted::NoFile);
    }
    if stat.st_uid != geteuid().as_raw() {
        return Some(Planted::Others(stat.st_uid));
    }
    if stat.st_mode & (GROUP | OTHERS) != 0 {
        return Some(Planted::Writable);
    }
    (stat.st_nlink > 1).then_some(Planted::SecondName)
}

fn untrusted(dir: &Path, at: &Path, stat: &Stat, why: Open) -> Error {
    let shown = if at == dir { "it".to_owned() } else { at.display().to_string() };
    let mut mend = "name a directory that only you can write: --state DIR".to_owned();
    if stat.st_uid == geteuid().as_raw() && stat.st_mode & STICKY == 0 {
        mend = format!("chmod go-w {}; or {mend}", at.display());
    }
    Error::Untrusted { path: dir.into(), why: format!("{shown} {why}, so others could write what vmio believes"), mend }
}

/// Whether a group is this user's own: its number, and nobody else in it.
fn is_own_group(gid: u32) -> bool {
    let own = rustix::process::getegid().as_raw() == gid && geteuid().as_raw() == gid;
    own && is_alone(
        gid,
        &fs::read_to_string("/etc/group").unwrap_or_default(),
        &fs::read_to_string("/etc/passwd").unwrap_or_default(),
    )
}

/// By the texts of group(5) and passwd(5): the group has no members but the one user whose first group it is.
fn is_alone(gid: u32, group: &str, passwd: &str) -> bool {
    let number = |field: Option<&&str>| field.is_some_and(|f| f.parse() == Ok(gid));
    let users: Vec<&str> =
        passwd.lines().map(|l| l.split(':').collect::<Vec<_>>()).filter(|f| number(f.get(3))).map(|f| f[0]).collect();
    let groups: Vec<Vec<&str>> =
        group.lines().map(|l| l.split(':').collect::<Vec<_>>()).filter(|f| number(f.get(2))).collect();
    let [user] = users[..] else { return false };
    !groups.is_empty()
        && groups.iter().all(|f| f.get(3).is_none_or(|m| m.split(',').all(|m| m.is_empty() || m == user)))
}

/// Whether an access list grants more than the mode says (acl(5): the group's bits are its mask then).
fn has_acl(fd: &OwnedFd) -> bool {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let mut value = [0u8; 1024];
    let found = rustix::fs::getxattr(path, "system.posix_acl_access", &mut value[..]);
    !matches!(found, Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn trusted_directories() {
        let dir = tempfile::tempdir().unwrap();
        let (above, home) = (dir.path().join("above"), dir.path().join("above/home"));
        fs::create_dir_all(&home).unwrap();
        mode(&above, 0o755);
        mode(&home, 0o755);
        Home::open(&home).unwrap();
        let refused = |words: &[&str]| {
            let e = Home::open(&home).unwrap_err().to_string();
            assert!(words.iter().all(|w| e.contains(w)), "{e}");
        };
        mode(&home, 0o777);
        refused(&["it can be written by everybody", "chmod go-w", "--state DIR"]);
        // Sticky helps on the way, not at its end: anybody could put a journal there.
        mode(&home, 0o1777);
        refused(&["it can be written by everybody"]);
        mode(&home, 0o700);
        mode(&above, 0o777);
        refused(&[above.to_str().unwrap(), "can be written by everybody"]);
        mode(&above, 0o1777);
        Home::open(&home).unwrap();
        mode(&above, 0o700);
        // A link on the way is what it points to.
        symlink(&home, dir.path().join("link")).unwrap();
        assert_eq!(Home::open(&dir.path().join("link")).unwrap().path, home.canonicalize().unwrap());
    }

    #[test]
    fn trusted_files() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path()).unwrap();
        let at = |name: &str| dir.path().join(name);
        let why = |name: &str| home.file(OsStr::new(name), false).unwrap().err();
        fs::write(at("good"), "x").unwrap();
        mode(&at("good"), 0o600);
        assert_eq!(why("good"), None);
        symlink(at("good"), at("link")).unwrap();
        assert_eq!(why("link"), Some(Planted::Link));
        fs::hard_link(at("good"), at("twin")).unwrap();
        assert_eq!(why("good"), Some(Planted::SecondName));
        fs::write(at("open"), "x").unwrap();
        mode(&at("open"), 0o620);
        assert_eq!(why("open"), Some(Planted::Writable));
        rustix::fs::mkfifoat(CWD, at("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(why("pipe"), Some(Planted::NoFile));
        fs::create_dir(at("dir")).unwrap();
        assert_eq!(why("dir"), Some(Planted::NoFile));
        assert!(home.file(OsStr::new("none"), false).is_err());
        assert_eq!(home.names("pipe"), [std::ffi::OsString::from("pipe")]);
    }

    #[test]
    fn private_groups() {
        let passwd = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1001:1001::/b:/bin/sh\n";
        assert!(is_alone(1000, "root:x:0:\nann:x:1000:\n", passwd));
        assert!(is_alone(1000, "ann:x:1000:ann\n", passwd));
        assert!(!is_alone(1000, "ann:x:1000:ann,bob\n", passwd));
        assert!(!is_alone(1000, "ann:x:1000:\nalso:x:1000:bob\n", passwd));
        assert!(!is_alone(1000, "ann:x:1000:\n", &format!("{passwd}eve:x:1002:1000::/e:/bin/sh\n")));
        assert!(!is_alone(1000, "other:x:7:\n", passwd), "known to another service than the files");
    }
}
