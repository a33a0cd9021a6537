//! A stored run: its study, environment and samples.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::RunKind;
use crate::result::{Environment, RunState, Sample, Skipped, WorkloadTraits};
use crate::study::Study;

/// A stored run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Number in the store.
    pub id: i64,
    /// Kind of the run.
    #[serde(rename = "study")]
    pub kind: RunKind,
    /// The study as TOML text (for resuming and reports).
    #[serde(rename = "study_toml", with = "crate::study::as_text")]
    #[schemars(with = "String")]
    pub study: Study,
    /// The command line that made it.
    pub command: Vec<String>,
    /// Seconds since the epoch.
    pub started_unix: f64,
    /// How it ended.
    pub state: RunState,
    /// Its environment.
    pub environment: Environment,
    /// Traits of the workloads at the time.
    pub workloads: Vec<WorkloadTraits>,
    /// Settings in force as read back, by place and name.
    pub effective: BTreeMap<String, BTreeMap<String, String>>,
    /// All samples, in order of measurement.
    pub samples: Vec<Sample>,
    /// Cells that did not run.
    pub skipped: Vec<Skipped>,
}
