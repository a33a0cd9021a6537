//! The thread that moves guests' memory: monitors may take seconds to answer, and nothing else waits for them.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::api::{self, Shared};
use crate::memory::Memory;

/// Time between two checks.
const PERIOD: Duration = Duration::from_secs(10);

/// The thread. Dropped, it ends and leaves guests what they have.
pub(super) struct Mover {
    /// Ends it; whether guests get back what they had.
    end: Sender<bool>,
    thread: JoinHandle<Vec<String>>,
}

impl Mover {
    /// Starts it.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(manager: &Shared, mut memory: Memory) -> io::Result<Mover> {
        let manager = Arc::clone(manager);
        let (end, ended) = mpsc::channel();
        let run = move || {
            let began = Instant::now();
            loop {
                match ended.recv_timeout(PERIOD) {
                    Ok(true) => return memory.undo(),
                    Ok(false) | Err(RecvTimeoutError::Disconnected) => return Vec::new(),
                    Err(RecvTimeoutError::Timeout) => {}
                }
                // Looking takes longer than others may wait for the manager.
                let asked = api::lock(&manager).asks_for_memory(memory.holds());
                if let Some((policy, guests)) = asked {
                    memory.check(&policy, &guests, began.elapsed());
                    api::lock(&manager).set_memory(memory.status().clone());
                }
            }
        };
        let thread = thread::Builder::new().name("guard-memory".into()).spawn(run)?;
        Ok(Mover { end, thread })
    }

    /// Ends it; with `undo` guests get back what they had, and what of that failed is returned, a sentence each.
    pub(super) fn end(self, undo: bool) -> Vec<String> {
        // It may have ended already.
        let _ = self.end.send(undo);
        self.thread.join().unwrap_or_else(|_| vec!["the thread that moves guests' memory has panicked".to_owned()])
    }
}
