//! What is seen of a guest's memory, and what that says.

use std::time::Duration;

use super::{Contract, STEP_BYTES};
use crate::facts::CachedReads;

/// Least room of a guest beyond what it works in.
const MARGIN_BYTES: u64 = 64 << 20;
/// The same as a part of its memory, as a divisor.
const MARGIN_PART: u64 = 16;
/// Least percentage of a guest's reads that the host's page cache answers.
const HITS_PERCENT: u64 = 50;
/// Fewer bytes a second are not worth a move.
const HITS_PER_SECOND: f64 = (1u64 << 20) as f64;
/// Pages that a guest reads back from its disk, a second: what it needs is not in its memory.
const FAULTS_PER_SECOND: f64 = 10.0;

/// What is seen of a guest. Counts are those since it was seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guest {
    /// Its memory by the policy; a guest without one is not moved.
    pub contract: Option<Contract>,
    /// What its balloon leaves it (QMP `query-balloon`).
    pub actual_bytes: u64,
    /// The most that its balloon can leave it: what it was started with.
    pub whole_bytes: u64,
    /// What of it is in the host's memory: what the guest has touched.
    pub resident_bytes: u64,
    /// What its balloon's driver reports.
    pub report: Option<Report>,
    /// Its reads through the host's page cache.
    pub reads: Option<CachedReads>,
    /// What the host's page cache holds of its disks.
    pub host_cached_bytes: u64,
}

/// What the balloon's driver in a guest reports (virtio 1.2, section 5.5.6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Used for nothing.
    pub free_bytes: u64,
    /// Could be used without swapping, the page cache included; never less than what is free.
    pub available_bytes: u64,
    /// Page faults that read from a disk.
    pub major_faults: u64,
    /// Read back from swap.
    pub swapped_in_bytes: u64,
}

impl Guest {
    /// Room that it keeps beyond what it works in.
    fn margin_bytes(&self) -> u64 {
        (self.actual_bytes / MARGIN_PART).max(MARGIN_BYTES)
    }

    /// What it uses, its page cache included, with room to work in: twice the margin, at the single one it asks for
    /// more. Never more than it has; `None` where nothing is reported.
    pub(super) fn used_bytes(&self) -> Option<u64> {
        let free = self.report?.free_bytes.saturating_sub(2 * self.margin_bytes());
        Some(self.actual_bytes.saturating_sub(free))
    }

    /// The same without its page cache.
    pub(super) fn works_in_bytes(&self) -> Option<u64> {
        let report = self.report?;
        let available = report.available_bytes.max(report.free_bytes).saturating_sub(2 * self.margin_bytes());
        Some(self.actual_bytes.saturating_sub(available))
    }

    /// What it has free at least, where it leaves so much unused that a step of it is not missed.
    pub(super) fn idle_bytes(&self) -> u64 {
        2 * self.margin_bytes() + STEP_BYTES
    }

    /// Whether it leaves that unused.
    pub(super) fn is_idle(&self, passed: Option<Duration>) -> bool {
        self.report.is_some_and(|report| report.free_bytes >= self.idle_bytes()) && !self.needs_more(passed)
    }

    /// Whether it needs more than it has, as far as it tells.
    pub(super) fn needs_more(&self, passed: Option<Duration>) -> bool {
        let Some(report) = self.report else { return true };
        let faults = report.major_faults as f64 >= FAULTS_PER_SECOND * seconds(passed) && report.major_faults > 0;
        faults || report.swapped_in_bytes > 0 || report.free_bytes < self.margin_bytes()
    }

    /// Bytes that the host's page cache answered it, where that is most of what it read.
    pub(super) fn hit_bytes(&self) -> u64 {
        let most = |reads: &CachedReads| reads.hits_percent().is_some_and(|percent| percent >= HITS_PERCENT);
        self.reads.filter(most).map_or(0, |reads| reads.asked_bytes.saturating_sub(reads.storage_bytes))
    }

    /// Whether the host's page cache answers so many of its reads that a larger cache of its own would pay.
    pub(super) fn reads_host_cache(&self, passed: Option<Duration>) -> bool {
        let hits = self.hit_bytes();
        hits > 0 && hits as f64 >= HITS_PER_SECOND * seconds(passed)
    }
}

/// Seconds since it was seen before; 0 at first.
fn seconds(passed: Option<Duration>) -> f64 {
    passed.map_or(0.0, |passed| passed.as_secs_f64())
}
