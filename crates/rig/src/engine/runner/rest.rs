//! The machine at rest: no guest, no cell. What cells take above it is their own.

use std::thread;
use std::time::{Duration, Instant};

use vmio_model::result::AtRest;
use vmio_model::study::SETTLE_SECONDS;

use super::Runner;
use crate::engine::environment::now;
use crate::probes::{ProbePoint, ProbeSubject, Watch, foreign, power};

/// How often it is seen whether the run is being ended.
const GLANCE: Duration = Duration::from_millis(100);

impl Runner<'_> {
    /// Measures the machine at rest where there is a meter, and stores it. Guests have ended.
    pub fn measure_rest(&mut self) -> anyhow::Result<()> {
        if self.bed.meters.is_empty() || !self.bed.study.uses_host() {
            return Ok(());
        }
        let seconds = self.bed.study.repeat.rest_seconds();
        (self.bed.progress)(&format!("measuring the power of the machine at rest, {seconds} s"));
        let others = ProbeSubject::Others { than: std::process::id() };
        let subjects = self.bed.meters.iter().cloned().chain([others]);
        let points: Vec<ProbePoint> =
            subjects.map(|subject| ProbePoint::here(self.bed.local.clone(), subject)).collect();
        self.pause(Duration::from_secs_f64(SETTLE_SECONDS));
        let started_unix = now();
        let watch = Watch::start(points.clone())?;
        self.pause(Duration::from_secs_f64(seconds));
        let seen = watch.stop()?;
        if self.bed.journal.is_closed() {
            return Ok(());
        }
        self.unread.extend(seen.notes);
        self.tell_unread();
        let marks: Vec<_> =
            foreign::processors(&seen.seen).into_iter().chain(power::unmetered(&points, &seen.seen)).collect();
        self.bed.record.environment.at_rest.push(AtRest { started_unix, seen: seen.seen, marks });
        self.bed.record.keep()
    }

    /// Waits, but not while the run is being ended.
    fn pause(&self, time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time && !self.bed.journal.is_closed() {
            thread::sleep(GLANCE.min(time.saturating_sub(began.elapsed())));
        }
    }
}
