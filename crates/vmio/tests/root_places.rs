//! The plan of a run in a place that holds volumes, on the made-up Ceph cluster of vmio-rig's tests.

#![allow(clippy::unwrap_used)]

use crate::help::bed;

use std::path::Path;

use bed::{Bed, Ended};

/// Runs the program with the cluster's tools in its `PATH`.
fn vmio(bed: &Bed, args: &[&str]) -> Ended {
    let bin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rig/tests/fixtures/places/bin");
    let mut command = bed.command(args);
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    bed.finish(&mut command)
}

#[test]
#[ignore = "root"]
fn a_place_of_volumes_takes_the_targets_that_fit_it() {
    let bed = Bed::new();
    let plan = vmio(&bed, &["tax", "--quick", "--on", "rbd:vms", "--no-gentle", "--dry-run", "--json"]);
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
    bed.is_clean();
}

#[test]
#[ignore = "root"]
fn places_that_cannot_be_had_are_refused_with_the_mend() {
    let bed = Bed::new();
    let on = |place: &str| vmio(&bed, &["tax", "--on", place, "--dry-run"]);
    on("rbdd:vms").with(2).says(&["did you mean `rbd:vms`?"]);
    on("rbd:vns").with(3).says(&["has no pool vns", "did you mean `rbd:vms`?"]);
    on("/proc/version").with(3).says(&["is not a directory"]);
    vmio(&bed, &["tax", "--device", "/dev/x", "--device", "/dev/x", "--on", "rbd:vms", "--dry-run"])
        .with(2)
        .says(&["both specify"]);
    bed.is_clean();
}
