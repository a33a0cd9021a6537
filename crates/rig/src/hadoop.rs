//! Hadoop's jars, for the workload `dfsio`: which, where they lie, and how a run fetches them where its user names a
//! Maven repository. A jar gets its name only with the SHA-256 of the one that was tried, so neither the repository nor
//! the way to it is trusted. The host's curl fetches them: it knows the proxies and certificates that are in use.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;
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
pub const FETCHED: &str = "/var/lib/vmio/hadoop";

/// The jars, one a line: SHA-256, bytes, path in a Maven repository.
const LIST: &str = include_str!("../../../scripts/hadoop-jars.list");

/// How long one of them may take.
const FETCH_LIMIT: Duration = Duration::from_secs(600);

/// That they are there.
pub const REQUIREMENT: Requirement = Requirement {
    name: "Hadoop's jars",
    why: "are the workload dfsio (51 MB are downloaded)",
    fix: "name a Maven repository that the run fetches them from: --maven URL",
    check: |reader| {
        let missing = || Missing::Unlike(format!("not all of them are in {INSTALLED} or {FETCHED}"));
        place(reader).map(|_| ()).ok_or_else(missing)
    },
};

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

/// A jar as it was tried.
#[derive(Debug, Clone, Copy)]
struct Jar {
    sha256: &'static str,
    bytes: u64,
    /// Its path in a repository.
    path: &'static str,
}

fn jars() -> impl Iterator<Item = Jar> {
    LIST.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        Some(Jar { sha256: words.next()?, bytes: words.next()?.parse().ok()?, path: words.next()? })
    })
}

/// Bytes of all of them.
pub fn bytes() -> u64 {
    jars().map(|jar| jar.bytes).sum()
}

/// The first directory of a machine that has all of them.
pub fn place(reader: &dyn Reader) -> Option<&'static str> {
    let is_there = |path: &Path| matches!(reader.stat(path), Ok(Some(found)) if found.is_file());
    [INSTALLED, FETCHED].into_iter().find(|dir| jars().all(|jar| is_there(&Path::new(dir).join(jar.name()))))
}

/// Where this host has what its guests have at a path.
pub fn on_host<'a>(reader: &dyn Reader, path: &'a str) -> &'a str {
    if path == INSTALLED { place(reader).unwrap_or(path) } else { path }
}

/// What fetching them takes, in words.
pub fn ahead(from: &Repository) -> String {
    format!("downloads {} MB (Hadoop's jars, from {from}) and keeps them in {FETCHED}", bytes() / 1_000_000)
}

