//! What ends a run before its time.

use std::path::Path;

use vmio::store::Store;
use vmio_model::cell::Cell;
use vmio_model::result::Sample;
use vmio_model::study;
use vmio_rig::engine::StopCause;
use vmio_rig::engine::measure::{Ended, Event, Rig, measure};

use crate::made_up::{Begun, Fake, study, told_to_stop};

#[test]
fn a_reason_to_stop_is_heard_before_the_next_cell() {
    let begun = Begun::new(&study());
    let mut rig = Fake { stop_after: Some(0), ..Fake::default() };
    assert_eq!(begun.go(study::next, &mut rig).0.unwrap(), Ended::Stopped(told_to_stop()));
    assert!(rig.boots.is_empty() && rig.cells.is_empty(), "not even a guest is booted");
}

#[test]
fn a_store_that_is_gone_is_an_error_and_not_a_lost_sample() {
    let begun = Begun::new(&study());
    let mut run = begun.run();
    let other = tempfile::tempdir().unwrap();
    // A store in which the run does not exist refuses its samples.
    let store = Store::open(Path::new(&other.path().join("vmio.db"))).unwrap();
    let ended = measure(&begun.study, study::next, &mut run, &store, &mut Fake::default(), &|| 0.0, &mut |_| {});
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
    let begun = Begun::new(&study());
    let mut run = begun.run();
    let mut told = 0;
    let ended = measure(&begun.study, study::next, &mut run, &begun.store, &mut Killed, &|| 0.0, &mut |event| {
        told += u32::from(matches!(event, Event::Retry(..) | Event::GaveUp(..)));
    });
    assert!(ended.unwrap_err().to_string().contains("signal 9"));
    assert_eq!((told, begun.run().skipped.len()), (0, 0));
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
    fn must_stop(&mut self) -> Option<StopCause> {
        (self.boots > 0).then(|| StopCause::StorageFailed("the pool is full".into()))
    }
}

#[test]
fn storage_that_is_full_ends_the_run_and_leaves_no_cell_out() {
    let begun = Begun::new(&study());
    let mut run = begun.run();
    let mut rig = Full { boots: 0 };
    let mut told = 0;
    let ended = measure(&begun.study, study::next, &mut run, &begun.store, &mut rig, &|| 0.0, &mut |event| {
        told += u32::from(matches!(event, Event::Retry(..) | Event::GaveUp(..)));
    });
    assert_eq!(ended.unwrap(), Ended::Stopped(StopCause::StorageFailed("the pool is full".into())));
    assert_eq!((told, rig.boots, begun.run().skipped.len()), (0, 1, 0), "resumed, the run tries that cell again");
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
    fn must_stop(&mut self) -> Option<StopCause> {
        self.0.then(|| StopCause::StorageFailed("the server does not answer".into()))
    }
}

#[test]
fn storage_gone_at_a_boot_ends_the_run() {
    let begun = Begun::new(&study());
    let mut run = begun.run();
    let ended = measure(&begun.study, study::next, &mut run, &begun.store, &mut Gone(false), &|| 0.0, &mut |_| {});
    assert_eq!(ended.unwrap(), Ended::Stopped(StopCause::StorageFailed("the server does not answer".into())));
    assert!(begun.run().skipped.is_empty());
}
