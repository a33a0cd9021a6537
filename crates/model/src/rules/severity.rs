//! Severities of findings.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::count;

/// Severity of a finding, ordered: `--fail-on` takes the lowest that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// To know when reading the figures; no setting of the host is wrong.
    Note,
    /// Known to cost speed elsewhere, depending on the load; not measured here.
    Advice,
    /// It costs speed: measured here, or a setting that costs much under any load (software emulation where there is
    /// KVM, an emulated controller or network card, an I/O thread on a vCPU's core).
    Warning,
    /// It costs half of the speed or more, measured here, or a figure is misleading; or, in any guest, flushed data may
    /// be lost.
    Severe,
}

impl Severity {
    /// Ascending.
    pub const ALL: [Severity; 4] = [Severity::Note, Severity::Advice, Severity::Warning, Severity::Severe];

    /// The word on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Advice => "advice",
            Severity::Warning => "warning",
            Severity::Severe => "severe",
        }
    }

    /// A number of findings: `1 warning`, `2 warnings`, `2 severe`.
    pub fn counted(self, n: usize) -> String {
        match self {
            Severity::Note | Severity::Warning => count(n, self.name()),
            Severity::Advice | Severity::Severe => format!("{n} {self}"),
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
