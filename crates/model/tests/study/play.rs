//! Simulates the schedule of runs.

use std::collections::{BTreeMap, BTreeSet};

use vmio_model::stats::{Interval, Ratio};
use vmio_model::study::{Control, DoneReason, Progress, SampleKey, Spent, Step, Study, next};

/// Simulates a run to its end. `share` gives a cell's ratio after a number of pairs; with `lose` the process ends after
/// every so many samples and resumes from the store.
pub fn play(
    study: &Study,
    share: impl Fn(&str, u32) -> Option<Ratio>,
    lose: Option<usize>,
) -> (Vec<SampleKey>, DoneReason) {
    play_whole(study, &[], share, lose, |_, _| true)
}

/// [`play`] with control cells, which are known once round 0 began.
pub fn play_with(
    study: &Study,
    all: &[Control],
    share: impl Fn(&str, u32) -> Option<Ratio>,
    lose: Option<usize>,
) -> (Vec<SampleKey>, DoneReason) {
    play_whole(study, all, share, lose, |_, _| true)
}

/// [`play`] where `steady` says whether the disk of a native cell is steady after a number of rounds.
pub fn play_until_steady(
    study: &Study,
    share: impl Fn(&str, u32) -> Option<Ratio>,
    lose: Option<usize>,
    steady: impl Fn(&str, u32) -> bool,
) -> (Vec<SampleKey>, DoneReason) {
    play_whole(study, &[], share, lose, steady)
}

pub fn play_whole(
    study: &Study,
    all: &[Control],
    share: impl Fn(&str, u32) -> Option<Ratio>,
    lose: Option<usize>,
    steady: impl Fn(&str, u32) -> bool,
) -> (Vec<SampleKey>, DoneReason) {
    let (mut done, mut boot) = (Vec::<SampleKey>::new(), None);
    let skipped = BTreeSet::new();
    for step in 0.. {
        assert!(step < 10_000, "the schedule does not end");
        let pairs = |key: &str| done.iter().filter(|s| s.cell == key).count() as u32;
        let shares: BTreeMap<String, Ratio> = study
            .cells()
            .iter()
            .filter(|c| study.compares(c))
            .filter_map(|c| Some((c.key(), share(&c.key(), pairs(&c.key()))?)))
            .collect();
        let spent = Spent::default();
        let controls = if done.is_empty() { &[] } else { all };
        let natives = study.cells().into_iter().filter(|c| c.is_native()).map(|c| c.key());
        let unsteady: &BTreeSet<String> = &natives.filter(|key| !steady(key, pairs(key))).collect();
        let progress = Progress { done: &done, skipped: &skipped, shares: &shares, controls, unsteady, spent, boot };
        match next(study, &progress) {
            Step::Boot { boot: number } => {
                assert!(done.iter().all(|s| s.boot < number), "boot {number} was used before");
                boot = Some(number);
            }
            Step::Run { cell, round, boot: number } => {
                assert_eq!(Some(number), boot, "a cell without its boot");
                done.push(SampleKey { cell: cell.key(), round, boot: number });
                if lose.is_some_and(|n| done.len() % n == 0) {
                    boot = None;
                }
            }
            Step::Done(reason) => return (done, reason),
        }
    }
    unreachable!()
}

pub fn known(pairs: u32) -> Option<Ratio> {
    let interval = Some(Interval { low: 0.58, high: 0.62 });
    Some(Ratio { value: 0.6, interval, pairs, boots: pairs.div_ceil(2) })
}

pub fn vague(pairs: u32) -> Option<Ratio> {
    Some(Ratio { interval: Some(Interval { low: 0.3, high: 0.9 }), ..known(pairs)? })
}
