//! Paths of a guest's process, translated to this machine.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vmio_model::facts::Guest;
use vmio_node::linux::mounts::{self, Mount, NetworkMount, parts};
use vmio_node::linux::process;

use crate::host_view::HostView;

/// Most links that are followed in a path, as in the kernel (path_resolution(7)).
const MOST_LINKS: usize = 40;
/// Most parts of a path that are looked at in one go: after each link the rest is gone through again.
const AHEAD: usize = 32;

/// A process's view of the files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct View {
    /// Its root directory, where that is not ours: `/proc/812/root`.
    root: Option<PathBuf>,
    /// Its working directory, as it sees it.
    cwd: Option<PathBuf>,
    /// Its mounts, as in `/proc/PID/mountinfo`.
    mounts: Arc<[Mount]>,
}

/// The view of each guest's process; without a process it is ours.
pub fn of(host: &HostView<'_>, guests: &[Guest]) -> Vec<Arc<View>> {
    let reader = host.reader();
    let namespace = |of: &dyn Display| process::namespace(reader, of, "mnt").ok().flatten();
    let link = |of: &dyn Display, name: &str| reader.link(&process::file(of, name)).ok().flatten();
    let own = (namespace(&"self"), link(&"self", "root"));
    let own_mounts: Arc<[Mount]> = host.mounts().into();
    let of_guest = |guest: &Guest| {
        let Some(pid) = guest.pid else {
            return Arc::new(View { root: None, cwd: None, mounts: Arc::clone(&own_mounts) });
        };
        let theirs = (namespace(&pid), link(&pid, "root"));
        // A link that may not be read is taken for ours; a wrong path is reported as missing.
        let differs = |own: &Option<PathBuf>, theirs: &Option<PathBuf>| theirs.is_some() && own != theirs;
        let foreign = differs(&own.0, &theirs.0) || differs(&own.1, &theirs.1);
        Arc::new(View {
            root: foreign.then(|| process::file(pid, "root")),
            cwd: link(&pid, "cwd"),
            mounts: if foreign {
                mounts::of_process(reader, pid).unwrap_or_default().into()
            } else {
                Arc::clone(&own_mounts)
            },
        })
    };
    guests.iter().map(of_guest).collect()
}

/// Whether a path of a guest's process names the same file here: with links followed, it is the same path on the same
/// mount. libvirt gives each QEMU a mount namespace in which nearly all paths are the host's; in a pod or container the
/// same path is another file.
pub fn is_same_here(host: &HostView<'_>, guest: &Guest, path: &Path) -> bool {
    let readable = |pid: u32| process::namespace(host.reader(), pid, "mnt").is_ok_and(|l| l.is_some());
    if !path.is_absolute() || !guest.pid.is_none_or(readable) {
        return false;
    }
    let views = of(host, &[Guest { pid: guest.pid, ..Guest::default() }, Guest::default()]);
    let [theirs, ours] = [0, 1].map(|of| {
        let seen = views[of].locate(host, path).ok()?.seen;
        let mount = mounts::holding(&views[of].mounts, &seen)?;
        Some((mount.dev, mount.root.clone(), mount.point.clone(), seen))
    });
    theirs.is_some() && theirs == ours
}

/// Why a path of a process cannot be resolved.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum ResolveError {
    #[error("no permission to read the working directory of the guest's process")]
    NoDirectory,
    #[error("{} has too many links", .0.display())]
    TooManyLinks(PathBuf),
    #[error(transparent)]
    Unreadable(#[from] vmio_node::Error),
}

/// A path of a process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Located {
    /// Path on this machine.
    pub here: PathBuf,
    /// Path for the process, with links followed as far as no file server is queried.
    pub seen: PathBuf,
}

impl View {
    /// Resolves a path of the process.
    ///
    /// # Errors
    /// When a link cannot be read, or links form a loop.
    pub fn locate(&self, host: &HostView<'_>, path: &Path) -> Result<Located, ResolveError> {
        let path = match &self.cwd {
            _ if path.is_absolute() => path.to_owned(),
            Some(cwd) => cwd.join(path),
            None => return Err(ResolveError::NoDirectory),
        };
        let Some(root) = &self.root else {
            return Ok(Located { seen: self.resolve(host, Path::new("/"), &path)?, here: path });
        };
        // The kernel would resolve an absolute link there from our root.
        let seen = self.resolve(host, root, path.strip_prefix(root).unwrap_or(&path))?;
        Ok(Located { here: root.join(seen.strip_prefix("/").unwrap_or(&seen)), seen })
    }

    /// The file server that holds a path.
    pub fn server(&self, path: &Located) -> Option<NetworkMount> {
        mounts::server_of(&self.mounts, &path.seen)
    }

    /// Whether a file server holds a path without links, as the process sees it.
    pub fn serves(&self, seen: &Path) -> bool {
        mounts::server_of(&self.mounts, seen).is_some()
    }

    /// The mount that holds a path.
    pub fn mount(&self, path: &Located) -> Option<&Mount> {
        mounts::holding(&self.mounts, &path.seen)
    }

    /// Follows the links of a path below `root`, up to the point where a file server would be queried.
    fn resolve(&self, host: &HostView<'_>, root: &Path, path: &Path) -> Result<PathBuf, ResolveError> {
        let mut links = 0;
        let mut left: Vec<PathBuf> = parts(path);
        let mut at = PathBuf::from("/");
        let here = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        while let Some(part) = left.last() {
            if part == Path::new("..") {
                at.pop();
                left.pop();
                continue;
            }
            let (ahead, count) = self.ahead(&at, &left);
            if count == 0 {
                // The next part is a server's.
                at.extend(left.iter().rev());
                break;
            }
            match host.reader().first_link_foreign(&here(&at), &here(&ahead))? {
                Some(_) if links == MOST_LINKS => return Err(ResolveError::TooManyLinks(path.to_owned())),
                Some((part, to)) => {
                    links += 1;
                    let passed = left.split_off(left.len().saturating_sub(part));
                    at.extend(passed.iter().skip(1).rev());
                    if to.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    left.extend(parts(&to));
                }
                None => {
                    at = ahead;
                    left.truncate(left.len() - count);
                }
            }
        }
        Ok(at)
    }

    /// How far a path goes on from `at` without a `..` and without a file server, [`AHEAD`] parts at most, and by how
    /// many of the parts that are `left`, of which the last one is the next.
    fn ahead(&self, at: &Path, left: &[PathBuf]) -> (PathBuf, usize) {
        let (mut ahead, mut count) = (at.to_owned(), 0);
        for part in left.iter().rev().take(AHEAD).take_while(|part| part.as_path() != Path::new("..")) {
            let next = ahead.join(part);
            if self.serves(&next) {
                break;
            }
            ahead = next;
            count += 1;
        }
        (ahead, count)
    }
}
