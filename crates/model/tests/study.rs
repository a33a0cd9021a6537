//! Studies: the shipped ones, what is said of bad ones, and the schedule under interruptions.

// Fixtures are files, and times are measured around the model.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use vmio_model::cell::Cell;
use vmio_model::result::{Figure, WorkloadTraits};
use vmio_model::stats::{Interval, Ratio};
use vmio_model::study::plan::{Plan, TargetSpace, estimate, spans};
use vmio_model::study::{
    Control, DoneReason, Family, Link, Names, Progress, Rates, SampleKey, Spent, Step, Study, next,
};

const QUICK: &str = include_str!("../../../studies/quick.toml");
const SPARSE: &str = include_str!("../../../studies/sparse.toml");
const SHAFER: &str = include_str!("../../../studies/shafer2010-storage.toml");
const FULL: &str = include_str!("../../../studies/full.toml");

/// A made-up family: `job-` and a digit that is not 0.
fn job(word: &str) -> Option<Result<(), String>> {
    let n = word.strip_prefix("job-")?;
    Some(if n == "0" { Err("no job is called 0".into()) } else { n.parse::<u8>().map(drop).map_err(|e| e.to_string()) })
}

fn names() -> Names {
    let list = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
    Names {
        guests: list(&["native", "qemu"]),
        targets: list(&["device", "sparse", "preallocated", "served"]),
        drivers: list(&["lsi53c895a", "virtio-blk"]),
        workloads: list(&[
            "dd-write",
            "dd-read",
            "seq-write",
            "seq-read",
            "rand-read-1",
            "rand-read-32",
            "rand-write-1",
            "rand-write-32",
            "durable-append",
        ]),
        workload_family: Some(Family { grammar: "job-<n>", example: "job-7", recognise: job }),
    }
}

#[test]
fn workloads_of_a_family_are_known_by_their_names() {
    let with = |words: &str| QUICK.replacen("\"durable-append\"", words, 1);
    let read = study(&with("\"job-7\", \"durable-append\", \"job-8\""));
    assert_eq!(read.matrix[0].workloads[..3], ["job-7", "durable-append", "job-8"]);
    let problem = |words: &str| {
        let refused = Study::parse("x.toml", &with(words), &names()).unwrap_err();
        assert_eq!(refused.problems.len(), 1);
        refused.problems[0].clone()
    };
    let zero = problem("\"job-0\"");
    assert_eq!((zero.key.as_str(), zero.what.as_str()), ("matrix.workloads", "`job-0`: no job is called 0 (job-<n>)"));
    let other = problem("\"durable-apend\"").what;
    assert!(other.contains("did you mean `durable-append`?") && other.ends_with("and job-<n> like job-7"), "{other}");
    assert!(problem("\"job-7\", \"job-7\"").what.contains("twice"));
}

/// The names that the shipped studies use beside those of [`names`].
fn shipped_names() -> Names {
    let mut names = names();
    let more = ["qcow2", "qcow2-full-l2", "qcow2-small-l2", "qcow2-chain"];
    names.targets.extend(more.map(str::to_owned));
    names.drivers.extend(["ahci", "nvme", "virtio-scsi"].map(str::to_owned));
    names
}

fn study(text: &str) -> Study {
    Study::parse("studies/x.toml", text, &shipped_names()).unwrap()
}

