//! State of a target before the work begins.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a target before a cell, and of a cache above it. Without one in the study a reader finds the
/// target filled, and a writer fresh where that is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "DiskState")]
pub enum State {
    /// Nothing was written, so every write is a first write. Targets that are always allocated stay as they are.
    Fresh,
    /// Every block holds data, none of which is in the host's page cache.
    Filled,
    /// Filled, with the data to read in the guest's page cache.
    WarmGuest,
    /// Filled, with the data to read in the host's page cache.
    WarmHost,
    /// Filled, with the data to read in the target's own flash cache, and not in the host's page cache.
    WarmFlash,
}

impl State {
    /// All.
    pub const ALL: [State; 5] = [State::Fresh, State::Filled, State::WarmGuest, State::WarmHost, State::WarmFlash];

    /// Whether a cache holds the data to read.
    pub fn is_warm(self) -> bool {
        matches!(self, State::WarmGuest | State::WarmHost | State::WarmFlash)
    }

    /// The state for a side under the host's kernel, whose page cache is the host's.
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
            State::WarmFlash => "warm-flash",
        })
    }
}
