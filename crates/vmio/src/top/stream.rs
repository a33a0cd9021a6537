//! Prints intervals on standard output, each as a line of JSON or as text, until enough were printed, the reader goes
//! away or a signal comes. A line is always whole.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use vmio_model::failure::Exit;
use vmio_model::failure::Failure;

use super::Options;
use super::screen::Screen;
use crate::context::Context;
use crate::context::Outcome;
use crate::term;

/// How long a signal, or a reader that has gone away, may go unnoticed.
const HEARD: Duration = Duration::from_millis(100);

/// Prints intervals. `next` gives the screen of the time since its last call.
pub fn run(
    options: &Options,
    count: Option<u64>,
    context: &Context,
    mut next: impl FnMut(Option<u32>) -> Option<Screen>,
) -> Outcome {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&ended))?;
    }
    let _ = next(None);
    let interval = Duration::from_secs_f64(options.interval);
    let mut due = Instant::now() + interval;
    let mut printed = 0;
    while count.is_none_or(|count| printed < count) {
        if !wait(due, &ended)? {
            break;
        }
        // One that was late does not make the next one short.
        due = (due + interval).max(Instant::now() + interval / 2);
        let screen = next(None).ok_or_else(|| Failure::new(Exit::Failed, "nothing could be counted"))?;
        let screen = screen.arranged(options.sort, &options.filter);
        let shown = if context.json {
            term::print_exact(&screen.json())
        } else if printed > 0 {
            term::print(&format!("\n{}", screen.text(options.set, context.style, term::width())))
        } else {
            term::print(&screen.text(options.set, context.style, term::width()))
        };
        match shown {
            // A reader that closes the pipe after the first interval is no error.
            Err(e) if e.is_pipe() && printed > 0 => break,
            shown => shown?,
        }
        printed += 1;
    }
    if printed == 0 && count != Some(0) && !ended.load(Ordering::Relaxed) {
        return Err(term::Unwritten::no_reader().into());
    }
    Ok(Exit::Done)
}

/// Waits until then; `false` when a signal came or nobody reads any more.
fn wait(due: Instant, ended: &AtomicBool) -> io::Result<bool> {
    let stdout = io::stdout();
    while !ended.load(Ordering::Relaxed) {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(true);
        }
        // Only a pipe without a reader (POLLERR) matters here.
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(left.min(HEARD).subsec_nanos()) };
        match poll(&mut watched, Some(&limit)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) if watched[0].revents().intersects(PollFlags::ERR) => return Ok(false),
            // On a file or a closed descriptor poll returns at once.
            Ok(_) => std::thread::sleep(left.min(HEARD)),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(false)
}