fn problems(text: &str) -> Vec<String> {
    let error = Study::parse("bad.toml", text, &names()).unwrap_err();
    error.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn the_shipped_studies_are_good_and_name_themselves() {
    for (name, text) in [("quick", QUICK), ("sparse", SPARSE), ("full", FULL), ("shafer2010-storage", SHAFER)] {
        let study = study(text);
        assert_eq!(study.name, name);
        let cells = study.cells();
        let distinct: BTreeSet<String> = cells.iter().map(Cell::key).collect();
        assert_eq!(distinct.len(), cells.len());
        for cell in &cells {
            assert!(cells.contains(&cell.baseline()), "{}", cell.key());
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

/// A target may take several times its size: an image for each way to see it.
#[test]
fn targets_say_what_they_take() {
    let study = study(SMALL);
    let plain = estimate(&study, &traits(), &rates());
    let bytes = study.target_bytes();
    assert_eq!((plain.peak_space_bytes, plain.prepare_bytes_written), ((bytes as f64 * 1.2) as u64, bytes));
    let space = TargetSpace { taken_bytes: 5 * bytes, prepared_bytes: 3 * bytes };
    let rates = Rates { target_space: BTreeMap::from([("device".into(), space)]), ..rates() };
    let large = estimate(&study, &traits(), &rates);
    assert_eq!((large.peak_space_bytes, large.prepare_bytes_written), ((bytes as f64 * 6.0) as u64, 3 * bytes));
    assert!(large.min_seconds > plain.min_seconds);
}

fn traits() -> Vec<WorkloadTraits> {
    let one = |name: &str, writes: bool, sequential: bool, block_bytes: u64, depth: u32| WorkloadTraits {
        name: name.into(),
        figure: Figure::Bandwidth,
        reads: !writes,
        writes,
        sequential,
        block_bytes,
        depth,
        direct: true,
        engine: "libaio".into(),
    };
    vec![
        one("dd-write", true, true, 65536, 1),
        one("dd-read", false, true, 65536, 1),
        one("rand-write-1", true, false, 4096, 1),
        one("rand-write-32", true, false, 4096, 32),
        one("seq-write", true, true, 65536, 1),
        one("seq-read", false, true, 65536, 1),
        one("rand-read-1", false, false, 4096, 1),
        one("rand-read-32", false, false, 4096, 32),
        one("durable-append", true, true, 4096, 1),
    ]
}

fn rates() -> Rates {
    Rates {
        write_bytes_per_second: 800e6,
        read_bytes_per_second: 800e6,
        small_ios_per_second: 20e3,
        cell_overhead_seconds: 1.0,
        boot_seconds: 3.0,
        fixed_bytes: BTreeMap::from([("dd-write".into(), 512 << 20), ("dd-read".into(), 512 << 20)]),
        refilled_targets: vec!["sparse".into()],
        written_targets: vec!["device".into(), "preallocated".into()],
        target_space: BTreeMap::new(),
        spare_ratio: 0.2,
        beside_bytes: 0,
        probed: false,
    }
}

const SMALL: &str = r#"name = "small"
title = "t"
[guest]
vcpus = 1
memory_mib = 256
[size]
target_mib = 1024
[repeat]
min_pairs = 5
max_pairs = 8
min_boots = 3
half_width = 0.05
seconds = 2
max_minutes = 10
max_gib_written = 10
[[matrix]]
sides = ["qemu"]
disks.targets = ["device"]
disks.drivers = ["lsi53c895a", "virtio-blk"]
workloads = ["seq-write", "rand-read-1"]
[[matrix]]
sides = ["native", "qemu"]
disks.targets = ["device"]
disks.drivers = ["virtio-blk"]
workloads = ["seq-write"]
"#;

#[test]
fn cells_are_distinct_ordered_and_have_their_baseline() {
    let keys: Vec<String> = study(SMALL).cells().iter().map(Cell::key).collect();
    assert_eq!(
        keys,
        [
            "device/native/seq-write",
            "device/qemu/lsi53c895a,none,native/seq-write",
            "device/qemu/virtio-blk,none,native/seq-write",
            "device/native/rand-read-1",
            "device/qemu/lsi53c895a,none,native/rand-read-1",
            "device/qemu/virtio-blk,none,native/rand-read-1",
        ]
    );
}

#[test]
fn a_plan_by_hand() {
    let text = SMALL.replace("\"rand-read-1\"", "\"dd-write\"").replace("_written = 10", "_written = 30");
    let plan = estimate(&study(&text), &traits(), &rates());
    // A round: three seq-write (each over its target once, 1 GiB, + 1 s), three dd (512 MiB at 800 MB/s + 1 s).
    let seq = (1u64 << 30) as f64 / 800e6 + 1.0;
    let dd = (512u64 << 20) as f64 / 800e6 + 1.0;
    let round = 3.0 * seq + 3.0 * dd;
    let prepare = (1u64 << 30) as f64 / 800e6;
    // Five rounds use three boots of two guests.
    assert!((plan.min_seconds - (prepare + 5.0 * round + 3.0 * 3.0)).abs() < 1e-6);
    assert_eq!(plan.round_bytes_written, 3 * (1 << 30) + 3 * (512 << 20));
    assert_eq!((plan.cells, plan.native_cells, plan.guests_per_boot), (6, 2, 1));
    assert_eq!(plan.peak_space_bytes, (1.2 * (1u64 << 30) as f64) as u64);
    assert!(!plan.over_bytes && !plan.over_time);
    assert_eq!(plan.spans, [("dd-write", 512 << 20), ("seq-write", 1 << 30)].map(|(w, b)| (w.to_owned(), b)).into());
    // Eight rounds would write more than the budget, which bounds it all, the preparation included.
    assert_eq!((plan.max_bytes_written, plan.making_bytes_written), (30 << 30, 1 << 30));
    assert_eq!(plan.likely_bytes_written, (1 << 30) + 5 * plan.round_bytes_written);
}

/// What a writing cell may write shrinks until the fewest rounds fit into the budget, whatever the disk's
/// speed; then there is nothing to warn of.
#[test]
fn the_budget_bounds_all_that_is_written_and_the_fewest_rounds_fit() {
    let bytes = |gib: &str, rates: &Rates| {
        let study = study(&SMALL.replace("_written = 10", &format!("_written = {gib}")));
        (estimate(&study, &traits(), rates), study)
    };
    let hard = |plan: &Plan, rounds: u64| {
        let cell = spans::hard_bytes(plan.spans["seq-write"]);
        plan.prepare_bytes_written + rounds * 3 * cell
    };
    let fast = Rates { write_bytes_per_second: 20e9, ..rates() };
    for (gib, rates, span_mib) in [("100", rates(), 1024), ("10", rates(), 598), ("10", fast, 598), ("3", rates(), 129)]
    {
        let (plan, study) = bytes(gib, &rates);
        assert_eq!(plan.spans["seq-write"] >> 20, span_mib, "{gib}");
        assert!(!plan.over_bytes && hard(&plan, 5) <= plan.budget_bytes, "{gib}: {plan:#?}");
        assert!(plan.max_bytes_written <= plan.budget_bytes && plan.likely_bytes_written <= plan.max_bytes_written);
        assert_eq!(plan.budget_bytes, (study.repeat.max_gib_written * (1u64 << 30) as f64) as u64);
    }
    let (plan, _) = bytes("1.5", &rates());
    assert!(plan.over_bytes, "five rounds of three cells of 64 MiB do not fit into half a GiB");
    // What is written beside, and probes, take their part.
    let beside = Rates { beside_bytes: 1 << 30, probed: true, ..rates() };
    let (plan, _) = bytes("3", &beside);
    assert_eq!((plan.making_bytes_written, plan.spans["seq-write"] >> 20), (2 << 30, 64));
    assert_eq!(plan.prepare_bytes_written, (2 << 30) + spans::hard_bytes(64 << 20));
}

#[test]
fn every_problem_names_file_line_key_and_the_mend() {
    let text = SMALL
        .replace("memory_mib = 256", "memory_mb = 256")
        .replace("half_width = 0.05", "half_width = \"5 %\"")
        .replace("seconds = 2", "seconds = 0")
        .replace("[\"seq-write\", \"rand-read-1\"]", "[\"seq-wrte\", \"rand-read-1\"]")
        .replace("guests = [\"qemu\"]", "guests = []")
        .replace("[\"native\", \"qemu\"]", "\"qemu\"");
    assert_eq!(
        problems(&text),
        [
            "bad.toml:3: guest.memory_mib: missing",
            "bad.toml:5: guest.memory_mb: unknown key; did you mean `memory_mib`? (there is vcpus, memory_mib)",
            "bad.toml:12: repeat.half_width: must be a number, not a string",
            "bad.toml:13: repeat.seconds: 0 is out of range: 0.1 to 3600",
            "bad.toml:18: matrix.guests: is empty; name at least one",
            "bad.toml:20: matrix.workloads: unknown entry `seq-wrte`; did you mean `seq-write`? (there is dd-write, \
             dd-read, seq-write, seq-read, rand-read-1, rand-read-32, rand-write-1, rand-write-32, durable-append), \
             and job-<n> like job-7",
            "bad.toml:23: matrix.guests: must be a list, not a string",
        ]
    );
}

#[test]
fn problems_of_sense() {
    let one = |from: &str, to: &str| {
        let all = problems(&SMALL.replace(from, to));
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    };
    assert!(
        one("max_pairs = 8", "max_pairs = 4").contains("bad.toml:10: repeat.max_pairs: 4 is less than min_pairs (5)")
    );
    assert!(one("target_mib = 1024", "target_mib = 500").contains("bad.toml:7: size.target_mib: 500 is too small"));
    assert!(one("min_boots = 3", "min_boots = 6").contains("repeat.min_boots: 6 boots need at least as many pairs"));
    assert!(one("min_pairs = 5", "min_pairs = -5").contains("repeat.min_pairs: -5 is out of range: 2 to 1000"));
    assert!(one("half_width = 0.05", "half_width = nan").contains("out of range"));
    assert!(one("name = \"small\"", "name = \"\"").contains("bad.toml:1: name: must not be empty"));
    assert!(
        one("[\"device\"]\nguests = [\"qemu\"]", "[\"device\", \"device\"]\nguests = [\"qemu\"]")
            .contains("named twice")
    );
    assert!(one("vcpus = 1", "vcpus 1").contains("bad.toml:4: this is no TOML"));
    assert!(one("vcpus = 1", "vcpus = 1\nvcpus = 2").contains("bad.toml:5"));
    assert!(one("drivers = [\"virtio-blk\"]", "drivers = [\"virtio-blk\"]\naios = [\"uring\"]").contains("`io_uring`"));
    assert!(
        one("drivers = [\"virtio-blk\"]", "drivers = [\"virtio-blk\"]\niothreads = [1]")
            .contains("must be true or false")
    );
    let none = problems("name = \"x\"\ntitle = \"y\"\n");
    assert!(none.iter().any(|p| p.contains("matrix: missing")) && none.len() == 4, "{none:?}");
}

#[test]
fn a_study_of_native_cells_needs_no_drivers() {
    let text =
        SMALL.replace("guests = [\"qemu\"]\ndrivers = [\"lsi53c895a\", \"virtio-blk\"]", "guests = [\"native\"]");
    assert_eq!(study(&text).cells().iter().filter(|c| c.is_native()).count(), 2);
}

/// Plays a run to its end. `share` gives a cell's ratio after so many pairs; with `lose` the
/// process dies after every so many samples and starts again from what the store holds.
fn play(
    study: &Study,
    share: impl Fn(&str, u32) -> Option<Ratio>,
    lose: Option<usize>,
) -> (Vec<SampleKey>, DoneReason) {
    play_whole(study, &[], share, lose, |_, _| true)
}

/// [`play`] with control cells, which are known as soon as round 0 began.
fn play_with(
    study: &Study,
    all: &[Control],
    share: impl Fn(&str, u32) -> Option<Ratio>,
    lose: Option<usize>,
) -> (Vec<SampleKey>, DoneReason) {
    play_whole(study, all, share, lose, |_, _| true)
}

/// [`play`] where `steady` says whether the disk under a native cell is steady after so many rounds.
fn play_until_steady(
    study: &Study,
    share: impl Fn(&str, u32) -> Option<Ratio>,
    lose: Option<usize>,
    steady: impl Fn(&str, u32) -> bool,
) -> (Vec<SampleKey>, DoneReason) {
    play_whole(study, &[], share, lose, steady)
}

fn play_whole(
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
            .filter(|c| !c.is_native())
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
            Step::Run { setup, round, boot: number } => {
                assert_eq!(Some(number), boot, "a cell without its boot");
                done.push(SampleKey { setup: setup.key(), round, boot: number });
                if lose.is_some_and(|n| done.len() % n == 0) {
                    boot = None;
                }
            }
            Step::Done(reason) => return (done, reason),
        }
    }
    unreachable!()
}

fn known(pairs: u32) -> Option<Ratio> {
    let interval = Some(Interval { low: 0.58, high: 0.62 });
    Some(Ratio { value: 0.6, interval, pairs, boots: pairs.div_ceil(2) })
}

fn vague(pairs: u32) -> Option<Ratio> {
    Some(Ratio { interval: Some(Interval { low: 0.3, high: 0.9 }), ..known(pairs)? })
}

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
}

/// Native cells alone boot nothing and run the fewest rounds: the plan says as much.
#[test]
fn native_cells_alone_run_the_fewest_rounds() {
    let text = SMALL
        .replace("guests = [\"native\", \"qemu\"]", "guests = [\"native\"]")
        .replace("guests = [\"qemu\"]", "guests = [\"native\"]");
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
    let guest = |driver: &str| cells.iter().find(|c| c.key().contains(driver) && c.workload == "seq-write").unwrap();
    let control = |driver: &str, link: Link, workload: &str| Control {
        of: guest(driver).clone(),
        cell: Cell { workload: workload.into(), ..guest(driver).baseline() },
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
    // A guest that is known goes on until its controls have the fewest pairs.
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
        .flat_map(|round| study.cells().into_iter().map(move |c| SampleKey { setup: c.key(), round, boot: round / 2 }))
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
    // Without its baseline a guest cell yields no pair.
    let native: BTreeSet<String> = study.cells().iter().filter(|c| c.is_native()).map(Cell::key).collect();
    assert_eq!(ask(Spent::default(), &native), Step::Done(DoneReason::NothingToRun));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// However often the process dies, each cell runs once a round, in the same rounds and the
    /// same order; only the boots differ.
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

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,200}") {
        let _ = Study::parse("x", &text, &names());
    }

    /// A good study with a piece cut out or doubled: good or refused with a line in the file.
    #[test]
    fn a_damaged_study_is_read_or_refused_by_line(from in 0usize..QUICK.len(), length in 1usize..80) {
        let to = (from + length).min(QUICK.len());
        prop_assume!(QUICK.is_char_boundary(from) && QUICK.is_char_boundary(to));
        let text = format!("{}{}", &QUICK[..from], &QUICK[to..]);
        if let Err(error) = Study::parse("x", &text, &names()) {
            prop_assert!(!error.problems.is_empty());
            prop_assert!(error.problems.iter().all(|p| p.line >= 1 && p.line <= text.lines().count() + 1));
        }
    }
}
