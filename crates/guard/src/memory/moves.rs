//! What is changed of guests' balloons, and how that is undone.

use std::collections::BTreeMap;

use vmio_model::memory::{Guest, Move};

use super::{Before, Host, Memory, NO_BALLOON, Seen, Wanted, key};
use crate::undo_log::Entry;

/// How often drivers are asked for statistics where nobody had them asked, in seconds.
const POLL_SECONDS: u64 = 5;
/// Looks at balloons that are put back, with a pause each, of which none finds a change: they are left to themselves.
const LOOKS: u32 = 80;
/// The same in all: a busy guest gives back a few MiB a second, since its driver pauses whenever it finds none free.
const MOST_LOOKS: u32 = 480;
/// Pauses in which a driver that is asked for statistics has reported again.
const REPORT_PAUSES: u32 = 40;

impl<H: Host> Memory<H> {
    /// What the ledger has of guests.
    pub(super) fn held(&self) -> Vec<Before> {
        self.entries.subjects().into_iter().filter_map(|subject| self.entries.last(subject)).collect()
    }

    /// What it has of the guest of this process.
    pub(super) fn entry(&self, pid: u32) -> Option<Before> {
        let subject = self.entries.subjects().into_iter().find(|(process, _)| *process == pid)?;
        self.entries.last(subject)
    }

    /// A guest that has ended needs nothing back.
    pub(super) fn drop_ended(&mut self) {
        for before in self.held() {
            if !self.host.runs(&before.balloon) {
                self.strike(&before);
            }
        }
    }

    fn strike(&mut self, before: &Before) {
        if let Err(e) = self.entries.strike(before.subject()) {
            // It must not be used again.
            self.entries.forget(before.subject());
            self.status.notes.push(format!("memory of {} stays in the ledger: {e}", before.balloon.guest));
        }
    }

    /// Records what a guest has before its first move, and has its driver asked for statistics.
    ///
    /// # Errors
    /// Why it cannot be moved.
    pub(super) fn adopt(&mut self, name: &str, found: &Seen) -> Result<(), String> {
        let Some(bytes) = found.actual_bytes else { return Err(NO_BALLOON.to_owned()) };
        let before = match self.entry(found.pid) {
            Some(before) => before,
            None => {
                let balloon = self.host.balloon(name, found.pid)?;
                let polling_seconds = self.host.polling_seconds(&balloon)?;
                let before = Before { balloon, bytes, polling_seconds, to_bytes: bytes };
                self.entries.record(before.clone()).map_err(|e| format!("it cannot be recorded: {e}"))?;
                // Else it would be one that an earlier guard may have moved just now.
                self.balance.adopt(&key(found.pid), bytes);
                before
            }
        };
        if found.told.is_none() && before.polling_seconds == 0 {
            self.host.poll(&before.balloon, POLL_SECONDS)?;
        }
        Ok(())
    }

    /// Makes a move, once it is recorded.
    pub(super) fn make(&mut self, planned: &Move) {
        let Some(before) = self.held().into_iter().find(|before| key(before.balloon.pid) == planned.guest) else {
            return;
        };
        let moved = Before { to_bytes: planned.to_bytes, ..before };
        let recorded = self.entries.replace(moved.clone()).map_err(|e| format!("that cannot be recorded: {e}"));
        match recorded.and_then(|()| self.host.aim_at(&moved.balloon, planned.to_bytes)) {
            Ok(()) => self.status.moves += 1,
            Err(why) => self.status.notes.push(format!("memory of {} is not moved: {why}", moved.balloon.guest)),
        }
    }

    /// What a guest had is known by the ledger, also where the guest was not seen at a check.
    pub(super) fn hold_all(&mut self) {
        for before in self.held() {
            self.balance.hold(&key(before.balloon.pid), before.bytes);
        }
    }

    /// What guests had before: less, where somebody else has set less since.
    pub(super) fn keep_bases(&mut self) {
        let bases: BTreeMap<String, u64> = self.balance.bases().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
        for before in self.held() {
            let Some(bytes) = bases.get(&key(before.balloon.pid)).copied() else { continue };
            if bytes != before.bytes
                && let Err(e) = self.entries.replace(Before { bytes, ..before })
            {
                self.status.notes.push(format!("what a guest has to get back is not recorded: {e}"));
            }
        }
    }

