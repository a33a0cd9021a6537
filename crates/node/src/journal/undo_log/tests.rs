#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;

use super::file::STALE;
use super::*;
use crate::machine;

const PART: &str = "part";

fn open(dir: &Path) -> UndoLog {
    UndoLog::open(dir).unwrap()
}

fn refused(dir: &Path) -> Error {
    match UndoLog::open(dir) {
        Err(UndoLogError::File(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn record(log: &UndoLog, whats: &[&str]) -> Vec<EntryId> {
    whats.iter().map(|what| log.record(PART, what).unwrap()).collect()
}

fn whats(log: &UndoLog) -> Vec<String> {
    log.live(PART).unwrap().into_iter().map(|(_, what)| what).collect()
}

fn path(log: &UndoLog) -> std::path::PathBuf {
    lock(&log.0).file.as_ref().unwrap().path.clone()
}

#[test]
fn entries_pass_to_the_next_owner() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let ids = record(&first, &["a", "b", "c"]);
    first.strike(ids[1]).unwrap();
    first.strike(99).unwrap();
    assert!(matches!(
        refused(dir.path()),
        Error::Journal { reason, .. } if reason.contains(&std::process::id().to_string())
    ));
    drop(first);
    let second = open(dir.path());
    assert_eq!(whats(&second), ["a", "c"]);
    assert!(!ids.contains(&record(&second, &["d"])[0]));
    drop(second);
    assert_eq!(whats(&open(dir.path())), ["a", "c", "d"]);
}

#[test]
fn it_is_read_beside_its_owner_and_nothing_is_made() {
    let dir = tempfile::tempdir().unwrap();
    assert!(UndoLog::look(dir.path()).is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let own = open(dir.path());
    let ids = record(&own, &["a", "b", "c"]);
    own.strike(ids[1]).unwrap();
    let looked = UndoLog::look(dir.path()).unwrap();
    assert_eq!((whats(&looked), looked.outlives()), (vec!["a".to_owned(), "c".to_owned()], false));
    looked.strike(ids[0]).unwrap();
    assert_eq!(whats(&own), ["a", "c"], "what was read is a copy");
}

#[test]
fn parts_are_separate() {
    let dir = tempfile::tempdir().unwrap();
    for outlives in [true, false] {
        let log = if outlives { open(dir.path()) } else { UndoLog::memory() };
        assert_eq!((log.outlives(), log.is_empty()), (outlives, true));
        let first = log.record("linux", &("eth0", 7)).unwrap();
        log.record("groups", &"web1").unwrap();
        log.record("linux", &("eth1", 8)).unwrap();
        log.strike(first).unwrap();
        let again = if outlives {
            drop(log);
            open(dir.path())
        } else {
            log.clone()
        };
        let live: Vec<(EntryId, (String, u32))> = again.live("linux").unwrap();
        assert_eq!(live.into_iter().map(|(_, what)| what).collect::<Vec<_>>(), [("eth1".to_owned(), 8)]);
        let wrong = again.live::<u32>("groups").unwrap_err().to_string();
        assert!(wrong.contains("`groups`"), "{wrong}");
        again.clear("groups").unwrap();
        assert_eq!((again.live::<Value>("groups").unwrap().len(), again.is_empty()), (0, false));
    }
}

/// As the first vmio with a guard has written it: what it left must be undone by any later one.
#[test]
fn the_form_of_the_file_stays() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    log.record("linux", &("eth0", 7)).unwrap();
    log.record("set", &"x").unwrap();
    log.strike(1).unwrap();
    let wanted = format!(
        "{{\"vmio_ledger\":1,\"boot_id\":\"{}\"}}\n{{\"do\":1,\"what\":{{\"part\":\"linux\",\"what\":[\"eth0\",7]}}}}\n\
         {{\"do\":2,\"what\":{{\"part\":\"set\",\"what\":\"x\"}}}}\n{{\"undone\":1}}\n",
        machine::boot_id()
    );
    assert_eq!(fs::read_to_string(dir.path().join("guard.ledger")).unwrap(), wanted);
}

#[test]
fn torn_and_invalid_lines() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    record(&log, &["a"]);
    let path = path(&log);
    drop(log);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}{{\"do\":2,\"wh")).unwrap();
    assert_eq!(whats(&open(dir.path())), ["a"]);
    fs::write(&path, format!("{text}{{\"do\":2}}\n")).unwrap();
    let error = refused(dir.path()).to_string();
    assert!(error.contains("line 3"), "{error}");
    // Of another boot nothing is in force.
    fs::write(&path, text.replace(&machine::boot_id(), "other")).unwrap();
    assert_eq!(whats(&open(dir.path())), [""; 0]);
    fs::write(&path, text.replace("\"vmio_ledger\":1", "\"vmio_ledger\":2")).unwrap();
    assert!(refused(dir.path()).to_string().contains("version 2"));
}

#[test]
fn log_writable_by_others_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = path(&open(dir.path()));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(refused(dir.path()), Error::Untrusted { .. }));
}

