//! Whose the store is, and who may read it: its owner alone. Runs name guests, paths and devices of the
//! host. What is made is made so (0700, 0600).

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::StoreError;

/// The store without links in its path, if nobody but this user can have made or can exchange what SQLite opens by name:
/// the file, what lies beside it, and its directory.
pub(super) fn alone(path: &Path) -> Result<PathBuf, StoreError> {
    let real =
        fs::canonicalize(path).map_err(|source| StoreError::Io { what: "look at", path: path.into(), source })?;
    is_alone(real.parent().unwrap_or(&real))?;
    for end in ["", "-wal", "-shm", "-journal"] {
        let mut name = real.as_os_str().to_owned();
        name.push(end);
        is_alone(Path::new(&name))?;
    }
    Ok(real)
}

/// Refuses a link, and what others own or may write; what is not there is nobody's. A private group, which has the
/// user's main one, is as good as none.
fn is_alone(part: &Path) -> Result<(), StoreError> {
    let found = match fs::symlink_metadata(part) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|source| StoreError::Io { what: "look at", path: part.into(), source })?,
    };
    let others = if found.gid() == rustix::process::getegid().as_raw() { 0o002 } else { 0o022 };
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(StoreError::Others { path: part.into(), owner: found.uid() });
    }
    if found.is_symlink() {
        return Err(StoreError::Foreign { path: part.into(), what: "it is a link".into() });
    }
    if found.mode() & others != 0 {
        return Err(StoreError::Shared { path: part.into() });
    }
    Ok(())
}

/// Makes the directory and an empty file where they are missing, and refuses what is not this user's alone: vmio
/// (root) would write where others say.
pub(super) fn make(path: &Path) -> Result<(), StoreError> {
    let io = |what: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source| StoreError::Io { what, path, source }
    };
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io("make the directory", dir))?;
        is_alone(&fs::canonicalize(dir).map_err(io("look at", dir))?)?;
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => match e.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Err(StoreError::Denied { path: path.into(), source: None })
            }
            _ => Err(io("make", path)(e)),
        },
        // SQLite takes an empty file for a new one.
        _ if fs::metadata(path).is_ok_and(|m| !m.is_file()) => {
            Err(StoreError::Corrupt { path: path.into(), source: None })
        }
        _ => alone(path).map(drop),
    }
}
