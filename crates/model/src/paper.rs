//! A published paper as data (`papers/*.toml`): the figures of its tables, its errors, and the effects that it states.
//! Its figures are shown beside those of a run ([`tables()`]), and its effects are tested on the run's samples
//! ([`judge`]).

mod effects;
mod events;
mod pattern;
mod scores;
mod series;
mod sure;
mod tables;
mod transfers;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pattern::{EITHER, PLACE};

pub use effects::{Compared, Judged, judge};
pub use events::{EventColumn, EventRow, EventTable, Events, PrintedEvents, events};
pub use pattern::Pattern;
pub use scores::{ScoreJudged, scores};
pub use series::{OnEnd, PrintedSeries, Series, SeriesRow, SeriesTable, series};
pub use sure::Verdict;
pub use tables::{Ours, Table, TableRow, tables};
pub use transfers::{Printed, Sent, TransferRow, Transferred, Transfers};

/// A paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Short name: `shafer2010`.
    pub key: String,
    /// Author, title, where, when.
    pub citation: String,
    /// Section with its figures.
    pub section: String,
    /// Studies that measure the same; the first one is the default. A table, an effect or a reading that names studies of
    /// its own belongs to those in their place.
    pub studies: Vec<String>,
    /// Its tables.
    #[serde(default, rename = "table")]
    pub tables: Vec<Caption>,
    /// Circumstances of its measurements.
    #[serde(rename = "circumstance")]
    pub circumstances: Vec<Circumstance>,
    /// Our readings of ambiguous words.
    #[serde(default, rename = "reading", skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Reading>,
    /// Its contradictions; rows refer to them by number, from 1.
    #[serde(default, rename = "footnote")]
    pub footnotes: Vec<Footnote>,
    /// Effects that it states.
    #[serde(default, rename = "effect")]
    pub effects: Vec<Effect>,
    /// Rows of its tables, in its order and words.
    #[serde(default, rename = "row")]
    pub rows: Vec<Row>,
    /// Its guest's shares in groups of workloads.
    #[serde(default, rename = "score")]
    pub scores: Vec<PrintedScore>,
    /// Its transfers of host and guest under pinning.
    #[serde(default)]
    pub transfers: Vec<Transfers>,
    /// Its tables of a program that ran repeatedly.
    #[serde(default)]
    pub series: Vec<Series>,
    /// Its tables of events by component.
    #[serde(default)]
    pub events: Vec<Events>,
    /// Its figures that are compared with nothing here.
    #[serde(default)]
    pub unmeasured: Vec<Unmeasured>,
}

/// A guest's share of the host in a group of workloads, as published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrintedScore {
    /// The group, by our workloads' name.
    pub group: String,
    /// The paper's word for it.
    pub word: String,
    /// Guest over host.
    pub ratio: f64,
    /// How far our ratio may differ and still agree: our choice, since the paper prints no spread.
    pub tolerance: f64,
    /// Where it is printed.
    pub citation: String,
}

/// A table of the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Caption {
    /// Key of its rows.
    pub direction: String,
    /// `Table 1`, and what it holds.
    pub title: String,
    /// The workload here.
    pub workload: String,
    /// The studies that it belongs to, where those are not the paper's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub studies: Vec<String>,
}

/// A circumstance of the paper's measurements that may differ here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Circumstance {
    /// Its name.
    pub what: String,
    /// Its value in the paper.
    pub paper: String,
    /// Its source in a run.
    pub here: Here,
}

/// Part of a run's environment that is shown beside a circumstance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Here {
    /// The accelerator and QEMU's version.
    Hypervisor,
    /// CPU model and number.
    Cpu,
    /// Resources of each side.
    Sides,
    /// The backing device.
    Storage,
    /// Bytes that the workload moved.
    Moved,
    /// Cache modes of the guests' disks.
    CacheModes,
}

/// An ambiguous word of the paper, and our reading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PaperReading")]
pub struct Reading {
    /// The paper's word.
    pub word: String,
    /// Our reading.
    #[serde(rename = "as")]
    pub taken_for: String,
    /// The studies that it belongs to, where those are not the paper's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub studies: Vec<String>,
}

