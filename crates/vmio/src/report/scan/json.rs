//! A scan as JSON. Field names carry their units; fields are only added within a major
//! `schema_version`. A guest's members are its facts (`vmio_model::facts::Guest`) as they are.

use serde::Serialize;
use vmio_model::facts::{Guest, Unread};
use vmio_model::rules::Finding;
use vmio_model::rules::change::Together;
use vmio_model::shown;
use vmio_model::summary::SCHEMA_VERSION;

use super::diff::Diff;
use super::{HostWide, Row, View};

#[derive(Serialize)]
struct Document<'a> {
    schema_version: &'static str,
    at_unix_seconds: f64,
    seconds: f64,
    guests: Vec<Entry<'a>>,
    /// Findings that several guests have for one reason, the host's; each is also among its guests' own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    host_findings: Vec<HostWide<'a>>,
    unread: &'a [Unread],
    own_guests_left_out: usize,
    findings_ignored: usize,
    /// The same by who asked for it.
    ignored_by: Vec<IgnoredBy<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<&'a Diff>,
}

#[derive(Serialize)]
struct IgnoredBy<'a> {
    from: &'a str,
    findings: usize,
}

#[derive(Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    guest: &'a Guest,
    /// Which of a change's ways is this guest's own: `qemu`, `libvirt`, `proxmox`; `null` where none is.
    own_way: Option<String>,
    findings: &'a [Finding],
    /// One change for each device that several findings concern; made instead of theirs.
    together: Vec<Together>,
    differences_to_reference: &'a [String],
}

/// The scan as one JSON document.
pub fn json(view: &View) -> String {
    let document = Document {
        schema_version: SCHEMA_VERSION,
        at_unix_seconds: view.at_unix_seconds,
        seconds: view.seconds,
        guests: view.rows.iter().map(entry).collect(),
        host_findings: view.host_wide(),
        unread: &view.unread,
        own_guests_left_out: view.own_guests,
        findings_ignored: view.ignored,
        ignored_by: view.ignored_by.iter().map(|(from, n)| IgnoredBy { from, findings: *n }).collect(),
        diff: view.diff.as_ref(),
    };
    let mut text = serde_json::to_string_pretty(&document).expect("string keys, and no failing serialiser");
    text.push('\n');
    shown::json(&text).into_owned()
}

fn entry(row: &Row) -> Entry<'_> {
    Entry {
        guest: &row.guest,
        own_way: row.own_way().map(|way| way.name().to_lowercase()),
        findings: &row.findings,
        together: row.together(),
        differences_to_reference: &row.differences,
    }
}
