//! Files of `/proc` and `/sys` that are read again and again. On this machine they stay open: the
//! kernel makes their content anew for each `pread` at offset 0, and opening is most of the cost
//! (as `vmio_node`'s sampler does it). Through a [`Reader`] each reading opens anew.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vmio_node::Reader;

/// Descriptors that are left for all else.
const SPARE: u64 = 256;
/// A file larger than this is cut.
const LARGEST: usize = 8 << 20;

/// How files are read.
pub(super) struct Files<'a> {
    reader: &'a dyn Reader,
    /// Descriptors that may be kept open; 0 through a reader.
    most: usize,
    open: Arc<AtomicUsize>,
    buffer: Vec<u8>,
}

impl<'a> Files<'a> {
    /// Through a reader, or with `keep` on this very machine.
    pub fn new(reader: &'a dyn Reader, keep: bool) -> Self {
        let most = if keep { descriptors() } else { 0 };
        Self { reader, most, open: Arc::default(), buffer: vec![0; 16 << 10] }
    }

    pub fn reader(&self) -> &'a dyn Reader {
        self.reader
    }

    /// Whether it is this very machine.
    pub fn local(&self) -> bool {
        self.most > 0
    }

    /// The content; `None` when it cannot be read.
    pub fn read(&mut self, kept: &mut Kept) -> Option<&str> {
        if self.most == 0 {
            self.buffer = self.reader.read(&kept.path).ok()?;
            return std::str::from_utf8(&self.buffer).ok();
        }
        let fresh = match kept.file.take() {
            Some(open) => open,
            None => Open::new(File::open(&kept.path).ok()?, &self.open),
        };
        let read = read_at_start(&fresh.file, &mut self.buffer)?;
        if self.open.load(Ordering::Relaxed) <= self.most {
            kept.file = Some(fresh);
        }
        std::str::from_utf8(&self.buffer[..read]).ok()
    }
}

/// A file that is read again.
pub(super) struct Kept {
    path: PathBuf,
    file: Option<Open>,
}

impl Kept {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: None }
    }

    /// Goes on with the open file of another, if it is of the same path.
    pub fn resume(&mut self, old: Kept) {
        if self.path == old.path {
            *self = old;
        }
    }
}

/// An open file that counts.
struct Open {
    file: File,
    count: Arc<AtomicUsize>,
}

impl Open {
    fn new(file: File, count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self { file, count: Arc::clone(count) }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many may stay open, after this process's own limit was raised as far as it may be.
fn descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        // Else fewer stay open, which only costs time.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    let now = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    usize::try_from(now.saturating_sub(SPARE).max(1)).unwrap_or(usize::MAX)
}

fn read_at_start(file: &File, buffer: &mut Vec<u8>) -> Option<usize> {
    let mut filled = 0;
    loop {
        if filled == buffer.len() {
            if filled >= LARGEST {
                return Some(filled);
            }
            buffer.resize(filled * 2, 0);
        }
        match rustix::io::pread(file, &mut buffer[filled..], filled as u64) {
            Ok(0) => return Some(filled),
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}
