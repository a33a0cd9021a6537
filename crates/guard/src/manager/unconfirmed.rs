//! A change that is taken back unless somebody confirms it. That it waits is written down before it is made: whoever ends
//! the daemon meanwhile, or starts another one, has confirmed nothing.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use vmio_node::ledger::EntryId;

use super::read::Read;
use crate::keep::{Keep, KeepError, Keeper};

/// The part of the ledger.
pub(super) const PART: &str = "unconfirmed";

/// Policy files as (name, text).
type Files = Vec<(String, String)>;

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

/// What somebody was sure of, and the files that were put in force since and that nobody has confirmed.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    files: Files,
    over: String,
    unconfirmed: Vec<Files>,
}

/// What is written down of changes that nobody has confirmed.
#[derive(Debug)]
pub(super) struct Unconfirmed(Keep);

impl Unconfirmed {
    pub(super) fn of(keeper: &Keeper) -> Unconfirmed {
        Unconfirmed(keeper.part(PART))
    }

    /// The files and what was set over them, of which somebody was sure, where these files were put in force and never
    /// confirmed. Files that are neither have been written since, by somebody who wants them.
    pub(super) fn before(&self, files: &Files) -> Result<Option<(Files, String)>, KeepError> {
        let last = self.0.live::<Entry>()?.pop().filter(|(_, entry)| entry.unconfirmed.contains(files));
        Ok(last.map(|(_, entry)| (entry.files, entry.over)))
    }

    /// Writes down that `next` is about to be put in force after `sure`, and perhaps after others that wait.
    pub(super) fn add(&self, sure: &Read, next: &Read) -> Result<(), KeepError> {
        let mut earlier = self.0.live::<Entry>()?;
        let of_these = |(_, entry): (_, Entry)| (entry.files == sure.files).then_some(entry.unconfirmed);
        let ids: Vec<EntryId> = earlier.iter().map(|(id, _)| *id).collect();
        let mut unconfirmed = earlier.pop().and_then(of_these).unwrap_or_default();
        if !unconfirmed.contains(&next.files) {
            unconfirmed.push(next.files.clone());
        }
        self.0.record(&Entry { files: sure.files.clone(), over: sure.over.clone(), unconfirmed })?;
        ids.into_iter().try_for_each(|id| self.0.strike(id))
    }

    /// Somebody is sure of what is in force.
    pub(super) fn clear(&self) -> Result<(), KeepError> {
        self.0.clear()
    }
}
