//! The schedule, also under interruptions.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use vmio_model::cell::Cell;
use vmio_model::stats::Ratio;
use vmio_model::study::plan::estimate;
use vmio_model::study::{Control, DoneReason, Link, Progress, SampleKey, Spent, Step, next};

use super::play::{known, play, play_until_steady, play_with, vague};
use super::{SMALL, rates, study, traits};

/// SMALL has one target and two workloads; the disk settles after eight rounds of the one.
#[test]
fn a_group_goes_on_until_its_disk_is_steady() {
    let text = SMALL.replacen("max_pairs = ", "steady_state = true\nmax_pairs = 1", 1);
    let small = study(&text);
    assert_eq!(study(&small.to_toml()), small, "steady_state is kept");
    let (native, other) = ("device/native/seq-write", "device/native/rand-read-1");
    let rounds = |done: &[SampleKey], key: &str| done.iter().filter(|s| s.cell == key).count() as u32;
    let (done, reason) = play_until_steady(&small, |_, n| known(n), None, |key, n| key != native || n >= 8);
    assert_eq!((reason, rounds(&done, native)), (DoneReason::Converged, 8));
    assert!(rounds(&done, other) < 8, "{done:?}");
    let (done, reason) = play_until_steady(&small, |_, n| known(n), None, |key, _| key != native);
    assert_eq!((reason, rounds(&done, native)), (DoneReason::MaxPairs, small.repeat.max_pairs));
    let guest = "device/qemu/virtio-blk,none,native/rand-read-1";
    assert_eq!(rounds(&done, guest), small.repeat.min_pairs, "the next workload has its turn all the same");
}

/// With steady state one workload runs at a time, as its specification demands, so that no workload affects another's
/// rounds. Interruptions change nothing.
#[test]
fn with_steady_state_one_group_follows_another() {
    let small = study(&SMALL.replacen("max_pairs = ", "steady_state = true\nmax_pairs = 1", 1));
    let steady = |_: &str, n: u32| n >= 6;
    let (done, reason) = play_until_steady(&small, |_, n| known(n), None, steady);
    assert_eq!(reason, DoneReason::Converged);
    let order: Vec<bool> = done.iter().map(|s| s.cell.ends_with("seq-write")).collect();
    assert_eq!((order[0], order.windows(2).filter(|w| w[0] != w[1]).count()), (true, 1), "{done:?}");
    let rounds = |writes: bool| done.iter().filter(move |s| s.cell.ends_with("seq-write") == writes).map(|s| s.round);
    assert_eq!((rounds(true).min(), rounds(true).max()), (Some(0), Some(5)));
    assert_eq!(rounds(false).min(), Some(6), "no round has two workloads");
    let plain = |s: &[SampleKey]| s.iter().map(|k| (k.cell.clone(), k.round)).collect::<Vec<_>>();
    for lose in 1..20 {
        let (broken, _) = play_until_steady(&small, |_, n| known(n), Some(lose), steady);
        assert_eq!(plain(&done), plain(&broken), "{lose}");
    }
    // Each group has its own boots and overwrites once more.
    let of = |small: &_| estimate(small, &traits(), &rates());
    let (staged, plain) = (of(&small), of(&study(SMALL)));
    assert!(staged.min_seconds > plain.min_seconds + rates().boot_seconds, "{staged:?} {plain:?}");
    assert_eq!(staged.precondition_bytes_written, small.target_bytes());
}

/// Native cells alone boot nothing and run the fewest rounds, as the plan says.
#[test]
fn native_cells_alone_run_the_fewest_rounds() {
    let text = SMALL
        .replace("sides = [\"native\", \"qemu\"]", "sides = [\"native\"]")
        .replace("sides = [\"qemu\"]", "sides = [\"native\"]");
    let lone = study(&text);
    assert!(lone.is_native_only() && !study(SMALL).is_native_only());
    let (done, reason) = play(&lone, |_, n| known(n), None);
    assert_eq!(reason, DoneReason::FewestRounds);
    assert_eq!(done.len() as u32, lone.repeat.min_pairs * lone.cells().len() as u32);
    let plan = estimate(&lone, &traits(), &rates());
    assert_eq!((plan.guests_per_boot, plan.max_rounds), (0, lone.repeat.min_pairs));
    assert!((plan.max_seconds - plan.min_seconds).abs() < 1e-9);
}

