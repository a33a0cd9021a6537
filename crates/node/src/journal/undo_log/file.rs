//! The file of an undo log: `<dir>/guard.ledger` holds JSON lines: a head (version, boot), then `{"do":3,"what":{..}}` and
//! `{"undone":3}`. Beside it `guard.lock` is locked (flock(2)) by the one that may write. A line is written before the change
//! that it speaks of; nothing is forced to the disk, since what it speaks of is the running kernel's and gone after a reboot:
//! lines of another boot are dropped. Only what this user alone can have written is obeyed.
//!
//! **A full disk** keeps nobody from undoing: what cannot be written anew is gone on with as it is, and where a line
//! `{"undone":3}` finds no room, the line that it speaks of is struck out in its place, by one byte: `{"no":3,"what":{..}}`.
//! Only what is to be done finds no room, and is not done.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde::{Deserialize, Serialize};

use super::{Entry, EntryId, Live};
use crate::journal::error::Unreadable;
use crate::journal::lines::write_line;
use crate::journal::recover::{Locked, lock_file, private_dir};
use crate::journal::trust::{Home, Planted};
use crate::machine;
use crate::{Error, Result};

/// Version of the lines.
const VERSION: u32 = 1;
/// The file, the one that is locked, and the one that takes its place when it is written anew.
const NAME: &str = "guard.ledger";
const LOCK: &str = "guard.lock";
const FRESH: &str = "fresh.tmp";
/// How long an owner that is just ending is waited for.
const LOCK_LIMIT: Duration = Duration::from_millis(500);
/// Lines that speak of nothing in force any more, before the file is written anew.
pub(super) const STALE: usize = 4096;
/// How a line begins that says what is done, and one that says what is no more.
const DO: &[u8] = b"{\"do\":";
const NO: &[u8] = b"{\"no\":";

/// The file of a log, whose entries in force are its owner's.
#[derive(Debug)]
pub(super) struct LogFile {
    pub(super) path: PathBuf,
    pub(super) home: Home,
    pub(super) file: File,
    /// Held as long as this is.
    _lock: File,
    /// Where in the file the line of each entry in force begins.
    places: BTreeMap<EntryId, u64>,
    /// Why the file has no head of this boot, so that nothing may be written behind what is in it.
    headless: Option<io::Error>,
    /// Lines in the file, and with how many it is written anew.
    pub(super) lines: usize,
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

impl LogFile {
    /// Opens the file, or makes it, and gives what it has in force. On a full disk it may be left without a first line.
    pub(super) fn open(dir: &Path) -> Result<(LogFile, Live)> {
        private_dir(dir)?;
        let home = Home::open(dir)?;
        let path = home.path.join(NAME);
        let fail = |reason: String| Error::Journal { path: path.clone(), reason };
        let mut lock = match lock_file(&home, OsStr::new(LOCK), LOCK_LIMIT).map_err(|e| fail(e.to_string()))? {
            Locked::Ours(file) => file,
            Locked::Living => {
                let pid = fs::read_to_string(home.path.join(LOCK)).unwrap_or_default();
                let pid = if pid.trim().is_empty() { "?" } else { pid.trim() };
                return Err(fail(format!("in use by process {pid}")));
            }
            Locked::Planted(why) => return Err(planted(&home.path.join(LOCK), why)),
        };
        let say = |lock: &mut File| -> io::Result<()> {
            lock.set_len(0)?;
            writeln!(lock, "{}", std::process::id())
        };
        // For whoever is refused, and wants to know by whom; a full disk has no room for it.
        let _ = say(&mut lock);
        let mut file = match home.file(OsStr::new(NAME), true).map_err(|e| fail(e.to_string()))? {
            Ok(file) => file,
            Err(why) => return Err(planted(&path, why)),
        };
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|e| fail(format!("cannot be read: {e}")))?;
        let Found { ours, live, places, lines, whole } = read(&text).map_err(|e| fail(e.to_string()))?;
        let mut log = LogFile { path, home, file, _lock: lock, places, headless: None, lines, most: 0 };
        if let Err(e) = log.write_anew(&live) {
            // What is there is gone on with; where it is another boot's, nothing is in force, and the first record tries again.
            if !ours {
                log.headless = Some(e);
            } else if whole < text.len() {
                // Half a line would spoil the next one.
                log.file.set_len(whole as u64).map_err(|_| log.fail(e.to_string()))?;
            }
        }
        Ok((log, live))
    }

