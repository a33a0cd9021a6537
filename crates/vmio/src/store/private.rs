//! Owner and mode of the store. Only its owner may read it (0700, 0600), since runs name guests, paths and devices of
//! the host.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::StoreError;

/// The path of the store with links resolved, if only this user and root can write the file, the files beside it that
/// SQLite opens by name, and all directories above.
pub(super) fn alone(path: &Path) -> Result<PathBuf, StoreError> {
    let real =
        fs::canonicalize(path).map_err(|source| StoreError::Io { what: "look at", path: path.into(), source })?;
    vmio_node::trusted_dir(real.parent().unwrap_or(&real))?;
    for end in ["", "-wal", "-shm", "-journal"] {
        let mut name = real.as_os_str().to_owned();
        name.push(end);
        is_alone(Path::new(&name))?;
    }
    Ok(real)
}

/// Refuses a link, and a file that others own or may write; a missing file is fine.
fn is_alone(file: &Path) -> Result<(), StoreError> {
    let found = match fs::symlink_metadata(file) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|source| StoreError::Io { what: "look at", path: file.into(), source })?,
    };
    let why = match found.mode() & 0o022 {
        _ if found.uid() != rustix::process::geteuid().as_raw() => format!("it belongs to user {}", found.uid()),
        _ if found.is_symlink() => "it is a link".to_owned(),
        0 => return Ok(()),
        _ => "others may write it".to_owned(),
    };
    Err(StoreError::Untrusted { path: file.into(), why, help: "name a directory that you own: --state DIR".to_owned() })
}

/// Makes the directory and an empty file where they are missing, and refuses what others may write, since vmio as root
/// would write where they say. Returns the path with links resolved.
pub(super) fn make(path: &Path) -> Result<PathBuf, StoreError> {
    if let Some(dir) = path.parent() {
        vmio_node::private_dir(dir)?;
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => match e.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Err(StoreError::Denied { path: path.into(), source: None })
            }
            _ => Err(StoreError::Io { what: "make", path: path.into(), source: e }),
        },
        // SQLite takes an empty file for a new one.
        _ if fs::metadata(path).is_ok_and(|m| !m.is_file()) => {
            Err(StoreError::Corrupt { path: path.into(), source: None })
        }
        _ => alone(path),
    }
}
