//! Cost of a study.

use std::collections::BTreeMap;

use vmio_model::cell::Cell;
use vmio_model::study::Rates;
use vmio_model::study::plan::{Plan, TargetSpace, estimate, estimate_of, spans};

use super::{SMALL, disks, no_disks, rates, study, traits, whole};

/// A target may take several times its size: an image for each attachment.
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

/// With a power meter the machine is measured at rest before each boot and once at the end.
#[test]
fn time_at_rest_is_counted() {
    let study = study(SMALL);
    let of = |metered| estimate(&study, &traits(), &Rates { metered, ..rates() }).min_seconds;
    let phases = study.repeat.boots_of(study.repeat.min_pairs) + 1;
    let more = of(true) - of(false);
    assert!((more - f64::from(phases) * study.repeat.rest_phase_seconds()).abs() < 1e-9, "{more} s in {phases}");
    assert!((5.0..=12.0).contains(&study.repeat.rest_phase_seconds()));
}

/// The link of a disk over the network takes its time, however fast the server's disk is.
#[test]
fn the_rate_of_a_link_limits_a_networked_disk() {
    let study = study(&SMALL.replace("\"rand-read-1\"", "\"dd-write\""));
    let mut cells = study.cells();
    let seconds = |cells: &[Cell]| estimate_of(&study, cells, &traits(), &rates()).first_round_seconds;
    let free = seconds(&cells);
    for cell in &mut cells {
        cell.settings.insert("rate".into(), "200mbit".into());
    }
    // Three dd, of 512 MiB each, at 25 MB/s instead of 800 MB/s.
    let more = 3.0 * f64::from(512 << 20) * (1.0 / 25e6 - 1.0 / 800e6);
    assert!((seconds(&cells) - free - more).abs() < 6.0, "{free} s, {} s", seconds(&cells));
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
    // Eight rounds would write more than the budget, which bounds everything, also the preparation.
    assert_eq!((plan.max_bytes_written, plan.making_bytes_written), (30 << 30, 1 << 30));
    assert_eq!(plan.likely_bytes_written, (1 << 30) + 5 * plan.round_bytes_written);
}

/// What a writing cell writes shrinks until the fewest rounds fit into the budget, whatever the disk's speed; then
/// there is no warning.
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
        let budget = plan.budget_bytes.unwrap();
        assert!(!plan.over_bytes && hard(&plan, 5) <= budget, "{gib}: {plan:#?}");
        assert!(plan.max_bytes_written <= budget && plan.likely_bytes_written <= plan.max_bytes_written);
        assert_eq!(budget, (study.repeat.max_gib_written.unwrap() * (1u64 << 30) as f64) as u64);
    }
    let (plan, _) = bytes("1.5", &rates());
    assert!(plan.over_bytes, "five rounds of three cells of 64 MiB do not fit into half a GiB");
    // Extra writes and probes take their share.
    let beside = Rates { beside_bytes: 1 << 30, probed: true, ..rates() };
    let (plan, _) = bytes("3", &beside);
    assert_eq!((plan.making_bytes_written, plan.spans["seq-write"] >> 20), (2 << 30, 64));
    assert_eq!(plan.prepare_bytes_written, (2 << 30) + spans::hard_bytes(64 << 20));
}

/// Without writes, whatever the disks' speed, a round takes the cells' times.
#[test]
fn a_study_without_disks_costs_time_alone() {
    let study = whole(
        no_disks(),
        r#"[[matrix]]
sides = ["native", "qemu"]
paths.networks = ["bridge"]
paths.peers = ["host"]
paths.nics = ["virtio-net", "e1000"]
workloads = ["iperf3"]
"#,
    );
    for rates in [rates(), Rates { write_bytes_per_second: 0.0, read_bytes_per_second: 0.0, ..rates() }] {
        let plan = estimate(&study, &traits(), &rates);
        assert_eq!((plan.cells, plan.native_cells, plan.guests_per_boot), (3, 1, 1));
        // Three cells of 2 s and 1 s beside; five rounds use three boots of one guest, eight use four.
        assert_eq!((plan.first_round_seconds, plan.min_seconds, plan.max_seconds), (12.0, 54.0, 84.0));
        let written = [plan.round_bytes_written, plan.prepare_bytes_written, plan.max_bytes_written];
        assert_eq!((written, plan.peak_space_bytes, plan.spans.len()), ([0; 3], 0, 0));
        assert!(!plan.over_bytes && !plan.over_time);
    }
    // Only an image made on the same device is written.
    let beside = Rates { beside_bytes: 800_000_000, ..rates() };
    let plan = estimate(&study, &traits(), &beside);
    assert_eq!((plan.max_bytes_written, plan.min_seconds), (800_000_000, 55.0));
    let machine = "[[matrix]]\nsides = [\"native\"]\nmachine = true\nworkloads = [\"openssl\"]\n";
    let short = whole(no_disks().replace("max_minutes = 10", "max_minutes = 0.1"), machine);
    assert!(estimate(&short, &traits(), &rates()).over_time);
}

