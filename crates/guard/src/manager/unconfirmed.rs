//! A change that is taken back unless it is confirmed. It is recorded before it is made, so that a restart of the
//! daemon does not confirm it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::read::Read;
use crate::undo_log::{Entries, Entry, HOST, UndoLogError};

/// Policy files as (name, text).
pub(super) type Files = Vec<(String, String)>;

/// What nobody had confirmed when an earlier guard ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unconfirmed {
    /// The files as they are now.
    Files,
    /// What was set over the files, which are the confirmed ones.
    Set,
}

/// A change in force that waits for its confirmation.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) until: Instant,
    pub(super) before: Read,
}

impl Waiting {
    pub(super) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// The last confirmed policy, and the unconfirmed files that were put in force since.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LastConfirmed {
    files: Files,
    over: String,
    unconfirmed: Vec<Files>,
}

impl Entry for LastConfirmed {
    const PART: &'static str = "unconfirmed";
    type Subject = ();

    fn subject(&self) {}

    fn namespace(&self) -> u64 {
        HOST
    }
}

impl Entries<LastConfirmed> {
    /// The last confirmed files and `guard set` keys, if `files` are unconfirmed ones. Other files were edited since,
    /// and are wanted.
    pub(super) fn before(&self, files: &Files) -> Option<(Files, String)> {
        let last = self.last(()).filter(|last| last.unconfirmed.contains(files))?;
        Some((last.files, last.over))
    }

    /// Records that `next` is about to be put in force, unconfirmed; `sure` is the last confirmed policy.
    pub(super) fn add(&self, sure: &Read, next: &Read) -> Result<(), UndoLogError> {
        let of_these = self.last(()).filter(|last| last.files == sure.files);
        let mut unconfirmed = of_these.map(|last| last.unconfirmed).unwrap_or_default();
        if !unconfirmed.contains(&next.files) {
            unconfirmed.push(next.files.clone());
        }
        self.replace(LastConfirmed { files: sure.files.clone(), over: sure.over.clone(), unconfirmed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::form_stays;

    #[test]
    fn the_form_of_entries_stays() {
        let last = r#"{"files":[["guard.toml","a"]],"over":"b","unconfirmed":[[["guard.toml","c"]]]}"#;
        form_stays::<LastConfirmed>("unconfirmed", last);
    }
}
