//! The measuring loop against a rig that is made up, and a real store: what is measured, how
//! often, and that breaking it off anywhere loses nothing and doubles nothing.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proptest::prelude::*;
use vmio::store::{NewRun, Store};
use vmio::studies;
use vmio_model::cell::Cell;
use vmio_model::result::{CpuUse, DeviceUse, DiskWork, Run, Sample, WorkloadTraits, seen_around};
use vmio_model::study::{self, DoneReason, Study};
use vmio_rig::engine::measure::{self as engine, Ended, Event, Impossible, Next, Rig, measure, next_noise};

/// One target, two drivers, two workloads: two native and four guest cells.
const STUDY: &str = r#"
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

fn study() -> Study {
    studies::parse("made-up.toml", STUDY).unwrap()
}

/// Which attempts at a cell fail: by cell and attempt.
type Fails<'a> = &'a dyn Fn(&Cell, u32) -> bool;

/// [`study`] with control cells for the writes.
fn controlled() -> Study {
    let text = STUDY.replace("[[matrix]]", "[control]\nworkloads = [\"seq-write\"]\n[[matrix]]");
    studies::parse("made-up.toml", &text).unwrap()
}

/// Answers as a machine would: virtio-blk always at half of the native speed, the emulated
/// driver at shares so far apart that its interval never gets narrow.
#[derive(Default)]
struct Fake<'a> {
    /// Boots and cells as they were asked for.
    boots: Vec<u32>,
    cells: Vec<(String, u32, u32)>,
    /// Whether this attempt at a cell fails; attempts are counted from 1.
    fails: Option<Fails<'a>>,
    attempts: BTreeMap<String, u32>,
    /// A driver that its guests have no disk for.
    impossible: Option<&'a str>,
    /// Stops after so many samples.
    stop_after: Option<usize>,
    taken: usize,
    /// What it says that a cell writes at most, and was written beside.
    most_bytes: u64,
    beside_bytes: u64,
    /// Advanced by one a cell.
    clock: Option<&'a std::cell::Cell<f64>>,
    /// Shows what reached the disk: requests of the emulated driver at an eighth of the size, and
    /// in later rounds at sizes of their own.
    sees_disk: bool,
}

fn at_the_disk(driver: Option<&str>, round: u32, bytes: u64) -> DeviceUse {
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

    fn most_bytes(&self, _: &Cell) -> u64 {
        self.most_bytes
    }

    fn written_beside(&self) -> u64 {
        self.beside_bytes
    }

    fn must_stop(&mut self) -> Option<String> {
        (self.stop_after? <= self.taken).then(|| "told to stop".to_owned())
    }
}

/// A store with a run of the study that has just begun.
struct Bed {
    _dir: tempfile::TempDir,
    store: Store,
    study: Study,
    id: i64,
}

impl Bed {
    fn new(study: &Study) -> Bed {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("vmio.db")).unwrap();
        let names: BTreeSet<String> = study.cells().into_iter().map(|c| c.workload().to_owned()).collect();
        let all = vmio_rig::workloads::ALL.iter().map(|w| w.traits());
        let traits: Vec<WorkloadTraits> = all.filter(|t| names.contains(&t.name)).collect();
        let id = store
            .new_run(&NewRun {
                study: &study.name.as_str().into(),
                study_toml: &study.to_toml(),
                command: &[],
                started_unix: 0.0,
                environment: &common::environment(None),
                workloads: &traits,
            })
            .unwrap();
        Bed { _dir: dir, store, study: study.clone(), id }
    }

    /// Goes on from what is stored, as a new process would.
    fn go(&self, next: Next, rig: &mut Fake<'_>) -> (anyhow::Result<Ended>, Vec<String>) {
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

    fn run(&self) -> Run {
        self.store.load(self.id).unwrap()
    }
}

