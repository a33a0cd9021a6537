//! Tests of the journal of a living owner.

#![allow(clippy::unwrap_used)]
use super::*;
use crate::journal::recover::leftovers;

#[test]
fn undo_in_reverse_order() {
    let dir = tempfile::tempdir().unwrap();
    let work = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let journal = Journal::open(&state, "run-1").unwrap();
    let outer = work.path().join("outer");
    journal.scratch_dir(&outer).unwrap();
    // The inner directory has no marker and so must be empty when its turn comes: it is,
    // if the file that was made last goes first.
    let inner = work.path().join("inner");
    journal.record(Change::dir(&inner)).unwrap();
    fs::create_dir(&inner).unwrap();
    journal.scratch_file(&inner.join("f")).unwrap();
    fs::write(outer.join("content"), "x").unwrap();
    assert!(leftovers(&state).is_empty(), "a living owner leaves nothing behind");
    assert_eq!(journal.undo_all(), Vec::<String>::new());
    assert!(!outer.exists() && !inner.exists());
    drop(journal);
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
}

#[test]
fn closed_journal_refuses_changes() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let journal = std::sync::Arc::new(Journal::open(&state, "run-1").unwrap());
    let node = crate::Local::owned(journal.clone());
    let sleep = crate::Exec::new("sleep").args(["60"]);
    let started = crate::Node::spawn(&node, &sleep).unwrap();
    journal.scratch_file(&dir.path().join("f")).unwrap();
    assert_eq!(journal.close(), Vec::<String>::new());
    assert!(!Path::new(&format!("/proc/{}/exe", started.pid())).exists());
    assert!(journal.scratch_file(&dir.path().join("g")).is_err() && !dir.path().join("g").exists());
    assert!(crate::Node::spawn(&node, &sleep).err().unwrap().to_string().contains("ending"));
    // The file is gone although the journal is still held somewhere.
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
}

#[test]
fn existing_files_stay() {
    let dir = tempfile::tempdir().unwrap();
    let precious = dir.path().join("precious");
    fs::write(&precious, "x").unwrap();
    let journal = Journal::open(&dir.path().join("state"), "run").unwrap();
    assert!(journal.scratch_file(&precious).is_err());
    assert!(journal.scratch_dir(&precious).is_err());
    drop(journal);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "x");
}

#[test]
fn failed_undo_does_not_block_the_next_owner() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let precious = dir.path().join("precious");
    let journal = Journal::open(&state, "run").unwrap();
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("f"), "x").unwrap();
    journal.record(Change::dir(&precious)).unwrap();
    assert_eq!(journal.close().len(), 1);
    drop(journal);
    // The next owner works, and what was left is still known and told.
    let next = Journal::open(&state, "run").unwrap();
    assert_eq!(leftovers(&state).len(), 1);
    assert_eq!(crate::recover(&state).failed.len(), 1);
    fs::remove_file(precious.join("f")).unwrap();
    assert_eq!(crate::recover(&state).undone.len(), 1);
    drop(next);
    assert!(!precious.exists());
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
}

#[test]
fn early_undo_and_forget() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(dir.path(), "run").unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let (_, first) = journal.scratch_file(&a).unwrap();
    let (_, second) = journal.scratch_file(&b).unwrap();
    journal.undo(first).unwrap();
    journal.undo(first).unwrap();
    assert!(!a.exists());
    journal.forget(second).unwrap();
    drop(journal);
    assert!(b.exists());
}

#[test]
fn journal_is_exclusive() {
    let dir = tempfile::tempdir().unwrap();
    let first = Journal::open(dir.path(), "run").unwrap();
    let second = Journal::open(dir.path(), "run").unwrap_err().to_string();
    assert!(second.contains(&format!("in use by process {}", std::process::id())), "{second}");
    drop(first);
    Journal::open(dir.path(), "run").unwrap();
    assert!(Journal::open(dir.path(), "../run").is_err());
    assert!(Journal::open(dir.path(), "x").unwrap().record(Change::file("rel")).is_err());
}

