//! Files of `/proc` and `/sys` that are read repeatedly. On this machine they stay open: the kernel makes their content
//! anew for each `pread` at offset 0, and opening is most of the cost (`vmio_node`'s sampler does the same). Through a
//! [`Reader`] each read opens the file.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vmio_node::Reader;

/// Descriptors reserved for everything else.
const SPARE: u64 = 256;
/// Larger files are cut off.
const LARGEST: usize = 8 << 20;

/// Reads files that may stay open.
pub(super) struct Files<'a> {
    reader: &'a dyn Reader,
    /// Most files that stay open; 0 through a reader.
    most: usize,
    open: Arc<AtomicUsize>,
    buffer: Vec<u8>,
}

impl<'a> Files<'a> {
    /// Reads by `reader`; with `keep` directly from this machine.
    pub fn new(reader: &'a dyn Reader, keep: bool) -> Self {
        let most = if keep { descriptors() } else { 0 };
        Self { reader, most, open: Arc::default(), buffer: vec![0; 16 << 10] }
    }

    pub fn reader(&self) -> &'a dyn Reader {
        self.reader
    }

    /// Whether files of this machine are read directly.
    pub fn local(&self) -> bool {
        self.most > 0
    }

    /// The content; `None` when it cannot be read.
    pub fn read(&mut self, kept: &mut PolledFile) -> Option<&str> {
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

/// A file that is read repeatedly.
pub(super) struct PolledFile {
    path: PathBuf,
    file: Option<Open>,
}

impl PolledFile {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: None }
    }

    /// Takes over another one's open file, if the path is the same.
    pub fn resume(&mut self, old: PolledFile) {
        if self.path == old.path {
            *self = old;
        }
    }
}

/// An open file, counted.
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

/// Files that may stay open, after raising this process's limit.
fn descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        // On failure fewer files stay open, which only costs time.
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
