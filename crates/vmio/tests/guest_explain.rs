//! `vmio explain` of runs on a modelled disk: what is planted at the disk is told of the host's layers alone; and of a
//! guest that runs.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use crate::help::schema::fits;
use crate::help::state_dir::{StateDir, fixture};

use serde_json::Value;

/// Seconds that each request takes longer at the second disk.
const PLANTED: f64 = 2e-3;

/// The parts of the run's only random read in a guest: from the layers to seconds.
fn parts(state: &StateDir, on: &str) -> Vec<(String, f64)> {
    let study = fixture("layers.toml");
    let args = ["study", "run", study.to_str().unwrap(), "--on", on, "--no-gentle", "--yes"];
    state.vmio(&args).came_to_its_end();
    let told = state.vmio(&["explain", "last", "--json"]).with(0).out;
    fits("explain", &told);
    let told: Value = serde_json::from_str(&told).unwrap();
    let cells = told["run"]["cells"].as_array().unwrap();
    let cell = cells.iter().find(|cell| cell["in_guest"] == true).unwrap();
    println!("{on}: {}", cell["waterfall"]);
    assert!(cell["submission_seconds"].is_number(), "{cell}");
    let parts = cell["waterfall"]["parts"].as_array().unwrap();
    let total: f64 = parts.iter().map(|part| part["seconds"].as_f64().unwrap()).sum();
    assert!((total / cell["waterfall"]["total_seconds"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{cell}");
    parts.iter().map(|part| (part["layers"].to_string(), part["seconds"].as_f64().unwrap())).collect()
}

#[test]
#[ignore = "guest: needs QEMU"]
fn long_what_a_disk_takes_longer_is_in_the_hosts_layers_alone() {
    let state = StateDir::with_image();
    let [fast, slow] = ["overhead=100us", "overhead=2100us"]
        .map(|overhead| parts(&state, &format!("modelled:400MB/s,{overhead},seek=0ms")));
    assert_eq!((fast.len(), slow.len()), (5, 5), "{fast:?} {slow:?}");
    // By the guest's own events.
    assert_eq!([&*fast[1].0, &*fast[2].0], ["[\"guest_block\"]", "[\"virtual\"]"]);
    for ((layers, fast), (_, slow)) in fast.iter().zip(&slow) {
        let more = slow - fast;
        if layers.contains("device") {
            assert!((more / PLANTED - 1.0).abs() < 0.25, "{layers}: {more}");
        } else {
            assert!(more.abs() < 0.25 * PLANTED, "{layers}: {more}");
        }
    }
    state.is_clean();
}
