//! A guest between two checks: what it had, where it is on its way to, and since when it leaves memory unused or reads
//! from the host's cache.

use std::time::Duration;

use super::{Contract, Guest, LEAST_BYTES, LEAST_MOVE_BYTES, PAGE_BYTES, PATIENCE, REST, STEP_BYTES, Stays, Why};

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
    /// How long before that it was seen, which is the time of its counts; `None` where it was not.
    pub(super) passed: Option<Duration>,
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
            passed: None,
        }
    }

    /// Takes note of what is seen of it; `passed` since the check before, at which its monitor may not have answered.
    pub(super) fn note(&mut self, guest: &Guest, now: Duration, passed: Option<Duration>) {
        let passed = if self.seen.is_zero() { passed } else { Some(now.saturating_sub(self.seen)) };
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
        (self.seen, self.passed) = (now, passed);
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

    /// What it is to have at least, and why: its minimum; what it had, where it needs that.
    pub(super) fn due(&self, guest: &Guest) -> (u64, Why) {
        let Contract { min_bytes: min, max_bytes: max } = self.contract(guest);
        let base = self.base_bytes.min(max);
        let back = if self.has_bytes(guest) < base && guest.needs_more(self.passed) { base } else { 0 };
        (min.max(back).min(guest.whole_bytes), if back > min { Why::Returned } else { Why::Minimum })
    }

    /// How much it is given for its reads, where the host has that; `None` where they do not hit the host's cache.
    ///
    /// # Errors
    /// Why nothing.
    pub(super) fn room(&self, guest: &Guest, now: Duration) -> Option<Result<u64, Stays>> {
        let since = self.reads_since.filter(|_| guest.reads_host_cache(self.passed))?;
        let most = self.contract(guest).max_bytes.min(guest.whole_bytes).saturating_sub(guest.actual_bytes);
        let room = most.min(guest.host_cached_bytes).min(STEP_BYTES);
        let wait = wait(since, now);
        Some(match guest.report {
            None => Err(Stays::Silent),
            Some(_) if most < LEAST_MOVE_BYTES => Err(Stays::HasMost),
            Some(_) if room < LEAST_MOVE_BYTES => Err(Stays::LittleCached { bytes: guest.host_cached_bytes }),
            // At times that is no reason to begin anew: its page cache may just have been dropped.
            Some(report) if guest.is_idle(self.passed) => Err(Stays::HasFree { free_bytes: report.free_bytes }),
            Some(_) if !wait.is_zero() => Err(Stays::ReadsTooShort { wait }),
            Some(_) => Ok(room),
        })
    }

    /// What it keeps of what it has, where it leaves some unused.
    ///
    /// # Errors
    /// Why nothing is taken.
    pub(super) fn keeps(&self, guest: &Guest, now: Duration) -> Result<u64, Stays> {
        let (Some(report), Some(used)) = (guest.report, guest.used_bytes()) else { return Err(Stays::Silent) };
        let (free_bytes, least_bytes) = (report.free_bytes, guest.idle_bytes());
        match self.idle_since {
            None if free_bytes < least_bytes => Err(Stays::UsesAll { free_bytes, least_bytes }),
            None => Err(Stays::ReadsBack),
            Some(since) => match wait(since, now).max(self.rests_until.saturating_sub(now)) {
                wait if wait.is_zero() => Ok(self.contract(guest).min_bytes.max(used)),
                wait => Err(Stays::UnusedTooShort { wait }),
            },
        }
    }

    /// Why it stays as it is, where it does; the host can give so much.
    pub(super) fn stays(&self, guest: &Guest, now: Duration, spare_bytes: u64) -> Stays {
        if let Some((to_bytes, _)) = self.aim {
            return Stays::OnItsWay { to_bytes };
        }
        let (due, _) = self.due(guest);
        if due > guest.actual_bytes {
            return Stays::Owed { bytes: due - guest.actual_bytes };
        }
        match self.room(guest, now) {
            Some(Ok(room_bytes)) => return Stays::NoSpare { spare_bytes, room_bytes },
            Some(Err(why)) => return why,
            None => {}
        }
        match self.keeps(guest, now) {
            Ok(floor) if lowered(guest, floor).is_some() => Stays::Unwanted,
            Ok(_) => Stays::HasLeast,
            Err(why) => why,
        }
    }
}

/// Where a guest is brought that is to have that: by a step at most, and not for little.
pub(super) fn lowered(guest: &Guest, floor: u64) -> Option<u64> {
    let least = floor.max(LEAST_BYTES).max(guest.actual_bytes.saturating_sub(STEP_BYTES));
    let to = least.next_multiple_of(PAGE_BYTES);
    (to.saturating_add(LEAST_MOVE_BYTES) <= guest.actual_bytes).then_some(to)
}

/// How much longer something has to be so.
fn wait(since: Duration, now: Duration) -> Duration {
    PATIENCE.saturating_sub(now.saturating_sub(since))
}
