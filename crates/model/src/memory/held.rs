//! A guest between two checks: what it had, where it is on its way to, and since when it leaves memory unused or reads
//! from the host's cache.

use std::time::Duration;

use super::{Contract, Guest, PAGE_BYTES, PATIENCE, REST};

/// A guest between two checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    /// What it had before the first move, or less that somebody else has set since.
    pub(super) base_bytes: u64,
    /// What it had when its last move was over; `None` where another one moved it.
    pub(super) settled_bytes: Option<u64>,
    /// Where it is on its way to, and until when.
    pub(super) aim: Option<(u64, Duration)>,
    /// It did not get there in time.
    pub(super) stuck: bool,
    pub(super) idle_since: Option<Duration>,
    pub(super) reads_since: Option<Duration>,
    /// Nothing is taken from it before.
    pub(super) rests_until: Duration,
    /// When it was last seen.
    pub(super) seen: Duration,
}

impl Held {
    pub(super) fn of(bytes: u64, rests_until: Duration) -> Self {
        Self {
            base_bytes: bytes,
            settled_bytes: Some(bytes),
            aim: None,
            stuck: false,
            idle_since: None,
            reads_since: None,
            rests_until,
            seen: Duration::ZERO,
        }
    }

    /// Takes note of what is seen of it.
    pub(super) fn note(&mut self, guest: &Guest, now: Duration, passed: Option<Duration>) {
        self.stuck = false;
        match self.aim {
            Some((bytes, until)) if guest.actual_bytes == bytes || now >= until => {
                self.stuck = guest.actual_bytes != bytes;
                (self.settled_bytes, self.aim) = (Some(guest.actual_bytes), None);
                if self.stuck {
                    self.rests_until = self.rests_until.max(now + REST);
                }
            }
            Some(_) => {}
            None => match self.settled_bytes {
                Some(settled) if settled == guest.actual_bytes => {}
                // Somebody else has set it, or the guest says so: it is let go, or has no more than that from now on.
                Some(_) => {
                    let most = if guest.contract.is_some() { self.base_bytes } else { u64::MAX };
                    let own = Self::of(guest.actual_bytes.min(most), now + REST);
                    *self = Self { settled_bytes: Some(guest.actual_bytes), ..own };
                }
                None => (self.settled_bytes, self.rests_until) = (Some(guest.actual_bytes), now + REST),
            },
        }
        self.seen = now;
        let since = |before: Option<Duration>, so: bool| so.then(|| before.unwrap_or(now));
        self.idle_since = since(self.idle_since, guest.is_idle(passed));
        // Where nobody counted, nothing is known to have changed.
        if guest.reads.is_some() {
            self.reads_since = since(self.reads_since, guest.reads_host_cache(passed));
        }
    }

    /// Whether it was seen a short while ago: a monitor that does not answer once makes it no other guest.
    pub(super) fn is_recent(&self, now: Duration) -> bool {
        now.saturating_sub(self.seen) < PATIENCE
    }

    /// What it has or is on its way to.
    pub(super) fn has_bytes(&self, guest: &Guest) -> u64 {
        self.aim.map_or(guest.actual_bytes, |(bytes, _)| bytes)
    }

    /// The contract that holds, in whole pages: one that has left the policy gets back what it had.
    pub(super) fn contract(&self, guest: &Guest) -> Contract {
        let own = guest.contract.unwrap_or(Contract { min_bytes: self.base_bytes, max_bytes: self.base_bytes });
        let max_bytes = own.max_bytes - own.max_bytes % PAGE_BYTES;
        Contract { min_bytes: own.min_bytes.next_multiple_of(PAGE_BYTES), max_bytes }
    }

    pub(super) fn is_over(since: Option<Duration>, now: Duration) -> bool {
        since.is_some_and(|since| now.saturating_sub(since) >= PATIENCE)
    }
}
