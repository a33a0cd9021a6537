//! Stores and exports that runs are taken over from: they are left as they are, may be anybody's, and the numbers of
//! their runs become those of this store.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::bed::unfolded;
use crate::help::old;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rusqlite::Connection;
use serde_json::{Value, json};
use vmio::report::export::{Format, export};
use vmio::store::{Imported, RunId, Store, StoreError, proofs_of};
use vmio_model::kind::RunKind;
use vmio_model::result::{Run, RunState};
use vmio_model::study::Study;

fn import(file: &str, from: &Path, state: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vmio"))
        .args(["runs", "import", file])
        .current_dir(from)
        .env("VMIO_STATE", state)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// A run of few samples.
fn small() -> Run {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("vmio.db")).unwrap();
    store.import_file(&old::file("quick.json", dir.path())).unwrap();
    let mut run = store.load_whole(1).unwrap();
    run.samples.retain(|s| s.round == 0);
    run.samples.iter_mut().for_each(|s| s.result.raw = json!({"jobs": [1, 2.5, null]}));
    run
}

fn store_in(dir: &Path) -> (PathBuf, Store) {
    let path = dir.join("vmio.db");
    (path.clone(), Store::open(&path).unwrap())
}

/// Names and contents of all that lies in a directory, and when it was written.
fn all_of(dir: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let mut all: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .map(|p| (p.clone(), fs::read(&p).unwrap(), fs::metadata(&p).unwrap().modified().unwrap()))
        .collect();
    all.sort();
    all
}

/// Whose a store is and what of its format: it is taken over and left as it is.
#[test]
fn a_store_of_either_format_is_left_as_it_is() {
    for old_format in [true, false] {
        for foreign in [false, true] {
            let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            match old_format {
                true => fs::write(there.path().join("vmio.db"), old::bytes("format-1.db")).unwrap(),
                false => drop(common::store_run(&store_in(there.path()).1, &small())),
            }
            let set = |mode: u32| fs::set_permissions(there.path(), fs::Permissions::from_mode(mode)).unwrap();
            if foreign {
                match rustix::process::geteuid().is_root() {
                    true => std::os::unix::fs::chown(there.path().join("vmio.db"), Some(65534), None).unwrap(),
                    false => set(0o500),
                }
            }
            let before = all_of(there.path());
            let output = import("vmio.db", there.path(), here.path());
            let after = all_of(there.path());
            set(0o700);
            let said = unfolded(&String::from_utf8(output.stderr).unwrap());
            assert_eq!(output.status.code(), Some(0), "{said}");
            assert!(said.contains("imported as run 1"), "{said}");
            assert_eq!(before, after, "of an old format: {old_format}, another's: {foreign}");
            let run = store_in(here.path()).1.load_whole(1).unwrap();
            assert_eq!(run.samples.len(), 18);
            assert!(run.samples.iter().all(|s| !s.result.raw.is_null()));
            // What lies there now is what would have come by the long way.
            if foreign && rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(there.path().join("vmio.db"), Some(0), None).unwrap();
            }
            let own = store_in(there.path()).1;
            assert_eq!(Run { id: 1, ..own.load_whole(own.list().unwrap().last().unwrap().id).unwrap() }, run);
        }
    }
}

/// Whoever was killed left a log, which holds what the store's file does not; with or without its index.
#[test]
fn what_a_killed_vmio_left_in_the_log_comes_over() {
    for (old_format, index) in [(true, false), (false, false), (false, true)] {
        let (here, there, made) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = made.path().join("vmio.db");
        match old_format {
            true => fs::write(&path, old::bytes("format-1.db")).unwrap(),
            false => drop(common::store_run(&store_in(made.path()).1, &small())),
        }
        let c = Connection::open(&path).unwrap();
        c.pragma_update(None, "journal_mode", "WAL").unwrap();
        assert!(c.execute("UPDATE runs SET command = '[\"from the log\"]'", []).unwrap() > 0);
        let ends = if index { &["", "-wal", "-shm"][..] } else { &["", "-wal"] };
        for name in ends.iter().map(|end| format!("vmio.db{end}")) {
            fs::copy(made.path().join(&name), there.path().join(&name)).unwrap();
        }
        drop(c);
        let what = |all: Vec<(PathBuf, Vec<u8>, std::time::SystemTime)>| -> Vec<(PathBuf, Vec<u8>)> {
            // The index is made anew by whoever comes first: it says nothing that the log does not.
            let text = |path: &Path, bytes| if path.ends_with("vmio.db-shm") { Vec::new() } else { bytes };
            all.into_iter().map(|(path, bytes, _)| (path.clone(), text(&path, bytes))).collect()
        };
        let before = what(all_of(there.path()));
        let output = import("vmio.db", there.path(), here.path());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(what(all_of(there.path())), before, "of an old format: {old_format}, with an index: {index}");
        assert_eq!(store_in(here.path()).1.load(1).unwrap().command, ["from the log"]);
    }
}

