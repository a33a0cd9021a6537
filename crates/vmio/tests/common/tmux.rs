//! A terminal of a known size: tmux with a server of its own, which ends with the value.
#![allow(clippy::unwrap_used, dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use vmio_testbed::{poll_for, skip};

/// A terminal in which a shell command runs.
pub struct Terminal {
    dir: PathBuf,
    name: String,
}

impl Terminal {
    /// Runs the shell command, with its sockets and state in `dir`. `None`, and said, where there is no tmux.
    pub fn start(dir: &Path, (width, height): (u16, u16), command: &str) -> Option<Terminal> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let terminal = Terminal { dir: dir.to_owned(), name: format!("t{}-{number}", std::process::id()) };
        if Command::new("tmux").arg("-V").stdout(Stdio::null()).status().is_err() {
            skip("no tmux");
            return None;
        }
        let (width, height) = (width.to_string(), height.to_string());
        let made = terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, command]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Some(terminal)
    }

    fn tmux(&self, args: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.name]).args(args).stdin(Stdio::null());
        command.env("TMUX_TMPDIR", &self.dir).env("VMIO_STATE", self.dir.join("state")).env("LC_ALL", "C.UTF-8");
        command.env_remove("TMUX").output().unwrap()
    }

    /// Presses keys, by tmux's names: `q`, `Enter`, `Down`, `Escape`.
    pub fn press(&self, keys: &[&str]) {
        assert!(self.tmux(&[&["send-keys"], keys].concat()).status.success());
    }

    /// What it shows.
    pub fn lines(&self) -> Vec<String> {
        let shown = self.tmux(&["capture-pane", "-p"]);
        String::from_utf8_lossy(&shown.stdout).lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Waits until it shows what `is_so` accepts.
    #[track_caller]
    pub fn wait(&self, state: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        poll_for(state, || {
            let lines = self.lines();
            // Asking starts a process, which is not to be what loads the machine.
            sleep(Duration::from_millis(200));
            if is_so(&lines) { Ok(lines) } else { Err(lines) }
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The server and what runs in it end a moment later.
        let told = self.tmux(&["display-message", "-p", "#{pid} #{pane_pid}"]);
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        self.tmux(&["kill-server"]);
        let end = Instant::now() + Duration::from_secs(10);
        while told.split_whitespace().any(runs) && Instant::now() < end {
            sleep(Duration::from_millis(10));
        }
    }
}

/// Whether a process is there and has not ended.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
}
