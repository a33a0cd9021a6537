//! How much of a file the host's page cache holds: by cachestat(2) (Linux 6.5), whose cost depends on what is cached;
//! else by `fincore`, whose mincore(2) takes time for each page of the file (20 ms a GiB were measured), so that the
//! bytes counted with it are limited.
//!
//! mincore(2) calls every page resident for a user who may not write the file: "all of it" is believed of root only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use vmio_model::facts::{Remedy, Unread};
use vmio_node::{At, Peek, Reader};

use crate::host_view::{HostView, Question};
use crate::parallel;
use crate::require::{self, Fix};

/// Bytes of files that `fincore` looks through in one scan, the smallest files first.
const FINCORE_BYTES: u64 = 32 << 30;
/// Files of one call of `fincore`.
const FINCORE_FILES: usize = 32;

/// Bytes and the tool that counted them, or why they were not counted.
pub type CachedBytes = std::result::Result<(u64, &'static str), Unread>;

/// A file's size, and what cachestat(2) returned.
#[derive(Debug, Clone)]
pub struct Span {
    /// Size in bytes.
    pub bytes: u64,
    /// How the file can be opened again.
    pub at: At,
    /// Cached bytes; `None` where this kernel cannot count them.
    pub counted: Result<Option<u64>, Unread>,
}

/// Cached bytes from a peek at a file.
pub fn cached_of(reader: &dyn Reader, file: &Path, seen: vmio_node::Result<Peek>) -> Result<Option<u64>, Unread> {
    let cached = seen.and_then(|peek| peek.cached_bytes);
    cached.map_err(|e| uncounted(reader, file, &e))
}

/// Cached bytes of each file. A file for which `fincore` gives nothing is not listed.
pub fn held(host: &HostView<'_>, files: BTreeMap<PathBuf, Span>) -> BTreeMap<PathBuf, CachedBytes> {
    let mut held = BTreeMap::new();
    let mut slow = Vec::new();
    for (file, span) in files {
        match span.counted {
            Ok(Some(bytes)) => drop(held.insert(file, Ok((bytes, "cachestat(2)")))),
            Ok(None) => slow.push((span.bytes, file, span.at)),
            Err(unread) => drop(held.insert(file, Err(unread))),
        }
    }
    slow.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let mut left = FINCORE_BYTES;
    let (some, rest): (Vec<_>, Vec<_>) = slow.into_iter().partition(|(span, ..)| {
        let fits = *span <= left;
        left = left.saturating_sub(*span);
        fits
    });
    for (span, file, _) in rest {
        let why = format!("counting the cached pages of {} GiB would take long on this kernel", span >> 30);
        let mend = "a kernel of version 6.5 or newer counts them at once".into();
        held.insert(file.clone(), Err(unread(&file, why, mend)));
    }
    let calls: Vec<&[(u64, PathBuf, At)]> = some.chunks(FINCORE_FILES).collect();
    let root = require::root(host.reader()).is_ok();
    for counted in parallel::map(calls, |files| fincore(host, files, root)) {
        held.extend(counted);
    }
    held
}

fn uncounted(reader: &dyn Reader, file: &Path, error: &vmio_node::Error) -> Unread {
    unread(file, error.to_string(), Fix::of(error, "look again").remedy(reader))
}

fn unread(file: &Path, why: String, mend: Remedy) -> Unread {
    Unread { what: format!("page cache of {}", file.display()), why, mend }
}

/// The output of `fincore --json`.
#[derive(Deserialize)]
struct FincoreOutput {
    fincore: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    res: u64,
    size: u64,
    file: PathBuf,
}

/// By `fincore`, which is given descriptors that are open here, since another file may have the name by now.
fn fincore(host: &HostView<'_>, files: &[(u64, PathBuf, At)], root: bool) -> Vec<(PathBuf, CachedBytes)> {
    let mut answers = Vec::new();
    let mut peeks = Vec::new();
    for (_, file, at) in files {
        match host.reader().peek(at, 0) {
            Ok(peek) => peeks.push((file, peek)),
            Err(e) => answers.push((file.clone(), Err(uncounted(host.reader(), file, &e)))),
        }
    }
    let paths: Vec<PathBuf> = peeks.iter().map(|(_, peek)| peek.path.clone()).collect();
    if paths.is_empty() {
        return answers;
    }
    let lines = match host.ask(&Question::PageCache { paths }) {
        Ok(json) => serde_json::from_str::<FincoreOutput>(&json).map(|output| output.fincore).unwrap_or_default(),
        // One file that cannot be opened spoils the answer for all: query them one by one.
        Err(_) if files.len() > 1 => {
            return files.iter().flat_map(|file| fincore(host, std::slice::from_ref(file), root)).collect();
        }
        Err(e) => {
            let refused = |file: &Path| Err(unread(file, e.why.clone(), e.mend.clone()));
            answers.extend(peeks.iter().map(|(file, _)| ((*file).clone(), refused(file))));
            return answers;
        }
    };
    let of = |(file, peek): &(&PathBuf, Peek)| {
        let line = lines.iter().find(|l| l.file == peek.path)?;
        if line.size == 0 {
            return None; // a block device, which fincore does not look through
        }
        if !root && line.res >= line.size {
            let why = "the kernel shows it only to users who may write the file".to_owned();
            return Some(((*file).clone(), Err(unread(file, why, Fix::Root.remedy(host.reader())))));
        }
        Some(((*file).clone(), Ok((line.res, "fincore"))))
    };
    answers.extend(peeks.iter().filter_map(of));
    answers
}