/// An older vmio may be at work there: what it has done comes over, what it does not yet.
#[test]
fn runs_of_an_older_vmio_that_measures_come_over_without_the_one_at_work() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = there.path().join("vmio.db");
    fs::write(&path, old::bytes("format-1.db")).unwrap();
    let running = "UPDATE runs SET state = '{\"state\":\"running\"}' WHERE id = 4";
    Connection::open(&path).unwrap().execute(running, []).unwrap();
    let owner = fs::File::create(there.path().join("run-4.lock")).unwrap();
    rustix::fs::flock(&owner, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let store = store_in(here.path()).1;
    assert_eq!(store.import_file(&path).unwrap(), [Imported::New(1), Imported::Running(4)]);
    drop(owner);
    assert_eq!(store.import_file(&path).unwrap(), [Imported::Known(1), Imported::New(2)]);
    assert!(matches!(store.load(2).unwrap().state, RunState::Interrupted(_)));
}

/// What is no store is refused in words that say what it is, and is left as it is.
#[test]
fn what_is_no_store_is_told_as_what_it_is() {
    let made = {
        let dir = tempfile::tempdir().unwrap();
        let (path, store) = store_in(dir.path());
        common::store_run(&store, &small());
        drop(store);
        fs::read(path).unwrap()
    };
    let database = |sql: &str| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        fs::read(path).unwrap()
    };
    let mut broken = made.clone();
    broken[100..200].fill(0xff);
    let cases: [(&str, Vec<u8>, &str); 7] = [
        ("empty", Vec::new(), "is no store of vmio: there is nothing in it"),
        ("a text", b"\x7fELF and so on".to_vec(), "it is neither a store nor a JSON object"),
        ("another's", database("CREATE TABLE theirs (x)"), "is no store of vmio: it is a database of another program"),
        ("as vmio's", database("PRAGMA application_id = 1986881903"), "is no store of vmio: there is nothing in it"),
        ("cut", made[..1000].to_vec(), "is no store of vmio: it is no SQLite database, or is damaged"),
        ("broken", broken, "is no store of vmio: it is no SQLite database, or is damaged"),
        ("a word", b"SQLite format 3\0".to_vec(), "is no store of vmio: it is no SQLite database, or is damaged"),
    ];
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (name, bytes, wanted) in cases {
        fs::write(there.path().join("x.db"), &bytes).unwrap();
        let before = all_of(there.path());
        let output = import("x.db", there.path(), here.path());
        let said = unfolded(&String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        assert!(said.contains(wanted), "{name}: no {wanted:?} in {said}");
        assert!(said.contains("help: give a store, or a file that `vmio runs export"), "{name}: {said}");
        assert_eq!(all_of(there.path()), before, "{name}");
    }
    fs::create_dir(there.path().join("a directory")).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, there.path().join("a pipe"), mode).unwrap();
    for (name, code, wanted) in [
        ("typo.db", 3, "there is no file typo.db"),
        ("a directory", 1, "is no store of vmio: it is a directory"),
        ("a pipe", 1, "is no store of vmio: it is a pipe"),
    ] {
        let output = import(name, there.path(), here.path());
        let said = unfolded(&String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(code), "{name}: {said}");
        assert!(said.contains(wanted), "{name}: no {wanted:?} in {said}");
        assert!(said.contains("help: give a store, or a file that `vmio runs export"), "{name}: {said}");
        assert!(!said.contains("mv ") && !said.contains("vmio tax") && !said.contains("--state"), "{name}: {said}");
    }
}

