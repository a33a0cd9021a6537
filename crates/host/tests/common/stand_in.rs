//! Processes with another program's command line, so that there can be many.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A shell that waits for its input, which this process holds; it ends with this.
pub struct StandIn(pub Child);

impl StandIn {
    /// Returns when the process has that command line: between spawning and its program's first
    /// instruction it has none.
    pub fn start<S: AsRef<std::ffi::OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Self {
        let mut command = Command::new("sh");
        command.arg0(program).args(["-c", "echo; read x"]).args(args);
        let mut started = Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        started.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        started
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
