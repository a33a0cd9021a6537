//! A machine of files and device nodes with their device numbers, for unit tests of code that
//! only looks at them (the node crate's fake machine knows no device numbers).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{made_identity, says};
use crate::linux::kind;
use crate::{Error, Fake, FileIdentity, FileStat, Node, Reader, Result, SamplePlan, Sampling, made_up_others};

/// A machine of root's on which these programs are, each of which always says the same.
pub fn host(programs: &[(&str, &str)]) -> Fake {
    let mut fake = Fake::new("fake").file("/proc/self/status", "Uid:\t0\t0\t0\t0\n");
    for (name, output) in programs {
        let path = format!("/usr/sbin/{name}");
        // Answers of a test's own come later but must be asked first: a program without output has none.
        if !output.is_empty() {
            fake = fake.program(&path, says(*output));
        }
        let _ = fake.write(Path::new(&path), b"", Some(0o755));
    }
    fake
}

/// Files and device nodes.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<PathBuf, (FileStat, Vec<u8>)>,
}

impl Tree {
    /// Regular files on device 254:0.
    pub fn of(files: &[(&str, &str)]) -> Self {
        files.iter().fold(Self::default(), |tree, (path, text)| tree.file(path, text, (254, 0)))
    }

    /// Adds a regular file on a device.
    pub fn file(mut self, path: &str, text: &str, dev: (u32, u32)) -> Self {
        let stat = FileStat { mode: kind::FILE | 0o755, size: text.len() as u64, allocated: 4096, dev, rdev: (0, 0) };
        self.files.insert(path.into(), (stat, text.into()));
        self
    }

    /// Adds a block device node.
    pub fn block(mut self, path: &str, rdev: (u32, u32)) -> Self {
        let stat = FileStat { mode: kind::BLOCK | 0o660, size: 0, allocated: 0, dev: (0, 5), rdev };
        self.files.insert(path.into(), (stat, vec![]));
        self
    }

    fn missing(path: &Path) -> Error {
        Error::File {
            node: "tree".into(),
            what: "read",
            path: path.into(),
            source: std::io::ErrorKind::NotFound.into(),
        }
    }
}

impl Reader for Tree {
    made_up_others!();

    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>> {
        Ok(self.stat(path)?.map(|stat| made_identity(path, stat)))
    }

    fn name(&self) -> &str {
        "tree"
    }
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.files.get(path).map(|f| f.1.clone()).ok_or_else(|| Self::missing(path))
    }
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let mut names: Vec<String> = self
            .files
            .keys()
            .filter_map(|f| f.strip_prefix(dir).ok()?.iter().next()?.to_str().map(String::from))
            .collect();
        names.dedup();
        if names.is_empty() { Err(Self::missing(dir)) } else { Ok(names) }
    }
    fn stat(&self, path: &Path) -> Result<Option<FileStat>> {
        let dir = FileStat { mode: kind::DIRECTORY | 0o755, size: 4096, allocated: 4096, dev: (254, 0), rdev: (0, 0) };
        let below = || self.files.iter().find(|(f, _)| f.starts_with(path));
        Ok(self.files.get(path).map(|f| f.0).or_else(|| below().map(|(_, f)| FileStat { dev: f.0.dev, ..dir })))
    }
    fn link(&self, _: &Path) -> Result<Option<PathBuf>> {
        Ok(None)
    }
    fn clock_seconds(&self) -> Result<f64> {
        Ok(0.0)
    }
    fn sample(&self, _plan: &SamplePlan) -> Result<Box<dyn Sampling>> {
        unimplemented!("trees do not change")
    }
}
