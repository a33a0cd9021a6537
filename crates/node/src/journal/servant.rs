//! Starting this very program once more, to serve its owner (a modelled disk's server): it bears the owner's mark
//! like everything that the owner starts, and ends with it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::Journal;
use crate::machine::OWNER_VARIABLE;
use crate::{Error, Result};

/// Another process of this program.
#[derive(Debug)]
pub struct Servant {
    /// The program; `/proc/self/exe` is this one, also when its file was replaced meanwhile.
    pub program: PathBuf,
    /// Its name in `ps`.
    pub shown: &'static str,
    /// Its arguments; the first says to `main` what it is.
    pub args: Vec<OsString>,
}

impl Journal {
    /// Starts a servant of this owner with these descriptors as its standard input and output. Its `main` must know
    /// the first argument before anything else.
    ///
    /// # Errors
    /// When it cannot be started, or the owner is ending.
    pub fn serve_by(&self, servant: &Servant, input: Stdio, output: Stdio) -> Result<Child> {
        let mut command = Command::new(&servant.program);
        command.arg0(servant.shown).args(&servant.args).current_dir("/").env(OWNER_VARIABLE, self.cookie());
        command.stdin(input).stdout(output).stderr(Stdio::null());
        // SAFETY: between fork and exec the closure makes one plain system call.
        unsafe {
            // Ctrl-C and the end of a terminal are for the owner.
            command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
        }
        let failed =
            |source| Error::File { node: "local".into(), what: "start", path: servant.program.clone(), source };
        self.while_open(|| command.spawn().map_err(failed))
    }
}
