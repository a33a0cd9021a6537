//! Limits the send buffers of taps, in a thread of their own: examining a process takes half a millisecond, but two
//! seconds where the process is hostile or the host overloaded, and the control loop must not wait for that. The thread
//! is in the plane's network namespace.
//!
//! A buffer is recorded in the ledger, part `taps`, before it is set. The next plane keeps those that are still wanted
//! and puts back the others.
//!
//! Each tap is checked once a second, since hypervisors restart and drivers switch queues on; more seldom where there
//! are many, to use 2 % of a processor, and where nothing was found for a while, to use 0.1 %; and at once when its
//! limit changes. Where packets of a tap are dropped in its class, something is wrong, and checks become frequent
//! again. After a failure the next check comes within some seconds. A process that sets its buffer back again and again
//! is told as one that is not held, until eight checks in a row find the buffer in force; it makes checks come no more
//! often than once a second.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use vmio_model::policy::Direction;

use super::super::tap::{self, Held, Undone};
use super::super::{Device, Error};
use crate::desired::{Desired, PoolKey};
use crate::planes::{NotHeld, PlaneError};
use crate::undo_log::{Entries, Entry, EntryId, UndoLog, UndoLogError};

mod looks;

use looks::{Looks, Pace};

/// A tap that is to be limited.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    device: Device,
    /// Processes that may have it open.
    pids: Vec<u32>,
    bytes: u32,
}

/// By index.
type WantedTaps = BTreeMap<u32, Wanted>;
/// Send buffer in force, or why there is none; by index.
type TapStates = BTreeMap<u32, Result<u32, Arc<NotHeld>>>;

enum TapRequest {
    Hold(WantedTaps),
    /// Packets were dropped that a held tap would have left in its guest.
    Doubt,
    Undo(SyncSender<Vec<NotHeld>>),
}

/// Handle of the thread. Dropping it ends the thread and leaves the buffers as they are.
#[derive(Debug)]
pub(super) struct Taps {
    log: UndoLog,
    namespace: u64,
    /// Taps of the last request; `None` before there was one.
    wanted_before: Option<WantedTaps>,
    states: Arc<Mutex<TapStates>>,
    /// How often one of them became another one.
    news: Arc<AtomicU64>,
    /// The same when it was told last, by pool.
    told: BTreeMap<PoolKey, u64>,
    /// Whether a doubt waits for the thread.
    doubted: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    /// Started with the first tap, or with the first one in the ledger.
    thread: Option<(Sender<TapRequest>, JoinHandle<()>)>,
}

impl Taps {
    /// For a network namespace; changes nothing.
    pub(super) fn new(log: UndoLog, namespace: u64) -> Taps {
        let (wanted_before, states, news, told, doubted, ended) = Default::default();
        Taps { log, namespace, wanted_before, states, news, told, doubted, ended, thread: None }
    }

    /// Requests the limits of the desired state, and that all other taps are put back. Does not wait.
    pub(super) fn hold(&mut self, desired: &Desired) -> Result<(), PlaneError> {
        let sending = desired.pools.iter().filter(|pool| pool.key.direction == Direction::GuestTx);
        let wanted: WantedTaps = sending
            .flat_map(|pool| &pool.seats)
            .filter_map(|seat| {
                let (interface, holding) = (seat.interface.as_ref()?, seat.holding.as_ref()?);
                let device = Device { index: interface.index, name: interface.name.clone() };
                let bytes = holding.send_buffer_bytes?;
                Some((interface.index, Wanted { device, pids: seat.pids.clone(), bytes }))
            })
            .collect();
        if self.wanted_before.as_ref() == Some(&wanted) && (self.runs() || wanted.is_empty()) {
            return Ok(());
        }
        let before = self.wanted_before.take().unwrap_or_default();
        lock(&self.states).retain(|index, _| wanted.get(index) == before.get(index));
        if !wanted.is_empty() || self.runs() || !self.entries()?.is_empty() {
            self.send(TapRequest::Hold(wanted.clone()))?;
        }
        self.wanted_before = Some(wanted);
        Ok(())
    }

