//! The send buffers of the taps that are to be held, kept in force by a thread of their own: a look at another process takes
//! half a millisecond, and two seconds where that process is hostile or the host in trouble, which the guard's loop must not
//! wait for. The thread is told what is to be held and says what is; it is in the network namespace of the plane.
//!
//! What is set is in the ledger before it is set, under `taps`. Whoever opens the plane next gets it from there: what is
//! still wanted stays in force, all else is put back.
//!
//! **What is looked at again**: a hypervisor restarts, a guest's driver switches queues on that were not set. Each tap is
//! looked at once a second, or where there are many as seldom as costs 2 % of a processor's time; and at once when something
//! else is wanted of it. Where one could not be held (its process did not answer in time), what that look took says nothing of
//! its cost: the next one comes within some seconds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use vmio_model::policy::Direction;

use super::super::Device;
use super::super::tap::{self, Held, Undone};
use crate::desired::Desired;
use crate::planes::{NotHeld, PlaneError};
use crate::undo_log::{Entries, Entry, EntryId, UndoLog, UndoLogError};

/// How often each tap is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The time between two looks is so many times what a look took.
const REST: u32 = 50;
/// But no longer than this where a tap could not be held.
const TRIED_AGAIN: Duration = Duration::from_secs(5);

/// A tap that is to be held.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    device: Device,
    /// Who may have it open.
    pids: Vec<u32>,
    bytes: u32,
}

/// By index.
type All = BTreeMap<u32, Wanted>;
/// By index: what is in force, or why nothing is.
type TapStates = BTreeMap<u32, Result<u32, Arc<NotHeld>>>;

enum Asked {
    Hold(All),
    Undo(SyncSender<Vec<NotHeld>>),
}

/// A hold on the thread. Dropped, it ends the thread and leaves in force what is.
#[derive(Debug)]
pub(super) struct Taps {
    log: UndoLog,
    namespace: u64,
    /// `None` before anything was told.
    told: Option<All>,
    seen: Arc<Mutex<TapStates>>,
    ended: Arc<AtomicBool>,
    /// Started when the first tap is to be held, or one is in the ledger.
    thread: Option<(Sender<Asked>, JoinHandle<()>)>,
}

impl Taps {
    /// With what the ledger has of this network namespace; nothing is touched yet.
    pub(super) fn new(log: UndoLog, namespace: u64) -> Taps {
        let (told, seen, ended) = Default::default();
        Taps { log, namespace, told, seen, ended, thread: None }
    }

    /// What is to be held from now on, of all that is desired; the rest is put back. Does not wait for it.
    pub(super) fn hold(&mut self, desired: &Desired) -> Result<(), PlaneError> {
        let sending = desired.pools.iter().filter(|pool| pool.key.direction == Direction::GuestTx);
        let wanted: All = sending
            .flat_map(|pool| &pool.seats)
            .filter_map(|seat| {
                let (interface, holding) = (seat.interface.as_ref()?, seat.holding.as_ref()?);
                let device = Device { index: interface.index, name: interface.name.clone() };
                let bytes = holding.send_buffer_bytes?;
                Some((interface.index, Wanted { device, pids: seat.pids.clone(), bytes }))
            })
            .collect();
        if self.told.as_ref() == Some(&wanted) && (self.runs() || wanted.is_empty()) {
            return Ok(());
        }
        let before = self.told.take().unwrap_or_default();
        lock(&self.seen).retain(|index, _| wanted.get(index) == before.get(index));
        if !wanted.is_empty() || self.runs() || !self.entries()?.is_empty() {
            self.ask(Asked::Hold(wanted.clone()))?;
        }
        self.told = Some(wanted);
        Ok(())
    }

    /// What is in force at a tap that is to be held, or why nothing is.
    pub(super) fn seen(&self, index: u32) -> Result<u32, Arc<NotHeld>> {
        let seen = lock(&self.seen).get(&index).cloned();
        seen.unwrap_or_else(|| Err(Arc::new(NotHeld::NotYet)))
    }

    /// Puts all back, also what the ledger has of others before.
    pub(super) fn undo(&mut self) -> Result<(), PlaneError> {
        self.told = None;
        lock(&self.seen).clear();
        if !self.runs() && self.entries()?.is_empty() {
            return Ok(());
        }
        let (tell, told) = mpsc::sync_channel(1);
        self.ask(Asked::Undo(tell))?;
        let stays = told.recv().map_err(|_| PlaneError::ThreadEnded)?;
        if stays.is_empty() { Ok(()) } else { Err(PlaneError::Stays(stays)) }
    }

    fn entries(&self) -> Result<Entries<Written>, UndoLogError> {
        Entries::read(&self.log, self.namespace)
    }

    fn runs(&self) -> bool {
        self.thread.as_ref().is_some_and(|(_, thread)| !thread.is_finished())
    }

    fn ask(&mut self, what: Asked) -> Result<(), PlaneError> {
        if !self.runs() {
            let held = self.entries()?;
            let (ask, asked) = mpsc::channel();
            // Before the thread runs: one that finds nothing asked takes nothing for wanted, and puts back all that the ledger has.
            ask.send(what).map_err(|_| PlaneError::ThreadEnded)?;
            let (seen, ended) = (Arc::clone(&self.seen), Arc::clone(&self.ended));
            let mut turn = Turn { held, wanted: All::new(), seen, ended };
            let thread = thread::Builder::new().name("guard-taps".into()).spawn(move || turn.run(&asked));
            self.thread = Some((ask, thread.map_err(PlaneError::NoThread)?));
            return Ok(());
        }
        let (ask, _) = self.thread.as_ref().ok_or(PlaneError::ThreadEnded)?;
        ask.send(what).map_err(|_| PlaneError::ThreadEnded)
    }
}

