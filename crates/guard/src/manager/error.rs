//! Errors of the manager.

use vmio_model::policy::PolicyError;
use vmio_model::problem::Problem;

use super::key::Key;
use crate::core::CoreError;
use crate::daemon::{Gone, StartError};
use crate::planes::linux;
use crate::undo_log::UndoLogError;

/// Why a request failed. The state in force is unchanged, unless the error says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// A file cannot be read.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The policy is wrong.
    #[error("the policy is refused: {}", count(.0))]
    Policy(PolicyError),
    /// The plane cannot hold it, or failed.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// The loop has ended.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// The loop could not be started or ended.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The ledger.
    #[error(transparent)]
    UndoLog(#[from] UndoLogError),
    /// The entry that is needed to take a change back cannot be written.
    #[error("{0}\n  nothing was changed")]
    Unwritten(UndoLogError),
    /// What was to be set is not in force, and its entry cannot be struck out.
    #[error("{0}\n  it stays in the ledger, so that the next start would put it in force: {1}")]
    SetStays(Box<ManagerError>, UndoLogError),
    /// Interfaces cannot be looked at.
    #[error(transparent)]
    Look(#[from] linux::Error),
    /// All limits are off but these of guests' control groups and memory.
    #[error("the other limits are off, but these of guests remain: {}", .0.join("; "))]
    Left(Vec<String>),
    /// The plane failed, and limits of guests' control groups and memory remain.
    #[error("{0}\n  also of guests: {left}", left = .1.join("; "))]
    BothLeft(Box<StartError>, Vec<String>),
    /// The request makes no sense now.
    #[error(transparent)]
    Refused(#[from] Senseless),
}

/// Which file of a policy cannot be read, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FilesError(pub String);

/// Why a request makes no sense now.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Senseless {
    #[error("nothing to confirm: it reverted already, or was not set with --confirm")]
    NothingToConfirm,
    #[error("nothing to take back: no change waits for confirmation")]
    NothingToTakeBack,
    #[error("the time for confirmation is 1 to {most_seconds} s, not {seconds}")]
    Confirmation { most_seconds: f64, seconds: f64 },
    #[error("nothing to set for class {class}: give {}", Key::ALL.map(Key::word).join(", "))]
    NothingToSet { class: String },
    #[error("nothing is set for class {0}")]
    NothingToClear(String),
    #[error("the earlier setting is invalid: {0}")]
    Before(#[source] toml::de::Error),
    #[error("this cannot be written as TOML: {0}")]
    NoToml(#[source] toml::ser::Error),
}

fn count(error: &PolicyError) -> String {
    match error.problems.len() {
        1 => "one problem".to_owned(),
        many => format!("{many} problems"),
    }
}

impl ManagerError {
    /// The problems of the policy.
    pub fn problems(&self) -> &[Problem] {
        match self {
            ManagerError::Policy(error) => &error.problems,
            ManagerError::SetStays(error, _) => error.problems(),
            _ => &[],
        }
    }
}
