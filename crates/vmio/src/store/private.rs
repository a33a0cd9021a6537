//! Whose the store is, and who may read it: its owner alone. Runs name guests, paths and devices of the
//! host. What is made is made so (0700, 0600); what an older vmio made is tightened where it is this user's.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::StoreError;

/// Permissions of everybody else.
const REST: u32 = 0o077;

/// Whether a path is this user's; what is not there is.
pub(super) fn is_ours(path: &Path) -> bool {
    owner(path).is_none_or(|uid| uid == rustix::process::geteuid().as_raw())
}

/// Whether nobody but this user can have made or can exchange what SQLite opens by name: a store, given without links
/// in its path, what lies beside it, and its directory. A private group, which has the user's main one, is good enough.
pub(super) fn is_alone(real: &Path) -> bool {
    let us = rustix::process::geteuid().as_raw();
    let files = ["", "-wal", "-shm"].map(|end| {
        let mut name = real.as_os_str().to_owned();
        name.push(end);
        match fs::symlink_metadata(&name) {
            Ok(found) => found.is_file() && found.uid() == us,
            Err(e) => e.kind() == ErrorKind::NotFound,
        }
    });
    let dir = real.parent().and_then(|dir| fs::metadata(dir).ok()).is_some_and(|dir| {
        let group = dir.mode() & 0o020 == 0 || dir.gid() == rustix::process::getegid().as_raw();
        dir.uid() == us && dir.mode() & 0o002 == 0 && group
    });
    dir && files.iter().all(|ours| *ours)
}

fn owner(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|m| m.uid())
}

/// Makes the directory and an empty file where they are missing, and refuses what is another user's: vmio
/// (root) would write where that user says.
pub(super) fn make(path: &Path) -> Result<(), StoreError> {
    let io = |what: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source| StoreError::Io { what, path, source }
    };
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io("make the directory", dir))?;
    }
    // SQLite keeps its log beside the file itself, not beside a link to it.
    let real = fs::canonicalize(path).ok();
    for part in [path.parent(), Some(path), real.as_deref().and_then(Path::parent)].into_iter().flatten() {
        if !is_ours(part) {
            return Err(StoreError::Others { path: part.into(), owner: owner(part).unwrap_or_default() });
        }
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
        _ => Ok(()),
    }
}

/// Takes the store's files from everybody else, and its directory where that is vmio's own by its name; one
/// that the user named with `--state` may hold other things.
pub(super) fn tighten(path: &Path) {
    let beside = |end: &str| PathBuf::from(format!("{}{end}", path.display()));
    let own = path.parent().filter(|d| d.file_name().is_some_and(|n| n == "vmio")).map(Path::to_owned);
    for part in [path.to_owned(), beside("-wal"), beside("-shm")].into_iter().chain(own) {
        let Ok(found) = fs::symlink_metadata(&part) else { continue };
        if !found.is_symlink() && is_ours(&part) && found.mode() & REST != 0 {
            // What cannot be tightened (a file system without permissions) is as it was.
            let _ = fs::set_permissions(&part, Permissions::from_mode(found.mode() & !REST & 0o7777));
        }
    }
}
