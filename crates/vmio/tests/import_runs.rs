//! Runs that come over from other stores: the numbers of their runs become those of this store, and each has its bounds.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::recorded;
use crate::help::state_dir::unfolded;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use vmio::report::export::{Format, export};
use vmio::store::{Imported, RunId, Store, StoreError, proofs_of};
use vmio_model::kind::RunKind;
use vmio_model::run::Run;
use vmio_model::study::Study;

fn import(files: &[&Path], state: &Path, json: bool) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vmio"))
        .args(["runs", "import"])
        .args(files)
        .args(json.then_some("--json"))
        .env("VMIO_STATE", state)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// A run of few samples.
fn small() -> Run {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    recorded::import(&store, &[&recorded::file("quick.json", dir.path())]).unwrap();
    let mut run = store.load_whole(1).unwrap();
    run.samples.retain(|s| s.round == 0);
    run.samples.iter_mut().for_each(|s| s.result.raw = json!({"jobs": [1, 2.5, null]}));
    run
}

fn store_in(dir: &Path) -> Store {
    Store::open(&dir.join("vmio.db")).unwrap()
}

/// A run as an export, in a file of its number.
fn exported(run: &Run, dir: &Path) -> PathBuf {
    let file = dir.join(format!("run-{}.json", run.id));
    fs::write(&file, export(run, Format::Json)).unwrap();
    file
}

/// A proof names the run whose finding it proves by its number.
#[test]
fn proofs_follow_their_runs_to_the_new_numbers() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let own = store_in(here.path());
    let run = small();
    let kept = |id: i64, n: f64| Run { id, started_unix: n, ..run.clone() };
    let proof = |id: i64, n: f64, of: i64| {
        let kind = RunKind::Proof(of);
        let study = Study { name: kind.to_string(), ..run.study.clone() };
        Run { id, started_unix: n, kind, study, ..run.clone() }
    };
    assert_eq!((common::store_run(&own, &kept(0, 1.0)), common::store_run(&own, &kept(0, 2.0))), (1, 2));
    // There: a proof whose run is gone, a run that is here already with its proof, one that is new.
    let all = [proof(2, 4.0, 1), kept(3, 2.0), proof(4, 5.0, 3), kept(5, 6.0), proof(6, 7.0, 5)];
    let files: Vec<PathBuf> = all.iter().map(|run| exported(run, there.path())).collect();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let imported = recorded::import(&own, &files).unwrap();
    assert_eq!(imported, [3, 2, 4, 5, 6].map(|n| if n == 2 { Imported::Known(2) } else { Imported::New(n) }));
    let of = |run: i64| proofs_of(&own, run).unwrap().0.iter().map(|p| p.id).collect::<Vec<_>>();
    assert_eq!((of(1), of(2), of(5)), (vec![], vec![4], vec![6]));
    let named = |id: i64| own.load(id).unwrap().study.name;
    assert_eq!((named(4), named(6), named(5)), ("prove-2".into(), "prove-5".into(), run.kind.to_string()));
    // The run that it proves was not imported: run 1 here is another one.
    let alone = own.load(3).unwrap();
    assert_eq!((alone.kind.to_string(), named(3)), ("proof-of-1-elsewhere".into(), "proof-of-1-elsewhere".into()));

    // An export has no other run with it.
    let file = exported(&Run { started_unix: 8.0, ..own.load_whole(6).unwrap() }, here.path());
    assert_eq!(recorded::import(&own, &[&file]).unwrap(), [Imported::New(7)]);
    assert_eq!((own.load(7).unwrap().kind.to_string(), of(5)), ("proof-of-5-elsewhere".into(), vec![6]));
    assert_eq!(RunId::Last.find(&own).unwrap(), 7, "nothing here shows it with its run");

    // Its run is taken again under another number: the proof follows, also where it is named before its run.
    own.delete(5).unwrap();
    let again = recorded::import(&own, &[files[4], files[3]]).unwrap();
    assert_eq!(again, [Imported::Known(6), Imported::New(8)]);
    assert_eq!((of(5), of(8), named(6)), (vec![], vec![6], "prove-8".into()));
    // A file that calls a run here a proof does not make it one.
    let claims = exported(&Run { kind: RunKind::Proof(4), ..kept(5, 6.0) }, here.path());
    recorded::import(&own, &[files[2], &claims]).unwrap();
    assert_eq!(own.load(8).unwrap().kind, run.kind);
    // Two runs of one number are of two stores: whose the proof is, nobody knows.
    let third = tempfile::tempdir().unwrap();
    let other = exported(&kept(5, 9.0), third.path());
    for (name, order) in [("proof last", [files[3], &*other, files[4]]), ("between", [files[3], files[4], &*other])] {
        let late = store_in(&third.path().join(name));
        recorded::import(&late, &order).unwrap();
        let proof = late.list().unwrap().into_iter().find(|run| run.started_unix == 7.0).unwrap();
        assert_eq!(proof.kind.to_string(), "proof-of-5-elsewhere");
    }
}

