//! Properties of workloads that the model needs before they run.

use std::borrow::Cow;
use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cell::State;
use crate::figure::{ACTOR, Compared, Figure, Form, Unit};

/// The latency figure of disk workloads.
pub const LATENCY: &str = "latency";
/// The share of requests that were sent late, of disk workloads with a rate.
pub const LATE: &str = "late";
/// The bandwidth figure of disk workloads.
pub const BANDWIDTH: &str = "bandwidth";
/// The figure of requests a second of disk workloads.
pub const IOPS: &str = "iops";
/// Bytes that disk workloads read.
pub const READ: &str = "read";
/// Bytes that disk workloads wrote.
pub const WRITTEN: &str = "written";
/// Number of requests of disk workloads.
pub const REQUESTS: &str = "requests";

/// Properties of a workload that the model needs; the entry in `vmio-rig` declares them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadTraits {
    /// Name of the entry.
    pub name: String,
    /// Its figures.
    pub figures: Vec<Figure>,
    /// Name of the figure by which it is judged, which decides when a share is converged.
    pub judged_by: String,
    /// Its work on a disk; `None` where it uses none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskTraits>,
    /// The group in whose score its share counts (summary/scores.rs); `None` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// Why a workload cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Unjudged {
    #[error("{workload}: two figures are called {figure}")]
    Twice { workload: String, figure: String },
    #[error("{workload}: {figure} has the label {ACTOR}, which is reserved for actors")]
    LabelOfActors { workload: String, figure: String },
    /// The figure by which it is judged is unsuitable.
    #[error("{workload} is judged by {figure}, which {wrong}")]
    Judge { workload: String, figure: String, wrong: &'static str },
}

impl WorkloadTraits {
    /// The figure by which it is judged.
    pub fn judge(&self) -> Option<&Figure> {
        self.figures.iter().find(|f| f.name == self.judged_by)
    }

    /// Whether it reads a disk.
    pub fn reads(&self) -> bool {
        self.disk.as_ref().is_some_and(|d| d.reads)
    }

    /// Whether it writes to a disk.
    pub fn writes(&self) -> bool {
        self.disk.as_ref().is_some_and(|d| d.writes)
    }

    /// Whether it can be judged: figure names are unique, and the figure by which it is judged is compared as a ratio
    /// and has no labels.
    ///
    /// # Errors
    /// The first problem.
    pub fn check(&self) -> Result<(), Unjudged> {
        let (workload, mut names) = (self.name.clone(), BTreeSet::new());
        if let Some(twice) = self.figures.iter().find(|f| !names.insert(&f.name)) {
            return Err(Unjudged::Twice { workload, figure: twice.name.clone() });
        }
        if let Some(taken) = self.figures.iter().find(|f| f.labels.iter().any(|label| label == ACTOR)) {
            return Err(Unjudged::LabelOfActors { workload, figure: taken.name.clone() });
        }
        let wrong = match self.judge() {
            None => "it does not measure",
            Some(judge) if judge.compared != Compared::Ratio => "is not compared as a ratio",
            Some(judge) if !judge.labels.is_empty() => "has labels",
            Some(_) => return Ok(()),
        };
        Err(Unjudged::Judge { workload, figure: self.judged_by.clone(), wrong })
    }
}

/// A workload's work on a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskTraits {
    /// Whether it reads.
    pub reads: bool,
    /// Whether it writes.
    pub writes: bool,
    /// Whether its offsets are sequential.
    pub sequential: bool,
    /// Request size at the application in bytes.
    pub block_bytes: u64,
    /// Requests in flight.
    pub depth: u32,
    /// Whether it bypasses the page cache of its own kernel (O_DIRECT).
    pub direct: bool,
    /// How it submits requests: `libaio`, `io_uring`, `psync`; empty for dd and in old runs.
    #[serde(default)]
    pub engine: String,
}

impl DiskTraits {
    /// State of its target where the study names none.
    pub fn state(&self) -> State {
        if self.writes { State::Fresh } else { State::Filled }
    }

