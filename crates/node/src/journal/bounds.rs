//! Where a change may be taken back at all, whatever its journal says: files and directories only below
//! the places that the same journal recorded before they were used, values and control groups only in
//! the kernel's own file systems. A journal is believed only from its owner (see [`crate::journal::trust`]); this
//! bounds what one that is damaged, or was written by a vmio with a fault, can do.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstatfs, openat, openat2, statfs};

use crate::journal::change::{Change, Scope};
use crate::journal::error::{NotUndone, OutOfBounds};
use crate::journal::io_task;
use crate::journal::servers::{answering, patience, silent};
use crate::linux::mounts::{self, NetworkMount};
use crate::machine;

/// `f_type` of procfs, sysfs and both versions of control groups (linux/magic.h).
const PROC: i64 = 0x9fa0;
const SYSFS: i64 = 0x6265_6572;
pub(crate) const CGROUP: i64 = 0x27_e0eb;
pub(crate) const CGROUP2: i64 = 0x6367_7270;

/// Takes a change back if it is within bounds; `scratch` are the places that its journal recorded.
pub(crate) fn undo(change: &Change, scope: &Scope<'_>, scratch: &[PathBuf]) -> Result<(), NotUndone> {
    if let Change::File { path, .. } | Change::Dir { path, .. } = change
        && crate::io_worker::are_sent()
        && let Some(NetworkMount { server, .. }) = machine::may_hang(path)
    {
        let limit = patience(&server);
        return match io_task::undo(change, scope, scratch, limit) {
            Ok(done) => done,
            Err(e) if e.kind() == ErrorKind::TimedOut => Err(silent(path, server, limit)),
            Err(e) => Err(NotUndone::cannot("remove", path)(e)),
        };
    }
    match change {
        Change::File { path, made } | Change::Dir { path, made } => below(path, scratch, made.is_some())?,
        Change::Cgroup { paths } => paths.iter().try_for_each(|p| in_cgroups(p))?,
        Change::Sysfs { path, .. } => no_dots(path)?,
        _ => {}
    }
    change.undo(scope)
}

/// The place that is recorded before a change is: the directory that is there and that the change lies in.
/// `None` for changes that make no files.
pub(crate) fn place_of(change: &Change) -> Option<PathBuf> {
    match change {
        Change::File { path, .. } | Change::Dir { path, .. } => {
            path.ancestors().skip(1).find(|d| d.exists()).map(Path::to_owned)
        }
        _ => None,
    }
}

fn no_dots(path: &Path) -> Result<(), NotUndone> {
    let plain = path.is_absolute() && path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    if plain { Ok(()) } else { Err(left(path, OutOfBounds::Crooked)) }
}

fn left(path: &Path, why: OutOfBounds) -> NotUndone {
    NotUndone::OutOfBounds { path: path.to_owned(), why }
}

/// By name, and by what is there: no link between the place and the file may lead elsewhere. Where it is noted
/// what was made, nothing else is removed ([`crate::journal::held`]), and what was moved is looked for.
fn below(path: &Path, places: &[PathBuf], noted: bool) -> Result<(), NotUndone> {
    no_dots(path)?;
    let Some(place) = places.iter().filter(|p| path != **p && path.starts_with(p)).min_by_key(|p| p.as_os_str().len())
    else {
        return Err(left(path, OutOfBounds::NotRecorded));
    };
    if noted {
        return Ok(());
    }
    let (Some(parent), Ok(rest)) = (path.parent(), path.strip_prefix(place)) else { return Ok(()) };
    let inner = rest.parent().unwrap_or(Path::new("")).to_owned();
    let (parent, place, shown) = (parent.to_owned(), place.clone(), path.to_owned());
    answering(path, move || match (fs::canonicalize(&place), fs::canonicalize(&parent)) {
        (Ok(place), Ok(parent)) if parent == place.join(&inner) => Ok(()),
        (Ok(_), Ok(parent)) => Err(left(&shown, OutOfBounds::Link(parent))),
        // What it lay in is gone, and it with that.
        (Err(e), _) | (_, Err(e)) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        (Err(e), _) | (_, Err(e)) => Err(left(&shown, OutOfBounds::UnseenAbove(e))),
    })?
}

