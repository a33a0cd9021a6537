//! A machine made of a map of files, for the tests of this folder.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error as IoError, ErrorKind};
use std::path::{Path, PathBuf};

use vmio_node::{Error, FileStat, Reader, Result, SamplePlan, Sampling};

/// Files by path; directories follow from them.
#[derive(Default)]
pub struct Fake(pub BTreeMap<PathBuf, Vec<u8>>);

impl Fake {
    /// Adds a file.
    pub fn file(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.0.insert(path.into(), content.as_ref().to_vec());
        self
    }

    /// Adds a process: `args` is its command line, `environ` pairs of `NAME=value`.
    pub fn process(self, pid: u32, comm: &str, args: &[&str], environ: Option<&[&str]>, tids: &[u32]) -> Self {
        let zero = |parts: &[&str]| parts.iter().flat_map(|p| p.bytes().chain([0])).collect::<Vec<u8>>();
        let mut fake = self
            .file(&format!("/proc/{pid}/comm"), format!("{comm}\n"))
            .file(&format!("/proc/{pid}/cmdline"), zero(args));
        if let Some(environ) = environ {
            fake = fake.file(&format!("/proc/{pid}/environ"), zero(environ));
        }
        for tid in tids {
            fake = fake.file(&format!("/proc/{pid}/task/{tid}/comm"), "x\n");
        }
        fake
    }

    fn missing<T>(&self, what: &'static str, path: &Path) -> Result<T> {
        let source = IoError::from(ErrorKind::NotFound);
        Err(Error::File { node: "fake".into(), what, path: path.into(), source })
    }
}

impl Reader for Fake {
    fn name(&self) -> &str {
        "fake"
    }
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.0.get(path).cloned().map_or_else(|| self.missing("read", path), Ok)
    }
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let names: BTreeSet<String> = (self.0.keys())
            .filter_map(|p| p.strip_prefix(dir).ok()?.components().next())
            .map(|c| c.as_os_str().to_string_lossy().into_owned())
            .collect();
        if names.is_empty() { self.missing("list", dir) } else { Ok(names.into_iter().collect()) }
    }
    fn stat(&self, path: &Path) -> Result<Option<FileStat>> {
        let there = self.0.keys().any(|p| p.starts_with(path));
        Ok(there.then_some(FileStat { mode: 0o100_644, size: 0, allocated: 0, dev: (0, 1), rdev: (0, 0) }))
    }
    fn link(&self, _: &Path) -> Result<Option<PathBuf>> {
        Ok(None)
    }
    fn clock_seconds(&self) -> Result<f64> {
        Ok(0.0)
    }
    fn sample(&self, _: &SamplePlan) -> Result<Box<dyn Sampling>> {
        self.missing("sample", Path::new("/"))
    }
}
