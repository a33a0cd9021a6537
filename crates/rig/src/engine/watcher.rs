//! `--gentle` at work: watches the other guests' latency and says when the run has to end.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use vmio_look::neighbours;
use vmio_node::{Journal, Node};

use super::StopCause;
use crate::gentle::history::{Limits, Verdict};
use crate::gentle::instance::{Plan, WatchError};
use crate::gentle::watch::LatencyWatch;

/// How long the others are watched before vmio makes any load of its own.
pub const QUIET: Duration = Duration::from_secs(10);
/// Guests may come and go; looked at this often.
const FOLLOW: Duration = Duration::from_secs(5);

/// The watch, with what it needs to follow guests that come later.
pub struct Watcher {
    watch: LatencyWatch,
    local: Arc<dyn Node>,
    cookie: String,
    followed: Instant,
    told_blind: bool,
    tell: fn(&str),
}

impl Watcher {
    /// Begins to watch. `Err` says why the other guests' latency is not visible; the cap and the one core hold all
    /// the same. `tell` is told what changes of that later.
    pub fn start(
        local: Arc<dyn Node>,
        journal: &Journal,
        devices: &[(u32, u32)],
        tell: fn(&str),
    ) -> Result<Watcher, WatchError> {
        let cookie = journal.cookie().to_owned();
        let plan = Plan::new(local.reader(), &cookie, devices)?;
        let others = neighbours::others(local.reader(), &cookie)?;
        let watch = LatencyWatch::start(&plan, others.guests, Limits::default(), journal)?;
        Ok(Watcher { watch, local, cookie, followed: Instant::now(), told_blind: false, tell })
    }

    /// Waits for [`QUIET`] and takes what was seen as the time before vmio's own load.
    pub fn settle(&self) {
        thread::sleep(QUIET);
        self.watch.mark_load();
    }

    /// A reason to end the run now.
    pub fn must_stop(&mut self) -> Option<StopCause> {
        if self.followed.elapsed() > FOLLOW {
            self.followed = Instant::now();
            if let Ok(others) = neighbours::others(self.local.reader(), &self.cookie) {
                self.watch.follow(others.guests);
            }
        }
        match self.watch.verdict() {
            Verdict::Doubled(slower) => {
                let who = self.watch.label(slower.who);
                Some(StopCause::OtherGuestSlowed(format!("{who} is slowed down: {slower}")))
            }
            Verdict::Fine { .. } => None,
            Verdict::NotVisible { why } => {
                if !std::mem::replace(&mut self.told_blind, true) {
                    (self.tell)(&format!("gentle: for now the other guests' latency is not visible: {why}"));
                }
                None
            }
        }
    }

    /// What was seen, in words.
    pub fn seen(&self) -> String {
        let counts = self.watch.counts();
        format!(
            "gentle: the latency of {} requests of other guests was seen; {} events were lost",
            counts.requests, counts.lost_events
        )
    }
}