fn in_cgroups(path: &Path) -> Result<(), NotUndone> {
    no_dots(path)?;
    match statfs(path) {
        Ok(fs) if [CGROUP, CGROUP2].contains(&fs.f_type) => Ok(()),
        Ok(_) => Err(left(path, OutOfBounds::NoControlGroup)),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(()),
        Err(e) => Err(left(path, OutOfBounds::Unseen(e.into()))),
    }
}

/// Writes a value of the kernel's back. The file is opened below the mount that it lies on by name, without
/// a link that leaves it, and is written only where the kernel itself says what file system it is.
pub(crate) fn write_back(path: &Path, value: &str) -> io::Result<()> {
    let refused = |why: &str| io::Error::new(ErrorKind::PermissionDenied, why.to_owned());
    let mounts = machine::own_mounts()?;
    let mount = mounts::holding(&mounts, path).ok_or_else(|| refused("it lies on no mount"))?;
    if !["proc", "sysfs", "cgroup", "cgroup2"].contains(&mount.filesystem.as_str()) {
        return Err(refused("it is not a kernel setting: it lies outside of /proc, /sys and control groups"));
    }
    let base = openat(CWD, &mount.point, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let inner = path.strip_prefix(&mount.point).map_err(|_| refused("it lies on no mount"))?;
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut file = File::from(openat2(&base, inner, flags, Mode::empty(), resolve)?);
    if ![PROC, SYSFS, CGROUP, CGROUP2].contains(&fstatfs(&file)?.f_type) {
        return Err(refused("it is not a kernel setting"));
    }
    file.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    const SCOPE: Scope<'_> = Scope { cookie: "me", same_boot: true, held: &[] };

    #[test]
    fn files_are_removed_only_below_what_the_journal_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        let (place, outside) = (at("place"), at("outside"));
        fs::create_dir_all(&place).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("precious"), "x").unwrap();
        symlink(&outside, place.join("link")).unwrap();
        let places = [place.clone()];
        for (path, why) in [
            (outside.join("precious"), "records no directory"),
            (place.join("../outside/precious"), "straight down"),
            (place.join("link/precious"), "a link now leads to"),
        ] {
            for change in [Change::file(path.clone()), Change::dir(path.clone())] {
                let error = undo(&change, &SCOPE, &places).unwrap_err().to_string();
                assert!(error.contains(why), "{error}");
            }
        }
        assert!(outside.join("precious").exists());
        // The place itself is never the owner's to remove.
        assert!(undo(&Change::dir(place.clone()), &SCOPE, &places).is_err() && place.exists());
        fs::write(place.join("own"), "x").unwrap();
        undo(&Change::file(place.join("own")), &SCOPE, &places).unwrap();
        assert!(!place.join("own").exists());
        undo(&Change::file(place.join("gone/own")), &SCOPE, &places).unwrap();
    }

    #[test]
    fn only_values_of_the_kernels_are_written_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("shadow");
        fs::write(&file, "precious").unwrap();
        symlink(&file, dir.path().join("link")).unwrap();
        let pid = std::process::id();
        for path in [
            file.clone(),
            dir.path().join("link"),
            // Inside of /proc by name alone.
            format!("/proc/{pid}/root{}", file.display()).into(),
            format!("/proc/{pid}/cwd/../../../..{}", file.display()).into(),
            format!("/sys/..{}", file.display()).into(),
        ] {
            let change = Change::Sysfs { path: path.clone(), before: "x".into() };
            let error = undo(&change, &SCOPE, &[]).unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), "precious", "{error}");
        }
        let own = PathBuf::from(format!("/proc/{pid}/coredump_filter"));
        fs::write(&own, "0x3f").unwrap();
        undo(&Change::Sysfs { path: own.clone(), before: "0x33".into() }, &SCOPE, &[]).unwrap();
        assert_eq!(fs::read_to_string(&own).unwrap().trim(), "00000033");
        // By a link within sysfs, as most of its paths have one.
        let inside = fs::read_dir("/sys/class/net").unwrap().flatten().next().map(|e| e.path().join("address"));
        if let Some(address) = inside {
            let error = write_back(&address, "x").unwrap_err();
            assert!(!error.to_string().contains("kernel setting"), "{error}");
        }
    }

    #[test]
    fn a_control_group_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let change = Change::Cgroup { paths: vec![dir.path().to_owned()] };
        assert!(undo(&change, &SCOPE, &[]).unwrap_err().to_string().contains("not a control group"));
        assert!(dir.path().exists());
    }
}
