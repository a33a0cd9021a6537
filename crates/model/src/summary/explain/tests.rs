#![allow(clippy::unwrap_used)]

use super::*;
use crate::cell::Cell;
use crate::summary::{Summary, summarise};
use crate::testing::{Bench, guest, native};

const STUDY: &str = r#"name = "made-up"
title = "t"
cites = ""
[guest]
vcpus = 1
memory_mib = 256
[size]
target_mib = 1024
[repeat]
min_pairs = 5
max_pairs = 12
min_boots = 3
half_width = 0.05
seconds = 1.5
max_minutes = 5.0
max_gib_written = 20.0
[control]
workloads = ["dd-write"]
[[matrix]]
sides = ["native", "qemu"]
disks.targets = ["device"]
disks.drivers = ["lsi53c895a"]
disks.caches = ["none"]
disks.aios = ["native"]
disks.iothreads = [false]
disks.options = [{}]
workloads = ["dd-write"]
"#;

const JOBS: [&str; 3] = ["seq-write-512k-d16", "seq-write-8k-d16", "seq-write-8k-d1"];

fn emulated(workload: &str) -> Cell {
    guest("device", "lsi53c895a", workload)
}

/// A run whose chain has these true figures in MB/s; controls run from the second round on.
fn run() -> Run {
    let mut bench = Bench::new().rounds(7).scatter(0.08);
    let chain = [
        (native("device", "dd-write"), 1900e6),
        (native("device", JOBS[0]), 1500e6),
        (native("device", JOBS[1]), 300e6),
        (native("device", JOBS[2]), 100e6),
        (emulated(JOBS[2]), 40e6),
        (emulated("dd-write"), 120e6),
    ];
    for (cell, figure) in &chain {
        bench = bench.cell(cell.clone(), *figure);
    }
    let mut run = bench.device(&chain[0].0, 524_288.0, 16.0, 0.5).device(&chain[5].0, 8192.0, 1.0, 0.5).run();
    run.study = toml::from_str(STUDY).unwrap();
    run.samples.retain(|s| s.round > 0 || s.cell.workload() == "dd-write");
    run
}

fn only(run: &Run) -> Explanation {
    let Summary { mut explained, .. } = summarise(run);
    assert_eq!(explained.len(), 1);
    explained.remove(0)
}

fn product(e: &Explanation) -> f64 {
    e.links.iter().map(|link| link.ratio.unwrap().value).product()
}

fn differ(e: &Explanation) -> Vec<Differs> {
    e.links.iter().map(|link| link.differs).collect()
}

#[test]
fn the_links_multiply_up_to_the_share_and_each_changes_one_thing() {
    let e = only(&run());
    use Differs::{Depth, Program, Size, Virtualisation};
    assert_eq!(differ(&e), [Program, Size, Depth, Virtualisation, Program]);
    assert!(e.is_whole() && e.links_enough && e.rounds() == 6);
    let share = e.share_ratio.unwrap();
    assert!((product(&e) / share.value - 1.0).abs() < 1e-12, "{} {}", product(&e), share.value);
    assert!(e.links.iter().all(|l| l.ratio.unwrap().pairs == share.pairs));
    assert!(e.links.windows(2).all(|w| w[0].to == w[1].from));
    assert_eq!((&e.links[0].from, &e.links[4].to), (&native("device", "dd-write").key(), &e.key));
    assert!((e.links[3].ratio.unwrap().value / 0.4 - 1.0).abs() < 0.15);
    assert_eq!(e.guest.as_ref().unwrap().key, emulated(JOBS[2]).key());
}

/// A round without one of the chain's cells counts for none of its links.
#[test]
fn only_rounds_that_have_the_whole_chain_count() {
    let mut run = run();
    run.samples.retain(|s| !(s.round == 3 && s.cell == native("device", JOBS[0])));
    run.samples.retain(|s| !(s.round == 5 && s.cell == emulated(JOBS[2])));
    let e = only(&run);
    assert_eq!((e.rounds(), e.links_enough), (4, false));
    assert!(e.links.iter().all(|l| l.ratio.unwrap().pairs == 4));
    assert!((product(&e) / e.share_ratio.unwrap().value - 1.0).abs() < 1e-12);
    // Halves of two boots are no pair.
    for s in run.samples.iter_mut().filter(|s| s.round == 6 && s.cell.is_native()) {
        s.boot += 100;
    }
    assert_eq!(only(&run).rounds(), 3);
}

/// Runs of older versions had no job in the guest: the rest is one link.
#[test]
fn a_run_without_the_guests_own_job_shows_what_it_has() {
    let mut run = run();
    run.samples.retain(|s| s.cell != emulated(JOBS[2]));
    let e = only(&run);
    assert_eq!(differ(&e), [Differs::Program, Differs::Size, Differs::Depth, Differs::Rest]);
    assert!(e.guest.is_none() && e.is_whole() && e.links_enough);
    assert!((product(&e) / e.share_ratio.unwrap().value - 1.0).abs() < 1e-12);
    // A cell that could not run leaves its two links out only.
    run.samples.retain(|s| s.cell != native("device", JOBS[1]));
    let e = only(&run);
    let there: Vec<bool> = e.links.iter().map(|l| l.ratio.is_some()).collect();
    assert_eq!((there, e.is_whole(), e.links_enough), (vec![true, false, false, true], false, false));
    assert_eq!(e.rounds(), 6);
    // Before the second round nothing is known.
    run.samples.retain(|s| s.round == 0);
    let e = only(&run);
    assert_eq!(e.links.len(), 5);
    assert!(e.links.iter().all(|l| l.ratio.is_none()) && !e.is_whole());
}

/// The job in the guest explains a share and is no cell of the study.
#[test]
fn what_explains_a_share_has_none_of_its_own() {
    let run = run();
    let summary = summarise(&run);
    assert_eq!(summary.shares.iter().map(|s| &s.key).collect::<Vec<_>>(), [&emulated("dd-write").key()]);
    let asked: Vec<&String> = summary.asked_for().map(|row| &row.key).collect();
    assert_eq!(asked, [&native("device", "dd-write").key(), &emulated("dd-write").key()]);
    let facts = crate::facts::facts_of(&run, &summary).measured.unwrap();
    assert!(facts.gains.iter().all(|g| g.before.workload() == "dd-write" && g.after.workload() == "dd-write"));
}
