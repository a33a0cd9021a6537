//! A directory: raw files and images lie in it as guests' images do. It may have to be made.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vmio_look::require::Requirement;
use vmio_node::linux::mounts::NetworkMount;
use vmio_node::{Node, machine};

use super::{Error, Kind, Listed, PlaceBackend, PlaceKind, Result, Unwell};

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
    fn resolve(&self, _node: &dyn Node, name: &str) -> Result<PlaceBackend> {
        resolve_path(Path::new(name)).map(PlaceBackend::Files)
    }
    fn answered_by(&self, name: &str) -> Option<String> {
        Some(machine::may_hang(&std::path::absolute(name).ok()?)?.server)
    }
    fn list(&self, _node: &dyn Node) -> Vec<Listed> {
        vec![]
    }
}

/// The directory that a path means, looked up without waiting for storage that does not answer.
///
/// # Errors
/// When it is no directory, or who does not answer.
pub fn resolve_path(path: &Path) -> Result<PathBuf> {
    let name = path.display().to_string();
    let wrong = |kind, reason: String| Error::new(kind, &*name, reason).help("name a directory with --on");
    let dir = std::path::absolute(path).map_err(|e| wrong(Kind::Unknown, e.to_string()))?;
    let real = real(&dir).map_err(|unwell| {
        Error::new(Kind::Unready, &*name, unwell.to_string()).help("check that it is up, or use --on another directory")
    })?;
    match real {
        Real::Directory(dir) => Ok(dir),
        Real::Other(found) => Err(wrong(Kind::NotThere, format!("{} is not a directory", found.display()))),
    }
}

/// Whether files can be made in a directory that is there, and not by just anybody: in one that all
/// users may write, without the sticky bit of inode(7), anyone could take them away. What a service's
/// own user or a group may write is used: what vmio makes there it uses by descriptors alone, so that
/// they can take it away, and have nothing else written.
///
/// # Errors
/// Why not, and what to do.
pub fn usable(dir: &Path) -> Result<()> {
    use rustix::fs::{Access, AtFlags, CWD, accessat, stat};
    let name = dir.display().to_string();
    let unready = |reason: String| Error::new(Kind::Unready, &*name, reason);
    // As this process would make them: a file server is asked, too.
    if let Err(e) = accessat(CWD, dir, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        let reason = format!("no files can be made here: {}", std::io::Error::from(e));
        return Err(unready(reason).help("name a directory that this user may write with --on"));
    }
    let found = stat(dir).map_err(|e| unready(format!("it cannot be examined: {}", std::io::Error::from(e))))?;
    let (everybody, sticky) = (found.st_mode & 0o002 != 0, found.st_mode & 0o1000 != 0);
    if everybody && !sticky {
        let reason = "every user may write it and rename what others made in it (it has no sticky bit)".to_owned();
        return Err(
            unready(reason).help(format!("let only its owner write it (chmod o-w {name}), or name another with --on"))
        );
    }
    Ok(())
}

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
enum Real {
    /// The path without links as far as it is there, and the rest of it, which may be made.
    Directory(PathBuf),
    /// This part of it is something else than a directory.
    Other(PathBuf),
}

/// Follows the links of an absolute path. The table of mounts knows paths without links alone, so
/// that a server behind a link is asked only after that.
fn real(path: &Path) -> Result<Real, Unwell> {
    answers(path)?;
    let asked = path.to_owned();
    let found = machine::within(ANSWER_LIMIT, move || follow(&asked));
    let found = found.ok_or_else(|| silent(path.display().to_string()))??;
    if let Real::Directory(dir) = &found {
        answers(dir)?;
    }
    Ok(found)
}

fn follow(path: &Path) -> Result<Real, Unwell> {
    for there in path.ancestors() {
        let failed = |error| Unwell::Unseen { path: there.to_owned(), error };
        match there.canonicalize() {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(e) => return Err(failed(e)),
            Ok(real) if !real.metadata().map_err(failed)?.is_dir() => return Ok(Real::Other(real)),
            Ok(real) => {
                let rest = path.strip_prefix(there).unwrap_or(Path::new(""));
                // An empty rest would add a slash.
                return Ok(Real::Directory(if rest.as_os_str().is_empty() { real } else { real.join(rest) }));
            }
        }
    }
    Err(Unwell::NoPart(path.to_owned()))
}

fn silent(who: String) -> Unwell {
    Unwell::Silent { who, seconds: ANSWER_LIMIT.as_secs() }
}

