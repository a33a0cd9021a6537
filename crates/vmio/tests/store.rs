//! The store: what goes in comes out, and survives what may befall a host.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use vmio::store::{Imported, NewRun, Store, StoreError};
use vmio_model::cell::Side;
use vmio_model::failure::Exit;
use vmio_model::figure::{Reading, Value};
use vmio_model::result::*;

fn small() -> Run {
    let mut run = common::run(Accel::Kvm);
    run.samples.truncate(40);
    run
}

#[test]
fn a_run_comes_back_as_it_went_in() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/state/vmio.db");
    let mut run = small();
    run.id = common::store_run(&Store::open(&path).unwrap(), &run);

    let store = Store::open_existing(&path).unwrap();
    assert_eq!(store.load_whole(run.id).unwrap(), run);
    let slim = store.load(run.id).unwrap();
    assert!(slim.samples.iter().all(|s| s.result.raw.is_null()));
    run.samples.iter_mut().for_each(|s| s.result.raw = serde_json::Value::Null);
    assert_eq!(slim, run);
    let info = &store.list().unwrap()[0];
    assert_eq!((info.id, info.samples, info.skipped), (run.id, 40, 2));
    assert_eq!((&info.state, &info.environment), (&RunState::Done, &run.environment));
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 3, "vmio.db, -wal, -shm; the lock is gone");
}

/// A cell of two actors: what each of them says is kept, and its tool's output apart from it.
#[test]
fn what_several_actors_say_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmio.db");
    let mut run = small();
    for (n, sample) in run.samples.iter_mut().enumerate() {
        let mut second = sample.cell.lead.clone();
        second.side = Side { nth: 1, ..second.side };
        sample.cell.beside = vec![second.clone(), second];
        let said = |raw: serde_json::Value| WorkloadResult { raw, ..sample.result.clone() };
        // The second tool of three said nothing.
        sample.beside = vec![said(serde_json::Value::Null), said(serde_json::json!({"third": n}))];
    }
    let store = Store::open(&path).unwrap();
    run.id = common::store_run(&store, &run);
    assert_eq!(store.load_whole(run.id).unwrap(), run);
    let slim = store.load(run.id).unwrap();
    assert!(slim.samples.iter().flat_map(|s| s.results()).all(|result| result.raw.is_null()));
    let c = rusqlite::Connection::open(&path).unwrap();
    let count = |sql: &str| c.query_row(sql, [], |r| r.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM raw WHERE actor = 2"), 40);
    assert_eq!(count("SELECT count(*) FROM raw"), 80);
    c.execute("UPDATE raw SET actor = 3 WHERE actor = 2", []).unwrap();
    let e = store.load_whole(run.id).unwrap_err();
    assert!(e.to_string().contains("of an actor that is not in it"), "{e}");
}

#[test]
fn runs_of_another_store_come_over_whole_and_once() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |dir: &tempfile::TempDir| Store::open(&dir.path().join("vmio.db")).unwrap();
    let (own, other) = (open(&here), open(&there));
    let mut run = small();
    common::store_run(&own, &run);
    // Of another host.
    run.environment.node = Some("lab host".into());
    run.id = common::store_run(&other, &run);
    let new = NewRun {
        study: &run.study,
        study_toml: &run.study_toml,
        command: &run.command,
        started_unix: 1.0,
        environment: &run.environment,
        workloads: &run.workloads,
    };
    let running = other.new_run(&new).unwrap();
    assert_eq!(own.import(&other).unwrap(), [Imported::New(2), Imported::Running(running)]);
    assert_eq!(own.load_whole(2).unwrap(), Run { id: 2, ..run.clone() });
    assert_eq!(own.import(&other).unwrap(), [Imported::Known(2), Imported::Running(running)]);
    assert_eq!(own.list().unwrap().len(), 2);
}