/// A proof names the run whose finding it proves by its number.
#[test]
fn proofs_follow_their_runs_to_the_new_numbers() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (own, (path, other)) = (store_in(here.path()).1, store_in(there.path()));
    let run = small();
    let kept = |store: &Store, n: f64| common::store_run(store, &Run { started_unix: n, ..run.clone() });
    let proof = |store: &Store, n: f64, of: i64| {
        let study = RunKind::Proof(of);
        let toml: Study = toml::from_str(&run.study_toml).unwrap();
        let study_toml = Study { name: study.to_string(), ..toml }.to_toml();
        common::store_run(store, &Run { started_unix: n, study, study_toml, ..run.clone() })
    };
    assert_eq!((kept(&own, 1.0), kept(&own, 2.0)), (1, 2));
    // There: a run that is gone with a proof that stayed, one that is here already, one that is new.
    assert_eq!((kept(&other, 3.0), proof(&other, 4.0, 1), kept(&other, 2.0), proof(&other, 5.0, 3)), (1, 2, 3, 4));
    assert_eq!((kept(&other, 6.0), proof(&other, 7.0, 5)), (5, 6));
    other.delete(1).unwrap();
    drop(other);
    let imported = own.import_file(&path).unwrap();
    assert_eq!(imported, [3, 2, 4, 5, 6].map(|n| if n == 2 { Imported::Known(2) } else { Imported::New(n) }));
    let of = |run: i64| proofs_of(&own, run).unwrap().iter().map(|p| p.id).collect::<Vec<_>>();
    assert_eq!((of(1), of(2), of(5)), (vec![], vec![4], vec![6]));
    let named = |id: i64| toml::from_str::<Study>(&own.load(id).unwrap().study_toml).unwrap().name;
    assert_eq!((named(4), named(6), named(5)), ("prove-2".into(), "prove-5".into(), run.study.to_string()));
    // Its run did not come along: here 1 is another's.
    let alone = own.load(3).unwrap();
    assert_eq!((alone.study.to_string(), named(3)), ("proof-of-1-elsewhere".into(), "proof-of-1-elsewhere".into()));

    // An export has no other run with it.
    let file = there.path().join("run.json");
    let exported = Run { started_unix: 8.0, ..own.load_whole(6).unwrap() };
    fs::write(&file, export(&exported, Format::Json)).unwrap();
    assert_eq!(own.import_file(&file).unwrap(), [Imported::New(7)]);
    assert_eq!((own.load(7).unwrap().study.to_string(), of(5)), ("proof-of-5-elsewhere".into(), vec![6]));
    assert_eq!(RunId::Last.find(&own).unwrap(), 7, "nothing here shows it with its run");

    // Its run is taken again under another number: the proof follows. One whose run comes after it as well.
    own.delete(5).unwrap();
    let again = own.import_file(&path).unwrap();
    assert_eq!(again, [3, 2, 4, 8, 6].map(|n| if n == 8 { Imported::New(8) } else { Imported::Known(n) }));
    assert_eq!((of(5), of(8), named(6)), (vec![], vec![6], "prove-8".into()));
    // What is none here does not become one because a file says so.
    let claims = "UPDATE runs SET study = 'prove-4' WHERE id = 5";
    assert_eq!(Connection::open(&path).unwrap().execute(claims, []).unwrap(), 1);
    own.import_file(&path).unwrap();
    assert_eq!(own.load(8).unwrap().study, run.study);
    let third = tempfile::tempdir().unwrap();
    let late = store_in(third.path()).1;
    late.import_file(&here.path().join("vmio.db")).unwrap();
    let (proof, run) = (late.list().unwrap(), own.load(8).unwrap().started_unix);
    let run = proof.iter().find(|r| r.started_unix == run).unwrap().id;
    assert_eq!(proofs_of(&late, run).unwrap().iter().map(|p| p.started_unix).collect::<Vec<_>>(), [7.0]);
}

