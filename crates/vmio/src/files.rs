//! Writes the files of the command line: reports, metrics.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use vmio_model::failure::{Exit, Failure};

/// Whether an error says that a disk or quota is full.
pub fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// The failure of a file that cannot be written.
pub fn unwritable(file: &Path) -> Failure {
    Failure::new(Exit::Failed, format!("{} cannot be written", file.display()))
        .help("name a file in an existing directory that you may write")
}

/// Writes a whole file; a plain file that could not be written whole is removed.
pub fn write(file: &Path, content: &str) -> anyhow::Result<()> {
    let mut out = File::create(file).map_err(|e| with_help(file, e))?;
    // A disk that fills up may say so only here.
    let synced = |out: &File| match out.sync_all() {
        Err(e) if is_full(&e) => Err(e),
        _ => Ok(()),
    };
    let done = out.write_all(content.as_bytes()).and_then(|()| synced(&out));
    done.map_err(|e| {
        if out.metadata().is_ok_and(|m| m.is_file()) {
            let _ = std::fs::remove_file(file);
        }
        with_help(file, e)
    })
}

/// The error with a help.
pub fn with_help(file: &Path, e: io::Error) -> anyhow::Error {
    let failure = if is_full(&e) {
        let dir = file.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Failure::new(Exit::Failed, format!("the disk of {} is full: {} was not written", dir.display(), file.display()))
            .help("free some space there, or name a file elsewhere; the measured data is kept")
    } else {
        unwritable(file)
    };
    anyhow::Error::new(e).context(failure)
}