#[test]
fn a_run_that_went_on_elsewhere_is_told() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let own = store_in(here.path());
    let run = small();
    common::store_run(&own, &run);
    let mut longer = run.clone();
    longer.samples.extend(run.samples.iter().take(4).cloned());
    // What is known of its surroundings grows while it goes on.
    longer.environment.written_beside_bytes += 1;
    let file = exported(&longer, there.path());
    assert_eq!(recorded::import(&own, &[&file]).unwrap(), [Imported::Longer { here: 1, has: 18, there: 22 }]);
    let output = import(&[&file], here.path(), false);
    let said = unfolded(&String::from_utf8(output.stderr).unwrap());
    assert!(said.contains("already here as run 1 with 18 samples; the export has 22"), "{said}");
    assert!(said.contains("vmio runs delete 1"), "{said}");
    let shorter = store_in(there.path());
    common::store_run(&shorter, &longer);
    let file = exported(&own.load_whole(1).unwrap(), here.path());
    assert_eq!(recorded::import(&shorter, &[&file]).unwrap(), [Imported::Known(1)]);
}

/// Nobody's file fills the memory: what there is too much of is told, with the file.
#[test]
fn an_export_has_its_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let whole: Value = serde_json::from_str(&export(&small(), Format::Json)).unwrap();
    let with = |at: &str, change: &dyn Fn(&mut Value)| {
        let mut export = whole.clone();
        change(export.pointer_mut(at).unwrap());
        export.to_string()
    };
    let many = |value: Value, n: usize| Value::Array(vec![value; n]);
    let skipped = json!({"cell": whole["samples"][0]["cell"], "reason": "x"});
    let reading = whole["samples"][0]["result"]["figures"][0].clone();
    let traits = whole["workloads"][0].clone();
    let figure = traits["figures"][0].clone();
    let actor = json!({"side": {"kind": "native"}, "subject": "machine", "workload": "x"});
    let actors = |sample: &mut Value| {
        sample["cell"]["beside"] = many(actor.clone(), 1000);
        sample["beside"] = many(json!({"seconds": 1.0, "figures": [], "raw": null, "command": ""}), 1000);
    };
    // Many small objects, and objects in each other.
    let objects = |n: usize| {
        with("/samples/0/result/raw", &|v| *v = json!("RAW")).replacen(
            "\"RAW\"",
            &format!("[{}0]", "{\"\":0},".repeat(n)),
            1,
        )
    };
    let pairs = |n: usize| many(json!([1.0, 2.0]), n);
    let percentiles = |n: usize| json!({"distribution": {"mean": 1.0, "percentiles": pairs(n)}});
    let nested = ["{\"\":".repeat(100), "0".into(), "}".repeat(100)].concat();
    let nests = with("/samples/0/result/raw", &|v| *v = json!("RAW")).replacen(
        "\"RAW\"",
        &format!("[{}0]", format!("{nested},").repeat(34_000)),
        1,
    );
    let long_study = Study { title: "x".repeat(2 << 20), ..small().study }.to_toml();
    let cases: Vec<(String, &str)> = vec![
        (objects(2_900_000), "its values would take more than 2048 MiB of memory"),
        (nests, "its values would take more than 2048 MiB of memory"),
        (with("/skipped", &|v| *v = many(skipped.clone(), 20_001)), "it has 20001 cells that did not run"),
        (with("/workloads", &|v| *v = many(traits.clone(), 20_001)), "it has 20001 workloads"),
        (with("/workloads/0/figures", &|v| *v = many(figure.clone(), 1001)), "it has 1001 figures of a workload"),
        (with("/samples/0/result/figures", &|v| *v = many(reading.clone(), 10_001)), "it has 10001 readings in a"),
        (
            with("/samples/0/result/figures/0/value", &|v| *v = percentiles(1001)),
            "it has 1001 percentiles in a reading",
        ),
        (
            with("/samples/0/seen/0/figures/0/value", &|v| *v = percentiles(1001)),
            "it has 1001 percentiles in a reading",
        ),
        (with("/samples/0", &actors), "it has 1001 actors in a cell"),
        (with("/samples/0/result/command", &|v| *v = json!("x".repeat(17 << 20))), "a sample has 18 MiB"),
        (with("/study_toml", &|v| *v = json!(long_study)), "its study has 3 MiB, and vmio takes 1"),
        (with("/command", &|v| *v = json!(["x".repeat(17 << 20)])), "its command line has 17 MiB"),
    ];
    let file = dir.path().join("run.json");
    for (text, wanted) in cases {
        fs::write(&file, text).unwrap();
        let e = recorded::import(&store, &[&file]).unwrap_err();
        assert!(matches!(e, StoreError::TooMuch { .. } | StoreError::Export { .. }), "{e:?}");
        let said = e.to_string();
        assert!(said.contains(wanted) && said.contains(file.to_str().unwrap()), "no {wanted:?} in {said}");
        assert!(store.list().unwrap().is_empty(), "{said}");
    }
    fs::write(&file, objects(10_000)).unwrap();
    assert_eq!(recorded::import(&store, &[&file]).unwrap(), [Imported::New(1)]);
}