/// The tables and the questions of docs/runs.md, for those who ask with `sqlite3`.
#[test]
fn the_store_is_as_the_docs_say() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmio.db");
    let mut run = small();
    // What another machine did is not the host's.
    let readings = vec![Reading::scalar(BUSY, -1.0)];
    let there = Seen { node: "far".into(), watched: Watched::Processors, probe: "cpu".into(), figures: readings };
    run.samples.iter_mut().for_each(|s| s.seen.push(there.clone()));
    common::store_run(&Store::open(&path).unwrap(), &run);
    let c = rusqlite::Connection::open(&path).unwrap();
    let docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/runs.md")).unwrap();
    let columns = |sql: &str| -> Vec<String> {
        let mut statement = c.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let tables = columns("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'");
    assert_eq!(tables.len(), 5);
    for table in tables {
        let row = docs.lines().find(|line| line.starts_with(&format!("| `{table}` |"))).unwrap();
        let told: Vec<&str> = row.split('`').skip(3).step_by(2).collect();
        let there = columns(&format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid"));
        assert_eq!(told, there, "{table}");
    }
    let questions = docs.split("```sql\n").nth(1).unwrap().split("```").next().unwrap();
    let mut asked = 0;
    for question in questions.split_inclusive(";\n") {
        let mut statement = c.prepare(question).unwrap();
        let last = statement.column_count() - 1;
        let values: Vec<f64> =
            statement.query_map([], |row| row.get(last)).unwrap().collect::<Result<_, _>>().expect(question);
        assert!(!values.is_empty() && values.iter().all(|v| *v > 0.0), "{question}: {values:?}");
        asked += 1;
    }
    assert_eq!(asked, 4);
}

#[test]
fn runs_are_numbered_listed_found_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("vmio.db")).unwrap();
    assert_eq!(store.last().unwrap(), None);
    assert!(matches!(store.load(1), Err(StoreError::NoRun { nearest: None, .. })));
    let ids: Vec<i64> = (0..3).map(|_| common::store_run(&store, &small())).collect();
    assert_eq!(store.list().unwrap().iter().map(|r| r.id).collect::<Vec<_>>(), [ids[2], ids[1], ids[0]]);
    store.delete(ids[1]).unwrap();
    match store.load(ids[1]) {
        Err(e @ StoreError::NoRun { .. }) => assert!(e.help().unwrap().contains("vmio runs list"), "{e}"),
        other => panic!("{other:?}"),
    }
    // Nothing of a deleted run stays, and its number is not given again.
    let c = rusqlite::Connection::open(dir.path().join("vmio.db")).unwrap();
    for table in ["samples", "skipped", "effective"] {
        let n: i64 = c.query_row(&format!("SELECT count(*) FROM {table} WHERE run = 2"), [], |r| r.get(0)).unwrap();
        assert_eq!(n, 0, "{table}");
    }
    let raw: i64 = c.query_row("SELECT count(*) FROM raw", [], |r| r.get(0)).unwrap();
    assert_eq!(raw, 2 * small().samples.len() as i64);
    store.delete(ids[2]).unwrap();
    assert!(common::store_run(&store, &small()) > ids[2]);
}

#[test]
fn a_run_has_one_owner_and_is_interrupted_without() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmio.db");
    let (run, reader) = (small(), Store::open(&path).unwrap());
    let owner = Store::open(&path).unwrap();
    let new = NewRun {
        study: &run.study,
        study_toml: &run.study_toml,
        command: &run.command,
        started_unix: 1.0,
        environment: &run.environment,
        workloads: &run.workloads,
    };
    let id = owner.new_run(&new).unwrap();
    owner.add_sample(id, &run.samples[0]).unwrap();
    assert_eq!(reader.list().unwrap()[0].state, RunState::Running);
    assert_eq!(
        reader.unfinished(&"quick".into()).unwrap(),
        None,
        "it is not up for resumption while somebody measures it"
    );
    assert!(matches!(reader.delete(id), Err(StoreError::Owned { .. })));
    assert!(matches!(reader.resume(id), Err(StoreError::Owned { .. })));

    drop(owner);
    assert!(matches!(reader.load(id).unwrap().state, RunState::Interrupted(_)));
    assert_eq!(reader.unfinished(&"quick".into()).unwrap(), Some(id));
    assert_eq!(reader.unfinished(&"sparse".into()).unwrap(), None);
    reader.resume(id).unwrap();
    assert_eq!(reader.load(id).unwrap().state, RunState::Running);
    reader.set_state(id, &RunState::Failed("the guest did not boot".into())).unwrap();
    assert_eq!(reader.unfinished(&"quick".into()).unwrap(), Some(id), "an error's message promises --resume");
    reader.resume(id).unwrap();
    reader.set_state(id, &RunState::Done).unwrap();
    assert_eq!(reader.unfinished(&"quick".into()).unwrap(), None);
    assert_eq!(reader.load(id).unwrap().samples.len(), 1);
}