/// Whether the server that holds a path answers; always on file systems of this machine. The
/// state of a file system is never cached (nfs(5)), so asking for it asks the server.
///
/// # Errors
/// Who does not answer, or answers with an error.
pub fn answers(path: &Path) -> Result<(), Unwell> {
    let Some(NetworkMount { point, server }) = machine::may_hang(path) else { return Ok(()) };
    let path = path.to_owned();
    let asked = move || ask(&path, &point, |p| rustix::fs::statvfs(p).map(drop).map_err(Into::into));
    match machine::within(ANSWER_LIMIT, asked) {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(Unwell::Server { server, error }),
        None => Err(silent(server)),
    }
}

/// Asks for the deepest part of a path that is there, never above the mount: that would be another
/// file system, which always answers.
fn ask(path: &Path, point: &Path, state: impl Fn(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    if !path.starts_with(point) {
        // A link leads there.
        return state(point);
    }
    let mut last = Err(ErrorKind::NotFound.into());
    for part in path.ancestors().take_while(|p| p.starts_with(point)) {
        last = state(part);
        if !last.as_ref().is_err_and(|e| e.kind() == ErrorKind::NotFound) {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io;

    use super::*;

    #[test]
    fn only_the_mount_itself_is_asked_and_its_errors_count() {
        let asked = std::cell::RefCell::new(Vec::new());
        let ask_with = |of: &dyn Fn(&str) -> Option<ErrorKind>| {
            asked.borrow_mut().clear();
            ask(Path::new("/srv/nfs/vm/new"), Path::new("/srv/nfs"), |p| {
                asked.borrow_mut().push(p.to_owned());
                of(p.to_str().unwrap()).map_or(Ok(()), |kind| Err(io::Error::from(kind)))
            })
            .map_err(|e| e.kind())
        };
        // What is not there yet is looked for further up.
        assert_eq!(ask_with(&|p| (p != "/srv/nfs").then_some(ErrorKind::NotFound)), Ok(()));
        assert_eq!(asked.borrow().len(), 3);
        // The root of this machine would answer.
        let stale = |p: &str| p.starts_with("/srv/nfs").then_some(ErrorKind::StaleNetworkFileHandle);
        assert_eq!(ask_with(&stale), Err(ErrorKind::StaleNetworkFileHandle));
        assert_eq!(asked.borrow().len(), 1);
        assert_eq!(ask_with(&|_| Some(ErrorKind::NotFound)), Err(ErrorKind::NotFound));
        assert!(asked.borrow().iter().all(|p| p.starts_with("/srv/nfs")));
        let by_link = ask(Path::new("/home/link"), Path::new("/srv/nfs"), |p| {
            assert_eq!(p, Path::new("/srv/nfs"));
            Ok(())
        });
        assert!(by_link.is_ok());
    }

    #[test]
    fn a_directory_that_every_user_may_write_is_refused_with_what_to_do() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let mode = |mode| std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(mode)).unwrap();
        for fine in [0o700, 0o755, 0o775, 0o1777] {
            mode(fine);
            assert_eq!(usable(dir.path()), Ok(()), "{fine:o}");
        }
        mode(0o777);
        let said = usable(dir.path()).unwrap_err();
        assert!(said.kind == Kind::Unready && said.reason.contains("sticky"), "{said:?}");
        let mend = said.help.split_once('(').unwrap().1.split_once(')').unwrap().0;
        assert!(std::process::Command::new("sh").args(["-c", mend]).status().unwrap().success(), "{mend}");
        assert_eq!(usable(dir.path()), Ok(()), "as pasted: {mend}");
        let gone = usable(&dir.path().join("gone")).unwrap_err();
        assert!(gone.reason.starts_with("no files can be made here: No such file"), "{gone:?}");
    }

    #[test]
    fn links_are_followed_before_the_mounts_are_looked_up() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        std::fs::create_dir(top.join("real")).unwrap();
        std::fs::write(top.join("file"), "").unwrap();
        std::os::unix::fs::symlink(top.join("real"), top.join("link")).unwrap();
        assert_eq!(resolve_path(&top.join("link")).unwrap(), top.join("real"));
        assert_eq!(resolve_path(&top.join("link/new/deep")).unwrap(), top.join("real/new/deep"));
        assert!(!resolve_path(&top.join("link")).unwrap().to_string_lossy().ends_with('/'));
        for file in ["file", "file/below"] {
            let said = resolve_path(&top.join(file)).unwrap_err();
            assert!(said.kind == Kind::NotThere && said.reason.ends_with("file is not a directory"), "{said:?}");
        }
    }
}
