//! What changed since an earlier scan: findings that are new, gone or changed, and guests that came or went. The
//! earlier scan is a document of `vmio scan --json`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmio_model::facts::{DeviceId, Guest, Subject};
use vmio_model::rules::{About, Evidence, Finding, Severity};

use super::{Row, View};
use crate::fit::{self, WIDTH};
use crate::report::document::Out;
use crate::report::format::{self, count};
use crate::term::Style;

/// The parts of an earlier scan that are compared.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Earlier {
    /// When it was made.
    pub at_unix_seconds: f64,
    /// Its guests.
    pub guests: Vec<EarlierGuest>,
}

/// A guest of an earlier scan.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "Stored")]
pub struct EarlierGuest {
    /// The guest, with what identifies it.
    pub guest: Guest,
    /// Its findings.
    pub findings: Vec<EarlierFinding>,
}

/// A guest as the JSON has it.
#[derive(Deserialize)]
struct Stored {
    name: String,
    kind: String,
    pid: Option<u32>,
    uuid: Option<String>,
    #[serde(default)]
    ids: BTreeMap<String, String>,
    findings: Vec<StoredFinding>,
}

impl From<Stored> for EarlierGuest {
    fn from(stored: Stored) -> Self {
        let Stored { name, kind, pid, uuid, ids, findings } = stored;
        let findings = findings.into_iter().map(|finding| finding.of(&name)).collect();
        EarlierGuest { guest: Guest { name, kind, pid, uuid, ids, ..Guest::default() }, findings }
    }
}

/// A finding as the JSON has it.
#[derive(Deserialize)]
struct StoredFinding {
    rule: String,
    title: String,
    severity: Severity,
    subject: String,
    #[serde(default)]
    evidence: Vec<Evidence>,
}

impl StoredFinding {
    /// Parses the text of a subject, in which the device's name follows the guest's.
    fn of(self, guest: &str) -> EarlierFinding {
        let StoredFinding { rule, title, severity, subject, evidence } = self;
        let subject = Subject::parse(guest, &subject).map_or(About::Cell(subject), About::Guest);
        EarlierFinding { rule, title, severity, subject, evidence }
    }
}

/// A finding of an earlier scan.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlierFinding {
    /// Id of its rule.
    pub rule: String,
    /// Its title.
    pub title: String,
    /// Its severity.
    pub severity: Severity,
    /// Its subject.
    pub subject: About,
    /// Its evidence.
    pub evidence: Vec<Evidence>,
}

impl From<&Finding> for EarlierFinding {
    fn from(f: &Finding) -> Self {
        EarlierFinding {
            rule: f.rule.clone(),
            title: f.title.clone(),
            severity: f.severity,
            subject: f.subject.clone(),
            evidence: f.evidence.clone(),
        }
    }
}

/// A finding that is new, gone or changed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Changed {
    /// The guest.
    pub guest: String,
    /// Id of the rule.
    pub rule: String,
    /// Its title.
    pub title: String,
    /// What it is about.
    pub subject: About,
    /// How much it matters; of one that is gone: how much it mattered.
    pub severity: Severity,
    /// What it was before, where that is another.
    pub severity_before: Option<Severity>,
}

/// The difference to an earlier scan.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Diff {
    /// Where the earlier scan was read; `None`: there is none yet.
    pub from: Option<String>,
    /// When it was made.
    pub since_unix_seconds: Option<f64>,
    /// Findings that were not there.
    pub new: Vec<Changed>,
    /// Findings that are no longer there, of guests that still run.
    pub gone: Vec<Changed>,
    /// Findings of another severity or with other settings behind them.
    pub changed: Vec<Changed>,
    /// Findings that are as they were.
    pub unchanged: usize,
    /// Guests that did not run then.
    pub guests_new: Vec<String>,
    /// Guests that no longer run.
    pub guests_gone: Vec<String>,
    /// Whether this scan was kept for the next comparison.
    #[serde(skip)]
    pub kept: bool,
}

impl Diff {
    /// The result where there is no earlier scan.
    pub fn first() -> Diff {
        Diff {
            from: None,
            since_unix_seconds: None,
            new: Vec::new(),
            gone: Vec::new(),
            changed: Vec::new(),
            unchanged: 0,
            guests_new: Vec::new(),
            guests_gone: Vec::new(),
            kept: false,
        }
    }

    /// Compares with an earlier scan that was read from `from`.
    pub fn of(rows: &[Row], earlier: &Earlier, from: &str) -> Diff {
        let mut diff =
            Diff { from: Some(from.to_owned()), since_unix_seconds: Some(earlier.at_unix_seconds), ..Diff::first() };
        let mut left: Vec<&EarlierGuest> = earlier.guests.iter().collect();
        for row in rows {
            let now: Vec<EarlierFinding> = row.findings.iter().map(EarlierFinding::from).collect();
            match left.iter().position(|old| same(&old.guest, &row.guest)) {
                Some(place) => diff.guest(&row.guest.name, left.remove(place), now),
                None => {
                    diff.guests_new.push(row.guest.name.clone());
                    diff.new.extend(now.iter().map(|f| changed(&row.guest.name, f, None)));
                }
            }
        }
        diff.guests_gone = left.iter().map(|old| old.guest.name.clone()).collect();
        diff
    }

