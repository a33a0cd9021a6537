//! Processes with another program's command line, so that there can be many.
#![allow(dead_code)]
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A shell that waits for its input, which this process holds; it ends when this is dropped.
pub struct StandIn(pub Child);

impl StandIn {
    /// Returns when the process has that command line: between spawning and its program's first instruction it has
    /// none.
    pub fn start<S: AsRef<std::ffi::OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Self {
        Self::holding(program, &[], args)
    }

    /// The same with these files open where they exist, as the other program would have them: `vmio scan` reads no
    /// others.
    pub fn holding<S: AsRef<std::ffi::OsStr>>(
        program: &str,
        files: &[&Path],
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let open: Vec<File> = files.iter().filter_map(|file| File::open(file).ok()).collect();
        // Inherited by the next child process.
        open.iter().for_each(|file| rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).unwrap());
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