    /// The figures of such a workload, and the one by which it is judged: IOPS for small requests, bandwidth for large
    /// ones. `timed` for workloads that time their requests.
    pub fn figures(&self, timed: bool) -> (Vec<Figure>, &'static str) {
        (disk_figures(timed), if self.block_bytes > 4096 { BANDWIDTH } else { IOPS })
    }
}

/// The figures of disk workloads. `timed` for workloads that time their requests.
fn disk_figures(timed: bool) -> Vec<Figure> {
    let mut all = vec![
        Figure::rate(BANDWIDTH, Unit::BytesPerSecond),
        Figure::rate(IOPS, Unit::RequestsPerSecond),
        Figure::amount(READ, Unit::Bytes),
        Figure::amount(WRITTEN, Unit::Bytes),
        Figure::amount(REQUESTS, Unit::Requests),
    ];
    all.extend(timed.then(|| Figure::times(LATENCY)));
    all
}

/// The figures that a workload of a run declares. A run has no traits of control cells, which are chosen after it
/// began: they are disk workloads.
pub fn figures_of<'a>(workloads: &'a [WorkloadTraits], name: &str) -> Cow<'a, [Figure]> {
    match workloads.iter().find(|w| w.name == name) {
        Some(traits) => Cow::Borrowed(&traits.figures),
        None => Cow::Owned(disk_figures(true)),
    }
}

/// Names of the workload's amounts in this unit: single numbers of work done, by which a cell's processor time is
/// divided.
pub fn amounts_of(workloads: &[WorkloadTraits], name: &str, unit: Unit) -> BTreeSet<String> {
    let figures = figures_of(workloads, name);
    let amounts = figures.iter().filter(|f| f.unit == unit && f.compared == Compared::No && f.form == Form::Scalar);
    amounts.map(|f| f.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn judged_by(figure: Figure) -> Result<(), Unjudged> {
        let judged_by = figure.name.clone();
        WorkloadTraits { name: "x".into(), figures: vec![figure], judged_by, disk: None, group: None }.check()
    }

    #[test]
    fn only_what_can_be_judged_passes() {
        assert_eq!(judged_by(Figure::rate("bandwidth", Unit::BitsPerSecond)), Ok(()));
        assert_eq!(judged_by(Figure::times("latency")), Ok(()));
        let said = |figure: Figure| judged_by(figure).unwrap_err().to_string();
        assert!(said(Figure::loss("loss")).contains("loss, which is not compared as a ratio"));
        assert!(said(Figure::amount("sent", Unit::Bytes)).contains("not compared as a ratio"));
        assert!(said(Figure::rate("sent", Unit::Packets).by(&["way"])).contains("has labels"));
        let rate = Figure::rate("bandwidth", Unit::BitsPerSecond);
        let of = |figures: Vec<Figure>, judged_by: &str| {
            WorkloadTraits { name: "x".into(), figures, judged_by: judged_by.into(), disk: None, group: None }
                .check()
                .unwrap_err()
                .to_string()
        };
        assert_eq!(of(vec![rate.clone()], "loss"), "x is judged by loss, which it does not measure");
        assert!(of(vec![rate.clone(), rate.clone()], "bandwidth").contains("two figures are called bandwidth"));
        assert!(of(vec![rate, Figure::loss("loss").by(&[ACTOR])], "bandwidth").contains("is reserved for actors"));
    }

    #[test]
    fn disk_workloads_of_every_kind_can_be_judged() {
        for (block_bytes, timed) in [(4096, true), (65536, false)] {
            let disk = DiskTraits {
                reads: true,
                writes: false,
                sequential: true,
                block_bytes,
                depth: 1,
                direct: true,
                engine: String::new(),
            };
            let (figures, judged_by) = disk.figures(timed);
            let traits = WorkloadTraits {
                name: "x".into(),
                figures,
                judged_by: judged_by.into(),
                disk: Some(disk),
                group: None,
            };
            assert_eq!(traits.check(), Ok(()));
        }
    }
}
