//! Results that workloads report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BANDWIDTH, IOPS, LATENCY, READ, REQUESTS, WRITTEN};
use crate::figure::{Distribution, Reading, scalar};

/// Result that a workload reports.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadResult {
    /// Seconds of the measured part, with a flush where the workload counts it.
    pub seconds: f64,
    /// Its figures, as declared.
    pub figures: Vec<Reading>,
    /// The whole output of the tool: fio's `json+` document, dd's last line.
    pub raw: serde_json::Value,
    /// The command line.
    pub command: String,
}

/// A workload's work on a disk.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DiskWork {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Requests completed.
    pub ios: u64,
    /// Seconds of the measured part.
    pub seconds: f64,
    /// Completion latency in seconds of the workload's operations (for durable append: write and fdatasync together).
    pub latency: Option<Distribution>,
}

impl DiskWork {
    /// Bytes moved.
    pub fn bytes(&self) -> u64 {
        // An imported run may hold any number.
        self.read_bytes.saturating_add(self.write_bytes)
    }

    /// Bytes a second.
    pub fn bandwidth(&self) -> f64 {
        self.bytes() as f64 / self.seconds
    }

    /// Requests a second.
    pub fn iops(&self) -> f64 {
        self.ios as f64 / self.seconds
    }

    /// As the figures of a disk workload.
    pub fn result(self, raw: serde_json::Value, command: String) -> WorkloadResult {
        let mut figures = vec![
            Reading::scalar(BANDWIDTH, self.bandwidth()),
            Reading::scalar(IOPS, self.iops()),
            Reading::scalar(READ, self.read_bytes as f64),
            Reading::scalar(WRITTEN, self.write_bytes as f64),
            Reading::scalar(REQUESTS, self.ios as f64),
        ];
        figures.extend(self.latency.map(|latency| Reading::distribution(LATENCY, latency)));
        WorkloadResult { seconds: self.seconds, figures, raw, command }
    }
}

impl WorkloadResult {
    /// The number of a figure without labels, in its unit.
    pub fn figure(&self, name: &str) -> Option<f64> {
        scalar(&self.figures, name)
    }

    /// A distribution without labels.
    pub fn distribution(&self, name: &str) -> Option<&Distribution> {
        let mut readings = self.figures.iter().filter(|r| r.figure == name && r.labels.is_empty());
        readings.find_map(|reading| reading.value.distribution())
    }

    /// Its work on a disk; zero where it used none.
    pub fn disk_work(&self) -> DiskWork {
        let amount = |name: &str| self.figure(name).unwrap_or(0.0) as u64;
        DiskWork {
            read_bytes: amount(READ),
            write_bytes: amount(WRITTEN),
            ios: amount(REQUESTS),
            seconds: self.seconds,
            latency: self.latency().cloned(),
        }
    }

    /// Changes its work on a disk, for made-up runs.
    pub fn amend(&mut self, change: impl FnOnce(&mut DiskWork)) {
        let mut work = self.disk_work();
        change(&mut work);
        *self = work.result(std::mem::take(&mut self.raw), std::mem::take(&mut self.command));
    }

    /// Completion latency in seconds, if measured.
    pub fn latency(&self) -> Option<&Distribution> {
        self.distribution(LATENCY)
    }
}
