//! Processes that end with their test.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::poll_until;

/// A process that is killed where this is dropped.
pub struct Companion(pub Child);

impl Companion {
    /// Starts a command without input and without its output, and waits until its program is there.
    pub fn start(command: &mut Command) -> Companion {
        Companion::of(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    /// Of a process that was started, when its program is there: `spawn` may return before its command line can be read.
    pub fn of(child: Child) -> Companion {
        let companion = Companion(child);
        let cmdline = format!("/proc/{}/cmdline", companion.pid());
        poll_until("the program's command line can be read", || fs::read(&cmdline).is_ok_and(|c| !c.is_empty()));
        companion
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
