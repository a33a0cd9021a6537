//! Expected effects: what a live guest's findings may cost, from this host's own runs, else from
//! the papers.
#![allow(clippy::unwrap_used)]

use crate::common;

use vmio::expect::PastRuns;
use vmio::store::Store;
use vmio_model::facts::{Disk, Guest, Provenance, Subject};
use vmio_model::result::Accel;
use vmio_model::rules::{Finding, findings};
use vmio_model::run::Run;
use vmio_node::Local;
use vmio_rig::engine::environment::{cpu, memory_bytes};

/// A guest whose disk hangs on the emulated SCSI controller, and what the rules say of it.
fn slow() -> (Guest, Vec<Finding>) {
    let from = Provenance::Transcript { name: "made up".into() };
    let disk = Disk {
        driver: "lsi53c895a".into(),
        cache: "none".into(),
        aio: "native".into(),
        ..Disk::unknown(Subject::disk("web1", "sda"), from)
    };
    let guest = Guest { name: "web1".into(), disks: vec![disk], ..Guest::default() };
    let found = findings(&guest.facts());
    (guest, found)
}

fn expected(found: &[Finding]) -> &vmio_model::rules::Expected {
    found.iter().find(|f| f.rule == "emulated-driver").unwrap().expected.as_ref().unwrap()
}

/// A run of the machine that the test runs on.
fn here(accel: Accel) -> Run {
    let mut run = common::run(accel);
    (run.environment.cpu, run.environment.memory_bytes) = (cpu(&Local::new()), memory_bytes(&Local::new()));
    run
}

#[test]
fn a_run_of_another_host_is_not_said_to_be_of_this_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("vmio.db")).unwrap();
    let mut run = here(Accel::Kvm);
    run.environment.memory_bytes *= 2;
    let run = common::store_run(&store, &run);
    let (guest, mut found) = slow();
    PastRuns::of(Some(&store)).fill(&mut found, &guest);
    assert_eq!(expected(&found).source, format!("run {run}, imported from another host"));
}

#[test]
fn a_stored_run_of_this_host_comes_before_the_papers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmio.db");
    let (guest, unmeasured) = slow();

    let mut found = unmeasured.clone();
    PastRuns::of(None).fill(&mut found, &guest);
    assert_eq!(expected(&found).source, "shafer2010, section 3.3, table 1");

    let store = Store::open(&path).unwrap();
    let run = common::store_run(&store, &here(Accel::Kvm));
    let past_runs = PastRuns::of(Some(&store));
    let mut found = unmeasured.clone();
    past_runs.fill(&mut found, &guest);
    let told = expected(&found);
    assert_eq!(told.source, format!("run {run} on this host"));
    assert!(told.times.unwrap() > 2.0 && told.text.starts_with("emulated SCSI (lsi53c895a) was "), "{told:?}");
    assert!(!told.text.contains("emulation"), "{told:?}");

    // The newest counts, and this one was made under software emulation.
    let newer = common::store_run(&store, &here(Accel::Tcg));
    let mut found = unmeasured;
    PastRuns::of(Some(&store)).fill(&mut found, &guest);
    let told = expected(&found);
    assert_eq!(told.source, format!("run {newer} on this host"));
    assert!(told.text.ends_with("under software emulation (TCG): rely on the direction, not on the size"), "{told:?}");
}
