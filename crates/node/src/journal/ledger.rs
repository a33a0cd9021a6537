//! A ledger: what stays in force when its owner ends, until somebody undoes it on purpose (the guard's limits). A
//! [`crate::Journal`] undoes what a dead owner left; a ledger hands it to the next one.
//!
//! `<dir>/<name>.ledger` holds JSON lines: a head (version, boot), then `{"do":3,"what":{..}}` and `{"undone":3}`.
//! Beside it `<name>.lock` is locked (flock(2)) by the one that may write. A line is written before the change that it
//! speaks of; nothing is forced to the disk, since what it speaks of is the running kernel's and gone after a reboot:
//! lines of another boot are dropped. Only what this user alone can have written is obeyed.
//!
//! **A full disk** keeps nobody from undoing: what cannot be written anew is gone on with as it is, and where a line
//! `{"undone":3}` finds no room, the line that it speaks of is struck out in its place, by one byte: `{"no":3,"what":{..}}`.
//! Only what is to be done finds no room, and is not done.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::Unreadable;
use super::lines::write_line;
use super::recover::{Locked, lock_file, private_dir};
use super::trust::{Home, Planted};
use crate::machine;
use crate::{Error, Result};

/// Version of the lines.
const VERSION: u32 = 1;
/// How long an owner that is just ending is waited for.
const LOCK_LIMIT: Duration = Duration::from_millis(500);
/// Lines that speak of nothing in force any more, before the file is written anew.
const STALE: usize = 4096;
/// How a line begins that says what is done, and one that says what is no more.
const DO: &[u8] = b"{\"do\":";
const NO: &[u8] = b"{\"no\":";

/// Names an entry within its ledger.
pub type EntryId = u64;

/// A ledger that this process may write.
#[derive(Debug)]
pub struct Ledger<T> {
    path: PathBuf,
    home: Home,
    name: OsString,
    file: File,
    /// Held as long as this is.
    _lock: File,
    next: EntryId,
    live: BTreeMap<EntryId, T>,
    /// Where in the file the line of each begins.
    places: BTreeMap<EntryId, u64>,
    /// Why the file has no head of this boot, so that nothing may be written behind what is in it.
    headless: Option<io::Error>,
    /// Lines in the file, and with how many it is written anew.
    lines: usize,
    most: usize,
}

#[derive(Serialize, Deserialize)]
struct Head {
    vmio_ledger: u32,
    boot_id: String,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line<T> {
    Do {
        #[serde(rename = "do")]
        id: EntryId,
        what: T,
    },
    Undone {
        undone: EntryId,
    },
    /// As a line of the first kind becomes where there is no room for one of the second.
    No {
        #[serde(rename = "no")]
        _struck: EntryId,
    },
}

impl<T: Serialize + DeserializeOwned> Ledger<T> {
    /// Opens `<dir>/<name>.ledger`, with what earlier owners of this boot have left in force; makes `dir` (mode 0700) and
    /// the file where they are missing. A file of this boot is opened on a full disk, too.
    ///
    /// # Errors
    /// [`Error::Journal`] when another process has it open, a line makes no sense, or nothing can be written;
    /// [`Error::Untrusted`] where somebody else could have written it.
    pub fn open(dir: &Path, name: &str) -> Result<Self> {
        let ledger = Self::open_to_undo(dir, name)?;
        match &ledger.headless {
            Some(why) => Err(ledger.cannot_begin(why)),
            None => Ok(ledger),
        }
    }

