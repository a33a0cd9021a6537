//! File servers that may give no answer: work on their paths has a time limit.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use crate::journal::error::NotUndone;
use crate::linux::mounts::NetworkMount;
use crate::{io_worker, machine};

/// How long a file server is waited for.
const LIMIT: Duration = Duration::from_secs(15);

/// The same for a server that gave no answer before, since a run has many changes to take back.
const SILENT_LIMIT: Duration = Duration::from_secs(1);

/// File servers that gave no answer to this process.
static SILENT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Works on a path. Where its server does not answer, the kernel would wait for ever (nfs(5), `hard`); this gives up,
/// and the change stays in the journal.
pub(crate) fn answering<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NotUndone> {
    // A worker may hang: whoever started it gives it up.
    let server = machine::may_hang(path).filter(|_| !io_worker::is_worker());
    let Some(NetworkMount { server, .. }) = server else { return Ok(work()) };
    let limit = patience(&server);
    machine::within(limit, work).ok_or_else(|| silent(path, server, limit))
}

/// How long a server is waited for.
pub(crate) fn patience(server: &str) -> Duration {
    if machine::lock(&SILENT).contains(server) { SILENT_LIMIT } else { LIMIT }
}

/// Records that a server gave no answer about a path, as an error.
pub(crate) fn silent(path: &Path, server: String, waited: Duration) -> NotUndone {
    machine::lock(&SILENT).insert(server.clone());
    NotUndone::Silent { path: path.to_owned(), server, waited }
}
