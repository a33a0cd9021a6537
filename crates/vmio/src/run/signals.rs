//! Ctrl-C, SIGTERM and SIGHUP end a run at once and cleanly: what was measured is kept, what was
//! made is undone, exit code 4. One thread waits for the signal and does all of it, so the
//! measuring code needs no checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Tells the measuring thread that an error it sees comes from the end of the run.
#[derive(Debug, Clone, Default)]
pub struct Stopping(Arc<AtomicBool>);

impl Stopping {
    /// Parks for ever when the run is being ended by a signal: the signal's thread exits the
    /// process. To be called when something failed, before the failure is shown.
    pub fn park_if_ending(&self) {
        while self.0.load(Ordering::SeqCst) {
            thread::park();
        }
    }
}

/// Runs `end` on the first signal and exits with code 4. A second signal exits at once; the next
/// start of vmio then cleans up.
pub fn on_signal(end: impl FnOnce(&str) + Send + 'static) -> std::io::Result<Stopping> {
    let stopping = Stopping::default();
    let flag = stopping.clone();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut end = Some(end);
        for signal in signals.forever() {
            let Some(end) = end.take() else { std::process::exit(4) };
            flag.0.store(true, Ordering::SeqCst);
            let name = match signal {
                SIGINT => "Ctrl-C",
                SIGTERM => "SIGTERM",
                _ => "SIGHUP",
            };
            // In a thread of its own, so that a second signal is still heard.
            thread::spawn(move || {
                end(name);
                std::process::exit(4);
            });
        }
    })?;
    Ok(stopping)
}
