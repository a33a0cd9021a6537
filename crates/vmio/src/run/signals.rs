//! Ctrl-C, SIGTERM and SIGHUP end a run at once and cleanly: what was measured is kept, what was
//! made is undone, exit code 4. One thread waits for the signal and does all of it, so the
//! measuring code needs no checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::supervisor;

/// How long the measuring thread has to notice that its processes are gone.
const GRACE: Duration = Duration::from_secs(2);

/// Two signals within this time count as one that came twice.
const TOGETHER: Duration = Duration::from_secs(1);

/// Tells the measuring thread that an error it sees comes from the end of the run.
#[derive(Debug, Clone, Default)]
pub struct Stopping(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    begun: AtomicBool,
    done: AtomicBool,
}

impl Stopping {
    /// When the run is being ended by a signal: waits until all is undone, drops what is `held`
    /// (the store, which closes it) and exits; else hands it back. To be called when something
    /// failed, before the failure is shown.
    pub fn exit_or<T>(&self, held: T) -> T {
        if !self.0.begun.load(Ordering::SeqCst) {
            return held;
        }
        while !self.0.done.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        drop(held);
        exit();
    }
}

/// Runs `end` on the first signal and exits with code 4. A second signal exits at once; the next
/// start of vmio then cleans up.
pub fn on_signal(end: impl FnOnce(&str) + Send + 'static) -> std::io::Result<Stopping> {
    let stopping = Stopping::default();
    let flag = stopping.clone();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        let (mut end, mut since) = (Some(end), Instant::now());
        for signal in signals.forever() {
            let Some(end) = end.take() else {
                // Ctrl-C also reaches the supervisor, which passes it on.
                if supervisor::is_present() && since.elapsed() < TOGETHER {
                    continue;
                }
                exit()
            };
            since = Instant::now();
            flag.0.begun.store(true, Ordering::SeqCst);
            let name = match signal {
                SIGINT => "Ctrl-C",
                SIGTERM => "SIGTERM",
                _ => "SIGHUP",
            };
            // In a thread of its own, so that a second signal is still handled.
            let flag = flag.clone();
            thread::spawn(move || {
                end(name);
                flag.0.done.store(true, Ordering::SeqCst);
                // The measuring thread closes the store and exits; unless something holds it up.
                thread::sleep(GRACE);
                exit();
            });
        }
    })?;
    supervisor::tell_signals_handled();
    Ok(stopping)
}

fn exit() -> ! {
    supervisor::tell_exit_code(4);
    std::process::exit(4)
}