/// (cell, round) of each sample, sorted; a sample taken twice would be there twice.
fn taken(run: &Run) -> Vec<(String, u32)> {
    let mut all: Vec<(String, u32)> = run.samples.iter().map(|s| (s.cell.key(), s.round)).collect();
    all.sort();
    all
}

fn unbroken() -> Run {
    let bed = Bed::new(&study());
    let (ended, _) = bed.go(study::next, &mut Fake::default());
    assert_eq!(ended.unwrap(), Ended::Done(DoneReason::MaxPairs));
    bed.run()
}

#[test]
fn every_guest_sample_has_its_native_one_and_rounds_are_dealt_to_boots() {
    let run = unbroken();
    let all: BTreeSet<(String, u32)> = taken(&run).into_iter().collect();
    assert_eq!(all.len(), run.samples.len(), "no cell ran twice in a round");
    for sample in run.samples.iter().filter(|s| !s.cell.is_native()) {
        let native = run.samples.iter().find(|s| s.cell == sample.cell.natively() && s.round == sample.round);
        assert_eq!(native.map(|n| n.boot), Some(sample.boot), "{} round {}", sample.cell.key(), sample.round);
    }
    for cell in study().cells() {
        let boots: BTreeSet<u32> = run.samples.iter().filter(|s| s.cell == cell).map(|s| s.boot).collect();
        assert!(boots.len() as u32 >= study().repeat.min_boots, "{}: {boots:?}", cell.key());
    }
    // The first round runs the cells of a workload next to each other.
    let first: Vec<&str> = run.samples.iter().take(6).map(|s| s.cell.workload()).collect();
    assert_eq!(first, ["durable-append"; 3].iter().chain(&["seq-write"; 3]).copied().collect::<Vec<_>>());
}

#[test]
fn what_is_known_well_enough_stops_and_the_rest_goes_on() {
    let run = unbroken();
    let repeat = study().repeat;
    let rounds = |driver: Option<&str>| -> BTreeSet<usize> {
        let cells = study().cells();
        let of = cells.iter().filter(|c| c.attachment().map(|a| a.driver.as_str()) == driver);
        of.map(|c| run.samples.iter().filter(|s| s.cell == *c).count()).collect()
    };
    let (least, most) = (repeat.min_pairs as usize, repeat.max_pairs as usize);
    assert_eq!(rounds(Some("virtio-blk")), [least].into());
    assert_eq!(rounds(Some("lsi53c895a")), [most].into());
    assert_eq!(rounds(None), [most].into(), "the baseline runs as long as one guest needs it");
}

/// Control cells by key with the rounds in which they ran.
fn controls_of(run: &Run) -> BTreeMap<String, Vec<u32>> {
    let known: Vec<Cell> = controlled().cells();
    let mut all: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for s in run.samples.iter().filter(|s| !known.contains(&s.cell)) {
        all.entry(s.cell.key()).or_default().push(s.round);
    }
    all
}

#[test]
fn control_cells_follow_the_first_round() {
    let bed = Bed::new(&controlled());
    bed.go(study::next, &mut Fake { sees_disk: true, ..Fake::default() }).0.unwrap();
    let all = controls_of(&bed.run());
    let wanted = ["device/native/seq-write-64k-d8", "device/native/seq-write-8k-d1", "device/native/seq-write-8k-d8"];
    assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), wanted);
    assert!(all.values().all(|rounds| *rounds == (1..7).collect::<Vec<u32>>()), "{all:?}");
    // Where the disk shows nothing, there is nothing to control.
    let blind = Bed::new(&controlled());
    blind.go(study::next, &mut Fake::default()).0.unwrap();
    assert!(controls_of(&blind.run()).is_empty());
}