    /// Has the taps checked soon, since packets of one were dropped. Does not wait.
    pub(super) fn doubt(&self) {
        if let Some((send, _)) = &self.thread
            && !self.doubted.swap(true, Ordering::Relaxed)
        {
            // One that has ended is started again by the next request.
            let _ = send.send(TapRequest::Doubt);
        }
    }

    /// Send buffer in force at a tap, or why there is none.
    pub(super) fn state(&self, index: u32) -> Result<u32, Arc<NotHeld>> {
        let states = lock(&self.states).get(&index).cloned();
        states.unwrap_or_else(|| Err(Arc::new(NotHeld::NotYet)))
    }

    /// Whether the state of a tap is another one since this was asked of the pool last. Asked before states are read,
    /// it misses none.
    pub(super) fn has_news(&mut self, pool: &PoolKey) -> bool {
        let now = self.news.load(Ordering::Acquire);
        match self.told.get_mut(pool) {
            Some(told) => std::mem::replace(told, now) != now,
            None => self.told.insert(pool.clone(), now).is_none(),
        }
    }

    /// Puts all taps back, also those of earlier guards in the ledger.
    pub(super) fn undo(&mut self) -> Result<(), PlaneError> {
        self.wanted_before = None;
        lock(&self.states).clear();
        if !self.runs() && self.entries()?.is_empty() {
            return Ok(());
        }
        let (reply, stays) = mpsc::sync_channel(1);
        self.send(TapRequest::Undo(reply))?;
        let stays = stays.recv().map_err(|_| PlaneError::ThreadEnded)?;
        if stays.is_empty() { Ok(()) } else { Err(PlaneError::Stays(stays)) }
    }

    fn entries(&self) -> Result<Entries<TapEntry>, UndoLogError> {
        Entries::read(&self.log, self.namespace)
    }

    fn runs(&self) -> bool {
        self.thread.as_ref().is_some_and(|(_, thread)| !thread.is_finished())
    }

    fn send(&mut self, what: TapRequest) -> Result<(), PlaneError> {
        if !self.runs() {
            let held = self.entries()?;
            let (send, requests) = mpsc::channel();
            // Sent before the thread starts: without a request it would put back everything in the ledger.
            send.send(what).map_err(|_| PlaneError::ThreadEnded)?;
            self.doubted = Arc::default();
            let (states, news) = (Arc::clone(&self.states), Arc::clone(&self.news));
            let (doubted, ended) = (Arc::clone(&self.doubted), Arc::clone(&self.ended));
            let (wanted, looks) = Default::default();
            let mut tap_thread = TapThread { held, wanted, looks, states, news, doubted, ended };
            let thread = thread::Builder::new().name("guard-taps".into()).spawn(move || tap_thread.run(&requests));
            self.thread = Some((send, thread.map_err(PlaneError::NoThread)?));
            return Ok(());
        }
        let (send, _) = self.thread.as_ref().ok_or(PlaneError::ThreadEnded)?;
        send.send(what).map_err(|_| PlaneError::ThreadEnded)
    }
}

impl Drop for Taps {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some((send, thread)) = self.thread.take() {
            drop(send);
            // It may have panicked.
            let _ = thread.join();
        }
    }
}

/// Entry in the ledger, with the inode of the tap's network namespace.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct TapEntry {
    namespace: u64,
    held: Held,
}

impl Entry for TapEntry {
    const PART: &'static str = "taps";
    type Subject = u32;

    fn subject(&self) -> u32 {
        self.held.index
    }

    fn namespace(&self) -> u64 {
        self.namespace
    }
}

fn lock(states: &Mutex<TapStates>) -> MutexGuard<'_, TapStates> {
    states.lock().unwrap_or_else(PoisonError::into_inner)
}

