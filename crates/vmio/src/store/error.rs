//! Errors of the store, with the path in the message; [`StoreError::help`] says what to do.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use vmio_model::failure::{Exit, Failure};

/// How long to wait for another process's write.
pub(super) const BUSY_SECONDS: u64 = 10;

/// What to do about a full disk.
const FULL: &str = "free some space there, or keep the store elsewhere: --state DIR; the measured data is kept";

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum StoreError {
    #[error("no runs yet: {} is missing or empty", path.display())]
    Missing { path: PathBuf },
    #[error("the store has no run {id}")]
    NoRun { id: i64, nearest: Option<i64>, last: Option<i64> },
    #[error("run {id} is still being measured by another vmio")]
    Owned { id: i64 },
    #[error("{} was written by another version of vmio (its format is {found}, this one's is {known})", path.display())]
    OtherFormat { path: PathBuf, found: i64, known: i64 },
    #[error("{} is not a store of vmio, or is damaged", path.display())]
    Corrupt { path: PathBuf, source: Option<rusqlite::Error> },
    #[error("{} is not a vmio store: {what}", path.display())]
    Foreign { path: PathBuf, what: String },
    #[error("{} is unsafe: {why}", path.display())]
    Untrusted { path: PathBuf, why: String, help: String },
    #[error("{} holds more than vmio imports: {what}", path.display())]
    TooMuch { path: PathBuf, what: String },
    #[error("a query to {} did not finish", path.display())]
    Endless { path: PathBuf },
    #[error("no such file: {}", path.display())]
    NoFile { path: PathBuf },
    #[error("the disk of {} is full", path.parent().unwrap_or(path).display())]
    Full { path: PathBuf, source: rusqlite::Error },
    #[error("cannot write {}", path.display())]
    Denied { path: PathBuf, source: Option<rusqlite::Error> },
    #[error("{} stayed locked by another process for {} seconds", path.display(), BUSY_SECONDS)]
    Busy { path: PathBuf, source: rusqlite::Error },
    #[error("cannot {what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{what} in {} cannot be read back", path.display())]
    Json { what: String, path: PathBuf, source: serde_json::Error },
    #[error("the study of run {run} in {} cannot be read back", path.display())]
    Study { run: i64, path: PathBuf, source: toml::de::Error },
    #[error("{}{}: not an export of a run that vmio can import: {what}", path.display(), place(*at))]
    Export { path: PathBuf, at: Option<(usize, usize)>, what: String },
    #[error("the sample of {cell} holds a figure that is not a finite number")]
    NotFinite { cell: String, source: serde_json::Error },
    #[error("the store {} failed", path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
}

impl StoreError {
    /// Sorts an error of SQLite by what the user must do about it.
    pub(super) fn of(path: &Path, source: rusqlite::Error) -> StoreError {
        let path = path.to_path_buf();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                StoreError::Corrupt { path, source: Some(source) }
            }
            Some(ErrorCode::DiskFull) => StoreError::Full { path, source },
            // The log's index is a file that is mapped: SQLite has no word of its own for its lack of room.
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) if no_room(&path) => {
                StoreError::Full { path, source }
            }
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
                StoreError::Denied { path, source: Some(source) }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy { path, source },
            Some(ErrorCode::OperationInterrupted) => StoreError::Endless { path },
            Some(ErrorCode::TooBig) => StoreError::TooMuch { path, what: "a text in it is longer than 64 MiB".into() },
            _ => StoreError::Sqlite { path, source },
        }
    }

    /// What to do about it.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            StoreError::Missing { .. } => "start one with `vmio tax`, or name another store: --state DIR".into(),
            StoreError::NoRun { nearest: None, .. } => "it is empty: start a run with `vmio tax`".into(),
            StoreError::NoRun { nearest: Some(near), last: Some(last), .. } if near != last => {
                format!("the nearest is {near}, the last is {last}; `vmio runs list` shows all")
            }
            StoreError::NoRun { nearest: Some(near), .. } => {
                format!("the last is {near}; `vmio runs list` shows all")
            }
            StoreError::Owned { .. } => "wait for it, or end it with Ctrl-C where it runs".into(),
            StoreError::OtherFormat { .. } => {
                "use that version, or keep this version's runs elsewhere (--state DIR); to move a run: `vmio runs \
                 export N > run.json` with that version, `vmio runs import run.json` with this one"
                    .into()
            }
            StoreError::Corrupt { path, .. } => format!(
                "move it away (mv {0} {0}.bad) to begin a new store; `sqlite3 {0}.bad .recover` may save its runs",
                path.display()
            ),
            StoreError::Foreign { .. } | StoreError::Endless { .. } => {
                "it was changed by another program: keep this vmio's runs elsewhere (--state DIR)".into()
            }
            StoreError::TooMuch { .. } => {
                "the limits are in docs/runs.md (\"Import\"): split what was measured into more runs".into()
            }
            StoreError::Untrusted { help, .. } => format!(
                "{help}; the owner of a store can hand over a run: `vmio runs export N > run.json` there, `vmio runs \
                 import run.json` here"
            ),
            StoreError::Full { .. } => FULL.into(),
            StoreError::Denied { path, .. } => format!(
                "check who owns {} and that its file system is writable, or name another directory: --state DIR",
                path.parent().unwrap_or(path).display()
            ),
            StoreError::Busy { .. } => "wait until the other vmio has finished, then try again".into(),
            StoreError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => FULL.into(),
            StoreError::Io { path, .. } => {
                format!("check {} and its directory, or name another directory: --state DIR", path.display())
            }
            StoreError::Json { .. } | StoreError::Study { .. } => {
                "the run was written by another version of vmio: show it with that version".into()
            }
            StoreError::NoFile { .. } | StoreError::Export { .. } => {
                "give a file that `vmio runs export N --format json` wrote".into()
            }
            StoreError::NotFinite { .. } | StoreError::Sqlite { .. } => return None,
        })
    }

    /// Its exit code.
    pub fn exit(&self) -> Exit {
        match self {
            StoreError::Missing { .. }
            | StoreError::NoFile { .. }
            | StoreError::Denied { .. }
            | StoreError::Untrusted { .. }
            | StoreError::Owned { .. }
            | StoreError::Io { .. } => Exit::Precondition,
            StoreError::NoRun { .. } => Exit::Usage,
            _ => Exit::Failed,
        }
    }
}

/// `:12:5`, the place in a file, where it is known.
fn place(at: Option<(usize, usize)>) -> String {
    at.map_or_else(String::new, |(line, column)| format!(":{line}:{column}"))
}

/// Whether the file system has less room left than SQLite needs for its log.
fn no_room(path: &Path) -> bool {
    rustix::fs::statvfs(path.parent().unwrap_or(path)).is_ok_and(|fs| fs.f_bavail * fs.f_frsize < 128 << 10)
}

/// The error of a directory that cannot be used.
impl From<vmio_node::Error> for StoreError {
    fn from(e: vmio_node::Error) -> StoreError {
        match e {
            vmio_node::Error::Untrusted { path, why, mend } => StoreError::Untrusted { path, why, help: mend },
            vmio_node::Error::File { what, path, source, .. } => StoreError::Io { what, path, source },
            other => StoreError::Io { what: "look at", path: PathBuf::new(), source: io::Error::other(other) },
        }
    }
}

impl From<&StoreError> for Failure {
    fn from(e: &StoreError) -> Failure {
        Failure { exit: e.exit(), message: e.to_string(), help: e.help() }
    }
}