#[test]
fn a_run_that_went_on_elsewhere_is_told() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (own, (path, other)) = (store_in(here.path()).1, store_in(there.path()));
    let run = small();
    common::store_run(&own, &run);
    let mut longer = run.clone();
    longer.samples.extend(run.samples.iter().take(4).cloned());
    // What is known of its surroundings grows while it goes on.
    longer.environment.written_beside_bytes += 1;
    common::store_run(&other, &longer);
    drop(other);
    assert_eq!(own.import_file(&path).unwrap(), [Imported::Longer { here: 1, has: 18, there: 22 }]);
    let output = import("vmio.db", there.path(), here.path());
    let said = unfolded(&String::from_utf8(output.stderr).unwrap());
    assert!(said.contains("already here as run 1, which has 18 samples, where that one has 22"), "{said}");
    assert!(said.contains("vmio runs delete 1"), "{said}");
    drop(own);
    let shorter = store_in(there.path()).1;
    assert_eq!(shorter.import_file(&here.path().join("vmio.db")).unwrap(), [Imported::Known(1)]);
}

/// Nobody's file fills the memory: what there is too much of is told, with the file.
#[test]
fn an_export_has_its_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path()).1;
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
    // Seven bytes and an object each; five, and one in the other.
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
        (
            with("/samples/0/result/figures/0/value", &|v| *v = json!({ "series": pairs(100_001) })),
            "it has 100001 values in a series",
        ),
        (with("/samples/0", &actors), "it has 1001 actors in a cell"),
        (with("/samples/0/result/command", &|v| *v = json!("x".repeat(17 << 20))), "a sample has 18 MiB"),
        (with("/study_toml", &|v| *v = json!("#".repeat(17 << 20))), "its study has 17 MiB, and vmio takes 16"),
        (with("/command", &|v| *v = json!(["x".repeat(17 << 20)])), "its command line has 17 MiB"),
    ];
    let file = dir.path().join("run.json");
    for (text, wanted) in cases {
        fs::write(&file, text).unwrap();
        let e = store.import_file(&file).unwrap_err();
        assert!(matches!(e, StoreError::TooMuch { .. } | StoreError::Export { .. }), "{e:?}");
        let said = e.to_string();
        assert!(said.contains(wanted) && said.contains(file.to_str().unwrap()), "no {wanted:?} in {said}");
        assert!(store.list().unwrap().is_empty(), "{said}");
    }
    fs::write(&file, objects(10_000)).unwrap();
    assert_eq!(store.import_file(&file).unwrap(), [Imported::New(1)]);
}

#[test]
fn a_store_has_the_bounds_of_an_export() {
    let nested = ["{\"\":".repeat(100), "0".into(), "}".repeat(100)].concat();
    let nests = format!("[{}0]", format!("{nested},").repeat(34_000));
    let shallow = format!("[{}0]", "{\"\":0},".repeat(2_900_000));
    for (sql, text, wanted) in [
        ("UPDATE raw SET output = ? WHERE sample = 1", &nests, "2048 MiB of memory"),
        ("UPDATE raw SET output = ? WHERE sample = 1", &shallow, "2048 MiB of memory"),
        ("UPDATE samples SET sample = ? WHERE id = 1", &nests, "2048 MiB of memory"),
        ("UPDATE runs SET command = ?", &format!("[{}0]", "\"\",".repeat(16_000_001)), "16000000 values"),
        ("UPDATE runs SET environment = ?", &shallow, "2048 MiB of memory"),
    ] {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (path, other) = store_in(there.path());
        common::store_run(&other, &small());
        drop(other);
        assert_eq!(Connection::open(&path).unwrap().execute(sql, [text]).unwrap(), 1, "{sql}");
        let told = store_in(here.path()).1.import_file(&path).unwrap();
        let [Imported::Refused { there: 1, why }] = &told[..] else { panic!("{sql}: {told:?}") };
        assert!(why.contains("more than vmio takes over"), "{sql}: {why}");
        assert!(why.contains(wanted) && why.contains(path.to_str().unwrap()), "{sql}: {why}");
    }
}

