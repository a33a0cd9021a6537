//! Paths as a guest's process sees them, on this machine.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use vmio_model::facts::Guest;
use vmio_node::machine::{NetworkMount, network_mount_in};

use crate::look::Look;

/// Links that are followed in one path, as many as the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// The files of a process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct View {
    /// Its root directory, where that is not ours: `/proc/812/root`.
    root: Option<PathBuf>,
    /// Its working directory as it sees it.
    cwd: Option<PathBuf>,
    /// Its mounts, as in `/proc/PID/mountinfo`.
    mounts: Arc<str>,
}

/// How each guest's process sees the files; a guest without one sees them as we do.
pub fn of(look: &Look<'_>, guests: &[Guest]) -> Vec<Arc<View>> {
    let reader = look.reader();
    let mounts = |pid: &str| reader.read_text(Path::new(&format!("/proc/{pid}/mountinfo"))).unwrap_or_default();
    let link = |path: String| reader.link(Path::new(&path)).ok().flatten();
    let own = (link("/proc/self/ns/mnt".into()), link("/proc/self/root".into()));
    let own_mounts: Arc<str> = mounts("self").into();
    let of_guest = |guest: &Guest| {
        let Some(pid) = guest.pid else {
            return Arc::new(View { root: None, cwd: None, mounts: Arc::clone(&own_mounts) });
        };
        let theirs = (link(format!("/proc/{pid}/ns/mnt")), link(format!("/proc/{pid}/root")));
        // What may not be read is taken for ours; a wrong path shows as missing.
        let differs = |own: &Option<PathBuf>, theirs: &Option<PathBuf>| theirs.is_some() && own != theirs;
        let foreign = differs(&own.0, &theirs.0) || differs(&own.1, &theirs.1);
        Arc::new(View {
            root: foreign.then(|| PathBuf::from(format!("/proc/{pid}/root"))),
            cwd: link(format!("/proc/{pid}/cwd")),
            mounts: if foreign { mounts(&pid.to_string()).into() } else { Arc::clone(&own_mounts) },
        })
    };
    guests.iter().map(of_guest).collect()
}

impl View {
    /// Where this machine has a path of the process.
    pub fn here(&self, look: &Look<'_>, path: &Path) -> PathBuf {
        let path = match &self.cwd {
            Some(cwd) if path.is_relative() => cwd.join(path),
            _ => path.to_owned(),
        };
        match &self.root {
            Some(root) if !path.starts_with(root) => inside(look, root, &path),
            _ => path,
        }
    }

    /// The file server that holds a path.
    pub fn server(&self, path: &Path) -> Option<NetworkMount> {
        network_mount_in(self.mounts.as_bytes(), path)
    }
}

/// A path below another root. The kernel would take an absolute link there for one of ours, so
/// links are followed here.
fn inside(look: &Look<'_>, root: &Path, path: &Path) -> PathBuf {
    let mut links = 0;
    let mut left: Vec<PathBuf> = parts(path);
    let mut at = PathBuf::new();
    while let Some(part) = left.pop() {
        if part == Path::new("..") {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        match look.reader().link(&root.join(&next)).ok().flatten() {
            Some(to) if links < MOST_LINKS => {
                links += 1;
                if to.is_absolute() {
                    at = PathBuf::new();
                }
                left.extend(parts(&to));
            }
            _ => at = next,
        }
    }
    root.join(at)
}

/// The parts of a path, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named =
        |c: Component<'_>| matches!(c, Component::Normal(_) | Component::ParentDir).then(|| c.as_os_str().into());
    path.components().rev().filter_map(named).collect()
}
