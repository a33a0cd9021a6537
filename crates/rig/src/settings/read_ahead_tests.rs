#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use vmio_model::cell::{Aio, Attachment, Cache, Cell};
use vmio_node::fake::Fake;
use vmio_node::linux::kind;
use vmio_node::{FileStat, Journal, Node};

use super::*;
use crate::workloads::{At, End};

/// A number that no device of the machine under the tests has: what is undone by a journal is written there.
const NOBODYS: (u32, u32) = (4_000, 1_000_000);

fn machine() -> Fake {
    let block = |rdev| FileStat { mode: kind::BLOCK | 0o600, size: 0, allocated: 0, dev: (0, 5), rdev };
    let sys = format!("/sys/dev/block/{}:{}", NOBODYS.0, NOBODYS.1);
    Fake::new("guest0")
        .node("/dev/vda", block(NOBODYS))
        .node("/dev/vda1", block((254, 1)))
        .node("/dev/odd", block((254, 32)))
        .file("/scratch/file", "data")
        .file(format!("{sys}/queue/read_ahead_kb"), "128\n")
        .file("/sys/dev/block/254:1/partition", "1\n")
}

struct Bed {
    node: Arc<Fake>,
    journal: Journal,
    _dir: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(&dir.path().join("journal"), "test").unwrap();
        Self { node: Arc::new(machine()), journal, _dir: dir }
    }

    fn apply(&self, value: &str, actor: &Actor, path: &str) -> Result<(String, Undos)> {
        let node: Arc<dyn Node> = self.node.clone();
        let end = End::here(node, At::Path(path.into()));
        let mut undos = Undos::default();
        let on = Where {
            actor,
            end: &end,
            balloon: None,
            ports: &[],
            card: None,
            cell: (&[], 0),
            guards: &BTreeMap::new(),
            run_dir: Path::new(""),
            journal: &self.journal,
        };
        Ok((ReadAhead.apply(value, &on, &mut undos)?, undos))
    }

    fn in_force(&self) -> String {
        let file = format!("/sys/dev/block/{}:{}/queue/read_ahead_kb", NOBODYS.0, NOBODYS.1);
        self.node.read_text(Path::new(&file)).unwrap().trim().to_owned()
    }

    fn journal(&self) -> String {
        std::fs::read_to_string(self.journal.path()).unwrap()
    }
}

fn guest(target: &str) -> Actor {
    let attachment = Attachment::new("virtio-blk", Cache::None, Aio::Native);
    Cell::on("qemu", target, Some(attachment), "seq-read").lead
}

fn native(target: &str) -> Actor {
    Cell::on("native", target, None, "seq-read").lead
}

#[test]
fn a_value_has_one_spelling() {
    let read = ReadAhead.reader();
    for good in ["0k", "4k", "128k", "4096k", "1048576k"] {
        assert_eq!(read(good).as_deref(), Ok(good));
    }
    for bad in ["128", "128K", "128 k", "4m", "0128k", "+128k", "130k", "1048580k", "99999999999k", "k", "-4k", "128kb"]
    {
        let WordError(said) = read(bad).unwrap_err();
        assert!(said.contains(bad) && said.contains("KiB with a k, such as 128k, 4096k or 0k"), "{said}");
    }
}

#[test]
fn in_a_guest_it_is_set_read_back_and_set_back_on_its_own_disk() {
    let bed = Bed::new();
    let (found, undos) = bed.apply("4096k", &guest("sparse"), "/dev/vda").unwrap();
    assert_eq!((found.as_str(), bed.in_force().as_str()), ("4096k", "4096"));
    assert!(!bed.journal().contains("read_ahead"), "nothing of the host's was changed");
    undos.take_back(&bed.journal).unwrap();
    assert_eq!(bed.in_force(), "128");
    // Twice, as for two actors at one disk: taken back in reverse, the first value comes last.
    let (_, first) = bed.apply("0k", &guest("sparse"), "/dev/vda").unwrap();
    let (_, second) = bed.apply("0k", &guest("sparse"), "/dev/vda").unwrap();
    second.take_back(&bed.journal).unwrap();
    assert_eq!(bed.in_force(), "0");
    first.take_back(&bed.journal).unwrap();
    assert_eq!(bed.in_force(), "128");
}

#[test]
fn natively_it_is_in_the_journal_until_it_is_undone() {
    let bed = Bed::new();
    let (found, undos) = bed.apply("512k", &native("device"), "/dev/vda").unwrap();
    assert_eq!((found.as_str(), bed.in_force().as_str()), ("512k", "512"));
    let written = bed.journal();
    assert!(written.contains("queue/read_ahead_kb") && written.contains("128"), "{written}");
    assert!(!written.contains("undone"), "{written}");
    undos.take_back(&bed.journal).unwrap();
    assert!(bed.journal().contains("undone"), "{}", bed.journal());
}

#[test]
fn what_is_not_the_runs_own_is_not_touched() {
    for target in ["sparse", "preallocated", "served", "qcow2", "qcow2-chain"] {
        let Fit::Refused(why) = ReadAhead.fits("128k", &native(target)) else { panic!("{target}") };
        assert!(why.contains(target) && why.contains("works on a file") && why.contains("`device`"), "{why}");
        assert_eq!(ReadAhead.fits("128k", &guest(target)), Fit::Sets, "a guest's disk is the guest's");
    }
    for target in ["device", "lvm", "lvm-thin", "zvol", "rbd"] {
        assert_eq!(ReadAhead.fits("128k", &native(target)), Fit::Sets, "{target}");
    }
    let bed = Bed::new();
    for (path, why) in [
        ("/scratch/file", "works on a file"),
        ("/dev/vda1", "give it the whole disk"),
        ("/dev/odd", "no read-ahead for /dev/odd"),
        ("/dev/vdz", "is not there"),
    ] {
        let said = bed.apply("512k", &native("device"), path).err().unwrap();
        assert!(matches!(said, Error::Refused(_)) && said.to_string().contains(why), "{said}");
    }
    assert_eq!(bed.in_force(), "128");
    assert!(!bed.journal().contains("read_ahead"), "nothing was about to be changed");
}

/// Natively a disk may be read ahead by megabytes, in a guest by 128 KiB: what goes through the page cache gets the same.
#[test]
fn who_reads_through_the_page_cache_is_read_ahead_alike() {
    let of = |workload: &str| {
        let traits = crate::workloads::find(workload).unwrap().traits();
        [native("device"), guest("device")].map(|actor| ReadAhead.by_default(&actor, &traits).map(|all| all.value))
    };
    for buffered in ["dd-read", "seq-read-64k-d1-buffered", "rand-read-4k-d4-uring-buffered"] {
        assert_eq!(of(buffered), [Some("128k"); 2], "{buffered}");
    }
    for other in ["dd-write", "seq-read", "rand-read-1", "durable-append", "seq-write-64k-d1-buffered"] {
        assert_eq!(of(other), [None; 2], "{other}");
    }
    assert_eq!((ReadAhead.reader())(SAME), Ok(SAME.to_owned()));
}

/// What is in force is told in the spelling of values, also of what must not be set.
#[test]
fn what_is_found_is_told() {
    let bed = Bed::new();
    let end = |path: &str| {
        let node: Arc<dyn Node> = bed.node.clone();
        End::here(node, At::Path(path.into()))
    };
    assert_eq!(ReadAhead.found(&end("/dev/vda")).as_deref(), Some("128k"));
    assert_eq!(ReadAhead.found(&end("/dev/odd")), None);
}
