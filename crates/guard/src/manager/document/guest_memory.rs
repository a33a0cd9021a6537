//! Memory of guests in the status.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmio_model::memory::Why;

use crate::memory::GuestStatus;

/// Memory of a guest whose class has a `memory_min`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryDocument {
    /// The guest.
    pub guest: String,
    /// What it always has; null where its class no longer says so, or its classes differ.
    pub min_bytes: Option<u64>,
    /// The most that it is given; null for what it was started with.
    pub max_bytes: Option<u64>,
    /// Whether it is moved, and not only told what would be moved.
    pub is_moved: bool,
    /// What its balloon leaves it; null where that is not known.
    pub actual_bytes: Option<u64>,
    /// What it had before the first move, which undo gives back; null where nothing was changed.
    pub before_bytes: Option<u64>,
    /// Percent of its reads between the last two checks that the host's page cache answered; null where it read nothing
    /// through it.
    pub hits_percent: Option<u64>,
    /// What it was moved to at the last check, or would be moved to; null where it stays.
    pub to_bytes: Option<u64>,
    /// Why.
    pub why: Option<String>,
    /// Why it is not moved; null where it can be.
    pub why_not: Option<String>,
}

impl MemoryDocument {
    pub(super) fn of(guest: &GuestStatus) -> Self {
        Self {
            guest: guest.guest.clone(),
            min_bytes: guest.asked.map(|asked| asked.min_bytes),
            max_bytes: guest.asked.and_then(|asked| asked.max_bytes),
            is_moved: guest.is_moved,
            actual_bytes: guest.actual_bytes,
            before_bytes: guest.before_bytes,
            hits_percent: guest.hits_percent,
            to_bytes: guest.due.as_ref().map(|due| due.to_bytes),
            why: guest.due.as_ref().map(|due| words(due.why).to_owned()),
            why_not: guest.why_not.clone(),
        }
    }
}

fn words(why: Why) -> &'static str {
    match why {
        Why::Minimum => "it has less than its minimum",
        Why::Returned => "it needs what was taken from it",
        Why::Reads => "the host's page cache answers its reads",
        Why::Idle => "it leaves memory unused, which others want",
        Why::Needed => "what it was given is needed by others",
        Why::Maximum => "it has more than its maximum",
        Why::Stopped => "it has not finished a move in time",
        Why::Undone => "it gets back what it had",
    }
}
