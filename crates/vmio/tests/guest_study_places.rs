//! The studies of cache locations in real guests, and what they say of the paper's effects.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use crate::help::state_dir::{StateDir, fixture};
use vmio_model::figure::scalar;
use vmio_model::result::{Mark, READ, RunState, Sample, Watched};
use vmio_model::run::Run;
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

/// What a sample's guest read of a disk, as QEMU counts.
fn read_of(sample: &Sample, disk: &str) -> f64 {
    let drive = sample.seen.iter().find(|seen| seen.watched == Watched::Drive(disk.to_owned()));
    drive.and_then(|drive| scalar(&drive.figures, READ)).unwrap_or_else(|| panic!("{disk}: {:?}", sample.seen))
}

/// Prints what vmio said where a sample was not proved: why, what of each pass the slow disk served before it, and what
/// the guest's kernel counts of its cache.
fn tell_unproved(run: &Run, said: &str) {
    if run.samples.iter().any(|sample| sample.marks.contains(&Mark::NotWarm)) {
        println!("{said}");
    }
}

#[test]
#[ignore = "guest: needs QEMU"]
fn long_caches_in_a_guest_serve_what_they_hold_and_nothing_else() {
    let state = StateDir::with_image();
    if vmio_node::find_program(&vmio_node::Local::new(), "dmsetup").is_none() {
        return skip("no dmsetup");
    }
    let study = fixture("guest-caches.toml");
    let on = "modelled:400MB/s,overhead=100us,seek=0ms";
    let args = ["study", "run", study.to_str().unwrap(), "--yes", "--no-gentle", "--on", on];
    let ended = state.vmio(&args).came_to_its_end();
    let run = state.last().unwrap();
    tell_unproved(&run, &ended.err);
    assert_eq!((&run.state, run.skipped.as_slice()), (&RunState::Done, [].as_slice()));
    for place in
        ["guest-bcache+filled", "guest-bcache+warm-flash", "guest-dm-cache+filled", "guest-dm-cache+warm-flash"]
    {
        assert!(run.samples.iter().any(|sample| sample.cell.key().starts_with(place)), "no sample on {place}");
    }
    let counted = |sample: &Sample| {
        let (key, read) = (sample.cell.key(), sample.result.disk_work().read_bytes as f64);
        let target = if key.starts_with("guest-bcache") { "guest-bcache" } else { "guest-dm-cache" };
        let [slow, fast] = [target.to_owned(), format!("{target}, cache")].map(|disk| read_of(sample, &disk));
        (key, target, [read, slow, fast])
    };
    // All are printed before the first that is not as it should be.
    for sample in &run.samples {
        let (key, _, [read, slow, fast]) = counted(sample);
        println!("{key}: {read} read, {slow} of the slow disk, {fast} of the cache's: {:?}", sample.marks);
    }
    for sample in &run.samples {
        let (key, target, [read, slow, fast]) = counted(sample);
        assert!(!sample.marks.contains(&Mark::NotWarm), "{key}: {:?}", sample.seen);
        let own = sample.seen.iter().find(|seen| seen.watched == Watched::Other("dm-cache".to_owned()));
        assert_eq!(own.is_some(), target == "guest-dm-cache", "{key}: {:?}", sample.seen);
        if let Some(own) = own {
            let [hits, misses] = ["read-hits", "read-misses"].map(|name| scalar(&own.figures, name).unwrap());
            println!("{key}: the kernel counts {hits} hits, {misses} misses");
            assert!(hits + misses > 0.0, "{key}");
        }
        if key.contains("+warm-flash/") {
            assert!(slow <= 0.05 * read && fast >= 0.95 * read, "{key}");
        } else {
            assert!(slow >= 0.95 * read, "{key}");
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
    let args = ["study", "run", "lu2016-flash-quick", "--yes", "--no-gentle", "--on", on];
    let ended = state.vmio(&args).came_to_its_end();
    let run = state.last().unwrap();
    tell_unproved(&run, &ended.err);
    assert_eq!((&run.state, run.skipped.as_slice()), (&RunState::Done, [].as_slice()));
    assert!(run.environment.modelled.is_some());
    let caches = ["flash-cache", "guest-bcache", "guest-dm-cache"];
    let cached = |key: &str| caches.iter().any(|cache| key.starts_with(*cache));
    let samples: Vec<&Sample> = run.samples.iter().filter(|sample| cached(&sample.cell.key())).collect();
    let counted = |sample: &Sample| {
        let slow = sample.device().unwrap().read_bytes as f64;
        (sample.cell.key(), sample.result.disk_work().read_bytes as f64, slow)
    };
    for sample in &samples {
        let (key, read, slow) = counted(sample);
        println!("{key}: {slow} of {read} read of the slow disk: {:?}", sample.marks);
    }
    for sample in &samples {
        let (key, read, slow) = counted(sample);
        assert!(!sample.marks.contains(&Mark::NotWarm), "{key}: {:?}", sample.seen);
        if key.contains("+warm-flash/") {
            assert!(slow <= 0.05 * read.min(512e6), "{key}");
        } else {
            assert!(slow >= 0.95 * read, "{key}");
        }
    }
    for cache in caches {
        assert!(run.samples.iter().any(|sample| sample.cell.key().starts_with(cache)), "no sample of {cache}");
    }
    // The cache's device alone: its own counters have all that was read of it.
    let alone = run.samples.iter().filter(|sample| sample.cell.key().starts_with("flash-disk"));
    let share = |sample: &Sample| {
        let read = sample.result.disk_work().read_bytes as f64;
        sample.device().unwrap().read_bytes as f64 / read
    };
    let shares = alone.map(share).collect::<Vec<_>>();
    assert!(!shares.is_empty() && shares.iter().all(|share| *share >= 0.95), "{shares:?}");
    let compared = state.vmio(&["study", "compare", "lu2016-flash-quick", "paper", "--json"]).with(0).json();
    let effects = compared["effects"].as_array().unwrap();
    let hits = effects.iter().find(|judged| judged["effect"]["id"] == "flash-hit-avoids-the-disk").unwrap();
    assert_eq!(hits["verdict"], "holds", "{hits:#}");
    state.is_clean();
}