/// A run that cannot be taken is told of; those before and after it come.
#[test]
fn a_run_that_cannot_be_taken_does_not_bar_the_others() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, other) = store_in(there.path());
    for started_unix in [1.0, 2.0, 3.0, 4.0, 5.0] {
        common::store_run(&other, &Run { started_unix, ..small() });
    }
    drop(other);
    let c = Connection::open(&path).unwrap();
    for sql in [
        "UPDATE runs SET environment = '{}' WHERE id = 2",
        "UPDATE samples SET sample = '[]' WHERE run = 3",
        "UPDATE raw SET actor = 7 WHERE sample IN (SELECT id FROM samples WHERE run = 4)",
    ] {
        assert!(c.execute(sql, []).unwrap() > 0, "{sql}");
    }
    drop(c);
    let output = Command::new(env!("CARGO_BIN_EXE_vmio"))
        .args(["runs", "import", path.to_str().unwrap(), "--json"])
        .env("VMIO_STATE", here.path())
        .output()
        .unwrap();
    let said = unfolded(&String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1), "{said}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["imported"], json!([1, 2]));
    let refused = told["refused"].as_array().unwrap();
    assert_eq!(refused.iter().map(|r| r["run"].as_i64().unwrap()).collect::<Vec<_>>(), [2, 3, 4]);
    let whys = ["the environment of run 2", "a sample of run 3", "an actor that is not in it"];
    for (run, why) in refused.iter().zip(whys) {
        assert!(run["reason"].as_str().unwrap().contains(why), "{run}");
        assert!(said.contains(&format!("run {} there was not taken", run["run"])) && said.contains(why), "{said}");
    }
    let starts = store_in(here.path()).1.list().unwrap().iter().map(|r| r.started_unix).collect::<Vec<_>>();
    assert_eq!(starts, [5.0, 1.0]);
}

/// Who looks first whether a run is here, and takes it then, takes what another has taken meanwhile.
#[test]
fn two_imports_at_once_take_a_run_once() {
    let there = tempfile::tempdir().unwrap();
    let (path, other) = store_in(there.path());
    common::store_run(&other, &small());
    drop(other);
    for _ in 0..10 {
        let here = tempfile::tempdir().unwrap();
        drop(store_in(here.path()));
        let barrier = std::sync::Barrier::new(2);
        let told = std::thread::scope(|scope| {
            let import = || {
                let store = store_in(here.path()).1;
                barrier.wait();
                store.import_file(&path).unwrap()
            };
            let both = [scope.spawn(import), scope.spawn(import)];
            both.map(|thread| thread.join().unwrap()).concat()
        });
        assert!(told.contains(&Imported::New(1)) && told.contains(&Imported::Known(1)), "{told:?}");
        assert_eq!(store_in(here.path()).1.list().unwrap().len(), 1);
    }
}

/// SQLite follows what lies beside a store by name: it gets to see a copy.
#[test]
fn what_lies_beside_anothers_store_is_never_followed() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, other) = store_in(there.path());
    common::store_run(&other, &small());
    drop(other);
    // Everybody may write there: somebody put links in the place of what SQLite makes beside a store.
    fs::set_permissions(there.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let victim = here.path().join("victim");
    for name in ["vmio.db-shm", "vmio.db-journal"] {
        std::os::unix::fs::symlink(&victim, there.path().join(name)).unwrap();
    }
    let own = store_in(&here.path().join("own")).1;
    assert_eq!(own.import_file(&path).unwrap(), [Imported::New(1)]);
    assert_eq!(Store::open_reading(&path).unwrap().list().unwrap().len(), 1);
    assert!(!victim.exists());
    // What is written to the copy is refused, not lost.
    assert!(matches!(Store::open_reading(&path).unwrap().delete(1).unwrap_err(), StoreError::Denied { .. }));
    std::os::unix::fs::symlink(&victim, there.path().join("vmio.db-wal")).unwrap();
    let e = own.import_file(&path).unwrap_err();
    assert!(e.to_string().contains("vmio.db-wal is no plain file"), "{e}");
    assert!(!victim.exists());
}
