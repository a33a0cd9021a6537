//! The file of an undo log: `<dir>/guard.ledger` holds JSON lines: a head (version, boot), then `{"do":3,"what":{..}}`
//! and `{"undone":3}`. Beside it `guard.lock` is locked (flock(2)) by the one that may write. A line is written before
//! the change that it speaks of; nothing is forced to the disk, since what it speaks of is the running kernel's and
//! gone after a reboot: lines of another boot are dropped. Only what this user alone can have written is obeyed.
//!
//! **A full disk** does not prevent undoing: a file that cannot be rewritten is used as it is, and where there is no
//! room for a line `{"undone":3}`, one byte of the entry's own line is changed: `{"no":3,"what":{..}}`. New entries
//! fail, so their changes are not made.

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
/// Names of the file, of the lock file, and of the replacement while the file is rewritten.
const NAME: &str = "guard.ledger";
const LOCK: &str = "guard.lock";
const FRESH: &str = "fresh.tmp";
/// Wait for an owner that is just ending.
const LOCK_LIMIT: Duration = Duration::from_millis(500);
/// Number of stale lines after which the file is rewritten.
pub(super) const STALE: usize = 4096;
/// Begin of a line of an entry, and of one that was struck out in place.
const DO: &[u8] = b"{\"do\":";
const NO: &[u8] = b"{\"no\":";

/// The file of a log, whose entries in force are its owner's.
#[derive(Debug)]
pub(super) struct LogFile {
    pub(super) path: PathBuf,
    pub(super) home: Home,
    pub(super) file: File,
    /// Holds the lock.
    _lock: File,
    /// Offset of the line of each entry in force.
    places: BTreeMap<EntryId, u64>,
    /// Why the file has no head of this boot, so that no line may be appended.
    headless: Option<io::Error>,
    /// Number of lines in the file, and that at which it is rewritten.
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
    /// A `Do` line that was struck out in place.
    No {
        #[serde(rename = "no")]
        _struck: EntryId,
    },
}