/// A full disk, for a log: no other file can be written, and nothing more into its own. (The root test has one.)
fn fill(log: &UndoLog) {
    let mut log = lock(&log.0);
    let file = log.file.as_mut().unwrap();
    fs::create_dir_all(file.home.path.join("fresh.tmp")).unwrap();
    file.file = File::open(&file.path).unwrap();
}

#[test]
fn full_disk_allows_only_undo() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let ids = record(&first, &["a", "b", "c"]);
    fill(&first);
    assert!(first.record(PART, &"d").is_err());
    first.strike(ids[0]).unwrap();
    drop(first);
    // The next owner reads that from the file as it was, with half a line that a fuller disk has left.
    let path = dir.path().join("guard.ledger");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("{\"no\":1,\"what\":{\"part\":\"part\",\"what\":\"a\"}}\n{\"do\":2,"), "{text}");
    fs::write(&path, format!("{text}{{\"undone\":")).unwrap();
    let second = open(dir.path());
    assert_eq!((whats(&second), fs::read_to_string(&path).unwrap()), (vec!["b".to_owned(), "c".to_owned()], text));
    fill(&second);
    second.strike(ids[1]).unwrap();
    second.strike(ids[1]).unwrap();
    drop(second);
    // There is room again, first for a line, then for a file.
    let third = open(dir.path());
    assert_eq!(whats(&third), ["c"]);
    record(&third, &["e"]);
    drop(third);
    fs::remove_dir(dir.path().join("fresh.tmp")).unwrap();
    assert_eq!(whats(&open(dir.path())), ["c", "e"]);
    assert!(!fs::read_to_string(&path).unwrap().contains("\"no\""));
}

#[test]
fn full_disk_without_a_first_line() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("fresh.tmp")).unwrap();
    let refused = refused(dir.path()).to_string();
    assert!(refused.contains("cannot be rewritten") && refused.contains("nothing was done"), "{refused}");
    let log = UndoLog::open_to_undo(dir.path()).unwrap();
    assert_eq!(whats(&log), [""; 0]);
    log.strike(1).unwrap();
    assert!(log.record(PART, &"a").is_err());
    fs::remove_dir(dir.path().join("fresh.tmp")).unwrap();
    record(&log, &["a"]);
    drop(log);
    assert_eq!(whats(&open(dir.path())), ["a"]);
}

#[test]
fn size_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    record(&log, &["kept"]);
    let mut longest = 0;
    for _ in 0..2 * STALE {
        let id = record(&log, &["gone"])[0];
        log.strike(id).unwrap();
        longest = longest.max(lock(&log.0).file.as_ref().unwrap().lines);
    }
    assert!(longest <= STALE + 2, "{longest}");
    drop(log);
    assert_eq!(whats(&open(dir.path())), ["kept"]);
}
