//! The measuring loop against a rig that is made up, and a real store: what is measured, how
//! often, and that breaking it off anywhere loses nothing and doubles nothing.
#![allow(clippy::unwrap_used)]

mod broken_off;
mod budgets;
#[path = "../common/mod.rs"]
mod common;
mod controls;
mod ends;
mod left_out;
mod made_up;

use std::collections::BTreeSet;

use made_up::{Begun, Fake, study, taken, unbroken};
use vmio_model::study::{self, DoneReason};
use vmio_rig::engine::measure::{Ended, next_noise};

#[test]
fn every_guest_sample_has_its_native_one() {
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

#[test]
fn all_known_ends_the_run() {
    let mut study = study();
    study.matrix[0].disks.as_mut().unwrap().drivers = vec!["virtio-blk".into()];
    let begun = Begun::new(&study);
    let (ended, told) = begun.go(study::next, &mut Fake::default());
    assert_eq!(ended.unwrap(), Ended::Done(DoneReason::Converged));
    assert_eq!(told, ["round 0: 2 shares", "round 1: 2 shares", "round 2: 2 shares", "round 3: 2 shares"]);
    // Asked again, it measures nothing more.
    let mut rig = Fake::default();
    assert_eq!(begun.go(study::next, &mut rig).0.unwrap(), Ended::Done(DoneReason::Converged));
    assert!(rig.cells.is_empty() && rig.boots.is_empty());
}

/// Steady state is judged one workload at a time: before each its targets are written over, once, within the budget.
#[test]
fn steady_state_begins_on_targets_written_over() {
    let mut steady = study();
    steady.repeat.steady_state = true;
    let begun = Begun::new(&steady);
    let mut rig = Fake::default();
    assert_eq!(begun.go(study::next, &mut rig).0.unwrap(), Ended::Done(DoneReason::MaxPairs));
    let (appends, writes) = ("device/native/durable-append", "device/native/seq-write");
    let cut = rig.cells.iter().position(|(key, ..)| key.ends_with("seq-write")).unwrap();
    assert!(rig.cells[cut..].iter().all(|(key, ..)| key.ends_with("seq-write")), "one after the other");
    assert_eq!(rig.preconditioned, [(appends.to_owned(), 0), (writes.to_owned(), cut)]);
    for sample in begun.run().samples {
        assert_eq!(sample.round >= steady.repeat.max_pairs, sample.cell.workload() == "seq-write", "{}", sample.round);
    }
    // A new process finds new targets: the one that it goes on with is written over again.
    let begun = Begun::new(&steady);
    begun.go(study::next, &mut Fake { stop_after: Some(cut + 2), ..Fake::default() }).0.unwrap();
    let mut rig = Fake::default();
    begun.go(study::next, &mut rig).0.unwrap();
    assert_eq!(rig.preconditioned, [(writes.to_owned(), 0)]);
    // What would go over the budget is not begun.
    steady.repeat.max_gib_written = Some(1.5);
    let begun = Begun::new(&steady);
    let mut rig = Fake::default();
    assert_eq!(begun.go(study::next, &mut rig).0.unwrap(), Ended::Done(DoneReason::ByteBudget));
    assert!(rig.preconditioned.len() == 1 && rig.beside_bytes == 1 << 30, "{:?}", rig.preconditioned);
}

#[test]
fn noise_runs_each_cell_against_itself_in_adjacent_pairs() {
    let (study, begun) = (study(), Begun::new(&study()));
    let mut rig = Fake::default();
    assert_eq!(begun.go(next_noise, &mut rig).0.unwrap(), Ended::Done(DoneReason::MaxPairs));
    assert_eq!(rig.cells.len(), study.cells().len() * 2 * study.repeat.max_pairs as usize);
    for pair in rig.cells.chunks(2) {
        let [(first, even, boot), (second, odd, same_boot)] = pair else { panic!("{pair:?}") };
        assert!(first == second && boot == same_boot && even % 2 == 0 && *odd == even + 1, "{pair:?}");
        assert_eq!(*boot, even / 2, "a boot a pair");
    }
    let whole = taken(&begun.run());
    for stop in [1, 2, 13, 24, 40] {
        let begun = Begun::new(&study);
        begun.go(next_noise, &mut Fake { stop_after: Some(stop), ..Fake::default() }).0.unwrap();
        begun.go(next_noise, &mut Fake::default()).0.unwrap();
        assert_eq!(taken(&begun.run()), whole, "stopped after {stop}");
    }
}
