//! How long each test took last: the longest begin first, so that the lanes end together.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use crate::run::Done;

/// Seconds by test.
pub type Times = BTreeMap<String, f64>;

/// Times of earlier runs, if any.
pub fn load(dir: &Path) -> Times {
    fs::read_to_string(dir.join("times")).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Adds the times of this run.
pub fn store(dir: &Path, mut times: Times, done: &[Done]) -> io::Result<()> {
    times.extend(done.iter().filter(|d| d.failure.is_none()).map(|d| (d.test.name.clone(), d.seconds)));
    fs::write(dir.join("times"), serde_json::to_string_pretty(&times)?)
}
