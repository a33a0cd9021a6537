//! The studies that come with vmio.

use std::collections::BTreeSet;

use vmio_model::cell::Cell;
use vmio_model::study::plan::estimate;
use vmio_model::study::{Rates, Study};

use super::{FULL, QUICK, SHAFER, SPARSE, rates, shipped_names, study, traits};

#[test]
fn the_shipped_studies_are_good_and_name_themselves() {
    for (name, text) in [("quick", QUICK), ("sparse", SPARSE), ("full", FULL), ("shafer2010-storage", SHAFER)] {
        let study = study(text);
        assert_eq!(study.name, name);
        let cells = study.cells();
        let distinct: BTreeSet<String> = cells.iter().map(Cell::key).collect();
        assert_eq!(distinct.len(), cells.len());
        for cell in &cells {
            assert!(cells.contains(&cell.natively()), "{}", cell.key());
            let refused = cell.attachment().is_some_and(|a| a.label().contains("writeback,native"));
            assert!(!refused, "{} cannot start", cell.key());
        }
        // What is stored with a run reads back to the same study.
        assert_eq!(Study::parse("stored", &study.to_toml(), &shipped_names()).unwrap(), study);
    }
}

#[test]
fn the_quick_study_has_what_the_demo_promises() {
    let study = study(QUICK);
    let keys: Vec<String> = study.cells().iter().map(Cell::key).collect();
    assert_eq!(keys[0], "device/native/durable-append");
    assert_eq!(keys[1], "device/qemu/lsi53c895a,none,native/durable-append");
    assert_eq!(keys.len(), 18);
    assert_eq!(study.repeat.rounds_per_boot(), 1);
    // 2.5 s a cell and 3 s a boot: figures within two minutes, the fewest rounds within five.
    let rates = Rates { cell_overhead_seconds: 1.0, boot_seconds: 3.0, ..rates() };
    let plan = estimate(&study, &traits(), &rates);
    assert!(plan.first_round_seconds < 120.0, "{}", plan.first_round_seconds);
    assert!(!plan.over_time && plan.min_seconds < 300.0, "{}", plan.min_seconds);
    assert!(!plan.over_bytes, "{}", plan.max_bytes_written);
    assert!(plan.max_seconds <= 360.0);
}

/// The long studies fit their own budgets at this machine's pace, boots and preparation included.
#[test]
fn the_long_studies_fit_their_budgets() {
    for text in [SPARSE, FULL, SHAFER] {
        let plan = estimate(&study(text), &traits(), &rates());
        assert!(!plan.over_time && !plan.over_bytes, "{plan:#?}");
    }
}
