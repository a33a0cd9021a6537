//! What every verb is handed, and what it yields.

use std::path::PathBuf;

use vmio_model::failure::{Exit, Failure};

use crate::paths::Paths;
use crate::term::Style;

/// What a verb yields.
pub type Outcome = anyhow::Result<Exit>;

/// What every verb is handed beside its own arguments.
#[derive(Debug, Clone)]
pub struct Context {
    /// `--json` was given.
    pub json: bool,
    /// Where things are kept.
    pub paths: Paths,
    /// How standard output is styled.
    pub style: Style,
    /// The command line as it was typed, for the record.
    pub command: Vec<String>,
    /// All verbs and options as clap knows them: for completions and man pages.
    pub command_line: fn() -> clap::Command,
}

impl Context {
    /// The directory of the journals, made where it is missing. What lies there is obeyed by the next start,
    /// so nothing begins where others could write it.
    pub fn journals(&self) -> anyhow::Result<PathBuf> {
        let dir = self.paths.state.join("journals");
        match vmio_node::private_dir(&dir) {
            Ok(()) => Ok(dir),
            Err(e @ vmio_node::Error::Untrusted { .. }) => Err(e.into()),
            Err(e) => Err(anyhow::Error::new(e).context(
                Failure::new(Exit::Precondition, format!("cannot use the directory {}", dir.display()))
                    .help("choose a state directory that this user may write: --state DIR"),
            )),
        }
    }
}