#[test]
fn a_figure_that_is_not_finite_is_refused_and_spoils_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("vmio.db")).unwrap();
    let mut run = small();
    let id = common::store_run(&store, &run);
    let device = DeviceUse { request_bytes: f64::NAN, ..run.samples[3].device().unwrap() };
    run.samples[3].put_device(Some(device));
    run.samples[4].result.figures[0].value = Value::Scalar(f64::INFINITY);
    for sample in &run.samples[3..5] {
        let e = store.add_sample(id, sample).unwrap_err();
        assert!(matches!(e, StoreError::NotFinite { .. }) && e.to_string().contains(&sample.cell.key()), "{e}");
    }
    assert_eq!(store.load(id).unwrap().samples.len(), 40);
}

/// Adds samples until it is killed, and says each one once it is stored.
#[test]
#[ignore = "child of sigkill_loses_nothing_acknowledged"]
fn child_adds_samples() {
    let Some(path) = std::env::var_os("VMIO_TEST_STORE") else { return };
    let store = Store::open(Path::new(&path)).unwrap();
    let run = common::run(Accel::Kvm);
    let id = store
        .new_run(&NewRun {
            study: &"killed".into(),
            study_toml: "",
            command: &run.command,
            started_unix: 1.0,
            environment: &run.environment,
            workloads: &run.workloads,
        })
        .unwrap();
    for (n, sample) in run.samples.iter().cycle().enumerate() {
        store.add_sample(id, sample).unwrap();
        eprintln!("stored {}", n + 1);
    }
}

#[test]
fn sigkill_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmio.db");
    for (trial, wait_for) in [3, 57, 120].into_iter().enumerate() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_adds_samples", "--ignored", "--nocapture"])
            .env("VMIO_TEST_STORE", &path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = 0;
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            if let Some(n) = line.unwrap().strip_prefix("stored ") {
                acknowledged = n.parse().unwrap();
            }
            if acknowledged == wait_for {
                child.kill().unwrap(); // SIGKILL; what it still wrote is read to the end of the pipe
            }
        }
        child.wait().unwrap();
        let store = Store::open(&path).unwrap();
        let run = store.load(store.last().unwrap().unwrap()).unwrap();
        assert!(acknowledged >= wait_for, "trial {trial}: {acknowledged}");
        assert!(run.samples.len() >= acknowledged, "trial {trial}: {} of {acknowledged}", run.samples.len());
        assert!(run.samples.len() <= acknowledged + 1, "trial {trial}: {} of {acknowledged}", run.samples.len());
        assert!(matches!(run.state, RunState::Interrupted(_)), "{:?}", run.state);
        assert_eq!(store.unfinished(&"killed".into()).unwrap(), Some(run.id));
        let c = rusqlite::Connection::open(&path).unwrap();
        let check: String = c.query_row("PRAGMA integrity_check", [], |r| r.get(0)).unwrap();
        assert_eq!(check, "ok");
    }
}

#[test]
fn damage_is_named_with_its_mend() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmio.db");
    fs::write(&path, "this is no database, but it is long enough to be looked at as one".repeat(100)).unwrap();
    for open in [Store::open, Store::open_existing] {
        let e = open(&path).err().unwrap();
        assert!(matches!(e, StoreError::Corrupt { .. }), "{e:?}");
        assert!(e.to_string().contains(path.to_str().unwrap()), "{e}");
        assert!(e.help().unwrap().contains("mv "), "{e}");
    }

    // A page in the middle is overwritten.
    fs::remove_file(&path).unwrap();
    let id = common::store_run(&Store::open(&path).unwrap(), &common::run(Accel::Kvm));
    let mut bytes = fs::read(&path).unwrap();
    let (from, to) = (4096, bytes.len());
    bytes[from..to].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    let e = Store::open(&path).and_then(|s| s.load(id).map(drop)).unwrap_err();
    assert!(matches!(e, StoreError::Corrupt { .. }), "{e:?}");
}

