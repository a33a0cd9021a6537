//! Where programs are.

use std::path::{Path, PathBuf};

use crate::linux::process;
use crate::node::Reader;

/// Directories that are looked at after those in `PATH`: a user's `PATH` often lacks `sbin`.
const SBIN: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Where programs are when the node's `PATH` cannot be read.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Full path of a program on a node: an executable file in the `PATH` of the process that looks,
/// then in the `sbin` directories.
pub fn find_program(node: &dyn Reader, name: &str) -> Option<PathBuf> {
    let own = process::variable_of(node, "self", "PATH");
    let path = own.as_deref().unwrap_or(DEFAULT_PATH);
    path.split(':')
        .filter(|d| !d.is_empty())
        .chain(SBIN)
        .map(|dir| Path::new(dir).join(name))
        .find(|p| matches!(node.stat(p), Ok(Some(s)) if s.is_file() && s.mode & 0o111 != 0))
}
