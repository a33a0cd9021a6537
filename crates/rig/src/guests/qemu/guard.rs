//! Watches the servers of a guest's vhost-user disks. When one goes, QEMU answers none of the
//! guest's requests to its disk any more, and the guest waits for ever. So QEMU is ended, which
//! whoever waits for the guest sees at once, and the reason is kept for the message.
//!
//! QEMU has no event for it, but its monitor tells the state of a socket (`query-chardev`).

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use super::SharedQmp;

/// How often: one small command to the monitor.
const INTERVAL: Duration = Duration::from_secs(1);
/// So many failures of the monitor in a row are its end. One may be I/O that holds QEMU's main
/// thread up for longer than a command waits.
const MOST_FAILURES: u32 = 3;

/// QEMU's process.
pub struct Process {
    pub(super) process: Mutex<Box<dyn vmio_node::Process>>,
    /// Why vmio itself ended it, if it did.
    pub(super) because: Mutex<Option<String>>,
}

impl Process {
    pub(super) fn lock(&self) -> MutexGuard<'_, Box<dyn vmio_node::Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a guest that cannot go on; the reason shows in [`give_up`](super::launch::Running::give_up). One that has
    /// ended by itself had another.
    pub fn end_because(&self, reason: String) {
        if matches!(self.lock().try_wait(), Ok(Some(_))) {
            return;
        }
        *self.because.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
        // Whoever waits for the guest finds it ended, or still there and ends it.
        let _ = self.lock().kill();
    }
}

/// A watch; it ends when this goes out of scope.
pub struct Guard {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A server to watch.
pub struct Served {
    /// Id of the socket's character device.
    pub chardev: String,
    /// For the message: which disk, which socket.
    pub label: String,
}

impl Guard {
    /// Starts to watch, where there is anything to watch.
    pub fn start(qmp: &Arc<SharedQmp>, process: &Arc<Process>, servers: Vec<Served>) -> Option<Self> {
        if servers.is_empty() {
            return None;
        }
        let (qmp, process) = (Arc::clone(qmp), Arc::clone(process));
        let (stop, stopped) = channel();
        let thread = thread::spawn(move || {
            let mut failures = 0;
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let answer = qmp.lock().unwrap_or_else(PoisonError::into_inner).execute("query-chardev", json!({}));
                let Ok(answer) = answer else {
                    failures += 1;
                    if failures < MOST_FAILURES {
                        continue;
                    }
                    return process.end_because("its monitor no longer answers".into());
                };
                failures = 0;
                if let Some(gone) = servers.iter().find(|s| !is_open(&answer, &s.chardev)) {
                    return process.end_because(format!("the vhost-user-blk server of {} has ended", gone.label));
                }
            }
        });
        Some(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether the socket of this id is connected, by the answer to `query-chardev`. One that is not
/// shows as `disconnected:unix:PATH`.
fn is_open(answer: &Value, id: &str) -> bool {
    let found = answer.as_array().into_iter().flatten().find(|c| c["label"] == id);
    found.is_some_and(|c| !c["filename"].as_str().unwrap_or_default().starts_with("disconnected:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_socket_is_told_from_an_open_one() {
        // From QEMU 7.2.
        let answer = json!([
            {"frontend-open": true, "filename": "unix:/tmp/s", "label": "disk0-server"},
            {"frontend-open": true, "filename": "disconnected:unix:/tmp/t", "label": "disk1-server"}]);
        assert!(is_open(&answer, "disk0-server"));
        assert!(!is_open(&answer, "disk1-server"));
        assert!(!is_open(&answer, "disk2-server"));
    }
}