/// What a stranger can make of a store with SQL alone. Each is refused in words before anything of it is
/// taken over, and soon: a view without an end is never asked.
#[test]
fn a_store_that_is_not_as_vmio_makes_it_is_refused() {
    let made = tempfile::tempdir().unwrap();
    common::store_run(&Store::open(&made.path().join("vmio.db")).unwrap(), &small());
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
    for (what, sql) in [
        (
            "view `runs`",
            format!(
                "ALTER TABLE runs RENAME TO r; CREATE VIEW runs AS {endless} SELECT i AS id, 'x' AS study, '' AS study_toml, '[]' AS command, 0.0 AS started_unix, '' AS state, '' AS environment, '[]' AS workloads FROM n;"
            ),
        ),
        (
            "view `raw`",
            format!("DROP TABLE raw; CREATE VIEW raw AS {endless} SELECT i AS sample, '' AS output FROM n;"),
        ),
        ("trigger `t`", "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM samples; END;".into()),
        (
            "table `skipped`",
            "DROP TABLE skipped; CREATE TABLE skipped (run, cell, whole, reason AS (hex(zeroblob(60000000))));".into(),
        ),
        ("index `more`", "CREATE INDEX more ON runs (hex(zeroblob(60000000)));".into()),
        ("it lacks the index `samples_of_run`", "DROP INDEX samples_of_run;".into()),
    ] {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = there.path().join("vmio.db");
        fs::copy(made.path().join("vmio.db"), &path).unwrap();
        let c = rusqlite::Connection::open(&path).unwrap();
        c.execute_batch(&sql).unwrap();
        drop(c);
        for args in [
            vec!["runs", "import", path.to_str().unwrap(), "--state", here.path().to_str().unwrap()],
            vec!["runs", "list", "--state", there.path().to_str().unwrap()],
            vec!["runs", "show", "last", "--state", there.path().to_str().unwrap()],
        ] {
            let began = std::time::Instant::now();
            let output = Command::new(env!("CARGO_BIN_EXE_vmio")).args(&args).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{what} {args:?}: {said}");
            assert!(said.contains("is not as vmio makes a store") && said.contains(what), "{args:?}: {said}");
            assert!(said.contains("help: ") && output.stdout.is_empty(), "{said}");
            assert!(began.elapsed().as_secs() < 60, "{what}");
        }
        assert!(Store::open(&here.path().join("vmio.db")).unwrap().list().unwrap().is_empty(), "{what}");
    }
}

#[test]
fn texts_without_measure_are_refused_and_pipes_are_no_stores() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmio.db");
    let id = common::store_run(&Store::open(&path).unwrap(), &small());
    let c = rusqlite::Connection::open(&path).unwrap();
    c.execute("UPDATE runs SET environment = CAST(zeroblob(70000000) AS TEXT)", []).unwrap();
    let told = |e: StoreError| assert!(e.to_string().contains("holds more than vmio ever stores"), "{e}");
    told(Store::open_existing(&path).unwrap().list().unwrap_err());
    told(Store::open_reading(&path).unwrap().load(id).unwrap_err());
    drop(c);

    let pipe = dir.path().join("pipe.db");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    for open in [Store::open, Store::open_existing, Store::open_reading] {
        assert!(matches!(open(&pipe).err().unwrap(), StoreError::Corrupt { .. }));
    }
}

/// Many texts that are short enough are too much together, and are not read to find that out.
#[test]
#[ignore = "writes 1 GiB"]
fn long_a_store_that_would_fill_the_memory_is_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("vmio.db");
    let id = common::store_run(&Store::open(&path).unwrap(), &small());
    let c = rusqlite::Connection::open(&path).unwrap();
    c.pragma_update(None, "synchronous", "OFF").unwrap();
    c.execute("UPDATE runs SET environment = CAST(zeroblob(60000000) AS TEXT)", []).unwrap();
    let columns = "study, study_toml, command, started_unix, state, environment, workloads";
    for _ in 0..18 {
        c.execute(&format!("INSERT INTO runs ({columns}) SELECT {columns} FROM runs WHERE id = {id}"), []).unwrap();
    }
    drop(c);
    let e = Store::open_reading(&path).unwrap().list().unwrap_err();
    assert!(e.to_string().contains("its list of runs has 1") && e.to_string().contains("MiB"), "{e}");
}