#[test]
fn the_fewest_pairs_use_the_fewest_boots() {
    let (done, reason) = play(&study(SMALL), |_, n| known(n), None);
    assert_eq!(reason, DoneReason::Converged);
    let of = |key: &str| done.iter().filter(|s| s.cell == key).cloned().collect::<Vec<_>>();
    for cell in study(SMALL).cells() {
        let mine = of(&cell.key());
        assert_eq!(mine.len(), 5, "{}", cell.key());
        assert_eq!(mine.iter().map(|s| s.boot).collect::<Vec<_>>(), [0, 0, 1, 1, 2]);
    }
}

/// What is open after the fewest boots needs pairs rather than boots.
#[test]
fn later_boots_have_two_rounds_at_least() {
    let study = study(&SMALL.replacen("min_boots = 3", "min_boots = 5", 1));
    let (done, _) = play(&study, |_, n| vague(n), None);
    let key = study.cells()[0].key();
    let boots: Vec<u32> = done.iter().filter(|s| s.cell == key).map(|s| s.boot).collect();
    assert_eq!(boots, [0, 1, 2, 3, 4, 5, 5, 6]);
    let boots = |rounds| study.repeat.boots_of(rounds);
    assert_eq!([0, 1, 5, 6, 8, 9].map(boots), [0, 1, 5, 6, 7, 7]);
    // Each group of a steady study has the fewest boots of its own.
    let steady = SMALL.replacen("max_pairs = ", "steady_state = true\nmax_pairs = 1", 1);
    let (done, _) = play_until_steady(&self::study(&steady), |_, n| known(n), None, |_, _| true);
    for cell in self::study(&steady).cells() {
        let boots: BTreeSet<u32> = done.iter().filter(|s| s.cell == cell.key()).map(|s| s.boot).collect();
        assert_eq!(boots.len(), 3, "{}", cell.key());
    }
}

#[test]
fn a_round_keeps_a_group_together_and_the_next_is_its_mirror() {
    let (done, _) = play(&study(SMALL), |_, n| vague(n), None);
    let round = |r: u32| done.iter().filter(|s| s.round == r).map(|s| s.cell.clone()).collect::<Vec<_>>();
    for r in 0..8 {
        let order: Vec<bool> = round(r).iter().map(|k| k.ends_with("seq-write")).collect();
        let changes = order.windows(2).filter(|w| w[0] != w[1]).count();
        assert_eq!((order.len(), changes), (6, 1), "round {r}");
        if r % 2 == 1 {
            let mut mirror = round(r - 1);
            mirror.reverse();
            assert_eq!(round(r), mirror);
        }
    }
    assert!((1..4).any(|k| round(2 * k) != round(0)), "every pair of rounds has the same order");
}

/// Two control cells of the guest by the emulated driver, and the common one of both guests.
fn control_cells() -> Vec<Control> {
    let cells = study(SMALL).cells();
    let guest = |driver: &str| cells.iter().find(|c| c.key().contains(driver) && c.workload() == "seq-write").unwrap();
    let control = |driver: &str, link: Link, workload: &str| Control {
        of: guest(driver).clone(),
        cell: guest(driver).natively().running(workload),
        link,
        request_bytes: 4096,
        depth: 1,
        why: "made up".into(),
    };
    vec![
        control("lsi53c895a", Link::Reference, "seq-write-64k-d1"),
        control("lsi53c895a", Link::Size, "seq-write-4k-d1"),
        control("virtio-blk", Link::Reference, "seq-write-64k-d1"),
    ]
}

#[test]
fn control_cells_run_beside_their_guest_from_the_second_round_on() {
    let slow = "device/qemu/lsi53c895a,none,native/seq-write";
    let all = control_cells();
    let share = |key: &str, n: u32| if key == slow { vague(n) } else { known(n) };
    let (done, reason) = play_with(&study(SMALL), &all, share, None);
    assert_eq!(reason, DoneReason::MaxPairs);
    for control in &all {
        let key = control.cell.key();
        let rounds: Vec<u32> = done.iter().filter(|s| s.cell == key).map(|s| s.round).collect();
        assert_eq!(rounds, (1..8).collect::<Vec<u32>>(), "once a round, from the second on: {key}");
    }
    for round in 1..8 {
        let keys: Vec<&str> = done.iter().filter(|s| s.round == round).map(|s| s.cell.as_str()).collect();
        let group: Vec<bool> = keys.iter().map(|k| k.contains("seq-write")).collect();
        let changes = group.windows(2).filter(|w| w[0] != w[1]).count();
        assert!(changes <= 1, "a group and its controls stay together in round {round}: {keys:?}");
    }
    // A converged guest continues until its controls have the fewest pairs.
    let (done, reason) = play_with(&study(SMALL), &all, |_, n| known(n), None);
    assert_eq!(reason, DoneReason::Converged);
    let count = |key: &str| done.iter().filter(|s| s.cell == key).count();
    assert_eq!((count(slow), count("device/native/seq-write-4k-d1")), (6, 5));
    assert_eq!(count("device/qemu/virtio-blk,none,native/rand-read-1"), 5, "those without controls do not");
}

