//! The plan of a run in a place that holds volumes, on the made-up Ceph cluster of vmio-rig's tests; a run on a modelled
//! disk.

#![allow(clippy::unwrap_used)]

use crate::help::state_dir;

use std::path::Path;

use state_dir::{Ended, StateDir};

/// Runs the program with the cluster's tools in its `PATH`.
fn vmio(state: &StateDir, args: &[&str]) -> Ended {
    let bin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rig/tests/fixtures/places/bin");
    let mut command = state.command(args);
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    state.finish(&mut command)
}

#[test]
#[ignore = "root"]
fn a_place_of_volumes_takes_the_targets_that_fit_it() {
    let state = StateDir::new();
    let plan =
        vmio(&state, &["tax", "--only", "storage", "--quick", "--on", "rbd:vms", "--no-gentle", "--dry-run", "--json"]);
    // A QEMU without its RBD driver leaves the native cells alone: nothing to compare, and said so.
    let guests_can = !plan.out.contains("QEMU's RBD driver");
    let plan = plan.with(if guests_can { 0 } else { 3 });
    let plan: serde_json::Value = serde_json::from_str(&plan.out).unwrap();
    assert_eq!(plan["place"], "rbd:vms");
    let backing = plan["backing"].as_str().unwrap();
    assert!(backing.contains("not visible here") && backing.contains("Ceph pool at vms"), "{backing}");
    let skipped = plan["skipped"].as_array().unwrap();
    assert!(!skipped.is_empty());
    for cell in skipped {
        let reason = cell["reason"].as_str().unwrap();
        let for_files = reason.contains("this place holds volumes, not files");
        assert!(for_files || reason.contains("QEMU's RBD driver"), "{cell}");
        assert!(!for_files || cell["cell"]["subject"]["disk"]["target"] == "sparse", "{cell}");
    }
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn a_modelled_disk_is_told_in_plan_and_report() {
    let state = StateDir::new();
    let on = "modelled:200MB/s,overhead=50us,seek=1ms";
    // Natively on one target: what a run on it is called does not hang on guests.
    let study = state.path().join("once.toml");
    std::fs::create_dir_all(state.path()).unwrap();
    let text = "name = \"once\"\ntitle = \"Once\"\n[guest]\nvcpus = 1\nmemory_mib = 192\n[size]\ntarget_mib = 384\n\
                [repeat]\nmin_pairs = 2\nmax_pairs = 2\nmin_boots = 2\nhalf_width = 0.05\nseconds = 0.5\nmax_minutes = 5.0\n\
                max_gib_written = 5.0\n[[matrix]]\nsides = [\"native\"]\ndisks.targets = [\"sparse\"]\n\
                workloads = [\"seq-write\"]\n";
    std::fs::write(&study, text).unwrap();
    let start = |more: &[&str]| {
        let mut args = vec!["study", "run", study.to_str().unwrap(), "--on", on, "--no-gentle"];
        args.extend(more);
        state.vmio(&args)
    };
    let plan = start(&["--dry-run"]).with(0);
    plan.says(&["a modelled disk of 200 MB/s that vmio serves from memory", "not of this host's storage", "of memory"]);
    let report = start(&["--yes", "--verbose"]).with(0);
    report.says(&["The disk was modelled, 200 MB/s, 50 µs a request, 1 ms a seek", "loop"]);
    let run = state.last().unwrap();
    let disk = run.environment.modelled.as_ref().unwrap();
    assert!(disk.kept.is_some_and(|kept| kept.requests > 0), "{disk:?}");
    assert!(run.environment.backing.starts_with("a modelled disk (200 MB/s"), "{}", run.environment.backing);
    for sample in &run.samples {
        let device = sample.device().expect("the loop device's counters");
        assert!(device.request_bytes > 0.0 && device.busy_ratio.is_some_and(|busy| busy > 0.0), "{device:?}");
        // The model is a bound from above, whatever else this machine does.
        assert!(sample.work().bandwidth() <= 200e6, "{}", sample.cell.key());
    }
    let backing = &run.effective["sparse/native"]["backing"];
    assert!(backing.starts_with("a modelled disk (") && backing.contains("own counters"), "{backing}");
    std::fs::remove_file(&study).unwrap();
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn places_that_cannot_be_had_are_refused_with_the_mend() {
    let state = StateDir::new();
    let on = |place: &str| vmio(&state, &["tax", "--on", place, "--dry-run"]);
    on("rbdd:vms").with(2).says(&["did you mean `rbd:vms`?"]);
    on("rbd:vns").with(3).says(&["has no pool vns", "did you mean `rbd:vms`?"]);
    on("modelled:fast").with(2).says(&["write for example 40MB/s", "overhead=150us"]);
    on("modelled:40MB/s,size=1TiB").with(3).says(&["a modelled disk lies in memory", "are available"]);
    on("/proc/version").with(3).says(&["is not a directory"]);
    vmio(&state, &["tax", "--device", "/dev/x", "--device", "/dev/x", "--on", "rbd:vms", "--dry-run"])
        .with(2)
        .says(&["both specify"]);
    state.is_clean();
}
