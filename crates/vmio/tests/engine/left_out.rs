//! Cells that fail, what becomes of the others, and that all who look at the run are told.

use std::collections::BTreeSet;

use vmio::report::{self, Report};
use vmio::run::ended;
use vmio::term::Style;
use vmio_model::cell::Cell;
use vmio_model::failure::Exit;
use vmio_model::result::RunState;
use vmio_model::run::Run;
use vmio_model::study::{self, DoneReason, Study};
use vmio_model::summary::summarise;
use vmio_rig::engine::measure::{Ended, next_noise};

use crate::made_up::{Begun, Fails, Fake, study, taken, unbroken};

#[test]
fn a_cell_that_fails_once_is_tried_again_in_a_new_guest() {
    let (whole, begun) = (taken(&unbroken()), Begun::new(&study()));
    let fails = |cell: &Cell, attempt: u32| cell.key().contains("virtio-blk") && attempt == 2;
    let mut rig = Fake { fails: Some(&fails), ..Fake::default() };
    let (ended, told) = begun.go(study::next, &mut rig);
    assert_eq!(ended.unwrap(), Ended::Done(DoneReason::MaxPairs));
    assert_eq!(taken(&begun.run()), whole);
    assert!(begun.run().skipped.is_empty());
    let retries: Vec<&String> = told.iter().filter(|t| t.starts_with("retry")).collect();
    assert!(retries.len() == 2 && retries[0].contains("attempt 2 at device/"), "{told:?}");
    let usual = taken_boots(&unbroken());
    assert_eq!(rig.boots.len(), usual + 2, "each failure in a guest costs a boot: {:?}", rig.boots);
}

fn taken_boots(run: &Run) -> usize {
    run.samples.iter().map(|s| s.boot).collect::<BTreeSet<_>>().len()
}

#[test]
fn a_cell_that_fails_twice_is_left_out() {
    let begun = Begun::new(&study());
    let fails = |cell: &Cell, _: u32| cell.key().contains("lsi53c895a") && cell.workload() == "seq-write";
    let (ended, told) = begun.go(study::next, &mut Fake { fails: Some(&fails), ..Fake::default() });
    assert_eq!(ended.unwrap(), Ended::Done(DoneReason::MaxPairs));
    let run = begun.run();
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
    begun.go(study::next, &mut rig).0.unwrap();
    assert!(rig.cells.is_empty());
}

#[test]
fn an_impossible_disk_costs_its_own_cells_alone() {
    let begun = Begun::new(&study());
    let mut rig = Fake { impossible: Some("lsi53c895a"), ..Fake::default() };
    let (ended, told) = begun.go(study::next, &mut rig);
    ended.unwrap();
    let run = begun.run();
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
    let begun = Begun::new(&study());
    let fails = |cell: &Cell, _: u32| cell.is_native() && cell.workload() == "durable-append";
    begun.go(study::next, &mut Fake { fails: Some(&fails), ..Fake::default() }).0.unwrap();
    let run = begun.run();
    assert!(run.samples.iter().all(|s| s.cell.workload() == "seq-write" || s.round == 0), "nothing without its pair");
    assert!(run.samples.iter().filter(|s| s.cell.workload() == "seq-write").count() > 12);
}

#[test]
fn nothing_that_can_run_ends_at_once() {
    let begun = Begun::new(&study());
    let (ended, _) = begun.go(study::next, &mut Fake { fails: Some(&|_, _| true), ..Fake::default() });
    assert_eq!(ended.unwrap(), Ended::Done(DoneReason::NothingToRun));
    assert!(begun.run().samples.is_empty() && !begun.run().skipped.is_empty());
}

/// The study with the guests that become known alone.
fn known() -> Study {
    let mut study = study();
    study.matrix[0].disks.as_mut().unwrap().drivers = vec!["virtio-blk".into()];
    study
}

/// Measures with cells that fail; the run as it is stored then, and all that is said of its end.
fn measured(study: &Study, fails: Fails<'_>) -> (Run, DoneReason, String) {
    let begun = Begun::new(study);
    let ended = begun.go(study::next, &mut Fake { fails: Some(fails), ..Fake::default() }).0.unwrap();
    let Ended::Done(reason) = ended else { panic!("{ended:?}") };
    let run = Run { state: RunState::Done, ..begun.run() };
    let said = ended::notes(study, &run, reason).join("\n");
    (run, reason, said)
}

/// Every form of the report names these cells as not measured.
fn names(run: &Run, cells: &[&str], why: &str) {
    let report = Report::of(run);
    let json: serde_json::Value = serde_json::from_str(&report::json(&report)).unwrap();
    let in_json = json["skipped"].as_array().unwrap().iter().map(|s| s["reason"].as_str().unwrap()).collect::<String>();
    let html = report::html(&report).replace("<wbr>", "");
    let forms = [report::text(&report, Style::PLAIN), report::markdown(&report), html, in_json];
    assert_eq!(json["skipped"].as_array().unwrap().len(), cells.len(), "{json}");
    for (i, form) in forms.iter().enumerate() {
        let words = form.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(why), "form {i}: {form}");
        let told = words.split_once("Not measured").map_or("", |(_, told)| told);
        assert!(i == 3 || cells.iter().all(|cell| told.contains(cell)), "form {i}: {form}");
    }
}

