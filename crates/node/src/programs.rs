//! Where programs are.

use std::path::{Path, PathBuf};

use crate::node::Reader;

/// Directories that are looked at after those in `PATH`: a user's `PATH` often lacks `sbin`.
const SBIN: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Where programs are when the node's `PATH` cannot be read.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Full path of a program on a node: an executable file in the `PATH` of the process that looks,
/// then in the `sbin` directories.
pub fn find_program(node: &dyn Reader, name: &str) -> Option<PathBuf> {
    let environ = node.read_text(Path::new("/proc/self/environ")).unwrap_or_default();
    let path = environ.split('\0').find_map(|v| v.strip_prefix("PATH=")).unwrap_or(DEFAULT_PATH);
    path.split(':')
        .filter(|d| !d.is_empty())
        .chain(SBIN)
        .map(|dir| Path::new(dir).join(name))
        .find(|p| matches!(node.stat(p), Ok(Some(s)) if s.mode & 0o170_000 == 0o100_000 && s.mode & 0o111 != 0))
}
