//! The status, and its text. Nearly all of that are the pools, which may have thousands of members: while nothing
//! passes and nothing is changed, theirs is made once.

use std::time::UNIX_EPOCH;

use hyper::body::Bytes;

use super::document::{self, PoolDocument, Status};
use super::unconfirmed::Waiting;
use super::{Manager, ManagerError};
use crate::core::PoolStatus;
use crate::daemon;
use crate::groups::Groups;
use crate::planes::linux;

/// Pools that are as they were.
#[derive(Debug)]
pub(super) struct StillPools {
    /// Their JSON.
    text: Bytes,
    /// The note on what their members send beside the uplink.
    note: Option<String>,
}

/// The status document as JSON.
#[derive(Debug)]
pub struct StatusText {
    /// One after the other.
    pub parts: [Bytes; 3],
    /// What the text of the pools was made of. To free thousands of members takes a while, and an answer need not wait
    /// for it.
    pub made_of: Vec<PoolDocument>,
}

impl Manager {
    /// Status document.
    ///
    /// # Errors
    /// When the loop has ended.
    pub fn status(&self) -> Result<Status, ManagerError> {
        let mut loops = self.daemon()?.status()?;
        let read = loops.pools.take().unwrap_or_default();
        let note = document::note(&read, &self.read.loaded.policy);
        let pools = self.pools(read, &loops);
        Ok(self.document(&loops, pools, note))
    }

    /// The same as JSON.
    ///
    /// # Errors
    /// As [`Manager::status`].
    pub fn status_text(&mut self) -> Result<StatusText, ManagerError> {
        let before = self.still_pools.take();
        let daemon = self.daemon()?;
        let mut loops = if before.is_some() { daemon.status_unless_still() } else { daemon.status() }?;
        let mut made_of = Vec::new();
        let shown = match (before, loops.pools.take()) {
            (Some(before), None) => before,
            (_, read) => {
                let read = read.unwrap_or_default();
                let note = document::note(&read, &self.read.loaded.policy);
                made_of = self.pools(read, &loops);
                StillPools { text: serde_json::to_vec(&made_of).unwrap_or_default().into(), note }
            }
        };
        let rest = self.document(&loops, Vec::new(), shown.note.clone());
        let rest = serde_json::to_string(&rest).unwrap_or_default();
        // In no string are quotation marks that are not escaped.
        let (head, tail) = rest.split_once("\"pools\":[]").unwrap_or_default();
        let parts: [Bytes; 3] = [format!("{head}\"pools\":").into(), shown.text.clone(), tail.to_owned().into()];
        self.still_pools = loops.still.then_some(shown);
        Ok(StatusText { parts, made_of })
    }

    fn pools(&self, read: Vec<PoolStatus>, loops: &daemon::Status) -> Vec<PoolDocument> {
        document::pools(read, &self.read.loaded.policy, &self.demand, &self.found, &loops.identities)
    }

    fn document(&self, loops: &daemon::Status, pools: Vec<PoolDocument>, local_note: Option<String>) -> Status {
        let left = self.waiting.as_ref().map(Waiting::left);
        let files = self.read.files.iter().map(|(name, _)| name.clone()).collect();
        let changed = self.texts.0.files().is_ok_and(|files| files != self.read.files);
        document::status(document::StatusParts {
            plane: self.plane,
            allocator: self.allocator,
            started: self.started.duration_since(UNIX_EPOCH).unwrap_or_default(),
            revision: self.revision,
            files,
            files_differ: changed,
            over: &self.read.over,
            confirm: left,
            warnings: &self.read.loaded.warnings,
            policy: &self.read.loaded.policy,
            loops,
            pools,
            local_note,
            appeared: &self.appeared,
            appeared_in_all: self.appeared_in_all,
            appeared_time: self.appeared_time,
            trouble: self.trouble.as_deref().or(loops.trouble.as_deref()),
            refused: self.refused.as_deref(),
            groups: self.groups.as_ref().map(Groups::status).unwrap_or_default(),
            groups_put_right: self.groups_put_right,
            group_notes: &self.group_notes,
            memory: &self.memory,
            observed: self.survey.as_ref().map(|survey| survey.document(&self.read.loaded.policy)),
            uplinks_down: self.uplinks_down(),
        })
    }

    /// Uplinks that are set down now; none where the kernel cannot be asked.
    fn uplinks_down(&self) -> Vec<String> {
        let asks = self.plane == linux::ENTRY.abilities.plane;
        if asks { linux::down(&self.uplinks()).unwrap_or_default() } else { Vec::new() }
    }
}