#[test]
fn a_guest_that_never_works_leaves_the_question_open() {
    let fails = |cell: &Cell, _: u32| !cell.is_native();
    let (run, reason, said) = measured(&known(), &fails);
    assert_eq!(reason, DoneReason::LeftOut);
    assert!(run.samples.iter().all(|s| s.cell.is_native()) && !run.samples.is_empty());
    let guests = ["durable-append", "seq-write"].map(|w| format!("device/qemu/virtio-blk,none,native/{w}"));
    names(&run, &guests.each_ref().map(String::as_str), "went wrong");
    assert!(
        said.contains("2 of 4 cells could not be measured") && said.contains("nothing of what was asked"),
        "{said}"
    );
    assert!(!said.contains("every share") && !said.contains("of 0"), "{said}");
    assert_eq!(ended::exit_of(&run), Exit::Partial);
}

#[test]
fn what_lacks_its_baseline_is_named_with_it() {
    let fails = |cell: &Cell, _: u32| cell.is_native() && cell.workload() == "durable-append";
    // One whose guests come first has a sample of them, and no share.
    let (run, reason, said) = measured(&known(), &fails);
    let tried = run.samples.iter().any(|s| s.cell.workload() == "durable-append");
    assert!(!tried, "else another study has to show it");
    assert_eq!(reason, DoneReason::LeftOut);
    let of = "device/native/durable-append";
    let why = format!("what it is compared with, {of}, could not be measured");
    names(&run, &[of, "device/qemu/virtio-blk,none,native/durable-append"], &why);
    assert!(said.contains("2 of 4 cells could not be measured"), "{said}");
    // One share is known: that is an answer.
    assert!(!said.contains("nothing of what was asked") && ended::exit_of(&run) == Exit::Done, "{said}");
    // Nothing more is left out, or told again, when it is taken up again.
    let begun = Begun::new(&known());
    begun.go(study::next, &mut Fake { fails: Some(&fails), ..Fake::default() }).0.unwrap();
    begun.go(study::next, &mut Fake { fails: Some(&fails), ..Fake::default() }).0.unwrap();
    assert_eq!(begun.run().skipped.len(), 2);
}

#[test]
fn a_cell_that_is_left_out_later_says_how_often_it_ran() {
    let fails = |cell: &Cell, attempt: u32| !cell.is_native() && cell.workload() == "seq-write" && attempt > 2;
    let (run, reason, said) = measured(&known(), &fails);
    assert_eq!(reason, DoneReason::LeftOut);
    let cell = "device/qemu/virtio-blk,none,native/seq-write";
    names(&run, &[cell], "attempt 4 at");
    let text = report::text(&Report::of(&run), Style::PLAIN).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(&format!("{cell}: left out after 2 samples: attempt 4")), "{text}");
    assert!(said.contains("1 of 4 cells could not be measured"), "{said}");
}

#[test]
fn a_run_that_has_its_answer_ends_well() {
    let (run, reason, said) = measured(&known(), &|_, _| false);
    assert_eq!((reason, ended::exit_of(&run)), (DoneReason::Converged, Exit::Done));
    assert_eq!(said, "done: every share is known to the wanted width");
    let broken_off = Run { state: RunState::Interrupted("SIGINT".into()), ..run };
    assert_eq!(ended::exit_of(&broken_off), Exit::Partial);
    // What is open is told with what ended it.
    let (run, reason, said) = measured(&study(), &|_, _| false);
    assert_eq!(reason, DoneReason::MaxPairs);
    let of = |reason| ended::notes(&study(), &run, reason).join("\n");
    assert!(of(DoneReason::TimeBudget).ends_with("wider than ±5.0 points; --minutes raises the limit"));
    assert!(of(DoneReason::ByteBudget).ends_with("wider than ±5.0 points; --gib raises the limit"));
    let limit = "not converged: 2 of 4 shares wider than ±5.0 points; for more rounds raise repeat.max_pairs of the study (7 now)";
    assert!(said.ends_with(limit) && !said.contains("--minutes"), "{said}");
    // Cut short, it is told of the same shares that too little is known of them: a log says so of each round.
    let cut = Run { samples: run.samples.iter().filter(|s| s.round < 3).cloned().collect(), ..run.clone() };
    let told = ended::notes(&study(), &cut, DoneReason::TimeBudget).join("\n");
    let rule = study().repeat.convergence();
    let open = ended::open(summarise(&cut).shares.iter().map(|s| &s.share_ratio), &rule).unwrap();
    assert!(open.starts_with("4 of 4 shares not known yet (each needs "), "{open}");
    assert!(told.ends_with(&format!("not converged: {open}; --minutes raises the limit")), "{told}");
    // Native cells alone, and cells that are compared with nothing, are an answer.
    let mut native = known();
    native.matrix[0].sides = vec!["native".into()];
    let (run, reason, _) = measured(&native, &|_, _| false);
    assert_eq!((reason, ended::exit_of(&run)), (DoneReason::FewestRounds, Exit::Done));
    let (run, reason, said) = measured(&native, &|cell, _| cell.workload() == "seq-write");
    assert_eq!((reason, ended::exit_of(&run)), (DoneReason::LeftOut, Exit::Done));
    assert!(said.contains("1 of 2 cells"), "{said}");
    // An A/A run has no shares.
    let mut noise = known();
    noise.name = "noise-made-up".into();
    let begun = Begun::new(&noise);
    begun.go(next_noise, &mut Fake::default()).0.unwrap();
    let run = Run { state: RunState::Done, ..begun.run() };
    assert_eq!(ended::exit_of(&run), Exit::Done);
    let lone = Run { samples: run.samples.iter().filter(|s| s.cell.is_native()).cloned().collect(), ..run };
    assert_eq!(ended::exit_of(&lone), Exit::Partial);
}
