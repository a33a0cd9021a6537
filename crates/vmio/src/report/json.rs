//! The report as JSON: the summary's fields, with findings and proofs beside them. Field names
//! carry their units; fields are only added within a major `schema_version`.

use serde::Serialize;
use vmio_model::paper::Table;
use vmio_model::rules::Finding;
use vmio_model::summary::Summary;

use super::{Proved, Report};

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    findings: &'a [Finding],
    proofs: &'a [Proved],
    paper_tables: &'a [Table],
}

/// The report as one JSON document.
pub fn json(report: &Report<'_>) -> String {
    let document = Document {
        summary: &report.summary,
        findings: &report.findings,
        proofs: &report.proofs,
        paper_tables: &report.tables,
    };
    let mut text = serde_json::to_string_pretty(&document).expect("string keys, and no failing serialiser");
    text.push('\n');
    text
}
