//! Ends what an owner started when the owner itself is killed.
//!
//! SIGKILL cannot be caught, and what runs on measures nothing any more but holds disks and
//! processors. The kernel's own means (PR_SET_PDEATHSIG) hangs on the thread that started a child
//! and does not pass on to its children. So the owner starts one more process of its own program,
//! the warden, that waits for the end of a pipe whose other end the owner alone has. The kernel
//! closes that end however the owner ends. A child that is just being started has it too, until it
//! runs its program: when the pipe ends, every child bears the owner's mark.
//!
//! Files, volumes and settings are left to the next start ([`crate::journal::recover`]): they need the journal.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::machine::{self, OWNER_VARIABLE};

/// First argument of the warden, before the owner's cookie.
const WORD: &str = "warden-of-a-run";
/// What the owner says when it ends in order and all is undone.
const IN_ORDER: u8 = b'.';
/// How long killed processes are waited for: storage may hold them.
const LIMIT: Duration = Duration::from_secs(300);
/// Time between two looks for those that do not go.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the owner waits for the warden's end.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The warden of a living owner. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Warden {
    child: Child,
    line: Option<io::PipeWriter>,
}

impl Warden {
    /// Starts this very program once more. Its `main` must call [`serve`] first.
    pub(crate) fn start(cookie: &str) -> io::Result<Self> {
        // Both ends close on exec; the warden gets its own as standard input.
        let (end, line) = io::pipe()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("vmio-warden").args([WORD, cookie]).current_dir("/").env_remove(OWNER_VARIABLE);
        command.stdin(end).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: between fork and exec the closure makes one plain system call.
        unsafe {
            // Ctrl-C and the end of a terminal are for the owner, who ends the warden last.
            command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
        }
        Ok(Self { child: command.spawn()?, line: Some(line) })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        if let Some(mut line) = self.line.take() {
            // One that is gone hears nothing.
            let _ = line.write_all(&[IN_ORDER]);
        }
        let until = Instant::now() + END_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Where this process was started as a warden: waits for the owner's end, does what is to be done and
/// ends the process. Else returns at once. To be called before anything else.
pub fn serve() {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_none_or(|word| word != WORD) {
        return;
    }
    let cookie = args.next().and_then(|cookie| cookie.into_string().ok()).filter(|c| !c.is_empty());
    let Some(cookie) = cookie else { std::process::exit(2) };
    // As `ps` shows it; the kernel takes the name of the file, `exe`.
    let _ = rustix::thread::set_name(c"vmio-warden");
    if !ended_in_order(io::stdin().lock()) {
        end_all(&cookie);
    }
    std::process::exit(0)
}

/// Waits for the owner's word or end.
fn ended_in_order(mut line: impl Read) -> bool {
    let mut word = [0];
    loop {
        match line.read(&mut word) {
            Ok(0) => return false,
            Ok(_) => return word == [IN_ORDER],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// Kills every process that bears the cookie, until none is left.
fn end_all(cookie: &str) {
    let until = Instant::now() + LIMIT;
    while machine::kill_marked(cookie, |_| true).is_err() && Instant::now() < until {
        std::thread::sleep(PAUSE);
    }
}
