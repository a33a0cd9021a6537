//! A scan as JSON. Field names carry their units; fields are only added within a major
//! `schema_version`. A guest's members are its facts (`vmio_model::facts::Guest`) as they are.

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::facts::{Guest, Unread};
use vmio_model::rules::Finding;
use vmio_model::rules::change::Together;

use super::diff::Diff;
use super::{HostWide, Row, View};
use crate::document;

/// Version of the document; a run's has its own ([`vmio_model::summary::SCHEMA_VERSION`]).
const SCHEMA_VERSION: &str = "1.0";

/// What a look at the guests on this host showed.
#[derive(Serialize, JsonSchema)]
pub struct Document<'a> {
    /// Version of this document.
    schema_version: &'static str,
    /// When it was looked, in seconds since the epoch.
    at_unix_seconds: f64,
    /// How long that took.
    seconds: f64,
    /// The machine that was looked at, where that is not this host: `ssh://root@host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    on: Option<String>,
    /// The guests, the worst first.
    guests: Vec<Entry<'a>>,
    /// Findings that several guests have for one reason, the host's; each is also among its guests' own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    host_findings: Vec<HostWide<'a>>,
    /// What could not be read and belongs to no guest.
    unread: &'a [Unread],
    /// Guests of vmio's own that are left out (`--all` shows them).
    own_guests_left_out: usize,
    /// Findings that were left out since they are meant to be so.
    findings_ignored: usize,
    /// The same by who asked for it.
    ignored_by: Vec<IgnoredBy<'a>>,
    /// What changed since an earlier scan; only with `--diff`.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<&'a Diff>,
}

/// Findings left out for one who asked for it.
#[derive(Serialize, JsonSchema)]
struct IgnoredBy<'a> {
    /// `--ignore`, or a file.
    from: &'a str,
    /// How many.
    findings: usize,
}

/// A guest with what is wrong with it.
#[derive(Serialize, JsonSchema)]
struct Entry<'a> {
    #[serde(flatten)]
    guest: &'a Guest,
    /// Which of a change's ways is this guest's own: `qemu`, `libvirt`, `proxmox`; `incus` or `lxd` where it is in
    /// `by_manager`; `null` where none is.
    own_way: Option<String>,
    /// What the rules found, the most severe first.
    findings: &'a [Finding],
    /// One change for each device that several findings concern; made instead of theirs.
    together: Vec<Together>,
    /// How it differs from the reference guest of `vmio tax`, a sentence each.
    differences_to_reference: &'a [String],
}

/// The scan as one JSON document.
pub fn json(view: &View) -> String {
    let document = Document {
        schema_version: SCHEMA_VERSION,
        at_unix_seconds: view.at_unix_seconds,
        seconds: view.seconds,
        on: view.on.clone(),
        guests: view.rows.iter().map(entry).collect(),
        host_findings: view.host_wide(),
        unread: &view.unread,
        own_guests_left_out: view.own_guests,
        findings_ignored: view.ignored,
        ignored_by: view.ignored_by.iter().map(|(from, n)| IgnoredBy { from, findings: *n }).collect(),
        diff: view.diff.as_ref(),
    };
    document::text(&document)
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
