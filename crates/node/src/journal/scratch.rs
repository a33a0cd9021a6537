//! Scratch files and directories of an owner: made by descriptors, and noted with which they are.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::{ChangeId, Journal, Line, State, write_line};
use crate::journal::change::Change;
use crate::journal::held::{self, Astray, Identity};
use crate::machine::lock;
use crate::{Error, Result};

/// Scratch directories that are held, by the path that their maker knows them by.
pub(super) type Held = Vec<(ChangeId, PathBuf, Arc<OwnedFd>)>;

impl Journal {
    /// Makes a new, empty file of mode 0600 that is removed at the end. In a scratch directory that is
    /// held ([`Journal::scratch_dir_in`]) it is made by that directory's descriptor.
    ///
    /// # Errors
    /// When something is at the path already, or it cannot be made.
    pub fn scratch_file(&self, path: &Path) -> Result<(File, ChangeId)> {
        let parent = self.parent(path)?;
        self.make_new(path, Change::file(path), &parent, |name| {
            let file = held::make_file(&parent, name)?;
            let made = Identity::of(&file)?;
            Ok((file, made))
        })
    }

    /// Makes a new directory of mode 0700 that is removed at the end, with all that is in it. It is
    /// used by its path: for directories that nobody else can exchange.
    ///
    /// # Errors
    /// When something is at the path already, or it cannot be made.
    pub fn scratch_dir(&self, path: &Path) -> Result<ChangeId> {
        let parent = self.parent(path)?;
        Ok(self.make_dir(&parent, path)?.1)
    }

    /// As [`Journal::scratch_dir`] in a directory that is held: `path` is where that was opened, with
    /// the new name. The new one is held, too: [`Journal::scratch_file`] makes files in it by its
    /// descriptor.
    ///
    /// # Errors
    /// As [`Journal::scratch_dir`]; also when another user has put a directory in its place.
    pub fn scratch_dir_in(&self, parent: &OwnedFd, path: &Path) -> Result<ChangeId> {
        let (dir, id) = self.make_dir(parent, path)?;
        lock(&self.state).held.push((id, path.to_owned(), Arc::new(dir)));
        Ok(id)
    }

    fn make_dir(&self, parent: &OwnedFd, path: &Path) -> Result<(OwnedFd, ChangeId)> {
        self.make_new(path, Change::dir(path), parent, |name| {
            let dir = held::make_scratch_dir(parent, name, self.cookie())?;
            let made = Identity::of(&dir)?;
            Ok((dir, made))
        })
    }

    /// Whether this owner holds a scratch directory by this path.
    pub fn holds(&self, dir: &Path) -> bool {
        lock(&self.state).held.iter().any(|(_, held, _)| held == dir)
    }

    /// Whether the path of a scratch directory that is held still leads to it.
    ///
    /// # Errors
    /// What it leads to instead.
    pub fn leads_to_held(&self, dir: &Path) -> Result<(), Astray> {
        let held = lock(&self.state).held.iter().find(|(_, held, _)| held == dir).map(|(.., fd)| Arc::clone(fd));
        held.map_or(Ok(()), |held| held::leads_to(dir, &held))
    }

    /// The directory that a path lies in: one that is held, or whatever the path leads to.
    fn parent(&self, path: &Path) -> Result<Arc<OwnedFd>> {
        let above = path.parent().unwrap_or(Path::new("/"));
        if let Some((_, _, held)) = lock(&self.state).held.iter().find(|(_, dir, _)| dir == above) {
            return Ok(Arc::clone(held));
        }
        held::follow_dir(above).map(Arc::new).map_err(not_made(path))
    }

    fn make_new<T>(
        &self,
        path: &Path,
        change: Change,
        parent: &OwnedFd,
        make: impl FnOnce(&OsStr) -> io::Result<(T, Identity)>,
    ) -> Result<(T, ChangeId)> {
        let fail = || not_made(path);
        let name = path.file_name().ok_or_else(|| fail()(io::ErrorKind::InvalidInput.into()))?;
        // Checked before it is recorded: an existing file must not be removed.
        if held::stat_in(parent, name).is_ok_and(|found| found.is_some()) {
            return Err(fail()(Errno::EXIST.into()));
        }
        let ((made, identity), id) = self.make(change, || make(name))?.map_err(fail())?;
        self.note(id, identity)?;
        Ok((made, id))
    }

    /// Records the identity of what was made. It need not reach the disk at once: without it the owner's mark and the
    /// name identify it.
    fn note(&self, id: ChangeId, identity: Identity) -> Result<()> {
        let mut state = lock(&self.state);
        let State { file, live, .. } = &mut *state;
        let Some((_, change)) = live.iter_mut().find(|(i, _)| *i == id) else { return Ok(()) };
        *change = change.clone().with_identity(identity);
        let line = Line::Do { id, change: change.clone() };
        write_line(file, &line).map_err(|e| self.error(format!("cannot write: {e}")))
    }
}

fn not_made(path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::File { node: "local".into(), what: "make", path, source }
}
