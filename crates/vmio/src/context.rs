//! The context that every verb gets, and its result.

use std::path::PathBuf;

use vmio_model::failure::{Exit, Failure};

use crate::paths::Paths;
use crate::store::StoreError;
use crate::term::{self, Style};

/// The result of a verb.
pub type Outcome = anyhow::Result<Exit>;

/// The option whose value may have a password in it.
const POWER_COMMAND: &str = "--power-command";

/// A command line as it is stored and exported: `...` for the command of a meter.
pub fn for_record(args: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut hidden = false;
    let recorded = |arg: String| {
        if std::mem::replace(&mut hidden, arg == POWER_COMMAND) {
            "...".to_owned()
        } else if arg.strip_prefix(POWER_COMMAND).is_some_and(|rest| rest.starts_with('=')) {
            format!("{POWER_COMMAND}=...")
        } else {
            arg
        }
    };
    args.into_iter().map(recorded).collect()
}

/// Whether a stored command line has a meter.
pub fn has_meter(command: &[String]) -> bool {
    command.iter().any(|arg| arg.split('=').next() == Some(POWER_COMMAND))
}

/// What every verb gets beside its own arguments.
#[derive(Debug, Clone)]
pub struct Context {
    /// `--json` was given.
    pub json: bool,
    /// Where things are kept.
    pub paths: Paths,
    /// How standard output is styled.
    pub style: Style,
    /// The command line as it was typed, for the record ([`for_record`]).
    pub command: Vec<String>,
    /// All verbs and options as clap knows them: for completions and man pages.
    pub command_line: fn() -> clap::Command,
}

impl Context {
    /// The directory of the journals, made where it is missing. The next start executes what is in a journal, so a
    /// directory that others may write is refused.
    fn journals(&self) -> anyhow::Result<PathBuf> {
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

    /// The directory of the journals, after what killed runs left there was undone.
    pub fn recovered_journals(&self) -> anyhow::Result<PathBuf> {
        let dir = self.journals()?;
        let recovered = vmio_node::recover(&dir);
        recovered.undone.iter().for_each(|done| term::note(&format!("cleaned up after a killed run: {done}")));
        recovered.failed.iter().for_each(|failed| term::note(&format!("warning: could not clean up: {failed}")));
        Ok(dir)
    }
}

/// What to do about a state directory that cannot be used.
const ELSEWHERE: &str = "keep the state in another directory: --state DIR";

impl Context {
    /// The error of a run that cannot keep its results: the state directory, why, and that another may be named. What
    /// passes (another vmio is at work, a full disk) is told as it is.
    pub fn unusable(&self, e: StoreError) -> anyhow::Error {
        if matches!(e, StoreError::Busy { .. } | StoreError::Full { .. }) {
            return e.into();
        }
        let failure =
            Failure::new(Exit::Precondition, format!("cannot use the state directory {}", self.paths.state.display()));
        let failure = failure.help(with_elsewhere(e.help()));
        anyhow::Error::new(e).context(failure)
    }
}

/// The help of an error of the store, which names `--state`.
pub fn with_elsewhere(help: Option<String>) -> String {
    match help {
        Some(help) if help.contains("--state") => help,
        Some(help) => format!("{help}; or {ELSEWHERE}"),
        None => ELSEWHERE.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_meter_is_not_stored() {
        let stored = |typed: &[&str]| for_record(typed.iter().map(|arg| (*arg).to_owned()));
        let (secret, joined) = ("ipmitool -P secret", "--power-command=ipmitool -P secret");
        let apart = stored(&["vmio", "tax", "--power-command", secret, "--yes"]);
        assert_eq!(apart, ["vmio", "tax", "--power-command", "...", "--yes"]);
        let one = stored(&["vmio", "tax", joined, "--yes"]);
        assert_eq!(one, ["vmio", "tax", "--power-command=...", "--yes"]);
        let none = stored(&["vmio", "tax", "--yes"]);
        assert_eq!(none, ["vmio", "tax", "--yes"]);
        assert!(has_meter(&apart) && has_meter(&one) && !has_meter(&none));
    }
}