#[test]
fn failures_keep_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("foreign"), "x").unwrap();
    let journal = Journal::open(&dir.path().join("state"), "run").unwrap();
    journal.record(Change::dir(&work)).unwrap();
    assert!(journal.undo_all()[0].contains("not touched"));
    let path = journal.path().to_owned();
    drop(journal);
    assert!(path.exists());
    fs::remove_file(work.join("foreign")).unwrap();
    Journal::open(&dir.path().join("state"), "run").unwrap();
    assert!(!work.exists() && !path.exists());
}

#[test]
fn close_waits_for_a_change_in_progress() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let journal = Journal::open(&dir.path().join("state"), "run").unwrap();
    let (closing, closed) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let change = Change::file(&path);
        let made = journal.make(change, || {
            scope.spawn(|| closing.send(journal.close()).unwrap());
            let waited = closed.recv_timeout(Duration::from_millis(200));
            assert!(waited.is_err(), "closed while something was made: {waited:?}");
            fs::write(&path, "x")
        });
        made.unwrap().unwrap();
        assert_eq!(closed.recv().unwrap(), Vec::<String>::new());
    });
    assert!(!path.exists(), "made, but not undone");
    let late = journal.make(Change::file(&path), || fs::write(&path, "x"));
    assert!(late.is_err() && !path.exists());
}

#[test]
fn close_does_not_wait_for_a_hanging_change() {
    let dir = tempfile::tempdir().unwrap();
    let (state, path, other) = (dir.path().join("state"), dir.path().join("f"), dir.path().join("other"));
    let journal = Journal::open(&state, "run").unwrap();
    journal.scratch_file(&other).unwrap();
    let (begun, begins) = std::sync::mpsc::channel();
    let (answer, dead_storage) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (journal, path) = (&journal, &path);
        let maker = scope.spawn(move || {
            journal.make(Change::file(path), || {
                begun.send(()).unwrap();
                dead_storage.recv().unwrap();
                fs::write(path, "x")
            })
        });
        begins.recv().unwrap();
        let began = std::time::Instant::now();
        let failed = journal.close_within(Duration::from_millis(100));
        // Else it would be waited for 20 s.
        assert!((100..15_000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
        assert!(failed.len() == 1 && failed[0].contains("still being made"), "{failed:?}");
        assert!(journal.is_closed() && !other.exists(), "all else is undone");
        answer.send(()).unwrap();
        maker.join().unwrap().unwrap().unwrap();
    });
    assert!(path.exists(), "it was made behind the close");
    drop(journal);
    let done = crate::recover(&state);
    assert!(done.undone.len() == 1 && done.failed.is_empty() && !path.exists(), "{done:?}");
}

#[test]
fn failed_change_is_not_undone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, "precious").unwrap();
    let journal = Journal::open(&dir.path().join("state"), "run").unwrap();
    let made = journal.make(Change::file(&path), || Err::<(), _>("no"));
    assert_eq!(made.unwrap().unwrap_err(), "no");
    drop(journal);
    assert!(path.exists());
}

#[test]
fn concurrent_closes() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..50 {
        let journal = Journal::open(&dir.path().join("state"), "run").unwrap();
        let mut deep = dir.path().join("d");
        for _ in 0..20 {
            journal.make(Change::dir(&deep), || fs::create_dir(&deep)).unwrap().unwrap();
            deep.push("d");
        }
        let failed = std::thread::scope(|scope| {
            let other = scope.spawn(|| journal.close());
            [journal.close(), other.join().unwrap()].concat()
        });
        assert_eq!(failed, [""; 0]);
        assert!(!journal.path().exists() && !dir.path().join("d").exists());
    }
}

#[test]
fn undo_during_close() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..50 {
        let journal = Journal::open(&dir.path().join("state"), "run").unwrap();
        let mut deep = dir.path().join("d");
        let mut ids = Vec::new();
        for _ in 0..20 {
            ids.push(journal.make(Change::dir(&deep), || fs::create_dir(&deep)).unwrap().unwrap().1);
            deep.push("d");
        }
        let (failed, own) = std::thread::scope(|scope| {
            let maker = scope.spawn(|| ids.iter().rev().filter_map(|id| journal.undo(*id).err()).collect::<Vec<_>>());
            (journal.close(), maker.join().unwrap())
        });
        assert_eq!(failed, [""; 0]);
        assert!(own.is_empty(), "{own:?}");
        assert!(!journal.path().exists() && !dir.path().join("d").exists());
    }
}