#[test]
fn a_resumed_run_has_the_same_control_cells() {
    let whole = Bed::new(&controlled());
    whole.go(study::next, &mut Fake { sees_disk: true, ..Fake::default() }).0.unwrap();
    for stop in (1..=24).step_by(4) {
        let bed = Bed::new(&controlled());
        bed.go(study::next, &mut Fake { sees_disk: true, stop_after: Some(stop), ..Fake::default() }).0.unwrap();
        bed.go(study::next, &mut Fake { sees_disk: true, ..Fake::default() }).0.unwrap();
        let (run, got) = (bed.run(), controls_of(&bed.run()));
        assert!(taken(&run).windows(2).all(|w| w[0] != w[1]), "stopped after {stop}: nothing twice");
        // A cut round is no pair, so one more round may be needed.
        let of = controls_of(&whole.run());
        assert_eq!(got.keys().collect::<Vec<_>>(), of.keys().collect::<Vec<_>>(), "stopped after {stop}");
        assert!(got.iter().all(|(key, rounds)| rounds.starts_with(&of[key])), "stopped after {stop}: {got:?}");
    }
}

#[test]
fn a_control_cell_that_fails_twice_costs_nothing_else() {
    let bed = Bed::new(&controlled());
    let fails = |cell: &Cell, _: u32| cell.workload() == "seq-write-8k-d1";
    bed.go(study::next, &mut Fake { sees_disk: true, fails: Some(&fails), ..Fake::default() }).0.unwrap();
    let run = bed.run();
    assert_eq!(run.skipped.iter().map(|s| s.cell.workload()).collect::<Vec<_>>(), ["seq-write-8k-d1"]);
    assert_eq!(controls_of(&run).len(), 2);
}

#[test]
fn all_known_ends_the_run() {
    let mut study = study();
    study.matrix[0].disks.as_mut().unwrap().drivers = vec!["virtio-blk".into()];
    let bed = Bed::new(&study);
    let (ended, told) = bed.go(study::next, &mut Fake::default());
    assert_eq!(ended.unwrap(), Ended::Done(DoneReason::Converged));
    assert_eq!(told, ["round 0: 2 shares", "round 1: 2 shares", "round 2: 2 shares", "round 3: 2 shares"]);
    // Asked again, it measures nothing more.
    let mut rig = Fake::default();
    assert_eq!(bed.go(study::next, &mut rig).0.unwrap(), Ended::Done(DoneReason::Converged));
    assert!(rig.cells.is_empty() && rig.boots.is_empty());
}

/// What a run broken off so many times lacks of an unbroken one, or has twice or too often. The
/// halves of a round that was cut are no pair, so a cell may run one more round for each cut.
fn lost_or_doubled(run: &Run, cuts: usize) -> Vec<String> {
    let (whole, got) = (taken(&unbroken()), taken(run));
    let mut wrong: Vec<String> = whole.iter().filter(|k| !got.contains(k)).map(|k| format!("lost {k:?}")).collect();
    wrong.extend(got.windows(2).filter(|w| w[0] == w[1]).map(|w| format!("doubled {:?}", w[0])));
    for cell in study().cells() {
        let rounds = |of: &[(String, u32)]| of.iter().filter(|(key, _)| *key == cell.key()).count();
        if rounds(&got) > rounds(&whole) + cuts {
            wrong.push(format!("{} ran {} rounds", cell.key(), rounds(&got)));
        }
    }
    wrong
}

