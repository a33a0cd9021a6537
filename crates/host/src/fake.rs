//! A machine of recorded files for unit tests of code that only looks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vmio_node::{Error, FileStat, Reader, Result, SamplePlan, Sampling};

/// Files by path, with their permission bits.
#[derive(Debug, Default)]
pub struct Fake {
    files: BTreeMap<PathBuf, (Vec<u8>, u32)>,
}

impl Fake {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>, content: impl AsRef<[u8]>, mode: u32) -> Self {
        self.files.insert(path.into(), (content.as_ref().to_vec(), mode));
        self
    }

    fn missing(&self, what: &'static str, path: &Path) -> Error {
        Error::File { node: "fake".into(), what, path: path.into(), source: std::io::ErrorKind::NotFound.into() }
    }
}

impl Reader for Fake {
    fn name(&self) -> &str {
        "fake"
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.files.get(path).map(|f| f.0.clone()).ok_or_else(|| self.missing("read", path))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let mut names: Vec<String> = self
            .files
            .keys()
            .filter_map(|p| p.strip_prefix(dir).ok()?.iter().next()?.to_str().map(str::to_owned))
            .collect();
        names.dedup();
        if names.is_empty() { Err(self.missing("list", dir)) } else { Ok(names) }
    }

    fn stat(&self, path: &Path) -> Result<Option<FileStat>> {
        Ok(self.files.get(path).map(|(content, mode)| FileStat {
            mode: 0o100_000 | mode,
            size: content.len() as u64,
            allocated: 0,
            dev: (0, 0),
            rdev: (0, 0),
        }))
    }

    fn clock_seconds(&self) -> Result<f64> {
        Ok(0.0)
    }

    fn sample(&self, _: &SamplePlan) -> Result<Box<dyn Sampling>> {
        Err(Error::Protocol { node: "fake".into(), reason: "a fake has no schedule".into() })
    }
}
