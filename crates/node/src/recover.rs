//! Recovery: what dead owners left in their journals is undone by the next start.
//!
//! See [`crate::Journal`] for the format. The lock decides who may recover a journal, so that
//! two starts at the same moment do not disturb each other or a living owner.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::change::{Change, SCRATCH_MARKER, Scope};
use crate::journal::{ChangeId, Head, Line, VERSION, write_line};
use crate::machine;

/// What [`recover`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Changes of dead owners that were undone.
    pub undone: Vec<String>,
    /// What could not be undone and why; their journals are kept for the next time.
    pub failed: Vec<String>,
}

/// Undoes what owners without a living process left in the journals of `dir`. Safe against other
/// starts that do the same at the same time. A missing directory holds nothing to recover.
pub fn recover(dir: &Path) -> Recovered {
    let mut all = Recovered::default();
    for path in journals(dir) {
        let one = match lock_file(&path, Duration::ZERO) {
            Ok(Some(mut file)) => {
                let one = undo_file(&mut file, &path);
                if one.failed.is_empty() {
                    let _ = fs::remove_file(&path);
                }
                one
            }
            Ok(None) => continue,
            Err(e) => Recovered { undone: vec![], failed: vec![e.to_string()] },
        };
        all.undone.extend(one.undone);
        all.failed.extend(one.failed.into_iter().map(|f| format!("{}: {f}", path.display())));
    }
    all
}

/// What vmio left behind, for tests that look for leaks: journals in `dir` that no living owner
/// holds, processes marked by owners of `dir` that are no more, and loop devices over files in
/// directories that such owners made. Empty means clean.
pub fn leftovers(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut living = Vec::new();
    for path in journals(dir) {
        match lock_file(&path, Duration::ZERO) {
            Ok(None) => living.extend(read_head(&path).map(|h| h.cookie)),
            _ => found.push(format!("journal {} of a dead owner", path.display())),
        }
    }
    let prefix = dir_mark(dir);
    let orphan = |cookie: &str| cookie.starts_with(&prefix) && !living.iter().any(|l| l == cookie);
    for process in machine::marked_processes(orphan) {
        found.push(format!("process {} ({}) of {}", process.pid, process.name, process.cookie));
    }
    for device in machine::loop_devices() {
        let marker = |d: &Path| fs::read_to_string(d.join(SCRATCH_MARKER)).is_ok_and(|c| orphan(c.trim()));
        if device.backing.ancestors().skip(1).any(marker) {
            found.push(format!("loop device {} over {}", device.device.display(), device.backing.display()));
        }
    }
    found
}

/// Journal files of a directory, sorted.
fn journals(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut paths: Vec<_> =
        entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "journal")).collect();
    paths.sort();
    paths
}

/// Opens and locks a journal; `None` when a living owner keeps it locked for all of `limit`.
pub(crate) fn lock_file(path: &Path, limit: Duration) -> io::Result<Option<File>> {
    let until = Instant::now() + limit;
    loop {
        let file = OpenOptions::new().read(true).append(true).create(!limit.is_zero()).mode(0o600).open(path);
        let file = match file {
            Err(e) if limit.is_zero() && e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The one that held it before may have removed the name: then this is another file.
            Ok(()) if fs::metadata(path).is_ok_and(|m| file.metadata().is_ok_and(|f| f.ino() == m.ino())) => {
                return Ok(Some(file));
            }
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() >= until => return Ok(None),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(10)),
            Err(e) => return Err(e.into()),
        }
    }
}

pub(crate) fn read_head(path: &Path) -> Option<Head> {
    serde_json::from_str(fs::read_to_string(path).ok()?.lines().next()?).ok()
}

