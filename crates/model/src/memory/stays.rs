//! Why a guest is not moved.

use std::time::Duration;

/// Why a guest stays as it is at a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// It is on its way.
    OnItsWay {
        /// Where to.
        to_bytes: u64,
    },
    /// Its driver reports nothing, so that nobody knows what it needs.
    Silent,
    /// It is to get more, its minimum or what was taken from it, and the host does not have that now.
    Owed {
        /// So much.
        bytes: u64,
    },
    /// Its reads hit the host's cache, and the host has too little for it.
    NoSpare {
        /// What the host can give.
        spare_bytes: u64,
        /// What it would be given.
        room_bytes: u64,
    },
    /// Its reads hit the host's cache, but not for long enough.
    ReadsTooShort {
        /// It would take so much longer.
        wait: Duration,
    },
    /// Its reads hit the host's cache, and it has memory of its own for a larger one.
    HasFree {
        /// What it has free.
        free_bytes: u64,
    },
    /// Its reads hit the host's cache, and it has the most that it is given.
    HasMost,
    /// Its reads hit the host's cache, which holds hardly anything of its disks.
    LittleCached {
        /// What it holds.
        bytes: u64,
    },
    /// It leaves memory unused, but not for long enough, or was given some not long ago.
    UnusedTooShort {
        /// It would take so much longer.
        wait: Duration,
    },
    /// It leaves memory unused, and nobody wants that.
    Unwanted,
    /// It leaves memory unused, and has the least that it keeps.
    HasLeast,
    /// It reads pages back from its disk or from swap.
    ReadsBack,
    /// Its reads do not hit the host's cache, and it uses what it has.
    UsesAll {
        /// What it has free.
        free_bytes: u64,
        /// What it would have free if it left some unused.
        least_bytes: u64,
    },
}
