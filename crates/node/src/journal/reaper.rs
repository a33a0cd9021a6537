//! Ends what an owner started when the owner itself is killed.
//!
//! SIGKILL cannot be caught, and what runs on measures nothing any more but holds disks and
//! processors. The kernel's own means (PR_SET_PDEATHSIG) hangs on the thread that started a child
//! and does not pass on to its children. So the owner starts a helper ([`crate::helper`]), the
//! reaper, that waits for the end of its line, whose other end the owner alone has. A child that is just
//! being started has that too, until it runs its program: when the line ends, every child bears the owner's mark.
//!
//! Files, volumes and settings are left to the next start ([`crate::journal::recover`]): they need the journal.

use std::ffi::CStr;
use std::io;
use std::time::{Duration, Instant};

use crate::helper::{self, Helper, Line, Running};
use crate::machine;

/// First argument of the reaper, before the owner's cookie.
const WORD: &str = "warden-of-a-run";
/// Its name in `ps`.
const NAME: &CStr = c"vmio-warden";
/// How long killed processes are waited for: storage may hold them.
const LIMIT: Duration = Duration::from_secs(300);
/// Time between two checks for processes that do not end.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the owner waits for the reaper's end.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The reaper of a living owner. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Reaper(Running);

impl Reaper {
    /// Starts this very program once more. Its `main` must call [`serve`] first.
    pub(crate) fn start(cookie: &str) -> io::Result<Self> {
        Ok(Self(Helper::new(NAME, &[WORD, cookie]).start(None, None)?))
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.0.child.id()
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // The owner ends in order, and all is undone. The reaper may be gone.
        let _ = self.0.line.send(&(), &[], Some(Instant::now() + END_LIMIT));
        helper::ends_within(&mut self.0.child, END_LIMIT);
    }
}

/// Where this process was started as a reaper: waits for the owner's end, does what is to be done and
/// ends the process. Else returns at once. To be called before anything else.
pub fn serve() {
    let Some(mut args) = helper::own_args(NAME, WORD) else { return };
    let cookie = args.next().and_then(|cookie| cookie.into_string().ok()).filter(|c| !c.is_empty());
    let (Some(cookie), Ok(mut line)) = (cookie, Line::own(io::stdin())) else { std::process::exit(2) };
    // The owner's message, or its end.
    if line.receive::<()>(None).is_err() {
        end_all(&cookie);
    }
    std::process::exit(0)
}

/// Kills every process that bears the cookie, until none is left.
fn end_all(cookie: &str) {
    let until = Instant::now() + LIMIT;
    while machine::kill_marked(cookie, |_| true).is_err() && Instant::now() < until {
        std::thread::sleep(PAUSE);
    }
}