#[test]
fn a_control_that_cannot_run_holds_nobody_up() {
    let (study, all) = (study(SMALL), control_cells());
    let skipped: BTreeSet<String> = all.iter().map(|c| c.cell.key()).collect();
    let done: Vec<SampleKey> = (0..5)
        .flat_map(|round| study.cells().into_iter().map(move |c| SampleKey { cell: c.key(), round, boot: round / 2 }))
        .collect();
    let shares: BTreeMap<String, Ratio> =
        study.cells().iter().filter(|c| !c.is_native()).map(|c| (c.key(), known(5).unwrap())).collect();
    let ask = |skipped: &BTreeSet<String>| {
        let spent = Spent::default();
        let (controls, unsteady, boot) = (&all[..], &BTreeSet::new(), Some(2));
        next(&study, &Progress { done: &done, skipped, shares: &shares, controls, unsteady, spent, boot })
    };
    assert_eq!(ask(&skipped), Step::Done(DoneReason::Converged));
    assert!(matches!(ask(&BTreeSet::new()), Step::Run { .. }));
}

#[test]
fn a_baseline_stays_open_as_long_as_a_guest_needs_it() {
    let slow = "device/qemu/lsi53c895a,none,native/seq-write";
    let (done, reason) = play(&study(SMALL), |key, n| if key == slow { vague(n) } else { known(n) }, None);
    assert_eq!(reason, DoneReason::MaxPairs);
    let count = |key: &str| done.iter().filter(|s| s.cell == key).count();
    assert_eq!((count(slow), count("device/native/seq-write")), (8, 8));
    assert_eq!(count("device/qemu/virtio-blk,none,native/seq-write"), 5);
    assert_eq!(count("device/native/rand-read-1"), 5);
}

#[test]
fn budgets_and_skipped_cells_end_a_run() {
    let study = study(SMALL);
    let (shares, none) = (BTreeMap::new(), BTreeSet::new());
    let ask = |spent: Spent, skipped: &BTreeSet<String>| {
        let (controls, unsteady, boot) = (&[], &BTreeSet::new(), Some(0));
        next(&study, &Progress { done: &[], skipped, shares: &shares, controls, unsteady, spent, boot })
    };
    assert_eq!(ask(Spent { seconds: 600.0, bytes_written: 0 }, &none), Step::Done(DoneReason::TimeBudget));
    assert_eq!(ask(Spent { seconds: 0.0, bytes_written: 10 << 30 }, &none), Step::Done(DoneReason::ByteBudget));
    let all: BTreeSet<String> = study.cells().iter().map(Cell::key).collect();
    assert_eq!(ask(Spent::default(), &all), Step::Done(DoneReason::NothingToRun));
    // Without its baseline a guest cell has no pair.
    let native: BTreeSet<String> = study.cells().iter().filter(|c| c.is_native()).map(Cell::key).collect();
    assert_eq!(ask(Spent::default(), &native), Step::Done(DoneReason::NothingToRun));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each cell runs once a round, in the same rounds and order, however often the process ends; only the boots
    /// differ.
    #[test]
    fn dying_changes_nothing_but_the_boots(lose in 1usize..40) {
        let slow = "device/qemu/lsi53c895a,none,native/seq-write";
        let share = |key: &str, n: u32| if key == slow { vague(n) } else { known(n) };
        let (whole, _) = play(&study(SMALL), share, None);
        let (broken, _) = play(&study(SMALL), share, Some(lose));
        let plain = |s: &[SampleKey]| s.iter().map(|k| (k.cell.clone(), k.round)).collect::<Vec<_>>();
        prop_assert_eq!(plain(&whole), plain(&broken));
        let (whole, _) = play_with(&study(SMALL), &control_cells(), share, None);
        let (broken, _) = play_with(&study(SMALL), &control_cells(), share, Some(lose));
        prop_assert_eq!(plain(&whole), plain(&broken));
    }
}
