//! How much of files the host's page cache holds: cachestat(2) where the kernel has it (Linux 6.5),
//! whose cost is that of what is cached; else `fincore`, whose mincore(2) takes time for each page
//! of a file, cached or not (20 ms a GiB were measured), so that only so much is counted with it.
//!
//! mincore(2) calls every page resident to those who may not write the file: an answer "all of it"
//! is only believed of root.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use vmio_model::facts::Unread;
use vmio_node::{At, Peek, Reader};

use crate::host_view::{HostView, Question};
use crate::parallel;
use crate::require::{self, Fix};

/// Bytes of files that `fincore` looks through in one scan, the smallest files first.
const FINCORE_BYTES: u64 = 32 << 30;
/// Files of one call.
const FINCORE_FILES: usize = 32;

/// Bytes and how they were counted, or why they were not.
pub type Held = std::result::Result<(u64, &'static str), Unread>;

/// What a file spans, and what the kernel said of it when it was looked at.
#[derive(Debug, Clone)]
pub struct Span {
    /// Bytes from its beginning to its end.
    pub bytes: u64,
    /// Where it may be looked at once more.
    pub at: At,
    /// Bytes that are cached; `None` where this kernel cannot count them.
    pub counted: Result<Option<u64>, Unread>,
}

/// What a look at a file says of it, and why not.
pub fn cached_of(reader: &dyn Reader, file: &Path, seen: vmio_node::Result<Peek>) -> Result<Option<u64>, Unread> {
    let cached = seen.and_then(|peek| peek.cached_bytes);
    cached.map_err(|e| uncounted(reader, file, &e))
}

/// Bytes that the page cache holds of each file. What cannot be counted on this kernel is not listed.
pub fn held(look: &HostView<'_>, files: BTreeMap<PathBuf, Span>) -> BTreeMap<PathBuf, Held> {
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
        let mend = "a kernel of version 6.5 or newer counts them at once".to_owned();
        held.insert(file.clone(), Err(unread(&file, why, mend)));
    }
    let calls: Vec<&[(u64, PathBuf, At)]> = some.chunks(FINCORE_FILES).collect();
    let root = require::root(look.reader()).is_ok();
    for counted in parallel::map(calls, |files| fincore(look, files, root)) {
        held.extend(counted);
    }
    held
}

fn uncounted(reader: &dyn Reader, file: &Path, error: &vmio_node::Error) -> Unread {
    unread(file, error.to_string(), Fix::of(error, "look again").words(reader))
}

fn unread(file: &Path, why: String, mend: String) -> Unread {
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

/// By `fincore`, which is given files that are held here: their names may be others' by now.
fn fincore(look: &HostView<'_>, files: &[(u64, PathBuf, At)], root: bool) -> Vec<(PathBuf, Held)> {
    let mut answers = Vec::new();
    let mut peeks = Vec::new();
    for (_, file, at) in files {
        match look.reader().peek(at, 0) {
            Ok(peek) => peeks.push((file, peek)),
            Err(e) => answers.push((file.clone(), Err(uncounted(look.reader(), file, &e)))),
        }
    }
    let paths: Vec<PathBuf> = peeks.iter().map(|(_, peek)| peek.path.clone()).collect();
    if paths.is_empty() {
        return answers;
    }
    let lines = match look.ask(&Question::PageCache { paths }) {
        Ok(json) => serde_json::from_str::<FincoreOutput>(&json).map(|told| told.fincore).unwrap_or_default(),
        // One file that cannot be opened spoils the answer for all.
        Err(_) if files.len() > 1 => {
            return files.iter().flat_map(|file| fincore(look, std::slice::from_ref(file), root)).collect();
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
            let why = "the kernel tells it only to those who may write the file".to_owned();
            return Some(((*file).clone(), Err(unread(file, why, Fix::Root.words(look.reader())))));
        }
        Some(((*file).clone(), Ok((line.res, "fincore"))))
    };
    answers.extend(peeks.iter().filter_map(of));
    answers
}