    /// Lets guests go that are no longer moved, and have what they had.
    pub(super) fn release(&mut self, wanted: &BTreeMap<u32, Wanted>, seen: &BTreeMap<u32, Seen>) {
        for before in self.held() {
            let pid = before.balloon.pid;
            let stays = wanted.get(&pid).is_some_and(|one| self.moves(one));
            if !stays && seen.get(&pid).is_some_and(|found| found.actual_bytes == Some(before.bytes)) {
                self.let_go(&before);
            }
        }
    }

    /// Strikes out what the ledger has of a guest that has its memory back.
    fn let_go(&mut self, before: &Before) {
        let asked = if before.polling_seconds == 0 { self.host.poll(&before.balloon, 0) } else { Ok(()) };
        match asked {
            Err(why) if self.host.runs(&before.balloon) => {
                let guest = &before.balloon.guest;
                self.status.notes.push(format!("the balloon's driver of {guest} is still asked for statistics: {why}"));
            }
            _ => self.strike(before),
        }
    }

    /// Gives all guests back what they had; what was not possible is returned, a sentence each, and stays in the
    /// ledger. Nothing is changed any more after that.
    pub fn undo(&mut self) -> Vec<String> {
        self.changes = false;
        self.status.notes.clear();
        self.drop_ended();
        let held = self.held();
        if held.is_empty() {
            return std::mem::take(&mut self.status.notes);
        }
        let mut failed = self.put_back(&held).err();
        if failed.is_none() && held.iter().any(|before| self.is_elsewhere(before)) {
            // A guest that was given memory just now reported what it works in before that.
            (0..REPORT_PAUSES).for_each(|_| self.host.pause());
            failed = self.put_back(&held).err();
        }
        self.status.notes.extend(failed);
        for before in held {
            match self.host.actual_bytes(&before.balloon) {
                Ok(bytes) if bytes == before.bytes => self.let_go(&before),
                // It has ended meanwhile.
                _ if !self.host.runs(&before.balloon) => self.strike(&before),
                Ok(bytes) => self.status.notes.push(format!(
                    "memory of {} is not put back: it has {} MiB, and had {} MiB before",
                    before.balloon.guest,
                    bytes >> 20,
                    before.bytes >> 20
                )),
                Err(why) => {
                    self.status.notes.push(format!("memory of {} is not put back: {why}", before.balloon.guest));
                }
            }
        }
        self.status.guests.clear();
        std::mem::take(&mut self.status.notes)
    }

    /// Brings guests to what they had, but for what they work in, and waits for them.
    fn put_back(&mut self, held: &[Before]) -> Result<(), String> {
        let (_, mut seen) = self.look(held.iter().map(|before| before.balloon.pid).collect())?;
        self.hold_all();
        for before in held {
            let unknown = seen.get_mut(&before.balloon.pid).filter(|found| found.actual_bytes.is_none());
            if let Some(found) = unknown {
                found.actual_bytes = self.host.actual_bytes(&before.balloon).ok();
            }
        }
        let guests: BTreeMap<String, Guest> =
            seen.values().map(|found| (key(found.pid), self.guest(found, None))).collect();
        let moves = self.balance.undo(&guests);
        moves.iter().for_each(|planned| self.make(planned));
        self.await_moves(&moves);
        Ok(())
    }

    /// Whether a guest runs and has other memory than it had.
    fn is_elsewhere(&self, before: &Before) -> bool {
        self.host.runs(&before.balloon) && self.host.actual_bytes(&before.balloon) != Ok(before.bytes)
    }

    /// Waits until guests are where they are brought, as long as they come nearer.
    fn await_moves(&self, moves: &[Move]) {
        let held = self.held();
        let has_bytes = |planned: &Move| {
            let own = held.iter().find(|before| key(before.balloon.pid) == planned.guest);
            own.map_or(Some(planned.to_bytes), |before| self.host.actual_bytes(&before.balloon).ok())
        };
        let wanted: Vec<Option<u64>> = moves.iter().map(|planned| Some(planned.to_bytes)).collect();
        let (mut last, mut unchanged) = (Vec::new(), 0);
        for _ in 0..MOST_LOOKS {
            let now: Vec<Option<u64>> = moves.iter().map(has_bytes).collect();
            unchanged = if now == last { unchanged + 1 } else { 0 };
            if now == wanted || unchanged == LOOKS {
                return;
            }
            last = now;
            self.host.pause();
        }
    }
}
