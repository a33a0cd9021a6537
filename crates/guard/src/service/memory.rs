//! The thread that moves guests' memory: monitors may take seconds to answer, and nothing else waits for them.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::api::{self, Shared};
use crate::memory::{self, Memory};

/// Time between two checks.
const PERIOD: Duration = Duration::from_secs(10);

/// The thread. It leaves guests what they have: [`crate::manager::Manager::stop`] gives that back.
pub(super) struct Mover {
    /// Dropped, the thread ends.
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Mover {
    /// Starts it.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(manager: &Shared, memory: Memory) -> io::Result<Mover> {
        let (manager, memory) = (Arc::clone(manager), Arc::new(Mutex::new(memory)));
        api::lock(&manager).share_memory(Arc::clone(&memory));
        let (end, ended) = mpsc::channel::<()>();
        let run = move || {
            let began = Instant::now();
            while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                // The manager waits for the memory, so the memory is never held while the manager is waited for.
                let holds = memory::lock(&memory).holds();
                let asked = api::lock(&manager).asks_for_memory(holds);
                let Some((policy, guests)) = asked else { continue };
                let status = {
                    let mut memory = memory::lock(&memory);
                    memory.check(&policy, &guests, began.elapsed());
                    memory.status().clone()
                };
                api::lock(&manager).set_memory(status);
            }
        };
        let thread = thread::Builder::new().name("guard-memory".into()).spawn(run)?;
        Ok(Mover { end, thread })
    }

    /// Ends it, and waits for that.
    pub(super) fn end(self) {
        drop(self.end);
        // What it had begun is in the ledger, also where it has panicked.
        let _ = self.thread.join();
    }
}
