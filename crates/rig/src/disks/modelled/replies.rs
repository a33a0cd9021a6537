//! The replies of a modelled disk: each is sent at its absolute deadline, in the order of the requests.

use std::sync::mpsc::Receiver;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fuser::{ReplyData, ReplyEmpty, ReplyWrite};
use rustix::thread::ClockId;
use rustix::time::{Timespec, clock_gettime};
use vmio_model::modelled::ModelAccuracy;

/// What a mutex guards, whoever died with it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nanoseconds of the clock that the deadlines are of.
pub fn now_ns() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(rustix::time::ClockId::Monotonic);
    tv_sec.cast_unsigned() * 1_000_000_000 + tv_nsec.cast_unsigned()
}

/// Whether replies wait for the model, and how well they kept to it since they do.
#[derive(Debug)]
pub struct Pace {
    pub paced: bool,
    pub kept: ModelAccuracy,
}

/// A reply and when it is due.
pub struct Due {
    pub at_ns: u64,
    /// Whether it counts: what moved data, under the model.
    pub counts: bool,
    pub reply: Answer,
}

/// A reply with what it carries.
pub enum Answer {
    Read(ReplyData, Vec<u8>),
    Written(ReplyWrite, u32),
    Done(ReplyEmpty),
}

/// Sends each reply at its time, in order.
pub fn reply_all(queue: &Receiver<Due>, state: &Mutex<Pace>) {
    for Due { at_ns, counts, reply } in queue {
        if lock(state).paced {
            wait_until(at_ns);
        }
        let late_ns = now_ns().saturating_sub(at_ns);
        match reply {
            Answer::Read(reply, data) => reply.data(&data),
            Answer::Written(reply, bytes) => reply.written(bytes),
            Answer::Done(reply) => reply.ok(),
        }
        let mut pace = lock(state);
        if counts && pace.paced {
            pace.kept.add(late_ns);
        }
    }
}

fn wait_until(at_ns: u64) {
    let at = Timespec { tv_sec: (at_ns / 1_000_000_000).cast_signed(), tv_nsec: (at_ns % 1_000_000_000).cast_signed() };
    while now_ns() < at_ns {
        // Ends early only by a signal.
        let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &at);
    }
}