#[test]
fn a_stop_at_any_sample_loses_and_doubles_nothing() {
    let whole = taken(&unbroken());
    for stop in 0..=whole.len() {
        let bed = Bed::new(&study());
        let mut rig = Fake { stop_after: Some(stop), ..Fake::default() };
        let (ended, _) = bed.go(study::next, &mut rig);
        assert_eq!(ended.unwrap(), Ended::Stopped("told to stop".into()), "{stop}");
        assert_eq!(bed.run().samples.len(), stop, "all that was acknowledged is stored");
        let mut rig = Fake::default();
        bed.go(study::next, &mut rig).0.unwrap();
        assert_eq!(lost_or_doubled(&bed.run(), 1), Vec::<String>::new(), "stopped after {stop} samples");
        let old: BTreeSet<u32> = bed.run().samples.iter().take(stop).map(|s| s.boot).collect();
        assert!(rig.boots.iter().all(|b| !old.contains(b)), "a resumed run never continues a boot that is gone");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    /// Broken off many times, with cells that fail now and then but never twice.
    #[test]
    fn stops_and_single_failures_lose_and_double_nothing(
        stops in prop::collection::vec(0usize..12, 1..8),
        failing in prop::collection::btree_set((0usize..6, 1u32..4), 0..3),
    ) {
        let cells = study().cells();
        // At most one failure a cell and process.
        let failing: BTreeMap<usize, u32> = failing.into_iter().collect();
        let fails = |cell: &Cell, attempt: u32| {
            failing.get(&cells.iter().position(|c| c == cell).unwrap()) == Some(&attempt)
        };
        let bed = Bed::new(&study());
        let cuts = stops.len();
        for stop in stops {
            let mut rig = Fake { stop_after: Some(stop), fails: Some(&fails), ..Fake::default() };
            bed.go(study::next, &mut rig).0.unwrap();
        }
        let mut rig = Fake { fails: Some(&fails), ..Fake::default() };
        bed.go(study::next, &mut rig).0.unwrap();
        prop_assert_eq!(lost_or_doubled(&bed.run(), cuts), Vec::<String>::new());
        prop_assert!(bed.run().skipped.is_empty());
    }
}

#[test]
fn a_cell_that_fails_once_is_tried_again_in_a_new_guest() {
    let (whole, bed) = (taken(&unbroken()), Bed::new(&study()));
    let fails = |cell: &Cell, attempt: u32| cell.key().contains("virtio-blk") && attempt == 2;
    let mut rig = Fake { fails: Some(&fails), ..Fake::default() };
    let (ended, told) = bed.go(study::next, &mut rig);
    assert_eq!(ended.unwrap(), Ended::Done(DoneReason::MaxPairs));
    assert_eq!(taken(&bed.run()), whole);
    assert!(bed.run().skipped.is_empty());
    let retries: Vec<&String> = told.iter().filter(|t| t.starts_with("retry")).collect();
    assert!(retries.len() == 2 && retries[0].contains("attempt 2 at device/"), "{told:?}");
    let usual = taken_boots(&unbroken());
    assert_eq!(rig.boots.len(), usual + 2, "each failure in a guest costs a boot: {:?}", rig.boots);
}

fn taken_boots(run: &Run) -> usize {
    run.samples.iter().map(|s| s.boot).collect::<BTreeSet<_>>().len()
}

#[test]
fn a_cell_that_fails_twice_is_left_out_with_its_reason_and_the_others_go_on() {
    let bed = Bed::new(&study());
    let fails = |cell: &Cell, _: u32| cell.key().contains("lsi53c895a") && cell.workload() == "seq-write";
    let (ended, told) = bed.go(study::next, &mut Fake { fails: Some(&fails), ..Fake::default() });
    assert_eq!(ended.unwrap(), Ended::Done(DoneReason::MaxPairs));
    let run = bed.run();
    assert_eq!(run.skipped.len(), 1);
    let skipped = &run.skipped[0];
    assert!(fails(&skipped.cell, 0) && skipped.reason.contains("attempt 2") && skipped.reason.contains("went wrong"));
    assert!(told.iter().any(|t| t.starts_with("gave up")), "{told:?}");
    let others: Vec<_> = taken(&unbroken()).into_iter().filter(|(key, _)| *key != skipped.cell.key()).collect();
    let mut got = taken(&run);
    // Its baseline has no other guest that needs it beyond the fewest rounds.
    got.retain(|s| others.contains(s));
    assert_eq!(got.len(), run.samples.len());
    for cell in study().cells().iter().filter(|c| **c != skipped.cell) {
        let rounds = run.samples.iter().filter(|s| s.cell == *cell).count() as u32;
        assert!(rounds >= study().repeat.min_pairs, "{} ran {rounds} times", cell.key());
    }
    // Left out for good: going on does not try it again.
    let mut rig = Fake::default();
    bed.go(study::next, &mut rig).0.unwrap();
    assert!(rig.cells.is_empty());
}

#[test]
fn a_disk_that_cannot_be_had_costs_its_own_cells_alone_and_no_boot() {
    let bed = Bed::new(&study());
    let mut rig = Fake { impossible: Some("lsi53c895a"), ..Fake::default() };
    let (ended, told) = bed.go(study::next, &mut rig);
    ended.unwrap();
    let run = bed.run();
    let reasons: BTreeSet<&str> = run.skipped.iter().map(|s| s.reason.as_str()).collect();
    assert_eq!((run.skipped.len(), reasons), (2, BTreeSet::from(["QEMU has no such disk"])));
    assert!(run.skipped.iter().all(|s| s.cell.key().contains("lsi53c895a")));
    assert!(rig.cells.iter().filter(|(key, ..)| key.contains("lsi53c895a")).count() == 2, "tried once each");
    assert!(!told.iter().any(|t| t.starts_with("retry")), "{told:?}");
    assert_eq!(rig.boots.len(), taken_boots(&run), "no guest is booted anew for it");
    for cell in study().cells().iter().filter(|c| !c.key().contains("lsi53c895a")) {
        let rounds = run.samples.iter().filter(|s| s.cell == *cell).count() as u32;
        assert!(rounds >= study().repeat.min_pairs, "{} ran {rounds} times", cell.key());
    }
}

#[test]
fn a_baseline_that_fails_twice_takes_its_guests_with_it() {
    let bed = Bed::new(&study());
    let fails = |cell: &Cell, _: u32| cell.is_native() && cell.workload() == "durable-append";
    bed.go(study::next, &mut Fake { fails: Some(&fails), ..Fake::default() }).0.unwrap();
    let run = bed.run();
    assert!(run.samples.iter().all(|s| s.cell.workload() == "seq-write" || s.round == 0), "nothing without its pair");
    assert!(run.samples.iter().filter(|s| s.cell.workload() == "seq-write").count() > 12);
}

#[test]
fn nothing_that_can_run_ends_at_once() {
    let bed = Bed::new(&study());
    let (ended, _) = bed.go(study::next, &mut Fake { fails: Some(&|_, _| true), ..Fake::default() });
    assert_eq!(ended.unwrap(), Ended::Done(DoneReason::NothingToRun));
    assert!(bed.run().samples.is_empty() && !bed.run().skipped.is_empty());
}

#[test]
fn budgets_end_the_run_and_hold_across_a_resume() {
    for next in [study::next as Next, next_noise] {
        let mut study = study();
        study.repeat.max_minutes = 10.0 / 60.0; // ten of the rig's seconds
        let clock = std::cell::Cell::new(0.0);
        let bed = Bed::new(&study);
        let (ended, _) = bed.go(next, &mut Fake { clock: Some(&clock), ..Fake::default() });
        assert_eq!(ended.unwrap(), Ended::Done(DoneReason::TimeBudget));
        assert_eq!(bed.run().samples.len(), 10);
        clock.set(0.0);
        bed.go(next, &mut Fake { clock: Some(&clock), ..Fake::default() }).0.unwrap();
        assert_eq!(bed.run().samples.len(), 10, "earlier parts of the run count");

        study.repeat.max_minutes = 60.0;
        study.repeat.max_gib_written = Some(0.1);
        let bed = Bed::new(&study);
        let (ended, _) = bed.go(next, &mut Fake::default());
        assert_eq!(ended.unwrap(), Ended::Done(DoneReason::ByteBudget));
        let written = |run: &Run| run.samples.iter().map(|s| s.work().write_bytes).collect::<Vec<_>>();
        let all = written(&bed.run());
        let budget = (0.1 * study::GIB as f64) as u64;
        let before_last: u64 = all[..all.len() - 1].iter().sum();
        assert!(before_last < budget && all.iter().sum::<u64>() >= budget, "overrun by one cell at most: {all:?}");
    }
}

/// No cell is begun that could take the run over its budget, whatever was written beside the cells and by
/// cells that came to nothing.
#[test]
fn the_write_budget_is_never_overrun() {
    const CELL: u64 = 10_000 * 4096;
    let mut study = study();
    study.repeat.max_gib_written = Some(0.25);
    let budget = (0.25 * study::GIB as f64) as u64;
    let written = |beside_bytes: u64, fails: Option<Fails<'_>>| {
        let bed = Bed::new(&study);
        let mut rig = Fake { most_bytes: CELL, beside_bytes, fails, ..Fake::default() };
        assert_eq!(bed.go(study::next, &mut rig).0.unwrap(), Ended::Done(DoneReason::ByteBudget));
        let stored: u64 = bed.run().samples.iter().map(|s| s.work().write_bytes).sum();
        (stored, rig.cells.len())
    };
    let (stored, _) = written(0, None);
    assert!(stored <= budget && stored + CELL > budget, "{stored} of {budget}");
    let (less, _) = written(100 << 20, None);
    assert!(less + (100 << 20) <= budget && less + CELL + (100 << 20) > budget, "{less} of {budget}");
    // Each that fails may have written all that it was allowed to.
    let (stored, tried) = written(0, Some(&|_, attempt| attempt == 1));
    assert!(stored + 4 * CELL <= budget && tried >= 6, "{stored} of {budget}, {tried} tried");
    // What others wrote to the device meanwhile is not the run's.
    let bed = Bed::new(&study);
    bed.go(study::next, &mut Fake { sees_disk: true, stop_after: Some(1), ..Fake::default() }).0.unwrap();
    let mut sample = bed.run().samples.remove(0);
    let own = engine::spent(std::slice::from_ref(&sample)).bytes_written;
    let device = sample.device().unwrap();
    sample.put_device(Some(DeviceUse { write_bytes: device.write_bytes + (50 << 30), ..device }));
    let busy = engine::spent(std::slice::from_ref(&sample)).bytes_written;
    assert!(own > 0 && busy <= 5 * own + own / 10 + (4 << 20), "{own} {busy}");
    sample.result.amend(|work| work.write_bytes = 0);
    assert_eq!(engine::spent(&[sample]).bytes_written, 0, "a cell that reads");
    // Nothing at all fits.
    assert_eq!(written(budget, None), (0, 0));
}

