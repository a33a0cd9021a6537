//! A rig that is made up, and a real store with a run of it.

use std::collections::{BTreeMap, BTreeSet};

use vmio::store::{NewRun, Store};
use vmio::studies;
use vmio_model::cell::Cell;
use vmio_model::result::{CpuUse, DeviceUse, DiskWork, Sample, WorkloadTraits, seen_around};
use vmio_model::run::Run;
use vmio_model::study::{self, DoneReason, Study};
use vmio_rig::engine::StopCause;
use vmio_rig::engine::measure::{Ended, Event, Impossible, Next, Rig, measure};

use crate::common;

/// One target, two drivers, two workloads: two native and four guest cells.
pub const STUDY: &str = r#"
name = "made-up"
title = "For the tests of the loop"
[guest]
vcpus = 1
memory_mib = 192
[size]
target_mib = 384
[repeat]
min_pairs = 4
max_pairs = 7
min_boots = 3
half_width = 0.05
seconds = 1.0
max_minutes = 60.0
max_gib_written = 100.0
[[matrix]]
sides = ["native", "qemu"]
disks = { targets = ["device"], drivers = ["lsi53c895a", "virtio-blk"] }
workloads = ["durable-append", "seq-write"]
"#;

pub fn study() -> Study {
    studies::parse("made-up.toml", STUDY).unwrap()
}

/// Which attempts at a cell fail: by cell and attempt.
pub type Fails<'a> = &'a dyn Fn(&Cell, u32) -> bool;

/// [`study`] with control cells for the writes.
pub fn controlled() -> Study {
    let text = STUDY.replace("[[matrix]]", "[control]\nworkloads = [\"seq-write\"]\n[[matrix]]");
    studies::parse("made-up.toml", &text).unwrap()
}

/// Answers as a machine would: virtio-blk always at half of the native speed, the emulated
/// driver at shares so far apart that its interval never gets narrow.
#[derive(Default)]
pub struct Fake<'a> {
    /// Boots and cells as they were asked for.
    pub boots: Vec<u32>,
    pub cells: Vec<(String, u32, u32)>,
    /// Groups whose targets were written over, by their first cell, with the samples taken before.
    pub preconditioned: Vec<(String, usize)>,
    /// Whether this attempt at a cell fails; attempts are counted from 1.
    pub fails: Option<Fails<'a>>,
    pub attempts: BTreeMap<String, u32>,
    /// A driver that its guests have no disk for.
    pub impossible: Option<&'a str>,
    /// Stops after so many samples.
    pub stop_after: Option<usize>,
    pub taken: usize,
    /// What it says that a cell writes at most, and was written beside.
    pub most_bytes: u64,
    pub beside_bytes: u64,
    /// Advanced by one a cell.
    pub clock: Option<&'a std::cell::Cell<f64>>,
    /// Shows what reached the disk: requests of the emulated driver at an eighth of the size, and
    /// in later rounds at sizes of their own.
    pub sees_disk: bool,
}

pub fn at_the_disk(driver: Option<&str>, round: u32, bytes: u64) -> DeviceUse {
    let size = if driver == Some("lsi53c895a") { 8192 << (round % 3) } else { 65536 };
    DeviceUse {
        seconds: 1.0,
        write_ios: bytes / size,
        write_bytes: bytes,
        queue_depth: if driver.is_some() { 1.2 } else { 7.7 },
        ..DeviceUse::default()
    }
}

