//! How a command ends: exit codes, and errors that have one.

use std::fmt;

/// Exit codes, the same for every verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: done; also when something optional was skipped or did not converge, which the result says.
    Done,
    /// 1: failed.
    Failed,
    /// 2: usage, or a refused configuration.
    Usage,
    /// 3: a precondition is not met.
    Precondition,
    /// 4: a partial result: interrupted, shares without their pairs, or no requested figure is known.
    Partial,
    /// 5: a finding at or above `--fail-on`.
    Finding,
    /// Code of a check plugin, which has meanings of its own.
    Plugin(u8),
}

impl Exit {
    /// The code that the process ends with.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Precondition => 3,
            Exit::Partial => 4,
            Exit::Finding => 5,
            Exit::Plugin(code) => code,
        }
    }
}

/// An error with its exit code and fix.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The code to end with.
    pub exit: Exit,
    /// What failed, and where.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl Failure {
    /// An error with its exit code. Usable alone or as the context of another error.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into(), help: None }
    }
    /// Adds what to do about it.
    pub fn help(self, help: impl Into<String>) -> Failure {
        Failure { help: Some(help.into()), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
