//! Control cells, which the first round calls for.

use std::collections::BTreeMap;

use vmio_model::cell::Cell;
use vmio_model::run::Run;
use vmio_model::study;

use crate::made_up::{Begun, Fake, controlled, taken};

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
    let begun = Begun::new(&controlled());
    begun.go(study::next, &mut Fake { sees_disk: true, ..Fake::default() }).0.unwrap();
    let all = controls_of(&begun.run());
    let wanted = [
        "device/native/seq-write-64k-d8",
        "device/native/seq-write-8k-d1",
        "device/native/seq-write-8k-d8",
        "device/qemu/lsi53c895a,none,native/seq-write-8k-d1",
    ];
    assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), wanted);
    assert!(all.values().all(|rounds| *rounds == (1..7).collect::<Vec<u32>>()), "{all:?}");
    // Where the disk shows nothing, there is nothing to control.
    let blind = Begun::new(&controlled());
    blind.go(study::next, &mut Fake::default()).0.unwrap();
    assert!(controls_of(&blind.run()).is_empty());
}

#[test]
fn a_resumed_run_has_the_same_control_cells() {
    let whole = Begun::new(&controlled());
    whole.go(study::next, &mut Fake { sees_disk: true, ..Fake::default() }).0.unwrap();
    for stop in (1..=24).step_by(4) {
        let begun = Begun::new(&controlled());
        begun.go(study::next, &mut Fake { sees_disk: true, stop_after: Some(stop), ..Fake::default() }).0.unwrap();
        begun.go(study::next, &mut Fake { sees_disk: true, ..Fake::default() }).0.unwrap();
        let (run, got) = (begun.run(), controls_of(&begun.run()));
        assert!(taken(&run).windows(2).all(|w| w[0] != w[1]), "stopped after {stop}: nothing twice");
        // A cut round is no pair, so one more round may be needed.
        let of = controls_of(&whole.run());
        assert_eq!(got.keys().collect::<Vec<_>>(), of.keys().collect::<Vec<_>>(), "stopped after {stop}");
        assert!(got.iter().all(|(key, rounds)| rounds.starts_with(&of[key])), "stopped after {stop}: {got:?}");
    }
}

#[test]
fn a_control_cell_that_fails_twice_costs_nothing_else() {
    let begun = Begun::new(&controlled());
    let fails = |cell: &Cell, _: u32| cell.workload() == "seq-write-8k-d1";
    begun.go(study::next, &mut Fake { sees_disk: true, fails: Some(&fails), ..Fake::default() }).0.unwrap();
    let run = begun.run();
    // Both sides run that job: natively, and in the guest.
    assert_eq!(run.skipped.iter().map(|s| s.cell.workload()).collect::<Vec<_>>(), ["seq-write-8k-d1"; 2]);
    assert_eq!(controls_of(&run).len(), 2);
}
