//! A run as it comes out of the store: its study, where it was made, and all its samples.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::RunKind;
use crate::result::{Environment, RunState, Sample, Skipped, WorkloadTraits};
use crate::study::Study;

/// A whole run as it comes out of the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Number in the store.
    pub id: i64,
    /// What it is of: the study, or what was made of one.
    #[serde(rename = "study")]
    pub kind: RunKind,
    /// The study as it was resolved, as TOML text (for resume and for the report).
    #[serde(rename = "study_toml", with = "crate::study::as_text")]
    #[schemars(with = "String")]
    pub study: Study,
    /// The command line that made it.
    pub command: Vec<String>,
    /// Seconds since the epoch.
    pub started_unix: f64,
    /// How it ended.
    pub state: RunState,
    /// Where it was made.
    pub environment: Environment,
    /// The workloads' traits at the time.
    pub workloads: Vec<WorkloadTraits>,
    /// Effective disk settings as QEMU reported them, by attachment key `target/guest/attachment`.
    pub effective: BTreeMap<String, BTreeMap<String, String>>,
    /// All samples, in the order in which they were taken.
    pub samples: Vec<Sample>,
    /// Cells that did not run.
    pub skipped: Vec<Skipped>,
}