#[test]
fn a_store_is_its_owners_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let set = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let own = dir.path().join("deep/vmio");
    let path = own.join("vmio.db");
    let store = Store::open(&path).unwrap();
    common::store_run(&store, &small());
    for part in ["vmio.db", "vmio.db-wal", "vmio.db-shm"] {
        assert_eq!(mode(&own.join(part)), 0o600, "{part}");
    }
    assert_eq!((mode(&own), mode(&dir.path().join("deep"))), (0o700, 0o700));
    drop(store);
    // One of an older vmio's.
    set(&path, 0o644);
    set(&own, 0o755);
    drop(Store::open_existing(&path).unwrap());
    assert_eq!((mode(&path), mode(&own)), (0o600, 0o700));
    // A directory that the user named may hold other things.
    let named = dir.path().join("named");
    fs::create_dir(&named).unwrap();
    set(&named, 0o755);
    drop(Store::open(&named.join("vmio.db")).unwrap());
    assert_eq!((mode(&named), mode(&named.join("vmio.db"))), (0o755, 0o600));
}

#[test]
fn a_newer_store_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmio.db");
    drop(Store::open(&path).unwrap());
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let e = Store::open(&path).err().unwrap();
    assert!(matches!(e, StoreError::Newer { found: 99, .. }), "{e:?}");
    let version: i64 =
        rusqlite::Connection::open(&path).unwrap().pragma_query_value(None, "user_version", |r| r.get(0)).unwrap();
    assert_eq!(version, 99);
}

/// Every file of a directory, with its content and when it was changed.
fn files(dir: &Path) -> Vec<(std::path::PathBuf, Vec<u8>, std::time::SystemTime)> {
    let mut all: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.clone(), fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap())
        })
        .collect();
    all.sort();
    all
}

#[test]
fn who_only_reads_changes_nothing_and_an_older_store_stays_old() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmio.db");
    assert!(matches!(Store::open_reading(&path).err().unwrap(), StoreError::Missing { .. }));
    let id = common::store_run(&Store::open(&path).unwrap(), &small());
    let before = files(dir.path());
    assert_eq!(Store::open_reading(&path).unwrap().load(id).unwrap().samples.len(), 40);
    assert_eq!(files(dir.path()), before);

    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 0).unwrap();
    let before = files(dir.path());
    let e = Store::open_reading(&path).err().unwrap();
    assert!(matches!(e, StoreError::Older { found: 0, .. }), "{e:?}");
    assert!(e.help().unwrap().contains("vmio runs list"), "{e}");
    assert_eq!(files(dir.path()), before);
}

#[test]
fn a_missing_store_and_an_unusable_place() {
    let dir = tempfile::tempdir().unwrap();
    let e = Store::open_existing(&dir.path().join("vmio.db")).err().unwrap();
    assert!(matches!(e, StoreError::Missing { .. }));
    assert_eq!(e.exit(), Exit::Precondition);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "looking makes nothing");
    fs::write(dir.path().join("file"), "").unwrap();
    let e = Store::open(&dir.path().join("file/vmio.db")).err().unwrap();
    assert!(matches!(e, StoreError::Io { .. }), "{e:?}");
    assert!(e.to_string().contains("file"), "{e}");
}

/// The real thing: a tmpfs of one MiB, which an unprivileged user too can have in a namespace.
#[test]
fn a_full_disk_is_named() {
    let script =
        "mount -t tmpfs -o size=1m none \"$1\" && exec \"$0\" --exact child_adds_samples --ignored --nocapture";
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(dir.path())
        .env("VMIO_TEST_STORE", dir.path().join("vmio.db"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("unshare failed") || said.contains("mount:") {
        eprintln!("SKIPPED: no user namespaces with mounts here: {said}");
        return;
    }
    assert!(said.contains("stored 10\n"), "{said}");
    assert!(said.contains("Full {"), "{said}");
}

#[test]
fn a_directory_that_cannot_be_written_is_read_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmio.db");
    let id = common::store_run(&Store::open(&path).unwrap(), &small());
    if rustix::process::geteuid().is_root() {
        // Root may write anywhere: what root can show is that reading leaves no log behind.
        drop(Store::open_existing(&path).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        return;
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o500)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    let loaded = Store::open_existing(&path).and_then(|s| s.load(id));
    let refused = Store::open(&path).err();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(loaded.unwrap().samples.len(), 40);
    assert!(matches!(refused, Some(StoreError::Denied { .. })), "{refused:?}");
}