/// Two writers at the same time: their writes add up, and the last one ends the cell.
#[test]
fn actors_on_disks_add_up() {
    let of = |head: String, start: &str| {
        whole(
            format!("baseline = \"none\"\n{head}"),
            &format!(
                r#"[[cell]]
actors = [
  {{ side = "qemu", disk = {{ target = "device", driver = "virtio-blk" }}, workload = "durable-append" }},
  {{ side = "qemu", nth = 2, disk = {{ target = "preallocated", driver = "virtio-blk" }}, workload = "rand-write-1", seconds = 5{start} }},
]
"#
            ),
        )
    };
    // 20,000 requests of 4096 bytes a second: 2 s of the one, 5 s of the other.
    let plan = estimate(&of(disks(), ""), &traits(), &rates());
    let bytes = 20_000 * 4096 * (2 + 5);
    assert_eq!((plan.round_bytes_written, plan.making_bytes_written), (bytes, 2 << 30));
    assert_eq!((plan.cells, plan.guests_per_boot), (1, 2));
    assert_eq!(plan.likely_bytes_written, plan.prepare_bytes_written + 5 * bytes);
    let prepare = (2u64 << 30) as f64 / 800e6;
    assert!((plan.first_round_seconds - (prepare + 6.0 + 2.0 * 3.0)).abs() < 1e-9, "{}", plan.first_round_seconds);
    // Starting three seconds later, it ends three seconds later.
    let later = estimate(&of(disks(), ", start_seconds = 3"), &traits(), &rates());
    assert!((later.first_round_seconds - plan.first_round_seconds - 3.0).abs() < 1e-9);
    // Both spans are in a round's budget.
    let small = estimate(&of(disks().replace("_written = 10", "_written = 4"), ""), &traits(), &rates());
    let hard = |plan: &Plan| -> u64 { plan.spans.values().map(|span| spans::hard_bytes(*span)).sum() };
    assert!(!small.over_bytes && small.prepare_bytes_written + 5 * hard(&small) <= 4 << 30, "{small:#?}");
    assert!(hard(&small) < hard(&plan));
}

/// The longest time of a workload's actors counts, not the study's seconds.
#[test]
fn a_span_suffices_for_the_longest_actor() {
    let of = |seconds: u32| {
        let cell = format!(
            "[[cell]]\nactors = [{{ side = \"native\", disk = {{ target = \"device\" }}, workload = \"durable-append\", \
             seconds = {seconds} }}]\n"
        );
        let head = disks().replace("_written = 10", "_written = 3");
        estimate(&whole(head, &cell), &traits(), &Rates { small_ios_per_second: 4e3, ..rates() }).spans["durable-append"]
    };
    assert_eq!((of(2) >> 20, of(4) >> 20), (64, 125));
}

/// A target that is to be warm is read once before; one that others empty is written out before it is overwritten.
#[test]
fn states_have_their_price() {
    let of = |target: &str, states: &str, workload: &str| {
        let cells = format!(
            "[[matrix]]\nsides = [\"native\"]\ndisks = {{ targets = [\"{target}\"], states = [{states}] }}\n\
             workloads = [\"{workload}\"]\n"
        );
        estimate(&whole(disks().replace("_written = 10", "_written = 100"), &cells), &traits(), &rates())
    };
    // A quarter of the memory, by a program that reads it once more from the cache.
    let warm = of("preallocated", "\"warm-host\"", "dd-read");
    let seconds = (1u64 << 30) as f64 / 800e6 + (64u64 << 20) as f64 / 800e6 + 1.0;
    assert!((warm.first_round_seconds - seconds).abs() < 1e-9, "{}", warm.first_round_seconds);
    assert_eq!(warm.round_bytes_written, 0);
    let written = |states: &str| of("sparse", states, "seq-write").round_bytes_written >> 30;
    assert_eq!((written("\"fresh\""), written("\"filled\""), written("\"fresh\", \"filled\"")), (1, 1, 3));
}

/// The plan requires the largest shape; a guest of another shape is another guest.
#[test]
fn shapes_are_in_the_plan() {
    let study = whole(
        no_disks(),
        r#"[[matrix]]
sides = ["native", "qemu"]
shapes = [{}, { vcpus = 4, memory_mib = 1024 }]
machine = true
workloads = ["openssl"]
"#,
    );
    let plan = estimate(&study, &traits(), &rates());
    assert_eq!((plan.vcpus, plan.memory_bytes), (4, 1 << 30));
    assert_eq!(plan.guests_per_boot, 2);
}