#[test]
fn a_reason_to_stop_is_heard_before_the_next_cell() {
    let bed = Bed::new(&study());
    let mut rig = Fake { stop_after: Some(0), ..Fake::default() };
    assert_eq!(bed.go(study::next, &mut rig).0.unwrap(), Ended::Stopped("told to stop".into()));
    assert!(rig.boots.is_empty() && rig.cells.is_empty(), "not even a guest is booted");
}

#[test]
fn noise_runs_each_cell_against_itself_in_adjacent_pairs() {
    let (study, bed) = (study(), Bed::new(&study()));
    let mut rig = Fake::default();
    assert_eq!(bed.go(next_noise, &mut rig).0.unwrap(), Ended::Done(DoneReason::MaxPairs));
    assert_eq!(rig.cells.len(), study.cells().len() * 2 * study.repeat.max_pairs as usize);
    for pair in rig.cells.chunks(2) {
        let [(first, even, boot), (second, odd, same_boot)] = pair else { panic!("{pair:?}") };
        assert!(first == second && boot == same_boot && even % 2 == 0 && *odd == even + 1, "{pair:?}");
        assert_eq!(*boot, even / 2, "a boot a pair");
    }
    let whole = taken(&bed.run());
    for stop in [1, 2, 13, 24, 40] {
        let bed = Bed::new(&study);
        bed.go(next_noise, &mut Fake { stop_after: Some(stop), ..Fake::default() }).0.unwrap();
        bed.go(next_noise, &mut Fake::default()).0.unwrap();
        assert_eq!(taken(&bed.run()), whole, "stopped after {stop}");
    }
}