/// A run that cannot be taken is told of; those before and after it come.
#[test]
fn an_export_that_cannot_be_taken_does_not_bar_the_others() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let runs = [1, 2, 3, 4].map(|id| Run { id, started_unix: id as f64, ..small() });
    let files = runs.map(|run| exported(&run, there.path()));
    fs::write(&files[1], "{}").unwrap();
    fs::remove_file(&files[2]).unwrap();
    let output = import(&files.each_ref().map(PathBuf::as_path), here.path(), true);
    let said = unfolded(&String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1), "{said}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["imported"], json!([1, 2]));
    let refused = told["refused"].as_array().unwrap();
    for (why, (refused, file)) in
        ["it has no `schema_version`", "no such file:"].into_iter().zip(refused.iter().zip(&files[1..]))
    {
        assert!(said.contains(why) && refused["reason"].as_str().unwrap().contains(why), "no {why:?} in {said}");
        assert_eq!(refused["file"], file.to_str().unwrap());
    }
    assert!(said.contains("error: 2 of 4 files could not be imported"), "{said}");
    let starts = store_in(here.path()).list().unwrap().iter().map(|r| r.started_unix).collect::<Vec<_>>();
    assert_eq!(starts, [4.0, 1.0]);
}

/// Who looks first whether a run is here, and takes it then, takes what another has taken meanwhile.
#[test]
fn two_imports_at_once_take_a_run_once() {
    let there = tempfile::tempdir().unwrap();
    let file = exported(&small(), there.path());
    for _ in 0..10 {
        let here = tempfile::tempdir().unwrap();
        drop(store_in(here.path()));
        let barrier = std::sync::Barrier::new(2);
        let told = std::thread::scope(|scope| {
            let import = || {
                let store = store_in(here.path());
                barrier.wait();
                recorded::import(&store, &[&file]).unwrap()
            };
            let both = [scope.spawn(import), scope.spawn(import)];
            both.map(|thread| thread.join().unwrap()).concat()
        });
        assert!(told.contains(&Imported::New(1)) && told.contains(&Imported::Known(1)), "{told:?}");
        assert_eq!(store_in(here.path()).list().unwrap().len(), 1);
    }
}
