//! The lines of a journal's file.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::journal::ChangeId;
use crate::journal::change::Change;
use crate::journal::recover::dir_mark;
use crate::machine;

/// Version of the journal's lines.
pub(crate) const VERSION: u32 = 1;

/// First line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// Version of the lines that follow.
    pub vmio_journal: u32,
    /// Who makes the changes.
    pub owner: String,
    /// Mark of its processes.
    pub cookie: String,
    /// Boot during which it was opened.
    pub boot_id: String,
    /// The owner's process, and when that started.
    pub pid: u32,
    /// Clock ticks since boot at which the owner's process started.
    pub start_ticks: u64,
}

/// A line after the head.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Line {
    Do {
        #[serde(rename = "do")]
        id: ChangeId,
        change: Change,
    },
    Undone {
        undone: ChangeId,
    },
    Scratch {
        scratch: PathBuf,
    },
}

/// Appends one line with a single write; takes back half a line (full disk), which would spoil
/// the next one.
pub(crate) fn write_line(file: &mut File, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    let end = file.metadata()?.len();
    file.write_all(text.as_bytes()).inspect_err(|_| {
        let _ = file.set_len(end);
    })
}

/// The head of a journal of this process.
pub(super) fn new_head(dir: &Path, owner: &str) -> io::Result<Head> {
    let random = machine::random()?;
    let pid = std::process::id();
    Ok(Head {
        vmio_journal: VERSION,
        owner: owner.to_owned(),
        cookie: format!("{}{owner}-{pid}-{:016x}", dir_mark(dir), u64::from_le_bytes(random)),
        boot_id: machine::boot_id(),
        pid,
        start_ticks: machine::start_ticks(pid).unwrap_or(0),
    })
}
