//! Recovery: what dead owners left in their journals is undone by the next start.
//!
//! See [`crate::Journal`] for the format. The lock decides who may recover a journal, so that
//! two starts at the same moment do not disturb each other or a living owner.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::journal::change::{Change, SCRATCH_MARKER, Scope};
use crate::journal::error::{NotUndone, Unreadable};
use crate::journal::trust::{Home, Planted};
use crate::journal::{ChangeId, Head, Line, VERSION, bounds, write_line};
use crate::{Error, Result, machine};

/// What [`recover`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Changes of dead owners that were undone.
    pub undone: Vec<String>,
    /// What could not be undone and why; their journals are kept for the next time.
    pub failed: Vec<String>,
}

/// Makes a directory for journals (mode 0700) where there is none, and refuses one that others could have
/// written: what lies in it would be obeyed by the next start. See [`crate::journal::trust`].
///
/// # Errors
/// [`Error::Untrusted`], or [`Error::File`] where it cannot be made or opened.
pub fn private_dir(dir: &Path) -> Result<()> {
    let failed = |source| Error::File { node: "local".into(), what: "make the directory", path: dir.into(), source };
    // Not even a directory is made where somebody else says what a path means.
    if let Some(there) = dir.ancestors().find(|d| d.exists()) {
        Home::above(there)?;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    Home::open(dir).map(drop)
}

/// Undoes what owners without a living process left in the journals of `dir`. Safe against other
/// starts that do the same at the same time. A missing directory holds nothing to recover. A journal
/// that somebody else can have written is not obeyed, and told among what failed; so is a directory.
pub fn recover(dir: &Path) -> Recovered {
    let mut all = Recovered::default();
    let home = match home(dir) {
        Ok(Some(home)) => home,
        Ok(None) => return all,
        Err(e) => {
            all.failed.push(format!("nothing in {e}"));
            return all;
        }
    };
    for name in home.names(END) {
        let path = home.path.join(&name);
        let one = match lock_file(&home, &name, Duration::ZERO) {
            Ok(Locked::Ours(mut file)) => {
                let one = undo_file(&mut file, &path);
                if one.failed.is_empty() {
                    let _ = fs::remove_file(&path);
                }
                one
            }
            Ok(Locked::Living) => continue,
            Ok(Locked::Planted(why)) => Recovered { undone: vec![], failed: vec![planted(why)] },
            Err(e) => Recovered { undone: vec![], failed: vec![e.to_string()] },
        };
        all.undone.extend(one.undone);
        all.failed.extend(one.failed.into_iter().map(|f| format!("{}: {f}", path.display())));
    }
    all
}

/// The directory of journals; `None` where there is none.
fn home(dir: &Path) -> Result<Option<Home>> {
    match Home::open(dir) {
        Ok(home) => Ok(Some(home)),
        Err(e) if e.kind() == Some(io::ErrorKind::NotFound) => Ok(None),
        Err(e) => Err(e),
    }
}

/// What is told of a journal that somebody else put there.
pub(crate) fn planted(why: Planted) -> String {
    format!("{why}, so it may be someone else's: it was ignored; check it, then delete it")
}

/// What vmio left behind, for tests that look for leaks: journals in `dir` that no living owner
/// holds, processes marked by owners of `dir` that are no more, and loop devices over files in
/// directories that such owners made. Empty means clean.
pub fn leftovers(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut living = Vec::new();
    match home(dir) {
        Ok(None) => {}
        // Nothing is obeyed there; what is there is told all the same.
        Err(e) => {
            let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
            let journals = names.filter(|p| p.to_string_lossy().ends_with(END));
            found.extend(journals.map(|p| format!("journal {}, though {e}", p.display())));
        }
        Ok(Some(home)) => {
            for name in home.names(END) {
                match lock_file(&home, &name, Duration::ZERO) {
                    Ok(Locked::Living) => living.extend(read_head(&home.path.join(&name)).map(|h| h.cookie)),
                    _ => found.push(format!("journal {} of a dead owner", home.path.join(&name).display())),
                }
            }
        }
    }
    let prefix = dir_mark(dir);
    let orphan = |cookie: &str| cookie.starts_with(&prefix) && !living.iter().any(|l| l == cookie);
    for process in machine::marked_processes(orphan) {
        found.push(format!("process {} ({}) of {}", process.pid, process.name, process.cookie));
    }
    for device in crate::journal::loops::loop_devices() {
        let marker = |d: &Path| fs::read_to_string(d.join(SCRATCH_MARKER)).is_ok_and(|c| orphan(c.trim()));
        if device.backing.ancestors().skip(1).any(marker) {
            found.push(format!("loop device {} over {}", device.device.display(), device.backing.display()));
        }
    }
    found
}

/// How the names of journals end.
const END: &str = ".journal";

/// Result of an attempt to lock a journal.
pub(crate) enum Locked {
    /// Nobody had it.
    Ours(File),
    /// A living owner has it, or it is gone.
    Living,
    /// It is not to be believed, and why.
    Planted(Planted),
}

/// Opens and locks a journal once; what was opened is what was looked at. A limit above zero makes it where
/// it is missing, and waits so long for who has it.
pub(crate) fn lock_file(home: &Home, name: &OsStr, limit: Duration) -> io::Result<Locked> {
    let until = Instant::now() + limit;
    loop {
        let file = match home.file(name, !limit.is_zero()) {
            Err(e) if limit.is_zero() && e.kind() == io::ErrorKind::NotFound => return Ok(Locked::Living),
            Err(e) => return Err(e),
            Ok(Err(why)) => return Ok(Locked::Planted(why)),
            Ok(Ok(file)) => file,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The one that held it before may have removed the name: then this is another file.
            Ok(()) if home.is_still(name, &file) => return Ok(Locked::Ours(file)),
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() >= until => return Ok(Locked::Living),
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
    let Parsed { head, live, scratch } = match parse(&String::from_utf8_lossy(&text)) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => return done,
        Err(e) => {
            done.failed.push(e.to_string());
            return done;
        }
    };
    let scope = Scope { cookie: &head.cookie, same_boot: head.boot_id == machine::boot_id(), held: &[] };
    let described = |what: &dyn std::fmt::Display| format!("{what} (left by {}, process {})", head.owner, head.pid);
    if scope.same_boot {
        let any = !machine::marked_processes(|c| c == head.cookie).is_empty();
        match machine::kill_marked(&head.cookie, |_| true) {
            Ok(()) if any => done.undone.push(described(&"processes")),
            Ok(()) => {}
            Err(e) => done.failed.push(e.to_string()),
        }
    }
    // After a reboot such a disk is gone, and so is what lay on it.
    let disks: Vec<Change> =
        live.iter().map(|(_, c)| c).filter(|c| matches!(c, Change::OwnDisk { .. })).cloned().collect();
    for (id, change) in live.into_iter().rev() {
        let undone = if change.goes_with_a_disk(&disks) { Ok(()) } else { bounds::undo(&change, &scope, &scratch) };
        match undone {
            Ok(()) => {
                // If this line is lost the change is undone once more, without harm.
                let _ = write_line(file, &Line::Undone { undone: id });
                done.undone.push(described(&change));
            }
            Err(e) => done.failed.push(told_by_hand(&change, &e, path)),
        }
    }
    done
}

/// What could not be undone. A volume can be removed by hand only where its group is, and a directory
/// that was moved only where it is now; the journal that asks for them would be told at every start.
pub(crate) fn told_by_hand(change: &Change, failure: &NotUndone, journal: &Path) -> String {
    match change {
        Change::Volume(_) | Change::Dir { made: Some(_), .. } => {
            format!("{failure}, then delete {}", journal.display())
        }
        _ => failure.to_string(),
    }
}

/// Content of a journal.
#[derive(Debug, PartialEq)]
struct Parsed {
    head: Head,
    /// Changes in force, oldest first.
    live: Vec<(ChangeId, Change)>,
    /// Directories in which its owner made files.
    scratch: Vec<PathBuf>,
}

/// `None` when not even the head was completed (then nothing was changed). A last line without its end was
/// never acted upon.
fn parse(text: &str) -> Result<Option<Parsed>, Unreadable> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = whole.lines();
    let Some(first) = lines.next() else { return Ok(None) };
    let head: Head = serde_json::from_str(first).map_err(Unreadable::NoHead)?;
    if head.vmio_journal != VERSION {
        return Err(Unreadable::OtherJournal(head.vmio_journal));
    }
    let (mut live, mut scratch) = (Vec::new(), Vec::new());
    for (number, line) in (2..).zip(lines) {
        // A line torn by a full disk is followed by others; it too was never acted upon, but one
        // that is whole JSON and unknown means a newer vmio.
        match serde_json::from_str(line) {
            // Recorded again after it was made, with its identity.
            Ok(Line::Do { id, change }) => match live.iter_mut().find(|(known, _)| *known == id) {
                Some((_, known)) => *known = change,
                None => live.push((id, change)),
            },
            Ok(Line::Undone { undone }) => live.retain(|(id, _)| *id != undone),
            Ok(Line::Scratch { scratch: place }) => scratch.push(place),
            Err(_) if serde_json::from_str::<serde_json::Value>(line).is_err() => {}
            Err(_) => return Err(Unreadable::UnknownLine { number, line: line.to_owned() }),
        }
    }
    Ok(Some(Parsed { head, live, scratch }))
}

/// Start of the cookies of all owners whose journals are in `dir` (FNV-1a of the path).
pub fn dir_mark(dir: &Path) -> String {
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

    fn scratch_line(dir: &Path) -> String {
        serde_json::to_string(&Line::Scratch { scratch: dir.to_owned() }).unwrap()
    }

    /// As [`Journal`](crate::Journal) makes one.
    fn write_own(path: &Path, text: &str) {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        std::io::Write::write_all(&mut options.open(path).unwrap(), text.as_bytes()).unwrap();
    }

    #[test]
    fn torn_lines_are_tolerated() {
        let text = journal_text("b", &[r#"{"do":1,"change":{"file":{"path":"/a"}}}"#]);
        let Parsed { live, .. } = parse(&(text.clone() + r#"{"do":2,"change":{"file":{"pa"#)).unwrap().unwrap();
        assert_eq!(live.len(), 1);
        let Parsed { live, .. } = parse(&(text.clone() + "{\"undone\":1}\n{\"do\":3,\"ch\n")).unwrap().unwrap();
        assert_eq!(live, []);
        assert_eq!(parse("").unwrap(), None);
        assert_eq!(parse(r#"{"vmio_journal":1,"own"#).unwrap(), None);
        // Every cut of a whole journal is readable and never invents a change.
        for cut in 0..text.len() {
            let live = parse(&text[..cut]).unwrap().map_or(0, |parsed| parsed.live.len());
            assert_eq!(live, 0, "{}", &text[..cut]);
        }
    }

    #[test]
    fn other_version_is_left_alone() {
        let text = journal_text("b", &[]).replace("\"vmio_journal\":1", "\"vmio_journal\":9");
        assert!(parse(&text).unwrap_err().to_string().contains("version 9"));
        let text = journal_text("b", &[r#"{"do":1,"change":{"teleport":{"path":"/a"}}}"#]);
        assert!(parse(&text).unwrap_err().to_string().contains("line 2 is unknown"));
    }

    #[test]
    fn dead_owners_journal_is_undone_once() {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("made");
        let journal = dir.path().join("dead.journal");
        let line =
            serde_json::to_string(&Line::Do { id: serde_json::from_str("1").unwrap(), change: Change::file(&made) });
        fs::write(&made, "x").unwrap();
        write_own(&journal, &journal_text(&machine::boot_id(), &[&scratch_line(dir.path()), &line.unwrap()]));
        assert_eq!(leftovers(dir.path()).len(), 1);
        let done = recover(dir.path());
        assert_eq!(done.undone, [format!("file {} (left by dead, process 1)", made.display())]);
        assert_eq!(done.failed, Vec::<String>::new());
        assert!(!made.exists() && !journal.exists());
        assert_eq!(recover(dir.path()), Recovered::default());
        assert_eq!(recover(&dir.path().join("missing")), Recovered::default());
    }

    #[test]
    fn failed_volume_removal_has_instructions() {
        let volume = Change::Volume(crate::Volume {
            kind: crate::VolumeKind::Lvm,
            name: "vmio-test-no-such-group/vmio-x".into(),
            tag: "me".into(),
            options: vec![],
        });
        let failure = volume.undo(&Scope { cookie: "me", same_boot: true, held: &[] }).unwrap_err();
        let note = told_by_hand(&volume, &failure, Path::new("/var/lib/vmio/journals/x-left.journal"));
        let help = "to remove it: `lvremove --yes vmio-test-no-such-group/vmio-x`, then delete \
                    /var/lib/vmio/journals/x-left.journal";
        assert!(note.ends_with(help), "{note}");
    }

    #[test]
    fn after_a_reboot_only_files_and_volumes_are_undone() {
        let dir = tempfile::tempdir().unwrap();
        let (made, value) = (dir.path().join("made"), dir.path().join("value"));
        fs::write(&made, "x").unwrap();
        fs::write(&value, "now").unwrap();
        let change = |id: u32, change| {
            serde_json::to_string(&Line::Do { id: serde_json::from_str(&id.to_string()).unwrap(), change }).unwrap()
        };
        let lines =
            [change(1, Change::file(&made)), change(2, Change::Sysfs { path: value.clone(), before: "old".into() })];
        let text = journal_text("another boot", &[&scratch_line(dir.path()), &lines[0], &lines[1]]);
        write_own(&dir.path().join("dead.journal"), &text);
        assert_eq!(recover(dir.path()).failed, Vec::<String>::new());
        assert!(!made.exists());
        assert_eq!(fs::read_to_string(&value).unwrap(), "now");
    }
}