impl Drop for Taps {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some((ask, thread)) = self.thread.take() {
            drop(ask);
            // It panicked: there is nothing left of it to wait for.
            let _ = thread.join();
        }
    }
}

/// As it is written down, by the tap's index: with the inode of the network namespace that it is in.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Written {
    namespace: u64,
    held: Held,
}

impl Entry for Written {
    const PART: &'static str = "taps";
    type Subject = u32;

    fn subject(&self) -> u32 {
        self.held.index
    }

    fn namespace(&self) -> u64 {
        self.namespace
    }
}

fn lock(seen: &Mutex<TapStates>) -> MutexGuard<'_, TapStates> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Turn {
    held: Entries<Written>,
    wanted: All,
    seen: Arc<Mutex<TapStates>>,
    ended: Arc<AtomicBool>,
}

impl Turn {
    fn run(&mut self, asked: &Receiver<Asked>) {
        let mut rest = Duration::ZERO;
        loop {
            match asked.recv_timeout(rest) {
                Ok(Asked::Hold(wanted)) => self.wanted = wanted,
                Ok(Asked::Undo(tell)) => {
                    self.wanted.clear();
                    let _ = tell.send(self.release());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let began = Instant::now();
            // What stays is tried again at the next look, and told when somebody asks for it.
            let _ = self.release();
            let mut all_held = true;
            for wanted in self.wanted.clone().into_values() {
                if self.ended.load(Ordering::Relaxed) {
                    return;
                }
                let index = wanted.device.index;
                let in_force = self.look(&wanted);
                all_held &= in_force.is_ok();
                lock(&self.seen).insert(index, in_force.map_err(Arc::new));
            }
            rest = LOOK.max(began.elapsed().saturating_mul(REST));
            if !all_held {
                rest = rest.min(TRIED_AGAIN);
            }
        }
    }

    /// Puts back what is not wanted any more; what stays, and why.
    fn release(&self) -> Vec<NotHeld> {
        let gone = self.held.subjects().into_iter().filter(|index| !self.wanted.contains_key(index));
        gone.filter_map(|index| self.put_back(index).err()).collect()
    }

    /// Puts a tap back as it was, and strikes it out.
    fn put_back(&self, index: u32) -> Result<(), NotHeld> {
        // Where a change was cut off, one before the last may be in force.
        for (id, Written { held, .. }) in self.held.all(index).iter().rev() {
            match tap::undo(held)? {
                Undone::Restored | Undone::Gone | Undone::Others(_) => self.strike(*id, index)?,
                Undone::Except(queues) => {
                    return Err(NotHeld::SwitchedOff { tap: held.interface.clone(), queues, bytes: held.bytes });
                }
            }
        }
        Ok(())
    }

    fn strike(&self, id: EntryId, index: u32) -> Result<(), UndoLogError> {
        self.held.strike_where(index, |other, _| other == id)
    }

    /// Has a tap held: what is in force there.
    fn look(&self, wanted: &Wanted) -> Result<u32, NotHeld> {
        let index = wanted.device.index;
        let entries = self.held.all(index);
        // The last one, but where a change was cut off.
        let mut in_force = None;
        for (_, Written { held, .. }) in entries.iter().rev() {
            if tap::in_force(held)? {
                in_force = Some(held);
                break;
            }
        }
        let last = in_force.or(entries.last().map(|(_, written)| &written.held));
        let Some(last) = last else { return self.begin(wanted) };
        if in_force.is_none() {
            // Another process may have it by now, or another tap its index.
            if tap::find(&wanted.device, &[last.process.pid])? != Some(last.process) {
                self.put_back(index)?;
                return self.begin(wanted);
            }
            if last.bytes == wanted.bytes {
                return self.set(index, last);
            }
        } else if last.bytes == wanted.bytes {
            return self.settle(index, last);
        }
        let next = last.resized(wanted.bytes)?;
        self.record(&next)?;
        self.set(index, &next)
    }

    fn begin(&self, wanted: &Wanted) -> Result<u32, NotHeld> {
        let process = tap::find(&wanted.device, &wanted.pids)?.ok_or(NotHeld::NoHolder)?;
        let held = tap::plan(&wanted.device, process, wanted.bytes)?;
        self.record(&held)?;
        self.set(wanted.device.index, &held)
    }

    fn record(&self, held: &Held) -> Result<(), UndoLogError> {
        if self.held.last(held.index).is_some_and(|last| last.held == *held) {
            // It was tried before, and could not be set: a guest in whose way that is must not fill the ledger.
            return Ok(());
        }
        self.held.record(Written { namespace: self.held.namespace(), held: held.clone() })?;
        Ok(())
    }

    /// Sets what is written down. Where that fails, what is written down before it stays, too.
    fn set(&self, index: u32, held: &Held) -> Result<u32, NotHeld> {
        tap::hold(held)?;
        self.settle(index, held)
    }

    /// This one is in force: no other is needed any more.
    fn settle(&self, index: u32, held: &Held) -> Result<u32, NotHeld> {
        self.held.strike_where(index, |_, other| other.held != *held)?;
        Ok(held.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::form_stays;

    #[test]
    fn the_form_of_entries_stays() {
        let held = concat!(
            r#"{"process":{"pid":2,"start_ticks":3},"index":4,"interface":"tap4","#,
            r#""before_bytes":5,"replaces_bytes":6,"bytes":7}"#
        );
        form_stays::<Written>("taps", &format!(r#"{{"namespace":1,"held":{held}}}"#));
    }
}
