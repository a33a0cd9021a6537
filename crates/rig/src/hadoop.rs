//! Hadoop's jars, for the workloads `dfsio` and `dfsio-hdfs`: which, where they lie, and how a run fetches them where
//! its user names a Maven repository. A jar gets its name only with the SHA-256 of the one that was tried, so neither
//! the repository nor the way to it is trusted. The host's curl fetches them: it knows the proxies and certificates
//! that are in use.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use vmio_look::require::{Missing, Requirement, program};
use vmio_node::{Exec, Journal, Node, Reader, private_dir};

use crate::https::shown;
use crate::objects::Hasher;

/// Where an administrator puts them, and where guests have them.
pub const INSTALLED: &str = "/usr/lib/vmio/hadoop";
/// Where runs put them: in root's own state directory whatever `--state` says, since the workload is root's alone and a
/// requirement knows no state directory.
const FETCHED: &str = "/var/lib/vmio/hadoop";
/// Below each of these, those that only HDFS needs. They are on no class path of TestDFSIO's own.
pub const HDFS: &str = "hdfs";
/// Where guests have those.
pub const HDFS_INSTALLED: &str = "/usr/lib/vmio/hadoop/hdfs";
/// Where runs put those.
const HDFS_FETCHED: &str = "/var/lib/vmio/hadoop/hdfs";

/// The jars, one a line: SHA-256, bytes, path in a Maven repository, and [`HDFS`] where only HDFS needs it.
const LIST: &str = include_str!("../../../scripts/hadoop-jars.list");

/// How long one of them may take.
const FETCH_LIMIT: Duration = Duration::from_secs(600);

/// That those of [`Jars::Local`] are there.
const LOCAL: Requirement = Requirement {
    name: "Hadoop's jars",
    why: "are the workload dfsio (51 MB are downloaded)",
    fix: FIX,
    check: |reader| Jars::Local.are_there(reader),
};

/// That those of [`Jars::Hdfs`] are there.
const WITH_HDFS: Requirement = Requirement {
    name: "Hadoop's jars with HDFS",
    why: "are the workload dfsio-hdfs (89 MB are downloaded)",
    fix: FIX,
    check: |reader| Jars::Hdfs.are_there(reader),
};

/// What to do where they are missing.
const FIX: &str = "name a Maven repository that the run fetches them from: --maven URL";

/// What fetches them.
pub const FETCHER: Requirement = Requirement {
    name: "curl, prlimit",
    why: "fetch Hadoop's jars (--maven)",
    fix: "apt install curl util-linux",
    check: |reader| ["curl", "prlimit"].iter().try_for_each(|name| program(reader, name)),
};

/// Why they were not fetched.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Error {
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
    #[error("cannot download {url}: {said}")]
    Download { url: String, said: String },
    #[error("{url} is not the jar that was tried (SHA-256 {sha256}); it was not kept")]
    OtherJar { url: String, sha256: &'static str },
}

/// Result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A Maven repository: `https://HOST[:PORT][/PATH]`, or `http://` likewise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository(String);

/// A text names no repository. It is not repeated: it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the address of a Maven repository: give https://HOST[:PORT]/PATH, without a password")]
pub struct NoRepository;

impl FromStr for Repository {
    type Err = NoRepository;

    fn from_str(text: &str) -> Result<Self, NoRepository> {
        let address = text.trim_end_matches('/');
        let rest = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://")).ok_or(NoRepository)?;
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._~:/%[]".contains(letter);
        if rest.is_empty() || rest.starts_with('/') || !rest.chars().all(is_plain) {
            return Err(NoRepository);
        }
        Ok(Self(address.to_owned()))
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which of the jars a workload needs. The later has the earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Jars {
    /// TestDFSIO, in local mode or as a client.
    Local,
    /// The same, and a name node and a data node.
    Hdfs,
}

impl Jars {
    fn all(self) -> impl Iterator<Item = Jar> {
        let jars = LIST.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (sha256, bytes, path) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
            Some(Jar { sha256, bytes, path, below: words.next() })
        });
        jars.filter(move |jar| jar.below.is_none() || self == Self::Hdfs)
    }

    /// Bytes of all of them.
    pub fn bytes(self) -> u64 {
        self.all().map(|jar| jar.bytes).sum()
    }

    /// The first directory of a machine that has all of them.
    pub fn place(self, reader: &dyn Reader) -> Option<&'static str> {
        let is_there = |path: &Path| matches!(reader.stat(path), Ok(Some(found)) if found.is_file());
        [INSTALLED, FETCHED].into_iter().find(|dir| self.all().all(|jar| is_there(&jar.at(Path::new(dir)))))
    }

    /// That they are there.
    pub fn requirement(self) -> &'static Requirement {
        match self {
            Self::Local => &LOCAL,
            Self::Hdfs => &WITH_HDFS,
        }
    }

    fn are_there(self, reader: &dyn Reader) -> Result<(), Missing> {
        let missing = || Missing::Unlike(format!("not all of them are in {INSTALLED} or {FETCHED}"));
        self.place(reader).map(|_| ()).ok_or_else(missing)
    }
}

