//! The studies of cache locations in real guests, and what they say of the paper's effects.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use crate::help::state_dir::StateDir;
use vmio_model::result::{Mark, RunState};
use vmio_testbed::skip;

#[test]
#[ignore = "guest: needs QEMU"]
fn long_reads_are_cheaper_from_the_guests_page_cache_than_from_the_hosts() {
    let state = StateDir::with_image();
    let on = state.path();
    let args = ["study", "run", "lu2016-quick", "--yes", "--no-gentle", "--on", on.to_str().unwrap()];
    state.vmio(&args).came_to_its_end();
    let run = state.last().unwrap();
    assert_eq!((&run.state, run.skipped.as_slice()), (&RunState::Done, [].as_slice()));
    let whole = run.samples.iter().filter(|sample| sample.is_comparable()).count();
    println!("{whole} of {} samples are proved", run.samples.len());
    // In the guest only the guest's own reads count; at the host's disk those of others do, too.
    for sample in &run.samples {
        let own = sample.cell.key().starts_with("preallocated+warm-guest");
        assert!(!own || !sample.marks.contains(&Mark::NotWarm), "{}: {:?}", sample.cell.key(), sample.seen);
    }
    assert!(run.samples.iter().any(|sample| sample.beside.len() == 3), "four guests at once");
    let compared = state.vmio(&["study", "compare", "lu2016-quick", "paper", "--json"]).with(0).json();
    let effect = |id: &str| {
        let mut effects = compared["effects"].as_array().unwrap().iter();
        effects.find(|judged| judged["effect"]["id"] == id).unwrap().clone()
    };
    for id in ["host-side-throughput", "host-side-latency"] {
        let judged = effect(id);
        match judged["verdict"].as_str().unwrap() {
            "not-decidable" => skip(&format!("{id}: {}", judged["reason"])),
            verdict => assert_eq!(verdict, "holds", "{judged:#}"),
        }
    }
    state.is_clean();
}

/// The slow disk is modelled, so nobody else's reads are counted there.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_counters_tell_hits_of_a_flash_cache_from_misses() {
    let state = StateDir::with_image();
    if vmio_node::find_program(&vmio_node::Local::new(), "nbdkit").is_none() {
        return skip("no nbdkit");
    }
    let on = "modelled:100MB/s,overhead=150us,seek=4ms";
    state.vmio(&["study", "run", "lu2016-flash-quick", "--yes", "--no-gentle", "--on", on]).came_to_its_end();
    let run = state.last().unwrap();
    assert_eq!((&run.state, run.skipped.as_slice()), (&RunState::Done, [].as_slice()));
    assert!(run.environment.modelled.is_some());
    let cached = |key: &str| key.starts_with("flash-cache") || key.starts_with("guest-bcache");
    for sample in run.samples.iter().filter(|sample| cached(&sample.cell.key())) {
        let (key, read) = (sample.cell.key(), sample.result.disk_work().read_bytes as f64);
        let slow = sample.device().unwrap().read_bytes as f64;
        println!("{key}: {slow} of {read} read of the slow disk: {:?}", sample.marks);
        assert!(!sample.marks.contains(&Mark::NotWarm), "{key}: {:?}", sample.seen);
        if key.contains("+warm-flash/") {
            assert!(slow <= 0.05 * read.min(512e6), "{key}");
        } else {
            assert!(slow >= 0.95 * read, "{key}");
        }
    }
    let compared = state.vmio(&["study", "compare", "lu2016-flash-quick", "paper", "--json"]).with(0).json();
    let effects = compared["effects"].as_array().unwrap();
    let hits = effects.iter().find(|judged| judged["effect"]["id"] == "flash-hit-avoids-the-disk").unwrap();
    assert_eq!(hits["verdict"], "holds", "{hits:#}");
    state.is_clean();
}