struct TapThread {
    held: Entries<TapEntry>,
    wanted: WantedTaps,
    /// By index.
    looks: BTreeMap<u32, Looks>,
    states: Arc<Mutex<TapStates>>,
    news: Arc<AtomicU64>,
    doubted: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl TapThread {
    fn run(&mut self, requests: &Receiver<TapRequest>) {
        let mut pace = Pace::new(Instant::now());
        loop {
            match requests.recv_timeout(pace.rests(Instant::now())) {
                Ok(TapRequest::Hold(wanted)) => {
                    self.looks.retain(|index, _| wanted.contains_key(index));
                    self.wanted = wanted;
                }
                Ok(TapRequest::Doubt) => {
                    self.doubted.store(false, Ordering::Relaxed);
                    pace.doubt();
                    if !pace.rests(Instant::now()).is_zero() {
                        continue;
                    }
                }
                Ok(TapRequest::Undo(reply)) => {
                    self.wanted.clear();
                    let _ = reply.send(self.release());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let began = Instant::now();
            // Failures are tried again at the next check.
            let _ = self.release();
            let (mut failed, mut changed) = (false, false);
            for wanted in self.wanted.clone().into_values() {
                if self.ended.load(Ordering::Relaxed) {
                    return;
                }
                let index = wanted.device.index;
                let in_force = self.hold_tap(&wanted);
                // A process that sets its buffer back must not make the checks of all taps more frequent.
                failed |= !matches!(in_force, Ok(_) | Err(NotHeld::SetBack));
                let looks = self.looks.get(&index).copied().unwrap_or_default();
                let now = in_force.as_ref().copied().map_err(ToString::to_string);
                let before = lock(&self.states).insert(index, in_force.map_err(Arc::new));
                let before = before.map(|state| state.map_err(|why| why.to_string()));
                let in_force_before = before.as_ref().and_then(|state| state.as_ref().ok());
                changed |= looks.is_set_back() || in_force_before != now.as_ref().ok();
                if before != Some(now) {
                    self.news.fetch_add(1, Ordering::Release);
                }
            }
            pace.looked(began, Instant::now(), failed, changed);
        }
    }

    /// Puts back taps that are not wanted any more; returns the failures.
    fn release(&self) -> Vec<NotHeld> {
        let gone = self.held.subjects().into_iter().filter(|index| !self.wanted.contains_key(index));
        gone.flat_map(|index| self.put_back(index, tap::undo)).collect()
    }

    /// Undoes all entries of a tap, the last one first, since after a crash an older one may be in force. Strikes out
    /// those that are undone; returns why the others are not.
    fn put_back(&self, index: u32, undo: impl Fn(&Held) -> Result<Undone, Error>) -> Vec<NotHeld> {
        let undo_entry = |(id, TapEntry { held, .. }): (EntryId, TapEntry)| -> Result<(), NotHeld> {
            match undo(&held)? {
                Undone::Restored | Undone::Gone | Undone::Others(_) => {
                    Ok(self.held.strike_where(index, |other, _| other == id)?)
                }
                Undone::Except(queues) => Err(NotHeld::SwitchedOff { tap: held.interface, queues, bytes: held.bytes }),
            }
        };
        self.held.all(index).into_iter().rev().filter_map(|entry| undo_entry(entry).err()).collect()
    }

    /// Limits a tap; returns the buffer in force.
    fn hold_tap(&mut self, wanted: &Wanted) -> Result<u32, NotHeld> {
        let (bytes, set_back) = self.limit(wanted)?;
        let looks = self.looks.entry(wanted.device.index).or_default();
        *looks = looks.and(set_back);
        if looks.told { Err(NotHeld::SetBack) } else { Ok(bytes) }
    }

    /// Limits a tap; returns the buffer, and whether the same process had set it back.
    fn limit(&self, wanted: &Wanted) -> Result<(u32, bool), NotHeld> {
        let index = wanted.device.index;
        let entries = self.held.all(index);
        // Usually the last one; after an interrupted change it may be an older one.
        let mut in_force = None;
        for (_, TapEntry { held, .. }) in entries.iter().rev() {
            if tap::in_force(held)? {
                in_force = Some(held);
                break;
            }
        }
        let last = in_force.or(entries.last().map(|(_, written)| &written.held));
        let Some(last) = last else { return Ok((self.begin(wanted)?, false)) };
        if in_force.is_none() {
            // Another process may have the tap now, or another tap its index.
            if tap::find(&wanted.device, &[last.process.pid])? != Some(last.process) {
                return match self.put_back(index, tap::undo).into_iter().next() {
                    Some(why) => Err(why),
                    None => Ok((self.begin(wanted)?, false)),
                };
            }
            if last.bytes == wanted.bytes {
                return Ok((self.set(index, last)?, true));
            }
        } else if last.bytes == wanted.bytes {
            return Ok((self.settle(index, last)?, false));
        }
        let next = last.resized(wanted.bytes)?;
        self.record(&next)?;
        Ok((self.set(index, &next)?, false))
    }

    fn begin(&self, wanted: &Wanted) -> Result<u32, NotHeld> {
        let process = tap::find(&wanted.device, &wanted.pids)?.ok_or(NotHeld::NoHolder)?;
        let held = tap::plan(&wanted.device, process, wanted.bytes)?;
        self.record(&held)?;
        self.set(wanted.device.index, &held)
    }

    fn record(&self, held: &Held) -> Result<(), UndoLogError> {
        if self.held.last(held.index).is_some_and(|last| last.held == *held) {
            // A guest that prevents the change must not fill the ledger.
            return Ok(());
        }
        self.held.record(TapEntry { namespace: self.held.namespace(), held: held.clone() })?;
        Ok(())
    }

    /// Sets a recorded buffer. Where that fails, older entries stay.
    fn set(&self, index: u32, held: &Held) -> Result<u32, NotHeld> {
        tap::hold(held)?;
        self.settle(index, held)
    }

    /// Strikes out the other entries of a tap, since this one is in force.
    fn settle(&self, index: u32, held: &Held) -> Result<u32, NotHeld> {
        self.held.strike_where(index, |_, other| other.held != *held)?;
        Ok(held.bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::super::tap::Process;
    use super::*;
    use crate::testing::form_stays;

    #[test]
    fn put_back_tries_every_entry() {
        let (wanted, looks, states, news, doubted, ended) = Default::default();
        let held = Entries::read(&UndoLog::memory(), 1).unwrap();
        let tap_thread = TapThread { held, wanted, looks, states, news, doubted, ended };
        for bytes in [5000, 6000, 7000] {
            let (process, interface) = (Process { pid: 2, start_ticks: 3 }, "tap4".to_owned());
            tap_thread
                .record(&Held { process, index: 4, interface, before_bytes: 9, replaces_bytes: 9, bytes })
                .unwrap();
        }
        let undo = |held: &Held| match held.bytes {
            6000 => Ok(Undone::Restored),
            _ => Err(Error::NoInterface(held.bytes.to_string())),
        };
        let failed: Vec<String> = tap_thread.put_back(4, undo).iter().map(ToString::to_string).collect();
        assert!(failed.len() == 2 && failed[0].contains("7000") && failed[1].contains("5000"), "{failed:?}");
        let kept: Vec<u32> = tap_thread.held.all(4).into_iter().map(|(_, written)| written.held.bytes).collect();
        assert_eq!(kept, [5000, 7000]);
    }

    #[test]
    fn the_form_of_entries_stays() {
        let held = concat!(
            r#"{"process":{"pid":2,"start_ticks":3},"index":4,"interface":"tap4","#,
            r#""before_bytes":5,"replaces_bytes":6,"bytes":7}"#
        );
        form_stays::<TapEntry>("taps", &format!(r#"{{"namespace":1,"held":{held}}}"#));
    }
}
