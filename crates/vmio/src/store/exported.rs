//! Reads a run as `vmio runs export --format json` prints it. Anybody may have made the file: its size and the number
//! of its values are bounded before it is read, its types are checked, and errors have their place in the file.

use std::borrow::Cow;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use serde::Deserialize;
use vmio_model::run::Run;
use vmio_model::summary::SCHEMA_VERSION;

use super::bounds::{self, Weight};
use super::{Result, StoreError};

/// Longest file that is read; that of a run of a day has some 100 MB.
const LONGEST: u64 = 256 << 20;

/// The part of an export that is checked before the rest is read.
#[derive(Deserialize)]
struct Head<'a> {
    schema_version: Option<String>,
    #[serde(borrow)]
    study_toml: Option<Cow<'a, str>>,
}

/// The run in an export.
pub(super) fn read(path: &Path) -> Result<Run> {
    let text = text(path)?;
    let fault = |what: String| StoreError::Export { path: path.into(), at: None, what };
    Weight::default().add(&text).map_err(|why| fault(why.to_string()))?;
    let head: Head<'_> = parse(path, &text)?;
    bounds::short("its study", head.study_toml.as_ref().map_or(0, |study| study.len()), bounds::STUDY)
        .map_err(|why| fault(why.to_string()))?;
    let Some(version) = head.schema_version else {
        return Err(fault("it has no `schema_version`".into()));
    };
    let parts = |version: &str| -> Option<(u32, u32)> {
        let (major, minor) = version.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let run: Run = match (parts(&version), parts(SCHEMA_VERSION)) {
        (Some(found), Some(known)) if found.0 == known.0 && found.1 <= known.1 => parse(path, &text)?,
        (Some(found), Some(known)) if found > known => {
            return Err(fault(format!("its schema version is {version}, this vmio knows up to {SCHEMA_VERSION}")));
        }
        _ => return Err(fault(format!("unknown schema version {version:?}"))),
    };
    let uneven = run.samples.iter().position(|s| s.beside.len() != s.cell.beside.len());
    match uneven {
        Some(at) => Err(fault(format!("`samples[{at}]` does not have one result for each actor of its cell"))),
        None => Ok(run),
    }
}

/// The text of a file that begins as a JSON object does.
fn text(path: &Path) -> Result<Vec<u8>> {
    let io = |what: &'static str| move |source| StoreError::Io { what, path: path.into(), source };
    let fault = |what: &str| StoreError::Export { path: path.into(), at: None, what: what.into() };
    let plain = |found: &Metadata| match found.file_type() {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(fault("it is a directory")),
        kind if kind.is_fifo() => Err(fault("it is a pipe, and only a plain file is read")),
        _ => Err(fault("it is not a plain file")),
    };
    // Checked before it is opened.
    match fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(StoreError::NoFile { path: path.into() }),
        found => plain(&found.map_err(io("look at"))?)?,
    }
    // Opening a pipe would block until another process writes.
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits();
    let opened = OpenOptions::new().read(true).custom_flags(flags as i32).open(path);
    let mut file = opened.map_err(io("open"))?;
    let found = file.metadata().map_err(io("look at"))?;
    plain(&found)?;
    let mut first = Vec::new();
    file.by_ref().take(4096).read_to_end(&mut first).map_err(io("read"))?;
    if first.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(fault("it is not a JSON object"));
    }
    file.seek(SeekFrom::Start(0)).map_err(io("read"))?;
    let mut text = Vec::new();
    // The file may grow while it is read.
    if found.len() <= LONGEST {
        file.take(LONGEST + 1).read_to_end(&mut text).map_err(io("read"))?;
    }
    if found.len().max(text.len() as u64) > LONGEST {
        return Err(fault(&format!("it is longer than {} MiB", LONGEST >> 20)));
    }
    Ok(text)
}

/// The error has line and column.
fn parse<'a, T: Deserialize<'a>>(path: &Path, text: &'a [u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|e| {
        let place = format!(" at line {} column {}", e.line(), e.column());
        let what = e.to_string();
        let what = what.strip_suffix(&place).unwrap_or(&what).to_owned();
        StoreError::Export { path: path.into(), at: (e.line() > 0).then(|| (e.line(), e.column())), what }
    })
}
