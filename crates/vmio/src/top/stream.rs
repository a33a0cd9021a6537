//! Intervals one after the other on standard output, each as a line of JSON or as text, until so many were
//! printed, the reader goes away or a signal asks for the end. A line is always whole.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use vmio_model::failure::Exit;
use vmio_model::failure::Failure;

use super::Wishes;
use super::screen::Screen;
use crate::context::Context;
use crate::context::Outcome;
use crate::term;

/// How long a signal or a reader that went away may go unheard.
const HEARD: Duration = Duration::from_millis(100);

/// Prints intervals. `next` gives what was done since it was last called.
pub fn run(
    wishes: &Wishes,
    count: Option<u64>,
    context: &Context,
    mut next: impl FnMut() -> Option<Screen>,
) -> Outcome {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&ended))?;
    }
    let _ = next();
    let interval = Duration::from_secs_f64(wishes.interval);
    let mut due = Instant::now() + interval;
    let mut printed = 0;
    while count.is_none_or(|count| printed < count) {
        if !wait(due, &ended)? {
            break;
        }
        // One that was late does not make the next one short.
        due = (due + interval).max(Instant::now() + interval / 2);
        let screen = next().ok_or_else(|| Failure::new(Exit::Failed, "nothing could be counted"))?;
        let screen = screen.arranged(wishes.sort, &wishes.filter);
        let shown = if context.json {
            term::print_exact(&screen.json())
        } else if printed > 0 {
            term::print(&format!("\n{}", screen.text(context.style, term::width())))
        } else {
            term::print(&screen.text(context.style, term::width()))
        };
        match shown {
            // Who has seen enough has got what there was.
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

/// Waits until then; `false` when the end was asked for or nobody reads any more.
fn wait(due: Instant, ended: &AtomicBool) -> io::Result<bool> {
    let stdout = io::stdout();
    while !ended.load(Ordering::Relaxed) {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(true);
        }
        // A pipe without a reader is an error; all else that happens at standard output is none of our business.
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(left.min(HEARD).subsec_nanos()) };
        match poll(&mut watched, Some(&limit)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) if watched[0].revents().intersects(PollFlags::ERR) => return Ok(false),
            // A file or a closed descriptor answers at once.
            Ok(_) => std::thread::sleep(left.min(HEARD)),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(false)
}
