//! Runs as vmio wrote them before a cell had actors and a workload its figures: stores of format 1, exports
//! of schema version 1. This is the one place that knows that form; both ways in go through it.

use std::collections::BTreeMap;

use serde::Deserialize;
use vmio_model::cell::{Attachment, Cell};
use vmio_model::figure::Distribution;
use vmio_model::kind::RunKind;
use vmio_model::result::{self, CpuUse, DeviceUse, DiskTraits, DiskWork, Environment, Foreign, Mark, RunState};
use vmio_model::study;

/// What is called a cell now.
#[derive(Debug, Deserialize)]
pub(super) struct Setup {
    guest: String,
    target: String,
    attachment: Option<Attachment>,
    workload: String,
}

#[derive(Debug, Deserialize)]
struct Latency {
    mean_seconds: f64,
    percentiles: Vec<(f64, f64)>,
}

#[derive(Debug, Deserialize)]
struct WorkloadResult {
    read_bytes: u64,
    write_bytes: u64,
    ios: u64,
    seconds: f64,
    latency: Option<Latency>,
    #[serde(default)]
    raw: serde_json::Value,
    command: String,
}

/// One execution of one cell.
#[derive(Debug, Deserialize)]
pub(super) struct Sample {
    setup: Setup,
    round: u32,
    boot: u32,
    started_unix: f64,
    result: WorkloadResult,
    device: Option<DeviceUse>,
    cpu: CpuUse,
    foreign: Foreign,
    marks: Vec<Mark>,
}

/// What a workload was judged by; its others were fixed.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Figure {
    Bandwidth,
    Iops,
}

/// What was known of a workload.
#[derive(Debug, Deserialize)]
pub(super) struct WorkloadTraits {
    name: String,
    figure: Figure,
    #[serde(flatten)]
    disk: DiskTraits,
}

/// A cell that did not run.
#[derive(Debug, Deserialize)]
struct Skipped {
    setup: Setup,
    reason: String,
}

/// A whole run, as `vmio runs export --format json` printed it.
#[derive(Debug, Deserialize)]
pub(super) struct Run {
    id: i64,
    study: RunKind,
    study_toml: String,
    command: Vec<String>,
    started_unix: f64,
    state: RunState,
    environment: Environment,
    workloads: Vec<WorkloadTraits>,
    effective: BTreeMap<String, BTreeMap<String, String>>,
    samples: Vec<Sample>,
    skipped: Vec<Skipped>,
}

/// Workloads of a run, by whether any sample of theirs was timed. A figure is declared for all samples of a
/// workload or for none.
#[derive(Debug, Default)]
pub(super) struct Timed(BTreeMap<String, bool>);

impl Timed {
    /// Notes a sample.
    pub(super) fn note(&mut self, sample: &result::Sample) {
        let timed = sample.result.latency().is_some();
        *self.0.entry(sample.cell.workload().to_owned()).or_default() |= timed;
    }

    /// Whether this one is. One that did not run yet is if it is a job of fio, which names its engine.
    fn is(&self, workload: &WorkloadTraits) -> bool {
        self.0.get(&workload.name).copied().unwrap_or(!workload.disk.engine.is_empty())
    }
}

impl Setup {
    /// In today's form.
    pub(super) fn cell(self) -> Cell {
        Cell::on(&self.guest, self.target, self.attachment, &self.workload)
    }
}

impl Sample {
    /// In today's form.
    pub(super) fn now(self) -> result::Sample {
        let Sample { setup, round, boot, started_unix, result, device, cpu, foreign, marks } = self;
        let WorkloadResult { read_bytes, write_bytes, ios, seconds, latency, raw, command } = result;
        let latency = latency.map(|l| Distribution { mean: l.mean_seconds, percentiles: l.percentiles });
        let mut result = DiskWork { read_bytes, write_bytes, ios, seconds, latency }.result(raw, command);
        // A cell that took no time had no rate then either.
        result.figures.retain(|reading| reading.value.is_finite());
        result::Sample {
            cell: setup.cell(),
            round,
            boot,
            started_unix,
            result,
            beside: Vec::new(),
            seen: result::seen_around(device, &cpu),
            foreign,
            marks,
        }
    }
}

impl WorkloadTraits {
    /// In today's form.
    pub(super) fn now(self, timed: &Timed) -> result::WorkloadTraits {
        let (figures, _) = self.disk.figures(timed.is(&self));
        let judged_by = match self.figure {
            Figure::Bandwidth => result::BANDWIDTH,
            Figure::Iops => result::IOPS,
        };
        result::WorkloadTraits {
            name: self.name,
            figures,
            judged_by: judged_by.to_owned(),
            disk: Some(self.disk),
            group: None,
        }
    }
}

impl Run {
    /// In today's form.
    pub(super) fn now(self) -> result::Run {
        let samples: Vec<result::Sample> = self.samples.into_iter().map(Sample::now).collect();
        let mut timed = Timed::default();
        samples.iter().for_each(|sample| timed.note(sample));
        let skipped = |s: Skipped| result::Skipped { cell: s.setup.cell(), reason: s.reason };
        result::Run {
            id: self.id,
            study: self.study,
            study_toml: study_toml(self.study_toml),
            command: self.command,
            started_unix: self.started_unix,
            state: self.state,
            environment: self.environment,
            workloads: self.workloads.into_iter().map(|w| w.now(&timed)).collect(),
            effective: self.effective,
            samples,
            skipped: self.skipped.into_iter().map(skipped).collect(),
        }
    }
}

/// The text of a stored study in today's form. One that is no study (a proof's words) stays as it is.
pub(super) fn study_toml(text: String) -> String {
    study::old::renewed(&text).unwrap_or(text)
}
