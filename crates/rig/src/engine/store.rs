//! Where a run is kept while it goes on. What keeps it (SQLite, a file, a test's memory) is not the
//! engine's business.

use std::collections::BTreeMap;

use vmio_model::read_at::ReadAt;
use vmio_model::result::{Environment, Sample, Skipped};

/// Keeps what is measured, at once: a run that is killed has lost nothing.
pub trait Store {
    /// Adds a sample to a run.
    ///
    /// # Errors
    /// When it is not safely stored.
    fn add_sample(&self, run: i64, sample: &Sample) -> anyhow::Result<()>;
    /// Adds a cell that did not run, and why.
    ///
    /// # Errors
    /// As [`Store::add_sample`].
    fn add_skipped(&self, run: i64, skipped: &Skipped) -> anyhow::Result<()>;
    /// Replaces what is known of where the run is made.
    ///
    /// # Errors
    /// As [`Store::add_sample`].
    fn set_environment(&self, run: i64, environment: &Environment) -> anyhow::Result<()>;
    /// Adds settings as read back, by the place that they belong to (`sparse/native`).
    ///
    /// # Errors
    /// As [`Store::add_sample`].
    fn add_effective(&self, run: i64, at: &ReadAt, settings: &BTreeMap<String, String>) -> anyhow::Result<()>;
}
