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

use crate::look::{Look, Question};
use crate::parallel;
use crate::require;

/// Bytes of files that `fincore` looks through in one scan, the smallest files first.
const FINCORE_BYTES: u64 = 32 << 30;
/// Files of one call.
const FINCORE_FILES: usize = 32;

/// Bytes and how they were counted, or why they were not.
pub type Held = Result<(u64, &'static str), Unread>;

/// What a file spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Bytes from its beginning to its end.
    pub bytes: u64,
    /// Whether it lies on a server: then only `fincore` opens it, whose process can be ended.
    pub remote: bool,
}

/// Bytes that the page cache holds of each file. What cannot be counted on this kernel is not listed.
pub fn held(look: &Look<'_>, files: &BTreeMap<PathBuf, Span>) -> BTreeMap<PathBuf, Held> {
    let count = |(file, span): (&PathBuf, &Span)| match span.remote {
        true => Ok(None),
        false => look.reader().cached_bytes(file),
    };
    let quick = parallel::map(files.iter().collect(), count);
    let mut held = BTreeMap::new();
    let mut slow = Vec::new();
    for ((file, span), answer) in files.iter().zip(quick) {
        let span = span.bytes;
        match answer {
            Ok(Some(bytes)) => drop(held.insert(file.clone(), Ok((bytes, "cachestat(2)")))),
            Ok(None) => slow.push((span, file)),
            Err(e) => drop(held.insert(file.clone(), Err(unread(file, e.to_string(), mend(&e))))),
        }
    }
    slow.sort();
    let mut left = FINCORE_BYTES;
    let (some, rest): (Vec<_>, Vec<_>) = slow.into_iter().partition(|(span, _)| {
        let fits = *span <= left;
        left = left.saturating_sub(*span);
        fits
    });
    for (span, file) in rest {
        let why = format!("counting the cached pages of {} GiB would take long on this kernel", span >> 30);
        held.insert(file.clone(), Err(unread(file, why, "a kernel of version 6.5 or newer counts them at once")));
    }
    let calls: Vec<&[(u64, &PathBuf)]> = some.chunks(FINCORE_FILES).collect();
    let root = require::root(look.reader()).is_ok();
    for counted in parallel::map(calls, |files| fincore(look, files, root)) {
        held.extend(counted);
    }
    held
}

fn mend(error: &vmio_node::Error) -> &'static str {
    match error {
        vmio_node::Error::File { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => "run as root",
        _ => "look again",
    }
}

fn unread(file: &Path, why: String, mend: &str) -> Unread {
    Unread { what: format!("page cache of {}", file.display()), why, mend: mend.to_owned() }
}

#[derive(Deserialize)]
struct Told {
    fincore: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    res: u64,
    size: u64,
    file: PathBuf,
}

fn fincore(look: &Look<'_>, files: &[(u64, &PathBuf)], root: bool) -> Vec<(PathBuf, Held)> {
    let paths: Vec<PathBuf> = files.iter().map(|(_, file)| (*file).clone()).collect();
    let lines = match look.ask(&Question::PageCache { paths }) {
        Ok(json) => serde_json::from_str::<Told>(&json).map(|told| told.fincore).unwrap_or_default(),
        // One file that cannot be opened spoils the answer for all.
        Err(_) if files.len() > 1 => return files.iter().flat_map(|file| fincore(look, &[*file], root)).collect(),
        Err(e) => {
            return files
                .iter()
                .map(|(_, file)| ((*file).clone(), Err(unread(file, e.why.clone(), &e.mend))))
                .collect();
        }
    };
    let of = |file: &PathBuf| {
        let line = lines.iter().find(|l| l.file == *file)?;
        if line.size == 0 {
            return None; // a block device, which fincore does not look through
        }
        if !root && line.res >= line.size {
            let why = "the kernel reports it only to users who can write the file".to_owned();
            return Some(Err(unread(file, why, "run as root")));
        }
        Some(Ok((line.res, "fincore")))
    };
    files.iter().filter_map(|(_, file)| Some(((*file).clone(), of(file)?))).collect()
}