/// Undoes what a locked journal still has in force, and says so in the file.
pub(crate) fn undo_file(file: &mut File, path: &Path) -> Recovered {
    let mut done = Recovered::default();
    let mut text = Vec::new();
    if let Err(e) = file.read_to_end(&mut text) {
        done.failed.push(format!("cannot read: {e}"));
        return done;
    }
    let (head, live) = match parse(&String::from_utf8_lossy(&text)) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => return done,
        Err(e) => {
            done.failed.push(e);
            return done;
        }
    };
    let scope = Scope { cookie: &head.cookie, same_boot: head.boot_id == machine::boot_id(), held: &[] };
    let told = |what: &dyn std::fmt::Display| format!("{what} (left by {}, process {})", head.owner, head.pid);
    if scope.same_boot {
        let any = !machine::marked_processes(|c| c == head.cookie).is_empty();
        match machine::kill_marked(&head.cookie, |_| true) {
            Ok(()) if any => done.undone.push(told(&"processes")),
            Ok(()) => {}
            Err(e) => done.failed.push(e),
        }
    }
    for (id, change) in live.into_iter().rev() {
        match change.undo(&scope) {
            Ok(()) => {
                // Should this line be lost, the change is undone once more: no harm.
                let _ = write_line(file, &Line::Undone { undone: id });
                done.undone.push(told(&change));
            }
            Err(e) => done.failed.push(told_by_hand(&change, e, path)),
        }
    }
    done
}

/// What could not be undone. A volume can be removed by hand only where its group is, and a directory
/// that was moved only where it is now; the journal that asks for them would be told at every start.
pub(crate) fn told_by_hand(change: &Change, failure: String, journal: &Path) -> String {
    match change {
        Change::Volume(_) | Change::Dir { made: Some(_), .. } => {
            format!("{failure}, then delete {}", journal.display())
        }
        _ => failure,
    }
}

/// Changes in force, oldest first.
type Changes = Vec<(ChangeId, Change)>;

/// The head and the changes in force, oldest first; `None` when not even the head was completed
/// (then nothing was changed). A last line without its end was never acted upon.
fn parse(text: &str) -> Result<Option<(Head, Changes)>, String> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = whole.lines();
    let Some(first) = lines.next() else { return Ok(None) };
    let head: Head =
        serde_json::from_str(first).map_err(|e| format!("line 1 is no journal head: {e}; remove the file"))?;
    if head.vmio_journal != VERSION {
        return Err(format!(
            "written by another vmio (journal version {}, this one knows {VERSION}); let that vmio recover it",
            head.vmio_journal
        ));
    }
    let mut live = Vec::new();
    for (number, line) in (2..).zip(lines) {
        // A line torn by a full disk is followed by others; it too was never acted upon, but one
        // that is whole JSON and unknown means a newer vmio.
        match serde_json::from_str(line) {
            // Said again once it was made: with what was made.
            Ok(Line::Do { id, change }) => match live.iter_mut().find(|(known, _)| *known == id) {
                Some((_, known)) => *known = change,
                None => live.push((id, change)),
            },
            Ok(Line::Undone { undone }) => live.retain(|(id, _)| *id != undone),
            Err(_) if serde_json::from_str::<serde_json::Value>(line).is_err() => {}
            Err(_) => return Err(format!("line {number} is unknown to this vmio: {line}")),
        }
    }
    Ok(Some((head, live)))
}

