//! Undo by a living owner: one change early, or all of them at its end.

use std::fs;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::{ChangeId, Journal, Line, MAKING_LIMIT, State, bounds, write_line};
use crate::Result;
use crate::journal::change::{Change, Scope};
use crate::journal::error::NotUndone;
use crate::journal::recover::told_by_hand;
use crate::machine::{self, lock};

impl Journal {
    /// Undoes one change before its turn. A change that was undone already is no error.
    ///
    /// # Errors
    /// When it cannot be undone; it then stays in the journal.
    pub fn undo(&self, id: ChangeId) -> Result<()> {
        match self.take_in_hand(id).map_err(|e| self.error(e.to_string()))? {
            None => Ok(()),
            Some(hand) => {
                self.forget_what_goes_with(&hand.change)?;
                self.take_back(&hand.change).map_err(|e| self.error(told_by_hand(&hand.change, &e, &self.path)))?;
                self.forget(id)
            }
        }
    }

    /// Strikes out what lies on a disk that is now unmounted: a directory there that is held would keep it.
    fn forget_what_goes_with(&self, disk: &Change) -> Result<()> {
        let mut state = lock(&self.state);
        let goes: Vec<ChangeId> =
            state.live.iter().filter(|(_, change)| change.goes_with_a_disk([disk])).map(|(id, _)| *id).collect();
        goes.into_iter().try_for_each(|id| self.strike_out(&mut state, id))
    }

    /// Reserves a change for this thread's undo; waits for a thread that undoes it. `None` if it is undone already.
    fn take_in_hand(&self, id: ChangeId) -> Result<Option<InHand<'_>>, NotUndone> {
        let busy = |s: &mut State| s.in_hand.contains(&id);
        let waited = self.made.wait_timeout_while(lock(&self.state), MAKING_LIMIT, busy);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        let Some((_, change)) = state.live.iter().find(|(i, _)| *i == id).cloned() else { return Ok(None) };
        if waited.timed_out() {
            return Err(NotUndone::InHand(change));
        }
        state.in_hand.push(id);
        Ok(Some(InHand { journal: self, id, change }))
    }

    /// Strikes out a change that was not made after all, or that its maker took back itself.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn forget(&self, id: ChangeId) -> Result<()> {
        self.strike_out(&mut lock(&self.state), id)
    }

    fn strike_out(&self, state: &mut State, id: ChangeId) -> Result<()> {
        state.live.retain(|(i, _)| *i != id);
        state.held.retain(|(i, ..)| *i != id);
        write_line(&mut state.file, &Line::Undone { undone: id }).map_err(|e| self.error(self.unwritten(&e)))
    }

    /// Undoes everything: first the owner's processes end (nothing may hold what goes next), then
    /// the changes in reverse order. Returns what could not be undone; it stays in the journal, as
    /// does what is just being made.
    #[must_use = "failures are told only here"]
    pub fn undo_all(&self) -> Vec<String> {
        let (live, making) = {
            let state = lock(&self.state);
            (state.live.clone(), state.making.clone())
        };
        let stuck = machine::kill_marked(self.cookie(), |_| true).err();
        let mut failed: Vec<String> = stuck.map(|e| e.to_string()).into_iter().collect();
        let disks: Vec<Change> =
            live.iter().map(|(_, c)| c).filter(|c| matches!(c, Change::OwnDisk { .. })).cloned().collect();
        for (id, change) in live.into_iter().rev() {
            if making.contains(&id) {
                failed.push(NotUndone::BeingMade(change).to_string());
                continue;
            }
            let _hand = match self.take_in_hand(id) {
                Ok(None) => continue,
                Ok(Some(hand)) => hand,
                Err(e) => {
                    failed.push(e.to_string());
                    continue;
                }
            };
            let undone = if change.goes_with_a_disk(&disks) { Ok(()) } else { self.take_back(&change) };
            if let Err(e) = undone.and_then(|()| Ok(self.forget(id)?)) {
                failed.push(told_by_hand(&change, &e, &self.path));
            }
        }
        failed
    }

    /// Ends the owner's work from any thread: nothing is changed or started any more, what is just
    /// being made is waited for (at most 20 s), all is undone, and the journal's file goes unless
    /// something could not be undone (which is returned).
    #[must_use = "failures are told only here"]
    pub fn close(&self) -> Vec<String> {
        self.close_within(MAKING_LIMIT)
    }

    pub(super) fn close_within(&self, limit: Duration) -> Vec<String> {
        let mut state = lock(&self.state);
        // Waits only once.
        let left = limit.saturating_sub(state.closed.get_or_insert_with(Instant::now).elapsed());
        let waited = self.made.wait_timeout_while(state, left, |s| !s.making.is_empty());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        let failed = self.undo_all();
        if failed.is_empty() {
            // Still locked: nobody can have taken the name meanwhile.
            let _ = fs::remove_file(&self.path);
        }
        let reaper = lock(&self.state).reaper.take();
        drop(reaper);
        failed
    }

    /// Undoes one change as far as this owner knows it.
    fn take_back(&self, change: &Change) -> Result<(), NotUndone> {
        let (held, scratch) = {
            let state = lock(&self.state);
            let held: Vec<_> = state.held.iter().map(|(_, path, fd)| (path.clone(), Arc::clone(fd))).collect();
            (held, state.scratch.clone())
        };
        bounds::undo(change, &Scope { cookie: &self.head.cookie, same_boot: true, held: &held }, &scratch)
    }
}

/// Guard of a change that is being undone.
struct InHand<'a> {
    journal: &'a Journal,
    id: ChangeId,
    change: Change,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        lock(&self.journal.state).in_hand.retain(|id| *id != self.id);
        self.journal.made.notify_all();
    }
}