impl LogFile {
    /// Opens or makes the file, and returns the entries in force. On a full disk it may have no first line.
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
        // For the message to a process that is refused; fails on a full disk.
        let _ = say(&mut lock);
        let mut file = match home.file(OsStr::new(NAME), true).map_err(|e| fail(e.to_string()))? {
            Ok(file) => file,
            Err(why) => return Err(planted(&path, why)),
        };
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|e| fail(format!("cannot be read: {e}")))?;
        let LogContent { ours, live, places, lines, whole } = read(&text).map_err(|e| fail(e.to_string()))?;
        let mut log = LogFile { path, home, file, _lock: lock, places, headless: None, lines, most: 0 };
        if let Err(e) = log.write_anew(&live) {
            // The old file is used. If it is of another boot nothing is in force, and the first record tries again.
            if !ours {
                log.headless = Some(e);
            } else if whole < text.len() {
                // Half a line would spoil the next one.
                log.file.set_len(whole as u64).map_err(|_| log.fail(e.to_string()))?;
            }
        }
        Ok((log, live))
    }

    /// The entries in force, from the file alone. It is replaced in one step, and each line written in one, so that
    /// what is read beside its owner's writes is whole.
    pub(super) fn look(dir: &Path) -> Result<Live> {
        let home = Home::open(dir)?;
        let path = home.path.join(NAME);
        let fail = |reason: String| Error::Journal { path: path.clone(), reason };
        let mut file = match home.file(OsStr::new(NAME), false).map_err(|e| fail(e.to_string()))? {
            Ok(file) => file,
            Err(why) => return Err(planted(&path, why)),
        };
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|e| fail(format!("cannot be read: {e}")))?;
        Ok(read(&text).map_err(|e| fail(e.to_string()))?.live)
    }

    /// Whether lines may be appended.
    pub(super) fn has_head(&self) -> Result<()> {
        self.headless.as_ref().map_or(Ok(()), |why| Err(self.cannot_begin(why)))
    }

    /// Appends an entry.
    pub(super) fn record(&mut self, id: EntryId, entry: &Entry, live: &Live) -> Result<()> {
        if self.headless.is_some() {
            self.write_anew(live).map_err(|e| self.cannot_begin(&e))?;
        }
        let place = self.line(&Line::Do { id, what: entry })?;
        self.places.insert(id, place);
        Ok(())
    }

    /// Strikes out an entry, by a new line or in place.
    pub(super) fn strike(&mut self, id: EntryId) -> Result<()> {
        if let Err(full) = self.line(&Line::<&Entry>::Undone { undone: id }) {
            self.strike_in_place(id).map_err(|_| full)?;
        }
        self.places.remove(&id);
        Ok(())
    }

    /// Rewrites the file if too many of its lines are stale.
    pub(super) fn shorten(&mut self, live: &Live) {
        if self.lines > live.len() + self.most.max(STALE) && self.write_anew(live).is_err() {
            // Tried again after as many more lines.
            self.most = self.lines + STALE;
        }
    }

    /// Appends a line; returns its offset.
    fn line(&mut self, line: &Line<&Entry>) -> Result<u64> {
        let written = self.file.metadata().and_then(|file| write_line(&mut self.file, line).map(|()| file.len()));
        let place = written.map_err(|e| self.fail(format!("cannot record it: {e}; nothing was done")))?;
        self.lines += 1;
        Ok(place)
    }

    /// Changes one byte of the entry's line, which needs no room and is atomic.
    fn strike_in_place(&self, id: EntryId) -> io::Result<()> {
        let place = self.places.get(&id).copied().ok_or(io::ErrorKind::NotFound)?;
        let file = self.home.file(OsStr::new(NAME), false)?.map_err(io::Error::other)?;
        // With O_APPEND pwrite(2) ignores the offset (BUGS).
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::APPEND)?;
        let mut there = [0; DO.len()];
        file.read_exact_at(&mut there, place)?;
        let at = DO.iter().zip(NO).position(|(before, after)| before != after).unwrap_or_default();
        if there != DO {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // "do" and "no" differ in one letter.
        file.write_all_at(&NO[at..=at], place + at as u64)
    }

    /// Rewrites the file with the entries in force alone, and replaces the old one atomically.
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
            // Frees its room on the disk.
            let _ = fs::remove_file(self.home.path.join(FRESH));
        })?;
        (self.file, self.places, self.headless, self.lines, self.most) = (file, places, None, live.len(), 0);
        Ok(())
    }

    fn cannot_begin(&self, why: &io::Error) -> Error {
        self.fail(format!("cannot be rewritten: {why}; nothing was done"))
    }

    fn fail(&self, reason: String) -> Error {
        Error::Journal { path: self.path.clone(), reason }
    }
}

fn planted(path: &Path, why: Planted) -> Error {
    Error::Untrusted {
        path: path.to_owned(),
        why: format!("{why}, so it may be someone else's: it was ignored"),
        mend: "check it, then delete it".into(),
    }
}

/// Content of a file.
struct LogContent {
    /// Whether it is of this boot.
    ours: bool,
    live: Live,
    /// Offset of each entry's line.
    places: BTreeMap<EntryId, u64>,
    lines: usize,
    /// Bytes of whole lines.
    whole: usize,
}

/// Entries in force. Of another boot there are none; a last line without an end was never finished.
fn read(text: &[u8]) -> Result<LogContent, Unreadable> {
    let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    let (live, places) = Default::default();
    let mut content = LogContent { ours: false, live, places, lines: 0, whole };
    let mut lines = text[..whole].split_inclusive(|b| *b == b'\n').enumerate();
    let Some((_, head)) = lines.next() else { return Ok(content) };
    let mut place = head.len() as u64;
    let head: Head = serde_json::from_slice(head).map_err(nonsense(1))?;
    if head.vmio_ledger != VERSION {
        return Err(Unreadable::OtherLedger(head.vmio_ledger));
    }
    if head.boot_id != machine::boot_id() {
        return Ok(content);
    }
    content.ours = true;
    for (number, line) in lines {
        match serde_json::from_slice(line).map_err(nonsense(number + 1))? {
            Line::Do { id, what } => {
                content.live.insert(id, what);
                content.places.insert(id, place);
            }
            Line::Undone { undone } => {
                content.live.remove(&undone);
                content.places.remove(&undone);
            }
            Line::No { .. } => {}
        }
        place += line.len() as u64;
        content.lines += 1;
    }
    Ok(content)
}

fn nonsense(number: usize) -> impl FnOnce(serde_json::Error) -> Unreadable {
    move |source| Unreadable::Nonsense { number, source }
}
