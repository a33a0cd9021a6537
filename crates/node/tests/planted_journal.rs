//! A journal that somebody else could have written is not obeyed, and told. What needs another user is in
//! `root_undo.rs`.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use vmio_node::{Error, Journal, leftovers, recover};

struct Bed {
    dir: tempfile::TempDir,
}

impl Bed {
    fn new() -> Bed {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("journals")).unwrap();
        fs::write(dir.path().join("precious"), "x").unwrap();
        Bed { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// A journal that asks for the removal of a file, as a dead owner of this boot would leave it.
    fn journal(&self, scratch: Option<&Path>) -> String {
        let head = r#"{"vmio_journal":1,"owner":"run","cookie":"nobodys","boot_id":"b","pid":1,"start_ticks":1}"#;
        let scratch = scratch.map_or(String::new(), |s| format!("{{\"scratch\":\"{}\"}}\n", s.display()));
        let change = format!(r#"{{"do":1,"change":{{"file":{{"path":"{}"}}}}}}"#, self.at("precious").display());
        format!("{head}\n{scratch}{change}\n")
    }

    fn plant(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.at(name);
        fs::write(&path, self.journal(Some(&self.at("")))).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// Nothing is undone, it is told with these words, and nobody else is kept from working.
    #[track_caller]
    fn refuses(&self, words: &[&str]) {
        let done = recover(&self.at("journals"));
        assert!(done.undone.is_empty() && done.failed.len() == 1, "{done:?}");
        assert!(words.iter().all(|w| done.failed[0].contains(w)), "{done:?}");
        assert!(self.at("precious").exists());
        assert_eq!(leftovers(&self.at("journals")).len(), 1);
    }
}

#[test]
fn a_journal_is_obeyed_only_where_nobody_else_can_write() {
    let bed = Bed::new();
    bed.plant("journals/a.journal", 0o600);
    let done = recover(&bed.at("journals"));
    assert!(done.undone.len() == 1 && done.failed.is_empty() && !bed.at("precious").exists(), "{done:?}");

    for mode in [0o666, 0o620] {
        let bed = Bed::new();
        let path = bed.plant("journals/a.journal", mode);
        bed.refuses(&[path.to_str().unwrap(), "others than its owner may write it", "check it, then delete it"]);
        Journal::open(&bed.at("journals"), "run").unwrap();
    }
    for (dir, mode) in [("journals", 0o777), ("journals", 0o1777), ("", 0o777)] {
        let bed = Bed::new();
        bed.plant("journals/a.journal", 0o600);
        fs::set_permissions(bed.at(dir), fs::Permissions::from_mode(mode)).unwrap();
        // What is sticky is meant to be everybody's.
        let mend = if mode & 0o1000 == 0 { "chmod go-w" } else { "name a directory" };
        bed.refuses(&["nothing in", "can be written by everybody", mend, "--state DIR"]);
        let refused = Journal::open(&bed.at("journals"), "run").unwrap_err();
        assert!(matches!(refused, Error::Untrusted { .. }), "{refused}");
    }
}

#[test]
fn a_link_to_a_journal_is_not_followed() {
    let bed = Bed::new();
    let elsewhere = bed.plant("elsewhere", 0o600);
    symlink(&elsewhere, bed.at("journals/a.journal")).unwrap();
    bed.refuses(&["it is a link"]);
    fs::remove_file(bed.at("journals/a.journal")).unwrap();
    fs::hard_link(&elsewhere, bed.at("journals/a.journal")).unwrap();
    bed.refuses(&["second name"]);
    // Under the very name that is needed nothing can begin.
    fs::rename(bed.at("journals/a.journal"), bed.at("journals/run.journal")).unwrap();
    let refused = Journal::open(&bed.at("journals"), "run").unwrap_err();
    assert!(matches!(&refused, Error::Untrusted { mend, .. } if mend.contains("delete it")), "{refused}");
    assert!(bed.at("precious").exists() && elsewhere.exists());
}

/// One that an older vmio left says nowhere where its owner made files.
#[test]
fn a_journal_without_places_removes_no_file_and_says_what_to_do() {
    let bed = Bed::new();
    let path = bed.at("journals/a.journal");
    fs::write(&path, bed.journal(None)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    bed.refuses(&["precious was not touched", "an older vmio recorded none", "delete it, then delete the journal"]);
    // A place that it does not lie in is none either.
    fs::write(&path, bed.journal(Some(&bed.at("journals")))).unwrap();
    bed.refuses(&["precious was not touched"]);
}
