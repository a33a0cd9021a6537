//! What is found on a disk before the work begins.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a target before a cell, and of a page cache above it. Where a study names none, who reads finds the
/// target filled, and who writes finds it fresh as far as it can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "DiskState")]
pub enum State {
    /// Nothing was written: every write is a first write. Targets that are written out by nature stay as they are.
    Fresh,
    /// Every block holds data, of which nothing is in the host's page cache.
    Filled,
    /// Filled, and what is read is in the page cache of the guest that reads it.
    WarmGuest,
    /// Filled, and what is read is in the page cache of the host.
    WarmHost,
}

impl State {
    /// All of them.
    pub const ALL: [State; 4] = [State::Fresh, State::Filled, State::WarmGuest, State::WarmHost];

    /// Whether a page cache holds what is read.
    pub fn is_warm(self) -> bool {
        matches!(self, State::WarmGuest | State::WarmHost)
    }

    /// As who works under the host's kernel has it: the page cache of that side is the host's.
    #[must_use]
    pub fn natively(self) -> Self {
        if self == State::WarmGuest { State::WarmHost } else { self }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            State::Fresh => "fresh",
            State::Filled => "filled",
            State::WarmGuest => "warm-guest",
            State::WarmHost => "warm-host",
        })
    }
}