/// An error in the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Footnote {
    /// The figures concerned.
    pub about: String,
    /// The contradiction.
    pub text: String,
}

/// A row of a table. A figure that the paper leaves empty is `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Key of its table.
    pub direction: String,
    /// The paper's words.
    pub vmm: String,
    /// The paper's words.
    pub target: String,
    /// The paper's words.
    pub driver: String,
    /// Eucalyptus' default set-up.
    pub eucalyptus_default: bool,
    /// MB (10^6 bytes) a second, as the application saw it.
    pub bandwidth_mb_s: f64,
    /// Mean request at the host's disk, in sectors of 512 bytes.
    pub avgrq_sz_sectors: Option<f64>,
    /// Mean queue at the host's disk.
    pub avgqu_sz_requests: Option<f64>,
    /// Time with any request outstanding, in per cent.
    pub util_percent: Option<f64>,
    /// Numbers of its footnotes, from 1.
    #[serde(default)]
    pub notes: Vec<usize>,
    /// The cell that measures the same.
    pub cell: Option<Pattern>,
    /// Why there is none.
    pub not_run: Option<String>,
}

/// The figure by which an effect is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// The workload's bandwidth.
    Bandwidth,
    /// Mean time of a request.
    Latency,
    /// Processor time of the host for a request, guests included.
    CpuPerRequest,
    /// Energy of the whole machine for a request, above the machine at rest in the same run.
    EnergyPerRequest,
    /// Requests in flight at the disk.
    QueueDepth,
    /// Bytes of a request at the disk.
    RequestSize,
    /// Native cost of small requests, by the control cells of the numerator's cell.
    SmallRequests,
}

/// Relation of an effect's ratio to its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// The ratio is below it.
    Below,
    /// The ratio is at least the bound.
    AtLeast,
}

/// An effect that the paper states, and its test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// Short name.
    pub id: String,
    /// The paper's statement, in our words.
    pub text: String,
    /// Where it is printed.
    pub citation: String,
    /// The paper's numerator; `None` where it prints no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_numerator: Option<f64>,
    /// The paper's denominator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_denominator: Option<f64>,
    /// Unit of both.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// The workload of both cells.
    pub workload: String,
    /// Workload of the denominator, if different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denominator_workload: Option<String>,
    /// The figure that is compared.
    pub measure: Measure,
    /// The cell of the numerator.
    pub numerator: Pattern,
    /// The cell of the denominator; none for `small-requests`.
    pub denominator: Option<Pattern>,
    /// Required relation to the bound.
    pub relation: Relation,
    /// The bound.
    pub bound: f64,
    /// A second ratio, of the same cells with other workloads, that the first is divided by: how the effect changes with
    /// the size of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub than: Option<Than>,
    /// Our reading in this test, where the paper's words or figures leave it open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<String>,
    /// The studies that it belongs to, where those are not the paper's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub studies: Vec<String>,
}

/// The workloads of a second ratio.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Than {
    /// The numerator's.
    pub workload: String,
    /// The denominator's.
    pub denominator_workload: String,
}

/// Printed figures that are compared with nothing here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unmeasured {
    /// What they are.
    pub word: String,
    /// Where they are printed.
    pub citation: String,
    /// Their unit.
    pub unit: String,
    /// The figures, by the paper's words.
    pub printed: BTreeMap<String, f64>,
    /// Why they are not compared.
    pub why: String,
}

impl Effect {
    /// The paper's numerator and denominator, where it prints them.
    pub fn published(&self) -> Option<(f64, f64)> {
        self.published_numerator.zip(self.published_denominator)
    }

    /// The second ratio by itself.
    fn second(&self) -> Option<Effect> {
        let Than { workload, denominator_workload } = self.than.clone()?;
        Some(Effect { workload, denominator_workload: Some(denominator_workload), than: None, ..self.clone() })
    }

    /// Workload of the denominator.
    pub fn below(&self) -> &str {
        self.denominator_workload.as_deref().unwrap_or(&self.workload)
    }
}

/// Why a file is no valid paper.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum PaperError {
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// An entry breaks a rule of such files.
    #[error("{entry}: {rule}")]
    Entry { entry: String, rule: String },
}