#[test]
fn a_store_that_is_gone_is_an_error_and_not_a_lost_sample() {
    let bed = Bed::new(&study());
    let mut run = bed.run();
    let other = tempfile::tempdir().unwrap();
    // A store in which the run does not exist refuses its samples.
    let store = Store::open(Path::new(&other.path().join("vmio.db"))).unwrap();
    let ended = measure(&bed.study, study::next, &mut run, &store, &mut Fake::default(), &|| 0.0, &mut |_| {});
    assert!(ended.is_err() && run.samples.is_empty());
}

/// Ctrl-C: the process of the cell was killed, and whatever is tried next fails too.
struct Killed;

impl Rig for Killed {
    fn boot(&mut self, _: u32) -> anyhow::Result<()> {
        Ok(())
    }
    fn cell(&mut self, _: &Cell, _: u32, _: u32) -> anyhow::Result<Sample> {
        anyhow::bail!("killed by signal 9")
    }
    fn ending(&self) -> bool {
        true
    }
}

#[test]
fn what_fails_while_the_run_is_ended_is_not_left_out_of_it() {
    let bed = Bed::new(&study());
    let mut run = bed.run();
    let mut told = 0;
    let ended = measure(&bed.study, study::next, &mut run, &bed.store, &mut Killed, &|| 0.0, &mut |event| {
        told += u32::from(matches!(event, Event::Retry(..) | Event::GaveUp(..)));
    });
    assert!(ended.unwrap_err().to_string().contains("signal 9"));
    assert_eq!((told, bed.run().skipped.len()), (0, 0));
}

