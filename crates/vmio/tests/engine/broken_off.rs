//! Runs that are broken off: nothing is lost, nothing is there twice.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use vmio_model::cell::Cell;
use vmio_model::run::Run;
use vmio_model::study;
use vmio_rig::engine::measure::Ended;

use crate::made_up::{Begun, Fake, study, taken, told_to_stop, unbroken};

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
        let begun = Begun::new(&study());
        let mut rig = Fake { stop_after: Some(stop), ..Fake::default() };
        let (ended, _) = begun.go(study::next, &mut rig);
        assert_eq!(ended.unwrap(), Ended::Stopped(told_to_stop()), "{stop}");
        assert_eq!(begun.run().samples.len(), stop, "all that was acknowledged is stored");
        let mut rig = Fake::default();
        begun.go(study::next, &mut rig).0.unwrap();
        assert_eq!(lost_or_doubled(&begun.run(), 1), Vec::<String>::new(), "stopped after {stop} samples");
        let old: BTreeSet<u32> = begun.run().samples.iter().take(stop).map(|s| s.boot).collect();
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
        let begun = Begun::new(&study());
        let cuts = stops.len();
        for stop in stops {
            let mut rig = Fake { stop_after: Some(stop), fails: Some(&fails), ..Fake::default() };
            begun.go(study::next, &mut rig).0.unwrap();
        }
        let mut rig = Fake { fails: Some(&fails), ..Fake::default() };
        begun.go(study::next, &mut rig).0.unwrap();
        prop_assert_eq!(lost_or_doubled(&begun.run(), cuts), Vec::<String>::new());
        prop_assert!(begun.run().skipped.is_empty());
    }
}
