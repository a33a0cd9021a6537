//! The store as the engine sees it.

use std::collections::BTreeMap;

use vmio_model::read_at::ReadAt;
use vmio_model::result::{Environment, Sample, Skipped};
use vmio_rig::engine;

use super::Store;

impl engine::Store for Store {
    fn add_sample(&self, run: i64, sample: &Sample) -> anyhow::Result<()> {
        Ok(Store::add_sample(self, run, sample)?)
    }
    fn add_skipped(&self, run: i64, skipped: &Skipped) -> anyhow::Result<()> {
        Ok(Store::add_skipped(self, run, skipped)?)
    }
    fn set_environment(&self, run: i64, environment: &Environment) -> anyhow::Result<()> {
        Ok(Store::set_environment(self, run, environment)?)
    }
    fn add_effective(&self, run: i64, at: &ReadAt, settings: &BTreeMap<String, String>) -> anyhow::Result<()> {
        Ok(Store::add_effective(self, run, &at.to_string(), settings)?)
    }
}
