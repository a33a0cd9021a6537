//! The study of cache locations in real guests, and what it says of the paper's effects.
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
