//! A directory: raw files and images lie in it as guests' images do. It may have to be made.

use std::path::Path;
use std::time::Duration;

use vmio_node::{Node, machine};

use super::{Error, Ground, Kind, Listed, PlaceKind, Result};
use crate::require::Requirement;

/// How long a file server is waited for before the first look.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Entry without a prefix.
pub struct Dir;

impl PlaceKind for Dir {
    fn prefix(&self) -> &'static str {
        ""
    }
    fn form(&self) -> &'static str {
        "DIR"
    }
    fn about(&self) -> &'static str {
        "a directory, on a local file system or on NFS"
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    fn resolve(&self, _node: &dyn Node, name: &str) -> Result<Ground> {
        let wrong = |kind, reason: String| Error::new(kind, name, reason).help("name a directory with --on");
        let dir = std::path::absolute(name).map_err(|e| wrong(Kind::Unknown, e.to_string()))?;
        answers(&dir).map_err(|reason| {
            Error::new(Kind::Unready, name, reason).help("see that it is up, or use --on another directory")
        })?;
        let existing = dir.ancestors().find(|d| d.exists()).unwrap_or(Path::new("/"));
        if !existing.is_dir() {
            return Err(wrong(Kind::NotThere, format!("{} is no directory", existing.display())));
        }
        Ok(Ground::Files(dir))
    }
    fn list(&self, _node: &dyn Node) -> Vec<Listed> {
        vec![]
    }
}

/// Whether the server that holds a path answers; always on file systems of this machine. The
/// state of a file system is never cached (nfs(5)), so asking for it asks the server.
///
/// # Errors
/// Who does not answer.
pub fn answers(path: &Path) -> std::result::Result<(), String> {
    let Some(server) = machine::network_mount(path) else { return Ok(()) };
    let at: Vec<_> = path.ancestors().map(Path::to_owned).collect();
    let asked = move || at.iter().find_map(|p| rustix::fs::statvfs(p).ok()).is_some();
    match machine::within(ANSWER_LIMIT, asked) {
        Some(true) => Ok(()),
        Some(false) => Err(format!("{server} answers with an error")),
        None => Err(format!(
            "the storage does not answer: {server} said nothing for {} s; is it up?",
            ANSWER_LIMIT.as_secs()
        )),
    }
}
