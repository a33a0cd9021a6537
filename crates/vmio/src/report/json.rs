//! The report as JSON: the summary's fields, with findings and proofs beside them. Field names
//! carry their units; fields are only added within a major `schema_version`.

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::best::Best;
use vmio_model::paper::{EventTable, ScoreJudged, SeriesTable, Table};
use vmio_model::rules::Finding;
use vmio_model::summary::{self, Partial, Summary};

use super::{Proved, Report};
use crate::document;

/// A run, judged: its figures, what the rules found, and what was proven.
#[derive(Serialize, JsonSchema)]
pub struct Document<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    /// Why the result is partial, which is exit code 4; null where it is whole.
    partial: Option<Partial>,
    /// What the rules found, what costs most first.
    findings: &'a [Finding],
    /// What `--prove` showed.
    proofs: &'a [Proved],
    /// A paper's tables with this run's figures, where the study measures one again.
    paper_tables: &'a [Table],
    /// A paper's scores of groups of workloads beside this run's, where the study measures one again.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    paper_scores: &'a [ScoreJudged],
    /// What a paper says of a program that it ran again and again, beside this run's, where the study measures one again.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    paper_series: &'a [SeriesTable],
    /// What a paper says of events by component, beside this run's CPU time, where the study measures one again.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    paper_events: &'a [EventTable],
    /// The set-up that did best, if one can be named.
    best: Option<&'a Best>,
}

/// The report as one JSON document.
pub fn json(report: &Report<'_>) -> String {
    let Report { run, summary, findings, proofs, tables, published, series, events, best, .. } = report;
    let document = Document {
        summary,
        partial: summary::partial(run, summary),
        findings,
        proofs,
        paper_tables: tables,
        paper_scores: published,
        paper_series: series,
        paper_events: events,
        best: best.as_ref(),
    };
    document::text(&document)
}
