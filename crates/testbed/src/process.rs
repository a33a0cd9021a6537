//! Processes that end with their test, and this one again in namespaces of its own.

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

    /// Its threads whose names begin so, as those of a QEMU with `debug-threads=on` (`CPU `, `IO `).
    pub fn threads(&self, name: &str) -> Vec<u32> {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid())) else { return Vec::new() };
        let named =
            |dir: &fs::DirEntry| fs::read_to_string(dir.path().join("comm")).is_ok_and(|comm| comm.starts_with(name));
        tasks.flatten().filter(named).filter_map(|dir| dir.file_name().to_str()?.parse().ok()).collect()
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This test program again, in mount, network and process namespaces of its own: all that only they have ends with it.
/// The caller adds its arguments, and a variable by which the test knows where it is.
pub fn in_namespaces() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    // A shell as the first process buries those whose parents are gone, as libvirt expects.
    command.args(["sh", "-c", "\"$@\"; exit $?", "sh"]).arg(std::env::current_exe().unwrap());
    command
}
