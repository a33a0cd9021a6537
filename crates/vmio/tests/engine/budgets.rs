//! Budgets of time and of what is written.

use vmio_model::result::DeviceUse;
use vmio_model::run::Run;
use vmio_model::study::{self, DoneReason};
use vmio_rig::engine::measure::{Ended, Next, next_noise};
use vmio_rig::engine::spent;

use crate::made_up::{Begun, Fails, Fake, study};

#[test]
fn budgets_end_the_run_and_hold_across_a_resume() {
    for (next, by_rounds) in [(study::next as Next, true), (next_noise, false)] {
        let mut study = study();
        study.repeat.max_minutes = 10.0 / 60.0; // ten of the rig's seconds
        let clock = std::cell::Cell::new(0.0);
        let begun = Begun::new(&study);
        let (ended, told) = begun.go(next, &mut Fake { clock: Some(&clock), ..Fake::default() });
        assert_eq!(ended.unwrap(), Ended::Done(DoneReason::TimeBudget));
        assert_eq!(begun.run().samples.len(), 10);
        // A round that the budget cuts short is none that is done.
        let last = begun.run().samples.last().unwrap().round;
        let whole = begun.run().samples.iter().filter(|s| s.round == last).count() == study.cells().len();
        assert!(!by_rounds || !whole && !told.iter().any(|t| t.starts_with(&format!("round {last}:"))), "{told:?}");
        clock.set(0.0);
        begun.go(next, &mut Fake { clock: Some(&clock), ..Fake::default() }).0.unwrap();
        assert_eq!(begun.run().samples.len(), 10, "earlier parts of the run count");

        study.repeat.max_minutes = 60.0;
        study.repeat.max_gib_written = Some(0.1);
        let begun = Begun::new(&study);
        let (ended, _) = begun.go(next, &mut Fake::default());
        assert_eq!(ended.unwrap(), Ended::Done(DoneReason::ByteBudget));
        let written = |run: &Run| run.samples.iter().map(|s| s.work().write_bytes).collect::<Vec<_>>();
        let all = written(&begun.run());
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
        let begun = Begun::new(&study);
        let mut rig = Fake { most_bytes: CELL, beside_bytes, fails, ..Fake::default() };
        assert_eq!(begun.go(study::next, &mut rig).0.unwrap(), Ended::Done(DoneReason::ByteBudget));
        let stored: u64 = begun.run().samples.iter().map(|s| s.work().write_bytes).sum();
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
    let begun = Begun::new(&study);
    begun.go(study::next, &mut Fake { sees_disk: true, stop_after: Some(1), ..Fake::default() }).0.unwrap();
    let mut sample = begun.run().samples.remove(0);
    let own = spent(std::slice::from_ref(&sample)).bytes_written;
    let device = sample.device().unwrap();
    sample.put_device(Some(DeviceUse { write_bytes: device.write_bytes + (50 << 30), ..device }));
    let busy = spent(std::slice::from_ref(&sample)).bytes_written;
    assert!(own > 0 && busy <= 5 * own + own / 10 + (4 << 20), "{own} {busy}");
    // Figures of an imported run may be anything.
    sample.result.amend(|work| (work.write_bytes, work.ios) = (u64::MAX, u64::MAX));
    sample.put_device(Some(DeviceUse { write_bytes: u64::MAX, ..device }));
    assert_eq!(spent(&[sample.clone(), sample.clone()]).bytes_written, u64::MAX);
    sample.result.amend(|work| (work.write_bytes, work.ios) = (0, 1));
    assert_eq!(spent(&[sample]).bytes_written, 0, "a cell that reads");
    // Nothing at all fits.
    assert_eq!(written(budget, None), (0, 0));
}
