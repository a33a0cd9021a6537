//! Memory of guests in the status.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmio_model::memory::{Stays, Why};

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
    /// Why it was not moved at the last check, or cannot be; null where it was.
    pub why_not: Option<String>,
    /// What it has free, as its balloon's driver reported within a minute; null where it reported nothing.
    #[serde(default)]
    pub free_bytes: Option<u64>,
    /// What it could use without swapping, its page cache included, by the same report.
    #[serde(default)]
    pub available_bytes: Option<u64>,
    /// What the host's page cache holds of its disks; null where its monitor did not answer.
    #[serde(default)]
    pub host_cached_bytes: Option<u64>,
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
            why_not: guest.why_not.clone().or_else(|| guest.stays.map(reason)),
            free_bytes: guest.free_bytes,
            available_bytes: guest.available_bytes,
            host_cached_bytes: guest.host_cached_bytes,
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

fn reason(stays: Stays) -> String {
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let seconds = |wait: Duration| format!("{} s", wait.as_secs_f64().ceil());
    match stays {
        Stays::OnItsWay { to_bytes } => format!("it is on its way to {}", mib(to_bytes)),
        Stays::Silent => "its balloon's driver reports nothing: it gives none, and is given none".to_owned(),
        Stays::Owed { bytes } => format!("it is to get {} more, which the host does not have now", mib(bytes)),
        Stays::NoSpare { spare_bytes, room_bytes } => {
            format!("it would be given {}, but the host has {} to give", mib(room_bytes), mib(spare_bytes))
        }
        Stays::ReadsTooShort { wait } => {
            format!("it is given memory if the host's cache answers its reads for {} more", seconds(wait))
        }
        Stays::HasFree { free_bytes } => {
            format!("the host's cache answers its reads, and it has {} free for a cache of its own", mib(free_bytes))
        }
        Stays::HasMost => "it has the most that it is given".to_owned(),
        Stays::LittleCached { bytes } => format!("the host's cache holds {} of its disks", mib(bytes)),
        Stays::UnusedTooShort { wait } => {
            format!("what it leaves unused is taken in {} at the earliest, if another guest wants it", seconds(wait))
        }
        Stays::Unwanted => "it leaves memory unused, and no other guest wants it".to_owned(),
        Stays::HasLeast => "it leaves memory unused, but has the least that it keeps".to_owned(),
        Stays::ReadsBack => "it reads pages back from its disk or from swap".to_owned(),
        Stays::UsesAll { free_bytes, least_bytes } => format!(
            "it uses what it has ({} free; it would give some from {} on), and the host's cache answers too few of its \
             reads",
            mib(free_bytes),
            mib(least_bytes)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_what_cannot_be_moved_goes_before_that_of_the_last_check() {
        let stays = Some(Stays::NoSpare { spare_bytes: 96 << 20, room_bytes: 128 << 20 });
        let guest = GuestStatus {
            guest: "web1".to_owned(),
            asked: None,
            actual_bytes: Some(384 << 20),
            before_bytes: None,
            hits_percent: Some(100),
            due: None,
            is_moved: true,
            free_bytes: Some(18 << 20),
            available_bytes: None,
            host_cached_bytes: Some(512 << 20),
            why_not: None,
            stays,
        };
        let told = MemoryDocument::of(&guest);
        let why = "it would be given 128 MiB, but the host has 96 MiB to give";
        assert_eq!((told.why_not.as_deref(), told.free_bytes), (Some(why), Some(18 << 20)));
        let cannot = GuestStatus { why_not: Some("no monitor".to_owned()), ..guest };
        assert_eq!(MemoryDocument::of(&cannot).why_not.as_deref(), Some("no monitor"));
    }
}