impl PaperError {
    fn entry(entry: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Entry { entry: entry.into(), rule: rule.into() }
    }
}

impl Paper {
    /// All studies that measure a part of it again.
    pub fn all_studies(&self) -> Vec<&str> {
        let tables = self.tables.iter().map(|table| &table.studies);
        let effects = self.effects.iter().map(|effect| &effect.studies);
        let readings = self.readings.iter().map(|reading| &reading.studies);
        let mut all: Vec<&str> = self.studies.iter().map(String::as_str).collect();
        for study in tables.chain(effects).chain(readings).flatten() {
            if !all.contains(&study.as_str()) {
                all.push(study);
            }
        }
        all
    }

    /// Whether a study measures a part of it again.
    pub fn is_of(&self, study: Option<&str>) -> bool {
        study.is_some_and(|study| self.all_studies().contains(&study))
    }

    /// Whether a study measures a part that names these studies of its own, or none.
    pub fn covers(&self, own: &[String], study: Option<&str>) -> bool {
        let of = if own.is_empty() { self.studies.as_slice() } else { own };
        study.is_some_and(|study| of.iter().any(|one| one == study))
    }

    /// Our readings of the words that a study is about.
    fn readings_for(&self, study: Option<&str>) -> Vec<Reading> {
        self.readings.iter().filter(|reading| self.covers(&reading.studies, study)).cloned().collect()
    }

    /// Parses and validates a paper.
    ///
    /// # Errors
    /// The first problem.
    pub fn parse(text: &str) -> Result<Paper, PaperError> {
        let paper: Paper = toml::from_str(text)?;
        if paper.studies.is_empty() {
            return Err(PaperError::entry("studies", "name one"));
        }
        for row in &paper.rows {
            let name = format!("row {} {} {} {}", row.direction, row.vmm, row.target, row.driver);
            if row.cell.is_some() == row.not_run.is_some() {
                return Err(PaperError::entry(name, EITHER));
            }
            if row.cell.as_ref().is_some_and(|cell| !cell.is_whole()) {
                return Err(PaperError::entry(name, PLACE));
            }
            if row.notes.iter().any(|&n| n == 0 || n > paper.footnotes.len()) {
                return Err(PaperError::entry(name, format!("there are footnotes 1 to {}", paper.footnotes.len())));
            }
            if !paper.tables.iter().any(|t| t.direction == row.direction) {
                return Err(PaperError::entry(name, format!("no table is called {}", row.direction)));
            }
        }
        for (i, effect) in paper.effects.iter().enumerate() {
            let refused = |rule| Err(PaperError::entry(format!("effect {}", effect.id), rule));
            if paper.effects[..i].iter().any(|e| e.id == effect.id) {
                return refused("there are two of that name");
            }
            if (effect.measure == Measure::SmallRequests) == effect.denominator.is_some() {
                return refused("a denominator is needed, save for small-requests");
            }
            if effect.denominator.is_none() && effect.denominator_workload.is_some() {
                return refused("without a denominator it has no workload");
            }
            if ![Some(&effect.numerator), effect.denominator.as_ref()].into_iter().flatten().all(Pattern::is_whole) {
                return refused(PLACE);
            }
            if effect.published_numerator.is_some() != effect.published_denominator.is_some() {
                return refused("a printed ratio has two figures");
            }
            if effect.than.is_some() && effect.denominator.is_none() {
                return refused("two ratios have a denominator each");
            }
            let printed = [effect.published_numerator, effect.published_denominator];
            if printed.into_iter().flatten().chain([effect.bound]).any(|figure| figure <= 0.0) {
                return refused("its figures are positive");
            }
        }
        for (i, score) in paper.scores.iter().enumerate() {
            let sound = score.ratio > 0.0 && score.tolerance > 0.0;
            if !sound || paper.scores[..i].iter().any(|other| other.group == score.group) {
                let rule = "one a group, with a ratio and a tolerance above 0";
                return Err(PaperError::entry(format!("score {}", score.group), rule));
            }
        }
        for of in &paper.transfers {
            of.check()?;
        }
        for of in &paper.series {
            of.check()?;
        }
        for of in &paper.events {
            of.check()?;
        }
        Ok(paper)
    }
}

#[cfg(test)]
mod tests;
