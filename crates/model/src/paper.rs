//! A published paper as data (`papers/*.toml`): the figures of its tables, the slips in them, and
//! the effects that it states. Its own figures are set beside those of a run ([`tables()`]), and its
//! effects are tested on the run's samples ([`judge`]).

mod effects;
mod pattern;
mod scores;
mod series;
mod sure;
mod tables;
mod transfers;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pattern::{EITHER, PLACE};

pub use effects::{Compared, Judged, judge};
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
    /// Where its figures stand.
    pub section: String,
    /// The studies that measure the same here; the first one is what is started where none is named.
    pub studies: Vec<String>,
    /// Its tables.
    #[serde(default, rename = "table")]
    pub tables: Vec<Caption>,
    /// What it was measured on.
    #[serde(rename = "circumstance")]
    pub circumstances: Vec<Circumstance>,
    /// Where its words leave open what was measured: what we take them for.
    #[serde(default, rename = "reading", skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Reading>,
    /// Where it contradicts itself; rows name them by their place, from 1.
    #[serde(default, rename = "footnote")]
    pub footnotes: Vec<Footnote>,
    /// Effects that it states.
    #[serde(default, rename = "effect")]
    pub effects: Vec<Effect>,
    /// Rows of its tables, in its order and words.
    #[serde(default, rename = "row")]
    pub rows: Vec<Row>,
    /// What it says that a guest gets in groups of workloads.
    #[serde(default, rename = "score")]
    pub scores: Vec<PrintedScore>,
    /// What it says that the host and a guest send, held to processors.
    #[serde(default)]
    pub transfers: Vec<Transfers>,
    /// What it says of a program that it ran again and again.
    #[serde(default)]
    pub series: Vec<Series>,
}

/// What a guest gets of the host in a group of workloads, as the paper has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrintedScore {
    /// The group, as workloads name it.
    pub group: String,
    /// The paper's word for it.
    pub word: String,
    /// The guest's over the host's.
    pub ratio: f64,
    /// How far ours may be from it for both to be the same: our reading, since the paper prints no spread.
    pub tolerance: f64,
    /// Where it stands.
    pub citation: String,
}

/// A table of the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Caption {
    /// Which rows are its own.
    pub direction: String,
    /// `Table 1`, and what it holds.
    pub title: String,
    /// The workload that measures the same here.
    pub workload: String,
}

/// Something around the paper's measurements that may be different here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Circumstance {
    /// What.
    pub what: String,
    /// In the paper.
    pub paper: String,
    /// Where it is found in a run.
    pub here: Here,
}

/// What of a run's environment a circumstance is set beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Here {
    /// The accelerator and QEMU's version.
    Hypervisor,
    /// CPU model and number.
    Cpu,
    /// What each side may use.
    Sides,
    /// The backing device.
    Storage,
    /// Bytes that the workload moved.
    Moved,
    /// How guests' disks were cached by the host.
    CacheModes,
}

/// A word of the paper that leaves open what was measured, and what we take it for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PaperReading")]
pub struct Reading {
    /// The paper's word.
    pub word: String,
    /// What we take it for.
    #[serde(rename = "as")]
    pub taken_for: String,
}

/// A slip of the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Footnote {
    /// Which figures it is about.
    pub about: String,
    /// What contradicts what.
    pub text: String,
}

/// A row of a table. A figure that the paper leaves empty is `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Of which table.
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
    /// Places of its footnotes, from 1.
    #[serde(default)]
    pub notes: Vec<usize>,
    /// The cell that measures the same here.
    pub cell: Option<Pattern>,
    /// Or why there is none.
    pub not_run: Option<String>,
}

/// What an effect is measured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// The workload's bandwidth.
    Bandwidth,
    /// Requests in flight at the disk.
    QueueDepth,
    /// Bytes of a request at the disk.
    RequestSize,
    /// What small requests cost natively: control cells of the numerator's cell.
    SmallRequests,
}

/// How an effect's ratio stands to its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// The ratio lies below it.
    Below,
    /// The ratio reaches it.
    AtLeast,
}

/// An effect that the paper states, and its test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// Short name.
    pub id: String,
    /// What the paper states, in our words.
    pub text: String,
    /// Where it stands.
    pub citation: String,
    /// The paper's figure of the numerator.
    pub published_numerator: f64,
    /// The paper's figure of the denominator.
    pub published_denominator: f64,
    /// Unit of both.
    pub unit: String,
    /// The workload of both cells.
    pub workload: String,
    /// That of the denominator, where it has another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denominator_workload: Option<String>,
    /// What is compared.
    pub measure: Measure,
    /// The cell above the line.
    pub numerator: Pattern,
    /// The cell below the line; for `small-requests` there is none.
    pub denominator: Option<Pattern>,
    /// How the ratio must stand to the bound.
    pub relation: Relation,
    /// The bound.
    pub bound: f64,
    /// What of this test is our reading of the paper, where its words or figures do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<String>,
}

impl Effect {
    /// The workload of the cell below the line.
    pub fn below(&self) -> &str {
        self.denominator_workload.as_deref().unwrap_or(&self.workload)
    }
}

/// Why a file is no whole paper.
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
    /// Whether a study measures it again.
    pub fn is_of(&self, study: Option<&str>) -> bool {
        study.is_some_and(|study| self.studies.iter().any(|own| own == study))
    }

    /// Reads a paper and checks that it is whole.
    ///
    /// # Errors
    /// What is wrong first.
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
            if effect.bound <= 0.0 || effect.published_numerator <= 0.0 || effect.published_denominator <= 0.0 {
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
        Ok(paper)
    }
}

#[cfg(test)]
mod tests;
