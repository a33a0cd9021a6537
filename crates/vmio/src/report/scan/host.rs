//! Findings about the host, not one guest: shown once, with the guests that have them.

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::rules::{Finding, RULES, Severity};
use vmio_model::words::first_of;

use super::{Row, View};
use crate::report::format;

/// Most names of guests that are shown.
const NAMED: usize = 5;

/// A finding of the host's.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HostWide<'a> {
    /// Id of the rule.
    pub rule: &'a str,
    /// Title of the rule.
    pub title: &'a str,
    /// The worst of the guests'.
    pub severity: Severity,
    /// The cause, as the first guest's finding says it.
    pub cause: &'a str,
    /// What to do, in a sentence; how is told with each guest.
    pub what: &'a str,
    /// Names of the guests, each of which has the finding among its own.
    pub guests: Vec<&'a str>,
}

impl View {
    /// Findings that several guests have for one reason, the host's: of one rule, with one thing to do; in the order of
    /// the rules.
    pub fn host_wide(&self) -> Vec<HostWide<'_>> {
        let mut all: Vec<HostWide<'_>> = Vec::new();
        for row in &self.rows {
            let name = row.guest.name.as_str();
            for finding in row.findings.iter().filter(|f| f.of_host) {
                match all.iter_mut().find(|wide| wide.is(finding)) {
                    Some(wide) => {
                        wide.severity = wide.severity.max(finding.severity);
                        // Several cards of a guest may have it.
                        if wide.guests.last() != Some(&name) {
                            wide.guests.push(name);
                        }
                    }
                    None => all.push(HostWide {
                        rule: &finding.rule,
                        title: &finding.title,
                        severity: finding.severity,
                        cause: &finding.cause,
                        what: &finding.change.what,
                        guests: vec![name],
                    }),
                }
            }
        }
        all.retain(|wide| wide.guests.len() > 1);
        all.sort_by_key(|wide| RULES.iter().position(|rule| rule.id == wide.rule));
        all
    }
}

impl HostWide<'_> {
    /// Whether a guest's finding is this one.
    fn is(&self, finding: &Finding) -> bool {
        finding.of_host && self.rule == finding.rule && self.what == finding.change.what
    }

    /// In a line: `Software emulation (emulation-though-kvm) in 7 guests: a, b, c, d, e and 2 more`.
    pub fn line(&self) -> String {
        let named = first_of(&self.guests, NAMED);
        let guests = format::count(self.guests.len(), "guest");
        format!("{}: {} ({}) in {guests}: {named}", self.severity, self.title, self.rule)
    }
}

/// The findings of a guest that are its own.
pub(super) fn own<'a>(row: &'a Row, host: &'a [HostWide<'_>]) -> impl Iterator<Item = &'a Finding> {
    row.findings.iter().filter(|f| !host.iter().any(|h| h.is(f)))
}