/// Where this host has what its guests have at a path.
pub fn on_host<'a>(reader: &dyn Reader, path: &'a str) -> &'a str {
    match path {
        INSTALLED => Jars::Local.place(reader).unwrap_or(path),
        HDFS_INSTALLED if Jars::Hdfs.place(reader) == Some(FETCHED) => HDFS_FETCHED,
        _ => path,
    }
}

/// What a run fetches, and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// Where they are.
    pub from: Repository,
    /// Which.
    pub jars: Jars,
}

impl Fetch {
    /// What it takes, in words.
    pub fn ahead(&self) -> String {
        format!("downloads {} and keeps them in {FETCHED}", self.what())
    }

    /// Fetches those that are not kept on this host yet.
    ///
    /// # Errors
    /// When one cannot be downloaded or is another one, or when others could write where they are kept.
    pub fn run(&self, node: &dyn Node, journal: &Journal, progress: &dyn Fn(&str)) -> Result<()> {
        progress(&format!("downloading {}", self.what()));
        fetch_into(Path::new(FETCHED), self.jars.all(), node, journal, &self.from)
    }

    fn what(&self) -> String {
        format!("{} MB (Hadoop's jars, from {})", self.jars.bytes() / 1_000_000, self.from)
    }
}

/// A jar as it was tried.
#[derive(Debug, Clone, Copy)]
struct Jar {
    sha256: &'static str,
    bytes: u64,
    /// Its path in a repository.
    path: &'static str,
    /// The folder that it lies in, of the directory that has them all.
    below: Option<&'static str>,
}

fn fetch_into(
    dir: &Path,
    jars: impl Iterator<Item = Jar>,
    node: &dyn Node,
    journal: &Journal,
    from: &Repository,
) -> Result<()> {
    private_dir(dir)?;
    let scratch = dir.with_extension(journal.cookie());
    let made = journal.scratch_dir(&scratch)?;
    for jar in jars {
        let kept = jar.at(dir);
        if let Some(below) = jar.below {
            private_dir(&dir.join(below))?;
        }
        if jar.is_at(&kept)? {
            continue;
        }
        let new = scratch.join(jar.name());
        jar.download(node, from, &new)?;
        // Its name stands for its content after a power cut, too.
        File::open(&new).and_then(|file| file.sync_all()).map_err(failed("sync", &new))?;
        fs::rename(&new, &kept).map_err(failed("move into place", &new))?;
    }
    Ok(journal.undo(made)?)
}

impl Jar {
    fn name(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    /// Where it is kept, of a directory that has them all.
    fn at(&self, dir: &Path) -> PathBuf {
        dir.join(self.below.unwrap_or_default()).join(self.name())
    }

    /// Whether a file is this jar; one that is not there is not.
    fn is_at(&self, path: &Path) -> Result<bool> {
        let hash = || -> io::Result<String> {
            let (mut file, mut hasher, mut part) = (File::open(path)?, Hasher::new(), vec![0; 1 << 16]);
            loop {
                let read = file.read(&mut part)?;
                if read == 0 {
                    return Ok(hasher.finish().hex());
                }
                hasher.update(&part[..read]);
            }
        };
        match hash() {
            Ok(found) => Ok(found == self.sha256),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed("read", path)(error)),
        }
    }

    /// Downloads it to a file, which is never larger than the jar, whatever the server sends.
    fn download(&self, node: &dyn Node, from: &Repository, to: &Path) -> Result<()> {
        let url = format!("{from}/{}", self.path);
        let curl = Exec::new("prlimit")
            .args([format!("--fsize={}", self.bytes), "curl".to_owned()])
            // `-q`: without anybody's configuration.
            .args(["-q", "-sSfL", "--globoff", "--proto", "=http,https", "-o"])
            .args([to.to_string_lossy().into_owned(), url.clone()])
            .limit(FETCH_LIMIT);
        let output = node.exec(&curl)?;
        if !output.ok() {
            let said = format!("{:?} {}", output.end, shown(output.err().trim(), 200));
            return Err(Error::Download { url, said });
        }
        if self.is_at(to)? { Ok(()) } else { Err(Error::OtherJar { url, sha256: self.sha256 }) }
    }
}

/// Makes the error of a file operation.
fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Node(vmio_node::Error::File { node: vmio_node::LOCAL.into(), what, path, source })
}

#[cfg(test)]
#[path = "hadoop_tests.rs"]
mod tests;
