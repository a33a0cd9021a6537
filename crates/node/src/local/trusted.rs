//! Files whose content nobody but root can have written, for names that anybody can put on a command line.
//!
//! Each part of the path is opened by the directory before it and no link is followed, so what is checked is what is
//! read. A directory further above may be written by a group (`/var/log` is syslog's on some systems): what others put
//! there is not root's, and is refused.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::local::foreign::{in_time, shown};
use crate::local::look::FileQuery;

/// Permission to write, of the group and of others.
const OTHERS_WRITE: u32 = 0o022;

/// The beginning of such a file.
pub(crate) fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    Ok(in_time(path, FileQuery::Trusted { most })?.1)
}

/// [`read`], in this thread.
pub(crate) fn read_here(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let refused = |why: &str| io::Error::new(ErrorKind::InvalidInput, why.to_owned());
    let mut parts = path.components();
    if parts.next() != Some(Component::RootDir) {
        return Err(refused("its path is not absolute"));
    }
    let only_named = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = File::from(openat(CWD, "/", only_named, Mode::empty())?);
    let mut above: Option<Metadata> = None;
    for part in parts {
        let Component::Normal(name) = part else { return Err(refused("its path leads back")) };
        let dir = at.metadata()?;
        if !dir.is_dir() || dir.uid() != 0 {
            return Err(refused("a part of its path is a link, or a directory of another user than root"));
        }
        above = Some(dir);
        at = File::from(openat(&at, name, only_named, Mode::empty())?);
    }
    let is = at.metadata()?;
    if !is.is_file() {
        return Err(refused("it is no regular file"));
    }
    let by_root = |what: &Metadata| what.uid() == 0 && what.mode() & OTHERS_WRITE == 0;
    if !by_root(&is) || !above.as_ref().is_some_and(by_root) {
        return Err(refused("others than root may have written it"));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let mut bytes = Vec::new();
    File::from(openat(CWD, shown(&at), flags, Mode::empty())?).take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn what_others_may_have_written_is_refused() {
        assert_eq!(read(Path::new("/etc/passwd"), 4).unwrap(), fs::read("/etc/passwd").unwrap()[..4]);
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("open"), "x").unwrap();
        fs::set_permissions(at("open"), fs::Permissions::from_mode(0o666)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", at("link")).unwrap();
        std::os::unix::fs::symlink("/etc", at("etc")).unwrap();
        let wrong = [at("open"), at("link"), at("etc/passwd"), "/etc/../etc/passwd".into(), "etc/passwd".into()];
        for path in wrong.iter().map(PathBuf::as_path).chain([Path::new("/etc"), Path::new("/dev/null")]) {
            assert_eq!(read(path, 4).unwrap_err().kind(), ErrorKind::InvalidInput, "{}", path.display());
        }
        assert_eq!(read(Path::new("/etc/there-is-none"), 4).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