impl Rig for Fake<'_> {
    fn boot(&mut self, boot: u32) -> anyhow::Result<()> {
        self.boots.push(boot);
        Ok(())
    }

    fn cell(&mut self, cell: &Cell, round: u32, boot: u32) -> anyhow::Result<Sample> {
        assert_eq!(self.boots.last(), Some(&boot), "a cell runs in the boot that was asked for last");
        self.cells.push((cell.key(), round, boot));
        let attempt = self.attempts.entry(cell.key()).or_default();
        *attempt += 1;
        if let Some(clock) = self.clock {
            clock.set(clock.get() + 1.0);
        }
        if self.impossible == cell.attachment().map(|a| a.driver.as_str()) && self.impossible.is_some() {
            return Err(Impossible("QEMU has no such disk".into()).into());
        }
        if self.fails.is_some_and(|fails| fails(cell, *attempt)) {
            anyhow::bail!("attempt {attempt} at {} went wrong", cell.key());
        }
        self.taken += 1;
        let driver = cell.attachment().map(|a| a.driver.as_str());
        let share = match driver {
            None => 1.0,
            Some("virtio-blk") => 0.5,
            Some(_) => [0.1, 0.9][round as usize % 2],
        };
        let ios = (share * 10_000.0) as u64;
        Ok(Sample {
            cell: cell.clone(),
            round,
            boot,
            started_unix: 0.0,
            result: DiskWork { write_bytes: ios * 4096, ios, seconds: 1.0, ..DiskWork::default() }
                .result(serde_json::Value::Null, String::new()),
            beside: Vec::new(),
            seen: seen_around(self.sees_disk.then(|| at_the_disk(driver, round, ios * 4096)), &CpuUse::default()),
            foreign: Default::default(),
            marks: Vec::new(),
        })
    }

    fn precondition(&mut self, group: &[Cell]) -> anyhow::Result<Option<StopCause>> {
        self.preconditioned.push((group[0].key(), self.taken));
        self.beside_bytes += self.precondition_bytes(group);
        Ok(None)
    }

    fn precondition_bytes(&self, _: &[Cell]) -> u64 {
        1 << 30
    }

    fn most_bytes(&self, _: &Cell) -> u64 {
        self.most_bytes
    }

    fn written_beside(&self) -> u64 {
        self.beside_bytes
    }

    fn must_stop(&mut self) -> Option<StopCause> {
        (self.stop_after? <= self.taken).then(told_to_stop)
    }
}

/// Why the made-up rig stops.
pub fn told_to_stop() -> StopCause {
    StopCause::StorageFailed("told to stop".into())
}

/// A store with a run of the study that has just begun.
pub struct Begun {
    _dir: tempfile::TempDir,
    pub store: Store,
    pub study: Study,
    id: i64,
}

impl Begun {
    pub fn new(study: &Study) -> Begun {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("vmio.db")).unwrap();
        let names: BTreeSet<String> = study.cells().into_iter().map(|c| c.workload().to_owned()).collect();
        let all = vmio_rig::workloads::ALL.iter().map(|w| w.traits());
        let traits: Vec<WorkloadTraits> = all.filter(|t| names.contains(&t.name)).collect();
        let id = store
            .new_run(&NewRun {
                kind: &study.name.as_str().into(),
                study,
                command: &[],
                started_unix: 0.0,
                environment: &common::environment(None),
                workloads: &traits,
            })
            .unwrap();
        Begun { _dir: dir, store, study: study.clone(), id }
    }

    /// Goes on from what is stored, as a new process would.
    pub fn go(&self, next: Next, rig: &mut Fake<'_>) -> (anyhow::Result<Ended>, Vec<String>) {
        let clock = rig.clock;
        let seconds = || clock.map_or(0.0, std::cell::Cell::get);
        let mut run = self.store.load(self.id).unwrap();
        let mut told = Vec::new();
        let ended = measure(&self.study, next, &mut run, &self.store, rig, &seconds, &mut |event| {
            told.push(match event {
                Event::Retry(cell, why) => format!("retry {}: {why}", cell.key()),
                Event::GaveUp(cell, why) => format!("gave up {}: {why}", cell.key()),
                Event::Round(round, shares) => format!("round {round}: {} shares", shares.len()),
                _ => return,
            });
        });
        let stored = self.run();
        assert_eq!((&run.samples, &run.skipped), (&stored.samples, &stored.skipped), "in memory as in the store");
        (ended, told)
    }

    pub fn run(&self) -> Run {
        self.store.load(self.id).unwrap()
    }
}

/// (cell, round) of each sample, sorted; a sample taken twice would be there twice.
pub fn taken(run: &Run) -> Vec<(String, u32)> {
    let mut all: Vec<(String, u32)> = run.samples.iter().map(|s| (s.cell.key(), s.round)).collect();
    all.sort();
    all
}

pub fn unbroken() -> Run {
    let begun = Begun::new(&study());
    let (ended, _) = begun.go(study::next, &mut Fake::default());
    assert_eq!(ended.unwrap(), Ended::Done(DoneReason::MaxPairs));
    begun.run()
}
