//! The report as JSON: the summary's fields, with findings and proofs beside them. Field names
//! carry their units; fields are only added within a major `schema_version`.

use serde::Serialize;
use vmio_model::paper::Table;
use vmio_model::rules::Finding;
use vmio_model::shown;
use vmio_model::summary::{Best, Summary};

use super::{Proved, Report};

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    findings: &'a [Finding],
    proofs: &'a [Proved],
    paper_tables: &'a [Table],
    best: Option<&'a Best>,
}

/// The report as one JSON document.
pub fn json(report: &Report<'_>) -> String {
    let Report { summary, findings, proofs, tables, best, .. } = report;
    let document = Document { summary, findings, proofs, paper_tables: tables, best: best.as_ref() };
    let mut text = serde_json::to_string_pretty(&document).expect("string keys, and no failing serialiser");
    text.push('\n');
    shown::json(&text).into_owned()
}
