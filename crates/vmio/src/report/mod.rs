//! The report of a run: as text for a terminal, JSON, Markdown, and HTML in one file. All are
//! drawn from the stored run alone, and all say the same: under software emulation each carries
//! the statement of what may be concluded, each names the cells that did not run, and none shows
//! a figure for something that was not measured. What people read is one document, whatever its form.

mod by_cell;
mod by_component;
mod code;
mod comparison;
mod config;
mod cost;
pub(crate) mod document;
mod effects;
mod energy;
mod events;
pub mod experiment;
pub mod explain;
pub mod export;
mod figures;
mod finding;
pub mod format;
mod forms;
mod groups;
mod json;
mod layers;
pub mod like;
mod measured;
mod over_link;
mod page;
mod paper;
pub mod plan;
mod plot;
mod raw;
mod run;
pub mod scan;
mod scores;
mod section;
mod series;
mod short;
pub mod simulation;
mod svg;
mod transfers;
mod versus;
mod view;

use vmio_model::best::{self, Best};
use vmio_model::cell::Cell;
use vmio_model::facts::facts_of;
use vmio_model::paper::{
    EventTable, ScoreJudged, SeriesTable, Table, events as published_events, scores as published_scores,
    series as published_series, tables,
};
use vmio_model::rules::{self, Finding};
use vmio_model::run::Run;
use vmio_model::stats::Ratio;
use vmio_model::summary::{self, Comparison, Summary};

use crate::fit::WIDTH;
use crate::term::Style;

pub use config::{qm, xml};
pub use effects::effects as effects_text;
pub use forms::Forms;
pub use json::{Document, json};
pub use short::{LINES, Uncapped, next as next_commands};
pub use versus::Versus;

/// A run with its conclusions.
pub struct Report<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its figures.
    pub summary: Summary,
    /// The findings, the costliest first.
    pub findings: Vec<Finding>,
    /// The baseline of its cells.
    pub versus: Versus,
    /// A paper's tables with this run's figures, where the study measures one again.
    pub tables: Vec<Table>,
    /// A paper's scores of groups of workloads beside this run's, where the study measures one again.
    pub published: Vec<ScoreJudged>,
    /// A paper's series of repeated runs of a program beside this run's, where the study measures one again.
    pub series: Vec<SeriesTable>,
    /// A paper's events by component beside this run's CPU time, where the study measures one again.
    pub events: Vec<EventTable>,
    /// What `--prove` showed.
    pub proofs: Vec<Proved>,
    /// The best set-up, if one can be named.
    pub best: Option<Best>,
    /// Of a run under `--gentle`: an earlier one without it.
    pub uncapped: Option<Uncapped>,
}

/// What `--prove` showed of a finding: its cell as it is against the changed one, in one run.
#[derive(Debug, Clone, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub struct Proved {
    /// The run that measured it.
    pub run: i64,
    /// As it is.
    pub before: Cell,
    /// With the change applied.
    pub after: Cell,
    /// After over before, paired by round: above 1 is faster.
    pub gain_ratio: Ratio,
    /// In words: gain and interval, or that no difference was shown.
    pub verdict: String,
}

impl<'a> Report<'a> {
    /// Draws the conclusions of a run.
    pub fn of(run: &'a Run) -> Report<'a> {
        let summary = summary::summarise(run);
        let mut findings = rules::findings(&facts_of(run, &summary));
        layers::cite(&mut findings, run);
        let again = crate::papers::of_run(&run.kind);
        let tables = again.map_or(Vec::new(), |paper| tables(paper, &summary));
        let published = again.map_or(Vec::new(), |again| published_scores(again, &summary));
        let series = again.map_or(Vec::new(), |again| published_series(again, &summary));
        let events = again.map_or(Vec::new(), |again| published_events(again, run, &summary));
        let (versus, best) = (Versus::of(&summary), best::best(run, &summary));
        let (proofs, uncapped) = (Vec::new(), None);
        Report { run, versus, summary, findings, tables, published, series, events, proofs, best, uncapped }
    }

    /// Adds what later runs proved of the findings.
    pub fn with_proofs<'b>(mut self, runs: impl IntoIterator<Item = &'b Run>) -> Report<'a> {
        for run in runs {
            let proven = self.findings.iter().filter_map(|f| f.proof.as_ref()).filter_map(|p| prove(run, p));
            self.proofs.extend(proven);
        }
        self
    }

    /// Adds a run of the same study without `--gentle`, beside which a share of a cap is read.
    pub fn with_uncapped(self, run: Option<&Run>) -> Report<'a> {
        Report { uncapped: run.map(Uncapped::of), ..self }
    }

    /// The outcome for a finding.
    pub fn proof(&self, finding: &Finding) -> Option<&Proved> {
        let wanted = finding.proof.as_ref()?;
        self.proofs.iter().rev().find(|p| p.before == wanted.before && p.after == wanted.after)
    }
}

/// The result of a proof; `None` where the run did not measure both sides in one round.
pub fn prove(run: &Run, proof: &rules::Proof) -> Option<Proved> {
    let shown = proof.verdict(run)?;
    Some(Proved {
        run: run.id,
        before: proof.before.clone(),
        after: proof.after.clone(),
        gain_ratio: shown.gain_ratio,
        verdict: shown.verdict,
    })
}

/// The whole report for a terminal (`--verbose`).
pub fn text(report: &Report<'_>, style: Style) -> String {
    run::document(report).text(style, WIDTH)
}

/// The short report for a terminal of so many columns: at most [`LINES`] lines whose end is the answer.
pub fn short(report: &Report<'_>, style: Style, width: usize) -> String {
    short::text(report, style, width)
}

/// The report as Markdown, for an issue, a pull request or `docs/results/`.
pub fn markdown(report: &Report<'_>) -> String {
    run::document(report).markdown()
}

/// The report as one HTML file that loads nothing.
pub fn html(report: &Report<'_>) -> String {
    run::document(report).html()
}

/// Two runs against each other, for a terminal.
pub fn comparison_text(comparison: &Comparison, style: Style) -> String {
    comparison::document(comparison).text(style, WIDTH)
}