    /// As [`Ledger::open`], for who only strikes out: also where a full disk has no room for a first line.
    ///
    /// # Errors
    /// As [`Ledger::open`], but for that.
    pub fn open_to_undo(dir: &Path, name: &str) -> Result<Self> {
        private_dir(dir)?;
        let home = Home::open(dir)?;
        let path = home.path.join(format!("{name}.ledger"));
        let fail = |reason: String| Error::Journal { path: path.clone(), reason };
        let lock = format!("{name}.lock");
        let mut lock = match lock_file(&home, lock.as_ref(), LOCK_LIMIT).map_err(|e| fail(e.to_string()))? {
            Locked::Ours(file) => file,
            Locked::Living => {
                let pid = fs::read_to_string(home.path.join(&lock)).unwrap_or_default();
                let pid = if pid.trim().is_empty() { "?" } else { pid.trim() };
                return Err(fail(format!("in use by process {pid}")));
            }
            Locked::Planted(why) => return Err(planted(&home.path.join(&lock), why)),
        };
        let say = |lock: &mut File| -> io::Result<()> {
            lock.set_len(0)?;
            writeln!(lock, "{}", std::process::id())
        };
        // For whoever is refused, and wants to know by whom; a full disk has no room for it.
        let _ = say(&mut lock);
        let name = OsString::from(format!("{name}.ledger"));
        let mut file = match home.file(&name, true).map_err(|e| fail(e.to_string()))? {
            Ok(file) => file,
            Err(why) => return Err(planted(&path, why)),
        };
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|e| fail(format!("cannot be read: {e}")))?;
        let Found { ours, live, places, lines, whole } = read(&text).map_err(|e| fail(e.to_string()))?;
        let next = live.last_key_value().map_or(1, |(id, _)| id + 1);
        let (headless, most) = (None, 0);
        let mut ledger = Self { path, home, name, file, _lock: lock, next, live, places, headless, lines, most };
        if let Err(e) = ledger.write_anew() {
            // What is there is gone on with; where it is another boot's, nothing is in force, and the first record tries again.
            if !ours {
                ledger.headless = Some(e);
            } else if whole < text.len() {
                // Half a line would spoil the next one.
                ledger.file.set_len(whole as u64).map_err(|_| ledger.fail(e.to_string()))?;
            }
        }
        Ok(ledger)
    }

