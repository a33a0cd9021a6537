//! The store's file: what befell it, whose it is, and what somebody else may have made of it.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use vmio::store::{Store, StoreError};
use vmio_model::failure::Exit;
use vmio_model::result::*;
use vmio_model::run::Run;
use vmio_testbed::limit;

fn small() -> Run {
    let mut run = common::run(Accel::Kvm);
    run.samples.truncate(40);
    run
}

/// As a run that begins and a `vmio runs list` beside it do.
#[test]
fn a_new_store_may_be_opened_by_several_at_once() {
    for _ in 0..30 {
        let dir = tempfile::tempdir().unwrap();
        let (path, together) = (&dir.path().join("vmio.db"), &Barrier::new(4));
        thread::scope(|scope| {
            for open in [Store::open, Store::open, Store::open_existing, Store::open_existing] {
                scope.spawn(move || {
                    together.wait();
                    match open(path) {
                        Ok(_) | Err(StoreError::Missing { .. }) => {}
                        Err(e) => panic!("{e}: {e:?}"),
                    }
                });
            }
        });
        assert_eq!(Store::open(path).unwrap().list().unwrap(), vec![]);
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

/// What lies in a store by somebody else's hand is never run: a view without an end, a trigger.
#[test]
fn views_and_triggers_of_a_store_are_never_run() {
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
    for (what, sql) in [
        (
            "view",
            format!(
                "ALTER TABLE runs RENAME TO r; CREATE VIEW runs AS {endless} SELECT i AS id, 'x' AS study, '' AS study_toml, '[]' AS command, 0.0 AS started_unix, '' AS state, '' AS environment, '[]' AS workloads FROM n;"
            ),
        ),
        ("trigger", "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM samples; END;".into()),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vmio.db");
        common::store_run(&Store::open(&path).unwrap(), &small());
        rusqlite::Connection::open(&path).unwrap().execute_batch(&sql).unwrap();
        let began = std::time::Instant::now();
        let listed = Store::open_existing(&path).unwrap().list().map(|runs| runs.len());
        match what {
            "view" => assert!(listed.is_err(), "{listed:?}"),
            _ => {
                let store = Store::open(&path).unwrap();
                common::store_run(&store, &small());
                assert_eq!(store.load(1).unwrap().samples.len(), 40);
            }
        }
        assert!(began.elapsed() < limit(), "{what}");
    }
}

/// SQLite follows what lies beside a store by name, so nobody else may have a say there.
#[test]
fn a_store_that_others_can_change_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmio.db");
    common::store_run(&Store::open(&path).unwrap(), &small());
    let opens = |path: &Path| [Store::open(path), Store::open_existing(path), Store::open_reading(path)];
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    for opened in opens(&path) {
        let e = opened.err().unwrap();
        assert!(matches!(&e, StoreError::Untrusted { path, .. } if path == dir.path()), "{e:?}");
        assert!(e.help().unwrap().contains("chmod go-w"), "{e}");
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let victim = dir.path().join("victim");
    std::os::unix::fs::symlink(&victim, dir.path().join("vmio.db-journal")).unwrap();
    for opened in opens(&path) {
        let e = opened.err().unwrap();
        assert!(e.to_string().contains("vmio.db-journal is unsafe: it is a link"), "{e}");
    }
    assert!(!victim.exists());
    // Who can write a directory can replace all below it.
    fs::remove_file(dir.path().join("vmio.db-journal")).unwrap();
    let below = dir.path().join("open/own");
    fs::create_dir_all(&below).unwrap();
    fs::set_permissions(dir.path().join("open"), fs::Permissions::from_mode(0o777)).unwrap();
    for path in [below.join("vmio.db"), below.join("new/vmio.db")] {
        assert!(matches!(Store::open(&path).err().unwrap(), StoreError::Untrusted { .. }));
        assert!(!path.exists() && !below.join("new").exists());
    }
}

#[test]
fn texts_without_measure_are_refused_and_pipes_are_no_stores() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmio.db");
    let id = common::store_run(&Store::open(&path).unwrap(), &small());
    let c = rusqlite::Connection::open(&path).unwrap();
    c.execute("UPDATE runs SET environment = CAST(zeroblob(70000000) AS TEXT)", []).unwrap();
    let told = |e: StoreError| assert!(e.to_string().contains("holds more than vmio imports"), "{e}");
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
    // A directory that the user named may hold other things.
    let named = dir.path().join("named");
    fs::create_dir(&named).unwrap();
    set(&named, 0o755);
    drop(Store::open(&named.join("vmio.db")).unwrap());
    assert_eq!((mode(&named), mode(&named.join("vmio.db"))), (0o755, 0o600));
}

#[test]
fn a_store_of_another_format_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmio.db");
    drop(Store::open(&path).unwrap());
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let e = Store::open(&path).err().unwrap();
    assert!(matches!(e, StoreError::OtherFormat { found: 99, .. }), "{e:?}");
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
fn who_only_reads_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmio.db");
    assert!(matches!(Store::open_reading(&path).err().unwrap(), StoreError::Missing { .. }));
    let id = common::store_run(&Store::open(&path).unwrap(), &small());
    let before = files(dir.path());
    assert_eq!(Store::open_reading(&path).unwrap().load(id).unwrap().samples.len(), 40);
    assert_eq!(files(dir.path()), before);

    fs::write(&path, "").unwrap();
    let before = files(dir.path());
    let e = Store::open_reading(&path).err().unwrap();
    assert!(matches!(e, StoreError::Missing { .. }), "{e:?}");
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
