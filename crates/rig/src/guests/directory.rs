//! The directory of a guest, with its sockets and logs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vmio_node::{ChangeId, Journal};

use super::{Error, LaunchCtx, Result, file_error};

/// `sun_path` of unix(7), without the final zero.
const SOCKET_PATH: usize = 107;

/// A guest's directory, taken away when it goes out of scope.
pub struct Directory {
    name: String,
    path: PathBuf,
    journal: Arc<Journal>,
    change: ChangeId,
}

impl Directory {
    /// Makes that of the guest of this name.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(ctx: &LaunchCtx<'_>, name: &str) -> Result<Self> {
        let path = ctx.run_dir.join(name);
        fs::create_dir_all(ctx.run_dir).map_err(file_error("make", ctx.run_dir))?;
        let change = ctx.journal.scratch_dir(&path)?;
        Ok(Self { name: name.to_owned(), path, journal: Arc::clone(&ctx.journal), change })
    }

    /// The path of a socket in it.
    ///
    /// # Errors
    /// When it is too long for one.
    pub fn socket(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fits_a_socket(&self.name, &path).map(|()| path)
    }
}

/// The name of a guest, as its directory and others use it.
///
/// # Errors
/// When it has other characters.
pub fn fits_a_name(name: &str) -> Result<()> {
    if !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Ok(());
    }
    let reason = "a guest's name consists of letters, digits and `-`".into();
    Err(Error::Spec { guest: name.to_owned(), reason })
}

/// Whether a path can be a socket's.
///
/// # Errors
/// When it is too long for one.
pub fn fits_a_socket(guest: &str, path: &Path) -> Result<()> {
    let length = path.as_os_str().len();
    if length <= SOCKET_PATH {
        return Ok(());
    }
    let reason = format!(
        "the path of its sockets, {}, has {length} bytes and may have {SOCKET_PATH}: choose a shorter run directory",
        path.display()
    );
    Err(Error::Spec { guest: guest.to_owned(), reason })
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be undone stays in the journal, and its owner tells it.
        let _ = self.journal.undo(self.change);
    }
}