    /// What is in force, in the order in which it was done.
    pub fn live(&self) -> &BTreeMap<EntryId, T> {
        &self.live
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down what is about to be done.
    ///
    /// # Errors
    /// When the line cannot be written; then it must not be done.
    pub fn record(&mut self, what: T) -> Result<EntryId> {
        if self.headless.is_some() {
            self.write_anew().map_err(|e| self.cannot_begin(&e))?;
        }
        let id = self.next;
        let line = Line::Do { id, what };
        let place = self.line(&line)?;
        self.next += 1;
        if let Line::Do { what, .. } = line {
            self.live.insert(id, what);
            self.places.insert(id, place);
        }
        Ok(id)
    }

    /// Strikes out what has been undone. One that is not there is as good.
    ///
    /// # Errors
    /// When neither a line more can be written nor the entry's own be changed; the entry stays, and undoing it twice must
    /// do no harm.
    pub fn strike(&mut self, id: EntryId) -> Result<()> {
        if !self.live.contains_key(&id) {
            return Ok(());
        }
        if let Err(full) = self.line(&Line::<T>::Undone { undone: id }) {
            self.strike_in_place(id).map_err(|_| full)?;
        }
        self.live.remove(&id);
        self.places.remove(&id);
        if self.lines > self.live.len() + self.most.max(STALE) && self.write_anew().is_err() {
            // It stays as it is, until there are as many more.
            self.most = self.lines + STALE;
        }
        Ok(())
    }

    /// Where the line begins.
    fn line(&mut self, line: &Line<T>) -> Result<u64> {
        let written = self.file.metadata().and_then(|file| write_line(&mut self.file, line).map(|()| file.len()));
        let place = written.map_err(|e| self.fail(format!("cannot write it down: {e}; nothing was done")))?;
        self.lines += 1;
        Ok(place)
    }

    /// In the place of its own line, which needs no room: one byte, so that whoever is killed leaves the one or the other.
    fn strike_in_place(&self, id: EntryId) -> io::Result<()> {
        let place = self.places.get(&id).copied().ok_or(io::ErrorKind::NotFound)?;
        let file = self.home.file(&self.name, false)?.map_err(io::Error::other)?;
        // What is appended to cannot be written to elsewhere (pwrite(2), BUGS).
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::APPEND)?;
        let mut there = [0; DO.len()];
        file.read_exact_at(&mut there, place)?;
        let at = DO.iter().zip(NO).position(|(before, after)| before != after).unwrap_or_default();
        if there != DO {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // "do" and "no" have the second letter in common.
        file.write_all_at(&NO[at..=at], place + at as u64)
    }

    /// With the lines alone that speak of what is in force: beside the old one, then in its place at once.
    fn write_anew(&mut self) -> io::Result<()> {
        let fresh = OsString::from("fresh.tmp");
        let written = || -> io::Result<(File, BTreeMap<EntryId, u64>)> {
            let mut file = self.home.file(&fresh, true)?.map_err(io::Error::other)?;
            file.set_len(0)?;
            write_line(&mut file, &Head { vmio_ledger: VERSION, boot_id: machine::boot_id() })?;
            let mut places = BTreeMap::new();
            for (id, what) in &self.live {
                places.insert(*id, file.metadata()?.len());
                write_line(&mut file, &Line::Do { id: *id, what })?;
            }
            fs::rename(self.home.path.join(&fresh), self.home.path.join(&self.name))?;
            Ok((file, places))
        };
        let (file, places) = written().inspect_err(|_| {
            // What was written of it takes room that others need now.
            let _ = fs::remove_file(self.home.path.join(&fresh));
        })?;
        (self.file, self.places, self.headless, self.lines, self.most) = (file, places, None, self.live.len(), 0);
        Ok(())
    }

    fn cannot_begin(&self, why: &io::Error) -> Error {
        self.fail(format!("cannot be written anew: {why}; nothing was done"))
    }

    fn fail(&self, reason: String) -> Error {
        Error::Journal { path: self.path.clone(), reason }
    }
}

fn planted(path: &Path, why: Planted) -> Error {
    Error::Untrusted {
        path: path.to_owned(),
        why: format!("{why}, so it may be somebody else's and nothing in it was obeyed"),
        mend: "look at it, then delete it".into(),
    }
}

/// What a file says.
struct Found<T> {
    /// Whether it is of this boot.
    ours: bool,
    live: BTreeMap<EntryId, T>,
    /// Where the line of each begins.
    places: BTreeMap<EntryId, u64>,
    lines: usize,
    /// Bytes of whole lines.
    whole: usize,
}

/// Entries in force. Of another boot there are none; a last line without an end was never finished.
fn read<T: DeserializeOwned>(text: &[u8]) -> Result<Found<T>, Unreadable> {
    let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    let (live, places) = Default::default();
    let mut found = Found { ours: false, live, places, lines: 0, whole };
    let mut lines = text[..whole].split_inclusive(|b| *b == b'\n').enumerate();
    let Some((_, head)) = lines.next() else { return Ok(found) };
    let mut place = head.len() as u64;
    let head: Head = serde_json::from_slice(head).map_err(nonsense(1))?;
    if head.vmio_ledger != VERSION {
        return Err(Unreadable::OtherLedger(head.vmio_ledger));
    }
    if head.boot_id != machine::boot_id() {
        return Ok(found);
    }
    found.ours = true;
    for (number, line) in lines {
        match serde_json::from_slice(line).map_err(nonsense(number + 1))? {
            Line::Do { id, what } => {
                found.live.insert(id, what);
                found.places.insert(id, place);
            }
            Line::Undone { undone } => {
                found.live.remove(&undone);
                found.places.remove(&undone);
            }
            Line::No { .. } => {}
        }
        place += line.len() as u64;
        found.lines += 1;
    }
    Ok(found)
}

fn nonsense(number: usize) -> impl FnOnce(serde_json::Error) -> Unreadable {
    move |source| Unreadable::Nonsense { number, source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn open(dir: &Path) -> Ledger<String> {
        Ledger::open(dir, "guard").unwrap()
    }

    fn whats(ledger: &Ledger<String>) -> Vec<&str> {
        ledger.live().values().map(String::as_str).collect()
    }

    #[test]
    fn what_is_in_force_is_handed_to_the_next_owner() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = open(dir.path());
        let ids: Vec<EntryId> = ["a", "b", "c"].iter().map(|w| first.record((*w).to_owned()).unwrap()).collect();
        first.strike(ids[1]).unwrap();
        first.strike(99).unwrap();
        assert!(matches!(
            Ledger::<String>::open(dir.path(), "guard"),
            Err(Error::Journal { reason, .. }) if reason.contains(&std::process::id().to_string())
        ));
        drop(first);
        let mut second = open(dir.path());
        assert_eq!(whats(&second), ["a", "c"]);
        let id = second.record("d".into()).unwrap();
        assert!(!ids.contains(&id));
        drop(second);
        assert_eq!(whats(&open(dir.path())), ["a", "c", "d"]);
    }

    #[test]
    fn half_a_line_was_never_finished_and_others_that_make_no_sense_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut ledger = open(dir.path());
        ledger.record("a".into()).unwrap();
        let path = ledger.path().to_owned();
        drop(ledger);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}{{\"do\":2,\"wh")).unwrap();
        assert_eq!(whats(&open(dir.path())), ["a"]);
        fs::write(&path, format!("{text}{{\"do\":2}}\n")).unwrap();
        let error = Ledger::<String>::open(dir.path(), "guard").unwrap_err().to_string();
        assert!(error.contains("line 3"), "{error}");
        // Of another boot nothing is in force.
        fs::write(&path, text.replace(&machine::boot_id(), "other")).unwrap();
        assert_eq!(whats(&open(dir.path())), [""; 0]);
        fs::write(&path, text.replace("\"vmio_ledger\":1", "\"vmio_ledger\":2")).unwrap();
        assert!(Ledger::<String>::open(dir.path(), "guard").unwrap_err().to_string().contains("version 2"));
    }

    #[test]
    fn a_ledger_that_others_may_have_written_is_not_obeyed() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = open(dir.path()).path().to_owned();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(Ledger::<String>::open(dir.path(), "guard"), Err(Error::Untrusted { .. })));
    }

    /// A full disk, for a ledger: no other file can be written, and nothing more into its own. (The root test has one.)
    fn fill(ledger: &mut Ledger<String>) {
        fs::create_dir_all(ledger.home.path.join("fresh.tmp")).unwrap();
        ledger.file = File::open(&ledger.path).unwrap();
    }

    #[test]
    fn on_a_full_disk_all_can_be_undone_and_nothing_be_done() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = open(dir.path());
        let ids: Vec<EntryId> = ["a", "b", "c"].iter().map(|w| first.record((*w).to_owned()).unwrap()).collect();
        fill(&mut first);
        assert!(first.record("d".into()).is_err());
        first.strike(ids[0]).unwrap();
        drop(first);
        // The next owner reads that from the file as it was, with half a line that a fuller disk has left.
        let path = dir.path().join("guard.ledger");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("{\"no\":1,\"what\":\"a\"}\n{\"do\":2,"), "{text}");
        fs::write(&path, format!("{text}{{\"undone\":")).unwrap();
        let mut second = open(dir.path());
        assert_eq!((whats(&second), fs::read_to_string(&path).unwrap()), (vec!["b", "c"], text));
        fill(&mut second);
        second.strike(ids[1]).unwrap();
        second.strike(ids[1]).unwrap();
        drop(second);
        // There is room again, first for a line, then for a file.
        let mut third = open(dir.path());
        assert_eq!(whats(&third), ["c"]);
        third.record("e".into()).unwrap();
        drop(third);
        fs::remove_dir(dir.path().join("fresh.tmp")).unwrap();
        assert_eq!(whats(&open(dir.path())), ["c", "e"]);
        assert!(!fs::read_to_string(&path).unwrap().contains("no"));
    }

    #[test]
    fn without_room_for_a_first_line_there_is_nothing_to_undo_and_nothing_is_done() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("fresh.tmp")).unwrap();
        let refused = Ledger::<String>::open(dir.path(), "guard").unwrap_err().to_string();
        assert!(refused.contains("cannot be written anew") && refused.contains("nothing was done"), "{refused}");
        let mut ledger: Ledger<String> = Ledger::open_to_undo(dir.path(), "guard").unwrap();
        assert_eq!(whats(&ledger), [""; 0]);
        ledger.strike(1).unwrap();
        assert!(ledger.record("a".into()).is_err());
        fs::remove_dir(dir.path().join("fresh.tmp")).unwrap();
        ledger.record("a".into()).unwrap();
        drop(ledger);
        assert_eq!(whats(&open(dir.path())), ["a"]);
    }

    #[test]
    fn it_does_not_grow_without_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut ledger = open(dir.path());
        let kept = ledger.record("kept".into()).unwrap();
        let mut longest = 0;
        for _ in 0..2 * STALE {
            let id = ledger.record("gone".into()).unwrap();
            ledger.strike(id).unwrap();
            longest = longest.max(ledger.lines);
        }
        assert!(longest <= STALE + 2, "{longest}");
        drop(ledger);
        assert_eq!(open(dir.path()).live().keys().copied().collect::<Vec<_>>(), [kept]);
    }
}