    fn guest(&mut self, name: &str, old: &EarlierGuest, now: Vec<EarlierFinding>) {
        // Findings are matched by device, since a guest's name changes when a second guest of that name appears.
        // The stored scan does not number devices of one name (`twin`).
        let key = |f: &EarlierFinding| {
            (f.rule.clone(), f.subject.device().map(|device| DeviceId { twin: 0, ..device.clone() }))
        };
        let mut before: BTreeMap<_, Vec<&EarlierFinding>> = BTreeMap::new();
        old.findings.iter().rev().for_each(|f| before.entry(key(f)).or_default().push(f));
        for f in &now {
            let Some(was) = before.get_mut(&key(f)).and_then(Vec::pop) else {
                self.new.push(changed(name, f, None));
                continue;
            };
            // Sources are not compared: they change with each start of a guest.
            let settings = |f: &EarlierFinding| -> Vec<(String, String)> {
                f.evidence.iter().map(|e| (e.setting.clone(), e.value.clone())).collect()
            };
            if was.severity == f.severity && settings(was) == settings(f) {
                self.unchanged += 1;
            } else {
                self.changed.push(changed(name, f, Some(was.severity).filter(|s| *s != f.severity)));
            }
        }
        self.gone.extend(before.into_values().flatten().map(|f| changed(name, f, None)));
    }

    /// The worst severity that is new or became worse.
    pub fn worst(&self) -> Option<Severity> {
        let worse = self.changed.iter().filter(|c| c.severity_before.is_some_and(|before| before < c.severity));
        self.new.iter().chain(worse).map(|c| c.severity).max()
    }
}

fn changed(guest: &str, f: &EarlierFinding, severity_before: Option<Severity>) -> Changed {
    Changed {
        guest: guest.to_owned(),
        rule: f.rule.clone(),
        title: f.title.clone(),
        subject: f.subject.clone(),
        severity: f.severity,
        severity_before,
    }
}

/// Whether both are one guest, also after a restart: by UUID, VMID, then name and kind.
fn same(old: &Guest, now: &Guest) -> bool {
    match ((&old.uuid, &now.uuid), (old.vmid(), now.vmid())) {
        ((Some(old), Some(now)), _) => old == now,
        (_, (Some(old), Some(now))) => old == now,
        _ => old.kind == now.kind && (old.name == now.name || old.given_name() == now.given_name()),
    }
}

/// The difference for a terminal.
pub fn text(view: &View, diff: &Diff, style: Style) -> String {
    let mut out = Out::new(style, WIDTH);
    let counts = view.counts();
    out.paragraph(
        "",
        0,
        &format!("{}: {}", view.headline(), if counts.is_empty() { "nothing found" } else { &counts }),
    );
    let Some(from) = &diff.from else {
        let then = if diff.kept {
            "This one was kept; the next --diff compares with it."
        } else {
            "A scan of named guests is not kept: run vmio scan --diff once without a name."
        };
        out.paragraph("", 0, &format!("No earlier scan to compare with. {then}"));
        return out.text;
    };
    let since = diff.since_unix_seconds.map_or_else(String::new, format::utc);
    out.paragraph("", 0, &format!("Compared with the scan of {since} ({from})."));
    out.line("");
    let all = [("new", &diff.new), ("gone", &diff.gone), ("changed", &diff.changed)];
    for (word, list) in all {
        for c in list {
            let before = c.severity_before.map_or_else(String::new, |before| format!("{before}, now "));
            let device = c.subject.device().map_or(String::new(), |device| format!(", {device}"));
            let guest = fit::name(&c.guest, 40);
            let lead = match word {
                "new" => style.yellow("new     "),
                word => style.cyan(&format!("{word:<8}")),
            };
            out.paragraph(&lead, 8, &format!("{guest}{device}: {before}{}: {} ({})", c.severity, c.title, c.rule));
        }
    }
    for (what, guests) in
        [("Guests that did not run then", &diff.guests_new), ("Guests that no longer run", &diff.guests_gone)]
    {
        if !guests.is_empty() {
            out.paragraph("", 2, &format!("{what}: {}", guests.join(", ")));
        }
    }
    let nothing = all.iter().all(|(_, list)| list.is_empty());
    out.line(&format!(
        "{}{} unchanged.",
        if nothing { "No difference: " } else { "" },
        count(diff.unchanged, "finding")
    ));
    out.text
}
