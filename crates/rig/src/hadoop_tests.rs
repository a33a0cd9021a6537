//! A made-up host and repository: what is fetched, kept and refused.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::{env, thread};

use vmio_node::Local;
use vmio_node::fake::{Fake, fails, says};

use super::*;

/// What the made-up jar contains is "abc" (FIPS 180-2, appendix B.1).
const JAR: Jar = Jar {
    sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    bytes: 3,
    path: "org/example/1.0/example-1.0.jar",
    below: None,
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
    let all: Vec<Jar> = Jars::Hdfs.all().collect();
    assert_eq!((all.len(), LIST.lines().count(), Jars::Local.all().count()), (8, 8, 6));
    assert!(all.iter().all(|jar| jar.sha256.len() == 64 && jar.name().ends_with(".jar")), "{all:?}");
    assert!(all.iter().all(|jar| jar.below.is_none_or(|below| below == HDFS)), "{all:?}");
    for (jars, mb) in [(Jars::Local, "51 MB"), (Jars::Hdfs, "89 MB")] {
        assert_eq!(format!("{} MB", jars.bytes() / 1_000_000), mb);
        assert!(jars.requirement().why.contains(mb));
        let ahead = Fetch { from: "https://repository.example/maven/".parse().unwrap(), jars }.ahead();
        assert!(ahead.contains(mb) && ahead.contains("from https://repository.example/maven)"), "{ahead}");
    }
    for (place, below) in [(INSTALLED, HDFS_INSTALLED), (FETCHED, HDFS_FETCHED)] {
        assert_eq!(Path::new(place).join(HDFS), Path::new(below));
    }
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
fn what_only_hdfs_needs_lies_below() {
    let (bed, node) = (Bed::new(), host("abc"));
    let from = "http://repository.example/maven".parse().unwrap();
    let jar = Jar { below: Some(HDFS), ..JAR };
    fetch_into(&bed.jars(), [jar].into_iter(), &node, &bed.journal, &from).unwrap();
    assert_eq!(fs::read_to_string(bed.jars().join("hdfs/example-1.0.jar")).unwrap(), "abc");
    assert_eq!(fs::metadata(bed.jars().join("hdfs")).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(bed.names(), [set(&["hdfs"]), set(&["hadoop", "journal"])]);
}

#[test]
fn they_are_where_all_of_them_are() {
    let with = |host: Fake, dir: &str, count: usize| {
        Jars::Hdfs.all().take(count).fold(host, |host, jar| host.file(jar.at(Path::new(dir)), ""))
    };
    let bare = || Fake::new("bare");
    assert_eq!((Jars::Local.place(&bare()), on_host(&bare(), INSTALLED)), (None, INSTALLED));
    let part = with(bare(), INSTALLED, 5);
    let check = |jars: Jars, host: &Fake| (jars.requirement().check)(host);
    let said = check(Jars::Local, &part).unwrap_err().to_string();
    assert!(said.contains(INSTALLED) && said.contains(FETCHED), "{said}");
    // The first six are those of TestDFSIO.
    let local = with(part, FETCHED, 6);
    assert!(check(Jars::Local, &local).is_ok() && check(Jars::Hdfs, &local).is_err());
    assert_eq!((on_host(&local, INSTALLED), on_host(&local, "/usr/bin/id")), (FETCHED, "/usr/bin/id"));
    assert_eq!(on_host(&local, HDFS_INSTALLED), HDFS_INSTALLED);
    let both = with(local, FETCHED, 8);
    assert_eq!(check(Jars::Hdfs, &both), Ok(()));
    assert_eq!(on_host(&both, HDFS_INSTALLED), HDFS_FETCHED);
    let installed = with(both, INSTALLED, 8);
    assert_eq!((Jars::Hdfs.place(&installed), on_host(&installed, HDFS_INSTALLED)), (Some(INSTALLED), HDFS_INSTALLED));
    assert!((FETCHER.check)(&bare().installed("curl")).is_err());
}
