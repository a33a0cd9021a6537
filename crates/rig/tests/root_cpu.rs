//! The processor and memory suite natively, from the plan to the results, and beside the same by hand.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;

use crate::common::{Bed, cells};
use vmio_node::Node;
use vmio_rig::{ours, workloads};
use vmio_testbed::must_be_root;

/// A rate by hand may differ on a machine that others use; by as much as this something else was measured.
const ANOTHER_THING: f64 = 8.0;
/// By hand it takes a second at most, in which this machine may stand still: what is another thing is it each time.
const TRIES: u32 = 5;

#[test]
#[ignore = "root"]
fn the_suite_runs_natively_and_its_figures_are_those_by_hand() {
    must_be_root();
    let bed = Bed::new();
    let text = "baseline = 'none'\n[[matrix]]\nsides = ['native']\nmachine = true\nworkloads = [\n\
        'openssl-aes-256-cbc', 'zstd-3', 'lu', 'sharpen', 'allocate', 'memory-write', 'page-faults', 'stress-ng-vm',\n\
        'stream-copy-4m', 'stream-scale-4m', 'stream-add-4m', 'stream-triad-4m',\n]\n";
    let planned = cells::planned(text, &bed.dir(), &bed.dir());
    assert_eq!(planned.skipped(), []);
    let run = cells::measure_by(cells::one_round, &planned, &bed.dir(), &bed.journal, &mut |_| {});
    assert!(run.skipped.is_empty() && run.samples.len() == 12, "{:?}", run.skipped);
    let stored: BTreeMap<&str, f64> =
        run.samples.iter().map(|s| (s.cell.workload(), s.result.figure("throughput").unwrap())).collect();
    println!("{stored:#?}");
    let versions: Vec<&str> = run.environment.programs.keys().map(String::as_str).collect();
    assert_eq!(versions, ["openssl", "stress-ng", "vmio-cpu", "zstd"]);
    // All that works on the machine itself was run, and a member of the family for each of its kernels.
    let entries = workloads::ALL.iter().filter(|w| w.works_on() == vmio_model::study::SubjectKind::Machine).count();
    assert_eq!(entries + 4, run.samples.len());

    let alike = |what: &str, by_hand: &mut dyn FnMut() -> f64| {
        let is_alike = (0..TRIES).any(|_| {
            let by_hand = by_hand();
            let ratio = stored[what] / by_hand;
            println!("{what}: stored {:.4e}, by hand {by_hand:.4e}, ratio {ratio:.2}", stored[what]);
            (1.0 / ANOTHER_THING..ANOTHER_THING).contains(&ratio)
        });
        assert!(is_alike, "{what}: {TRIES} times another rate by hand");
    };
    // As one would type it, read otherwise than vmio reads it: the table at its end, in thousands of bytes a second.
    let openssl = ["speed", "-elapsed", "-seconds", "1", "-bytes", "16384", "-evp", "aes-256-cbc"];
    alike("openssl-aes-256-cbc", &mut || {
        let said = bed.run("openssl", &openssl);
        let row = said.lines().find(|line| line.to_lowercase().starts_with("aes-256-cbc")).unwrap();
        row.split_whitespace().last().unwrap().trim_end_matches('k').parse::<f64>().unwrap() * 1000.0
    });
    // A copy by this test's own hand, without vmio-cpu.
    let (from, mut to) = (vec![1.0f64; 1 << 19], vec![0.0f64; 1 << 19]);
    let runs = 200;
    let bytes = f64::from(runs) * 2.0 * 8.0 * f64::from(1 << 19);
    alike("stream-copy-4m", &mut || {
        let began = std::time::Instant::now();
        for _ in 0..runs {
            std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from));
        }
        bytes / began.elapsed().as_secs_f64()
    });
    // And the program by hand.
    let program = ours::CPU.call(bed.node.reader());
    alike("stream-triad-4m", &mut || {
        let said = bed.run(&program, &["stream-triad", "--size", "4194304", "--seconds", "0.5"]);
        let report: vmio_node::cpu::Report = serde_json::from_str(said.trim()).unwrap();
        report.done / report.seconds
    });
}