/// Start of the cookies of all owners whose journals are in `dir` (FNV-1a of the path).
pub(crate) fn dir_mark(dir: &Path) -> String {
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.into());
    let bytes = dir.as_os_str().as_encoded_bytes();
    let hash = bytes.iter().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(*b)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}-")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn journal_text(boot: &str, lines: &[&str]) -> String {
        let head = Head {
            vmio_journal: VERSION,
            owner: "dead".into(),
            cookie: "cookie-of-nobody".into(),
            boot_id: boot.into(),
            pid: 1,
            start_ticks: 1,
        };
        let mut text = serde_json::to_string(&head).unwrap() + "\n";
        text.extend(lines.iter().map(|l| format!("{l}\n")));
        text
    }

    #[test]
    fn torn_lines_are_tolerated() {
        let text = journal_text("b", &[r#"{"do":1,"change":{"file":{"path":"/a"}}}"#]);
        let (_, live) = parse(&(text.clone() + r#"{"do":2,"change":{"file":{"pa"#)).unwrap().unwrap();
        assert_eq!(live.len(), 1);
        let (_, live) = parse(&(text.clone() + "{\"undone\":1}\n{\"do\":3,\"ch\n")).unwrap().unwrap();
        assert_eq!(live, []);
        assert_eq!(parse("").unwrap(), None);
        assert_eq!(parse(r#"{"vmio_journal":1,"own"#).unwrap(), None);
        // Every cut of a whole journal is readable and never invents a change.
        for cut in 0..text.len() {
            let live = parse(&text[..cut]).unwrap().map_or(0, |(_, live)| live.len());
            assert_eq!(live, 0, "{}", &text[..cut]);
        }
    }

    #[test]
    fn another_version_is_named_and_left_alone() {
        let text = journal_text("b", &[]).replace("\"vmio_journal\":1", "\"vmio_journal\":9");
        assert!(parse(&text).unwrap_err().contains("version 9"));
        let text = journal_text("b", &[r#"{"do":1,"change":{"teleport":{"path":"/a"}}}"#]);
        assert!(parse(&text).unwrap_err().contains("line 2 is unknown"));
    }

    #[test]
    fn the_journal_of_a_dead_owner_is_undone_once() {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("made");
        let journal = dir.path().join("dead.journal");
        let line =
            serde_json::to_string(&Line::Do { id: serde_json::from_str("1").unwrap(), change: Change::file(&made) });
        fs::write(&made, "x").unwrap();
        fs::write(&journal, journal_text(&machine::boot_id(), &[&line.unwrap()])).unwrap();
        assert_eq!(leftovers(dir.path()).len(), 1);
        let done = recover(dir.path());
        assert_eq!(done.undone, [format!("file {} (left by dead, process 1)", made.display())]);
        assert_eq!(done.failed, Vec::<String>::new());
        assert!(!made.exists() && !journal.exists());
        assert_eq!(recover(dir.path()), Recovered::default());
        assert_eq!(recover(&dir.path().join("missing")), Recovered::default());
    }

    #[test]
    fn a_volume_that_cannot_be_removed_is_told_with_what_to_do() {
        let volume = Change::Volume(crate::Volume {
            kind: crate::VolumeKind::Lvm,
            name: "vmio-test-no-such-group/vmio-x".into(),
            tag: "me".into(),
            options: vec![],
        });
        let failure = volume.undo(&Scope { cookie: "me", same_boot: true, held: &[] }).unwrap_err();
        let said = told_by_hand(&volume, failure, Path::new("/var/lib/vmio/journals/x-left.journal"));
        let help = "by hand: `lvremove --yes vmio-test-no-such-group/vmio-x`, then delete \
                    /var/lib/vmio/journals/x-left.journal";
        assert!(said.ends_with(help), "{said}");
    }

    #[test]
    fn after_a_reboot_only_what_outlives_it_is_undone() {
        let dir = tempfile::tempdir().unwrap();
        let (made, value) = (dir.path().join("made"), dir.path().join("value"));
        fs::write(&made, "x").unwrap();
        fs::write(&value, "now").unwrap();
        let change = |id: u32, change| {
            serde_json::to_string(&Line::Do { id: serde_json::from_str(&id.to_string()).unwrap(), change }).unwrap()
        };
        let lines =
            [change(1, Change::file(&made)), change(2, Change::Sysfs { path: value.clone(), before: "old".into() })];
        fs::write(dir.path().join("dead.journal"), journal_text("another boot", &[&lines[0], &lines[1]])).unwrap();
        assert_eq!(recover(dir.path()).failed, Vec::<String>::new());
        assert!(!made.exists());
        assert_eq!(fs::read_to_string(&value).unwrap(), "now");
    }
}
