#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use vmio_model::cell::{Shape, Side, Subject};
use vmio_node::{Fake, Journal};

use super::*;
use crate::guests;
use crate::workloads::{At, End};

/// A guest that gives up no more than its least, and takes a step at a time.
struct MadeUp {
    least: u64,
    actual: Mutex<(u64, u64)>,
}

impl MadeUp {
    fn of(mib: u64, least_mib: u64) -> Arc<Self> {
        Arc::new(Self { least: least_mib * MIB, actual: Mutex::new((mib * MIB, mib * MIB)) })
    }
}

impl Balloon for MadeUp {
    fn actual_bytes(&self) -> guests::Result<u64> {
        let mut held = self.actual.lock().unwrap();
        let was = held.0;
        held.0 = held.1;
        Ok(was)
    }
    fn aim_at(&self, bytes: u64) -> guests::Result<()> {
        self.actual.lock().unwrap().1 = bytes.max(self.least);
        Ok(())
    }
}

fn actor(kind: &str, memory_mib: Option<u32>) -> Actor {
    let side = Side { shape: Shape { memory_mib, ..Shape::default() }, ..Side::of(kind) };
    Cell::of(side, Subject::Machine, "some-work").lead
}

fn apply(value: &str, balloon: Option<&Arc<dyn Balloon>>) -> (Result<String>, Undos, Journal, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(&dir.path().join("journal"), "test").unwrap();
    let mut undos = Undos::default();
    let on = Where {
        actor: &actor("qemu", None),
        end: &End::here(Arc::new(Fake::new("guest0")), At::Nothing),
        balloon,
        ports: &[],
        card: None,
        cell: (&[], 0),
        guards: &BTreeMap::new(),
        run_dir: Path::new(""),
        journal: &journal,
    };
    let done = Memory.apply(value, &on, &mut undos);
    (done, undos, journal, dir)
}

#[test]
fn a_value_has_one_spelling() {
    for good in ["128m", "1048576m"] {
        assert_eq!(mib(good).map(spelled).as_deref(), Ok(good));
    }
    for bad in ["127m", "1048577m", "256", "256M", "0256m", "+256m", "m", "256 m", "256mb", "99999999999m"] {
        let WordError(said) = mib(bad).unwrap_err();
        assert!(said.contains(bad) && said.contains("such as 256m"), "{said}");
    }
}

#[test]
fn it_is_for_guests_and_no_more_than_they_have() {
    assert_eq!(Memory.fits("256m", &actor("qemu", None)), Fit::Sets);
    assert_eq!(Memory.fits("256m", &actor("qemu", Some(256))), Fit::Sets);
    assert!(matches!(Memory.fits("512m", &actor("qemu", Some(256))), Fit::Refused(why) if why.contains("has 256m")));
    for kind in ["native", "container"] {
        assert!(matches!(Memory.fits("256m", &actor(kind, None)), Fit::Nothing(_)), "{kind}");
    }
}

#[test]
fn it_is_read_back_and_given_back() {
    let guest: Arc<dyn Balloon> = MadeUp::of(640, 100);
    let (done, undos, journal, _dir) = apply("256m", Some(&guest));
    assert_eq!((done.unwrap().as_str(), guest.actual_bytes().unwrap()), ("256m", 256 * MIB));
    undos.take_back(&journal).unwrap();
    assert_eq!(guest.actual_bytes().unwrap(), 640 * MIB);
    // More than it has.
    let (done, undos, ..) = apply("641m", Some(&guest));
    assert!(matches!(done, Err(Error::Refused(why)) if why.contains("has 640m")));
    assert!(undos.is_empty());
    assert!(matches!(apply("256m", None).0, Err(Error::Refused(why)) if why.contains("no balloon")));
}

#[test]
fn a_guest_that_keeps_its_memory_is_told() {
    let keeps = MadeUp::of(640, 300);
    let said = reach(&*keeps, 256 * MIB, Duration::from_millis(120)).unwrap_err().to_string();
    assert_eq!(said, "256 MiB was asked for and 300 MiB is in force");
}