/// Fetches those that are not in [`FETCHED`].
///
/// # Errors
/// When one cannot be downloaded or is another one, or when others could write where they are kept.
pub fn fetch(node: &dyn Node, journal: &Journal, from: &Repository, progress: &dyn Fn(&str)) -> Result<()> {
    progress(&format!("downloading Hadoop's jars ({} MB) from {from}", bytes() / 1_000_000));
    fetch_into(Path::new(FETCHED), jars(), node, journal, from)
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
        let kept = dir.join(jar.name());
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::{env, thread};

    use vmio_node::Local;
    use vmio_node::fake::{Fake, fails, says};

    use super::*;

    /// What the made-up jar contains is "abc" (FIPS 180-2, appendix B.1).
    const JAR: Jar = Jar {
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        bytes: 3,
        path: "org/example/1.0/example-1.0.jar",
    };

    /// A host whose curl gets this, whatever it is asked for.
    fn host(content: &'static str) -> Fake {
        Fake::new("here").command(move |cmd| {
            let at = cmd.args.iter().position(|arg| arg == "-o")?;
            fs::write(cmd.args.get(at + 1)?, content).ok()?;
            Some(says(""))
        })
    }

    struct Bed {
        dir: tempfile::TempDir,
        journal: Journal,
    }

    impl Bed {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let journal = Journal::open(&dir.path().join("journal"), "test").unwrap();
            Self { dir, journal }
        }

        fn jars(&self) -> PathBuf {
            self.dir.path().join("hadoop")
        }

        fn fetch(&self, node: &Fake) -> Result<()> {
            self.fetch_from(&"http://repository.example/maven/".parse().unwrap(), node)
        }

        fn fetch_from(&self, from: &Repository, node: &dyn Node) -> Result<()> {
            fetch_into(&self.jars(), [JAR].into_iter(), node, &self.journal, from)
        }

        /// Names in the directory of the jars, and those beside it.
        fn names(&self) -> [BTreeSet<String>; 2] {
            [self.jars(), self.dir.path().to_owned()].map(|dir| {
                fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
            })
        }
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_list_has_what_it_says() {
        let all: Vec<Jar> = jars().collect();
        assert_eq!((all.len(), LIST.lines().count()), (6, 6));
        assert!(all.iter().all(|jar| jar.sha256.len() == 64 && jar.name().ends_with(".jar")), "{all:?}");
        let told = format!("{} MB", bytes() / 1_000_000);
        assert_eq!(told, "51 MB");
        assert!(REQUIREMENT.why.contains(&told));
        let from: Repository = "https://repository.example/maven/".parse().unwrap();
        assert!(ahead(&from).contains(&told) && ahead(&from).contains("from https://repository.example/maven)"));
    }

    #[test]
    fn what_is_no_repository_is_refused_and_not_repeated() {
        let parsed = |text: &str| text.parse::<Repository>().map(|repository| repository.to_string());
        assert_eq!(parsed("http://[::1]:8081/maven2//"), Ok("http://[::1]:8081/maven2".to_owned()));
        let with_password = "https://u:secret@h/x";
        for wrong in ["", "https://", "https:///x", "ftp://h/x", with_password, "https://h/x?y", "https://h/a b"] {
            assert_eq!(parsed(wrong), Err(NoRepository), "{wrong}");
        }
        assert!(!NoRepository.to_string().contains("secret"));
    }

    #[test]
    fn a_jar_is_fetched_once_and_another_one_in_its_place_is_replaced() {
        let (bed, node) = (Bed::new(), host("abc"));
        bed.fetch(&node).unwrap();
        let kept = bed.jars().join("example-1.0.jar");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "abc");
        let ran = node.ran();
        assert_eq!((ran.len(), ran[0].program.as_str(), ran[0].args[0].as_str()), (1, "prlimit", "--fsize=3"));
        assert_eq!(ran[0].args.last().unwrap(), "http://repository.example/maven/org/example/1.0/example-1.0.jar");
        bed.fetch(&node).unwrap();
        assert_eq!(node.ran().len(), 1, "it is there");
        fs::write(&kept, "abd").unwrap();
        bed.fetch(&node).unwrap();
        assert_eq!((fs::read_to_string(&kept).unwrap().as_str(), node.ran().len()), ("abc", 2));
        assert_eq!(bed.names(), [set(&["example-1.0.jar"]), set(&["hadoop", "journal"])]);
        assert_eq!(fs::metadata(bed.jars()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn what_is_not_the_jar_or_does_not_come_is_told_and_not_kept() {
        let bed = Bed::new();
        let said = bed.fetch(&host("abd")).unwrap_err().to_string();
        assert!(said.contains("is not the jar that was tried") && said.contains(JAR.sha256), "{said}");
        let none = Fake::new("here").program("prlimit", fails(6, "curl: (6) Could not resolve host"));
        let said = Bed::new().fetch(&none).unwrap_err().to_string();
        assert!(said.contains("repository.example/maven/org") && said.contains("Could not resolve"), "{said}");
        assert_eq!(bed.journal.close(), [""; 0]);
        assert_eq!(bed.names(), [set(&[]), set(&["hadoop", "journal"])], "and no part of it is left");
    }

    /// A repository on this host, which answers one request with these bytes.
    fn repository(content: Vec<u8>) -> Repository {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = format!("http://{}/maven", listener.local_addr().unwrap()).parse().unwrap();
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let lines = BufReader::new(client.try_clone().unwrap()).lines();
            lines.map_while(|line| line.ok()).take_while(|line| !line.is_empty()).for_each(drop);
            // Who asked may have gone before the end.
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
            let _ = client.write_all(&content);
        });
        from
    }

    #[test]
    fn the_hosts_programs_fetch_a_jar_and_never_more_than_its_bytes() {
        let node = Local::new();
        let is_proxied = ["http_proxy", "all_proxy", "ALL_PROXY"].iter().any(|name| env::var_os(name).is_some());
        if is_proxied || (FETCHER.check)(node.reader()).is_err() {
            return vmio_testbed::skip("fetching from this host takes curl, prlimit and no proxy");
        }
        let bed = Bed::new();
        bed.fetch_from(&repository(b"abc".to_vec()), &node).unwrap();
        assert_eq!(fs::read_to_string(bed.jars().join("example-1.0.jar")).unwrap(), "abc");
        let bed = Bed::new();
        let said = bed.fetch_from(&repository(vec![b'a'; 1 << 20]), &node).unwrap_err().to_string();
        assert!(said.starts_with("cannot download http://127.0.0.1:"), "{said}");
        let part = bed.jars().with_extension(bed.journal.cookie()).join("example-1.0.jar");
        assert_eq!(fs::metadata(part).unwrap().len(), JAR.bytes);
        assert!(bed.names()[0].is_empty());
    }

    #[test]
    fn nothing_is_put_where_others_can_write() {
        let (bed, node) = (Bed::new(), host("abc"));
        fs::create_dir(bed.jars()).unwrap();
        fs::set_permissions(bed.jars(), fs::Permissions::from_mode(0o777)).unwrap();
        let said = bed.fetch(&node).unwrap_err().to_string();
        assert!(said.contains("hadoop"), "{said}");
        assert_eq!((node.ran().len(), bed.names()[0].len()), (0, 0));
    }

    #[test]
    fn they_are_where_all_of_them_are() {
        let with = |host: Fake, dir: &str, count: usize| {
            jars().take(count).fold(host, |host, jar| host.file(Path::new(dir).join(jar.name()), ""))
        };
        let bare = || Fake::new("bare");
        assert_eq!((place(&bare()), on_host(&bare(), INSTALLED)), (None, INSTALLED));
        let part = with(bare(), INSTALLED, 5);
        let said = (REQUIREMENT.check)(&part).unwrap_err().to_string();
        assert!(said.contains(INSTALLED) && said.contains(FETCHED), "{said}");
        let fetched = with(part, FETCHED, 6);
        assert_eq!((REQUIREMENT.check)(&fetched), Ok(()));
        assert_eq!((on_host(&fetched, INSTALLED), on_host(&fetched, "/usr/bin/id")), (FETCHED, "/usr/bin/id"));
        assert_eq!(place(&with(fetched, INSTALLED, 6)), Some(INSTALLED));
        assert!((FETCHER.check)(&bare().installed("curl")).is_err());
    }
}
