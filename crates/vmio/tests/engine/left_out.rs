//! Cells that fail, and what becomes of the others.

use std::collections::BTreeSet;

use vmio_model::cell::Cell;
use vmio_model::result::Run;
use vmio_model::study::{self, DoneReason};
use vmio_rig::engine::measure::Ended;

use crate::bed::{Bed, Fake, study, taken, unbroken};

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