    /// Whether something may be written behind what is in it.
    pub(super) fn has_head(&self) -> Result<()> {
        self.headless.as_ref().map_or(Ok(()), |why| Err(self.cannot_begin(why)))
    }

    /// Writes down an entry, beside those in force.
    pub(super) fn record(&mut self, id: EntryId, entry: &Entry, live: &Live) -> Result<()> {
        if self.headless.is_some() {
            self.write_anew(live).map_err(|e| self.cannot_begin(&e))?;
        }
        let place = self.line(&Line::Do { id, what: entry })?;
        self.places.insert(id, place);
        Ok(())
    }

    /// Says that an entry is in force no more: by a line more, or in its own.
    pub(super) fn strike(&mut self, id: EntryId) -> Result<()> {
        if let Err(full) = self.line(&Line::<&Entry>::Undone { undone: id }) {
            self.strike_in_place(id).map_err(|_| full)?;
        }
        self.places.remove(&id);
        Ok(())
    }

    /// Writes it anew where too many of its lines speak of nothing in force.
    pub(super) fn shorten(&mut self, live: &Live) {
        if self.lines > live.len() + self.most.max(STALE) && self.write_anew(live).is_err() {
            // It stays as it is, until there are as many more.
            self.most = self.lines + STALE;
        }
    }

    /// Where the line begins.
    fn line(&mut self, line: &Line<&Entry>) -> Result<u64> {
        let written = self.file.metadata().and_then(|file| write_line(&mut self.file, line).map(|()| file.len()));
        let place = written.map_err(|e| self.fail(format!("cannot write it down: {e}; nothing was done")))?;
        self.lines += 1;
        Ok(place)
    }

    /// In the place of its own line, which needs no room: one byte, so that whoever is killed leaves the one or the other.
    fn strike_in_place(&self, id: EntryId) -> io::Result<()> {
        let place = self.places.get(&id).copied().ok_or(io::ErrorKind::NotFound)?;
        let file = self.home.file(OsStr::new(NAME), false)?.map_err(io::Error::other)?;
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
    fn write_anew(&mut self, live: &Live) -> io::Result<()> {
        let written = || -> io::Result<(File, BTreeMap<EntryId, u64>)> {
            let mut file = self.home.file(OsStr::new(FRESH), true)?.map_err(io::Error::other)?;
            file.set_len(0)?;
            write_line(&mut file, &Head { vmio_ledger: VERSION, boot_id: machine::boot_id() })?;
            let mut places = BTreeMap::new();
            for (id, what) in live {
                places.insert(*id, file.metadata()?.len());
                write_line(&mut file, &Line::Do { id: *id, what })?;
            }
            fs::rename(self.home.path.join(FRESH), &self.path)?;
            Ok((file, places))
        };
        let (file, places) = written().inspect_err(|_| {
            // What was written of it takes room that others need now.
            let _ = fs::remove_file(self.home.path.join(FRESH));
        })?;
        (self.file, self.places, self.headless, self.lines, self.most) = (file, places, None, live.len(), 0);
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
struct Found {
    /// Whether it is of this boot.
    ours: bool,
    live: Live,
    /// Where the line of each begins.
    places: BTreeMap<EntryId, u64>,
    lines: usize,
    /// Bytes of whole lines.
    whole: usize,
}

/// Entries in force. Of another boot there are none; a last line without an end was never finished.
fn read(text: &[u8]) -> Result<Found, Unreadable> {
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