/// A rig whose storage becomes full.
struct Full {
    boots: u32,
}

impl Rig for Full {
    fn boot(&mut self, _: u32) -> anyhow::Result<()> {
        self.boots += 1;
        Ok(())
    }
    fn cell(&mut self, _: &Cell, _: u32, _: u32) -> anyhow::Result<Sample> {
        anyhow::bail!("fio's error 28")
    }
    fn must_stop(&mut self) -> Option<String> {
        (self.boots > 0).then(|| "the pool is full".to_owned())
    }
}

#[test]
fn storage_that_is_full_ends_the_run_and_leaves_no_cell_out() {
    let bed = Bed::new(&study());
    let mut run = bed.run();
    let mut rig = Full { boots: 0 };
    let mut told = 0;
    let ended = measure(&bed.study, study::next, &mut run, &bed.store, &mut rig, &|| 0.0, &mut |event| {
        told += u32::from(matches!(event, Event::Retry(..) | Event::GaveUp(..)));
    });
    assert_eq!(ended.unwrap(), Ended::Stopped("the pool is full".into()));
    assert_eq!((told, rig.boots, bed.run().skipped.len()), (0, 1, 0), "resumed, the run tries that cell again");
}

/// A rig whose storage is gone when guests are booted.
struct Gone(bool);

impl Rig for Gone {
    fn boot(&mut self, _: u32) -> anyhow::Result<()> {
        self.0 = true;
        anyhow::bail!("QEMU ended with exit code 1")
    }
    fn cell(&mut self, _: &Cell, _: u32, _: u32) -> anyhow::Result<Sample> {
        anyhow::bail!("there is no guest")
    }
    fn must_stop(&mut self) -> Option<String> {
        self.0.then(|| "the server does not answer".to_owned())
    }
}

#[test]
fn storage_that_is_gone_at_a_boot_ends_the_run_for_that_reason() {
    let bed = Bed::new(&study());
    let mut run = bed.run();
    let ended = measure(&bed.study, study::next, &mut run, &bed.store, &mut Gone(false), &|| 0.0, &mut |_| {});
    assert_eq!(ended.unwrap(), Ended::Stopped("the server does not answer".into()));
    assert!(bed.run().skipped.is_empty());
}
